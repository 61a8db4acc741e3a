"""The symbolic side of a sparse factor: where every entry goes. Plain numpy, once per program."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

BLOCK = 4  # columns of a block
BLOCKED = 500  # rows from which on there are blocks: few and short columns do better one by one

Index = np.ndarray  # unsigned, so that compiled indexing need not look for negative values
NO_CURVE = np.zeros(0, np.int64)


class Pattern(NamedTuple):
    """The arrays that the numeric kernels walk through.

    column_start, row: the strictly lower pattern of L by columns.
    block_first: the first column of every block, and the number of columns. A block is one column, or up to BLOCK
        neighbours with the same rows below them (part of a supernode), so that what is read once serves all of them.
    update_start: for every block where its updates begin. Update u is by column update_column[u], whose rows within the block
        are update_count[u] entries from update_entry[u] on; or by that column and the BLOCK − 1 after it, a whole block with
        the same rows, where update_whole[u] is 1.
    pair_start, pair_target, pair_product: for column v of M, where each product of two of its entries is added.
    curve: what is factored in place of M Θ Mᵀ, as of `curved.packed`, or `NO_CURVE`.
    """

    column_start: Index
    row: Index
    block_first: Index
    update_start: Index
    update_column: Index
    update_entry: Index
    update_count: Index
    update_whole: Index
    pair_start: Index
    pair_target: Index
    pair_product: np.ndarray
    curve: np.ndarray


def pattern_of(matrix: sp.csr_array, lower: sp.csc_array) -> Pattern:
    m, entries = matrix.shape[0], lower.nnz
    unsigned = lambda array: np.asarray(array).astype(np.uint32)  # noqa: E731
    # L with entry numbers in place of values.
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
    blocks = blocks_of(lower.indptr.astype(np.int64), lower.indices.astype(np.int64))
    pairs = np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)])
    places = map(unsigned, (lower.indptr, lower.indices, *blocks, pairs, target))
    return Pattern._make([*places, columns.data[first] * columns.data[second], NO_CURVE])


def blocks_of(start: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, ...]:
    """block_first and the updates of `Pattern`, from the pattern of L by columns."""
    m, sizes = len(start) - 1, np.diff(start)
    # Column j goes on with the rows of column j − 1 if that has one row more, j itself.
    below = np.append(row, m)[start[:-1]]  # the first row below the diagonal, where there is one
    goes_on = np.zeros(m, bool)
    goes_on[1:] = (m >= BLOCKED) & (sizes[:-1] == sizes[1:] + 1) & (below[:-1] == np.arange(1, m))
    first: list[int] = []
    for j in range(m):
        if not (first and goes_on[j] and j - first[-1] < BLOCK):
            first.append(j)
    ends = np.array([*first, m], np.int64)
    owner = np.repeat(np.arange(len(first)), np.diff(ends))
    whole = np.diff(ends) == BLOCK
    # Entries of one column within one block follow each other; of a whole block the first column speaks for all.
    column, block = np.repeat(np.arange(m), sizes), owner[row]
    begins = np.ones(len(row), bool)
    begins[1:] = (block[1:] != block[:-1]) | (column[1:] != column[:-1])
    entry = np.flatnonzero(begins)
    count = np.diff(np.append(entry, len(row)))
    source = owner[column[entry]]
    kept = (source != block[entry]) & (~whole[source] | (column[entry] == ends[source]))
    entry, count, source = entry[kept], count[kept], source[kept]
    order = np.lexsort((column[entry], block[entry]))
    entry, count, source = entry[order], count[order], source[order]
    update_start = np.searchsorted(block[entry], np.arange(len(ends)))
    return ends, update_start, column[entry], entry, count, whole[source]


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
