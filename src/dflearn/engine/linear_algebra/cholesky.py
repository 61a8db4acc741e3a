"""Sparse M Θ Mᵀ = L D Lᵀ on a fixed pattern, for a tile of diagonal matrices Θ at once.

The symbolic part (fill-reducing order, pattern of L, where each product of two entries of M lands) is done once per
program; the numeric part runs over tiles. Columns are stored unscaled, C = L D, with 1/D beside them, so that there is
no square root and one division per column. A pivot that vanishes relative to its diagonal marks a dependent row: its
column is left out, which solves consistent singular systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.linear_algebra.elimination import minimum_degree
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    array_at,
    as_tile,
    get,
    inner,
    number_at,
    put,
    spread,
    stage,
    tile_at,
    where,
    wide_tile,
)

Index = np.ndarray  # unsigned, so that compiled indexing need not look for negative values


class Pattern(NamedTuple):
    """The arrays that the numeric kernels walk through.

    column_start, row: the strictly lower pattern of L by columns.
    update_start: for every column where its updates begin; update u is by column update_column[u], from its entry
        update_entry[u] on.
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

    @classmethod
    def of(cls, matrix: sp.csr_array, lower: sp.csc_array) -> Pattern:
        """For M with rows in elimination order, and the strictly lower pattern of L."""
        m, entries = matrix.shape[0], lower.nnz
        # L by rows, with entry numbers (from 1 on) in place of values: row j names the columns that update column j.
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
        pairs = np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)])
        updates = numbered.indptr, numbered.indices, numbered.data - 1
        places = (lower.indptr, lower.indices, *updates, pairs, target)
        products = columns.data[first] * columns.data[second]
        return cls._make([*(np.asarray(part).astype(np.uint32) for part in places), products])


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
        order, lower = minimum_degree(matrix)
        ordered = sp.csr_array(matrix[order]) if matrix.shape[0] else sp.csr_array(matrix)
        scale = 1.0 / np.sqrt(np.asarray(ordered.multiply(ordered).sum(axis=1)).reshape(-1))
        scaled = sp.csr_array(sp.diags_array(scale) @ ordered) if matrix.shape[0] else ordered
        scaled.sort_indices()
        return cls(order, scale, scaled, Pattern.of(scaled, lower))

    @cached_property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def entries(self) -> int:
        """Off-diagonal entries of L."""
        return len(self.pattern.row)

    @property
    def value_rows(self) -> int:
        """Rows of an array of values: the entries of L, its diagonal, and room for the column that is worked on."""
        return self.entries + 2 * self.rows

    @cached_property
    def plan(self) -> np.ndarray:
        """As of `plan_of`, all rows being equations."""
        return self.plan_of(np.zeros(self.rows, bool))

    def plan_of(self, inequality: np.ndarray) -> np.ndarray:
        """The system as kernels read it: n, m, then address and size of each of its arrays. The factor holds those arrays."""
        by_rows, by_columns = SparseRows.of(self.matrix), SparseRows.of(sp.csr_array(self.matrix.T))
        parts = (*self.pattern, *by_rows, *by_columns, np.ascontiguousarray(inequality))
        self.__dict__.setdefault("_held", []).append(parts)
        sizes = [number for part in parts for number in (part.ctypes.data, part.size)]
        return np.array([self.matrix.shape[1], self.rows, *sizes], np.int64)

    def numeric(self, theta: np.ndarray, vanish: float = 0.0) -> np.ndarray:
        """A tile that begins with the entries of L D and 1/D, M Θ Mᵀ = L D Lᵀ, for diagonals theta `(n, LANES)`."""
        values, diagonals = wide_tile(self.value_rows, LANES, np.float64), as_tile(theta)
        assemble.run(self.plan.ctypes.data, diagonals.ctypes.data, 0, values.ctypes.data)
        factorize.run(self.plan.ctypes.data, values.ctypes.data, vanish)
        return values


@inner
def pattern_at(plan: int) -> Pattern:
    """The pattern in a plan."""
    index = np.uint32(0)
    return Pattern(
        array_at(plan, 2, index), array_at(plan, 4, index), array_at(plan, 6, index), array_at(plan, 8, index),
        array_at(plan, 10, index), array_at(plan, 12, index), array_at(plan, 14, index), array_at(plan, 16, 0.0),
    )  # fmt: skip


@inner
def matrix_at(plan: int, at: int) -> SparseRows:
    """M by rows, at = BY_ROWS, or by columns, BY_COLUMNS."""
    return SparseRows(
        array_at(plan, at, np.uint32(0)), array_at(plan, at + 2, np.uint32(0)), array_at(plan, at + 4, np.float64(0.0))
    )


BY_ROWS, BY_COLUMNS, INEQUALITY = 18, 24, 30  # where they are in a plan


@inner
def entries_at(plan: int) -> int:
    """How many entries of L are off the diagonal: in `values` the diagonal comes after them."""
    return number_at(plan, 5)


@stage("void(int64, int64, int64, int64)")
def assemble(plan: int, weights: int, mask: int, values: int) -> None:
    """The lower triangle of M Θ Mᵀ into `values` (`SparseFactor.value_rows`): off-diagonal first, then the diagonal.

    weights: Θ; mask: a tile whose zeros make their rows and columns those of the identity, or 0. All are addresses of tiles.
    """
    pattern, n, m = pattern_at(plan), number_at(plan, 0), number_at(plan, 1)
    theta, rows, out, entries = tile_at(weights, n), tile_at(mask, m), tile_at(values, 0), len(pattern.row)
    for p in range(entries + m):
        put(out, p, 0.0)
    for v in range(n):
        weight = get(theta, v)
        for k in range(pattern.pair_start[v], pattern.pair_start[v + 1]):
            target = pattern.pair_target[k]
            put(out, target, get(out, target) + pattern.pair_product[k] * weight)
    if mask:
        for j in range(m):
            own = get(rows, j)
            for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
                put(out, p, get(out, p) * own * get(rows, pattern.row[p]))
            put(out, entries + j, get(out, entries + j) * own + (1.0 - own))


@stage("void(int64, int64, float64)")
def factorize(plan: int, address: int, vanish: float) -> None:
    """`assemble`'s values (`SparseFactor.value_rows`), at that address, become C = L D off the diagonal and 1/D on it.

    A pivot at most `vanish` times its own diagonal counts as zero; its inverse is then zero too.
    """
    pattern, values = pattern_at(plan), tile_at(address, 0)
    start, row, m, diagonal = pattern.column_start, pattern.row, number_at(plan, 1), entries_at(plan)
    work = diagonal + m  # row i of the column that is worked on lies at work + i
    for j in range(m):
        put(values, work + j, get(values, diagonal + j))
        for p in range(start[j], start[j + 1]):
            put(values, work + np.int64(row[p]), get(values, p))
        for u in range(pattern.update_start[j], pattern.update_start[j + 1]):
            k, first = np.int64(pattern.update_column[u]), pattern.update_entry[u]
            factor = get(values, first) * get(values, diagonal + k)
            for p in range(first, start[k + 1]):
                i = work + np.int64(row[p])
                put(values, i, get(values, i) - get(values, p) * factor)
        pivot = get(values, work + j)
        put(values, diagonal + j, where(pivot > vanish * get(values, diagonal + j), 1.0 / pivot, 0.0))
        for p in range(start[j], start[j + 1]):
            put(values, p, get(values, work + np.int64(row[p])))


@stage("void(int64, int64, int64)")
def substitute(plan: int, factor: int, target: int) -> None:
    """x ← (M Θ Mᵀ)⁻¹ x with the factor at hand, for the tile x of m items; both at addresses."""
    pattern, m, diagonal = pattern_at(plan), number_at(plan, 1), entries_at(plan)
    values, x = tile_at(factor, 0), tile_at(target, m)
    for j in range(m):
        scaled = get(x, j) * get(values, diagonal + j)
        put(x, j, scaled)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            i = pattern.row[p]
            put(x, i, get(x, i) - get(values, p) * scaled)
    for j in range(m - 1, -1, -1):
        total = spread(0.0, x)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            total = total + get(values, p) * get(x, pattern.row[p])
        put(x, j, get(x, j) - total * get(values, diagonal + j))
