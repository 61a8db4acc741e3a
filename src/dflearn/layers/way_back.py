"""The way back through `Smoothed`: projections onto the faces that its solutions lie on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.layers.base import NUMBERS, as_rows, like, refuse_tangent, symmetric
from dflearn.program import Objective
from dflearn.solvers.base import numbers_of

if TYPE_CHECKING:
    from dflearn.layers.alone import Lone
    from dflearn.layers.rows import SmoothedRows
    from dflearn.layers.short_way import ShortWay


class Face(NamedTuple):
    """The faces that the solutions of a batch lie on. κ is μ with the squared regularizer.

    objective: whose S leads on from the costs c to y; `None` where gradients end at c.
    w: the decisions `(count, n)` in float64 with the norm as regularizer, and `None` otherwise.
    short: the shorter way back, where there is one.
    """

    rows: SmoothedRows
    inside: np.ndarray
    in_force: np.ndarray
    kappa: np.ndarray
    mu: float
    objective: Objective | None = None
    w: np.ndarray | None = None
    short: ShortWay | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient as stated in `Smoothed`, `(*batch, n)` → `(*batch, p)`."""
        if self.short is not None and gradient.dtype in NUMBERS:
            return torch.from_numpy(self.short.back(self.inside, self.in_force, numbers_of(gradient)))
        back = self._to_costs(gradient)
        return back if self.objective is None else self.objective.transpose(back)

    def rows_back(self, gradient: np.ndarray) -> np.ndarray:
        """`way_back` for arrays, `(count, n)` → `(count, p)`."""
        if self.short is not None:
            return self.short.back(self.inside, self.in_force, gradient)
        back = self._rows_to_costs(np.ascontiguousarray(gradient, np.float64)).astype(gradient.dtype, copy=False)
        return back if self.objective is None else self.objective.rows_back(back)

    def _to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        return like(self._rows_to_costs(as_rows(gradient, len(self.inside), np.float64)), gradient)

    def _rows_to_costs(self, v: np.ndarray) -> np.ndarray:
        out = self.rows.project(self.inside, self.in_force, v, -1.0 / self.kappa)
        if self.w is not None:
            along = self.rows.project(self.inside, self.in_force, self.w)
            room = np.square(self.w - along).sum(1)  # ‖w‖² − wᵀP w, without its rounding
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(room > 0, (self.w * out).sum(1) / room, 0.0)
            out = out + share[:, None] * along
        return out

    def way_back_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        """The same in differentiable operations. On a face P is constant, and κ = μ/‖w‖ with the norm."""
        back = self._to_costs_again(gradient, decision)
        return back if self.objective is None else self.objective.transpose(back)

    def _to_costs_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        if self.w is None:
            return symmetric(gradient, decision, self._to_costs)
        v, w = gradient.double(), decision.double()
        out = -w.norm(dim=-1, keepdim=True) / self.mu * symmetric(v, w, self._project)
        along = symmetric(w, w, self._project)
        room = (w - along).square().sum(-1, keepdim=True)
        there = room > 0
        share = torch.where(there, (w * out).sum(-1, keepdim=True) / torch.where(there, room, 1.0), 0.0)
        result: Tensor = (out + share * along).to(gradient)
        return result

    def _project(self, v: Tensor) -> Tensor:
        """P v, `(*batch, n)` → `(*batch, n)`."""
        rows = self.rows.project(self.inside, self.in_force, as_rows(v, len(self.inside), np.float64))
        return like(rows, v)


def led_back(y: Tensor, decision: Tensor, face: Face | Lone) -> Tensor:
    """The decision, just made, that belongs to the costs y, differentiable: `with_gradient` with a call less."""
    if not (y.requires_grad and torch.is_grad_enabled()):
        refuse_tangent(y)
        return decision
    led: Tensor = _Led.apply(y, (decision,), face)  # type: ignore[no-untyped-call]
    return led


class _Led(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, held: tuple[Tensor], face: Face | Lone) -> Tensor:
        ctx.face = face
        ctx.save_for_backward(held[0])
        return held[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if not torch.is_grad_enabled():  # nobody asks for second derivatives
            return ctx.face.way_back(gradient), None, None
        return ctx.face.way_back_again(gradient, ctx.saved_tensors[0]), None, None
