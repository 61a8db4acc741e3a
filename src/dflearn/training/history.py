"""What a run leaves behind: one plain row per epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any


@dataclass
class History:
    """The record of a run.

    Attributes:
        rows: one dict of plain values per epoch: `epoch` (from 1), `loss` (mean over the epoch's instances),
            `gradient` (mean norm over its steps), `lr`, the validation metrics, `seconds` and its parts
            `seconds_predict` (model and loss), `seconds_solve` (the layer inside the loss), `seconds_backward`
            (gradient and optimizer step), `seconds_validation`. Where the layer could not solve some instances, which had no
            weight then, `failed` counts them and `failed_ids` names them. `pandas.DataFrame(history.rows)` is a table.
        monitored: name of the metric that chooses the best epoch (smaller is better); `None` without validation.
        stopped: why the run ended: "epochs", "early stopping" or "callback"; empty while it goes on.
        notes: what the run wants its reader to know.
        seconds_compile: what the first calls of compiled kernels took, before the first epoch; in no epoch's seconds.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    monitored: str | None = None
    stopped: str = ""
    notes: list[str] = field(default_factory=list)
    seconds_compile: float = 0.0

    def column(self, name: str) -> list[Any]:
        """One value per epoch."""
        return [row[name] for row in self.rows]

    @property
    def best(self) -> dict[str, Any] | None:
        """The first row with the smallest monitored metric; `None` where nothing is monitored yet."""
        name = self.monitored
        if name is None or not self.rows:
            return None
        return min(self.rows, key=lambda row: inf if isnan(row[name]) else row[name])

    @property
    def epochs_since_best(self) -> int:
        return 0 if self.best is None else self.rows[-1]["epoch"] - self.best["epoch"]
