"""What the kernels in `iterations` read and write: rows, the factor of M Mᵀ, costs and sides, the answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.linear_algebra.cholesky import SparseFactor
from dflearn.engine.linear_algebra.lanes import LANES

ROW_BYTES = 128  # of a tile; half of that where the batch is small


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
    values = factor.numeric(np.ones((factor.matrix.shape[1], LANES))).values[:, 0]
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
        return cls(
            np.empty((count, N), dtype),
            np.empty((count, N), np.uint8),
            np.empty((count, n), dtype),
            np.empty(count),
            np.empty(count),
            np.empty(count, np.int64),
            np.zeros((count, rows)),
            np.empty(count),
        )


def space_rows(system: SplittingSystem, variables: int, curvature: Curvature | None = None) -> int:
    """Rows of the tile that `iterate` and `adjoint` need as work space."""
    more = 0 if curvature is None else variables + len(curvature.factor.start)
    return 4 * variables + 2 * len(system.pivot) + 2 + more
