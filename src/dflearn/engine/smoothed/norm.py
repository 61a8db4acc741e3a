"""The norm as regularizer: min cᵀw + μ‖w‖₂, by a search for the squared problem that has the same solution."""

from __future__ import annotations

import numpy as np

from dflearn.engine.certify import OPTIMAL
from dflearn.engine.smoothed.cpu import Answer, Face, Finished, SmoothedRows, finish, fixed
from dflearn.engine.smoothed.tiles import SmoothedAnswer, SmoothedData
from dflearn.engine.status import Status
from dflearn.program.sides import Sides

ROOT_STEPS = 100  # of the search for κ
LARGEST = 1e250  # κ beyond it would overflow
LARGEST_START = float(np.finfo(np.float64).max)  # a start is known by its numbers
ELSEWHERE = (1e-3, 1e-6, 1e3)  # times the usual κ: where to go on if nothing is found there, nor at μ/‖w‖
CONE_TOLERANCE = 1e-12
CONE_ACCEPTED = 1e-9


class NormRows:
    """The smoothed solver with the norm as regularizer."""

    def __init__(self, rows: SmoothedRows) -> None:
        self.rows, self.face = rows, rows.face

    def answer(self, c: np.ndarray, mu: float, sides: Sides, start: np.ndarray | None, tolerance: float) -> Answer:
        """min cᵀw + μ‖w‖₂ for c `(count, n)`; start: that of an earlier answer, multipliers and κ, NaN where none."""
        answer, kappa, end = solve_norm(self.rows, c, mu, sides, start, tolerance)
        begin = answer.y if start is None else np.hstack([answer.y, np.minimum(kappa, LARGEST_START)[:, None]])
        return Answer.of(answer, begin, Face(self.rows, answer.inside, answer.in_force, np.array([mu])), end)


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
        usual = 0.1 * np.maximum(np.abs(c).max(1, initial=0.0), mu) / decision_sizes(rows, sides, count)
    low, high, kappa, reach = np.zeros(count), np.full(count, np.inf), usual.copy(), np.full(count, 10.0)
    answer = rows.empty_answer(count)
    status, slow = np.full(count, int(Status.FEASIBLE), np.int8), np.zeros(count, bool)
    reason = np.full(count, "", object)
    answer.y[:] = np.nan
    if start is not None:
        known = np.isfinite(start).all(1) & (start[:, -1] > 0)
        # What ended far up or down may have its root in between now.
        kappa[known] = np.clip(start[known, -1], 1e-6 * usual[known], 1e6 * usual[known])
        answer.y[known] = start[known, :-1]
    above, below = origin_is_feasible(rows, sides, count), may_be_endless(rows, sides, count)  # to be looked at
    active, tried = np.arange(count), np.zeros(count, int)
    for _ in range(ROOT_STEPS):
        part = rows.solve(rows.data(c[active], kappa[active], sides.rows(active)), answer.y[active], tolerance)
        end = finish(rows, c[active], kappa[active], sides.rows(active), part, tolerance)
        status[active], slow[active] = end.status, slow[active] | end.slow
        reason[active] = "" if end.reason is None else end.reason
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
        low[active] = np.where(solved & (gap <= 0), kappa[active], low[active])
        high[active] = np.where(solved & (gap > 0), kappa[active], high[active])
        going &= high[active] - low[active] > 1e-15 * kappa[active]
        up = active[going & np.isinf(high[active]) & above[active]]
        down = active[going & (low[active] == 0) & below[active]]
        above[up], below[down] = False, False
        if len(up):
            zero = up[pull_from_origin(rows, c[up], sides.rows(up)) <= mu * (1 + tolerance)]
            answer.w[zero], answer.residual[zero], kappa[zero] = 0.0, 0.0, np.inf
        if len(down):
            endless = down[pull_without_end(rows, c[down], sides.rows(down)) > mu * (1 + tolerance)]
            answer.w[endless], status[endless] = np.nan, int(Status.UNBOUNDED)
        going &= np.isfinite(kappa[active]) & (status[active] == int(Status.OPTIMAL))
        if not going.any() and not len(lost):
            break
        kappa[lost], tried[lost] = elsewhere, tried[lost] + 1
        part, norm, gap, active = part.rows(going), norm[going], gap[going], active[going]
        inside = Face(rows, part.inside, part.in_force, kappa).along(part.w)
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


def decision_sizes(rows: SmoothedRows, sides: Sides, count: int) -> np.ndarray:
    """How large decisions are by the right-hand sides, or else by the bounds, `(count,)`."""
    r, lower, upper = rows.lines(sides)
    forced = np.abs(r).max(1, initial=0.0)
    ends = [np.where(np.isfinite(part), np.abs(part), 0.0).max(1, initial=0.0) for part in (lower, upper)]
    sizes = np.where(forced > 0, forced, np.maximum(*ends))
    return np.broadcast_to(np.where(sizes > 0, sizes, 1.0), (count,))


def origin_is_feasible(rows: SmoothedRows, sides: Sides, count: int) -> np.ndarray:
    """Whether w = 0 satisfies all rows and bounds, `(count,)`."""
    r, lower, upper = rows.lines(sides)
    met = np.where(rows.is_inequality, r >= 0, r == 0).all(1)
    return np.broadcast_to(met & (lower <= 0).all(1) & (upper >= 0).all(1), (count,)).copy()


def may_be_endless(rows: SmoothedRows, sides: Sides, count: int) -> np.ndarray:
    """Whether some bound is missing, `(count,)`."""
    _, lower, upper = rows.lines(sides)
    return np.broadcast_to((np.isinf(lower) | np.isinf(upper)).any(1), (count,)).copy()


def pull_from_origin(rows: SmoothedRows, c: np.ndarray, sides: Sides) -> np.ndarray:
    """The length of the projection of −c onto the directions in which one may leave w = 0, `(count,)`."""
    r, lower, upper = rows.lines(sides)
    ends = np.where(lower < 0, -np.inf, 0.0), np.where(upper > 0, np.inf, 0.0)
    return _pull(rows, c, np.where(r > 0, 2.0, 0.0), *ends)[0]  # no row of length one gets to 2


def pull_without_end(rows: SmoothedRows, c: np.ndarray, sides: Sides) -> np.ndarray:
    """The length of the projection of −c onto the directions in which one may go on for ever, `(count,)`."""
    r, lower, upper = rows.lines(sides)
    ends = np.where(np.isinf(lower), -np.inf, 0.0), np.where(np.isinf(upper), np.inf, 0.0)
    pull, way = _pull(rows, c, np.zeros_like(r), *ends)
    # Where rounding leaves something of no projection at all, costs do not fall along it.
    with np.errstate(invalid="ignore", divide="ignore"):
        known: np.ndarray = np.minimum(pull, -(c * way).sum(1) / np.linalg.norm(way, axis=1))
    return known  # not a number where nothing is


def _pull(
    rows: SmoothedRows, c: np.ndarray, r: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The length of the projection of −c onto a cone, `(count,)`, and its direction, `(count, n)`."""
    length = np.linalg.norm(c, axis=1)
    length[length == 0] = 1.0
    data = SmoothedData(c, length, np.ascontiguousarray(r), fixed(lower), fixed(upper))
    answer = rows.solve(data, None, CONE_TOLERANCE)
    for i in np.flatnonzero(~(answer.residual <= CONE_ACCEPTED)):
        sides = np.take(r[i % len(r)] / rows.factor.scale, rows.places)[len(rows.form.kept) :]
        cone = Sides(np.zeros(rows.program.A.shape[0]), sides, lower[i % len(lower)], upper[i % len(upper)])
        guess = np.nan_to_num(np.clip(answer.w[i], cone.lower, cone.upper)), rows.prices_of_all(answer.y[i])
        result = rows.hard.solve(c[i], float(length[i]), cone, guess)
        if result.status == Status.OPTIMAL:
            answer.w[i], answer.residual[i] = result.w, 0.0
    # With μ = ‖c‖ the projection is of length one at most; where all methods failed, nothing is claimed.
    pull = np.where(answer.residual <= CONE_ACCEPTED, length * np.linalg.norm(answer.w, axis=1), np.nan)
    return pull, answer.w
