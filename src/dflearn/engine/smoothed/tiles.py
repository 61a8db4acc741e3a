"""The smoothed LP for a batch, tile by tile: load, scale, solve, store.

The program is stated in `smoothed_lp`. Every instance is solved in units of its own, σ for decisions and γ for costs:

    w = σ v,   y = γ η,   c = γ c',   r, lower, upper = σ (r', lower', upper'),   μ' = μ σ/γ

Both are powers of two, so that the change of units rounds nothing, and nothing depends on the units that the user chose.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dflearn.engine.linear_algebra.lanes import (
    LANES,
    absolute,
    gather,
    get,
    inner,
    jit,
    load,
    maximum,
    minimum,
    put,
    spread,
    stage,
    store,
    tile_at,
    where,
)
from dflearn.engine.smoothed.interior_point import POINT_ZL, POINT_ZU, interior_point, interior_start
from dflearn.engine.smoothed.newton import FINISHED, dual_newton, finish_on_face, project, take_better
from dflearn.engine.smoothed.system import (
    BEFORE,
    FOUND,
    GAMMA,
    HEADS,
    IN_FORCE,
    INSIDE,
    INTERIOR_STEPS,
    KEPT_W,
    KEPT_Y,
    LEAST,
    LOWER,
    MU,
    NEWTON_STEPS,
    NOISE,
    PRICES,
    PROVEN,
    RESIDUAL,
    SIGMA,
    STATE,
    TODO,
    UPPER,
    VALUE,
    C,
    R,
    W,
    Y,
    column,
    column_at,
    in_force,
    measure,
    row,
    row_at,
    system_at,
    tile_of,
)

ENOUGH = 1e-7  # a residual up to this needs no other start
CONFIRMED = 2  # steps of Newton's method from the solution's face: at the right one a single step is exact
CLOSE, CLOSER, CLOSEST = 1e-3, 1e-4, 1e-6  # times its tolerance, where the face or Newton's method did not finish
WIDER = 100.0  # times its distance from the bounds, where it did not finish itself
NEAR, NEAR_PRICE = 0.1, 0.002  # from multipliers: its distance from the bounds, and the least multiplier
# How a batch is solved: by interior points from nothing; by Newton's method from the multipliers at hand, as long as that is
# quick; by interior points from there. CONE: interior points take all their steps, in the units at hand, and w becomes
# Mᵀy − z_l + z_u, a point inside the cone of what binds.
COLD, NEWTON, RESTART, CONE = 0, 1, 2, 3


class SmoothedData(NamedTuple):
    """One row per instance (or a single one, shared by all): c, lower, upper (·, n); r (·, m); mu (·,).

    c is of either dtype; all arithmetic is in float64.
    """

    c: np.ndarray
    mu: np.ndarray
    r: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class SmoothedAnswer(NamedTuple):
    """One row per instance.

    y: multipliers (count, m). w: decisions (count, n), in the dtype of c. inside: which variables lie strictly between
    their bounds, in_force: which rows bind (1 or 0). objective: cᵀw + (μ/2)‖w‖², residual as of `measure`, infeasible: 1
    where that is proven, and steps of each method (−1: not converged, −2: not run), (count,).
    """

    y: np.ndarray
    w: np.ndarray
    inside: np.ndarray
    in_force: np.ndarray
    objective: np.ndarray
    residual: np.ndarray
    infeasible: np.ndarray
    newton_steps: np.ndarray
    interior_steps: np.ndarray

    def rows(self, index: Any) -> SmoothedAnswer:
        """The answers to the instances at `index`."""
        return SmoothedAnswer(*(part[index] for part in self))

    @classmethod
    def empty(cls, count: int, n: int, m: int) -> SmoothedAnswer:
        """Residuals are infinite, no method has run, nothing is infeasible; the rest is not set."""
        y, w, objective, residual = np.empty((count, m)), np.empty((count, n)), np.empty(count), np.full(count, np.inf)
        inside, in_force = np.empty((count, n), np.uint8), np.empty((count, m), np.uint8)
        steps = np.full((2, count), -2)
        return cls(y, w, inside, in_force, objective, residual, np.zeros(count, np.uint8), *steps)


class Limits(NamedTuple):
    """The end of each method: at most so many steps, or a relative residual at or below its tolerance.

    patience: of Newton's method, see `dual_newton`.
    attempts: of the interior-point method, after the first: two from its last point, the others from other starts.
    cheap: whether an instance gets no further attempt once it used up its steps.
    """

    newton_steps: int
    patience: int
    interior_steps: int
    tolerance: float
    interior_tolerance: float
    attempts: int
    cheap: bool


@inner
def power_of_two(x: float, otherwise: float) -> float:
    """The smallest power of two from x on; `otherwise` where x is not a positive number."""
    if not (x > 0.0 and x < np.inf):
        return otherwise
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


@stage("void(int64, int64)")
def _to_units(plan: int, space: int) -> None:
    """The tile in its instances' own units (see the top of this module): SIGMA and GAMMA.

    σ: the least that the solution's size can be, given the right-hand sides and bounds; or the size of the solution
    without rows, clip(−c/μ), if that is larger and some right-hand side is as large. γ: the largest of costs and of μσ.
    """
    system, tile, heads = system_at(plan), tile_of(plan, space), tile_at(space, HEADS)
    c, mu, r, lower, upper, number = tile.c, tile.mu, tile.r, tile.lower, tile.upper, heads.lane
    forced, pull, sides, costs, smoothing = spread(0.0, c), spread(0.0, c), spread(0.0, c), spread(0.0, c), get(mu, 0)
    bounds, target, least = spread(0.0, c), -1.0 / smoothing, spread(np.inf, c)
    for j in range(c.shape[0]):
        low, high = get(lower, j), get(upper, j)
        forced = maximum(forced, maximum(low, -1.0 * high))
        costs = maximum(costs, absolute(get(c, j)))
        pull = maximum(pull, absolute(minimum(maximum(get(c, j) * target, low), high)))
        low, high = absolute(low), absolute(high)
        least = minimum(least, minimum(where(low > 0.0, low, np.inf), where(high > 0.0, high, np.inf)))
        bounds = maximum(bounds, maximum(where(low < np.inf, low, 0.0), where(high < np.inf, high, 0.0)))
    for i in range(r.shape[0]):
        size = absolute(get(r, i))
        sides, least = maximum(sides, size), minimum(least, where(size > 0.0, size, np.inf))
        forced = maximum(forced, maximum(-1.0 * get(r, i), 0.0) if system.inequality[i] else size)
    pull = where(sides > 0.0, minimum(pull, sides), pull)
    put(heads, STATE, maximum(forced, pull))
    put(heads, STATE + 1, maximum(sides, bounds))
    put(heads, STATE + 2, costs)
    for t in range(LANES):
        sigma = power_of_two(number[STATE, t], power_of_two(number[STATE + 1, t], 1.0))
        number[SIGMA, t] = sigma
        number[GAMMA, t] = power_of_two(max(number[STATE + 2, t], number[MU, t] * sigma), 1.0)
    per_sigma, per_gamma = 1.0 / get(heads, SIGMA), 1.0 / get(heads, GAMMA)
    put(heads, MU, smoothing * get(heads, SIGMA) * per_gamma)
    least = where(least < np.inf, least, where(costs > 0.0, costs / smoothing, get(heads, SIGMA)))
    put(heads, LEAST, least * per_sigma)
    for j in range(c.shape[0]):
        put(c, j, get(c, j) * per_gamma)
        put(lower, j, get(lower, j) * per_sigma)
        put(upper, j, get(upper, j) * per_sigma)
    for i in range(r.shape[0]):
        put(r, i, get(r, i) * per_sigma)


@stage("int64(int64, int64, int64, int64, int64, int64, int64, float64, float64, int64, int64)")
def _solve_tile(
    plan: int, space: int, used: int, way: int,
    newton_steps: int, patience: int, interior_steps: int, tolerance: float, interior_tolerance: float, attempts: int, cheap: int,
) -> int:  # fmt: skip
    """The instances of a tile, of which `used` count: from the multipliers Y unless COLD. Whether there is an answer."""
    heads, rows, columns = tile_at(space, HEADS), row_at(plan, space, Y), column_at(plan, space, W)
    system, number = system_at(plan), heads.lane
    n, m = system.n, system.m
    y, w, prices = row(plan, space, Y), column(plan, space, W), row(plan, space, PRICES)
    c, finished = column(plan, space, C), FINISHED * tolerance
    put(heads, PROVEN, 0.0)
    put(heads, RESIDUAL, np.inf)
    put(heads, TODO, -1.0)
    put(heads, NEWTON_STEPS, -1.0)
    put(heads, INTERIOR_STEPS, -2.0 if way == NEWTON else -1.0)
    if way == CONE:
        interior_start(plan, space, 0, 1.0, 0.1)
        interior_point(plan, space, interior_steps, 0.0)
        gather(system.by_columns, prices, w)
        for j in range(n):
            put(w, j, get(w, j) + get(column(plan, space, POINT_ZU), j) - get(column(plan, space, POINT_ZL), j))
        return 1
    _to_units(plan, space)
    if way != COLD:
        gamma = 1.0 / get(heads, GAMMA)
        for i in range(m):
            put(y, i, get(y, i) * gamma)
            put(prices, i, get(y, i))
    left = True  # whether some lane is neither solved nor proven to have no solution
    if way != NEWTON:
        if way == COLD:
            interior_start(plan, space, 0, 1.0, 0.1)
        else:
            interior_start(plan, space, 1, NEAR, NEAR_PRICE)
        for i in range(m):
            put(y, i, 0.0)
        # To the solution's face, which Newton's method then only confirms; once more from closer by where it is not found.
        goal = interior_tolerance
        for again in range(2):
            interior_point(plan, space, interior_steps, goal)
            if not again:
                put(heads, INTERIOR_STEPS, get(heads, TODO))
            if not cheap:  # where faces led nowhere before, Newton's method from here may
                break
            put(heads, RESIDUAL, where(get(heads, PROVEN) > 0.0, 0.0, get(heads, RESIDUAL)))
            finish_on_face(plan, space, tolerance, again)
            goal, left = interior_tolerance * CLOSE, False
            for t in range(LANES):
                going = (
                    number[INTERIOR_STEPS, t] >= 0.0
                    and number[PROVEN, t] == 0.0
                    and not number[RESIDUAL, t] <= finished
                )
                number[TODO, t] = -1.0 if going else 0.0
                left |= going
            if not left:
                break
        left = False
        for t in range(LANES):
            left |= number[PROVEN, t] == 0.0
            if not number[RESIDUAL, t] <= ENOUGH:
                for i in range(m):
                    y.lane[i, t] = prices.lane[i, t]
    if left:
        at_most = newton_steps
        if way != NEWTON:
            all_there = True
            for t in range(LANES):
                number[BEFORE, t] = np.inf
                all_there = all_there and (number[PROVEN, t] > 0.0 or number[RESIDUAL, t] <= finished)
            if all_there:
                at_most = min(at_most, CONFIRMED)
            put(heads, STATE, 0.0)
            take_better(plan, space, STATE, W, Y, BEFORE, KEPT_W, KEPT_Y)
            put(heads, BEFORE, get(heads, RESIDUAL))
        dual_newton(plan, space, used, at_most, patience, tolerance)
        if way == NEWTON and patience == 1:
            lost = True
            for t in range(LANES):
                lost = lost and number[NEWTON_STEPS, t] < 0.0
            if lost:  # steps without patience that led nowhere are no better place to begin than the start
                return 0
        measure(plan, space, rows, columns, 0.0 if way == NEWTON else NOISE, RESIDUAL)
        in_force(plan, space)
        if way != NEWTON:
            for t in range(LANES):  # an answer that Newton's method confirms stays as it is
                number[BEFORE, t] = number[BEFORE, t] if number[RESIDUAL, t] > finished else np.inf
            take_better(plan, space, BEFORE, KEPT_W, KEPT_Y, RESIDUAL, W, Y)
            for attempt in range(attempts + 1):
                open_, bad, hopeful = False, False, False
                for t in range(LANES):
                    if number[PROVEN, t] > 0.0 or number[RESIDUAL, t] <= finished:
                        number[RESIDUAL, t] = 0.0  # done: what other lanes still need leaves it as it is
                    open_ |= not number[RESIDUAL, t] <= finished
                    bad |= not number[RESIDUAL, t] <= ENOUGH
                    hopeful |= number[RESIDUAL, t] > finished and number[INTERIOR_STEPS, t] >= 0.0
                if not open_ or (attempt > 1 and not bad):
                    break
                if attempt > 0:
                    if cheap and not hopeful:  # lanes that came to an end of their steps get no more of them
                        break
                    if attempt > 2:  # another start
                        wide = WIDER ** (attempt - 2)
                        interior_start(plan, space, 0, wide, 0.1 * wide)
                    for t in range(LANES):
                        number[TODO, t] = -1.0 if number[RESIDUAL, t] > finished else 0.0
                    goal = interior_tolerance * CLOSER * (CLOSEST if attempt == 2 else 1.0)
                    interior_point(plan, space, interior_steps, goal)
                    put(heads, INTERIOR_STEPS, get(heads, TODO))
                finish_on_face(plan, space, tolerance, 1)
            measure(plan, space, rows, columns, 0.0, RESIDUAL)  # the last word, without any allowance
    value, half = spread(0.0, c), 0.5 * get(heads, MU)
    sigma, gamma = get(heads, SIGMA), get(heads, GAMMA)
    for j in range(n):
        value = value + get(w, j) * (get(c, j) + half * get(w, j))
        put(w, j, sigma * get(w, j))
    put(heads, VALUE, gamma * sigma * value)
    for i in range(m):
        put(y, i, gamma * get(y, i))
    put(heads, RESIDUAL, where(get(heads, PROVEN) > 0.0, np.inf, get(heads, RESIDUAL)))
    return 1


@jit
def _tile_index(index: Any, first: int, lane: Any) -> int:
    """lane: the instance numbers from `first` on, the last one repeated; how many of them there are."""
    used = min(len(lane), len(index) - first)
    for t in range(len(lane)):
        lane[t] = index[first + min(t, used - 1)]
    return used


@jit
def solve_tiles(
    plan: int, space: int, index: Any, way: int,
    newton_steps: int, patience: int, interior_steps: int, tolerance: float, interior_tolerance: float, attempts: int, cheap: int,
    c: Any, mu: Any, r: Any, lower: Any, upper: Any,
    y: Any, w: Any, inside: Any, in_force: Any, objective: Any, residual: Any, infeasible: Any, newton: Any, interior: Any,
) -> None:  # fmt: skip
    """Instances `index` of a batch, tile by tile: addresses of plan and `workspace`, `Limits`, `SmoothedData`, `SmoothedAnswer`."""
    lane, heads = np.empty(LANES, np.int64), tile_at(space, HEADS).lane
    for first in range(0, len(index), LANES):
        used = _tile_index(index, first, lane)
        load(c, lane, column(plan, space, C).lane)
        load(r, lane, row(plan, space, R).lane)
        load(lower, lane, column(plan, space, LOWER).lane)
        load(upper, lane, column(plan, space, UPPER).lane)
        for t in range(LANES):
            heads[MU, t] = mu[lane[t] % len(mu)]
        if way != COLD and way != CONE:
            load(y, lane, row(plan, space, Y).lane)
        answered = _solve_tile(
            plan, space, used, way,
            newton_steps, patience, interior_steps, tolerance, interior_tolerance, attempts, cheap,
        )  # fmt: skip
        for t in range(used):
            own = lane[t]
            objective[own] = heads[VALUE, t]
            residual[own] = heads[RESIDUAL, t] if answered else np.inf
            infeasible[own] = 1 if heads[PROVEN, t] > 0.0 else 0
            newton[own], interior[own] = heads[NEWTON_STEPS, t], heads[INTERIOR_STEPS, t]
        if answered:
            store(row(plan, space, Y).lane, lane, used, y)
            store(column(plan, space, W).lane, lane, used, w)
            store(column(plan, space, INSIDE).lane, lane, used, inside)
            store(row(plan, space, IN_FORCE).lane, lane, used, in_force)


@jit
def project_tiles(
    plan: int, space: int, index: Any, inside: Any, in_force: Any, v: Any, factor: Any, out: Any, prices: Any, off: Any
) -> None:
    """out = factor · P v, and prices and off, for a batch: see `project`.

    v, inside, out (count, n), in_force, prices (count, m), factor (count or 1,), off (count,): nonzero where P v is not on the face.
    """
    lane, heads = np.empty(LANES, np.int64), tile_at(space, HEADS).lane
    for first in range(0, len(index), LANES):
        used = _tile_index(index, first, lane)
        load(inside, lane, column(plan, space, INSIDE).lane)
        load(in_force, lane, row(plan, space, IN_FORCE).lane)
        load(v, lane, column(plan, space, C).lane)
        project(plan, space)
        x = column(plan, space, W).lane
        store(x, lane, used, out)
        store(row(plan, space, Y).lane, lane, used, prices)
        for t in range(used):
            own = lane[t]
            off[own] = heads[FOUND, t]
            for j in range(out.shape[1]):
                out[own, j] *= factor[own % len(factor)]
