"""What a run is judged on after each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError
from dflearn.evaluation import LABEL_TOLERANCE
from dflearn.losses.base import Loss
from dflearn.solvers.base import Solver

if TYPE_CHECKING:
    from dflearn.problems.base import Problem

CHUNK = 1024  # instances that are predicted and solved at once


class Validation:
    """Metrics of a model on held-out data: the regret where an exact solver is given, the loss otherwise.

    Always cold, and without a trace: a run goes the same way with and without it. The metrics are those of
    `dflearn.evaluate` by the same names.
    """

    def __init__(self, data: DecisionDataset, loss: Loss, problem: Problem | Solver | None) -> None:
        self.data, self.loss = data, loss
        self.solver = problem if problem is None or isinstance(problem, Solver) else problem.solver()
        self.monitored = "validation_loss" if self.solver is None else "validation_absolute_regret"
        self.note = ""
        if not len(data):
            raise DataError("the validation set is empty: leave it out, or give it instances")
        if self.solver is not None:
            self.labels = self._labels(self.solver)

    def _labels(self, solver: Solver) -> Tensor:
        """w* in float64 `(count, n)`: the data's decisions, or the solver's where there are none or they are not feasible."""
        data = self.data.batch()
        if data.costs is None:
            raise DataError(
                "the validation regret needs true costs, and the validation set holds none; "
                "without `problem` a run is judged by its loss"
            )
        if data.decisions is not None:
            labels = data.decisions.double()
            if _feasible(labels, solver, data):
                return labels
            self.note = (
                "the decisions of the validation set are not feasible for the program that judges (they may come from "
                "its relaxation): its optimal decisions were computed anew"
            )
        return solver.solve(data.costs.double(), data.instance).check().decision

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        was_training = model.training
        model.eval()
        rows = torch.arange(len(self.data)).split(CHUNK)
        chunks = [self.data.batch(part) for part in rows]
        predicted = [model(batch.features) for batch in chunks]
        model.train(was_training)
        if self.solver is None:
            return self._loss(predicted, chunks)
        return self._regret(self.solver, predicted, chunks)

    def _loss(self, predicted: list[Tensor], chunks: list[Batch]) -> dict[str, float]:
        state = self.loss.state_dict()
        value = torch.cat([self.loss(y, batch) for y, batch in zip(predicted, chunks, strict=True)])
        self.loss.load_state_dict(state)
        return {"validation_loss": value.double().mean().item()}

    def _regret(self, solver: Solver, predicted: list[Tensor], chunks: list[Batch]) -> dict[str, float]:
        decisions = [
            solver.solve(y.double(), batch.instance).check().decision
            for y, batch in zip(predicted, chunks, strict=True)
        ]
        data = self.data.batch()
        costs = data.require("costs").double()
        regret = solver.objective(costs, torch.cat(decisions) - self.labels, data.instance)
        optimum = solver.objective(costs, self.labels, data.instance).abs().sum()
        return {
            "validation_absolute_regret": regret.mean().item(),
            "validation_ratio_of_sums": (regret.sum() / optimum).item(),
        }


def _feasible(labels: Tensor, solver: Solver, data: Batch) -> bool:
    if solver.program is None:
        return True
    integer = torch.tensor(solver.program.integer, device=labels.device)
    fraction = (labels - labels.round()).abs() * integer
    violation = solver.program.violation(labels, data.instance)
    return max(float(violation.max()), float(fraction.max())) <= LABEL_TOLERANCE
