"""Integer programs with a convex quadratic objective: a back end finds the integers and a bound, we find and check the rest.

    min cᵀw + ½ wᵀQ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,   w_i ∈ ℤ for i in `integer`

The back end is asked in units that suit its absolute tolerances. With the integers that it finds fixed, the other variables
are solved for by `convex`, and the objective of that decision is compared with the bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.certify import OPTIMAL
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Raw, Status
from dflearn.solvers.convex import ConvexQP
from dflearn.solvers.scaling import Scales, power_of_two


class Found(NamedTuple):
    """What a back end found: w `(n,)` and a lower bound, in its units. `None` for a status: infeasible or unbounded."""

    status: Status | None
    w: np.ndarray
    bound: float


class QuadraticModel(ABC):
    """A back end that holds a program with Q in its own units. Subclasses write `run`."""

    def __init__(self, program: Program) -> None:
        assert program.Q is not None
        self.program, self.scales = program, Scales.of(program)
        self.scaled = self.scales.program(program)
        factor = sp.csr_array(program.Q.factor @ sp.diags_array(self.scales.columns))
        self.Q = Quadratic(factor, program.Q.diagonal * self.scales.columns**2)

    @abstractmethod
    def run(self, c: np.ndarray, gamma: float, sides: Sides) -> Found:
        """min cᵀw + γ ½ wᵀQ w over the scaled rows with these sides."""

    def solve(self, c: np.ndarray, sides: Sides, convex: ConvexQP, gap: float) -> Raw:
        """c `(count, n)`; sides as of `Program.sides`; the relative gap at which a decision counts as optimal."""
        out = Raw.empty(*c.shape)
        for i in range(len(c)):
            self.solve_one(c[i], sides.row(i), convex, gap, out, i)
        return out

    def solve_one(self, c: np.ndarray, sides: Sides, convex: ConvexQP, gap: float, out: Raw, i: int) -> None:
        integer = self.program.integer
        lower, upper = integer_bounds(sides.lower, sides.upper, integer)
        if (lower > upper).any():
            out.status[i] = Status.INFEASIBLE
            return
        whole = Sides(sides.b, sides.h, lower, upper)
        costs, curved = c * self.scales.columns, self.Q.diagonal + np.asarray((self.Q.factor**2).sum(axis=0)).ravel()
        gamma = 1.0 / float(power_of_two(np.array(max(np.abs(costs).max(), curved.max()))))
        found = self.run(costs * gamma, gamma, self.scales.sides(whole, 1.0))
        if found.status is None or found.status is Status.UNBOUNDED:
            none = convex.no_decision(c, whole)
            # Rational data: a relaxation without end has integer points without end, where it has one at all.
            feasible = self.run(np.zeros(len(c)), 0.0, self.scales.sides(whole, 1.0)).status
            out.status[i] = Status.FAILED if none is None or feasible is None else none
            if feasible is Status.INFEASIBLE:
                out.status[i] = Status.INFEASIBLE
            return
        if not found.status.has_decision:
            out.status[i] = found.status
            return
        w = np.clip(found.w * self.scales.columns, lower, upper)
        fixed = [np.where(integer, np.rint(w), side) for side in (lower, upper)]
        best = convex.best(c, Sides(sides.b, sides.h, *fixed))
        if best is None or not best.primal <= OPTIMAL:
            return  # FAILED
        Q = convex.Q
        value, bound = float(c @ best.w + Q.value(best.w)), found.bound / gamma
        allowed = OPTIMAL * float(np.abs(c * best.w).sum() + Q.value(best.w))
        if bound > value + allowed:  # it bounds nothing
            bound = -np.inf
        sure = best.error <= OPTIMAL and value - bound <= allowed + gap * abs(value)
        optimal = found.status is Status.OPTIMAL and sure
        out.status[i] = Status.OPTIMAL if optimal else Status.FEASIBLE
        out.decision[i], out.objective[i], out.bound[i] = best.w, value, min(bound, value)
