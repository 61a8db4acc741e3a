"""The norm as regularizer on a GPU: the search of `norm` for κ, all instances at once, by kernels for the squared one.

A training step makes a fixed number of steps and waits for nothing; instances that need more of them, and those without an
optimum, are the CPU's. What is found is not solved again: costs that are no numbers tell the kernels so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.cuda.rows import BlockAnswer
from dflearn.layers.base import ACCEPTED_RESIDUAL, symmetric
from dflearn.layers.blocks import DOUBLE, BlockFace, SmoothedBlocks
from dflearn.layers.norm import ROOT_STEPS
from dflearn.layers.rows import CONE_ACCEPTED, CONE_TOLERANCE
from dflearn.solvers.base import Status

if TYPE_CHECKING:
    from dflearn.program import Instance, Objective

STEPS = 12  # of the search, where nothing may wait for it
OPTIMAL, FAILED = int(Status.OPTIMAL), int(Status.FAILED)


def solve_norm_on_gpu(
    blocks: SmoothedBlocks,
    c: Tensor,
    mu: float,
    instance: Instance | None,
    start: Tensor | None,
    tolerance: float,
    waits: bool,
) -> tuple[BlockAnswer, Tensor]:
    """The answer, and κ `(count,)`, infinite where w = 0. As `SmoothedBlocks.solve` with the norm; start `(count, m + 1)`.

    waits: whether it may wait for the device, and take as many steps as there need be.
    """
    rows, count, m = blocks.rows, len(c), blocks.rows.plan.m
    r, lower, upper, wrong = blocks.sides(instance, count)
    if wrong is not None:
        c = torch.where(wrong[:, None], torch.nan, c)
    usual = 0.1 * c.abs().amax(1).clamp(min=mu) / _decision_sizes(r, lower, upper)
    kappa, multipliers = usual, c.new_full((count, m), torch.nan)
    if start is not None:
        given = start.to(c.device, DOUBLE)
        known = torch.isfinite(given).all(1) & (given[:, -1] > 0)
        kappa = torch.where(known, given[:, -1].clamp(1e-6 * usual, 1e6 * usual), usual)
        multipliers = torch.where(known[:, None], rows.inwards(given[:, :-1]), torch.nan)
    zero = _origin_is_optimal(blocks, c, mu, r, lower, upper, tolerance)
    numbers, w = torch.zeros((4, count), dtype=DOUBLE, device=c.device), torch.zeros_like(c)
    found = BlockAnswer(
        multipliers,
        w,
        torch.zeros(c.shape, dtype=torch.uint8, device=c.device),
        torch.zeros((count, m), dtype=torch.uint8, device=c.device),
        numbers[0],
        numbers[1],
        numbers[2],
        torch.where(zero, OPTIMAL, FAILED).to(torch.int8),
        numbers[3],
        np.ones(1),
        w,
    )
    low, high, reach, done = (
        torch.zeros_like(usual),
        torch.full_like(usual, torch.inf),
        torch.full_like(usual, 10.0),
        zero,
    )
    for _ in range(ROOT_STEPS if waits else STEPS):
        if waits and bool(done.all()):
            break
        left = torch.where(done[:, None], torch.nan, c)
        part = rows.solve(left, kappa, r, lower, upper, multipliers, tolerance)
        assert part.y is not None
        multipliers = _kept(done, multipliers, part.y)
        solved, norm = part.status == OPTIMAL, torch.linalg.vector_norm(part.w, dim=1)
        gap = kappa * norm - mu
        low = torch.where(solved & ~done & (gap <= 0), kappa, low)
        high = torch.where(solved & ~done & (gap > 0), kappa, high)
        reached = solved & ((gap.abs() <= tolerance * mu) | (high - low <= 1e-15 * kappa))
        part = part._replace(residual=torch.maximum(part.residual, gap.abs() / mu))
        part = part._replace(
            status=torch.where(reached & (part.residual <= ACCEPTED_RESIDUAL), OPTIMAL, FAILED).to(torch.int8)
        )
        found = found._replace(
            y=multipliers,
            w=_kept(done, found.w, part.w),
            inside=_kept(done, found.inside, part.inside),
            in_force=_kept(done, found.in_force, part.in_force),
            residual=_kept(done, found.residual, part.residual),
            status=_kept(done, found.status, part.status),
        )
        done = done | reached | ~solved
        along, _ = rows.project(part.inside, part.in_force, part.w)
        newton = kappa - gap / (norm - (part.w * along).sum(1) / norm)
        least = torch.where(low > 0, low, kappa / reach)
        most = torch.where(torch.isinf(high), kappa * reach, high)
        open_end = torch.isinf(high) | (low == 0)
        middle = torch.where(open_end, torch.where(gap > 0, least, most), low.sqrt() * high.sqrt())
        reach = torch.where(open_end, reach.square().clamp(max=1e8), reach)
        usable = torch.isfinite(newton) & (newton > least) & (newton < most)
        kappa = torch.where(done, kappa, torch.where(usable, newton, middle))
    optimal = found.status == OPTIMAL
    w = torch.where(optimal[:, None], found.w, 0.0)
    objective = (torch.where(optimal[:, None], c, 0.0) * w).sum(1) + mu * torch.linalg.vector_norm(w, dim=1)
    inside, in_force = (torch.where(optimal[:, None], part, 0) for part in (found.inside, found.in_force))
    bound = torch.where(optimal, objective, -torch.inf)
    found = found._replace(w=w, objective=objective, bound=bound, inside=inside, in_force=in_force, decision=w)
    return found, torch.where(zero, torch.inf, kappa)


def _kept(done: Tensor, old: Tensor, new: Tensor) -> Tensor:
    return torch.where(done if old.ndim == 1 else done[:, None], old, new)


def _decision_sizes(r: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """As `SmoothedRows.decision_sizes`."""
    forced = r.abs().amax(1) if r.shape[1] else r.new_zeros(len(r))
    ends = [torch.where(torch.isfinite(part), part.abs(), 0.0).amax(1) for part in (lower, upper)]
    sizes = torch.where(forced > 0, forced, torch.maximum(*ends))
    return torch.where(sizes > 0, sizes, 1.0)


def _origin_is_optimal(
    blocks: SmoothedBlocks, c: Tensor, mu: float, r: Tensor, lower: Tensor, upper: Tensor, tolerance: float
) -> Tensor:
    """Whether w = 0 is feasible, and −c pulls no more than μ into the directions in which one may leave it; `(count,)`."""
    if r is blocks.own_right_hand_side and not blocks.origin_is_feasible:
        return torch.zeros(len(c), dtype=torch.bool, device=c.device)
    rows = torch.where(blocks.rows.inequality, r >= 0, r == 0).all(1)
    feasible = rows & (lower <= 0).all(1) & (upper >= 0).all(1)
    length = torch.linalg.vector_norm(c, dim=1)
    length = torch.where(length == 0, 1.0, length)
    low, high = torch.where(lower < 0, -torch.inf, 0.0), torch.where(upper > 0, torch.inf, 0.0)
    cone = torch.where(r > 0, 2.0, 0.0)  # no row of length one gets to 2
    cone, low, high = (part.to(DOUBLE) for part in (cone, low, high))
    answer = blocks.rows.solve(c, length, cone, low, high, None, CONE_TOLERANCE)
    pull = length * torch.linalg.vector_norm(answer.w, dim=1)
    zero: Tensor = feasible & (answer.residual <= CONE_ACCEPTED) & (pull <= mu * (1 + tolerance))
    return zero


class NormFace(NamedTuple):
    """The faces that the solutions lie on, as of `smoothed.Face` with the norm; the block's factor is −1/κ."""

    block: BlockFace
    mu: float
    objective: Objective | None = None

    def way_back(self, gradient: Tensor) -> Tensor:
        """(dw/dy)ᵀ gradient, `(*batch, n)` → `(*batch, p)`."""
        back = self._to_costs(gradient)
        return back if self.objective is None else self.objective.transpose(back)

    def _to_costs(self, gradient: Tensor) -> Tensor:
        """(dw/dc)ᵀ gradient, `(*batch, n)` → `(*batch, n)`."""
        face, w = self.block, self.block.w
        out = face.to_costs(gradient.detach().to(DOUBLE)).reshape(w.shape)
        along = face._replace(factor=face.rows.one).to_costs(w)
        room = (w - along).square().sum(1)
        share = torch.where(room > 0, (w * out).sum(1) / torch.where(room > 0, room, 1.0), 0.0)
        return (out + share[:, None] * along).reshape(gradient.shape).to(gradient)

    def way_back_again(self, gradient: Tensor, decision: Tensor) -> Tensor:
        """The same in differentiable operations: P is constant on a face, and κ = μ/‖w‖."""
        v, w = gradient.double(), decision.double()
        project = self.block._replace(factor=self.block.rows.one).to_costs
        out = -w.norm(dim=-1, keepdim=True) / self.mu * symmetric(v, w, project)
        along = symmetric(w, w, project)
        room = (w - along).square().sum(-1, keepdim=True)
        there = room > 0
        share = torch.where(there, (w * out).sum(-1, keepdim=True) / torch.where(there, room, 1.0), 0.0)
        back: Tensor = (out + share * along).to(gradient)
        return back if self.objective is None else self.objective.transpose(back)
