"""A program's rows as blocks want them: the smoothed LP of a batch and projections onto its solutions' faces, on tensors.

Nothing here waits for the device.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.cuda.driver import RESERVED, Machine, Module, Shape
from dflearn.cuda.errors import NotHere
from dflearn.cuda.plan import MOST_ENTRIES, MOST_ROWS, Plan
from dflearn.program import Objective, Program

DOUBLE = torch.float64
SCRATCH = 2**30  # bytes of all blocks together
# Of threads there are about as many as a quarter of the columns, or half of the rows; the most where one block has a
# multiprocessor to itself, since part of its factor does not fit. Measured: docs/gpu.md.
LEAST_THREADS, MANY_THREADS, ALL_THREADS = 128, 512, 1024
# Threads of a multiprocessor, and with them registers of each: more where a factor of several levels makes them wait for each
# other, and where blocks are large.
BUSY, WAITING, MANY_TOGETHER = 512, 1024, 1536
ALARMS = 256  # launches whose alarms are told apart
OWN = -1  # an address that is found when memory is
# Where a multiprocessor has one instance, it has wider blocks; where it has two, more registers for each thread.
WIDER, FEW = 2, 2


class Costs(NamedTuple):
    """How the kernels make c of predicted costs y: c_j = slope_j y_source(j) + offset_j; source −1: none. Each y is the source of one c.

    Shapes `(n,)`; `p` of costs.
    """

    source: Tensor
    slope: Tensor
    offset: Tensor
    p: int

    @classmethod
    def of(cls, objective: Objective, device: torch.device) -> Costs | None:
        """Of S y + d, where each row of S has one entry at most, and each column one."""
        n = objective.n
        S = sp.eye_array(n, format="csr") if objective.S is None else objective.S
        if (np.diff(S.indptr) > 1).any() or sorted(S.indices.tolist()) != list(range(objective.p)):
            return None
        source, slope, filled = np.full(n, -1, np.int32), np.zeros(n), np.diff(S.indptr) == 1
        source[filled], slope[filled] = S.indices, S.data
        there = [torch.from_numpy(part).to(device) for part in (source, slope, np.array(objective.d, np.float64))]
        return cls(there[0], there[1], there[2], objective.p)


class BlockAnswer(NamedTuple):
    """One row per instance, as `kernels.smoothed.SmoothedAnswer`; status as of `solvers.base.Status`, bound −∞ unless optimal.

    y is `None` where nobody wants it.
    """

    y: Tensor | None
    w: Tensor
    inside: Tensor
    in_force: Tensor
    objective: Tensor
    bound: Tensor
    residual: Tensor
    status: Tensor
    steps: Tensor  # (count,), in each number two of 32 bits: steps of Newton's method, and interior ones
    alarm: np.ndarray  # (1,): 1, once the device is through, where a status is not OPTIMAL
    decision: Tensor  # w in the precision of the costs

    @property
    def newton_steps(self) -> Tensor:
        return self.steps.view(torch.int32)[0::2]

    @property
    def interior_steps(self) -> Tensor:
        return self.steps.view(torch.int32)[1::2]


class Told(NamedTuple):
    """A status for each instance, and an alarm as of `BlockAnswer`."""

    status: Tensor
    alarm: np.ndarray


class BlockRows:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order, on one device.

    Attributes:
        plan: what the kernels walk through.
        inequality: which of the plan's rows are inequalities `(m,)`.
        threads, wide: of a block; of one that has a multiprocessor to itself.
        together: how many blocks a multiprocessor holds at most.
        spilled: the share of the factor that does not fit into a block's fast memory.
    """

    def __init__(self, program: Program, machine: Machine, device: torch.device, threads: int | None = None) -> None:
        self.program, self.form, self.device = program, program.equality_form(), device
        matrix = self.form.rows_without_slacks()
        if matrix.shape[0] >= MOST_ROWS:
            raise NotHere(f"it has {matrix.shape[0]} rows, and blocks take up to {MOST_ROWS - 1}")
        block, whole = machine.fast_memory
        usual = threads or threads_for(*matrix.shape)
        # Sums, and so answers, are the same in blocks of either size.
        self.threads, self.wide = usual, threads or min(WIDER * usual, ALL_THREADS)
        self.plan = Plan(matrix, self.form.is_inequality, threads=self.threads, warp=machine.warp, most=self.wide)
        sizes, shared = self.plan.fitting(block)
        if sizes["far"] and threads is None:
            self.threads = self.wide = ALL_THREADS
            self.plan = Plan(matrix, self.form.is_inequality, threads=self.wide, warp=machine.warp)
            sizes, shared = self.plan.fitting(block)
        if not sizes["panel_at"] or self.plan.panel >= MOST_ENTRIES:
            raise NotHere(
                f"its factor of {self.plan.m} rows and {self.plan.panel} numbers is too large for a block of this GPU"
            )
        self.far, self.spilled = sizes["far"], sizes["far"] / max(self.plan.panel, 1)
        resident = WAITING if sizes["levels"] > 1 else BUSY
        if self.threads == MANY_THREADS:
            resident = max(resident, MANY_TOGETHER)
        self.together = max(1, min(whole // (shared + RESERVED), resident // self.threads))
        fields = self.plan.fields()
        self._load = lambda shape: machine.load(shape, sizes, fields, shared)
        self._modules: dict[Shape, Module] = {}
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
        """The kernels, compiled for blocks as so many instances want them."""
        if count <= self.multiprocessors:
            shape = Shape(self.wide, 1, 1)
        else:
            few = count <= FEW * self.multiprocessors
            together = min(FEW, self.together) if few else self.together
            shape = Shape(self.threads, self.wide // self.threads, together)
        if shape not in self._modules:
            self._modules[shape] = self._load(shape)
        return self._modules[shape]

    # -- kernels --------------------------------------------------------------------------------------------------

    def _launch(self, kernel: str, count: int, more: int, *arguments: float) -> None:
        """more: numbers of memory that the kernel alone wants, instead of the argument `OWN`."""
        if not count:
            return
        module, size = self.module(count), self.plan.scratch
        blocks = max(1, min(count, module.slots(kernel), SCRATCH // (8 * (size + self.far) + 1)))
        # One piece of memory for all: the stream gives it back when the kernel is through.
        scratch = torch.empty(blocks * (size + self.far) + more, dtype=DOUBLE, device=self.device)
        counter = torch.zeros(1, dtype=torch.int32, device=self.device) if blocks < count else None
        at = scratch.data_ptr()
        if more:
            own = at + 8 * blocks * (size + self.far)
            arguments = tuple(own if one is OWN else one for one in arguments)
        module.launch(
            kernel, blocks, count, 0 if counter is None else counter.data_ptr(), at, at + 8 * blocks * size, *arguments
        )

    def _place(self) -> int:
        """Of an alarm that is off, for one launch; a launch that comes `ALARMS` later has the same one."""
        place = next(self._turn) % ALARMS
        self._rung[place] = 0
        return place

    def solve(
        self,
        c: Tensor,
        mu: Tensor,
        r: Tensor,
        lower: Tensor,
        upper: Tensor,
        starts: Tensor | None,
        tolerance: float,
        *,
        costs: Costs | None = None,
        multipliers: bool = True,
    ) -> BlockAnswer:
        """min cᵀw + (μ/2)‖w‖²: c `(count, n)`; mu `(count or 1,)`, r `(count or 1, m)`, bounds `(count or 1, n)`; float64.

        starts: multipliers `(count, m)`, not finite where none are known. Rows are the plan's. c may be in float32; with `costs`
        it is y `(count, p)`. multipliers: whether y is wanted.
        """
        count, n, m, device = c.shape[0], self.plan.n, self.plan.m, self.device
        single = c.dtype is torch.float32
        assert single or c.dtype is DOUBLE, "kernels read float64, and costs in float32 too"
        assert mu.dtype is r.dtype is lower.dtype is upper.dtype is DOUBLE, "kernels read float64"
        c, r, lower, upper = c.contiguous(), r.contiguous(), lower.contiguous(), upper.contiguous()
        starts = None if starts is None else starts.contiguous()
        w = torch.empty((count, n), dtype=DOUBLE, device=device)
        decision = torch.empty((count, n), dtype=torch.float32, device=device) if single else w
        face = torch.empty((count, n + m), dtype=torch.uint8, device=device)
        told = torch.empty((4, count), dtype=DOUBLE, device=device)
        status = torch.empty(count, dtype=torch.int8, device=device)
        y = torch.empty((count, m), dtype=DOUBLE, device=device) if multipliers else None
        place = self._place()
        through = (
            (0, 0, 0) if costs is None else (costs.source.data_ptr(), costs.slope.data_ptr(), costs.offset.data_ptr())
        )
        self._launch(
            "smoothed_solve", count, 0 if multipliers else count * m, tolerance, c.data_ptr(), single, c.shape[1], *through, mu.data_ptr(),
            int(mu.shape[0] > 1), r.data_ptr(), m * (r.shape[0] > 1), lower.data_ptr(), n * (lower.shape[0] > 1), upper.data_ptr(),
            n * (upper.shape[0] > 1), 0 if starts is None else starts.data_ptr(), OWN if y is None else y.data_ptr(), w.data_ptr(),
            decision.data_ptr() if single else 0, face.data_ptr(), told.data_ptr(), status.data_ptr(), self._alarms_at + 4 * place,
        )  # fmt: skip
        inside, in_force = face.split_with_sizes((n, m), 1)
        objective, bound, residual, steps = told.unbind()
        alarm = self._rung[place : place + 1]
        return BlockAnswer(y, w, inside, in_force, objective, bound, residual, status, steps, alarm, decision)

    def project(
        self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor | None = None, costs: Costs | None = None
    ) -> tuple[Tensor, Told]:
        """factor · P v, as of `layers.rows.SmoothedRows.project`: v `(count, n)` in float64 or float32, factor `(count or 1,)`.

        And a status for each instance: `FAILED` where that is not on the face, whose rows are nearly dependent. With `costs`,
        c being made of y so, a gradient in y `(count, p)`.
        """
        wide = self.plan.n if costs is None else costs.p
        out = torch.empty((v.shape[0], wide), dtype=v.dtype, device=self.device)
        factor = self.one if factor is None else factor
        return out, self._on_faces(inside, in_force, v, factor, out.data_ptr(), 0, costs)

    def prices(self, inside: Tensor, in_force: Tensor, v: Tensor) -> tuple[Tensor, Told]:
        """The prices z `(count, m)` of the plan's rows, as of `layers.rows.SmoothedRows.prices`; a status as of `project`."""
        out = torch.empty((v.shape[0], self.plan.m), dtype=DOUBLE, device=self.device)
        return out, self._on_faces(inside, in_force, v, self.one, 0, out.data_ptr(), None)

    def _on_faces(
        self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor, out: int, prices: int, costs: Costs | None
    ) -> Told:
        inside, in_force, v = _by_rows(inside), _by_rows(in_force), _by_rows(v)
        count, place = v.shape[0], self._place()
        off = torch.empty(count, dtype=torch.int8, device=self.device)
        through = (0, 0, self.plan.n) if costs is None else (costs.source.data_ptr(), costs.slope.data_ptr(), costs.p)
        self._launch(
            "smoothed_project", count, 0, inside.data_ptr(), inside.stride(0), in_force.data_ptr(), in_force.stride(0), v.data_ptr(),
            v.dtype is torch.float32, v.stride(0), *through, factor.data_ptr(), int(factor.shape[0] > 1), out, prices, off.data_ptr(),
            self._alarms_at + 4 * place,
        )  # fmt: skip
        return Told(off, self._rung[place : place + 1])


def _by_rows(part: Tensor) -> Tensor:
    """With the numbers of a row side by side, rows anywhere."""
    return part if part.stride(1) == 1 or part.shape[1] < 2 else part.contiguous()


def threads_for(m: int, n: int) -> int:
    """Threads of a block: a power of two."""
    wanted = max(n / 4, m / 2, 1)
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_THREADS), MANY_THREADS))
