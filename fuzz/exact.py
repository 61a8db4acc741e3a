"""Linear programs in exact arithmetic: the simplex method on integers, with Bland's rule.

Every float is a rational number. Rows are multiplied by a power of two until all is integer, and each pivot keeps the
tableau integer (Edmonds, Bareiss): real entries are `table / denominator`.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np


class ExactAnswer(NamedTuple):
    """How it ended ("optimal", "infeasible", "unbounded") and, where there is one, the optimum and a decision."""

    status: str
    objective: Fraction | None = None
    w: list[Fraction] | None = None


def exact_lp(c: np.ndarray, *parts: np.ndarray) -> ExactAnswer:
    """min cᵀw  s.t.  A w = b,  G w ≤ h,  lower ≤ w ≤ upper; parts: A, b, G, h, lower, upper."""
    return FeasibleSet(*parts).minimize(c)


class FeasibleSet:
    """The decisions with  A w = b,  G w ≤ h,  lower ≤ w ≤ upper, at one of its vertices: any number of costs begin there."""

    def __init__(
        self, A: np.ndarray, b: np.ndarray, G: np.ndarray, h: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> None:
        n = len(lower)
        self.empty = bool((lower > upper).any())
        if self.empty:
            return
        # w_j = offset_j + Σ sign · x over its columns, x ≥ 0.
        offset, columns = [Fraction(0)] * n, []
        extra: list[tuple[int, Fraction]] = []  # x_k ≤ width
        for j in range(n):
            low, high = lower[j], upper[j]
            if np.isfinite(low):
                offset[j] = Fraction(float(low))
                columns.append((j, 1))
                if np.isfinite(high):
                    extra.append((len(columns) - 1, Fraction(float(high)) - offset[j]))
            elif np.isfinite(high):
                offset[j] = Fraction(float(high))
                columns.append((j, -1))
            else:
                columns += [(j, 1), (j, -1)]
        k, slacks = len(columns), len(G) + len(extra)
        rows: list[list[int]] = []
        for matrix, right, first in ((A, b, None), (G, h, 0)):
            for i in range(len(matrix)):
                line, unit = _integers(matrix[i].tolist())
                moved = sum((a * o for a, o in zip(line, offset, strict=True) if a and o), Fraction(0))
                side = Fraction(float(right[i])) - moved / unit
                own = max(unit, side.denominator)  # powers of two
                slack = [0] * slacks
                if first is not None:
                    slack[i] = own
                times = own // unit
                rows.append([line[j] * sign * times for j, sign in columns] + slack + [int(side * own)])
        for e, (position, width) in enumerate(extra):
            row = [0] * (k + slacks + 1)
            row[position] = row[len(G) + k + e] = width.denominator
            row[-1] = width.numerator
            rows.append(row)
        self.offset, self.columns, self.slacks = offset, columns, slacks
        self.vertex = _Simplex(rows, k + slacks)
        self.empty = not self.vertex.begin()

    def minimize(self, c: np.ndarray) -> ExactAnswer:
        if self.empty:
            return ExactAnswer("infeasible")
        goal, _ = _integers(c.tolist())
        x = self.vertex.minimize([goal[j] * sign for j, sign in self.columns] + [0] * (self.slacks + 1))
        if x is None:
            return ExactAnswer("unbounded")
        w = list(self.offset)
        for (j, sign), value in zip(self.columns, x, strict=False):
            w[j] += sign * value
        return ExactAnswer("optimal", sum((Fraction(float(a)) * v for a, v in zip(c, w, strict=True)), Fraction(0)), w)


def _integers(row: list[float]) -> tuple[list[int], int]:
    """The numbers times the power of two that makes them all integers, and that power."""
    ratios = [float(value).as_integer_ratio() for value in row]
    common = max((below for _, below in ratios), default=1)  # powers of two: the largest is a multiple of all
    return [above * (common // below) for above, below in ratios], common


class _Simplex:
    """min costsᵀx over rows x = right, x ≥ 0. An artificial variable per row is basic at first, without a column of its own."""

    def __init__(self, rows: list[list[int]], width: int) -> None:
        self.m, self.width = len(rows), width
        lines = [[-value for value in row] if row[-1] < 0 else row for row in rows]
        total = [-sum(column) for column in zip(*lines, strict=True)] if lines else [0] * (width + 1)
        self.table: Any = np.array([*lines, total], dtype=object).reshape(self.m + 1, width + 1)
        self.denominator, self.basis = 1, [width + i for i in range(self.m)]

    def begin(self) -> bool:
        """Go to a vertex, if there is one."""
        self._descend()
        if self.table[-1, -1] != 0:
            return False
        for i in range(self.m):  # artificial variables leave the basis, or their row says nothing
            if self.basis[i] >= self.width:
                usable = np.flatnonzero(self.table[i, : self.width])
                if usable.size:
                    self._pivot(i, int(usable[0]))
        return True

    def minimize(self, costs: list[int]) -> list[Fraction] | None:
        """x at the optimum; `None` where there is no end. The vertex stays."""
        kept = self.table, self.denominator, list(self.basis)
        goal = np.array(costs, dtype=object) * self.denominator
        for i, q in enumerate(self.basis):
            if q < self.width and costs[q]:
                goal = goal - costs[q] * self.table[i]
        self.table = np.vstack([self.table[:-1], goal])
        x = [Fraction(0)] * self.width
        bounded = self._descend()
        for i, q in enumerate(self.basis):
            if q < self.width:
                x[q] = Fraction(self.table[i, -1], self.denominator)
        self.table, self.denominator, self.basis = kept
        return x if bounded else None

    def _descend(self) -> bool:
        """Pivot until the last row has no negative entry; `False` where it falls without end."""
        while True:
            negative = np.flatnonzero(self.table[-1, :-1] < 0)
            if not negative.size:
                return True
            q, place = int(negative[0]), -1
            sides, entries = self.table[:, -1].tolist(), self.table[:, q].tolist()
            for i in range(self.m):
                if entries[i] > 0:  # the least sides[i] / entries[i]
                    less = -1 if place < 0 else sides[i] * entries[place] - sides[place] * entries[i]
                    if less < 0 or (less == 0 and self.basis[i] < self.basis[place]):
                        place = i
            if place < 0:
                return False
            self._pivot(place, q)

    def _pivot(self, p: int, q: int) -> None:
        pivot, line = self.table[p, q], self.table[p].copy()
        self.table = (self.table * pivot - np.outer(self.table[:, q], line)) // self.denominator
        self.table[p] = line
        if pivot < 0:
            self.table, pivot = -self.table, -pivot
        self.denominator = pivot
        self.basis[p] = q


def whole_rows(rows: np.ndarray) -> Any:
    """Each row of floats times a power of two that makes it integer, as Python's integers."""
    return np.array([_integers(row)[0] for row in rows.tolist()], dtype=object).reshape(rows.shape)


def solve_exactly(table: Any) -> tuple[Any, int] | None:
    """One solution of a linear system, each row its integer coefficients and right-hand side; `None` if there is none. The
    solution is numerators, and one positive denominator. Every step keeps the table integer, as in `_Simplex`."""
    width, denominator, pivots = table.shape[1] - 1, 1, list[int]()
    for q in range(width):
        at, below = len(pivots), np.flatnonzero(table[len(pivots) :, q])
        if below.size:
            table[[at, at + below[0]]] = table[[at + below[0], at]]
            line = table[at].copy()
            table = (table * line[q] - np.outer(table[:, q], line)) // denominator
            table[at], denominator = line, line[q]
            pivots.append(q)
    if table[len(pivots) :, -1].any():
        return None
    x = np.zeros(width, dtype=object)
    x[pivots] = table[: len(pivots), -1]
    return (x, denominator) if denominator > 0 else (-x, -denominator)
