"""Sparse M Θ Mᵀ = L D Lᵀ on a fixed pattern, for a tile of diagonal matrices Θ at once.

Where M is that of a quadratic program with the rows z = R w, and RᵀR has few entries, another matrix is factored in its place: see
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

from dflearn.engine.linear_algebra.curved import (
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
from dflearn.engine.linear_algebra.elimination import minimum_degree
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    address_of,
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
from dflearn.engine.linear_algebra.symbolic import BLOCK, Index, Pattern, blocks_of, pattern_of

ROW_BYTES = 8 * LANES  # of a tile


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
    def quadratic(cls, matrix: sp.csr_array, lifting: slice, P: sp.csr_array) -> SparseFactor:
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

    @cached_property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

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

    @cached_property
    def plan(self) -> np.ndarray:
        """What kernels are told of the system, all rows equations: as of `plan_of`."""
        return self.plan_of(np.zeros(self.rows, bool))

    def plan_of(self, inequality: np.ndarray) -> np.ndarray:
        """What kernels are told of a system: n, m, then address and size of each of its arrays. The factor holds those arrays."""
        parts = (*self.pattern, *self.by_rows, *self.by_columns, np.ascontiguousarray(inequality))
        self.__dict__.setdefault("_held", []).append(parts)
        sizes = [number for part in parts for number in (part.ctypes.data, part.size)]
        return np.array([self.matrix.shape[1], self.rows, *sizes], np.int64)

    def numeric(self, theta: np.ndarray, vanish: float = 0.0) -> NumericFactor:
        """The factor of M Θ Mᵀ for a tile of diagonals theta `(n, LANES)`."""
        values, diagonals = wide_tile(self.value_rows, LANES, np.float64), as_tile(theta)
        assemble.run(self.plan.ctypes.data, diagonals.ctypes.data, 0, values.ctypes.data)
        factorize.run(self.plan.ctypes.data, values.ctypes.data, vanish)
        return NumericFactor(self, values[: self.entries + self.rows])


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

    factor: SparseFactor
    tile: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """The same as numbers, (entries of L D, then 1/D; lanes)."""
        numbers: np.ndarray = self.tile["lane"]
        return numbers

    def solve(self, x: np.ndarray) -> np.ndarray:
        """(M Θ Mᵀ)⁻¹ x, lane by lane; x `(m, LANES)`."""
        out = as_tile(x)
        substitute.run(self.factor.plan.ctypes.data, self.tile.ctypes.data, out.ctypes.data)
        return np.array(out["lane"])

    def vanished(self) -> np.ndarray:
        """Rows whose pivot vanished, in the first lane."""
        return np.flatnonzero(self.values[self.factor.entries :, 0] == 0.0)


@inner
def pattern_at(plan: int) -> Pattern:
    """The pattern that a plan tells of."""
    index, number = np.uint32(0), np.float64(0.0)
    return Pattern(
        array_at(plan, 2, index), array_at(plan, 4, index), array_at(plan, 6, index), array_at(plan, 8, index),
        array_at(plan, 10, index), array_at(plan, 12, index), array_at(plan, 14, index), array_at(plan, 16, index),
        array_at(plan, 18, index), array_at(plan, 20, index), array_at(plan, 22, number), array_at(plan, 24, np.int64(0)),
    )  # fmt: skip


@inner
def matrix_at(plan: int, at: int) -> SparseRows:
    """M by rows, at = BY_ROWS, or by columns, BY_COLUMNS."""
    return SparseRows(
        array_at(plan, at, np.uint32(0)), array_at(plan, at + 2, np.uint32(0)), array_at(plan, at + 4, np.float64(0.0))
    )


CURVE, BY_ROWS, BY_COLUMNS, INEQUALITY = 24, 26, 32, 38  # where a plan tells of these


@inner
def entries_at(plan: int) -> int:
    """How many entries of L are off the diagonal: in `values` the diagonal comes after them."""
    return number_at(plan, 5)


@stage("void(int64, int64, int64, int64)")
def assemble(plan: int, weights: int, mask: int, values: int) -> None:
    """The lower triangle of M Θ Mᵀ into `values` (`SparseFactor.value_rows`): off-diagonal first, then the diagonal.

    weights: Θ; mask: a tile whose zeros make their rows and columns those of the identity, or 0. All are addresses of tiles.
    With a curve Θ and mask are kept for `factorize`, and what is there of the diagonal is what others add to it.
    """
    pattern, n, m = pattern_at(plan), number_at(plan, 0), number_at(plan, 1)
    theta, rows, out, curve = tile_at(weights, n), tile_at(mask, m), tile_at(values, 0), pattern.curve
    entries, nodes = len(pattern.row), len(pattern.column_start) - 1
    if len(curve):
        keep(curve, entries, nodes, theta, out)
        if mask:
            first = masks_at(curve, entries, nodes)
            for i in range(own_rows_of(curve)):
                put(out, first + i, get(rows, i))
                put(out, entries + i, get(out, entries + i) * get(rows, i) + (1.0 - get(rows, i)))
        return
    for p in range(entries + nodes):
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


@stage("void(int64, int64, float64)")
def factorize(plan: int, address: int, vanish: float) -> None:
    """`assemble`'s values (`SparseFactor.value_rows`), at that address, become C = L D off the diagonal and 1/D on it.

    A pivot at most `vanish` times its own diagonal counts as zero; its inverse is then zero too.
    """
    pattern, values = pattern_at(plan), tile_at(address, 0)
    start, row, m = pattern.column_start, pattern.row, len(pattern.column_start) - 1
    # at: where the diagonal is; room: where columns are worked on; sizes: beside what pivots vanish.
    at, curved, signs = len(row), len(pattern.curve) > 0, pattern.pair_product
    room, sizes = at + m, at
    if curved:
        between_nodes(pattern.curve, at, m, values)
        at += rows_of(pattern.curve)
        room, sizes = at + m, at + (1 + BLOCK) * m
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


@stage("void(int64, int64, int64)")
def substitute(plan: int, factor: int, target: int) -> None:
    """x ← (M Θ Mᵀ)⁻¹ x with the factor at hand, for the tile x of m items; both at addresses."""
    pattern, m = pattern_at(plan), number_at(plan, 1)
    values, x, curve = tile_at(factor, 0), tile_at(target, m), pattern.curve
    entries, nodes = len(pattern.row), len(pattern.column_start) - 1
    at, own = entries, x  # where 1/D is, and the unknowns
    if len(curve):
        to_nodes(curve, entries, nodes, values, x)
        at = entries + rows_of(curve)
        own = tile_at(address_of(values) + ROW_BYTES * unknowns_at(curve, entries, nodes), nodes)
    for j in range(nodes):
        scaled = get(own, j) * get(values, at + j)
        put(own, j, scaled)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            i = pattern.row[p]
            put(own, i, get(own, i) - get(values, p) * scaled)
    for j in range(nodes - 1, -1, -1):
        total = spread(0.0, own)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            total = total + get(values, p) * get(own, pattern.row[p])
        put(own, j, get(own, j) - total * get(values, at + j))
    if len(curve):
        from_nodes(curve, entries, nodes, values, x)
