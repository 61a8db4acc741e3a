"""Exact solvers with a method of our own: few rows, small tableaus, integers that the rows fix.

The one rule certifies their answers (`dflearn.engine.certify`), and HiGHS solves the others.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.barrier import independent
from dflearn.engine.certify import OPTIMAL, SURE, Certifier
from dflearn.engine.hard.scaling import Scales
from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Basis, Raw, Solver, Status
from dflearn.solvers.highs import HiGHS

MOST_ROWS = 16  # above, the dense inverse of `FewRowLP` is no longer small
MOST_BINARY_ROWS = 4  # above, `FewRowBinary` enumerates more than branch and bound
STEPS = 10_000_000  # of `FewRowBinary` on one instance, a few tenths of a second; HiGHS solves what needs more
# Of the tableau, rows times variables outside the basis: at 8,000 entries (SP-10) it is 6 to 11 times as fast as HiGHS, at 20,900 of
# random sparse rows 0.7 to 2.6 times (`benchmarks/speed/small_lps.py`).
MOST_ENTRIES = 12_000
MOST_TABLEAU_ROWS = 1_000  # the first tableau takes their cube in time: 0.1 s
DEPENDENT = 1e-10  # what is left of a column, beside the largest entry of all, if it depends on others
ROUGHLY = 1e-7  # by how much HiGHS's first basis may miss bounds, relative to all numbers of the program
MOST_INTEGERS = 32  # two linear programs are solved for each, once
MARGIN = 1e-6  # a bound must miss an integer by more, relative to its terms, to be rounded


class Certified(Solver):
    """An exact solver with a method of its own. HiGHS, `general`, solves the instances that the method does not solve with a certificate,
    marked in `Solution.fallback`, and those whose constraints are of another kind; it alone claims INFEASIBLE or UNBOUNDED.

    Subclasses end `_solve` with `certified` or, if they check their answers in another way, with `handed_over`. `certifier` checks
    answers to the relaxation of the program.
    """

    parallel = "threads"
    program: Program

    def __init__(self, program: Program) -> None:
        if program.Q is not None:
            raise self.refusal(program, "its objective is quadratic; use HiGHS, or Gurobi for integers")
        self.program, self.objective = program, program.objective

    @classmethod
    def refusal(cls, program: Program, reason: str) -> ProgramError:
        """Why a program is none for this method."""
        return ProgramError(f"{cls.__name__} cannot solve {program!r}: {reason}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.program!r})"

    @property
    def identity(self) -> str:
        return f"{type(self).__name__} on {self.general.identity}"

    @cached_property
    def general(self) -> HiGHS:
        return HiGHS(self.program)

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    def with_diagonal(self, q: np.ndarray) -> Solver:
        return self.general.with_diagonal(q)

    def _has_own(self, sides: Sides) -> bool:
        """Whether these are the program's own sides, or equal to them."""
        pairs = zip(sides.parts().values(), self.program.own_sides.parts().values(), strict=True)
        return sides is self.program.own_sides or all(np.array_equal(*pair) for pair in pairs)

    def certified(self, c: np.ndarray, sides: Sides, out: Raw, prices: np.ndarray) -> Raw:
        """`out` with objectives and bounds, after the check.

        out has decisions `(count, n)` within their bounds where the status is OPTIMAL; prices of the rows `(count, rows)` are as of
        `certify`.
        """
        w, _, verdict = self.certifier.judge(c, out.decision, prices, sides)
        sure = (out.status == int(Status.OPTIMAL)) & (verdict.error <= SURE)
        out.decision[:], out.bound[:] = w, verdict.bound
        out.objective[:] = np.einsum("ij,ij->i", c, out.decision)
        np.fmin(out.bound, out.objective, out=out.bound)
        return self.handed_over(c, sides, out, sure)

    def handed_over(self, c: np.ndarray, sides: Sides, out: Raw, sure: np.ndarray) -> Raw:
        """`out` with the answers of HiGHS where `sure`, bool `(count,)`, is false: the method failed there."""
        if not sure.all():
            left = np.flatnonzero(~sure)
            out.put(left, self.general._solve(c[left], sides.rows(left), None))
            out = replace(out, fallback=~sure)
        return out


# -- few rows ---------------------------------------------------------------------------------------------------------


class _Lines(NamedTuple):
    """Right-hand sides, equations first, and bounds: one line per instance, or one for all. The right-hand side of an inequality is at
    most what the bounds allow its row to be: 1e15 for "no limit" would bring rounding errors along. `loose`: where it was more."""

    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    loose: np.ndarray


class _FewRows(Certified):
    """At most `most` rows as one dense matrix, equations first, in the units of `Scales`. bounds: which it takes, in words."""

    def __init__(self, program: Program, most: int, bounds: str) -> None:
        super().__init__(program)
        rows = program.A.shape[0] + program.G.shape[0]
        if rows > most:  # dense, they might not fit into memory
            raise self.refusal(program, f"it has {rows} rows, more than {most}")
        if not self._takes(program.lower, program.upper):
            raise ProgramError(f"{type(self).__name__} needs {bounds}, or use HiGHS")
        self._scales = Scales.of(program)
        scaled = self._scales.program(program)
        self._rows = np.ascontiguousarray(sp.vstack([scaled.A, scaled.G]).toarray())

    @abstractmethod
    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        """Whether the bounds are of the kind that the solver takes."""

    @cached_property
    def _own_lines(self) -> _Lines | None:
        return self._lines(replace(self.program.own_sides))

    def _lines(self, sides: Sides) -> _Lines | None:
        """What the kernels read, in one layout: they are compiled once. `None` if the bounds are of another kind."""
        if sides is self.program.own_sides:
            return self._own_lines
        right = np.ascontiguousarray(sides.right_hand_sides() * self._scales.rows)
        lower, upper = (np.ascontiguousarray(part / self._scales.columns) for part in sides.bounds())
        if not self._takes(lower, upper):
            return None
        most = upper @ np.maximum(self._rows, 0.0).T + lower @ np.minimum(self._rows, 0.0).T
        loose = right > most
        loose[:, : self.program.A.shape[0]] = False
        return _Lines(np.where(loose, most, right), lower, upper, loose)


class FewRowLP(_FewRows):
    """Exact LPs whose program has few rows and finite bounds, such as the relaxed multi-dimensional knapsack: a simplex method of its own.

    Examples:
        >>> knapsack = dfl.Program(G=[[3, 4, 5]], h=[7], upper=1)
        >>> dfl.solvers.FewRowLP(knapsack).solve(torch.tensor([-4.0, -5.0, -6.0])).decision
        tensor([1., 1., 0.])
    """

    def __init__(self, program: Program) -> None:
        if program.is_integer:
            raise self.refusal(program, "it has integer variables; did you mean program.relax()?")
        super().__init__(program, MOST_ROWS, "finite bounds on every variable: add them")

    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        return bool(np.isfinite(lower).all() and np.isfinite(upper).all())

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.engine.exact.few_row_lp import solve_batch

        assert sides is not None
        lines, out = self._lines(sides), Raw.empty(*c.shape)
        if lines is None:
            return self.general._solve(c, sides, None)
        scales, prices = self._scales, np.zeros((len(c), len(self._rows)))
        found = (out.decision, prices, out.status)
        solve_batch(self._rows, self.program.A.shape[0], c * scales.columns, *lines[:3], *found)
        out.decision[:] *= scales.columns
        prices *= scales.rows
        prices[np.broadcast_to(lines.loose, prices.shape)] = 0.0  # a row that cannot be broken has no price
        return self.certified(c, sides, out, prices)


class FewRowBinary(_FewRows):
    """Exact yes-or-no decisions of a program with few inequalities, such as the multi-dimensional knapsack: branch and bound by loss.

    The enumeration of all better decisions proves an answer; the rows are checked in the user's units. HiGHS solves an instance that
    needs more than `STEPS` steps, or whose costs span so much that rounding hides which decision is better.

    Examples:
        >>> knapsack = dfl.Program(G=[[3, 4, 5]], h=[7], upper=1, integer=True)
        >>> dfl.solvers.FewRowBinary(knapsack).solve(torch.tensor([-4.0, -5.0, -6.0])).decision
        tensor([1., 1., 0.])
    """

    def __init__(self, program: Program) -> None:
        if not program.integer.all():
            raise self.refusal(program, "it has variables that are not integer; did you mean FewRowLP?")
        if program.A.shape[0]:
            raise self.refusal(program, "it has equations")
        super().__init__(program, MOST_BINARY_ROWS, "variables with two values, or one: bounds such as 0 and 1")

    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        width = upper - lower
        whole = np.isfinite(lower).all() and (lower == np.round(lower)).all()
        return bool(whole and ((width == 0) | (width == 1)).all())

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.engine.exact.few_row_binary import solve_batch

        assert sides is not None
        lines, out = self._lines(sides), Raw.empty(*c.shape)
        if lines is None:
            return self.general._solve(c, sides, None)
        solve_batch(self._rows, c, *lines[:3], STEPS, out.decision, out.status)
        out.objective[:] = out.bound[:] = np.einsum("ij,ij->i", c, out.decision)
        nothing = np.zeros((len(c), len(self._rows)))  # the rows are checked, not the relaxation
        holds = self.certifier.check(c, out.decision, nothing, sides).primal <= OPTIMAL
        return self.handed_over(c, sides, out, (out.status == int(Status.OPTIMAL)) & holds)


# -- small tableaus ---------------------------------------------------------------------------------------------------


class SmallLP(Certified):
    """Exact linear programs with a small dense tableau, of any structure: a primal simplex method of its own.

    Every instance begins at the same basis, that of costs S 1 + d, so that no answer depends on the batch. HiGHS solves instances with
    right-hand sides or bounds of their own.

    Examples:
        >>> dfl.solvers.SmallLP(program).solve(data.costs).status.max()
        tensor(0, dtype=torch.int8)
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if program.is_integer:
            raise self.refusal(program, "it has integer variables; did you mean program.relax()?")
        rows = program.A.shape[0] + program.G.shape[0]
        if rows > MOST_TABLEAU_ROWS:
            raise self.refusal(program, f"it has {rows} rows, more than {MOST_TABLEAU_ROWS}; use HiGHS")
        entries = rows * max(program.n - program.A.shape[0], 1)  # basic variables times others
        if entries > MOST_ENTRIES:
            raise self.refusal(program, f"its tableau has {entries} entries, more than {MOST_ENTRIES}; use HiGHS")

    @cached_property
    def _tableau(self) -> _Tableau:
        return _Tableau(self.general)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        if not (self._has_own(sides) and self._tableau.feasible):
            return self.general._solve(c, sides, None)
        out = Raw.empty(*c.shape)
        return self.certified(c, sides, out, self._tableau.solve(c, out))


class _Tableau:
    """The tableau of a program at one basis, in the units of `Scales`. feasible: whether the decision there is, roughly: steps mend
    what is left."""

    def __init__(self, solver: HiGHS) -> None:
        from dflearn.engine.exact.simplex import Lines, Place, System

        program = solver.program
        self.program, self.scales = program, Scales.of(program)
        scaled, equalities, inequalities = self.scales.program(program), program.A.shape[0], program.G.shape[0]
        slacks = sp.vstack([sp.csr_array((equalities, inequalities)), sp.eye_array(inequalities)])
        matrix = sp.csc_array(sp.hstack([sp.vstack([scaled.A, scaled.G]), slacks]))  # no slacks of equations
        matrix.eliminate_zeros()
        codes = np.delete(_first_basis(solver), np.arange(program.n, program.n + equalities))
        basis, self.kept = _completed(matrix.toarray(), np.flatnonzero(codes == Basis.BASIC))
        matrix = sp.csc_array(matrix[self.kept])
        outside = np.setdiff1d(np.arange(matrix.shape[1]), basis)
        dense = matrix.toarray()
        try:
            inverse = np.linalg.inv(dense[:, basis])
        except np.linalg.LinAlgError:  # rows depend on each other but for rounding
            self.feasible = False
            return
        tableau = inverse @ dense[:, outside]
        tableau += inverse @ (dense[:, outside] - dense[:, basis] @ tableau)
        for entries in (inverse, tableau):
            entries[np.abs(entries) < 1e-15 * np.abs(entries).max(initial=0.0)] = 0.0
        at = codes[outside]
        at[outside >= program.n] = Basis.AT_LOWER  # a row at its upper side is a slack of zero
        own, slacks = program.own_sides, np.zeros(inequalities)
        right = (np.concatenate([own.b, own.h]) * self.scales.rows)[self.kept]
        lower = np.concatenate([own.lower / self.scales.columns, slacks])
        upper = np.concatenate([own.upper / self.scales.columns, slacks + np.inf])
        low, high = lower[outside], upper[outside]
        up = np.isinf(low) | ((at == Basis.AT_UPPER) & np.isfinite(high))
        at = np.where(up & np.isinf(high), Basis.AT_ZERO, np.where(up, Basis.AT_UPPER, Basis.AT_LOWER))
        x = np.zeros(matrix.shape[1])
        x[outside] = np.select([at == Basis.AT_LOWER, at == Basis.AT_UPPER], [low, high])
        for _ in range(2):
            x[basis] += inverse @ (right - dense @ x)
        broken = np.maximum(lower - x, x - upper)[basis].max(initial=0.0)
        self.feasible = bool(broken <= ROUGHLY * np.abs(np.append(x, right)).max(initial=0.0))
        self.lines = Lines(right, lower, upper)
        self.system = System(
            matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64),
            np.ascontiguousarray(inverse), np.ascontiguousarray(inverse.T),
        )  # fmt: skip
        self.reference = Place(
            np.ascontiguousarray(tableau), basis.astype(np.int64), outside.astype(np.int64), at.astype(np.int8), x
        )

    def solve(self, c: np.ndarray, out: Raw) -> np.ndarray:
        """Decisions and statuses into `out`, in the user's units; the prices `(count, rows)`."""
        from dflearn.engine.exact.simplex import solve_batch

        y = np.full((len(c), len(self.kept)), np.nan)
        found = (out.decision, y, out.status)
        solve_batch(self.system, self.reference, self.lines, c * self.scales.columns, *found)
        out.decision[:] = out.decision * self.scales.columns + 0.0  # turns −0 into 0
        prices = np.zeros((len(c), len(self.scales.rows)))
        prices[:, self.kept] = y * self.scales.rows[self.kept]
        return prices


def _first_basis(solver: HiGHS) -> np.ndarray:
    """Codes of variables and rows at an optimum for the costs S 1 + d, else at any decision, else with all rows basic."""
    program, objective, width = solver.program, solver.program.objective, solver.start_width
    ones = np.ones(objective.p) if program.S is None else program.S @ np.ones(objective.p)
    with solver._model().strict_tolerances():
        for c in (ones + program.d, np.zeros(program.n)):
            blank = np.full((1, width), Basis.NONE, np.int8)
            codes = solver._solve(np.ascontiguousarray(c[None]), program.own_sides, blank).start
            if codes is not None and (codes[0] == Basis.BASIC).sum() == width - program.n:
                return np.asarray(codes[0])
    return np.where(np.arange(width) < program.n, Basis.AT_LOWER, Basis.BASIC).astype(np.int8)


def _completed(matrix: np.ndarray, basic: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A basis of the columns of `matrix` with the columns `basic` in it, and the rows that do not depend on others."""
    least = DEPENDENT * np.abs(matrix).max(initial=0.0)
    basic = basic[independent(matrix[:, basic], least)]
    others = np.setdiff1d(np.arange(matrix.shape[1]), basic)
    Q = np.linalg.qr(matrix[:, basic])[0]
    rest = matrix[:, others] - Q @ (Q.T @ matrix[:, others])
    basis = np.sort(np.append(basic, others[independent(rest, least)]))
    return basis, independent(matrix[:, basis].T, 0.0)


# -- integers that the rows fix ---------------------------------------------------------------------------------------


class RelaxationFirst(Certified):
    """Exact integer programs in which the rows leave one value to every integer variable, whatever the costs.

    In the published facility location data the capacities of all facilities barely meet the demand, so all must open. Two linear
    programs for each integer variable prove it, once: the certified bounds on its least and its largest value, rounded inwards. Then
    each cost vector is a linear program. HiGHS solves all others, and instances with sides of their own.

    Examples:
        >>> location = dfl.problems.FacilityLocation(5, 2)
        >>> dfl.solvers.RelaxationFirst(location.program).solve(location.generate(2).costs).status
        tensor([0, 0], dtype=torch.int8)
    """

    def __init__(self, program: Program) -> None:
        if not program.is_integer:
            raise self.refusal(program, "it has no integer variables; use HiGHS or FewRowLP")
        super().__init__(program)

    @staticmethod
    def suits(program: Program) -> bool:
        """Whether it is worth a try: few integer variables, and rows whose capacity one of them switches on."""
        if program.Q is not None or program.predicts_rows or not 0 < int(program.integer.sum()) <= MOST_INTEGERS:
            return False
        negative = program.G < 0
        switched = (program.h == 0) & (np.diff(negative.indptr) == 1)
        return bool(program.integer[negative[np.flatnonzero(switched)].indices].any())

    @cached_property
    def linear(self) -> HiGHS | None:
        """The linear program that is left where every integer variable has one value; otherwise `None`."""
        relaxed = self.program.relax()
        lower, upper = integer_bounds(relaxed.lower, relaxed.upper, self.program.integer)
        solver, sides = HiGHS(relaxed), relaxed.own_sides
        for j in np.flatnonzero(self.program.integer):
            unit = (np.arange(relaxed.n) == j).astype(float)
            raw = solver._solve(np.stack([unit, -unit]), sides, None)
            if not (raw.status == int(Status.OPTIMAL)).all():
                return None
            least = np.ceil(raw.bound - MARGIN * np.maximum(1.0, np.abs(raw.bound)))
            lower[j], upper[j] = max(lower[j], least[0]), min(upper[j], -least[1])
            if lower[j] != upper[j]:
                return None
        return HiGHS(replace(relaxed, lower=lower + 0.0, upper=upper + 0.0))

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        if not (self._has_own(sides) and self.linear is not None):
            return self.general._solve(c, sides, None)
        out = self.linear._solve(c, self.linear.program.own_sides, None)
        return self.handed_over(c, sides, out, np.isin(out.status, (Status.OPTIMAL, Status.UNBOUNDED)))
