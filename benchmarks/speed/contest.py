"""Contenders side by side: each a process in its own environment, all on the same data, taking turns.

A contender works only in its turn, so they do not disturb each other, a slow spell of the machine falls on all alike, and
the peak memory is each one's own. The first turn, which may compile or import, is kept apart. `contenders/` holds the
scripts; peers that cannot share the main environment have one beside it (.venv-ortools, .venv-qpth, .venv-moreau, .venv-mpax: `make peers`).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BUDGET, MOST, LEAST = 20.0, 60.0, 3
Turn = tuple[dict[str, float], dict[str, np.ndarray]]  # what it cost, and what it found
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class BenchmarkError(Exception):
    """A contender could not be started, or died."""


@dataclass(frozen=True)
class Entry:
    """A contender: a script of `contenders/`, its arguments after the data file, and where it runs (empty for this environment, or
    what follows ".venv-"). threads: where its number differs from the contest's."""

    script: str
    arguments: tuple[str, ...] = ()
    environment: str = ""
    threads: int | None = None

    @property
    def python(self) -> Path:
        """This interpreter, or that of the peer's own environment."""
        return ROOT / f".venv-{self.environment}" / "bin" / "python" if self.environment else Path(sys.executable)


@dataclass(frozen=True)
class Result:
    """What the turns of one contender gave: seconds of the first (by the clock on the wall), the median of the later ones (CPU time
    on one thread, the clock on several), the largest memory in MiB and what it was before any work, and the arrays that each left."""

    first: float
    seconds: float
    peak: float
    imports: float
    found: list[dict[str, np.ndarray]]
    turns: list[float]

    @classmethod
    def of(cls, taken: list[Turn], clock: str) -> Result:
        times, memory = [cost[clock] for cost, _ in taken], taken[-1][0]
        found = [found for _, found in taken]
        return cls(taken[0][0]["wall"], statistics.median(times[1:]), memory["peak"], memory["imports"], found, times)


class Contender:
    """The process of an entry, from `with` to the end of it."""

    def __init__(self, name: str, entry: Entry, subject: str, data: Path, threads: int) -> None:
        if not entry.python.exists():
            raise BenchmarkError(f"{name} needs the environment .venv-{entry.environment}: run `make peers`")
        self.name = name
        script = ROOT / "benchmarks" / "speed" / "contenders" / entry.script
        self.command = [str(entry.python), "-W", "ignore", str(script), subject, str(data), *entry.arguments]
        # Passive: OpenMP threads that wait for the next operation would spin on the cores that others need.
        own = {variable: str(entry.threads or threads) for variable in THREAD_VARIABLES}
        self.variables = {**os.environ, **own, "OMP_WAIT_POLICY": "passive"}

    def __enter__(self) -> Contender:
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dflearn-bench-")))
            self.errors = stack.enter_context(tempfile.TemporaryFile("w+"))
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
            process = subprocess.Popen(self.command, text=True, env=self.variables, **pipes)
            self.process = stack.enter_context(process)
            self._read()  # ready: the next one does not start while this one imports
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        if exception[0] is not None:
            self.process.kill()
        self.stack.close()  # no more turns: the process ends, and is waited for

    def turn(self) -> Turn:
        """Let it work once; what that cost, and what it found."""
        assert self.process.stdin is not None
        file = self.folder / "found.npz"
        with contextlib.suppress(BrokenPipeError):  # what it died of is read below
            print(file, file=self.process.stdin, flush=True)
        cost = json.loads(self._read())
        with np.load(file) as found:
            return cost, dict(found)

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:] or ["it said nothing"]
            raise BenchmarkError(f"{self.name} died: {last[0]}")
        return line


def contest(
    entries: Mapping[str, Entry],
    subject: str,
    data: Mapping[str, Any],
    repeats: int,
    threads: int = 1,
    wall: bool | None = None,
) -> dict[str, Result]:
    """All entries on the data: one turn each that is kept apart, then `repeats` rounds of turns. Timed by the clock on the `wall`
    where there are several threads, else by the CPU time of the process. Whoever has used up `BUDGET` seconds takes part in no
    more after `LEAST` rounds, or after one where it used up `MOST`."""
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dflearn-bench-"))) / "data.npz"
        np.savez(file, **data)
        contenders = {name: Contender(name, entry, subject, file, threads) for name, entry in entries.items()}
        racers = {name: stack.enter_context(contender) for name, contender in contenders.items()}
        turns: dict[str, list[Turn]] = {name: [] for name in racers}
        for _ in range(1 + repeats):
            for name, racer in racers.items():
                spent = sum(cost["cpu"] * cost["calls"] for cost, _ in turns[name])
                if len(turns[name]) < 2 or spent < BUDGET or (len(turns[name]) <= LEAST and spent < MOST):
                    turns[name].append(racer.turn())
    clock = "wall" if (threads > 1 if wall is None else wall) else "cpu"
    return {name: Result.of(taken, clock) for name, taken in turns.items()}


def on_two_threads(subject: str, data: Mapping[str, Any], repeats: int, *arguments: str) -> dict[str, float]:
    """dflearn on one thread and on two, by the clock on the wall, on a machine with nothing else to do."""
    entries = {str(count): Entry("run_dflearn.py", arguments, threads=count) for count in (1, 2)}
    one, two = contest(entries, subject, data, repeats, wall=True).values()
    times = {"one thread ms": 1e3 * one.seconds, "two threads ms": 1e3 * two.seconds}
    return times | {"threads ratio": one.seconds / two.seconds}
