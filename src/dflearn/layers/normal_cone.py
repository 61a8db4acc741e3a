"""The projection of costs onto the normal cone of a program at a decision: the layer inside CaVE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError
from dflearn.layers.base import Layer, as_rows, one_of
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

TIGHT = 1e-6  # distance, relative to the terms of the row or of the bound, at which it binds
NOISE = 1e-9  # what is smaller, beside the size of the decision, is rounding
VANISHING = 1e-7  # a projection shorter than this, of a vector of length one, is zero


class NormalCone(Layer):
    """p = projection of v/‖v‖, v = −(S y + d), onto the normal cone N of the LP relaxation at a decision w*.

    N is spanned by the rows and bounds that bind at w*. It is never formed: p = v/‖v‖ − Proj(v/‖v‖ onto the tangent
    cone), and that projection is a smoothed LP with zero right-hand sides. The instance says which cone:
    `solve(y, layer.at(w, instance))`. p is a constant for the gradient. `Solution.objective` is ½‖v/‖v‖ − p‖².

    Args:
        program: its relaxation's constraints are the ones that may bind.
        variant: "exact", or "inner": p is where an interior-point method stands after a few steps, strictly inside N.
        iterations: how many steps, for "inner".
    """

    program: Program

    def __init__(self, program: Program, *, variant: Literal["exact", "inner"] = "exact", iterations: int = 3) -> None:
        if iterations < 1:
            raise OptionError(f"iterations must be at least 1, got {iterations}")
        super().__init__(program.objective)
        self.program, self.iterations = program.relax(), int(iterations)
        self.variant = one_of("variant", variant, "exact", "inner")
        free: dict[str, Any] = {"lower": -np.inf, "upper": np.inf, "n": program.n, "name": "tangent cone"}
        self.tangent = Smoothed(Program(A=program.A, b=0.0, G=program.G, h=0.0, **free), mu=1.0)
        self.start_width = self.tangent.start_width if variant == "exact" else 0
        self._sizes = abs(program.G)
        rows = sp.csr_array(sp.vstack([program.A, program.G]))
        self._largest = abs(rows).max(axis=1).toarray().reshape(-1) if rows.nnz else np.ones(rows.shape[0])
        # A row that does not bind gets a right-hand side that no vector of length one reaches.
        self._out_of_reach = 2.0 * np.sqrt(np.asarray(program.G.multiply(program.G).sum(axis=1)).reshape(-1))

    @property
    def mu(self) -> float:
        """A projection has no smoothing to choose: 1, always."""
        return self.tangent.mu

    @mu.setter
    def mu(self, mu: float) -> None:
        raise OptionError(f"NormalCone projects, and has no mu to set (got {mu}): anneal a Smoothed layer instead")

    def at(self, w: Tensor, instance: Instance | None = None) -> Instance:
        """The directions that stay feasible at w `(*batch, n)`: the tangent cone's right-hand sides and bounds."""
        flat = w.detach().double().reshape(-1, self.program.n).cpu().numpy()
        sides = self.program.sides(instance, flat.shape[0])
        feasible = self.program.is_feasible(w, instance).reshape(-1)
        if not bool(feasible.all()):
            why = "violates the program's constraints, so it has no normal cone; CaVE needs decisions of this very program"
            raise ProgramError(f"instance {int((~feasible).nonzero()[0])}: the decision {why}")
        tight, low, high = self._binding(flat, sides)

        def field(array: np.ndarray) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(array)).reshape(*w.shape[:-1], array.shape[-1])

        return Instance(
            h=field(np.where(tight, 0.0, self._out_of_reach)),
            lower=field(np.where(low, 0.0, -np.inf)),
            upper=field(np.where(high, 0.0, np.inf)),
            d=self._known(w, instance),
        )

    def _known(self, w: Tensor, instance: Instance | None) -> Tensor | None:
        """d, and with Q the slope d + Q w at w: what costs S y are added to."""
        own = None if instance is None else instance.d
        q = None if instance is None else instance.q
        if self.program.Q is None and q is None:
            return own
        flat = w.detach().double()
        slope = torch.tensor(self.program.d).to(flat) if own is None else own.to(flat)
        slope = slope if self.program.Q is None else self.program.Q.slope(flat) + slope
        return slope if q is None else slope + q.detach().to(flat) * flat

    def _binding(self, w: np.ndarray, sides: Sides) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which rows of G, lower bounds and upper bounds bind at w `(count, n)`: each beside its own terms.

        A row's are |h_i| + Σ_j |g_ij w_j|, a bound's are |w_j| and itself. Rounding is measured by how far w_j may go: the size
        of the decision, or the distance of its bounds, if that is less.
        """
        size, G = np.abs(w), self.program.G
        with np.errstate(invalid="ignore"):  # ∞ − ∞ is no bound
            width = np.where(np.isinf(sides.lower) & np.isinf(sides.upper), np.inf, sides.upper - sides.lower)
        extent = NOISE * np.minimum(np.maximum(size.max(1, initial=0.0), self._shortest(sides))[:, None], width)
        slack, terms = sides.h - (G @ w.T).T, (self._sizes @ size.T).T + np.abs(sides.h)
        tight = slack <= np.maximum(TIGHT * terms, (self._sizes @ extent.T).T)
        low, high = (
            np.abs(w - bound)
            <= np.maximum(TIGHT * np.where(np.isinf(bound), 0.0, np.maximum(size, np.abs(bound))), extent)
            for bound in (sides.lower, sides.upper)
        )
        return tight, low, high

    def _shortest(self, sides: Sides) -> np.ndarray:
        """The shortest length that right-hand sides and bounds name: of a decision that is zero itself. `(count or 1,)`"""
        parts = (sides.right_hand_sides() / self._largest, sides.lines("lower"), sides.lines("upper"))
        least: np.ndarray = np.full(1, np.inf)
        for part in map(np.abs, parts):
            least = np.minimum(least, np.where(part > 0, part, np.inf).min(1, initial=np.inf))
        return np.where(np.isinf(least), 0.0, least)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        v = -self.objective.vector(y.detach(), instance)
        unit = v.double() / v.double().norm(dim=-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
        cone = None if instance is None else replace(instance, d=None)
        solution = self._project(unit, cone, start) if self.variant == "exact" else self._step(unit, cone)
        distance = 0.5 * (unit.cpu() - solution.decision).square().sum(-1)
        bound = torch.where(solution.status == int(Status.OPTIMAL), distance, 0.0)
        return replace(solution, decision=solution.decision.to(y), objective=distance, bound=bound)

    def _project(self, unit: Tensor, cone: Instance | None, start: Tensor | None) -> Solution:
        solution = self.tangent.solve(-unit, cone, start)
        p = unit.cpu() - solution.decision.cpu()
        # A vector opposite to the whole cone projects to zero; what rounding leaves of it has no direction.
        return replace(solution, decision=torch.where(p.norm(dim=-1, keepdim=True) > VANISHING, p, 0.0))

    def _step(self, unit: Tensor, cone: Instance | None) -> Solution:
        batch = unit.shape[:-1]
        rows, c = self.tangent.rows, as_rows(-unit, batch.numel())
        data = rows.data(c, np.ones(1), self.tangent.program.sides(cone, len(c)))
        p = torch.as_tensor(rows.cone_points(data, self.iterations)).reshape(unit.shape)
        nothing = torch.zeros(batch, dtype=torch.float64)
        return Solution(p, torch.full(batch, int(Status.FEASIBLE), dtype=torch.int8), nothing, nothing)
