"""Lines that say how far a long call is: one that changes on a terminal, plain ones, now and then, where output is piped."""

from __future__ import annotations

import sys
import time
from typing import Any

from dflearn.training import Callback, Run

EVERY = 10.0  # seconds between passing lines, where each stays


class Progress:
    """`tell` for what is worth a line of its own, `pass_by` for what the next line replaces."""

    def __init__(self, show: bool) -> None:
        self.show, self.last, self.begun = show, time.perf_counter(), time.perf_counter()
        self.passing = 0  # length of the line to replace

    def tell(self, line: str) -> None:
        self._write(f"[{time.perf_counter() - self.begun:4.0f} s] {line}", "\n")
        self.passing = 0

    def pass_by(self, line: str) -> None:
        now = time.perf_counter()
        if sys.stderr.isatty():
            self._write(line[:100], "")
            self.passing = len(line[:100])
        elif now - self.last > EVERY:
            self.tell(line)

    def done(self) -> None:
        if self.passing:
            self._write("", "")
            self.passing = 0

    def _write(self, line: str, end: str) -> None:
        if self.show:
            before = "\r" + " " * self.passing + "\r" if self.passing else ""
            sys.stderr.write(before + line + end)
            sys.stderr.flush()
            self.last = time.perf_counter()


class Report(Callback):
    """A line per epoch of `fit`, printed."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        monitored = run.history.monitored
        judged = "" if monitored is None else f", {monitored.replace('_', ' ')} {row[monitored]:.4g}"
        print(f"epoch {row['epoch']}: loss {row['loss']:.4g}{judged}, {row['seconds']:.2f} s")
