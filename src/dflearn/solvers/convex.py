"""Linear and convex quadratic programs, one instance at a time: Clarabel, finished on the face, certified.

    min cᵀw + ½ wᵀQ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,    Q = RᵀR + diag(δ)

`clarabel` finds an answer, which the rule of `dflearn.engine.certify` judges. Whether there is no decision is asked of HiGHS.

With integer variables, a back end finds the integers and a bound; the other variables are solved for again with these fixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL
from dflearn.engine.hard.clarabel import BestAnswers
from dflearn.engine.hard.scaling import Scales, blocks, power_of_two
from dflearn.engine.implied import LARGEST
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Raw, Status

if TYPE_CHECKING:
    from dflearn.solvers.highs import HiGHS

FAR = 1e-7  # a direction without end must lower the objective by this much of its terms


class ConvexQP(BestAnswers):
    """Solves instances of one program with Q; integrality is dropped. Used by solvers, not by users."""

    @cached_property
    def linear(self) -> HiGHS:
        """Solves linear programs over the feasible set."""
        from dflearn.solvers.highs import HiGHS

        return HiGHS(replace(self.program.relax(), Q=None))

    @cached_property
    def directions(self) -> HiGHS:
        """Finds directions in which neither rows nor bounds nor ½ wᵀQ w stop a decision; sides say which bounds there are."""
        from dflearn.solvers.highs import HiGHS

        program, flat = self.program, self.Q.diagonal > 0
        A = sp.csr_array(sp.vstack([program.A, sp.eye_array(self.n, format="csr")[flat], self.Q.factor]))
        A = A[np.diff(A.indptr) > 0]
        return HiGHS(Program(A=A, b=0.0, G=program.G, h=0.0, lower=-1.0, upper=1.0, n=self.n))

    def solve(self, c: np.ndarray, sides: Sides) -> Raw:
        """c `(count, n)`; sides as of `Program.sides`."""
        out = Raw.empty(len(c), self.n)
        for i in range(len(c)):
            self.solve_one(c[i], sides.row(i), out, i)
        return out

    def solve_one(self, c: np.ndarray, sides: Sides, out: Raw, i: int) -> None:
        """Write the answer to one instance into line i of `out`."""
        best = self.best(c, sides)
        optimal = best is not None and best.error <= OPTIMAL
        if not optimal and (none := self.no_decision(c, sides)) is not None:
            out.status[i] = none
            return
        if best is not None and not optimal and out.reason is not None:
            out.reason[i] = self.certifier.examine(c, best.w, best.y, sides).reason()
        if best is None or not (optimal or best.primal <= OPTIMAL):
            return  # FAILED
        out.status[i], out.decision[i] = Status.OPTIMAL if optimal else Status.FEASIBLE, best.w
        out.objective[i] = float(c @ best.w + self.Q.value(best.w))
        out.bound[i] = min(best.bound, out.objective[i])

    def agrees(self, claim: Status, c: np.ndarray, sides: Sides) -> bool:
        """Whether Clarabel, too, says that an instance is INFEASIBLE or UNBOUNDED, after `best` found no answer that passes.

        Bounds that the rows imply and that cross are a proof of their own, and so is a direction without end in which costs fall.
        """
        if claim is Status.INFEASIBLE and self.claim != "infeasible":
            if self.certifier.bounds_cross(sides):
                return True
            # Of two reasons for no answer it may have named the other one. Without costs there is one only.
            for _ in self.candidates(np.zeros(self.n), sides):
                return False
        if self.claim == claim.name.lower():
            return True
        return claim is Status.UNBOUNDED and self.no_decision(c, sides) is claim

    def no_decision(self, c: np.ndarray, sides: Sides) -> Status | None:
        """INFEASIBLE or UNBOUNDED, where that is proven."""
        if self.linear.proven_infeasible(sides, 1)[0]:
            return Status.INFEASIBLE
        lower, upper = np.where(sides.lower <= -LARGEST, -1.0, 0.0), np.where(sides.upper >= LARGEST, 1.0, 0.0)
        own = self.directions.program.own_sides
        found = self.directions._solve(c[None], replace(own, lower=lower, upper=upper), None)
        w = found.decision[0]
        ends = found.status[0] != Status.OPTIMAL or not c @ w < -FAR * float(np.abs(c * w).sum())
        return None if ends else Status.UNBOUNDED


class Part(NamedTuple):
    """Variables of a program that share no row and no term of Q with the others, their rows of A and of G, and the program of these."""

    variables: np.ndarray
    equations: np.ndarray
    inequalities: np.ndarray
    program: Program

    def sides(self, sides: Sides) -> Sides:
        """Its sides, of those of the whole program."""
        b, h, *bounds = sides.parts().values()
        return Sides(b[..., self.equations], h[..., self.inequalities], *(one[..., self.variables] for one in bounds))


def parts_of(program: Program) -> list[Part]:
    """The independent parts of a program with Q. Rows without variables belong to the first."""
    Q, A, G = program.Q, program.A, program.G
    assert Q is not None
    of_variable, of_row = blocks(sp.vstack([A, G]), Q.matrix)
    of_row = np.where(np.isin(of_row, of_variable), of_row, of_variable[0])
    parts = []
    for label in np.unique(of_variable):
        variables = np.flatnonzero(of_variable == label)
        equations, inequalities = (np.flatnonzero(one == label) for one in np.split(of_row, [A.shape[0]]))
        own = Quadratic(Q.factor[:, variables], Q.diagonal[variables])
        part = Program(
            A=A[equations][:, variables], b=program.b[equations], G=G[inequalities][:, variables], h=program.h[inequalities],
            lower=program.lower[variables], upper=program.upper[variables], integer=program.integer[variables], Q=own,
            n=len(variables),
        )  # fmt: skip
        parts.append(Part(variables, equations, inequalities, part))
    return parts


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
        whole = Sides(sides.b, sides.h, *integer_bounds(sides.lower, sides.upper, integer))
        if (whole.lower > whole.upper).any():
            out.status[i] = Status.INFEASIBLE
            return
        costs, curved = c * self.scales.columns, self.Q.diagonal + np.asarray((self.Q.factor**2).sum(axis=0)).ravel()
        gamma = 1.0 / float(power_of_two(np.array(max(np.abs(costs).max(), curved.max()))))
        found = self.run(costs * gamma, gamma, self.scales.sides(whole, 1.0))
        if found.status is None or found.status is Status.UNBOUNDED:
            none = convex.no_decision(c, whole)
            # Rational data: a relaxation without end has integer points without end, where it has one at all.
            feasible = self.run(np.zeros(len(c)), 0.0, self.scales.sides(whole, 1.0)).status
            none = Status.FAILED if none is None or feasible is None else none
            out.status[i] = feasible if feasible is Status.INFEASIBLE else none
            return
        if not found.status.has_decision:
            out.status[i] = found.status
            return
        w = np.clip(found.w * self.scales.columns, whole.lower, whole.upper)
        fixed = [np.where(integer, np.rint(w), side) for side in (whole.lower, whole.upper)]
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
