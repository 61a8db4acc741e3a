"""A batch of `Smoothed` on a GPU: launch, and wait or not; what the kernels leave goes to the CPU."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import SolverError
from dflearn.layers.base import as_rows, with_gradient
from dflearn.layers.blocks import BlockFace, SmoothedBlocks
from dflearn.layers.norm import solve_norm
from dflearn.layers.norm_on_gpu import NormFace, solve_norm_on_gpu
from dflearn.layers.sides import moved_by
from dflearn.program import Instance, Objective
from dflearn.solvers.base import Solution, Status, check_costs

if TYPE_CHECKING:
    from dflearn.cuda.rows import BlockAnswer
    from dflearn.layers.smoothed import Smoothed

OPTIMAL = int(Status.OPTIMAL)
PRECISIONS = (torch.float64, torch.float32)  # that the kernels read
LARGEST = float(np.finfo(np.float64).max)  # a start is known by its numbers


def solve_on_gpu(
    layer: Smoothed, blocks: SmoothedBlocks, y: Tensor, instance: Instance | None, start: Tensor | None
) -> Solution:
    """`Smoothed._solve` where the costs y `(*batch, p)` are."""
    wanted = layer.wanted_sides(instance)
    # The way back leads from w to y at once, unless the instance's d wants a gradient too.
    own_d = None if instance is None else instance.d
    origin = layer.objective.vector(y.double(), instance) if own_d is not None and own_d.requires_grad else y
    given = blocks.takes_y and own_d is None and layer.regularizer == "squared" and y.dtype in PRECISIONS
    if given or origin is not y:
        costs = origin.detach()
    else:
        costs = layer.objective.vector(y.detach().double(), instance)
    training = torch.is_grad_enabled() and (origin.requires_grad or bool(wanted))
    solution, face = answer_on_gpu(layer, blocks, costs, instance, start, training, y.dtype, given=given)
    if origin is y:
        face = face._replace(objective=layer.objective)
    decision = with_gradient(origin, solution.decision, face.way_back, face.way_back_again)
    if wanted and instance is not None:
        assert isinstance(face, BlockFace)  # `wanted_sides` refuses the norm
        way_back = blocks.side_gradients(face, instance, list(wanted))
        decision = moved_by(decision, way_back, *wanted.values())
    return solution.with_decision(decision)


def answer_on_gpu(
    layer: Smoothed,
    blocks: SmoothedBlocks,
    costs: Tensor,
    instance: Instance | None,
    start: Tensor | None,
    training: bool,
    dtype: torch.dtype,
    *,
    given: bool = False,
) -> tuple[Solution, BlockFace | NormFace]:
    """The answer for c `(*batch, n)`, without a gradient, its decision of that dtype; and the faces that it lies on.

    given: whether the kernels are to make c of y, `(*batch, p)`, instead.

    A training step does not wait for the answer, unless an earlier one had instances that the kernels did not finish; while a
    graph is captured, nothing does.
    """
    batch, n = costs.shape[:-1], layer.program.n
    count = batch.numel()
    plain = len(batch) == 1  # most calls: nothing to reshape
    c, start_rows = costs if given else costs.double(), None if start is None else start.detach()
    if not plain:
        c = c.reshape(count, c.shape[-1])
        start_rows = None if start_rows is None else start_rows.reshape(count, layer.start_width)
    captured = costs.is_cuda and torch.cuda.is_current_stream_capturing()
    if not captured:
        layer.watch.mark()
    through = blocks.costs if given else None
    if layer.regularizer == "norm":
        waits = not captured and (not training or layer.watch.waiting)
        answer, kappa = solve_norm_on_gpu(blocks, c, layer.mu, instance, start_rows, layer.tolerance, waits)
    else:
        answer, kappa = (
            blocks.solve(
                c, layer.mu, instance, start_rows, layer.tolerance, costs=through, multipliers=start is not None
            ),
            None,
        )
    # From here on the device works.
    if not captured:
        _complain(layer.watch.end())
    slow = blocks.nothing(count)
    deferred = captured or (training and not layer.watch.waiting)
    if deferred:
        layer.watch.begin(answer.status, answer.alarm if kappa is None else None)
    elif bool((answer.status != OPTIMAL).any()):
        if given:
            costs = layer.objective.vector(costs.double(), instance)
        slow = _finish(layer, blocks, costs, instance, answer, kappa)
    factor = blocks.weights(layer.mu)[1] if kappa is None else -1 / kappa
    block = BlockFace(blocks.rows, answer.inside, answer.in_force, factor, layer.watch, answer.w, costs=through)
    new_start = None if start is None or answer.y is None else blocks.rows.outwards(answer.y)
    if new_start is not None and kappa is not None:
        new_start = torch.cat([new_start, kappa.clamp(max=LARGEST)[:, None]], 1)
    told = (answer.status, answer.objective, answer.bound, answer.residual, slow)
    status, objective, bound, residual, slow = told if plain else (part.reshape(batch) for part in told)
    solution = Solution(
        decision=(answer.decision if plain else answer.decision.reshape(*batch, n)).to(dtype),
        status=status,
        objective=objective,
        bound=bound,
        start=None if new_start is None else new_start.reshape(*batch, layer.start_width),
        residual=residual,
        fallback=slow,
        deferred=deferred,
    )
    return solution, block if kappa is None else NormFace(block, layer.mu)


def _complain(codes: list[int]) -> None:
    """Say what the last solve left unfinished, whose statuses nobody asked for before the weights moved."""
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
    layer: Smoothed,
    blocks: SmoothedBlocks,
    costs: Tensor,
    instance: Instance | None,
    answer: BlockAnswer,
    kappa: Tensor | None,
) -> Tensor:
    """What the kernels left, by the CPU's own ways; which took the slowest of these. An error where costs or sides are the reason."""
    check_costs(costs, Objective(costs.shape[-1]))
    count = len(answer.status)
    index = (answer.status != OPTIMAL).nonzero().squeeze(1)
    here = index.cpu().numpy()
    sides = layer.program.sides(instance, count)
    layer.rows.right_hand_side(sides)  # checks those of all instances, by their numbers
    sides = sides.rows(here)
    c, mu = as_rows(costs.detach().reshape(count, -1)[index], len(here), np.float64), np.array([layer.mu])
    if kappa is not None:
        part, own, (status, alone, _) = solve_norm(layer, c, sides, None)
        kappa[index] = torch.from_numpy(own).to(kappa)
    else:
        nothing = np.full(
            (len(here), layer.start_width), np.nan
        )  # so that multipliers come as those of the program's rows
        part = layer.rows.solve(layer.rows.data(c, mu, sides), nothing, layer.tolerance)
        status, alone, _ = layer.finish(c, mu, sides, part)
    blocks.replace(answer, index, part, status, layer.rows)
    slow = torch.zeros(count, dtype=torch.bool, device=costs.device)
    slow[index] = torch.from_numpy(alone).to(slow.device)
    return slow
