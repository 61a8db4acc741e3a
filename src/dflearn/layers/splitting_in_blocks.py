"""The batches of `DavisYin` on a GPU, for programs with few rows: all iterations in one launch, by a block for each instance.

With a tolerance the CPU judges the answers on the way, and `splitting_in_torch` iterates: blocks make a fixed number of iterations.

Which way a program goes is a rule of its size, measured (docs/gpu.md): many rows are products with dense matrices, `splitting_in_torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.driver import Machine, gpu
from dflearn.cuda.errors import NotHere
from dflearn.cuda.splitting import MOST_NUMBERS, SplittingBlocks
from dflearn.layers.splitting import SplittingRows
from dflearn.layers.splitting_in_torch import Answer, TorchRun
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.layers.davis_yin import DavisYin

# Numbers of (M Mᵀ)⁻¹ that an instance reads in an iteration, and all instances of a batch together. Measured: docs/gpu.md.
MOST_ONE_READS, MOST_READ = 2**16, 2**23


def run_there(
    layer: DavisYin, costs: Tensor, sides: Sides, start: np.ndarray | None, record: bool, q: np.ndarray | None = None
) -> TorchRun:
    """A batch where its costs are: in blocks, if its rows are few and the number of iterations is fixed."""
    if layer.tolerance is not None:
        return TorchRun(layer, costs, sides, start, record, q)
    dtype = torch.float64 if costs.dtype == torch.float64 else torch.float32
    blocks = blocks_of_batch(layer.rows, dtype, costs.device, costs.shape[:-1].numel())
    if blocks is None or (record and layer.iterations * layer.width > MOST_NUMBERS):
        return TorchRun(layer, costs, sides, start, record, q)
    return BlockRun(blocks, layer, costs, sides, start, record, q)


def machine_of(device: torch.device) -> tuple[Machine, int | None] | None:
    """What runs blocks on a device, and of how many threads, where that is not the program's to say."""
    if device.type != "cuda":
        return None
    return gpu(torch.cuda.current_device() if device.index is None else device.index), None


def blocks_of_batch(
    rows: SplittingRows, dtype: torch.dtype, device: torch.device, count: int
) -> SplittingBlocks | None:
    """`None` where products are faster."""
    blocks = blocks_for(rows, dtype, device)
    return None if blocks is None or count * blocks.m * blocks.pieces > MOST_READ else blocks


def blocks_for(rows: SplittingRows, dtype: torch.dtype, device: torch.device) -> SplittingBlocks | None:
    """Made once for a dtype and a device; `None` where rows are many, or lie in Q's factor, or blocks cannot run."""
    key = "blocks", dtype, device
    if key not in rows.elsewhere:
        matrix, Q = rows.factor.matrix, rows.program.Q
        made: SplittingBlocks | None = None
        if matrix.shape[0] ** 2 <= MOST_ONE_READS and (Q is None or not Q.factor.shape[0]):
            try:
                found = machine_of(device)
                if found is not None:
                    machine, threads = found
                    made = SplittingBlocks(matrix, rows.program.n, machine, device, dtype, threads)
            except NotHere:
                pass
        rows.elsewhere[key] = made
    blocks: SplittingBlocks | None = rows.elsewhere[key]
    return blocks


class BlockRun(TorchRun):
    """`Run` in blocks."""

    def __init__(
        self,
        blocks: SplittingBlocks,
        layer: DavisYin,
        costs: Tensor,
        sides: Sides,
        start: np.ndarray | None,
        record: bool,
        q: np.ndarray | None = None,
    ) -> None:
        assert start is None  # which a layer takes with a tolerance alone
        self._take(layer, costs, sides, q)
        self.blocks, self.diagonal, bend = blocks, None, None
        if self.curved:
            Q = layer.program.Q
            own = np.zeros((1, layer.program.n)) if Q is None else Q.diagonal[None]
            self.diagonal = self._there(own + (0.0 if q is None else q)).contiguous()
            bend = torch.tensor(np.atleast_1d(self.bend)).to(self.device, torch.float64)
        self.found = blocks.iterate(
            self.costs,
            self.mu,
            self._sides_there(blocks.inverse),
            step=layer.step,
            limit=layer.iterations,
            record=record,
            delta=self.diagonal,
            bend=bend,
        )
        residual = self.found.residual
        self.there = Answer(*self.found[:5], self.found.alpha, residual[:, None], residual)

    def way_back(self, gradient: Tensor) -> Tensor:
        if self.gradient == "implicit":
            return super().way_back(gradient)
        g = gradient.detach().reshape(self.there.w.shape).to(self.dtype)
        return self.blocks.back(g, self.found, self.mu, self.diagonal).reshape(gradient.shape).to(gradient)
