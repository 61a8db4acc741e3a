"""The true cost of the decision as a loss, through a differentiable layer: for predicted constraints, recourse, and costs of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dflearn.data import Batch
from dflearn.errors import OptionError, ShapeError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.recourse import recourse_of
from dflearn.solvers.second_stage import SecondStage

Cost = Callable[[Tensor, Batch], Tensor]


class TaskLoss(Loss):
    """cost(w, y),   w = layer(ŷ): what the decision costs once the truth is known, and recourse variables are decided again.

        cost(w, y) = min over v of obj(y, v)   s.t.   v feasible for y,   v_j = w_j where j is no recourse variable

    Its gradient in w is that of the optimal value, from the prices of the rows: (S y + d + Q v − Mᵀ prices)_j for the variables
    that stay. Recourse is continuous here: integrality is dropped. Without predicted right-hand sides and recourse it is obj(y, w): the regret up to a constant.

    Args:
        layer: differentiable in what is predicted, `Smoothed`; where right-hand sides are predicted, through them too.
        cost: a differentiable function of one's own, decisions `(*batch, n)` and their `Batch` → `(*batch,)`, in place of all
            that.
        program: what decisions are judged by, where the layer decides by another one, `program.scenarios(weights)`: its
            variables are the first of the layer's. True costs are then `(*batch, p)` of this program.
    """

    layer: Layer
    by_layer = True
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, cost: Cost | None = None, *, program: Program | None = None) -> None:
        super().__init__(layer)
        self.cost, self.judge = cost, program
        self.needs = ("costs",) if cost is None else ()
        if program is not None and program.n > layer.objective.n:
            raise OptionError(
                f"{program!r} judges decisions of {layer.objective.n} variables: it must be the program whose `scenarios` the "
                "layer decides by"
            )
        program = layer.program if program is None else program
        self._recourse: _Priced | None = None
        if cost is None and program is not None and (program.predicts_rows or program.recourse is not None):
            self._recourse = _Priced(program.relax())

    def extra_repr(self) -> str:
        return "" if self.cost is None else getattr(self.cost, "__qualname__", repr(self.cost))

    def _costs_shape(self, predicted: Tensor) -> tuple[int, ...]:
        return predicted.shape if self.judge is None else (*predicted.shape[:-1], self.judge.p)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        if self.judge is not None and batch.instance is not None:
            raise OptionError(
                "TaskLoss(layer, program=…) knows no instances, which would differ between the two programs"
            )
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        decision = solution.decision if self.judge is None else solution.decision[..., : self.judge.n]
        if self.cost is not None:
            value = self.cost(decision, batch)
            if not isinstance(value, Tensor) or value.shape != decision.shape[:-1]:
                got = tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise ShapeError(f"a cost has one value per instance, shape {tuple(decision.shape[:-1])}; got {got}")
            return LossOutput(value, solution)
        costs = batch.require("costs")
        if self._recourse is None:
            objective = self.layer.objective if self.judge is None else self.judge.objective
            return LossOutput(objective(costs, decision, batch.instance), solution)
        return LossOutput(_Settled.apply(decision, costs, batch, self._recourse), solution)  # type: ignore[no-untyped-call]


class _Priced:
    """What decisions cost after recourse, and the gradient of that, by the prices of the second stage."""

    def __init__(self, program: Program) -> None:
        self.program, self.second, self.settle = program, SecondStage(program), recourse_of(program)
        self.matrix = sp.vstack([program.A, program.G], format="csr")

    def __call__(self, decision: Tensor, costs: Tensor, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The cost of each decision `(count,)`, and its gradient `(count, n)`."""
        count, n = decision.shape[:-1].numel(), self.program.n

        def rows(value: Tensor) -> Tensor:
            return value.detach().cpu().double().reshape(count, value.shape[-1])

        y, w = rows(costs), rows(decision).numpy()
        instance = None if batch.instance is None else batch.instance.map(rows)
        truth = self.program.realize(y, instance)
        q = None if instance is None or instance.q is None else instance.q.numpy()
        c = self.program.objective.vector(y, instance).reshape(count, n).numpy()
        filled = None if self.settle is None else self.settle.filled(y, torch.as_tensor(w), instance)
        if filled is not None:  # slack alone, in closed form
            if not filled.feasible.all():
                raise self._infinite(int(np.argmin(filled.feasible)))
            v = filled.decision
            steep = c + self.second.bend(v, q) - (self.matrix.T @ filled.prices.T).T
            return (c * v).sum(1) + 0.5 * (v * self.second.bend(v, q)).sum(1), np.where(self.second.mask, 0.0, steep)
        found = self.second.solve(c, w, self.program.sides(truth, count), q)
        if (found.status != int(Status.OPTIMAL)).any():
            i = int(np.argmax(found.status != int(Status.OPTIMAL)))
            if found.status[i] == int(Status.INFEASIBLE):
                raise self._infinite(i)
            raise SolverError(
                f"instance {i}: no prices of its recourse were found, for numerical reasons, or because its cost falls without "
                "end; check the scales and bounds"
            )
        v = found.decision
        return (c * v).sum(1) + 0.5 * (v * self.second.bend(v, q)).sum(1), found.slope

    @staticmethod
    def _infinite(i: int) -> SolverError:
        return SolverError(
            f"instance {i}: no recourse makes this decision feasible for the truth, so its cost is infinite; add priced slack, "
            "program.elastic(rows, price)"
        )


class _Settled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, decision: Tensor, costs: Tensor, batch: Batch, priced: _Priced) -> Tensor:
        value, slope = priced(decision, costs, batch)
        ctx.save_for_backward(torch.as_tensor(slope).to(decision).reshape(decision.shape))
        return torch.as_tensor(value).to(decision).reshape(decision.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return gradient[..., None] * slope, None, None, None
