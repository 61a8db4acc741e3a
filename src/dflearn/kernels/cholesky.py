"""Sparse M Θ Mᵀ = L D Lᵀ on a fixed pattern, for a tile of diagonal matrices Θ at once.

Where M is that of a quadratic program lifted by z = R w, and RᵀR has few entries, another matrix is factored in its place: see
`curved`.

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

from dflearn.kernels.curved import (
    SIGN,
    Curve,
    between_nodes,
    curve_of,
    from_nodes,
    keep,
    masks_at,
    nodes_of,
    own_rows_of,
    packed,
    rows_of,
    to_nodes,
    unknowns_at,
)
from dflearn.kernels.elimination import minimum_degree
from dflearn.kernels.lanes import LANES, array_at, as_tile, cut, get, inner, jit, put, spread, where, wide_tile
from dflearn.kernels.symbolic import BLOCK, Index, Pattern, blocks_of, pattern_of


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
        curve: what `pattern.curve` tells of.
    """

    order: np.ndarray
    scale: np.ndarray
    matrix: sp.csr_array
    pattern: Pattern
    curve: Curve | None = None

    @classmethod
    def of(cls, matrix: sp.csr_array) -> SparseFactor:
        order, lower = minimum_degree(matrix)
        return cls._plain(matrix, order, lower)

    @classmethod
    def _plain(cls, matrix: sp.csr_array, order: np.ndarray, lower: sp.csc_array) -> SparseFactor:
        scale, scaled = _scaled(matrix, order)
        return cls(order, scale, scaled, pattern_of(scaled, lower))

    @classmethod
    def lifted(cls, matrix: sp.csr_array, lifting: slice, P: sp.csr_array) -> SparseFactor:
        """The same of M whose rows `lifting` are (R, −I), P = RᵀR: whichever of both ways takes fewer multiplications."""
        order, lower = minimum_degree(matrix)
        found = nodes_of(matrix, lifting, P, _work(np.diff(lower.indptr)))
        if found is None:
            return cls._plain(matrix, order, lower)
        node, lower = found
        every = np.arange(matrix.shape[0])
        order = np.concatenate([np.delete(every, lifting), every[lifting]])
        scale, scaled = _scaled(matrix, order)
        curve = curve_of(scaled, P, node, lower)
        blocks = blocks_of(lower.indptr.astype(np.int64), lower.indices.astype(np.int64))
        parts = (lower.indptr, lower.indices, *blocks, np.zeros(1), np.zeros(0))  # no pairs
        places = [np.asarray(part).astype(np.uint32) for part in parts]
        return cls(order, scale, scaled, Pattern._make([*places, np.zeros(0), packed(curve)]), curve)

    @property
    def work(self) -> float:
        """Multiplications of one factorization."""
        return _work(np.diff(self.pattern.column_start.astype(np.int64)))

    @property
    def rows(self) -> int:
        return self.matrix.shape[0]

    @property
    def entries(self) -> int:
        """Off-diagonal entries of L."""
        return len(self.pattern.row)

    @property
    def value_rows(self) -> int:
        """Rows of an array of values: the entries of L, its diagonal, and room for the columns that are worked on."""
        nodes = len(self.pattern.column_start) - 1
        more = 0 if self.curve is None else len(self.curve.node)
        return self.entries + (1 + BLOCK) * nodes + (self.rows + 2 * nodes + more + 1 if more else 0)

    @cached_property
    def by_rows(self) -> SparseRows:
        return SparseRows.of(self.matrix)

    @cached_property
    def by_columns(self) -> SparseRows:
        """Mᵀ by rows."""
        return SparseRows.of(sp.csr_array(self.matrix.T))

    def numeric(self, theta: np.ndarray, vanish: float = 0.0) -> NumericFactor:
        """The factor of M Θ Mᵀ for a tile of diagonals theta `(n, LANES)`."""
        values = wide_tile(self.value_rows, LANES, np.float64)
        assemble(self.pattern, as_tile(theta), values)
        factorize(self.pattern, values, vanish)
        return NumericFactor(self.pattern, values[: self.entries + self.rows])


def _scaled(matrix: sp.csr_array, order: np.ndarray) -> tuple[np.ndarray, sp.csr_array]:
    """What brings rows to length one, and the matrix with those rows in that order."""
    m = matrix.shape[0]
    ordered = sp.csr_array(matrix[order]) if m else sp.csr_array(matrix)
    norms = np.sqrt(np.asarray(ordered.multiply(ordered).sum(axis=1)).reshape(-1))
    scale = 1.0 / norms
    scaled = sp.csr_array(sp.diags_array(scale) @ ordered) if m else ordered
    scaled.sort_indices()
    return scale, scaled


def _work(below: np.ndarray) -> float:
    """Multiplications of one factorization, for so many entries below the diagonal of each column."""
    return float((below * (below + 1.0)).sum() / 2)


@dataclass(frozen=True)
class NumericFactor:
    """A factored tile: the entries of L D, then 1/D."""

    pattern: Pattern
    tile: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """The same as numbers, (entries of L D, then 1/D; lanes)."""
        numbers: np.ndarray = self.tile["lane"]
        return numbers

    def solve(self, x: np.ndarray) -> np.ndarray:
        """(M Θ Mᵀ)⁻¹ x, lane by lane; x `(m, LANES)`."""
        out = as_tile(x)
        substitute(self.pattern, self.tile, out)
        return np.array(out["lane"])

    def vanished(self) -> np.ndarray:
        """Rows whose pivot vanished, in the first lane."""
        return np.flatnonzero(self.values[len(self.pattern.row) :, 0] == 0.0)


@jit
def assemble(pattern: Pattern, theta: Any, values: Any) -> None:
    """The lower triangle of M Θ Mᵀ into `values` (`SparseFactor.value_rows`): off-diagonal first, then the diagonal.

    With a curve Θ is kept for `factorize`, and what is there of the diagonal is what others add to it.
    """
    if len(pattern.curve):
        keep(pattern.curve, len(pattern.row), len(pattern.column_start) - 1, theta, values)
        return
    for p in range(len(pattern.row) + len(pattern.column_start) - 1):
        put(values, p, 0.0)
    for v in range(theta.shape[0]):
        weight = get(theta, v)
        for k in range(pattern.pair_start[v], pattern.pair_start[v + 1]):
            target = pattern.pair_target[k]
            put(values, target, get(values, target) + pattern.pair_product[k] * weight)


@inner
def mask_rows(pattern: Pattern, mask: Any, values: Any) -> None:
    """Rows and columns of an assembled matrix where the mask (1 or 0) is zero become those of the identity."""
    m, entries, curve = mask.shape[0], len(pattern.row), pattern.curve
    if len(curve):
        first = masks_at(curve, entries, len(pattern.column_start) - 1)
        for i in range(own_rows_of(curve)):
            put(values, first + i, get(mask, i))
            put(values, entries + i, get(values, entries + i) * get(mask, i) + (1.0 - get(mask, i)))
        return
    for j in range(m):
        own = get(mask, j)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            put(values, p, get(values, p) * own * get(mask, pattern.row[p]))
        put(values, entries + j, get(values, entries + j) * own + (1.0 - own))


@inner
def _update_by_block(
    pattern: Pattern, values: Any, k: Any, first: Any, last: Any, end: Any, j0: Any, diagonal: int, room: int
) -> None:
    """The block from column j0 on less what the BLOCK columns from k on contribute, each in its turn.

    first, last: entries of column k whose rows are in the block; end: where column k ends; diagonal, room: where 1/D is, and the columns that are worked on.
    """
    start, row = pattern.column_start, pattern.row
    # The same row in the next column is one place closer to its beginning.
    to1 = np.int64(start[k + 1]) - np.int64(start[k]) - 1
    to2, to3 = np.int64(start[k + 2]) - np.int64(start[k]) - 2, np.int64(start[k + 3]) - np.int64(start[k]) - 3
    d0, d1, d2, d3 = (
        get(values, diagonal + k),
        get(values, diagonal + k + 1),
        get(values, diagonal + k + 2),
        get(values, diagonal + k + 3),
    )
    e = first
    if last - first == BLOCK:
        a0, a1, a2, a3 = get(values, e) * d0, get(values, e + 1) * d0, get(values, e + 2) * d0, get(values, e + 3) * d0
        e += to1
        b0, b1, b2, b3 = get(values, e) * d1, get(values, e + 1) * d1, get(values, e + 2) * d1, get(values, e + 3) * d1
        e += to2 - to1
        c0, c1, c2, c3 = get(values, e) * d2, get(values, e + 1) * d2, get(values, e + 2) * d2, get(values, e + 3) * d2
        e += to3 - to2
        f0, f1, f2, f3 = get(values, e) * d3, get(values, e + 1) * d3, get(values, e + 2) * d3, get(values, e + 3) * d3
        for p in range(np.uint64(first), np.uint64(end)):
            at, i = np.int64(p), room + BLOCK * np.int64(row[p])
            x0, x1, x2, x3 = get(values, at), get(values, at + to1), get(values, at + to2), get(values, at + to3)
            put(values, i, get(values, i) - x0 * a0 - x1 * b0 - x2 * c0 - x3 * f0)
            put(values, i + 1, get(values, i + 1) - x0 * a1 - x1 * b1 - x2 * c1 - x3 * f1)
            put(values, i + 2, get(values, i + 2) - x0 * a2 - x1 * b2 - x2 * c2 - x3 * f2)
            put(values, i + 3, get(values, i + 3) - x0 * a3 - x1 * b3 - x2 * c3 - x3 * f3)
        return
    for e in range(first, last):
        s = room + np.int64(row[np.uint64(e)]) - j0
        a0, b0, c0, f0 = (
            get(values, e) * d0,
            get(values, e + to1) * d1,
            get(values, e + to2) * d2,
            get(values, e + to3) * d3,
        )
        for p in range(np.uint64(e), np.uint64(end)):
            at, i = np.int64(p), s + BLOCK * np.int64(row[p])
            less = get(values, i) - get(values, at) * a0 - get(values, at + to1) * b0
            put(values, i, less - get(values, at + to2) * c0 - get(values, at + to3) * f0)


@jit
def factorize(pattern: Pattern, values: Any, vanish: float) -> None:
    """`assemble`'s values (`SparseFactor.value_rows`) become C = L D off the diagonal and 1/D on it.

    A pivot at most `vanish` times its own diagonal counts as zero; its inverse is then zero too.
    """
    entries, nodes = len(pattern.row), len(pattern.column_start) - 1
    if len(pattern.curve):
        at = entries + rows_of(pattern.curve)
        between_nodes(pattern.curve, entries, nodes, values)
        _factor_columns(pattern, values, vanish, at, at + nodes, at + (1 + BLOCK) * nodes)
    else:
        _factor_columns(pattern, values, vanish, entries, entries + nodes, entries)


@inner
def _factor_columns(pattern: Pattern, values: Any, vanish: float, at: int, room: int, sizes: int) -> None:
    """at: where the diagonal is; room: where columns are worked on; sizes: beside what pivots vanish."""
    start, row, m = pattern.column_start, pattern.row, len(pattern.column_start) - 1
    signs, curved = pattern.pair_product, len(pattern.curve) > 0
    if curved:
        signs = array_at(pattern.curve, SIGN, np.float64(0.0))
    e: Any
    s: Any
    # Row i of the s-th column that is worked on lies at room + step · i + s.
    step = BLOCK if len(pattern.block_first) - 1 < m else 1
    for b in range(len(pattern.block_first) - 1):
        j0, j1 = np.int64(pattern.block_first[b]), np.int64(pattern.block_first[b + 1])
        for j in range(j0, j1):
            s = room + j - j0
            put(values, s + step * j, get(values, at + j))
            for p in range(start[j], start[j + 1]):
                put(values, s + step * np.int64(row[p]), get(values, p))
        for u in range(pattern.update_start[b], pattern.update_start[b + 1]):
            k, first = np.int64(pattern.update_column[u]), np.int64(pattern.update_entry[u])
            count, end = np.int64(pattern.update_count[u]), np.int64(start[k + 1])
            if pattern.update_whole[u]:
                _update_by_block(pattern, values, k, first, first + count, end, j0, at, room)
            else:
                inverse = get(values, at + k)
                for e in range(first, first + count):
                    s, factor = room + np.int64(row[np.uint64(e)]) - j0, get(values, e) * inverse
                    for p in range(np.uint64(e), np.uint64(end)):
                        i = s + step * np.int64(row[p])
                        put(values, i, get(values, i) - get(values, p) * factor)
        for j in range(j0, j1):
            s = room + j - j0
            pivot = get(values, s + step * j)
            size = pivot * signs[j] if curved else pivot
            inverse = where(size > vanish * get(values, sizes + j), 1.0 / pivot, 0.0)
            put(values, at + j, inverse)
            for p in range(start[j], start[j + 1]):
                put(values, p, get(values, s + step * np.int64(row[p])))
            for other in range(j + 1, j1):
                e = np.int64(start[j]) + other - j - 1
                s, factor = room + other - j0, get(values, e) * inverse
                for p in range(np.uint64(e), np.uint64(start[j + 1])):
                    i = s + step * np.int64(row[p])
                    put(values, i, get(values, i) - get(values, p) * factor)


@jit
def substitute(pattern: Pattern, values: Any, x: Any) -> None:
    """x ← (M Θ Mᵀ)⁻¹ x with the factor at hand.  x (m, LANES)."""
    entries, nodes, curve = len(pattern.row), len(pattern.column_start) - 1, pattern.curve
    if len(curve):
        to_nodes(curve, entries, nodes, values, x)
        _substitute(pattern, values, entries + rows_of(curve), cut(values, 1, unknowns_at(curve, entries, nodes)))
        from_nodes(curve, entries, nodes, values, x)
    else:
        _substitute(pattern, values, entries, x)


@inner
def _substitute(pattern: Pattern, values: Any, at: int, x: Any) -> None:
    """The same for the matrix that was factored; at: where 1/D is."""
    m = len(pattern.column_start) - 1
    for j in range(m):
        factor = get(x, j) * get(values, at + j)
        put(x, j, factor)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            i = pattern.row[p]
            put(x, i, get(x, i) - get(values, p) * factor)
    for j in range(m - 1, -1, -1):
        total = spread(0.0, x)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            total = total + get(values, p) * get(x, pattern.row[p])
        put(x, j, get(x, j) - total * get(values, at + j))
