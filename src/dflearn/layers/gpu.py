"""`Smoothed` on a GPU: costs, faces and starts stay there, and nothing waits for it.

Kernels answer with a status per instance. Where a gradient is wanted, statuses are polled before the next solve, or when someone
asks (`watch`). Otherwise, and from the first instance on that the kernels did not finish, a solve waits for them, and the CPU
finishes those instances.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.cuda.watch import Watch
from dflearn.engine.smoothed.gpu import DOUBLE, Alarmed, BlockAnswer, Costs, SmoothedBlocks
from dflearn.errors import SolverError
from dflearn.layers.base import as_rows, symmetric
from dflearn.program import Instance, Objective, Program
from dflearn.solvers.base import Solution, Status, check_costs

if TYPE_CHECKING:
    from dflearn.engine.smoothed.cpu import SmoothedRows

OPTIMAL = int(Status.OPTIMAL)
PRECISIONS = (torch.float64, torch.float32)  # that the kernels read


class SmoothedLayer(Protocol):
    """What `answer_on_gpu` reads of `Smoothed`."""

    objective: Objective
    program: Program
    watch: Watch
    tolerance: float
    start_width: int

    @property
    def mu(self) -> float: ...

    @property
    def rows(self) -> SmoothedRows: ...


class BlockFace(NamedTuple):
    """The faces that the solutions w of a batch lie on. factor: −1/μ.

    objective: whose S leads on from the costs c to y; `None` where gradients end at c. costs: how the kernels do that.
    """

    blocks: SmoothedBlocks
    inside: Tensor
    in_force: Tensor
    factor: Tensor
    watch: Watch
    w: Tensor
    instance: Instance | None
    objective: Objective | None = None
    costs: Costs | None = None

    def backward(self, gradient: Tensor, decision: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient, `(*batch, n)` → `(*batch, p)`, in differentiable operations: on a face its projection is constant."""
        waits = torch.is_grad_enabled() or self.watch.waiting
        if self.costs is not None and self.objective is not None and not waits:
            return self._projected(gradient, self.costs)
        back = symmetric(gradient, decision, self._to_costs)
        return back if self.objective is None else self.objective.transpose(back)

    def side_gradients(self, gradient: Tensor, _: Tensor) -> dict[str, Tensor]:
        """By name, (dw/d side)ᵀ gradient, `(count, k)`."""
        v, change = gradient.detach().reshape(len(self.w), -1).to(DOUBLE), self.blocks.change
        v = v if change is None else change.costs(v)
        out, off = self.blocks.prices(self.inside, self.in_force, v)
        for i, _x, prices in self._left(v, off):
            out[i] = prices
        instance = Instance() if self.instance is None else self.instance
        sides = instance if change is None else change.instance(instance) or instance
        found = self.blocks.side_gradients(sides, self.inside, self.w, v, self.blocks.outwards(out))
        return found if change is None else change.side_gradients(found)

    def tensors(self) -> tuple[Tensor, ...]:
        """inside, in_force and μ."""
        return self.inside, self.in_force, -1 / self.factor

    def _to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        change = self.blocks.change
        if change is None:
            return self._projected(gradient, None)
        return change.decision(self._projected(change.costs(gradient), None)).to(gradient)  # type: ignore[no-any-return]

    def _projected(self, gradient: Tensor, costs: Costs | None) -> Tensor:
        v = gradient.detach()
        v = (v if v.dtype in PRECISIONS else v.to(DOUBLE)).reshape(self.inside.shape)
        out, off = self.blocks.project(self.inside, self.in_force, v, self.factor, costs)
        for i, x, _ in self._left(v, off):
            out[i] = (self.factor * x).to(out)
        return (out if gradient.ndim == 2 else out.reshape(*gradient.shape[:-1], out.shape[-1])).to(gradient)

    def _left(self, v: Tensor, off: Alarmed) -> Iterator[tuple[int, Tensor, Tensor]]:
        """P v and prices of the instances that the kernel left, if the layer waits for them; else the watch is told."""
        if not self.watch.waiting:
            self.watch.begin(*off)
            return
        status = off.status
        if (status.is_cuda and torch.cuda.is_current_stream_capturing()) or not bool(status.any()):
            return
        from dflearn.engine.hard.face import projected

        matrix = self.blocks.plan.matrix
        for i in status.nonzero().squeeze(1).tolist():
            free, on = (part[i].cpu().numpy().nonzero()[0] for part in (self.inside, self.in_force))
            x, z = v.new_zeros(v.shape[1], dtype=DOUBLE), v.new_zeros(self.blocks.plan.m, dtype=DOUBLE)
            own, prices = projected(matrix[on][:, free].toarray(), v[i].cpu().double().numpy()[free])
            x[free], z[on] = torch.from_numpy(own).to(x), torch.from_numpy(prices).to(x)
            yield i, x, z


def answer_on_gpu(
    layer: SmoothedLayer,
    blocks: SmoothedBlocks,
    y: Tensor,
    origin: Tensor,
    instance: Instance | None,
    start: Tensor | None,
    training: bool,
) -> tuple[Solution, BlockFace]:
    """`Smoothed.answer` where the costs are.

    A training step does not wait for the answer, unless an earlier one had instances that the kernels did not finish; while a
    graph is captured, nothing does.
    """
    has_d = instance is not None and instance.d is not None
    given = origin is y and blocks.takes_y and not has_d and y.dtype in PRECISIONS  # the kernels make c of y
    if given or origin is not y:
        costs = origin.detach()
    else:
        costs = layer.objective.vector(y.detach().double(), instance)
    batch, watch, change, mu, own = costs.shape[:-1], layer.watch, blocks.change, layer.mu, instance
    if change is not None:
        layer.program.sides(instance, batch.numel())  # checks the instance, in the user's words
        costs, own, mu = change.costs(costs), change.instance(instance), 1.0
    c = (costs if given else costs.double()).reshape(batch.numel(), costs.shape[-1])
    start_rows = None if start is None else start.detach().reshape(len(c), layer.start_width)
    captured = costs.is_cuda and torch.cuda.is_current_stream_capturing()
    if not captured:
        watch.mark()
    through, wants_start = blocks.costs if given else None, start is not None
    answer = blocks.solve(c, mu, own, start_rows, layer.tolerance, costs=through, multipliers=wants_start)
    # From here on the device works.
    if not captured:
        _complain(watch.end())
    slow = blocks.no.expand(len(c))
    deferred = captured or (training and not watch.waiting)
    if deferred:
        watch.begin(answer.status, answer.alarm)
    elif bool((answer.status != OPTIMAL).any()):
        if given:
            costs = layer.objective.vector(costs.double(), instance)
        slow = _finish(layer, blocks, costs, mu, own, answer)
    factor = blocks.weights(mu)[1]
    face = BlockFace(blocks, answer.inside, answer.in_force, factor, watch, answer.w, instance, costs=through)
    decision = answer.decision if change is None else change.decision(answer.decision)
    solution = Solution(
        decision=decision.reshape(*batch, layer.program.n).to(y.dtype),
        status=answer.status.reshape(batch),
        objective=answer.objective.reshape(batch),
        bound=answer.bound.reshape(batch),
        start=None if answer.y is None else blocks.outwards(answer.y).reshape(*batch, layer.start_width),
        residual=answer.residual.reshape(batch),
        fallback=slow.reshape(batch),
        deferred=deferred,
    )
    return solution, face


def _complain(codes: list[int]) -> None:
    """Report what the last solve left unfinished, whose statuses nobody asked for before the weights moved."""
    if not codes:
        return
    left = sum(code != OPTIMAL for code in codes)
    text = f"{left} of {len(codes)} instances of the last solve on the GPU were not finished, and had no right gradient through this layer"
    if int(Status.INFEASIBLE) in codes:
        place = codes.index(int(Status.INFEASIBLE))
        error = SolverError(f"{text}. Instance {place} is INFEASIBLE: {Status.INFEASIBLE.message}")
        error.status = codes
        raise error
    warnings.warn(f"{text}; from now on solves wait, and the CPU finishes such instances", RuntimeWarning, stacklevel=6)


def _finish(
    layer: SmoothedLayer,
    blocks: SmoothedBlocks,
    costs: Tensor,
    mu: float,
    instance: Instance | None,
    answer: BlockAnswer,
) -> Tensor:
    """Let the CPU finish what the kernels left; which of these Clarabel had to solve. An error if costs or sides are the reason."""
    from dflearn.engine.smoothed.cpu import finish  # imports numba

    check_costs(costs, Objective(costs.shape[-1]))
    rows = layer.rows if blocks.change is None else blocks.change.rows
    index = (answer.status != OPTIMAL).nonzero().squeeze(1)
    here, sides = index.cpu().numpy(), rows.program.sides(instance, len(answer.status))
    rows.right_hand_side(sides)  # checks those of all instances, by their numbers
    sides, weight = sides.rows(here), np.array([mu])
    c = as_rows(costs.detach().reshape(len(answer.status), -1)[index], len(here), np.float64)
    nothing = np.full((len(here), layer.start_width), np.nan)  # so that multipliers come as those of the program's rows
    part = rows.solve(rows.data(c, weight, sides), nothing, layer.tolerance)
    status, alone, _ = finish(rows, c, weight, sides, part, layer.tolerance)
    in_force = np.empty_like(part.in_force)
    in_force[:, rows.factor.order] = part.in_force
    bound = np.where(status, -np.inf, part.objective)
    blocks.replace(answer, index, status, (part.w, part.inside, part.objective, bound, part.residual), in_force, part.y)
    slow = torch.zeros(len(answer.status), dtype=torch.bool, device=costs.device)
    slow[index] = torch.from_numpy(alone).to(slow.device)
    return slow
