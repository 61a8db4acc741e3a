"""From a matrix to the arrays that the kernels in `source` walk through: a plan. Plain numpy; no GPU.

The factor L of M Θ Mᵀ lies in a *panel*, supernode by supernode, level by level of the elimination tree. What a warp does
together is a *slice* of a `Gather`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from dflearn.engine.linear_algebra.elimination import Dissection, Supernodes, graph_of, minimum_degree, supernodes

WARP = 32
WIDEST = 32  # columns of a supernode: one for each lane
RELAX, SMALL = 0.1, 4  # zeros in a supernode, as a share; twice as many up to so many columns
PIECE = 8  # numbers in one term of a gather from the panel
MOST_ROWS, MOST_ENTRIES = 2**16, 2**24  # what the kernels' words hold

# As `struct Plan` in source/block.cuh.
SIZES = (
    "n", "m", "levels", "panel", "any_inequality", "row_slices", "pair_slices", "per_column", "nodes", "rows_below", "near_shape",
    "head_at", "levels_at", "panel_at", "far", "unused",
)  # fmt: skip
FIELDS = (
    "inequality", "row_slice", "row_task", "row_index", "row_value", "column_start", "column_index", "column_value", "pair_slice",
    "pair_target", "pair_i", "pair_j", "pair_index", "pair_value", "update_slice", "update_task", "update_word", "pull_slice",
    "pull_task", "pull_word", "level", "node", "below", "below_level", "below_owner",
)  # fmt: skip
HEAD = 18  # numbers that `struct Task` takes
COLUMN_ARRAYS, ROW_ARRAYS = 15, 8  # numbers of scratch of each column and of each row
BUFFER = 6  # numbers of each warp


@dataclass(frozen=True)
class Gather:
    """Many sums, cut into slices of one warp each.

    In a slice, groups of neighbouring lanes make one sum each, their terms interleaved, so that a warp reads them in one piece.

    Attributes:
        slices: `(slices, 4)`: where its terms begin and end, lanes of a group, 0.
        task: `(slices · warp,)`: which sum each lane works at, −1 for none.
        place: where each term goes, for the terms of sum 0, those of sum 1, …
    """

    slices: np.ndarray
    task: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, length: np.ndarray, warp: int, threads: int, *, in_order: bool = False) -> Gather:
        """length: how many terms each sum has. in_order: sum j on lane j % warp, as the caller expects it."""
        count = len(length)
        group = np.ones(count, np.int64) if in_order else _lanes_per_sum(length, warp, threads)
        order = np.arange(count) if in_order else np.lexsort((-length, -group))
        sorted_group = group[order]
        # Sums of one group size follow each other and fill whole slices.
        kinds, begins, numbers = np.unique(-sorted_group, return_index=True, return_counts=True)
        per = warp // -kinds
        first_slice = np.concatenate([[0], np.cumsum(-(-numbers // per))]).astype(np.int64)
        kind = np.repeat(np.arange(len(kinds)), numbers)
        rank = np.arange(count) - begins[kind]
        own_slice, position = first_slice[kind] + rank // per[kind], rank % per[kind]
        steps, lanes = np.zeros(first_slice[-1], np.int64), np.ones(first_slice[-1], np.int64)
        np.maximum.at(steps, own_slice, -(-length[order] // sorted_group))
        lanes[own_slice] = sorted_group
        ends = np.cumsum(steps * warp)
        slices = np.stack([ends - steps * warp, ends, lanes, 0 * lanes], 1)
        task = np.full((len(slices), warp), -1)
        lane = (position * sorted_group).repeat(sorted_group) + _counting(sorted_group)
        task[own_slice.repeat(sorted_group), lane] = order.repeat(sorted_group)
        at_slice, at_lane = np.empty(count, np.int64), np.empty(count, np.int64)
        at_slice[order], at_lane[order] = own_slice, position * sorted_group
        number, of = _counting(length), group.repeat(length)
        place = slices[at_slice, 0].repeat(length) + number // of * warp + at_lane.repeat(length) + number % of
        return cls(slices, task.reshape(-1), place)

    def spread(self, terms: np.ndarray) -> np.ndarray:
        """Something about each term, where the slices want it; zero elsewhere."""
        out = np.zeros((int(self.slices[-1, 1]) if len(self.slices) else 0, *terms.shape[1:]), terms.dtype)
        out[self.place] = terms
        return out


def _counting(length: np.ndarray) -> np.ndarray:
    """0, 1, …, length[0] − 1, 0, 1, …, length[1] − 1, …"""
    return np.arange(length.sum()) - (np.cumsum(length) - length).repeat(length)


def _lanes_per_sum(length: np.ndarray, warp: int, threads: int) -> np.ndarray:
    """As many lanes for long sums as one round of all warps allows: a further round waits for memory once more."""
    groups = np.ones(len(length), np.int64)
    if warp == 1 or not len(length):
        return groups
    goal, allowed = max(1.0, length.sum() / threads), threads // warp * -(-len(length) // threads)
    while True:
        powers = np.clip(np.ceil(np.log2(np.maximum(length / goal, 1))), 0, int(np.log2(warp))).astype(int)
        groups = 2**powers
        kinds, counts = np.unique(groups, return_counts=True)
        if (
            groups.max() == 1
            or sum(-(-count * group // warp) for group, count in zip(kinds, counts, strict=True)) <= allowed
        ):
            return groups
        goal *= 1.1


class Plan:
    """Everything about one matrix M `(m, n)`: its rows scaled to length one, in elimination order; the arrays of `FIELDS`.

    Attributes:
        order, scale: row i here is row order[i] of the matrix given, times scale[i].
        matrix: the scaled, ordered matrix.
        nodes: the supernodes of L.
        panel: how many numbers L takes.
        threads, most: of the block that it is made for, and of the largest that uses it.
    """

    def __init__(
        self, matrix: sp.csr_array, inequality: np.ndarray, *, threads: int, warp: int = WARP, most: int | None = None
    ) -> None:
        self.threads, self.warp, self.most = threads, warp, most or threads
        self.order, self.nodes = _best_order(matrix)
        ordered = sp.csr_array(matrix[self.order])
        self.scale = 1.0 / np.sqrt(np.asarray(ordered.multiply(ordered).sum(axis=1)).reshape(-1))
        self.matrix = sp.csr_array(sp.diags_array(self.scale) @ ordered)
        self.matrix.sort_indices()
        self.inequality = np.asarray(inequality)[self.order]
        self.m, self.n = self.matrix.shape
        self._place_panel()
        self.arrays = {"inequality": self.inequality, **self._matrix(), **self._pairs(), **self._updates()}
        self.arrays |= self._shape()

    # -- the panel ------------------------------------------------------------------------------------------------

    def _place_panel(self) -> None:
        """Rows of supernodes one after the other, by level: a triangle, then the rows below, odd where lanes would meet."""
        width, height = self.nodes.widths, self.nodes.heights
        self.distance = np.where((width % 2 == 0) & (width >= 6), width + 1, width)
        size = width * (width + 1) // 2 + height * self.distance
        self.sequence = np.argsort(self.nodes.level, kind="stable")
        self.base, self.below_start = np.zeros_like(width), np.zeros_like(width)
        self.base[self.sequence] = np.cumsum(size[self.sequence]) - size[self.sequence]
        self.below_start[self.sequence] = np.cumsum(height[self.sequence]) - height[self.sequence]
        self.panel = int(size.sum())
        starts = np.cumsum(height) - height
        self._below = np.concatenate([*self.nodes.below, np.zeros(0, np.int64)])
        self._below_keys, self._below_first = np.arange(len(width)).repeat(height) * self.m + self._below, starts

    def address(self, node: np.ndarray, position: np.ndarray) -> np.ndarray:
        """Where the row at `position` of a supernode begins: its own rows first, then those below."""
        width = self.nodes.widths[node]
        outer = width * (width + 1) // 2 + (position - width) * self.distance[node]
        return self.base[node] + np.where(position < width, position * (position + 1) // 2, outer)

    def entry(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Where L_ij lies, i ≥ j."""
        node = self.nodes.owner[j]
        first, width = self.nodes.first[node], self.nodes.widths[node]
        lower = np.searchsorted(self._below_keys, node * self.m + i) - self._below_first[node]
        return self.address(node, np.where(i < first + width, i - first, width + lower)) + j - first

    # -- what the kernels walk through ----------------------------------------------------------------------------

    def _matrix(self) -> dict[str, np.ndarray]:
        """M by rows and by columns."""
        rows, columns = self.matrix, sp.csr_array(self.matrix.T)
        by_row = Gather.of(np.diff(rows.indptr).astype(np.int64), self.warp, self.threads)
        by_column = Gather.of(np.diff(columns.indptr).astype(np.int64), self.warp, self.threads, in_order=True)
        return {
            "row_slice": by_row.slices, "row_task": by_row.task,
            "row_index": by_row.spread(self._in_scratch(rows.indices)), "row_value": by_row.spread(rows.data),
            "column_start": np.append(by_column.slices[:, 0], by_column.slices[-1:, 1]),
            "column_index": by_column.spread(columns.indices), "column_value": by_column.spread(columns.data),
        }  # fmt: skip

    def _in_scratch(self, column: np.ndarray) -> np.ndarray:
        """Where a column's numbers lie in a block's scratch: see source/block.cuh."""
        return column // self.warp * (COLUMN_ARRAYS * self.warp) + column % self.warp

    @property
    def scratch(self) -> int:
        """Numbers of scratch that a block takes."""
        return self.warp * (COLUMN_ARRAYS * -(-self.n // self.warp) + ROW_ARRAYS * -(-self.m // self.warp))

    def _pairs(self) -> dict[str, np.ndarray]:
        """Which variables, with which products, make an entry of M Θ Mᵀ. Every diagonal has one, of nothing perhaps."""
        columns = sp.csc_array(self.matrix)
        columns.sort_indices()
        counts = np.diff(columns.indptr)
        first, second, variable = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for size in np.unique(counts):
            own = np.flatnonzero(counts == size)
            a, b = np.triu_indices(size)
            first.append((columns.indptr[own][:, None] + a).reshape(-1))
            second.append((columns.indptr[own][:, None] + b).reshape(-1))
            variable.append(np.repeat(own, len(a)))
        low, high, index = map(np.concatenate, (first, second, variable))
        diagonal = np.arange(self.m) * (self.m + 1)
        key = columns.indices[high].astype(np.int64) * self.m + columns.indices[low]
        entries = np.unique(np.concatenate([diagonal, key]))
        task = np.searchsorted(entries, key)
        order = np.argsort(task, kind="stable")
        gather = Gather.of(np.bincount(task, minlength=len(entries)), self.warp, self.threads)
        i, j = entries // max(self.m, 1), entries % max(self.m, 1)
        target, safe = self.entry(i, j), np.maximum(gather.task, 0)
        return {
            "pair_slice": gather.slices, "pair_target": np.where(gather.task >= 0, target[safe], -1) if len(entries) else gather.task,
            "pair_i": i[safe], "pair_j": j[safe], "pair_index": gather.spread(self._in_scratch(index[order])),
            "pair_value": gather.spread((columns.data[low] * columns.data[high])[order]),
        }  # fmt: skip

    def _updates(self) -> dict[str, np.ndarray]:
        """What supernodes further down contribute, by level: to entries of L (update) and to rows of a solve (pull)."""
        nodes, level = self.nodes, self.nodes.level
        update, pull = [np.zeros((0, 5), np.int64)], [np.zeros((0, 5), np.int64)]
        for d, below in enumerate(nodes.below):
            if not len(below):
                continue
            width = int(nodes.widths[d])
            address = self.address(np.array(d), width + np.arange(len(below)))
            i, j = np.tril_indices(len(below))
            own = np.full(len(i), width)
            into = level[nodes.owner[below]]
            update.append(np.stack([into[j], self.entry(below[i], below[j]), address[i], address[j], own], 1))
            first = np.full(len(below), nodes.first[d])
            pull.append(np.stack([into, below, address, first, np.full(len(below), width)], 1))
        out: dict[str, np.ndarray] = {}
        self.level_slices: dict[str, np.ndarray] = {}
        for name, parts in (("update", update), ("pull", pull)):
            out |= self._gathered(name, np.concatenate(parts))
        return out

    def _gathered(self, name: str, items: np.ndarray) -> dict[str, np.ndarray]:
        """items: level, task, two addresses and a length each; the dots of such pieces are added up by task."""
        pieces = -(-items[:, 4] // PIECE)
        offset = PIECE * _counting(pieces)
        level, task, a, b, length = items.repeat(pieces, axis=0).T
        a, b, length = a + offset, b + offset, np.minimum(length - offset, PIECE)
        order = np.lexsort((-length, task, level))
        level, task, words = level[order], task[order], np.stack([a, b | length << 24], 1)[order]
        slices, tasks, spread, bounds, end = [], [], [], [0], 0
        edges = np.searchsorted(level, np.arange(int(self.nodes.level.max(initial=-1)) + 2))
        for low, high in pairwise(edges):
            known, counts = np.unique(task[low:high], return_counts=True)
            gather = Gather.of(counts, self.warp, self.threads)
            slices.append(gather.slices + np.array([end, end, 0, 0]))
            tasks.append(np.where(gather.task >= 0, np.append(known, 0)[gather.task], -1))
            spread.append(gather.spread(words[low:high]))
            bounds.append(bounds[-1] + len(gather.slices))
            end += len(spread[-1])
        self.level_slices[name] = np.array(bounds)
        empty = np.zeros((0, 4), np.int64)
        return {
            f"{name}_slice": np.concatenate([empty, *slices]),
            f"{name}_task": np.concatenate([empty[:, 0], *tasks]),
            f"{name}_word": np.concatenate([empty[:, :2], *spread]),
        }

    def _shape(self) -> dict[str, np.ndarray]:
        """The levels, the supernodes and their rows below."""
        nodes, sequence = self.nodes, self.sequence
        width, height = nodes.widths[sequence], nodes.heights[sequence]
        counts = np.bincount(nodes.level) if len(width) else np.zeros(0, np.int64)
        begin = np.concatenate([[0], np.cumsum(counts)])
        update, pull = self.level_slices["update"], self.level_slices["pull"]
        levels = [
            (update[k], update[k + 1], pull[k], pull[k + 1], low, high, *self._lanes(width[low:high], height[low:high]))
            for k, (low, high) in enumerate(pairwise(begin))
        ]
        below = [nodes.below[s] for s in sequence]
        return {
            "level": np.array(levels, np.int64).reshape(-1, 4),
            "node": np.stack([nodes.first[sequence], width | height << 8, self.base[sequence], self.below_start[sequence]], 1),
            "below": np.concatenate([*below, np.zeros(1, np.int64)]),
            "below_level": np.concatenate([[0], np.cumsum(height)])[begin],
            "below_owner": np.append(np.arange(len(sequence)).repeat(height), 0),
        }  # fmt: skip

    def _lanes(self, width: np.ndarray, height: np.ndarray) -> tuple[int, int]:
        """Lanes for each supernode of a level in `factorize` and in `substitute`: the least guessed number of cycles.

        In `factorize`, plus 256 times the rows that each lane has, where rows below are among them; 0: they come afterwards.
        """
        if self.warp == 1:
            return 1, 1

        def rounds(lanes: int, cost: np.ndarray) -> float:
            return float(np.sort(cost)[::-1][:: max(self.threads // lanes, 1)].sum())

        most = int((width + height).max())
        afterwards = rounds(1, (width * (80 + 10 * width)).repeat(height))
        factor = {1: rounds(1, width * (150 + 40 * width)) + afterwards}
        solve = {1: rounds(1, 150 + width * (130 + 15 * width) + width * height * 20)}
        for lanes in (2, 4, 8, 16, 32):
            if lanes >= width.max():
                wide = 2 ** np.ceil(np.log2(np.maximum(width, 1)))
                columns = width * (250 + 6 * width)
                factor[lanes] = rounds(lanes, columns) + afterwards
                for each in (1, 2):
                    if most <= each * lanes:
                        factor[lanes + 256 * each] = rounds(lanes, columns * (1 + 0.1 * (each - 1)))
                solve[lanes] = rounds(lanes, 250 + 60 * width + 40 * np.ceil(height / (lanes / wide)))
        return _cheapest(factor), _cheapest(solve)

    # -- fast memory ----------------------------------------------------------------------------------------------

    @cached_property
    def _head(self) -> int:
        """Numbers of fast memory before the levels: x, y, the buffer of sums, the task."""
        return (2 * self.m + BUFFER * (self.most // self.warp) + HEAD + 2) // 2 * 2

    @cached_property
    def _near_shape(self) -> int:
        """Numbers that supernodes and rows below take."""
        return (2 * len(self.sequence) + (len(self._below) + 3) // 4 + 1) // 2 * 2

    def fitting(self, limit: int) -> tuple[dict[str, int], int]:
        """The `SIZES`, and the bytes of fast memory, of which there are `limit`; panel_at is 0 where there is too little.

        What does not fit of the panel, the leaves of the tree, is left to global memory: `far` numbers of it.
        """
        levels = len(self.arrays["level"]) // 2
        shape, start = self._near_shape, self._head + 4 * levels
        near = 8 * (start + shape + self.panel) <= limit
        start += shape if near else 0
        room = limit // 8 - start
        ends = np.append(np.sort(self.base), self.panel)
        far = (
            0
            if near or self.panel <= room
            else int(ends[min(int(np.searchsorted(ends, self.panel - room)), len(ends) - 1)])
        )
        arrays, steps = self.arrays, np.diff(self.arrays["column_start"]) // self.warp
        sizes = dict.fromkeys(SIZES, 0) | {
            "n": self.n, "m": self.m, "levels": levels, "panel": self.panel, "any_inequality": int(self.inequality.any()),
            "row_slices": len(arrays["row_slice"]), "pair_slices": len(arrays["pair_slice"]),
            "per_column": int(steps[0]) if len(steps) and (steps == steps[0]).all() else 0,
            "nodes": len(self.sequence), "rows_below": len(self._below), "near_shape": int(near),
            "head_at": (2 * self.m + BUFFER * (self.most // self.warp) + 1) // 2 * 2, "levels_at": self._head,
            "panel_at": start if room > 0 else 0, "far": far,
        }  # fmt: skip
        return sizes, 8 * (start + self.panel - far)

    def fields(self) -> list[np.ndarray]:
        """The arrays in the order of `FIELDS`, as the kernels read them. None of them is empty."""
        kinds: dict[str, type] = {"value": np.float64, "below": np.uint16}
        parts: list[np.ndarray] = [
            np.ascontiguousarray(self.arrays[f], kinds.get(f.split("_")[-1], np.int32)) for f in FIELDS
        ]
        return [part if part.size else np.zeros(4, part.dtype) for part in parts]


def _cheapest(cost: dict[int, float]) -> int:
    return min(cost, key=lambda lanes: cost[lanes])


def _best_order(matrix: sp.csr_array) -> tuple[np.ndarray, Supernodes]:
    """The order, of two, in which a block waits less: for chains of columns and for levels."""
    if matrix.shape[0] == 0:
        return np.zeros(0, np.int64), Supernodes.of([], WIDEST, RELAX, SMALL)
    orders: tuple[Callable[[], np.ndarray], ...] = (
        lambda: minimum_degree(matrix)[0],
        lambda: Dissection(graph_of(matrix)).order(),
    )
    found = [supernodes(matrix, order(), WIDEST, RELAX, SMALL) for order in orders]
    order, nodes, _ = min(found, key=lambda one: one[1].chain + 5 * (int(one[1].level.max()) + 1) + one[2] / 2000)
    return order, nodes
