"""What trackers of runs have in common: which rows are new, what describes a run, how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

from dflearn.training import Callback, Run


class Tracker(Callback, ABC):
    """Logs each epoch once, also when a run goes on from a checkpoint, and closes the log however the run ends.

    Subclasses write `_open`, `_log` and `_close`. A value that another callback adds to the row is logged where that
    callback stands before this one.
    """

    def on_start(self, run: Run) -> None:
        self._logged = self._open(run)
        for row in run.history.rows:
            self.on_epoch_end(run, row)

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        if row["epoch"] > self._logged:
            self._log(row["epoch"], numbers(row))
            self._logged = row["epoch"]

    def on_end(self, run: Run) -> None:
        self._close(run, "FINISHED")

    def on_error(self, run: Run, error: BaseException) -> None:
        self._close(run, "FAILED" if isinstance(error, Exception) else "KILLED")

    @abstractmethod
    def _open(self, run: Run) -> int:
        """Open the log, describe the run there, and say which epoch is the last that it has already (0: none)."""

    @abstractmethod
    def _log(self, epoch: int, values: dict[str, float]) -> None: ...

    @abstractmethod
    def _close(self, run: Run, status: str) -> None:
        """End the log. The status is "FINISHED", "FAILED" or "KILLED". May be called where `_open` failed."""


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """The values of a row that can be drawn as curves."""
    return {name: float(value) for name, value in row.items() if name != "epoch" and isinstance(value, int | float)}


def parameters(run: Run) -> dict[str, Any]:
    """What the run was made with, short enough for a table. (`epochs` may grow when it goes on, so it is left out.)"""
    settings = {name: value for name, value in asdict(run.settings).items() if name != "epochs"}
    things = {"model": run.model, "loss": run.loss, "layer": run.loss.layer, "optimizer": run.optimizer}
    named = {name: None if thing is None else type(thing).__name__ for name, thing in things.items()}
    described = {name: run.config[name] for name in ("scheduler", "train", "validation", "problem")}
    return {**named, **settings, **described, "instances": len(run.train)}


def final(run: Run) -> dict[str, float]:
    """The row of the weights that the model has in the end, as `final_loss` and so on, with `final_epoch`."""
    row = run.history.best if run.settings.keep == "best" else run.history.rows[-1] if run.history.rows else None
    return {} if row is None else {"final_epoch": row["epoch"], **{f"final_{k}": v for k, v in numbers(row).items()}}
