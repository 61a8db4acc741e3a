"""Davis-Yin iterations by the CPU's compiled kernels, tile by tile on a pool of threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.certify import RESIDUE, ZERO
from dflearn.engine.davis_yin.batch import Answer, Backend, Batch
from dflearn.engine.davis_yin.data import (
    ROW_BYTES,
    Curvature,
    Rule,
    SplittingAnswer,
    SplittingData,
    SplittingRows,
    SplittingSystem,
    space_rows,
)
from dflearn.engine.davis_yin.iterations import adjoint, iterate
from dflearn.engine.linear_algebra.lanes import Tile, all_tiles, load, wide_tile
from dflearn.engine.linear_algebra.threads import run_tiles


class Compiled(Backend):
    """`Answer.masks`: the tiles, and the bits of each: of all iterations if they were recorded, or of the last."""

    def __init__(self, rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(rows, dtype, device)
        self.system = SplittingSystem.of(rows.factor, rows.ordered(rows.form.is_inequality), self.numbers)
        Q = rows.quadratic()
        self.curvature = Curvature.of(Q.factor, Q.diagonal, self.numbers)
        self._scratch = threading.local()

    def iterate(
        self, batch: Batch, limit: int, *, record: bool, start: np.ndarray | None = None, tolerance: float | None = None
    ) -> Answer:
        """With a tolerance fewer iterations where an instance is optimal, from `start` where that is finite."""
        lines, width, c = self.lines(batch.sides), self.rows.width, batch.c.numpy()
        z = np.zeros((1, width), c.dtype)
        if start is not None:
            z = np.where(np.isfinite(start).all(1, keepdims=True), start, 0).astype(c.dtype)
        alpha, lower, upper = batch.steps(lines), lines.lower.numpy(), lines.upper.numpy()
        data = SplittingData(c, lines.shift.numpy(), alpha.numpy(), z, batch.least(lines).contiguous().numpy())
        rule = None if tolerance is None else self._rule(batch, tolerance)
        shared = len(lower) == len(upper) == 1  # if not, both are tiles, for which the kernel is compiled once
        rows = self.rows.program.A.shape[0] + self.rows.program.G.shape[0]
        answer = SplittingAnswer.empty(len(c), c.shape[1], width, rows, c.dtype)
        masks: list[tuple[Tile, np.ndarray]] = []

        def run(tile: Tile) -> None:
            index, used = tile
            inside = np.zeros((limit if record else 1, width), f"u{len(index) // 8}")
            iterate(
                self.system, data, _bound(lower, index, shared), _bound(upper, index, shared), batch.mu, limit, rule, index, used,
                self.space(len(index)), record, inside, answer, self._curvature(batch, index),
            )  # fmt: skip
            masks.append((tile, inside))

        run_tiles(run, self.tiles(len(c)))
        if batch.quadratic:
            w = answer.w.astype(np.float64)
            answer.value[:] += self.rows.quadratic().value(w)
            if batch.q is not None:
                answer.value[:] += 0.5 * (batch.q * np.square(w)).sum(1)
        z_, inside_, w_, value, residual, *more = (torch.from_numpy(part) for part in answer)
        return Answer(z_, inside_, w_, value, residual, alpha, masks, *more)

    def back(self, gradient: Tensor, batch: Batch, answer: Answer) -> Tensor:
        g, alpha = gradient.contiguous().numpy(), answer.alpha.numpy()
        assert answer.iterations is not None
        out, iterations = np.empty_like(g), answer.iterations.numpy()

        def run(part: tuple[Tile, np.ndarray]) -> None:
            (index, used), masks = part
            steps = np.minimum(iterations, len(masks))  # the last alone if no others were recorded
            adjoint(
                self.system, alpha, batch.mu, masks, steps, g, index, used, self.space(len(index)), out, self._curvature(batch, index)
            )  # fmt: skip

        run_tiles(run, answer.masks)
        return torch.from_numpy(out)

    def _rule(self, batch: Batch, tolerance: float) -> Rule:
        """What the kernel calls optimal."""
        own, rounding, R = self.rows.certifier, 16.0 * torch.finfo(self.dtype).eps, self.rows.quadratic().factor
        curve = own.curve(batch.mu) if batch.q is None else own.curve(batch.mu) + batch.q
        sides = batch.sides
        lines = curve, sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper")
        return Rule(
            tolerance, max(RESIDUE, rounding), own.stored, own.equalities, max(ZERO, rounding), (R.indptr, R.indices, R.data),
            self.rows.places, self.rows.factor.scale, *(np.ascontiguousarray(part) for part in lines),
        )  # fmt: skip

    def tiles(self, count: int) -> list[Tile]:
        """Wide rows are cheaper per instance; narrow ones where there are threads enough to take a tile each."""
        lanes = ROW_BYTES // self.numbers.itemsize
        if 2 * count <= lanes * torch.get_num_threads():
            lanes //= 2
        return all_tiles(count, lanes)

    def space(self, lanes: int) -> np.ndarray:
        """The work space of this thread, kept from call to call."""
        spaces, key = self._scratch.__dict__, f"{lanes} lanes"
        if key not in spaces:
            spaces[key] = wide_tile(space_rows(self.system, self.rows.width, self.curvature), lanes, self.numbers)
        space: np.ndarray = spaces[key]
        return space

    def _curvature(self, batch: Batch, index: np.ndarray) -> Curvature | None:
        """Q of the instances at `index`; `None` where the objective is linear."""
        if not batch.quadratic:
            return None
        if batch.q is None:
            return self.curvature
        own = np.ascontiguousarray(self.curvature.diagonal + batch.q, self.numbers)
        return self.curvature._replace(diagonal=_bound(own, index, len(own) == 1))


def _bound(side: np.ndarray, index: np.ndarray, shared: bool) -> Any:
    """Numbers that all instances share, or a tile of those at `index`."""
    if shared:
        return side[0]
    tile = wide_tile(side.shape[1], len(index), side.dtype)
    load(side, index, tile["lane"])
    return tile
