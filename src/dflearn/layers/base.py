"""The contract of every layer: costs in, decision out, gradient back.

A layer is a differentiable map y → w and a pure function of (y, instance, start). `solve` answers with a `Solution`
whose decision carries the gradient; `forward` is its decision, after every status was checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dflearn.program import Instance, Objective, Program
from dflearn.solvers.base import Solution, Solver, TakesStart, check_costs, check_instance, check_start


class Layer(nn.Module, TakesStart, ABC):
    """y → w.  Subclasses write `_solve`, whose arguments have fitting shapes and whose costs are finite.

    Attributes:
        objective: obj(y, w) of the program behind the layer.
        program: that program, where one is known.
        compiles_by_batch: whether kernels are compiled anew for batches of another size.
    """

    program: Program | None = None
    compiles_by_batch = False

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Tensor:
        """y `(*batch, p)` → w `(*batch, n)`; an error names the first instance that has no decision."""
        return self.solve(y, instance, start).check().decision

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        """Decision, status, objective and residual of every instance; a new start if one was passed."""
        begun = perf_counter()
        batch = check_costs(y, self.objective)
        check_instance(instance, batch)
        check_start(start, batch, self.start_width)
        solution = self._solve(y, instance, start)
        return replace(solution, seconds=perf_counter() - begun)

    @abstractmethod
    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution: ...

    def regularization(self, w: Tensor) -> Tensor:
        """Ω(w), where the layer minimizes obj(y, w) + Ω(w).  `(*batch, n)` → `(*batch,)`."""
        return w.new_zeros(w.shape[:-1])


def as_rows(x: Tensor, count: int, dtype: Any = None) -> np.ndarray:
    """`(*batch, k)` as a contiguous array `(count, k)` for the kernels: float64 or float32 as it is, or the dtype given."""
    rows = x.detach()
    if x.ndim != 2:
        rows = rows.reshape(count, x.shape[-1])
    if x.dtype not in (torch.float32, torch.float64):
        rows = rows.double()
    if not x.is_cpu:
        rows = rows.cpu()
    return np.ascontiguousarray(rows.numpy(), dtype)


def in_shape(rows: np.ndarray, batch: torch.Size) -> Tensor:
    """Arrays of the kernels, `(count, …)`, as a tensor `(*batch, …)` on the same memory."""
    tensor = torch.from_numpy(rows)
    return tensor if len(batch) == 1 else tensor.reshape((*batch, *rows.shape[1:]))


def with_gradient(costs: Tensor, w: Tensor, way_back: Callable[[Tensor], Tensor]) -> Tensor:
    """The decision w that belongs to the costs, differentiable: `way_back` turns a gradient in w into one in the costs."""
    decision: Tensor = _WithGradient.apply(costs, w, way_back)  # type: ignore[no-untyped-call]
    return decision


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, costs: Tensor, w: Tensor, way_back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.way_back = way_back
        return w

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.way_back(gradient), None, None


class Exact(Layer):
    """The exact solver as a layer: w*(y), with Jacobian zero (as it is almost everywhere).

    With it, every loss gives the subgradient of the paper's "no differentiable solver" rows.
    """

    def __init__(self, solver: Solver) -> None:
        super().__init__(solver.objective)
        self.solver, self.program = solver, solver.program
        self.start_width, self.start_dtype = solver.start_width, solver.start_dtype
        self.start_blank = solver.start_blank

    def extra_repr(self) -> str:
        return repr(self.solver)

    def get_extra_state(self) -> dict[str, Any]:
        """The solver's state becomes part of `state_dict`."""
        return self.solver.get_state()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.solver.set_state(state)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        return self.solver.solve(y.detach(), instance, start)
