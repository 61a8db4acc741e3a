"""A program's rows as blocks want them: the smoothed LP of a batch and projections onto its solutions' faces, on tensors.

Nothing here waits for the device.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.driver import RESERVED, Machine, Module
from dflearn.cuda.errors import NotHere
from dflearn.cuda.plan import MOST_ENTRIES, MOST_ROWS, Plan
from dflearn.program import Program

DOUBLE = torch.float64
SCRATCH = 2**30  # bytes of all blocks together
# Of threads there are about as many as a quarter of the columns, or half of the rows; the most where one block has a
# multiprocessor to itself, since part of its factor does not fit. Measured: docs/gpu.md.
LEAST_THREADS, MANY_THREADS, ALL_THREADS = 128, 512, 1024
# Threads of a multiprocessor, and with them registers of each: more where a factor of several levels makes them wait for each
# other, and where blocks are large.
BUSY, WAITING, MANY_TOGETHER = 512, 1024, 1536
ALARMS = 256  # launches whose alarms are told apart
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
    alarm: np.ndarray  # (1,): 1, once the device is through, where a status is not OPTIMAL


class Told(NamedTuple):
    """A status for each instance, and an alarm as of `BlockAnswer`."""

    status: Tensor
    alarm: np.ndarray


class BlockRows:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order, on one device.

    Attributes:
        plan: what the kernels walk through.
        inequality: which of the plan's rows are inequalities `(m,)`.
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
        self.inequality = self.ordered(torch.from_numpy(np.asarray(self.form.is_inequality, bool)).to(device))
        # In memory of the host that the device writes to, so that nothing need be copied where all went well.
        self._alarms = torch.zeros(ALARMS, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._rung, self._turn = self._alarms.numpy(), itertools.count()
        self._alarms_at = self._alarms.data_ptr()
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

    def _launch(self, kernel: str, count: int, *arguments: float) -> None:
        if not count:
            return
        module, size = self.module(count), self.plan.scratch
        blocks = max(1, min(count, module.slots(kernel), SCRATCH // (8 * (size + self.far) + 1)))
        # One piece of memory for both: the stream gives it back when the kernel is through.
        scratch = torch.empty(blocks * (size + self.far), dtype=DOUBLE, device=self.device)
        counter = torch.zeros(1, dtype=torch.int32, device=self.device) if blocks < count else None
        at = scratch.data_ptr()
        module.launch(
            kernel, blocks, count, 0 if counter is None else counter.data_ptr(), at, at + 8 * blocks * size, *arguments
        )

    def _place(self) -> int:
        """Of an alarm that is off, for one launch; a launch that comes `ALARMS` later has the same one."""
        place = next(self._turn) % ALARMS
        self._rung[place] = 0
        return place

    def solve(
        self, c: Tensor, mu: Tensor, r: Tensor, lower: Tensor, upper: Tensor, starts: Tensor | None, tolerance: float
    ) -> BlockAnswer:
        """min cᵀw + (μ/2)‖w‖²: c `(count, n)`; mu `(count or 1,)`, r `(count or 1, m)`, bounds `(count or 1, n)`; float64.

        starts: multipliers `(count, m)`, not finite where none are known. Rows are the plan's.
        """
        count, n, m, device = c.shape[0], self.plan.n, self.plan.m, self.device
        assert c.dtype is mu.dtype is r.dtype is lower.dtype is upper.dtype is DOUBLE, "kernels read float64"
        c, r, lower, upper = c.contiguous(), r.contiguous(), lower.contiguous(), upper.contiguous()
        starts = None if starts is None else starts.contiguous()
        # Three pieces of memory, cut up once the device works: w; y and the face; what is told of each instance.
        w = torch.empty(count, n, dtype=DOUBLE, device=device)
        face = torch.empty(count * (m + (n + m + 7) // 8), dtype=DOUBLE, device=device)
        told = torch.empty(5 * count, dtype=DOUBLE, device=device)
        face_at, told_at, place = face.data_ptr(), told.data_ptr(), self._place()
        inside_at, steps_at = face_at + 8 * count * m, told_at + 24 * count
        self._launch(
            "smoothed_solve", count, tolerance, c.data_ptr(), mu.data_ptr(), int(mu.shape[0] > 1), r.data_ptr(), m * (r.shape[0] > 1),
            lower.data_ptr(), n * (lower.shape[0] > 1), upper.data_ptr(), n * (upper.shape[0] > 1),
            0 if starts is None else starts.data_ptr(), face_at, w.data_ptr(), inside_at, inside_at + count * n, told_at,
            told_at + 8 * count, told_at + 16 * count, steps_at + 8 * count, steps_at, steps_at + 4 * count, self._alarms_at + 4 * place,
        )  # fmt: skip
        numbers, whole = told[: 3 * count].view(3, count), told[3 * count :].view(torch.int32)
        bits = face[count * m :].view(torch.uint8)
        return BlockAnswer(
            y=face[: count * m].view(count, m),
            w=w,
            inside=bits[: count * n].view(count, n),
            in_force=bits[count * n : count * (n + m)].view(count, m),
            objective=numbers[0],
            bound=numbers[1],
            residual=numbers[2],
            status=whole[2 * count :].view(torch.int8)[:count],
            newton_steps=whole[:count],
            interior_steps=whole[count : 2 * count],
            alarm=self._rung[place : place + 1],
        )

    def project(self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor | None = None) -> tuple[Tensor, Told]:
        """factor · P v, as of `layers.rows.SmoothedRows.project`: v `(count, n)` in float64, factor `(count or 1,)`.

        And a status for each instance: `FAILED` where that is not on the face, whose rows are nearly dependent.
        """
        out = torch.empty(v.shape, dtype=DOUBLE, device=self.device)
        return out, self._on_faces(inside, in_force, v, self.one if factor is None else factor, out.data_ptr(), 0)

    def prices(self, inside: Tensor, in_force: Tensor, v: Tensor) -> tuple[Tensor, Told]:
        """The prices z `(count, m)` of the plan's rows, as of `layers.rows.SmoothedRows.prices`; a status as of `project`."""
        out = torch.empty(v.shape[0], self.plan.m, dtype=DOUBLE, device=self.device)
        return out, self._on_faces(inside, in_force, v, self.one, 0, out.data_ptr())

    def _on_faces(self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor, out: int, prices: int) -> Told:
        count, inside, in_force, v = v.shape[0], inside.contiguous(), in_force.contiguous(), v.contiguous()
        off, place = torch.empty(count, dtype=torch.int8, device=self.device), self._place()
        self._launch(
            "smoothed_project", count, inside.data_ptr(), in_force.data_ptr(), v.data_ptr(), factor.data_ptr(),
            int(factor.shape[0] > 1), out, prices, off.data_ptr(), self._alarms_at + 4 * place,
        )  # fmt: skip
        return Told(off, self._rung[place : place + 1])


def threads_for(m: int, n: int) -> int:
    """Threads of a block: a power of two."""
    wanted = max(n / 4, m / 2, 1)
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_THREADS), MANY_THREADS))
