"""Davis-Yin iterations of programs with few rows: one block of threads iterates one instance, from first to last in one launch.

Nothing here waits for the device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.cuda.driver import RESERVED, Machine
from dflearn.cuda.errors import NotHere

MOST_SUMS = 3  # of source/splitting.cu
LEAST_THREADS, MOST_THREADS = 32, 512
MOST_EACH = 8  # columns of a thread
# Columns of a thread where rows are few; otherwise fewer of them, and threads for each row. Measured: docs/gpu.md.
FEW_EACH, EACH, ROW_THREADS = 4, 2, 4
FEW = 4  # rows that registers hold
MOST_ENTRIES = 4  # of a column, that registers hold
ENTRIES_EACH = 4  # of a thread that sums a row, at least
LEAST_TOGETHER = 4  # threads that read a row of the inverse, so that they read whole sectors of memory
MOST_NUMBERS = 2**31 - 1  # what an int of the kernels counts


class SplittingSides(NamedTuple):
    """One line for each instance, or one for all: (M Mᵀ)⁻¹ r `(·, m)`, bounds of variables and slacks `(·, N)`; the largest
    distance of a row from the origin and the smallest length that sides name `(·,)`, float64."""

    shift: Tensor
    lower: Tensor
    upper: Tensor
    largest: Tensor
    smallest: Tensor


class SplittingBlockAnswer(NamedTuple):
    """As `kernels.splitting_data.SplittingAnswer`, with a step for each instance. masks `(count, limit, N)`: where each z lies
    inside, if that was asked for."""

    z: Tensor
    inside: Tensor
    w: Tensor
    value: Tensor
    residual: Tensor
    alpha: Tensor
    masks: Tensor | None


class SplittingBlocks:
    """The scaled rows M `(m, N)` of a program with slacks, the first n variables being decisions, on one device in one dtype.

    Attributes:
        threads: of a block.
        inverse: (M Mᵀ)⁻¹ `(m, m)`.
    """

    def __init__(
        self,
        matrix: sp.csr_array,
        n: int,
        machine: Machine,
        device: torch.device,
        dtype: torch.dtype,
        threads: int | None = None,
    ) -> None:
        rows, (m, N) = sp.csr_array(matrix), matrix.shape
        self.n, self.N, self.m, self.device, self.dtype = n, N, m, device, dtype
        self.threads = threads or threads_for(N, m, machine.warp)
        each = _power(2 * -(-N // self.threads) - 1)
        if each > MOST_EACH and threads is None:
            raise NotHere(f"its {N} variables are more than the registers of a block hold")
        few, columns = m if m <= FEW else 0, sp.csc_array(matrix)
        entries = int(np.diff(columns.indptr).max(initial=0))
        lanes = min(machine.warp, _power(self.threads // max(m, 1)))
        own_lanes = min(machine.warp, max(lanes, LEAST_TOGETHER))
        most = max(ENTRIES_EACH, -(-rows.nnz // self.threads)) * lanes  # entries of a piece
        pieces_of = np.maximum(1, -(-np.diff(rows.indptr) // most))
        row_piece = np.concatenate([[0], np.cumsum(pieces_of)])
        within = np.arange(row_piece[-1]) - np.repeat(row_piece[:-1], pieces_of)
        starts = np.concatenate([np.repeat(rows.indptr[:-1], pieces_of) + within * most, rows.indptr[-1:]])
        self.pieces = len(starts) - 1
        dense = rows.toarray()
        inverse = np.linalg.inv(dense @ dense.T)
        self.inverse = self._there(inverse)
        self._shared = [
            self._there(starts), self._there(rows.indices), self._there(rows.data), self._there(row_piece),
            self._there(np.repeat(inverse, pieces_of, axis=1)), self._there(columns.indptr), self._there(columns.indices),
            self._there(columns.data),
        ]  # fmt: skip
        self._pointers = [part.data_ptr() for part in self._shared]
        size = torch.finfo(dtype).bits // 8
        warps = max(1, self.threads // machine.warp)
        sums = 2 * warps * few if few else self.pieces + N
        memory = 8 * MOST_SUMS * warps + size * (m + sums)
        if memory + RESERVED > machine.fast_memory[0]:
            raise NotHere(f"{N} variables and {m} rows do not fit into a block's memory")
        numbers = {
            "EACH": each, "FEW": few, "ENTRIES": entries if entries <= MOST_ENTRIES else 0, "TASK_LANES": lanes, "ROW_LANES": own_lanes,
        }  # fmt: skip
        options = (
            f"-DREAL={'double' if size == 8 else 'float'}",
            *(f"-D{name}={value}" for name, value in numbers.items()),
        )
        self._module = machine.load_splitting(self.threads, options, -(-memory // 16) * 16)
        self._nothing = torch.zeros(1, dtype=torch.float64, device=device)

    def _there(self, part: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.array(part, order="C"))
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else torch.int32)

    def iterate(
        self,
        c: Tensor,
        mu: float,
        sides: SplittingSides,
        *,
        step: float | None,
        limit: int,
        record: bool = False,
        delta: Tensor | None = None,
        bend: Tensor | None = None,
    ) -> SplittingBlockAnswer:
        """c `(count, n)`; all iterations, from zero. δ `(count or 1, n)` is Q's diagonal, bend `(count or 1,)` Q's norm in
        float64."""
        count, n, N = len(c), self.n, self.N

        def empty(*shape: int, dtype: Any = self.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        answer = SplittingBlockAnswer(
            empty(count, N),
            empty(count, N, dtype=torch.uint8),
            empty(count, n),
            empty(count, dtype=torch.float64),
            empty(count, dtype=torch.float64),
            empty(count),
            empty(count, limit, N, dtype=torch.uint8) if record else None,
        )
        if not count:
            return answer
        c, bend = c.contiguous(), self._nothing if bend is None else bend
        self._module.launch(
            "splitting_iterate", count, count, n, N, self.m, self.pieces, *self._pointers, c.data_ptr(), sides.shift.data_ptr(),
            _line(sides.shift), sides.lower.data_ptr(), sides.upper.data_ptr(), _line(sides.lower),
            0 if delta is None else delta.data_ptr(), 0 if delta is None else _line(delta), bend.data_ptr(), _line(bend),
            sides.largest.data_ptr(), sides.smallest.data_ptr(), _line(sides.largest), mu, -1.0 if step is None else step, limit,
            *(0 if part is None else part.data_ptr() for part in answer),
        )  # fmt: skip
        return answer

    def back(self, gradient: Tensor, answer: SplittingBlockAnswer, mu: float, delta: Tensor | None = None) -> Tensor:
        """(dw/dc)ᵀ gradient `(count, n)` through every iteration, or through the last alone where none were recorded."""
        out, gradient, masks = torch.empty_like(answer.w), gradient.contiguous(), answer.masks
        if len(out):
            marks, line = (answer.inside, self.N) if masks is None else (masks, masks.shape[1] * self.N)
            self._module.launch(
                "splitting_back", len(out), len(out), self.n, self.N, self.m, self.pieces, *self._pointers, gradient.data_ptr(),
                marks.data_ptr(), line, line // self.N, answer.alpha.data_ptr(), mu, 0 if delta is None else delta.data_ptr(),
                0 if delta is None else _line(delta), out.data_ptr(),
            )  # fmt: skip
        return out


def threads_for(variables: int, rows: int, warp: int = 32) -> int:
    """Whole warps."""
    wanted = variables / FEW_EACH if 0 < rows <= FEW else max(variables / EACH, ROW_THREADS * rows)
    return min(MOST_THREADS, max(LEAST_THREADS, math.ceil(wanted / warp) * warp))


def _power(number: int) -> int:
    """The largest power of two up to a number, and at least one."""
    return 1 << max(number, 1).bit_length() - 1


def _line(part: Tensor) -> int:
    """Numbers from one instance to the next; 0 where all share them."""
    return 0 if len(part) == 1 else part.stride(0)
