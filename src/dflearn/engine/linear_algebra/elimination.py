"""In which order the rows of M Θ Mᵀ = L Lᵀ are eliminated, and what that makes of L: plain numpy, for every device.

One processor wants few entries of L: minimum degree. A block of threads waits for every level of the elimination tree:
nested dissection, whose trees are low and wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

LEAF = 12  # rows from which on dissection goes on
BALANCE = 0.3  # the least share of the rows on either side of a separator


def graph_of(matrix: sp.csr_array) -> sp.csr_array:
    """The pattern of M Mᵀ: which rows have a variable in common."""
    ones = sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    return sp.csr_array(ones @ ones.T)


def minimum_degree(matrix: sp.csr_array) -> tuple[np.ndarray, sp.csc_array]:
    """Minimum-degree order, and the strictly lower pattern of L in that order.

    SuperLU does both: on an M-matrix with the pattern of M Mᵀ it pivots on the diagonal and no entry of L cancels.
    """
    if matrix.shape[0] == 0:
        return np.zeros(0, np.int64), sp.csc_array((0, 0))
    off = sp.csc_array(graph_of(matrix))
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


class Dissection:
    """Nested dissection of a graph: the middle shell around a peripheral row separates two parts, and so on in each."""

    def __init__(self, graph: sp.csr_array) -> None:
        start, index = graph.indptr.tolist(), graph.indices.tolist()
        self.near = [index[a:b] for a, b in pairwise(start)]

    def order(self) -> np.ndarray:
        """The rows in the order of their elimination: separators last."""
        done: list[list[int]] = []  # from the end
        parts = [list(range(len(self.near)))]
        while parts:
            part = parts.pop()
            if len(part) <= LEAF:
                done.append(self._by_degree(part))
                continue
            shells = self._shells(set(part), part[0])
            reached = {row for shell in shells for row in shell}
            if len(reached) < len(part):
                parts += [sorted(reached), [row for row in part if row not in reached]]
                continue
            first, second, separator = self._halves(part, shells)
            done.append(separator)
            parts += [first, second]
        return np.array([row for part in reversed(done) for row in part], np.int64)

    def _shells(self, inside: set[int], root: int) -> list[list[int]]:
        """Rows at distance 0, 1, … from the root, as far as they can be reached inside."""
        seen, front, shells = {root}, [root], []
        while front:
            shells.append(front)
            following = []
            for row in front:
                for other in self.near[row]:
                    if other in inside and other not in seen:
                        seen.add(other)
                        following.append(other)
            front = following
        return shells

    def _halves(self, part: list[int], shells: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
        """Two parts that have nothing in common, and what separates them: all of it where there is no shell between."""
        inside = set(part)
        for _ in range(4):  # a row at the end of the longest way
            further = self._shells(inside, min(shells[-1], key=lambda row: len(self.near[row])))
            if len(further) <= len(shells):
                break
            shells = further
        if len(shells) < 3:
            return [], [], self._by_degree(part)
        below = np.cumsum([len(shell) for shell in shells])
        middle = min(max(int(np.searchsorted(below, below[-1] / 2)), 1), len(shells) - 2)
        scores = {}
        for k in range(1, len(shells) - 1):
            left, right = below[k - 1], below[-1] - below[k]
            if min(left, right) >= BALANCE * len(part) - 1:
                scores[k] = len(shells[k]) * (1 + 0.5 * abs(left - right) / len(part))
        k = min(scores, key=lambda shell: scores[shell]) if scores else middle
        beyond = {row for shell in shells[k + 1 :] for row in shell}
        separator = [row for row in shells[k] if any(other in beyond for other in self.near[row])]
        cut = set(separator)
        return [row for shell in shells[: k + 1] for row in shell if row not in cut], sorted(beyond), separator

    def _by_degree(self, rows: Iterable[int]) -> list[int]:
        """Minimum degree within a small part, neighbours outside counted."""
        near, order = {row: set(self.near[row]) - {row} for row in rows}, []
        while near:
            row = min(near, key=lambda one: (len(near[one]), one))
            clique = near.pop(row)
            order.append(row)
            for other in clique:
                if other in near:
                    near[other] = (near[other] | clique) - {other, row}
        return order


def tree_of(graph: sp.csr_array) -> np.ndarray:
    """The elimination tree of a symmetric pattern: the parent of each row, −1 for a root."""
    start, index = graph.indptr.tolist(), graph.indices.tolist()
    parent, ancestor = [-1] * graph.shape[0], [-1] * graph.shape[0]
    for j in range(graph.shape[0]):
        for i in index[start[j] : start[j + 1]]:
            while i != -1 and i < j:
                up, ancestor[i] = ancestor[i], j
                if up == -1:
                    parent[i] = j
                i = up
    return np.array(parent, np.int64)


def postorder(parent: np.ndarray) -> np.ndarray:
    """The rows, every subtree in one piece, children before their parents."""
    children: list[list[int]] = [[] for _ in parent]
    stack: list[int] = []
    for row, up in enumerate(parent.tolist()):
        (children[up] if up >= 0 else stack).append(row)
    order = []
    while stack:  # parents first, from the last child on: the reverse
        row = stack.pop()
        order.append(row)
        stack += children[row]
    return np.array(order[::-1], np.int64)


def rows_below(graph: sp.csr_array, parent: np.ndarray) -> list[np.ndarray]:
    """The rows below the diagonal of each column of L, in order."""
    start, index = graph.indptr.tolist(), graph.indices.tolist()
    below: list[set[int]] = [set() for _ in parent]
    for j, up in enumerate(parent.tolist()):
        below[j].update(i for i in index[start[j] : start[j + 1]] if i > j)
        if up >= 0:
            below[up] |= below[j]
            below[up].discard(up)
    return [np.array(sorted(rows), np.int64) for rows in below]


Node = tuple[int, int, np.ndarray, int]


def _merged(nodes: list[Node], widest: int, small: int, wide: float, few: float) -> list[Node]:
    """The same nodes, or fewer: one goes into the next, its parent, where zeros stay below a share (`few`: up to `small`)."""
    merged: list[Node] = []
    for node in nodes:
        if merged and len(merged[-1][2]) and merged[-1][2][0] == node[0]:
            first, width, true = merged[-1][0], merged[-1][1] + node[1], merged[-1][3] + node[3]
            whole = width * (width + 1) // 2 + width * len(node[2])
            if width <= widest and whole - true <= (few if width <= small else wide) * whole:
                merged[-1] = (first, width, node[2], true)
                continue
        merged.append(node)
    return merged if len(merged) < len(nodes) else nodes


@dataclass(frozen=True)
class Supernodes:
    """Columns first[s] … first[s + 1] − 1 of L share the rows below[s]; within them L is a full triangle.

    Attributes:
        owner: the supernode of each column.
        level: of each supernode, counted from the leaves; those of one level have nothing to do with each other.
    """

    first: np.ndarray
    below: list[np.ndarray]
    owner: np.ndarray
    level: np.ndarray

    @property
    def widths(self) -> np.ndarray:
        return np.diff(self.first)

    @property
    def heights(self) -> np.ndarray:
        """How many rows are below."""
        return np.array([len(rows) for rows in self.below], np.int64)

    @property
    def chain(self) -> int:
        """Columns on the longest way from a leaf to a root: they wait for each other."""
        path = self.widths.astype(np.int64)
        for s, rows in enumerate(self.below):
            if len(rows):
                up = self.owner[rows[0]]
                path[up] = max(path[up], path[s] + self.first[up + 1] - self.first[up])
        return int(path.max(initial=0))

    @classmethod
    def of(cls, below: list[np.ndarray], widest: int, relax: float, small: int) -> Supernodes:
        """Neighbours are one supernode where that adds few zeros, a share `relax` (twice that up to `small` columns)."""
        nodes = [(j, 1, rows, len(rows) + 1) for j, rows in enumerate(below)]  # first, width, rows, entries of L
        for wide, few in ((0.0, 0.0), (relax, 2 * relax)):  # those that add nothing first
            while (merged := _merged(nodes, widest, small, wide, few)) is not nodes:
                nodes = merged
        starts = np.array([*(node[0] for node in nodes), len(below)], np.int64)
        owner, rows = np.repeat(np.arange(len(nodes)), np.diff(starts)), [node[2] for node in nodes]
        level = np.zeros(len(nodes), np.int64)
        for s, own in enumerate(rows):
            if len(own):
                level[owner[own[0]]] = max(level[owner[own[0]]], level[s] + 1)
        return cls(starts, rows, owner, level)


def supernodes(
    matrix: sp.csr_array, order: np.ndarray, widest: int, relax: float, small: int
) -> tuple[np.ndarray, Supernodes, int]:
    """The order, changed so that subtrees are in one piece; the supernodes; how many multiplications a factor takes."""
    graph = graph_of(matrix)
    order = order[postorder(tree_of(sp.csr_array(graph[order][:, order])))]
    ordered = sp.csr_array(graph[order][:, order])
    below = rows_below(ordered, tree_of(ordered))
    work = sum(len(rows) * (len(rows) + 1) // 2 for rows in below)
    return order, Supernodes.of(below, widest, relax, small), work
