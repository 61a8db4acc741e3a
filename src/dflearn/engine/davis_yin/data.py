"""What Davis-Yin iterations read and write.

`SplittingRows`: M (w, s) = r, one slack s per inequality, scaled and in elimination order. The others are what the kernels in
`iterations` take: rows, the factor of M Mᵀ, costs and sides, the answer.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import Certifier
from dflearn.engine.linear_algebra.cholesky import SparseFactor
from dflearn.engine.linear_algebra.lanes import LANES
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides

ROW_BYTES = 128  # of a tile; half of that where the batch is small


class SplittingRows:
    """The kept equalities and the inequalities of one program.

    Attributes:
        factor: M, the order and scale of its rows, and the symbolic factor of M Mᵀ.
        width: N, variables and slacks.
        backends: what iterates, by kind, dtype and device; made when first needed.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.form = program, program.equality_form()
        self.factor = SparseFactor.of(self.form.matrix)
        self.width = self.form.n + self.form.slacks
        self.backends: dict[Any, Any] = {}

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    @cached_property
    def places(self) -> np.ndarray:
        """Which row of the program each row of the iterations is."""
        equalities = self.program.A.shape[0]
        return self.ordered(np.concatenate([self.form.kept, equalities + np.arange(self.form.slacks)]))

    def ordered(self, rows: np.ndarray) -> np.ndarray:
        """Something about each kept row of the program, `(…, m)`, in elimination order."""
        return np.take(rows, self.factor.order, axis=-1)

    def quadratic(self, q: np.ndarray | None = None) -> Quadratic:
        """Q, zero where the objective is linear; q `(n,)` is added to its diagonal."""
        Q = Quadratic(diagonal=np.zeros(self.program.n)) if self.program.Q is None else self.program.Q
        return Q if q is None else Q.plus(q)

    def numbers(self, sides: Sides, dtype: Any) -> SideNumbers:
        """The sides in one dtype, one line for each instance, or one for all."""
        n = self.form.n
        right = self.ordered(self.form.right_hand_side(sides)) * self.factor.scale
        with np.errstate(over="ignore"):  # a bound too large for the dtype is none
            r, lower, upper = (np.atleast_2d(part).astype(dtype) for part in (right, *self.form.bounds(sides)))
        sizes = [np.abs(r), *(np.where(np.isfinite(side), np.abs(side), 0)[:, :n] for side in (lower, upper))]
        rows, *ends = (part.max(1, initial=0) for part in sizes)
        bounds = np.maximum(*ends)
        largest = np.where(rows > 0, rows, np.where(bounds > 0, bounds, 1))
        least = [np.where(part > 0, part, np.inf).min(1, initial=np.inf) for part in sizes]
        smallest = np.minimum(np.minimum(least[0], least[1]), least[2])
        width = upper[:, :n] - lower[:, :n]
        reach = np.where(np.isfinite(width), width, largest[:, None]).astype(dtype)
        (lines,) = np.broadcast_shapes((len(r),), (len(lower),), (len(upper),))
        lower, upper, largest, smallest = (
            np.array(np.broadcast_to(part, (count, *part.shape[1:])), order="C")
            for part, count in ((lower, len(width)), (upper, len(width)), (largest, lines), (smallest, lines))
        )
        return SideNumbers(np.ascontiguousarray(r), lower, upper, reach, largest, smallest)


class SideNumbers(NamedTuple):
    """Right-hand sides and bounds of a batch as the iterations read them, `(count or 1, …)`.

    right: r `(·, m)`. lower, upper: of variables and slacks, `(·, N)`. reach: upper − lower of the variables, or `largest` where
    that is infinite, `(·, n)`. largest: the largest distance of a row from the origin, or else the largest bound, or else one.
    smallest: the smallest length that right-hand sides and bounds name, infinite where there is none. Both `(·,)`.
    """

    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    reach: np.ndarray
    largest: np.ndarray
    smallest: np.ndarray


class PaddedRows(NamedTuple):
    """A sparse matrix by rows, each filled up with zeros to a multiple of `group` entries: see `less_pairs`."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, matrix: Any, dtype: Any, group: int, *, backwards: bool = False) -> PaddedRows:
        """Entries of a row in the order of their columns, or against it; zeros first, at the row's first column."""
        rows = sp.csr_array(matrix)
        count = np.diff(rows.indptr)
        row = np.repeat(np.arange(rows.shape[0]), count)
        order = np.lexsort((-rows.indices if backwards else rows.indices, row))
        start = np.concatenate([[0], np.cumsum(-(-count // group) * group)])
        first = np.repeat(rows.indptr[:-1], np.diff(start))
        place = np.arange(start[-1]) - np.repeat(start[1:] - count, np.diff(start))  # within the row; negative: a zero
        entry = order[first + np.maximum(place, 0)]
        value = np.where(place < 0, 0.0, rows.data[entry])
        unsigned = np.uint32  # so that compiled indexing need not look for negative values
        return cls(start.astype(unsigned), rows.indices[entry].astype(unsigned), value.astype(dtype))


class SplittingSystem(NamedTuple):
    """M and the factor of M Mᵀ in one dtype.

    negated, columns: −M and Mᵀ. below: the part of L below its diagonal of ones; above: its transpose, with the entries of a
    row backwards: in both, what is computed last comes last, so that a sum has little to wait for. pivot: 1/D, (m,).
    inequality: which rows have a slack, (m,).
    """

    negated: PaddedRows
    columns: PaddedRows
    below: PaddedRows
    above: PaddedRows
    pivot: np.ndarray
    inequality: np.ndarray

    @classmethod
    def of(cls, factor: SparseFactor, inequality: np.ndarray, dtype: Any) -> SplittingSystem:
        return cls(
            PaddedRows.of(-factor.matrix, dtype, 4),
            PaddedRows.of(factor.matrix.T, dtype, 2),
            *factor_rows(factor, dtype),
            np.ascontiguousarray(inequality),
        )


def factor_rows(factor: SparseFactor, dtype: Any) -> tuple[PaddedRows, PaddedRows, np.ndarray]:
    """below, above and pivot of `SplittingSystem`."""
    values = factor.numeric(np.ones((factor.matrix.shape[1], LANES)))["lane"][: factor.entries + factor.rows, 0]
    entries, pivot = values[: factor.entries], values[factor.entries :]
    start, row = factor.pattern.column_start.astype(np.int64), factor.pattern.row.astype(np.int64)
    scaled = entries * np.repeat(pivot, np.diff(start))
    L = sp.csc_array((scaled, row, start), shape=(factor.rows, factor.rows))
    above = PaddedRows.of(L.T, dtype, 4, backwards=True)
    return PaddedRows.of(L, dtype, 4), above, pivot.astype(dtype)


class Curvature(NamedTuple):
    """Q = RᵀR + diag(δ) in one dtype: R by rows, Rᵀ, and δ, numbers (n,) that all instances share, or a tile of their own."""

    factor: PaddedRows
    transpose: PaddedRows
    diagonal: Any

    @classmethod
    def of(cls, factor: sp.csr_array, diagonal: np.ndarray, dtype: Any) -> Curvature:
        parts = PaddedRows.of(factor, dtype, 4), PaddedRows.of(factor.T, dtype, 2)
        return cls(*parts, np.ascontiguousarray(diagonal, dtype))


class SplittingData(NamedTuple):
    """One row per instance: c (count, n), r (count or 1, m), α (count,), the start z (count or 1, N); and the least size
    that decisions are taken to have (count,)."""

    c: np.ndarray
    r: np.ndarray
    alpha: np.ndarray
    start: np.ndarray
    least: np.ndarray


class Rule(NamedTuple):
    """What OPTIMAL means, as `certify_kernel.check_answers` reads it, in float64 and in the units of the program.

    rows: those of the program, by rows, and R of Q by rows. place, scale: row i of the iterations is row place[i] of the
    program, times scale[i]. curve, right, lower, upper: a line for each instance, or one for all. left: beside the largest
    decision or price, what may be left of a zero.
    """

    tolerance: float
    left: float
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    equalities: int
    zero: float
    factor: tuple[np.ndarray, np.ndarray, np.ndarray]
    place: np.ndarray
    scale: np.ndarray
    curve: np.ndarray
    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class SplittingAnswer(NamedTuple):
    """As `batch.Answer`, as arrays."""

    z: np.ndarray
    inside: np.ndarray
    w: np.ndarray
    value: np.ndarray
    residual: np.ndarray
    iterations: np.ndarray
    prices: np.ndarray
    moved: np.ndarray

    @classmethod
    def empty(cls, count: int, n: int, N: int, rows: int, dtype: Any) -> SplittingAnswer:
        z, inside, w = np.empty((count, N), dtype), np.empty((count, N), np.uint8), np.empty((count, n), dtype)
        value, residual, moved = np.empty((3, count))
        return cls(z, inside, w, value, residual, np.empty(count, np.int64), np.zeros((count, rows)), moved)


def space_rows(system: SplittingSystem, variables: int, curvature: Curvature | None = None) -> int:
    """Rows of the tile that `iterate` and `adjoint` need as work space."""
    more = 0 if curvature is None else variables + len(curvature.factor.start)
    return 4 * variables + 2 * len(system.pivot) + 2 + more
