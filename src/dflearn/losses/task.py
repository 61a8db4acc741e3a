"""The true cost of the decision as a loss, through a differentiable layer: for predicted constraints, recourse, and costs of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dflearn.data import Batch
from dflearn.errors import ShapeError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Program
from dflearn.solvers.convex import ConvexQP
from dflearn.solvers.recourse import Recourse, recourse_of

FEASIBLE = 1e-6  # relative errors of a settled decision and of its prices: smoothed decisions are that exact

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
    """

    layer: Layer
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, cost: Cost | None = None) -> None:
        super().__init__(layer)
        self.cost = cost
        self.needs = ("costs",) if cost is None else ()
        program = layer.program
        self._recourse: _Priced | None = None
        if cost is None and program is not None and (settle := recourse_of(program.relax())) is not None:
            self._recourse = _Priced(program, settle)

    def extra_repr(self) -> str:
        return "" if self.cost is None else getattr(self.cost, "__qualname__", repr(self.cost))

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        decision = solution.decision
        if self.cost is not None:
            value = self.cost(decision, batch)
            if not isinstance(value, Tensor) or value.shape != decision.shape[:-1]:
                got = tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise ShapeError(f"a cost has one value per instance, shape {tuple(decision.shape[:-1])}; got {got}")
            return LossOutput(value, solution)
        costs = batch.require("costs")
        if self._recourse is None:
            return LossOutput(self.layer.objective(costs, decision, batch.instance), solution)
        return LossOutput(_Settled.apply(decision, costs, batch, self._recourse), solution)  # type: ignore[no-untyped-call]


class _Priced:
    """Recourse with the prices of its rows, one instance after the other."""

    def __init__(self, program: Program, settle: Recourse) -> None:
        self.mask = np.zeros(program.n, bool) if program.recourse is None else program.recourse
        self.settle, self.program = settle, program.relax()
        self.convex = ConvexQP(self.program)

    def __call__(self, decision: Tensor, costs: Tensor, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The cost of each decision `(count,)`, and its gradient `(count, n)`."""
        y, count = costs.detach().cpu().double(), decision.shape[:-1].numel()
        instance = None if batch.instance is None else batch.instance.map(lambda value: value.detach().cpu())
        c = self.program.objective.vector(y, instance).reshape(count, self.program.n).numpy()
        if (filled := self.settle.filled(y, decision.detach().cpu().double(), instance)) is not None:
            if not filled.feasible.all():
                raise self._infinite(int(np.argmin(filled.feasible)))
            w = filled.decision
            steep = c + self.convex.Q.times(w) - (self.convex.matrix.T @ filled.prices.T).T
            return (c * w).sum(1) + self.convex.Q.value(w), np.where(self.mask, 0.0, steep)
        held = self.program.sides(self.settle.held(y, decision, self.program.realize(y, instance)), count)
        value, slope = np.empty(count), np.empty_like(c)
        for i in range(count):
            found = self.convex.best(c[i], held.row(i))
            if found is None or not found.primal <= FEASIBLE:
                raise self._infinite(i)
            if not found.dual <= FEASIBLE:
                raise SolverError(
                    f"instance {i}: no prices of its recourse were found, for numerical reasons; check the scales"
                )
            steep = c[i] + self.convex.Q.times(found.w)
            value[i] = float(c[i] @ found.w + self.convex.Q.value(found.w))
            slope[i] = np.where(self.mask, 0.0, steep - self.convex.matrix.T @ found.y)
        return value, slope

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
