"""Units in which a back end with absolute tolerances is asked: powers of two, so that nothing is rounded.

With row scales R, column scales D, a decision size σ and a cost unit γ, the back end is given

    min over v of γ (D c)ᵀ v    s.t.   (R A D) v = R b / σ,   (R G D) v ≤ R h / σ,   lower / (σ D) ≤ v ≤ upper / (σ D),

whose optimum is v = w / (σ D), with prices γ y / R. R and D belong to the program, σ and γ to an instance. Integer variables
keep their unit: theirs are D = 1, and σ = 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from dflearn.engine.implied import Propagation
from dflearn.program import Program
from dflearn.program.sides import Sides

SMALL, LARGE = 1e-2, 1e6  # numbers whose largest lies between these are taken as they are
ENTRIES = 1e4  # a matrix is scaled where an entry, or its inverse, is larger
ROUNDS = 4  # of scaling rows, then columns
WIDEST = 39  # log2 of what the entries of a row may span: back ends drop smaller ones
NOTHING = 1e-10  # of the unit of a column: so small a range is rounding of a variable that rows fix at zero
RUIZ = 8  # rounds of scaling rows and columns at once


def power_of_two(x: np.ndarray) -> np.ndarray:
    """The power of two nearest to x > 0."""
    power: np.ndarray = np.exp2(np.round(np.log2(x)))
    return power


def units(values: np.ndarray) -> np.ndarray:
    """The size of the nonzero numbers in each line, where the largest is unusual; else 1.  `(count, n)` → `(count,)`.

    The size is the median, as one penalty of 1e9 must not make a rounding error of all other costs.
    """
    size = np.abs(values)
    largest = size.max(1, initial=0.0)
    found = np.ones(len(values))
    if largest.min(initial=SMALL) >= SMALL and largest.max(initial=SMALL) <= LARGE:
        return found
    for i in np.flatnonzero((largest > 0) & ((largest < SMALL) | (largest > LARGE))):
        middle = np.median(np.minimum(size[i][size[i] > 0], 1e300))  # a median may be a sum of two
        found[i] = power_of_two(max(middle, largest[i] * 1e-15))
    return found


def spans(values: np.ndarray) -> np.ndarray:
    """The largest of the nonzero numbers in each line, divided by the smallest; 1 where there are none.  `(count,)`"""
    size = np.abs(values)
    largest = size.max(1, initial=0.0)
    smallest = np.where(size > 0, size, np.inf).min(1, initial=np.inf)
    return np.where(largest > 0, largest, 1.0) / np.where(largest > 0, smallest, 1.0)


def span(values: np.ndarray) -> float:
    """The same of one line `(n,)`."""
    return float(spans(values[None])[0])


@dataclass(frozen=True, eq=False)
class Scales:
    """R `(rows,)` and D `(n,)` of a program, as powers of two; `plain` where all are 1."""

    rows: np.ndarray
    columns: np.ndarray
    equalities: int
    sizes: np.ndarray  # the largest entry of each row in the scaled matrix
    plain: bool

    @classmethod
    def of(cls, program: Program) -> Scales:
        matrix = abs(sp.vstack([program.A, program.G], format="csr"))
        rows, columns = np.ones(matrix.shape[0]), np.ones(program.n)
        matrix.eliminate_zeros()
        plain = not matrix.nnz or (matrix.data.max() <= ENTRIES and matrix.data.min() >= 1 / ENTRIES)
        if not plain:
            logs = matrix.copy()
            logs.data = np.log2(matrix.data)
            row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            free = ~program.integer
            high, low = np.zeros(len(rows)), np.zeros(program.n)  # log2 of R and of D
            for _ in range(ROUNDS):  # to the geometric middle of the largest and the smallest entry
                high = _middle(logs.data + low[matrix.indices], row_of, len(rows))
                low = np.where(free, _middle(logs.data + high[row_of], matrix.indices, program.n), 0.0)
            if program.is_integer:  # a big M must not make the range of a variable smaller than tolerances
                limited = np.where(free, np.minimum(low, np.log2(_reach(program, np.exp2(low)))), 0.0)
                low = limited if _spread(logs.data + limited[matrix.indices], row_of, len(rows)) < WIDEST else low
            # The last word is the rows': their tolerances are absolute.
            largest = np.full(len(rows), -np.inf)
            np.maximum.at(largest, row_of, logs.data + low[matrix.indices])
            rows, columns = np.exp2(-np.round(np.where(np.isfinite(largest), largest, 0.0))), np.exp2(np.round(low))
        scaled = matrix if plain else sp.diags_array(rows) @ matrix @ sp.diags_array(columns)
        sizes = scaled.max(axis=1).toarray().ravel() if matrix.nnz else np.ones(len(rows))
        return cls(rows, columns, program.A.shape[0], np.where(sizes > 0, sizes, 1.0), plain)

    def program(self, program: Program) -> Program:
        """What the back end holds: scaled rows, sides and bounds. Its objective counts for nothing."""
        if self.plain:
            return program
        left, right = np.split(self.rows, [self.equalities])
        columns = sp.diags_array(self.columns)
        sides = self.sides(program.own_sides, 1.0)
        A = sp.csr_array(sp.diags_array(left) @ program.A @ columns)
        G = sp.csr_array(sp.diags_array(right) @ program.G @ columns)
        return replace(program, A=A, b=sides.b, G=G, h=sides.h, lower=sides.lower, upper=sides.upper)

    def sides(self, sides: Sides, size: float) -> Sides:
        """The sides of one instance in the back end's units."""
        if self.plain and size == 1.0:
            return sides
        left, right = np.split(self.rows / size, [self.equalities])
        width = self.columns * size
        return Sides(sides.b * left, sides.h * right, sides.lower / width, sides.upper / width)

    def decision_sizes(self, sides: Sides) -> np.ndarray:
        """σ: the size of the decisions that right-hand sides, or else bounds, speak of.  `(count,)`, or `(1,)` for all."""
        right = sides.right_hand_sides()
        right = np.where(np.isfinite(right), right, 0.0)
        if right.shape[1] and right.any():
            return units(right * (self.rows / self.sizes))
        both = (sides.lines("lower"), sides.lines("upper"))
        bounds = [np.where(np.isfinite(side), side, 0.0) / self.columns for side in both]
        return units(np.hstack(np.broadcast_arrays(*bounds)))


def _reach(program: Program, units: np.ndarray) -> np.ndarray:
    """The largest |w_j| that the program's own sides allow, `(n,)`; infinite where there is no end, or where it is zero but for rounding
    in these units `(n,)`."""
    matrix, right = sp.csr_array(sp.vstack([program.A, program.G])), program.own_sides.right_hand_sides()[0]
    bounds = Propagation(matrix, program.A.shape[0]).bounds(right, program.lower, program.upper)
    reach = np.maximum(*map(np.abs, bounds))
    return np.where(reach > NOTHING * units, reach, np.inf)


def _ends(logs: np.ndarray, group: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest number in each group."""
    largest, smallest = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(largest, group, logs)
    np.minimum.at(smallest, group, logs)
    return largest, smallest


def _spread(logs: np.ndarray, group: np.ndarray, count: int) -> float:
    """The largest difference within a group."""
    return float(np.max(np.subtract(*_ends(logs, group, count))))


def _middle(logs: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """−(largest + smallest) / 2 of the numbers in each group; 0 where there are none."""
    largest, smallest = _ends(logs, group, count)
    return np.where(np.isfinite(largest), -(largest + np.where(np.isfinite(smallest), smallest, 0.0)) / 2, 0.0)


# -- quadratic programs -------------------------------------------------------------------------------------------


def sizes(
    right: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    c: np.ndarray,
    curves: np.ndarray,
    equality: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    far: float,
) -> np.ndarray:
    """About how large the decisions of each block are: what sides force upon them, how far costs pull them, or what sides name."""
    count = int(max(columns.max(initial=-1), rows.max(initial=-1))) + 1
    out, pulled = np.zeros(count), np.zeros(count)
    np.maximum.at(out, rows, np.where(equality, np.abs(right), -right))
    np.maximum.at(out, columns, np.maximum(lower, -upper))
    curved = curves > 0
    np.maximum.at(pulled, columns[curved], np.abs(c[curved]) / curves[curved])
    for k in np.flatnonzero(out <= 0):
        named = np.abs(np.concatenate([right[rows == k], lower[columns == k], upper[columns == k]]))
        named = named[np.isfinite(named) & (named > 0)]
        if len(named):
            named = named[named <= far * np.median(named)]
        out[k] = min(named.max(initial=0.0) or np.inf, pulled[k] or np.inf)
    return power_of_two(np.where(np.isfinite(out) & (out > 0), out, 1.0))


def blocks(M: Any, H: Any, places: np.ndarray | None = None, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of independent blocks that variables and rows belong to; `places`: the rows of M among so many, others are in 0."""
    M, n = sp.csr_array(M), M.shape[1]
    _, label = connected_components(sp.block_array([[H, M.T], [M, None]]) if M.shape[0] else H, directed=False)
    if places is None:
        return label[:n], label[n:]
    out = np.zeros(rows, label.dtype)
    out[places] = label[n:]
    return label[:n], out


def scaled(matrix: Any, rows: np.ndarray, columns: np.ndarray) -> sp.csc_array:
    """diag(rows) · matrix · diag(columns)."""
    out = sp.csc_array(matrix, copy=True)
    out.data = out.data * rows[out.indices] * np.repeat(columns, np.diff(out.indptr))
    return out


def largest(matrix: Any, axis: int) -> np.ndarray:
    """The largest entry of each column (axis 0) or row of a matrix without negative ones."""
    if not matrix.nnz:
        return np.zeros(matrix.shape[1 - axis])
    return np.asarray(sp.csr_array(matrix).max(axis=axis).toarray()).ravel()


def equilibrated(H: Any, M: Any) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two for columns and rows that bring the entries of [H Mᵀ; M 0] to about one (Ruiz)."""
    H, M = abs(H), abs(M)
    own, (block, _) = H.diagonal(), blocks(M, H)
    unit = np.ones(len(own))  # of costs, which are another matter: each independent block has its own
    for k in np.unique(block[own > 0]):
        unit[block == k] = np.median(own[(block == k) & (own > 0)])
    H, M = sp.coo_array(scaled(H, np.ones(len(own)), 1 / unit)), sp.coo_array(M)
    (above, beside), (row, column) = H.coords, M.coords
    columns, most = np.ones(M.shape[1]), np.zeros(M.shape[0])
    np.maximum.at(most, row, M.data)
    rows = 1 / np.where(most > 0, most, 1.0)  # the unit of a row is another matter, too
    for _ in range(RUIZ):
        now = M.data * rows[row] * columns[column]
        by_column, by_row = np.zeros_like(columns), np.zeros_like(rows)
        np.maximum.at(by_column, column, now)
        np.maximum.at(by_column, beside, H.data * columns[above] * columns[beside])
        np.maximum.at(by_row, row, now)
        columns = columns / np.sqrt(np.where(by_column > 0, by_column, 1.0))
        rows = rows / np.sqrt(np.where(by_row > 0, by_row, 1.0))
    return power_of_two(columns), power_of_two(rows)
