"""Sparse M Θ Mᵀ = L D Lᵀ on a fixed pattern, for a tile of diagonal matrices Θ at once.

The symbolic part (fill-reducing order, pattern of L, where each product of two entries of M lands) is done once per
program; the numeric part runs over tiles. Columns are stored unscaled, C = L D, with 1/D beside them, so that there is
no square root and one division per column. A pivot that vanishes relative to its diagonal marks a dependent row: its
column is left out, which solves consistent singular systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from dflearn.kernels.lanes import LANES, get, jit, put, spread, where

Index = np.ndarray  # unsigned, so that compiled indexing need not look for negative values


class Pattern(NamedTuple):
    """The arrays that the numeric kernels walk through.

    column_start, row: the strictly lower pattern of L by columns.
    update_start, update_column, update_entry: for column j, the earlier columns k with L_jk ≠ 0 and where L_jk lies.
    pair_start, pair_target, pair_product: for column v of M, where each product of two of its entries is added.
    """

    column_start: Index
    row: Index
    update_start: Index
    update_column: Index
    update_entry: Index
    pair_start: Index
    pair_target: Index
    pair_product: np.ndarray


class SparseRows(NamedTuple):
    """A sparse matrix by rows, for `gather`."""

    start: Index
    column: Index
    value: np.ndarray

    @classmethod
    def of(cls, matrix: sp.csr_array) -> SparseRows:
        return cls(matrix.indptr.astype(np.uint32), matrix.indices.astype(np.uint32), matrix.data.astype(np.float64))


@dataclass(frozen=True)
class SparseFactor:
    """The symbolic side of M Θ Mᵀ for one matrix M `(m, n)`, its rows scaled to unit length and in elimination order.

    Attributes:
        order: row i here is row order[i] of the matrix given.
        scale: row i here was multiplied by scale[i].
        matrix: the scaled, ordered matrix (CSR).
        pattern: what the numeric kernels need.
    """

    order: np.ndarray
    scale: np.ndarray
    matrix: sp.csr_array
    pattern: Pattern

    @classmethod
    def of(cls, matrix: sp.csr_array) -> SparseFactor:
        m = matrix.shape[0]
        order, lower = _symbolic(matrix)
        ordered = sp.csr_array(matrix[order]) if m else sp.csr_array(matrix)
        norms = np.sqrt(np.asarray(ordered.multiply(ordered).sum(axis=1)).reshape(-1))
        scale = 1.0 / norms
        scaled = sp.csr_array(sp.diags_array(scale) @ ordered) if m else ordered
        scaled.sort_indices()
        return cls(order, scale, scaled, _pattern(scaled, lower))

    @property
    def rows(self) -> int:
        return self.matrix.shape[0]

    @property
    def entries(self) -> int:
        """Off-diagonal entries of L; a value array has one more row per diagonal entry."""
        return len(self.pattern.row)

    @cached_property
    def by_rows(self) -> SparseRows:
        return SparseRows.of(self.matrix)

    @cached_property
    def by_columns(self) -> SparseRows:
        """Mᵀ by rows."""
        return SparseRows.of(sp.csr_array(self.matrix.T))

    def numeric(self, theta: np.ndarray, vanish: float = 0.0) -> NumericFactor:
        """The factor of M Θ Mᵀ for a tile of diagonals theta `(n, LANES)`."""
        values, work = np.empty((self.entries + self.rows, LANES)), np.empty((self.rows, LANES))
        assemble(self.pattern, np.ascontiguousarray(theta), values)
        factorize(self.pattern, values, work, vanish)
        return NumericFactor(self.pattern, values)


@dataclass(frozen=True)
class NumericFactor:
    """A factored tile."""

    pattern: Pattern
    values: np.ndarray

    def solve(self, x: np.ndarray) -> np.ndarray:
        """(M Θ Mᵀ)⁻¹ x, lane by lane; x `(m, LANES)`."""
        out = np.array(x, dtype=np.float64)
        substitute(self.pattern, self.values, out)
        return out

    def vanished(self) -> np.ndarray:
        """Rows whose pivot vanished, in the first lane."""
        return np.flatnonzero(self.values[len(self.pattern.row) :, 0] == 0.0)


def _symbolic(matrix: sp.csr_array) -> tuple[np.ndarray, sp.csc_array]:
    """Minimum-degree order, and the strictly lower pattern of L in that order.

    SuperLU does both: on an M-matrix with the pattern of M Mᵀ it pivots on the diagonal and no entry of L cancels.
    """
    m = matrix.shape[0]
    if m == 0:
        return np.zeros(0, np.int64), sp.csc_array((0, 0))
    ones = sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    off = sp.csc_array(ones @ ones.T)
    off.data[:] = -1.0
    dominance = -np.asarray(off.sum(axis=0)).reshape(-1) + 1.0
    mimic = sp.csc_array(off + sp.diags_array(dominance))
    mimic.indices, mimic.indptr = mimic.indices.astype(np.int32), mimic.indptr.astype(np.int32)
    lu = scipy.sparse.linalg.splu(
        mimic, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    lower = sp.csc_array(sp.tril(lu.L, -1))
    lower.sort_indices()
    return np.argsort(lu.perm_c), lower


def _pattern(matrix: sp.csr_array, lower: sp.csc_array) -> Pattern:
    m, entries = matrix.shape[0], lower.nnz
    unsigned = lambda array: np.asarray(array).astype(np.uint32)  # noqa: E731
    # Row access to L: entry numbers in place of values.
    numbered = sp.csr_array(sp.csc_array((np.arange(entries) + 1.0, lower.indices, lower.indptr), shape=(m, m)))
    numbered.sort_indices()
    # Products of two entries in a column of M, and where each lands: entry (i, j), i > j, or the diagonal's row.
    columns = sp.csc_array(matrix)
    columns.sort_indices()
    counts = np.diff(columns.indptr)
    first, second = _pairs(columns.indptr, counts)
    i, j = columns.indices[second], columns.indices[first]
    target = np.where(i == j, entries + i, 0)
    off = i != j
    if off.any():
        target[off] = np.asarray(numbered[i[off], j[off]]).reshape(-1).astype(np.int64) - 1
    return Pattern(
        unsigned(lower.indptr),
        unsigned(lower.indices),
        unsigned(numbered.indptr),
        unsigned(numbered.indices),
        unsigned(numbered.data - 1),
        unsigned(np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)])),
        unsigned(target),
        columns.data[first] * columns.data[second],
    )


def _pairs(start: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every column, the positions (a, b), a ≤ b, of all pairs of its entries; column by column."""
    first, second, owner = [], [], []
    for size in np.unique(counts):
        columns = np.flatnonzero(counts == size)
        a, b = np.triu_indices(size)
        first.append((start[columns][:, None] + a).reshape(-1))
        second.append((start[columns][:, None] + b).reshape(-1))
        owner.append(np.repeat(columns, len(a)))
    if not first:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    by_column = np.argsort(np.concatenate(owner), kind="stable")
    return np.concatenate(first)[by_column], np.concatenate(second)[by_column]


@jit
def assemble(pattern: Pattern, theta: Any, values: Any) -> None:
    """The lower triangle of M Θ Mᵀ into `values` (entries + m, LANES): off-diagonal first, then the diagonal."""
    values[:] = 0.0
    for v in range(theta.shape[0]):
        weight = get(theta, v)
        for k in range(pattern.pair_start[v], pattern.pair_start[v + 1]):
            target = pattern.pair_target[k]
            put(values, target, get(values, target) + pattern.pair_product[k] * weight)


@jit
def factorize(pattern: Pattern, values: Any, work: Any, vanish: float) -> None:
    """`assemble`'s values become C = L D off the diagonal and 1/D on it.  work: (m, LANES) at least.

    A pivot at most `vanish` times its own diagonal counts as zero; its inverse is then zero too.
    """
    entries = len(pattern.row)
    for j in range(len(pattern.column_start) - 1):
        diagonal = get(values, entries + j)
        put(work, j, diagonal)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            put(work, pattern.row[p], get(values, p))
        for u in range(pattern.update_start[j], pattern.update_start[j + 1]):
            k, entry = pattern.update_column[u], pattern.update_entry[u]
            factor = get(values, entry) * get(values, entries + k)
            for p in range(entry, pattern.column_start[k + 1]):
                i = pattern.row[p]
                put(work, i, get(work, i) - get(values, p) * factor)
        pivot = get(work, j)
        put(values, entries + j, where(pivot > vanish * diagonal, 1.0 / pivot, 0.0))
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            put(values, p, get(work, pattern.row[p]))


@jit
def substitute(pattern: Pattern, values: Any, x: Any) -> None:
    """x ← (M Θ Mᵀ)⁻¹ x with the factor at hand.  x (m, LANES)."""
    m, entries = len(pattern.column_start) - 1, len(pattern.row)
    for j in range(m):
        factor = get(x, j) * get(values, entries + j)
        put(x, j, factor)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            i = pattern.row[p]
            put(x, i, get(x, i) - get(values, p) * factor)
    for j in range(m - 1, -1, -1):
        total = spread(0.0)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            total = total + get(values, p) * get(x, pattern.row[p])
        put(x, j, get(x, j) - total * get(values, entries + j))
