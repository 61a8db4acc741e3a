"""Differentiation of black-box solvers by interpolation (Vlastelica et al., 2020): DBB."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from dflearn.layers.base import AroundSolver, PositiveWeight, raised, with_gradient
from dflearn.program import Instance
from dflearn.solvers.base import Solution, Solver


class BlackBox(AroundSolver):
    """w*(c), c = S y + d;   gradient g in w  ↦  (w*(c + λ g) − w*(c)) / λ in c: one more solve on the way back.

    That is the derivative of the piecewise linear interpolation of gᵀw*(·) between c and c + λ g. The larger λ, the more
    decisions it sees; below a threshold nothing changes and the gradient is zero. g is what arrives: training lowers
    the mean over a batch of B instances, which divides g by B, so λ goes with B.

    Args:
        solver: any exact solver.
        step: λ > 0, in units of the costs per unit of g; may be set later, `layer.step = …`.
    """

    annealed = ("step",)
    step = PositiveWeight("λ")

    def __init__(self, solver: Solver, step: float = 10.0) -> None:
        super().__init__(solver)
        self.step = step

    def extra_repr(self) -> str:
        return f"{self.solver!r}, step={self.step}"

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution, step, costs = self.solver.solve(y.detach(), instance, start), self.step, y.detach()
        w, from_here = solution.decision, solution.start

        def way_back(gradient: Tensor) -> Tensor:
            there = raised(self.objective, instance, step * gradient)
            return (self.solver.solve(costs, there, from_here).check().decision - w) / step

        c = self.objective.vector(y, instance)
        return replace(
            solution, decision=with_gradient(c, w, way_back, "BlackBox has no second derivatives: use Perturbed")
        )
