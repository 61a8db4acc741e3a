"""The way back through `Smoothed`: projections onto the faces that its solutions lie on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.layers.base import as_rows, like, symmetric
from dflearn.program import Objective

if TYPE_CHECKING:
    from dflearn.layers.rows import SmoothedRows


class Face(NamedTuple):
    """The faces that the solutions of a batch lie on. κ is μ with the squared regularizer.

    objective: whose S leads on from the costs c to y; `None` where gradients end at c.
    w: the decisions `(count, n)` in float64 with the norm as regularizer, and `None` otherwise.
    """

    rows: SmoothedRows
    inside: np.ndarray
    in_force: np.ndarray
    kappa: np.ndarray
    mu: float
    objective: Objective | None = None
    w: np.ndarray | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient as stated in `Smoothed`, `(*batch, n)` → `(*batch, p)`."""
        back = self._to_costs(gradient)
        return back if self.objective is None else self.objective.transpose(back)

    def _to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        v = as_rows(gradient, len(self.inside), np.float64)
        out = self.rows.project(self.inside, self.in_force, v, -1.0 / self.kappa)
        if self.w is not None:
            along = self.rows.project(self.inside, self.in_force, self.w)
            room = np.square(self.w - along).sum(1)  # ‖w‖² − wᵀP w, without its rounding
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(room > 0, (self.w * out).sum(1) / room, 0.0)
            out = out + share[:, None] * along
        return like(out, gradient)

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
