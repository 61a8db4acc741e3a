"""The rows of `SparseAsPublished` as its kernels want them, and batches on their way through these, and back.

This module imports numba. The layer imports it when it solves for the first time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.kernels.cholesky import SparseFactor
from dflearn.kernels.lanes import Tile, all_tiles, wide_tile
from dflearn.kernels.splitting_data import ROW_BYTES, factor_rows
from dflearn.kernels.threads import run_tiles
from dflearn.layers.base import as_rows, in_shape
from dflearn.paper.iteration import PublishedSystem, adjoint, iterate, space_rows
from dflearn.program import Program
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.paper.as_published import SparseAsPublished

LONGEST = 64  # entries of a private row: its block stays in the nearest cache


class PublishedRows:
    """Private and shared rows of a program whose upper bounds have slacks: see `dflearn.paper.iteration`.

    Args:
        program: its own bounds that are not in `bounded` do not count.
        bounded: which upper bounds are rows, `(n,)`.
    """

    def __init__(self, program: Program, bounded: np.ndarray) -> None:
        self.program, self.form = program, program.equality_form()
        matrix = self.form.matrix
        self.private, blocks = disjoint_rows(matrix, LONGEST)
        self.shared = np.setdiff1d(np.arange(matrix.shape[0]), self.private)
        others = np.setdiff1d(np.arange(matrix.shape[1]), np.concatenate([self.shared[:0], *blocks]))
        blocks += [others[first : first + LONGEST] for first in range(0, len(others), LONGEST)]
        self.places = np.concatenate(blocks)
        self.block = np.cumsum([0, *map(len, blocks)])
        self.pairs = np.flatnonzero(bounded)
        self.theta = np.where(np.isin(self.places, self.pairs), 0.5, 1.0)
        ordered = sp.csr_array(matrix[:, self.places])
        self.D, F = sp.csr_array(ordered[self.private]), sp.csr_array(ordered[self.shared])
        root = sp.diags_array(np.sqrt(self.theta))
        D = self.D @ root
        self.norms = np.asarray(D.multiply(D).sum(1)).reshape(-1)
        B = sp.csr_array(F @ root - (F @ root @ D.T) @ sp.diags_array(1 / self.norms) @ D)
        B.eliminate_zeros()
        self.factor = SparseFactor.of(B)
        self.F = sp.csr_array(sp.diags_array(self.factor.scale) @ F[self.factor.order])
        self._systems: dict[Any, PublishedSystem] = {}
        self._own_sides: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
        self.scratch = threading.local()

    def system(self, dtype: Any) -> PublishedSystem:
        if dtype not in self._systems:
            self._systems[dtype] = self._system(dtype)
        return self._systems[dtype]

    def _system(self, dtype: Any) -> PublishedSystem:
        N, count = len(self.places), len(self.pairs)
        unsigned, number = np.uint32, lambda values: np.ascontiguousarray(values, dtype)
        own = np.asarray(self.D.sum(0)).reshape(-1)  # a place has one entry at most
        norms = np.ones(len(self.block) - 1)
        norms[: len(self.norms)] = self.norms
        by_places = sp.csr_array(self.F.T)
        by_places.sort_indices()
        slack = np.full(N, -1)
        slack[self.pairs] = np.arange(count)
        single = (np.diff(by_places.indptr) == 1) & (slack[self.places] < 0)
        return PublishedSystem(
            np.concatenate([self.places, N + np.arange(count)]).astype(unsigned),
            self.block.astype(unsigned),
            np.logical_and.reduceat(single, self.block[:-1]),
            number(own),
            number(self.theta * own / np.repeat(norms, np.diff(self.block))),
            by_places.indptr.astype(unsigned),
            by_places.indices.astype(unsigned),
            number(by_places.data),
            number(by_places.data * np.repeat(self.theta, np.diff(by_places.indptr))),
            slack[self.places].astype(np.int32),
            number(self.program.upper[self.pairs]),
            *factor_rows(self.factor, dtype),
        )

    def sides(self, sides: Sides, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """r_D, of a block without a row zero, and r_F; `(count or 1, ·)`."""
        own = sides is self.program.own_sides
        if own and dtype in self._own_sides:
            return self._own_sides[dtype]
        right = self.form.right_hand_side(sides)
        private = np.zeros((len(right), len(self.block) - 1), dtype)
        private[:, : len(self.private)] = right[:, self.private]
        shared = right[:, self.shared[self.factor.order]] * self.factor.scale
        result = private, np.ascontiguousarray(shared, dtype)
        if own:
            self._own_sides[dtype] = result
        return result


def disjoint_rows(matrix: sp.csr_array, longest: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows of at most so many entries, no two of them with a column in common; and the columns of each.

    Short rows come first: there are more of them.
    """
    length, taken = np.diff(matrix.indptr), np.zeros(matrix.shape[1], bool)
    chosen, columns = [], []
    for i in np.argsort(length, kind="stable"):
        own = matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]
        if 0 < len(own) <= longest and not taken[own].any():
            taken[own] = True
            chosen.append(i)
            columns.append(np.sort(own))
    return np.array(chosen, np.int64), columns


class PublishedRun:
    """One batch on its way through the kernels, and back. Arrays are `(count, ·)` in the layer's dtype."""

    def __init__(self, layer: SparseAsPublished, costs: Tensor, start: Tensor, sides: Sides, record: bool) -> None:
        dtype = np.dtype(np.float64 if layer.dtype == torch.float64 else np.float32)
        self.rows, self.tau, self.rho = layer.rows, layer.tau, layer.rho
        self.steps = np.array(layer.steps())
        self.system = self.rows.system(dtype)
        c, begin = (as_rows(part, len(start), dtype) for part in (costs, start))
        private, shared = self.rows.sides(sides, dtype)
        self.tiles = self._tiles(len(c), ROW_BYTES // dtype.itemsize)
        self.negative: dict[int, np.ndarray] = {}  # by the first instance of a tile
        self.w = np.empty_like(c)

        def solve(tile: Tile) -> None:
            index, used = tile
            negative = np.empty((len(self.steps) if record else 1, begin.shape[1]), f"u{len(index) // 8}")
            iterate(
                self.system, c, begin, private, shared, self.steps, self.tau, self.rho, index, used,
                self._space(len(index)), record, negative, self.w,
            )  # fmt: skip
            if record:
                self.negative[int(index[0])] = negative

        run_tiles(solve, self.tiles)

    @staticmethod
    def _tiles(count: int, lanes: int) -> list[Tile]:
        """Wide rows are cheaper per instance; narrow ones where there are threads enough to take a tile each."""
        return all_tiles(count, lanes // 2 if 2 * count <= lanes * torch.get_num_threads() else lanes)

    def _space(self, lanes: int) -> np.ndarray:
        """This thread's work space, kept from call to call."""
        spaces, key = self.rows.scratch.__dict__, f"{self.w.dtype} {lanes}"
        if key not in spaces:
            spaces[key] = wide_tile(space_rows(self.system), lanes, self.w.dtype)
        space: np.ndarray = spaces[key]
        return space

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        g = as_rows(gradient, len(self.w), self.w.dtype)
        out = np.empty_like(g)

        def run(tile: Tile) -> None:
            index, used = tile
            adjoint(
                self.system, self.steps, self.tau, self.rho, self.negative[int(index[0])], g, index, used,
                self._space(len(index)), out,
            )  # fmt: skip

        run_tiles(run, self.tiles)
        return in_shape(out, gradient.shape[:-1]).to(gradient)
