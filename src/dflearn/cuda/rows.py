"""A program's rows as blocks want them: the smoothed LP of a batch and projections onto its solutions' faces, on tensors.

Nothing here waits for the device.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.driver import RESERVED, Machine, Module
from dflearn.cuda.errors import NotHere
from dflearn.cuda.plan import MOST_ENTRIES, MOST_ROWS, Plan
from dflearn.program import Program

SCRATCH = 2**30  # bytes of all blocks together
# Of threads there are about as many as a quarter of the columns, or half of the rows; the most where one block has a
# multiprocessor to itself, since part of its factor does not fit. Measured: docs/gpu.md.
LEAST_THREADS, MANY_THREADS, ALL_THREADS = 128, 512, 1024
# Threads of a multiprocessor, and with them registers of each: more where a factor of several levels makes them wait for each
# other, and where blocks are large.
BUSY, WAITING, MANY_TOGETHER = 512, 1024, 1536
FEW = 2  # blocks on a multiprocessor, with more registers for each thread, where the batch is small


class BlockAnswer(NamedTuple):
    """One row per instance, as `kernels.smoothed.SmoothedAnswer`; status as of `solvers.base.Status`, bound −∞ unless optimal."""

    y: Tensor
    w: Tensor
    inside: Tensor
    in_force: Tensor
    objective: Tensor
    bound: Tensor
    residual: Tensor
    status: Tensor
    newton_steps: Tensor
    interior_steps: Tensor


class BlockRows:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order, on one device.

    Attributes:
        plan: what the kernels walk through.
        together: how many blocks a multiprocessor holds at most.
        spilled: the share of the factor that does not fit into a block's fast memory.
    """

    def __init__(self, program: Program, machine: Machine, device: torch.device, threads: int | None = None) -> None:
        self.program, self.form, self.device = program, program.equality_form(), device
        matrix = self.form.rows_without_slacks()
        if matrix.shape[0] >= MOST_ROWS:
            raise NotHere(f"it has {matrix.shape[0]} rows, and blocks take up to {MOST_ROWS - 1}")
        block, whole = machine.fast_memory
        self.plan = Plan(
            matrix, self.form.is_inequality, threads=threads or threads_for(*matrix.shape), warp=machine.warp
        )
        sizes, shared = self.plan.fitting(block)
        if sizes["far"] and threads is None:
            self.plan = Plan(matrix, self.form.is_inequality, threads=ALL_THREADS, warp=machine.warp)
            sizes, shared = self.plan.fitting(block)
        if not sizes["panel_at"] or self.plan.panel >= MOST_ENTRIES:
            raise NotHere(
                f"its factor of {self.plan.m} rows and {self.plan.panel} numbers is too large for a block of this GPU"
            )
        self.far, self.spilled = sizes["far"], sizes["far"] / max(self.plan.panel, 1)
        resident = WAITING if sizes["levels"] > 1 else BUSY
        if self.plan.threads == MANY_THREADS:
            resident = max(resident, MANY_TOGETHER)
        self.together = max(1, min(whole // (shared + RESERVED), resident // self.plan.threads))
        fields = self.plan.fields()
        self._load = lambda together: machine.load(self.plan.threads, together, sizes, fields, shared)
        self._modules: dict[int, Module] = {}
        self.multiprocessors = machine.multiprocessors
        self.module(0)
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

    def module(self, count: int) -> Module:
        """The kernels, compiled for as many blocks on a multiprocessor as so many instances make."""
        together = min(FEW, self.together) if count <= FEW * self.multiprocessors else self.together
        if together not in self._modules:
            self._modules[together] = self._load(together)
        return self._modules[together]

    # -- kernels --------------------------------------------------------------------------------------------------

    def _launch(self, kernel: str, count: int, *arguments: Tensor | float | None) -> None:
        if not count:
            return
        module, scratch_size = self.module(count), self.plan.scratch
        room = SCRATCH // (8 * (scratch_size + self.far) + 1)
        blocks = max(1, min(count, module.slots(kernel), room))
        numbers: Any = {"dtype": torch.float64, "device": self.device}
        scratch = torch.empty(blocks * scratch_size, **numbers)
        far = torch.empty(blocks * self.far, **numbers) if self.far else None
        counter = torch.zeros(1, dtype=torch.int32, device=self.device) if blocks < count else None
        module.launch(kernel, blocks, count, counter, scratch, far, *arguments)

    def solve(
        self, c: Tensor, mu: Tensor, r: Tensor, lower: Tensor, upper: Tensor, starts: Tensor | None, tolerance: float
    ) -> BlockAnswer:
        """min cᵀw + (μ/2)‖w‖²: c `(count, n)`; mu `(count or 1,)`, r `(count or 1, m)`, bounds `(count or 1, n)`; float64.

        starts: multipliers `(count, m)`, not finite where none are known. Rows are the plan's.
        """
        count, n, m = c.shape[0], self.plan.n, self.plan.m
        numbers: Any = {"dtype": torch.float64, "device": self.device}
        there: Any = {"device": self.device}
        objective, bound, residual = torch.empty(3, count, **numbers)
        newton, interior = torch.empty(2, count, dtype=torch.int32, **there)
        answer = BlockAnswer(
            torch.empty(count, m, **numbers),
            torch.empty(count, n, **numbers),
            torch.empty(count, n, dtype=torch.uint8, **there),
            torch.empty(count, m, dtype=torch.uint8, **there),
            objective,
            bound,
            residual,
            torch.empty(count, dtype=torch.int8, **there),
            newton,
            interior,
        )
        steps = [size * (part.shape[0] > 1) for part, size in ((mu, 1), (r, m), (lower, n), (upper, n))]
        starts = None if starts is None else starts.contiguous()
        self._launch(
            "smoothed_solve", count, tolerance, c.contiguous(), mu, steps[0], r.contiguous(), steps[1], lower.contiguous(), steps[2],
            upper.contiguous(), steps[3], starts, *answer,
        )  # fmt: skip
        return answer

    def project(
        self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """factor · P v, as of `layers.rows.SmoothedRows.project`: v `(count, n)` in float64, factor `(count or 1,)`.

        And a status for each instance: `FAILED` where that is not on the face, whose rows are nearly dependent.
        """
        out, factor = torch.empty_like(v, memory_format=torch.contiguous_format), self.one if factor is None else factor
        off = torch.empty(v.shape[0], dtype=torch.int8, device=self.device)
        arguments = inside, in_force, v.contiguous(), factor, int(factor.shape[0] > 1), out, None, off
        self._launch("smoothed_project", v.shape[0], *arguments)
        return out, off

    def prices(self, inside: Tensor, in_force: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The prices z `(count, m)` of the plan's rows, as of `layers.rows.SmoothedRows.prices`; a status as of `project`."""
        out = torch.empty(v.shape[0], self.plan.m, dtype=torch.float64, device=self.device)
        off = torch.empty(v.shape[0], dtype=torch.int8, device=self.device)
        self._launch("smoothed_project", v.shape[0], inside, in_force, v.contiguous(), self.one, 0, None, out, off)
        return out, off


def threads_for(m: int, n: int) -> int:
    """Threads of a block: a power of two."""
    wanted = max(n / 4, m / 2, 1)
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_THREADS), MANY_THREADS))
