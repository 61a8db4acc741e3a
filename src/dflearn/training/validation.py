"""What a run is judged on after each epoch, the record that it leaves behind, and compilation before the first."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isnan
from time import perf_counter
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError
from dflearn.evaluation.regret import GAP, NOT_OPTIMAL, Regrets, check_linear, regrets_of
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.solvers.base import Solver
from dflearn.solvers.task import Decided, DecisionTask

SHOWN = 7  # epochs, at most, of a history in print, beside the best one
COLUMNS = {
    "epoch": "epoch",
    "loss": "loss",
    "validation_loss": "validation loss",
    "validation_absolute_regret": "validation regret",
    "validation_ratio_of_sums": "regret / optimum",
    "seconds": "seconds",
}


@dataclass
class History:
    """The record of a run.

    Attributes:
        rows: one dict of plain values per epoch: `epoch` (from 1), `loss` (mean over the epoch's instances),
            `gradient` (mean norm over its steps), `lr`, the validation metrics, `seconds` and its parts
            `seconds_predict` (model and loss), `seconds_solve` (the layer inside the loss), `seconds_backward`
            (gradient and optimizer step), `seconds_validation`. Where the layer could not solve some instances, which had no
            weight then, `failed` counts them and `failed_ids` names them; with several losses, `phase` says which one (from 1). `pandas.DataFrame(history.rows)` is a table.
        start: the validation metrics before the first epoch, as a row of epoch 0, where the best weights are kept.
        monitored: name of the metric that chooses the best epoch (smaller is better); `None` without validation.
        stopped: why the run ended: "epochs", "early stopping" or "callback"; empty while it goes on.
        notes: what the run wants its reader to know.
        seconds_compile: what the first calls of compiled kernels took, before the first epoch; in no epoch's seconds.

    Examples:
        >>> history = dfl.fit(dfl.models.Linear(10, 12), dfl.losses.MSE(), data, epochs=2)
        >>> [row["epoch"] for row in history.rows], history.rows[1]["loss"] < history.rows[0]["loss"]
        ([1, 2], True)
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    start: dict[str, Any] | None = None
    monitored: str | None = None
    stopped: str = ""
    notes: list[str] = field(default_factory=list)
    seconds_compile: float = 0.0

    def __str__(self) -> str:
        """Ten lines at most: a few epochs, among them the best, and how the run ended."""
        if not self.rows:
            return "no epoch is done yet"
        best, last = self.best, len(self.rows)
        chosen = None if best is None else best["epoch"]
        shown = {round(1 + k * (last - 1) / (SHOWN - 1)) for k in range(SHOWN)} | {chosen}
        columns = {name: words for name, words in COLUMNS.items() if name in self.rows[0]}
        cells = [[row[name] for name in columns] for row in self.rows if row["epoch"] in shown]
        marked = [[*row, "best" if row[0] == chosen else ""] for row in cells]
        seconds = sum(row["seconds"] for row in self.rows) + self.seconds_compile
        said = [f"{last} epochs in {seconds:.3g} s"]
        said += [f"ended by {self.stopped}"] if self.stopped not in ("", "epochs") else []
        said += [] if chosen is None else [f"best epoch {chosen}"]
        said += [f"note 1 of {len(self.notes)}: {self.notes[0]}"] if self.notes else []
        return tabulate(marked, [*columns.values(), ""], tablefmt="plain", floatfmt=".4g") + "\n" + "; ".join(said)

    def note(self, text: str) -> None:
        """Say it to the reader of the run: here, and as a warning."""
        if text:
            self.notes.append(text)
            warnings.warn(text, RuntimeWarning, stacklevel=5)

    def column(self, name: str) -> list[Any]:
        """One value per epoch."""
        return [row[name] for row in self.rows]

    @property
    def best(self) -> dict[str, Any] | None:
        """The first row with the smallest monitored metric, the start's included; `None` where nothing is monitored yet."""
        name, rows = self.monitored, [*([] if self.start is None else [self.start]), *self.rows]
        if name is None or not rows:
            return None
        return min(rows, key=lambda row: inf if isnan(row[name]) else row[name])

    @property
    def epochs_since_best(self) -> int:
        return 0 if self.best is None else self.rows[-1]["epoch"] - self.best["epoch"]


CHUNK = 1024  # instances that are predicted and solved at once


class Validation:
    """Metrics of a model on held-out data: the regret where it is known what is decided, the loss otherwise; as of `dflearn.evaluate`.

    Always cold, and without a trace: a run goes the same way with and without it.
    """

    def __init__(self, data: DecisionDataset, loss: Loss, problem: Decided | None) -> None:
        self.data, self.loss = data, loss
        costs = None if data.costs is None else data.costs.shape[1]
        self.solver = None if problem is None else DecisionTask.of(problem, costs).solver
        self.monitored = "validation_loss" if self.solver is None else "validation_absolute_regret"
        self._note, self._noted = "", False
        if not len(data):
            raise DataError("the validation set is empty: leave it out, or give it instances")
        if self.solver is not None:
            self.labels = self._labels(self.solver)

    def _labels(self, solver: Solver) -> Tensor:
        """w* in float64 `(count, n)`: the data's decisions, or the solver's where there are none or they are not feasible."""
        data = self.data.batch()
        if data.costs is None:
            raise DataError("the validation regret needs true costs; without `problem` a run is judged by its loss")
        if self.data.decisions is not None:
            labels = self.data.decisions.double()
            program = solver.program
            if program is None or bool(program.is_feasible(labels, program.realize(data.costs, data.instance)).all()):
                return labels
            why = "are not feasible for the program that judges (they may come from its relaxation)"
            self._note = f"the decisions of the validation set {why}: its optimal decisions were computed anew"
        return solver.solve(data.costs.double(), data.instance).check().decision

    def take_note(self) -> str:
        """The note that was not given yet, or ""."""
        note, self._note = self._note, ""
        return note

    def move(self, device: torch.device) -> None:
        """Hold the data on this device, where the model is."""
        if self.data.features.device != device:
            self.data = self.data.to(device)
            if self.solver is not None:
                self.labels = self.labels.to(device)

    def __call__(self, model: nn.Module) -> dict[str, float]:
        return self.metrics(self.totals(model, torch.arange(len(self.data))))

    @torch.no_grad()
    def totals(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Sums over the instances at `rows`, float64 `(3,)`: those of several parts of the data add up.

        They are the number of instances, by their weights, and Σ regret and Σ |optimum|, or Σ loss and 0.
        """
        if self.solver is None:
            state, parts = self.loss.state_dict(), zip(*self._predicted(model, rows), strict=True)
            value = torch.cat([self.loss(y, batch) for y, batch in parts]).double()
            self.loss.load_state_dict(state)
            return self._counted(rows, value, torch.zeros_like(value))
        regret, optimum = self.regrets(model, rows)
        negative = regret < -GAP * optimum.abs().mean()
        if not self._noted and bool(negative.any()):
            self._noted, self._note = True, f"{int(negative.sum())} validation regrets are negative: {NOT_OPTIMAL}"
        return self._counted(rows, regret, optimum.abs())

    @torch.no_grad()
    def regrets(self, model: nn.Module, rows: Tensor) -> Regrets:
        """Of each instance at `rows`, where it is known what is decided."""
        assert self.solver is not None
        solver, data, labels = self.solver, self.data.batch(rows), self.labels[rows]
        parts = zip(*self._predicted(model, rows), strict=True)
        decisions = torch.cat([solver.solve(y.double(), part.instance).check().decision for y, part in parts])
        costs = data.require("costs").double()
        found = regrets_of(solver, costs, decisions, labels, data.instance)
        check_linear(solver, found, costs, labels, data.instance)
        return found

    def _predicted(self, model: nn.Module, rows: Tensor) -> tuple[tuple[Tensor, ...], list[Batch]]:
        """Predictions and data, some instances at a time."""
        chunks = [self.data.batch(part) for part in rows.split(CHUNK)]
        return predict(model, self.data.features[rows], rows=CHUNK).split(CHUNK), chunks

    def _counted(self, rows: Tensor, *values: Tensor) -> Tensor:
        """The number of the instances at `rows`, and the sum of each of the values; by their weights."""
        if self.data.weights is None:
            return torch.stack([values[0].new_tensor(len(rows)), *(value.sum() for value in values)])
        weights = self.data.weights[rows].to(values[0])
        return torch.stack([weights.sum(), *((weights * value).sum() for value in values)])

    def metrics(self, totals: Tensor) -> dict[str, float]:
        count, total, optimum = totals
        mean = (total / count).item()
        if self.solver is None:
            return {"validation_loss": mean}
        return {"validation_absolute_regret": mean, "validation_ratio_of_sums": (total / optimum).item()}


ROWS = 2  # instances that are tried: enough for most kernels to be compiled


def rows_to_try(loss: Loss, batch_size: int, count: int) -> Tensor:
    """The instances on which `prepare` tries a loss: as many as its kernels need to be compiled as in training."""
    by_batch = any(isinstance(module, Layer) and module.compiles_by_batch for module in loss.modules())
    return torch.arange(min(batch_size if by_batch else ROWS, count))


def prepare(model: nn.Module, loss: Loss, batch: Batch, validation: Validation | None = None) -> float:
    """Go once forward and backward through the layers and the solver that judges, to compile kernels; the seconds it took."""
    begun = perf_counter()
    state = loss.state_dict()
    with suppress(Exception):
        if any(isinstance(module, Layer) for module in loss.modules()):
            predicted = predict(model, batch.features).requires_grad_()
            with torch.enable_grad():
                value = loss.output(predicted, batch).value
                if value.requires_grad:
                    torch.autograd.grad(value.sum(), predicted)
        if validation is not None and validation.solver is not None:
            validation.totals(model, torch.arange(min(ROWS, len(validation.data))))
    loss.load_state_dict(state)
    return perf_counter() - begun
