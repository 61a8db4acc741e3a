"""Backpropagation through discrete solvers as the negative identity (Sahoo et al., 2023)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers.base import AroundSolver, with_gradient
from dflearn.program import Instance
from dflearn.solvers.base import Solution, Solver

Projection = Literal["none", "mean", "norm", "std"]


class NegativeIdentity(AroundSolver):
    """w*(c), c = S y + d;   gradient g in w  ↦  −Jᵀ g in c, J the Jacobian at c of a projection of the costs:

        none:  c              J = I
        mean:  c − c̄          J = I − 11ᵀ/n:               where all decisions have the same sum, c̄ does not matter
        norm:  c / ‖c‖        J = (I − ĉĉᵀ)/‖c‖, ĉ = c/‖c‖: the size of the costs never matters
        std:   norm of mean   both

    Costs that do not matter get no gradient, so that they do not drift, which would make others too small to matter. The
    paper solves at the projected costs; where the decision does not depend on what is projected away, that is the
    same, and where it does, it would answer another problem: here w* is at c always.

    Args:
        solver: any exact solver; there is no second solve.
    """

    def __init__(self, solver: Solver, projection: Projection = "none") -> None:
        super().__init__(solver)
        if projection not in get_args(Projection):
            raise OptionError(f"projection is one of {', '.join(get_args(Projection))}; got {projection!r}")
        self.projection = projection

    def extra_repr(self) -> str:
        return f"{self.solver!r}, projection={self.projection!r}"

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution, c = self.solver.solve(y.detach(), instance, start), self.objective.vector(y, instance)
        at = c.detach().clone()  # whoever writes to y later does not move where the Jacobian is

        def way_back(gradient: Tensor) -> Tensor:
            return -self._pulled_back(at, gradient)

        why = "NegativeIdentity has no second derivatives: use Perturbed"
        return replace(solution, decision=with_gradient(c, solution.decision, way_back, why))

    def _pulled_back(self, c: Tensor, g: Tensor) -> Tensor:
        """Jᵀ g."""
        if self.projection in ("mean", "std"):
            c = c - c.mean(-1, keepdim=True)
        if self.projection in ("norm", "std"):
            length = torch.linalg.vector_norm(c, dim=-1, keepdim=True)
            length = length.where(length > 0, 1.0)
            unit = c / length
            g = (g - (g * unit).sum(-1, keepdim=True) * unit) / length
        if self.projection in ("mean", "std"):
            g = g - g.mean(-1, keepdim=True)
        return g
