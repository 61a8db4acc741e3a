"""The smoothed LP on a GPU: batches of it, and projections onto the faces of its solutions, on tensors of the device.

`prepare` makes the plan of a program, `solve` answers a batch, `project` and `prices` lead gradients back. Nothing here waits for the
device.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.engine.cuda.driver import RESERVED, Machine, Module, Shape, gpu
from dflearn.engine.cuda.nvrtc import NotHere
from dflearn.engine.cuda.plan import MOST_ENTRIES, MOST_ROWS, Plan
from dflearn.engine.smoothed.quadratic import Substitution
from dflearn.program import Instance, Objective, Program
from dflearn.program.arrays import LinearMap
from dflearn.program.equality_form import CONTRADICTION
from dflearn.program.sides import Side

DOUBLE = torch.float64
SCRATCH = 2**30  # bytes of all blocks together
# Of threads there are about as many as a quarter of the columns, or half of the rows; the most where one block has a
# multiprocessor to itself, since part of its factor does not fit. Measured: docs/how-to/gpu.md.
LEAST_THREADS, MANY_THREADS, ALL_THREADS = 128, 512, 1024
# Threads of a multiprocessor, and with them registers of each: more where a factor of several levels makes them wait for each
# other, and where blocks are large.
BUSY, WAITING, MANY_TOGETHER = 512, 1024, 1536
ALARMS = 256  # launches with an alarm of their own
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


class Alarmed(NamedTuple):
    """A status for each instance, and an alarm as of `BlockAnswer`."""

    status: Tensor
    alarm: np.ndarray


class SmoothedBlocks:
    """A program on one device: its kept equalities and its inequalities, scaled to length one and in elimination order.

    Attributes:
        plan: what the kernels walk through.
        change: of the variables w into those of the kernels, for a quadratic objective.
        costs: how the kernels make c of y; `None`: c is y, if the kernels take y at all (`takes_y`).
        threads, wide: of a block; of one that has a multiprocessor to itself.
        together: how many blocks a multiprocessor holds at most.
        spilled: the share of the factor that does not fit into a block's fast memory.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        device: torch.device,
        threads: int | None = None,
        change: Substitution | None = None,
    ) -> None:
        self.change, self.device = change, device
        self.program = program if change is None else change.program
        program = self.program
        self.form = program.equality_form()
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
        self.order, self.scale, self.back = (
            torch.from_numpy(part).to(device)
            for part in (self.plan.order, self.plan.scale, np.argsort(self.plan.order))
        )
        own, form, objective = program.own_sides, self.form, program.objective
        self._own = {name: self._constant(part) for name, part in own.parts().items()}
        self._own_right = self._right_hand_side(self._constant(form.right_hand_side(own)))
        self._kept, self._dropped = (torch.from_numpy(part).to(device) for part in (form.kept, form.dropped))
        self._implied = LinearMap(form.combination) if len(form.dropped) else None
        self._implied_sizes = LinearMap(abs(form.combination)) if len(form.dropped) else None
        self._matrix, self._mu = LinearMap(form.rows_without_slacks()), dict[float, tuple[Tensor, Tensor]]()
        plain = objective.S is None and not objective.d.any()
        self.costs = None if plain else Costs.of(objective, device)
        self.takes_y = change is None and (plain or self.costs is not None)
        # In memory of the host that the device writes to, so that nothing need be copied where all went well.
        self._alarms = torch.zeros(ALARMS, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._rung, self._turn = self._alarms.numpy(), itertools.count()
        self._alarms_at = self._alarms.data_ptr()
        self.one = torch.ones(1, dtype=DOUBLE, device=device)
        self.no = torch.zeros(1, dtype=torch.bool, device=device)

    @classmethod
    def prepare(cls, program: Program, device: torch.device, change: Substitution | None = None) -> SmoothedBlocks:
        """The program on a CUDA device; `NotHere` says why it cannot be there. change: of its variables, with Q."""
        index = torch.cuda.current_device() if device.index is None else device.index
        return cls(program, gpu(index), torch.device(device.type, index), change=change)

    def __str__(self) -> str:
        spilled = f", {self.spilled:.0%} of the factor in global memory" if self.spilled else ""
        wider = f", {self.wide} for each of up to {self.multiprocessors}" if self.wide > self.threads else ""
        return f"{self.device}, {self.threads} threads for each instance{wider}{spilled}"

    def _constant(self, part: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(np.atleast_2d(part), np.float64, order="C")).to(self.device)

    def weights(self, mu: float) -> tuple[Tensor, Tensor]:
        """μ and −1/μ as the kernels take them."""
        kept = self._mu.get(mu)
        if kept is None:
            kept = self.one * mu, self.one * (-1 / mu)
            self._mu = {mu: kept}
        return kept

    # -- rows of the program and of the plan ----------------------------------------------------------------------

    def _right_hand_side(self, rows: Tensor) -> Tensor:
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

    def replace(
        self,
        answer: BlockAnswer,
        index: Tensor,
        status: np.ndarray,
        parts: tuple[np.ndarray, ...],
        in_force: np.ndarray,
        y: np.ndarray,
    ) -> None:
        """Write other answers to the instances at `index`: w, inside, objective, bound and residual; rows in force and multipliers, of
        the program's rows."""
        mine = (answer.w, answer.inside, answer.objective, answer.bound, answer.residual, answer.status)
        for own, theirs in zip(mine, (*parts, status), strict=True):
            own[index] = torch.from_numpy(theirs).to(self.device)
        answer.in_force[index] = self.ordered(torch.from_numpy(in_force).to(self.device))
        if answer.y is not None:
            answer.y[index] = self.inwards(torch.from_numpy(y).to(self.device))
        answer.decision[index] = answer.w[index].to(answer.decision)

    def side(self, name: Side, instance: Instance | None, count: int) -> Tensor:
        """b, h, lower or upper: `(count, k)`, or `(1, k)` where it is the program's."""
        value = None if instance is None else getattr(instance, name)
        return (
            self._own[name] if value is None else value.detach().to(self.device, DOUBLE).reshape(count, value.shape[-1])
        )

    def _sides(self, instance: Instance | None, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """r of the plan's rows, lower and upper; and which instances cannot be, where they have sides of their own."""
        if instance is None:
            return self._own_right, self._own["lower"], self._own["upper"], None
        given = instance.present()
        self.program.check_shapes(given, count)
        lower, upper = self.side("lower", instance, count), self.side("upper", instance, count)
        if not given.keys() - {"d"}:
            return self._own_right, lower, upper, None
        wrong = ~((lower <= upper) & (lower < torch.inf) & (upper > -torch.inf)).all(1)
        if "b" not in given and "h" not in given:
            return self._own_right, lower, upper, wrong
        b, h = self.side("b", instance, count), self.side("h", instance, count)
        kept = b.index_select(1, self._kept)
        parts = [part.expand(count, -1) for part in (kept, h)]
        rows = torch.cat(parts, 1)
        wrong = wrong | ~torch.isfinite(rows).all(1)
        if self._implied is not None and self._implied_sizes is not None and "b" in given:
            rest = b.index_select(1, self._dropped)
            size = rest.abs() + self._implied_sizes(kept.abs())
            wrong = wrong | ~((self._implied(kept) - rest).abs() <= CONTRADICTION * size).all(1)
        return self._right_hand_side(rows), lower, upper, wrong

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
        mu: float,
        instance: Instance | None,
        start: Tensor | None,
        tolerance: float,
        *,
        costs: Costs | None = None,
        multipliers: bool = True,
    ) -> BlockAnswer:
        """min cᵀw + (μ/2)‖w‖²: c `(count, n)` in float64 or float32, or y `(count, p)` with `costs`.

        start: multipliers of the program's rows `(count, m)`, not finite where none are known. multipliers: whether y, of the
        plan's rows, is wanted. An instance whose numbers make no sense is `FAILED`; the CPU then says why.
        """
        count, n, m, device = c.shape[0], self.plan.n, self.plan.m, self.device
        r, lower, upper, wrong = self._sides(instance, count)
        if wrong is not None:
            c = torch.where(wrong[:, None], torch.nan, c)
        single = c.dtype is torch.float32
        assert single or c.dtype is DOUBLE, "kernels read float64, and costs in float32 too"
        weight = self.weights(mu)[0]
        starts = None if start is None else self.inwards(start.to(device, DOUBLE)).contiguous()
        c, r, lower, upper = c.contiguous(), r.contiguous(), lower.contiguous(), upper.contiguous()
        w = torch.empty((count, n), dtype=DOUBLE, device=device)
        decision = torch.empty((count, n), dtype=torch.float32, device=device) if single else w
        face = torch.empty((count, n + m), dtype=torch.uint8, device=device)
        numbers = torch.empty((4, count), dtype=DOUBLE, device=device)
        status = torch.empty(count, dtype=torch.int8, device=device)
        y = torch.empty((count, m), dtype=DOUBLE, device=device) if multipliers else None
        place = self._place()
        through = (
            (0, 0, 0) if costs is None else (costs.source.data_ptr(), costs.slope.data_ptr(), costs.offset.data_ptr())
        )
        self._launch(
            "smoothed_solve", count, 0 if multipliers else count * m, tolerance, c.data_ptr(), single, c.shape[1], *through, weight.data_ptr(), 0,
            r.data_ptr(), m * (r.shape[0] > 1), lower.data_ptr(), n * (lower.shape[0] > 1), upper.data_ptr(),
            n * (upper.shape[0] > 1), 0 if starts is None else starts.data_ptr(), OWN if y is None else y.data_ptr(), w.data_ptr(),
            decision.data_ptr() if single else 0, face.data_ptr(), numbers.data_ptr(), status.data_ptr(), self._alarms_at + 4 * place,
        )  # fmt: skip
        inside, in_force = face.split_with_sizes((n, m), 1)
        objective, bound, residual, steps = numbers.unbind()
        alarm = self._rung[place : place + 1]
        return BlockAnswer(y, w, inside, in_force, objective, bound, residual, status, steps, alarm, decision)

    def project(
        self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor | None = None, costs: Costs | None = None
    ) -> tuple[Tensor, Alarmed]:
        """factor · P v, as of `engine.smoothed.cpu.Face.on`: v `(count, n)` in float64 or float32, factor `(count or 1,)`.

        And a status for each instance: `FAILED` where that is not on the face, whose rows are nearly dependent. With `costs`,
        c being made of y so, a gradient in y `(count, p)`.
        """
        wide = self.plan.n if costs is None else costs.p
        out = torch.empty((v.shape[0], wide), dtype=v.dtype, device=self.device)
        factor = self.one if factor is None else factor
        return out, self._on_faces(inside, in_force, v, factor, out.data_ptr(), 0, costs)

    def prices(self, inside: Tensor, in_force: Tensor, v: Tensor) -> tuple[Tensor, Alarmed]:
        """The prices z `(count, m)` of the plan's rows, as of `engine.smoothed.cpu.Face.prices`; a status as of `project`."""
        out = torch.empty((v.shape[0], self.plan.m), dtype=DOUBLE, device=self.device)
        return out, self._on_faces(inside, in_force, v, self.one, 0, out.data_ptr(), None)

    def side_gradients(self, instance: Instance, inside: Tensor, w: Tensor, v: Tensor, z: Tensor) -> dict[str, Tensor]:
        """By name, (dw/d side)ᵀ v at w `(count, n)`, z being the prices of the program's rows for v."""
        count, kept = len(w), len(self._kept)
        lower, upper = self.side("lower", instance, count), self.side("upper", instance, count)
        b = torch.zeros(count, self.program.A.shape[0], dtype=DOUBLE, device=self.device)
        b.index_copy_(1, self._kept, z[:, :kept])
        pressed = torch.where(inside > 0, 0.0, v - self._matrix.transpose(z))
        low, high = (w - lower).abs(), (w - upper).abs()
        share = torch.where(low < high, 1.0, torch.where(low > high, 0.0, 0.5)).to(DOUBLE)
        return {"b": b, "h": z[:, kept:], "lower": share * pressed, "upper": (1 - share) * pressed}

    def _on_faces(
        self, inside: Tensor, in_force: Tensor, v: Tensor, factor: Tensor, out: int, prices: int, costs: Costs | None
    ) -> Alarmed:
        inside, in_force, v = _by_rows(inside), _by_rows(in_force), _by_rows(v)
        count, place = v.shape[0], self._place()
        off = torch.empty(count, dtype=torch.int8, device=self.device)
        through = (0, 0, self.plan.n) if costs is None else (costs.source.data_ptr(), costs.slope.data_ptr(), costs.p)
        self._launch(
            "smoothed_project", count, 0, inside.data_ptr(), inside.stride(0), in_force.data_ptr(), in_force.stride(0), v.data_ptr(),
            v.dtype is torch.float32, v.stride(0), *through, factor.data_ptr(), int(factor.shape[0] > 1), out, prices, off.data_ptr(),
            self._alarms_at + 4 * place,
        )  # fmt: skip
        return Alarmed(off, self._rung[place : place + 1])


def _by_rows(part: Tensor) -> Tensor:
    """With the numbers of a row side by side, rows anywhere."""
    return part if part.stride(1) == 1 or part.shape[1] < 2 else part.contiguous()


def threads_for(m: int, n: int) -> int:
    """Threads of a block: a power of two."""
    wanted = max(n / 4, m / 2, 1)
    return int(min(max(2 ** round(math.log2(wanted)), LEAST_THREADS), MANY_THREADS))
