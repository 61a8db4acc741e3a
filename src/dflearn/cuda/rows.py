"""A program's rows as blocks want them: the smoothed LP of a batch and projections onto its solutions' faces, on tensors.

Nothing here waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.driver import RESERVED, Machine
from dflearn.cuda.errors import NotHere
from dflearn.cuda.plan import MOST_ENTRIES, MOST_ROWS, Plan
from dflearn.program import Program

SCRATCH = 2**30  # bytes of all blocks together
THREADS, MANY_THREADS = 256, 512
MANY_COLUMNS = 8  # columns for each row, from which on vectors are most of the work
MOST_TOGETHER = 4
NEAR_SCRATCH = 3  # blocks that a multiprocessor holds at least, where scratch lies in fast memory


class BlockAnswer(NamedTuple):
    """One row per instance, as `kernels.smoothed.SmoothedAnswer`; status as of `solvers.base.Status`."""

    y: Tensor
    w: Tensor
    inside: Tensor
    in_force: Tensor
    objective: Tensor
    residual: Tensor
    status: Tensor
    newton_steps: Tensor
    interior_steps: Tensor


class BlockRows:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order, on one device.

    Attributes:
        plan, module: what the kernels walk through, and the kernels.
        spilled: the share of the factor that does not fit into a block's fast memory.
    """

    def __init__(self, program: Program, machine: Machine, device: torch.device, threads: int | None = None) -> None:
        self.program, self.form, self.device = program, program.equality_form(), device
        matrix = self.form.rows_without_slacks()
        if matrix.shape[0] >= MOST_ROWS:
            raise NotHere(f"it has {matrix.shape[0]} rows, and blocks take up to {MOST_ROWS - 1}")
        block, whole = machine.fast_memory
        if threads is None:
            threads = MANY_THREADS if matrix.shape[1] > MANY_COLUMNS * matrix.shape[0] else THREADS
        self.plan = Plan(matrix, self.form.is_inequality, threads=threads, warp=machine.warp)
        sizes, shared = self.plan.fitting(block, whole // NEAR_SCRATCH - RESERVED if NEAR_SCRATCH else 0)
        if sizes["far"] and threads < MANY_THREADS and machine.warp > 1:  # one block has the whole multiprocessor
            self.plan = Plan(matrix, self.form.is_inequality, threads=MANY_THREADS, warp=machine.warp)
            sizes, shared = self.plan.fitting(block)
        if not sizes["panel_at"] or self.plan.panel >= MOST_ENTRIES:
            raise NotHere(
                f"its factor of {self.plan.m} rows and {self.plan.panel} numbers is too large for a block of this GPU"
            )
        self.far, self.spilled = sizes["far"], sizes["far"] / max(self.plan.panel, 1)
        together = max(1, min(whole // (shared + RESERVED), MOST_TOGETHER))
        self.module = machine.load(self.plan.threads, together, sizes, self.plan.fields(), shared)
        self.scratch = 0 if sizes["scratch_at"] else self.plan.scratch
        self.order = torch.from_numpy(self.plan.order).to(device)
        self.scale = torch.from_numpy(self.plan.scale).to(device)
        self.back = torch.from_numpy(np.argsort(self.plan.order)).to(device)
        self.one = torch.ones(1, dtype=torch.float64, device=device)

    # -- rows of the program and of the plan ----------------------------------------------------------------------

    def right_hand_side(self, rows: Tensor) -> Tensor:
        """Right-hand sides of the program's rows `(·, m)` → of the plan's."""
        return rows.index_select(-1, self.order) * self.scale

    def ordered(self, rows: Tensor) -> Tensor:
        """Something about each row of the program `(·, m)`, in the plan's order."""
        return rows.index_select(-1, self.order)

    def inwards(self, y: Tensor) -> Tensor:
        """Multipliers of the program's rows `(·, m)` → of the plan's."""
        return y.index_select(-1, self.order) / self.scale

    def outwards(self, y: Tensor) -> Tensor:
        """Multipliers of the plan's rows `(·, m)` → of the program's."""
        return (y * self.scale).index_select(-1, self.back)

    # -- kernels --------------------------------------------------------------------------------------------------

    def _launch(self, kernel: str, count: int, *arguments: Tensor | float | None) -> None:
        if not count:
            return
        room = SCRATCH // (8 * (self.scratch + self.far) + 1)
        blocks = max(1, min(count, self.module.slots(kernel), room))
        numbers = {"dtype": torch.float64, "device": self.device}
        scratch = torch.empty(blocks * self.scratch, **numbers) if self.scratch else None
        far = torch.empty(blocks * self.far, **numbers) if self.far else None
        counter = torch.zeros(1, dtype=torch.int32, device=self.device)
        self.module.launch(kernel, blocks, count, counter, scratch, far, *arguments)

    def solve(
        self, c: Tensor, mu: Tensor, r: Tensor, lower: Tensor, upper: Tensor, starts: Tensor | None, tolerance: float
    ) -> BlockAnswer:
        """min cᵀw + (μ/2)‖w‖²: c `(count, n)`; mu `(count or 1,)`, r `(count or 1, m)`, bounds `(count or 1, n)`; float64.

        starts: multipliers `(count, m)`, not finite where none are known. Rows are the plan's.
        """
        count, n, m = len(c), self.plan.n, self.plan.m
        numbers = {"dtype": torch.float64, "device": self.device}
        answer = BlockAnswer(
            torch.empty(count, m, **numbers),
            torch.empty(count, n, **numbers),
            torch.empty(count, n, dtype=torch.uint8, device=self.device),
            torch.empty(count, m, dtype=torch.uint8, device=self.device),
            torch.empty(count, **numbers),
            torch.empty(count, **numbers),
            torch.empty(count, dtype=torch.int8, device=self.device),
            torch.empty(count, dtype=torch.int32, device=self.device),
            torch.empty(count, dtype=torch.int32, device=self.device),
        )
        lines = (c, mu, r, lower, upper, starts)
        c, mu, r, lower, upper, starts = (part if part is None else part.contiguous() for part in lines)  # type: ignore[assignment]
        self._launch(
            "smoothed_solve", count, tolerance, c, mu, int(len(mu) > 1), r, m * (len(r) > 1), lower, n * (len(lower) > 1),
            upper, n * (len(upper) > 1), starts, *answer,
        )  # fmt: skip
        return answer

    def project(self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor | None = None) -> Tensor:
        """factor · P v, as of `layers.rows.SmoothedRows.project`: v `(count, n)` in float64, factor `(count or 1,)`."""
        out, factor = torch.empty_like(v, memory_format=torch.contiguous_format), self.one if factor is None else factor
        arguments = inside, in_force, v.contiguous(), factor, int(len(factor) > 1), out, None
        self._launch("smoothed_project", len(v), *arguments)
        return out

    def prices(self, inside: Tensor, in_force: Tensor, v: Tensor) -> Tensor:
        """(dw/dr)ᵀ v `(count, m)` for the program's rows, as of `layers.rows.SmoothedRows.prices`."""
        out = torch.empty(len(v), self.plan.m, dtype=torch.float64, device=self.device)
        self._launch("smoothed_project", len(v), inside, in_force, v.contiguous(), self.one, 0, None, out)
        return self.outwards(out)
