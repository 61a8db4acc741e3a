"""Davis-Yin iterations of programs with few rows: one block of threads iterates one instance, from first to last in one launch.

Nothing here waits for the device.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.engine.cuda.driver import RESERVED, Machine, gpu
from dflearn.engine.cuda.nvrtc import NotHere
from dflearn.engine.davis_yin.batch import Answer, Backend, Batch
from dflearn.engine.davis_yin.data import SplittingRows
from dflearn.engine.davis_yin.dense import times_inverse

MOST_SUMS = 3  # of source/splitting.cu
LEAST_THREADS, MOST_THREADS = 32, 512
MOST_EACH = 8  # columns of a thread
# Columns of a thread where rows are few; otherwise fewer of them, and threads for each row. Measured: docs/how-to/gpu.md.
FEW_EACH, EACH, ROW_THREADS = 4, 2, 4
FEW = 4  # rows that registers hold
MOST_ENTRIES = 4  # of a column, that registers hold
ENTRIES_EACH = 4  # of a thread that sums a row, at least
LEAST_TOGETHER = 4  # threads that read a row of the inverse, so that they read whole sectors of memory
MOST_NUMBERS = 2**31 - 1  # what an int of the kernels counts
# Numbers of (M Mᵀ)⁻¹ that an instance reads in an iteration, and all instances of a batch together. Measured: docs/how-to/gpu.md.
MOST_ONE_READS, MOST_READ = 2**16, 2**23


class SplittingBlocks(Backend):
    """The scaled rows M `(m, N)` of a program with slacks, the first n variables being decisions.

    Attributes:
        threads: of a block.
        inverse: (M Mᵀ)⁻¹ `(m, m)`.
    """

    def __init__(
        self,
        rows: SplittingRows,
        dtype: torch.dtype,
        device: torch.device,
        machine: Machine,
        threads: int | None = None,
    ) -> None:
        super().__init__(rows, dtype, device)
        matrix, n = rows.factor.matrix, rows.program.n
        by_rows, (m, N) = sp.csr_array(matrix), matrix.shape
        self.n, self.N, self.m = n, N, m
        self.threads = threads or threads_for(N, m, machine.warp)
        each = _power(2 * -(-N // self.threads) - 1)
        if each > MOST_EACH and threads is None:
            raise NotHere(f"its {N} variables are more than the registers of a block hold")
        few, columns = m if m <= FEW else 0, sp.csc_array(matrix)
        entries = int(np.diff(columns.indptr).max(initial=0))
        lanes = min(machine.warp, _power(self.threads // max(m, 1)))
        own_lanes = min(machine.warp, max(lanes, LEAST_TOGETHER))
        most = max(ENTRIES_EACH, -(-by_rows.nnz // self.threads)) * lanes  # entries of a piece
        pieces_of = np.maximum(1, -(-np.diff(by_rows.indptr) // most))
        row_piece = np.concatenate([[0], np.cumsum(pieces_of)])
        within = np.arange(row_piece[-1]) - np.repeat(row_piece[:-1], pieces_of)
        starts = np.concatenate([np.repeat(by_rows.indptr[:-1], pieces_of) + within * most, by_rows.indptr[-1:]])
        self.pieces = len(starts) - 1
        dense = by_rows.toarray()
        inverse = np.linalg.inv(dense @ dense.T)
        self.inverse = self.there(inverse)
        self._shared = [
            self.there(starts), self.there(by_rows.indices), self.there(by_rows.data), self.there(row_piece),
            self.there(np.repeat(inverse, pieces_of, axis=1)), self.there(columns.indptr), self.there(columns.indices),
            self.there(columns.data),
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

    @classmethod
    def fitting(
        cls, rows: SplittingRows, dtype: torch.dtype, device: torch.device, count: int, recorded: int = 0
    ) -> SplittingBlocks | None:
        """Made once for a program, a dtype and a device; `None` where products are faster, or blocks cannot run.

        recorded: of how many iterations masks are recorded.
        """
        key, Q = (cls, dtype, device), rows.program.Q
        if key not in rows.backends:
            made, few = None, rows.factor.matrix.shape[0] ** 2 <= MOST_ONE_READS
            few = few and (Q is None or not Q.factor.shape[0])
            if few and (found := machine_of(device)) is not None:
                with contextlib.suppress(NotHere):
                    made = cls(rows, dtype, device, *found)
            rows.backends[key] = made
        blocks: SplittingBlocks | None = rows.backends[key]
        if blocks is None or count * blocks.m * blocks.pieces > MOST_READ or recorded * rows.width > MOST_NUMBERS:
            return None
        return blocks

    def shifted(self, right: Tensor) -> Tensor:
        return times_inverse(right, self.inverse)

    def iterate(self, batch: Batch, limit: int, *, record: bool) -> Answer:
        count, n, N, c = len(batch.c), self.n, self.N, batch.c.contiguous()

        def empty(*shape: int, dtype: Any = self.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        z, w, alpha, inside = empty(count, N), empty(count, n), empty(count), empty(count, N, dtype=torch.uint8)
        value, residual = empty(count, dtype=torch.float64), empty(count, dtype=torch.float64)
        masks = empty(count, limit, N, dtype=torch.uint8) if record else None
        answer = Answer(z, inside, w, value, residual, alpha, masks)
        if not count:
            return answer
        sides, delta, norm = self.lines(batch.sides), self._delta(batch), self._nothing
        if batch.quadratic:
            norm = torch.tensor(np.atleast_1d(batch.norm)).to(self.device, torch.float64)
        self._module.launch(
            "splitting_iterate", count, count, n, N, self.m, self.pieces, *self._pointers, c.data_ptr(), sides.shift.data_ptr(),
            _line(sides.shift), sides.lower.data_ptr(), sides.upper.data_ptr(), _line(sides.lower),
            0 if delta is None else delta.data_ptr(), 0 if delta is None else _line(delta), norm.data_ptr(), _line(norm),
            sides.largest.data_ptr(), sides.smallest.data_ptr(), _line(sides.largest), batch.mu,
            -1.0 if batch.step is None else batch.step, limit, *(0 if part is None else part.data_ptr() for part in answer[:7]),
        )  # fmt: skip
        return answer

    def back(self, gradient: Tensor, batch: Batch, answer: Answer) -> Tensor:
        out, gradient, masks = torch.empty_like(answer.w), gradient.contiguous(), answer.masks
        delta = self._delta(batch)
        if len(out):
            marks, line = (answer.inside, self.N) if masks is None else (masks, masks.shape[1] * self.N)
            self._module.launch(
                "splitting_back", len(out), len(out), self.n, self.N, self.m, self.pieces, *self._pointers, gradient.data_ptr(),
                marks.data_ptr(), line, line // self.N, answer.alpha.data_ptr(), batch.mu, 0 if delta is None else delta.data_ptr(),
                0 if delta is None else _line(delta), out.data_ptr(),
            )  # fmt: skip
        return out

    def _delta(self, batch: Batch) -> Tensor | None:
        """δ of Q, and the q of instances, `(count or 1, n)`."""
        if not batch.quadratic:
            return None
        own = self.rows.quadratic().diagonal[None]
        return self.there(own if batch.q is None else own + batch.q).contiguous()


def machine_of(device: torch.device) -> tuple[Machine, int | None] | None:
    """What runs blocks on a device, and of how many threads, where that is not the program's to say."""
    if device.type != "cuda":
        return None
    return gpu(torch.cuda.current_device() if device.index is None else device.index), None


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
