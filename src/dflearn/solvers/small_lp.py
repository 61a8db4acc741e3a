"""Small linear programs of any kind: a simplex method of our own."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw
from dflearn.solvers.gate import Certified
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import refusal, refuse_quadratic
from dflearn.solvers.scaling import Scales

# Of the tableau: rows times variables outside the basis. A step costs as much as there are entries, and HiGHS, which keeps to the
# nonzeros, some hundred microseconds to begin with: at 8,000 entries (SP-10) this is 6 to 11 times as fast as HiGHS, at 11,000
# (CFL-50) 2 times (`benchmarks/speed/small_lps.py`); at 20,900 of random sparse rows it was 0.7 to 2.6 times.
MOST_ENTRIES = 12_000
# The first tableau takes the cube of the rows in time and their square in memory: 0.1 s at 1,000 rows, 2 s and 200 MB at 3,000.
MOST_ROWS = 1_000
DEPENDENT = 1e-10  # a row of the tableau this small beside the largest is a row that others imply


class SmallLP(Certified):
    """Exact linear programs with a small dense tableau, of any structure: a primal simplex method of its own.

    HiGHS takes some hundred microseconds to begin with; on a shortest path of 40 edges this one is done after ten. Every instance
    begins at the same basis, that of the program's own right-hand sides at costs S 1 + d, so that no answer depends on the batch.
    Right-hand sides and bounds may differ from instance to instance.

    HiGHS solves what is not certified, and what has no decision.
    """

    def __init__(self, program: Program) -> None:
        refuse_quadratic("SmallLP", program)
        if program.is_integer:
            raise refusal("SmallLP", program, "it has integer variables; did you mean program.relax()?")
        entries, rows = tableau_entries(program), _rows(program)
        if rows > MOST_ROWS:
            raise refusal("SmallLP", program, f"it has {rows} rows, more than {MOST_ROWS}; use HiGHS")
        if entries > MOST_ENTRIES:
            raise refusal("SmallLP", program, f"its tableau has {entries} entries, more than {MOST_ENTRIES}; use HiGHS")
        self.program, self.objective = program, program.objective

    @staticmethod
    def suits(program: Program) -> bool:
        """Whether it takes the program."""
        small = _rows(program) <= MOST_ROWS and tableau_entries(program) <= MOST_ENTRIES
        return small and program.Q is None and not program.is_integer

    @cached_property
    def _tableau(self) -> _Tableau:
        return _Tableau(self.general)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        out = Raw.empty(*c.shape)
        prices = self._tableau.solve(c, sides, out)
        return self.certified(c, sides, out, prices)


def tableau_entries(program: Program) -> int:
    """Of the tableau of a program without dependent rows: basic variables times others."""
    return _rows(program) * max(int(program.n - program.A.shape[0]), 1)


def _rows(program: Program) -> int:
    return int(program.A.shape[0] + program.G.shape[0])


class _Tableau:
    """The tableau of a program at one basis, in the units of `Scales`, and what the kernel needs beside."""

    def __init__(self, solver: HiGHS) -> None:
        program = solver.program
        self.program, self.scales = program, Scales.of(program)
        scaled, equalities, inequalities = self.scales.program(program), program.A.shape[0], program.G.shape[0]
        slacks = sp.vstack([sp.csr_array((equalities, inequalities)), sp.eye_array(inequalities)])
        matrix = sp.csc_array(sp.hstack([sp.vstack([scaled.A, scaled.G]), slacks]))  # no slacks of equations
        matrix.eliminate_zeros()
        codes = _first_basis(solver)
        try:
            basis, self.kept = _independent(matrix, codes, equalities)
        except np.linalg.LinAlgError:  # not one of these numbers
            codes = _rows_basic(program.n, len(codes))
            basis, self.kept = _independent(matrix, codes, equalities)
        matrix = sp.csc_array(matrix[self.kept])
        outside = np.setdiff1d(np.arange(matrix.shape[1]), basis)
        dense = matrix.toarray()
        tableau = np.linalg.solve(dense[:, basis], dense[:, outside])
        tableau += np.linalg.solve(dense[:, basis], dense[:, outside] - dense[:, basis] @ tableau)
        tableau[np.abs(tableau) < 1e-15 * np.abs(tableau).max(initial=0.0)] = 0.0
        self.columns = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64))
        at = np.delete(codes, np.arange(program.n, program.n + equalities))[outside]
        at[outside >= program.n] = Basis.AT_LOWER  # a row at its upper side is a slack of zero
        self.reference = (
            np.ascontiguousarray(tableau), basis.astype(np.int64), outside.astype(np.int64), at.astype(np.int8),
            np.zeros(matrix.shape[1]),
        )  # fmt: skip

    def solve(self, c: np.ndarray, sides: Sides, out: Raw) -> np.ndarray:
        """Decisions and statuses into `out`, in the user's units; the prices `(count, rows)`."""
        from dflearn.kernels.basis import Columns
        from dflearn.kernels.simplex import solve_batch
        from dflearn.kernels.tableau import Lines, Place

        own = sides is self.program.own_sides
        y = np.full((len(c), len(self.kept)), np.nan)
        costs = c if self.scales.plain else c * self.scales.columns
        lines = self.own_lines if own else self.lines(sides)
        solve_batch(Columns(*self.columns), Place(*self.reference), Lines(*lines), costs, out.decision, y, out.status)
        if not self.scales.plain:
            out.decision[:] *= self.scales.columns
            y *= self.scales.rows[self.kept]
        np.add(out.decision, 0.0, out=out.decision)  # turns −0 into 0
        rows = len(self.scales.rows)
        if len(self.kept) == rows:
            return y
        prices = np.zeros((len(c), rows))
        prices[:, self.kept] = y
        return prices

    @cached_property
    def own_lines(self) -> tuple[np.ndarray, ...]:
        return self.lines(self.program.own_sides)

    def lines(self, sides: Sides) -> tuple[np.ndarray, ...]:
        """Right-hand sides of the rows that are kept, bounds of variables and slacks, as the kernel reads them."""
        right, lower, upper = sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper")
        if not self.scales.plain:
            right, lower, upper = (
                right * self.scales.rows, lower / self.scales.columns, upper / self.scales.columns
            )  # fmt: skip
        slacks = self.program.G.shape[0]
        low = np.hstack([lower, np.zeros((len(lower), slacks))])
        high = np.hstack([upper, np.full((len(upper), slacks), np.inf)])
        return np.ascontiguousarray(right[:, self.kept]), low, high


def _first_basis(solver: HiGHS) -> np.ndarray:
    """Codes of variables and rows at an optimum for the costs S 1 + d, else at any decision, else with all rows basic."""
    program = solver.program
    objective = program.objective
    ones = np.ones(objective.p) if program.S is None else program.S @ np.ones(program.S.shape[1])
    blank = np.full((1, solver.start_width), Basis.NONE, np.int8)
    for c in (ones + program.d, np.zeros(program.n)):
        codes = solver._solve(np.ascontiguousarray(c[None]), program.own_sides, blank).start
        if codes is not None and (codes[0] == Basis.BASIC).sum() == solver.start_width - program.n:
            found: np.ndarray = codes[0]
            return found
    return _rows_basic(program.n, solver.start_width)


def _rows_basic(n: int, width: int) -> np.ndarray:
    return np.where(np.arange(width) < n, Basis.AT_LOWER, Basis.BASIC).astype(np.int8)


def _independent(matrix: sp.csc_array, codes: np.ndarray, equalities: int) -> tuple[np.ndarray, np.ndarray]:
    """A basis without slacks of equations, and the rows that do not depend on others.

    matrix: variables, then slacks of inequalities. Where the slack of an equation is basic, any variable with an entry in its row
    of the tableau takes its place, at the same decision; where there is none, the row says nothing.
    """
    rows, n = matrix.shape[0], len(codes) - matrix.shape[0]
    whole = np.hstack([matrix[:, :n].toarray(), np.eye(rows)])
    basic = np.flatnonzero(codes == Basis.BASIC)
    others = np.setdiff1d(np.r_[:n, n + equalities : n + rows], basic)
    tableau = np.linalg.solve(whole[:, basic], whole[:, others]) if rows else np.zeros((0, len(others)))
    dependent = []
    for r in np.flatnonzero((basic >= n) & (basic < n + equalities)):
        size = np.abs(tableau[r])
        q = int(size.argmax()) if size.size else 0
        if not size.size or size[q] <= DEPENDENT * max(np.abs(tableau).max(), 1.0):
            dependent.append(int(basic[r]) - n)
            continue
        tableau[r] /= tableau[r, q]
        rest = np.arange(rows) != r
        tableau[rest] -= np.outer(tableau[rest, q], tableau[r])
        basic[r] = others[q]
        tableau[:, q] = 0.0  # a slack of an equation never comes back
    chosen = np.sort(basic[(basic < n) | (basic >= n + equalities)])
    return np.where(chosen < n, chosen, chosen - equalities), np.setdiff1d(np.arange(rows), dependent)
