"""The norm as regularizer: the search for the squared problem that has the same solution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dflearn.engine.certify import OPTIMAL
from dflearn.engine.smoothed.cpu import Finished, SmoothedRows, finish
from dflearn.engine.status import Status
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.engine.smoothed.tiles import SmoothedAnswer

ROOT_STEPS = 100  # of the search for κ
LARGEST = 1e250  # κ beyond it would overflow
ELSEWHERE = (1e-3, 1e-6, 1e3)  # times the usual κ: where to go on if nothing is found there, nor at μ/‖w‖


def solve_norm(
    rows: SmoothedRows, c: np.ndarray, mu: float, sides: Sides, start: np.ndarray | None, tolerance: float
) -> tuple[SmoothedAnswer, np.ndarray, Finished]:
    """The answer, κ (infinite where w = 0), and how the instances ended.

    w solves the squared problem with κ where κ‖w(κ)‖ = μ: the root of a function of κ that never falls. Newton's method
    finds it, with the derivative ‖w‖ − wᵀP w/‖w‖, inside a bracket. Two projections of −c say whether there is a root:
    w = 0 is optimal if it is feasible and the projection onto the cone of directions from it is no longer than μ; there
    is no optimum if the projection onto the cone of directions without end is longer than μ.
    """
    count = len(c)
    with np.errstate(over="ignore"):
        usual = 0.1 * np.maximum(np.abs(c).max(1, initial=0.0), mu) / rows.decision_sizes(sides, count)
    low, high, kappa, reach = np.zeros(count), np.full(count, np.inf), usual.copy(), np.full(count, 10.0)
    answer = rows.empty_answer(count)
    status, slow, reason = (
        np.full(count, int(Status.FEASIBLE), np.int8),
        np.zeros(count, bool),
        np.full(count, "", object),
    )
    answer.y[:] = np.nan
    if start is not None:
        known = np.isfinite(start).all(1) & (start[:, -1] > 0)
        # What ended far up or down may have its root in between now.
        kappa[known] = np.clip(start[known, -1], 1e-6 * usual[known], 1e6 * usual[known])
        answer.y[known] = start[known, :-1]
    above, below = rows.origin_is_feasible(sides, count), rows.may_be_endless(sides, count)  # to be looked at
    active, tried = np.arange(count), np.zeros(count, int)
    for _ in range(ROOT_STEPS):
        part = rows.solve(rows.data(c[active], kappa[active], sides.rows(active)), answer.y[active], tolerance)
        end = finish(rows, c[active], kappa[active], sides.rows(active), part, tolerance)
        status[active], slow[active], reason[active] = (
            end.status,
            slow[active] | end.slow,
            "" if end.reason is None else end.reason,
        )
        for whole, own in zip(answer, part, strict=True):
            whole[active] = own
        with np.errstate(over="ignore"):
            norm = np.linalg.norm(part.w, axis=1)
        gap = kappa[active] * norm - mu
        answer.residual[active] = np.maximum(part.residual, np.abs(gap) / mu)
        solved = status[active] == int(Status.OPTIMAL)
        # Where nothing was found at a κ, far from the root as it may be, others are tried: first that of the decision at hand.
        unsolved = np.isin(status[active], (Status.FEASIBLE, Status.FAILED)) & (tried[active] <= len(ELSEWHERE))
        lost, elsewhere = active[unsolved], usual[active] * np.append(1.0, ELSEWHERE)[tried[active] * unsolved]
        with np.errstate(divide="ignore"):
            own = mu / norm
        inside = (tried[active] == 0) & (own > low[active]) & (own < high[active])
        elsewhere = np.where(inside, own, elsewhere)[unsolved]
        going = solved & ~(np.abs(gap) <= tolerance * mu)
        low[active], high[active] = (
            np.where(solved & (gap <= 0), kappa[active], low[active]),
            np.where(solved & (gap > 0), kappa[active], high[active]),
        )
        going &= high[active] - low[active] > 1e-15 * kappa[active]
        up = active[going & np.isinf(high[active]) & above[active]]
        down = active[going & (low[active] == 0) & below[active]]
        above[up], below[down] = False, False
        if len(up):
            zero = up[rows.pull_from_origin(c[up], sides.rows(up)) <= mu * (1 + tolerance)]
            answer.w[zero], answer.residual[zero], kappa[zero] = 0.0, 0.0, np.inf
        if len(down):
            endless = down[rows.pull_without_end(c[down], sides.rows(down)) > mu * (1 + tolerance)]
            answer.w[endless], status[endless] = np.nan, int(Status.UNBOUNDED)
        going &= np.isfinite(kappa[active]) & (status[active] == int(Status.OPTIMAL))
        if not going.any() and not len(lost):
            break
        kappa[lost], tried[lost] = elsewhere, tried[lost] + 1
        part, norm, gap, active = part.rows(going), norm[going], gap[going], active[going]
        inside = rows.project(part.inside, part.in_force, part.w)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = kappa[active] - gap / (norm - (part.w * inside).sum(1) / norm)
            least = np.where(low[active] > 0, low[active], kappa[active] / reach[active])
            most = np.where(np.isinf(high[active]), kappa[active] * reach[active], high[active])
            open_end = np.isinf(high[active]) | (low[active] == 0)
            middle = np.where(open_end, np.where(gap > 0, least, most), np.sqrt(low[active]) * np.sqrt(high[active]))
        reach[active] = np.where(open_end, np.minimum(reach[active] ** 2, 1e8), reach[active])
        usable = np.isfinite(newton) & (newton > least) & (newton < most)
        kappa[active] = np.minimum(np.where(usable, newton, middle), LARGEST)
        active = np.concatenate([active, lost])
    wrong = (answer.residual > OPTIMAL) & (status == int(Status.OPTIMAL))
    status[wrong], reason[wrong] = int(Status.FEASIBLE), "no weight κ was found with κ‖w‖ = μ"
    objective = (c * answer.w).sum(1) + mu * np.linalg.norm(answer.w, axis=1)
    return answer._replace(objective=objective), kappa, Finished(status, slow, reason)
