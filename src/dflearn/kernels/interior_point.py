"""A primal-dual interior-point method for the smoothed LP, on tiles: the sure way from a cold start.

    min cᵀw + (μ/2)‖w‖²   s.t.   M w + s = r  (s ≥ 0 on inequality rows, s = 0 on equality rows),   lower ≤ w ≤ upper

Mehrotra's predictor and corrector. With gaps g_l = w − lower, g_u = upper − w and their multipliers z_l, z_u, each step
factors M Θ⁻¹ Mᵀ + diag(s/y), Θ = μ + z_l/g_l + z_u/g_u, once and solves with it twice. Costs and decisions arrive scaled
to about one. It stops at a relative residual that leaves the last digits, and the exact active set, to the dual Newton
method; a lane may be taken up again later with a smaller tolerance. Late steps, whose systems are ill conditioned, are
refined. Multipliers that grow are looked at: they may prove that there is no feasible point.

A missing bound has gap 1 and multiplier 0 for good.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from dflearn.kernels.cholesky import SparseRows, assemble, factorize, substitute
from dflearn.kernels.lanes import (
    absolute,
    any_lane,
    cut,
    gather,
    get,
    inner,
    lanes,
    maximum,
    minimum,
    put,
    spread,
    where,
)
from dflearn.kernels.optimality import no_feasible_point
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile

TOWARDS_BOUNDARY = 0.9995  # the share of the largest step that is taken
REGULARIZATION = 1e-13  # added to the diagonal of the normal equations, which is at most about 1/μ
REFINED = 14  # from this step on, solutions of the normal equations are refined
LARGE = 100.0  # multipliers beyond which an instance may have no feasible point; they are looked at every PROVE steps
PROVE = 3
FEASIBLE = 1e-12  # residual of rows and stationarity below which only complementarity counts
REFINEMENTS = 2
LATE = 20  # from this step on, no second-order terms, which can lead round in circles
LATE_SHARE = 0.5  # of the gap, which the corrector aims at the cube of: at most so much in those late steps


# Work space: the point, its gaps and multipliers, and what a step is computed from.
# Tiles of n items: w; gaps gl, gu and their multipliers zl, zu; has_lower, has_upper, movable (1 or 0); slope, the gradient of
# the Lagrangian; il, iu = 1/gl, 1/gu; theta = Θ⁻¹; targets tl, tu; right, the right-hand side; steps dw, dzl, dzu.
# Of m items: slacks s; rp = r − s − M w; targets ts; steps dy, ds; work; target of `_solve`; ratio = s/y. values: as of `assemble`.
InteriorScratch = namedtuple(
    "InteriorScratch",
    "w gl gu zl zu has_lower has_upper movable slope il iu theta tl tu right dw dzl dzu s rp ts dy ds work target ratio values",
)
INTERIOR_COLUMNS, INTERIOR_ROWS = 18, 8  # how many of them have n items, and m items


@inner
def interior_scratch(columns: Any, rows: Any, n: int, m: int, values: Any) -> InteriorScratch:
    """The names of tiles in `columns`, of n items each, and in `rows`, of m items each."""
    return InteriorScratch(
        cut(columns, 0, n), cut(columns, 1, n), cut(columns, 2, n), cut(columns, 3, n), cut(columns, 4, n), cut(columns, 5, n),
        cut(columns, 6, n), cut(columns, 7, n), cut(columns, 8, n), cut(columns, 9, n), cut(columns, 10, n), cut(columns, 11, n),
        cut(columns, 12, n), cut(columns, 13, n), cut(columns, 14, n), cut(columns, 15, n), cut(columns, 16, n), cut(columns, 17, n),
        cut(rows, 0, m), cut(rows, 1, m), cut(rows, 2, m), cut(rows, 3, m), cut(rows, 4, m), cut(rows, 5, m), cut(rows, 6, m), cut(rows, 7, m),
        values,
    )  # fmt: skip


@inner
def interior_start(
    system: SmoothedSystem, tile: SmoothedTile, scratch: InteriorScratch, y: Any, width: float, price: float
) -> None:
    """A point inside the bounds, with multipliers that make it dual feasible wherever there are bounds to carry them.

    width: how far from its bounds a variable starts, in units of the decisions; price: the least multiplier.
    """
    by_rows, by_columns, inequality = system.by_rows, system.by_columns, system.inequality
    c, r, lower, upper = tile.c, tile.r, tile.lower, tile.upper
    w, gl, gu, zl, zu, s = scratch.w, scratch.gl, scratch.gu, scratch.zl, scratch.zu, scratch.s
    has_lower, has_upper, movable = scratch.has_lower, scratch.has_upper, scratch.movable
    m_ = get(tile.mu, 0)
    for j in range(c.shape[0]):
        low, high = get(lower, j), get(upper, j)
        free = low < high
        below, above = where(free & (low > -np.inf), 1.0, 0.0), where(free & (high < np.inf), 1.0, 0.0)
        room = minimum(spread(width, c), where(below * above > 0.0, 0.5 * high - 0.5 * low, width))
        point = minimum(maximum(-1.0 * get(c, j) / m_, -1.0 * width), width)
        point = where(below > 0.0, maximum(low + room, point), point)
        point = where(above > 0.0, minimum(high - room, point), point)
        point = where(free, point, low)
        put(w, j, point)
        put(gl, j, where(below > 0.0, maximum(point - low, 0.5 * room), 1.0))
        put(gu, j, where(above > 0.0, maximum(high - point, 0.5 * room), 1.0))
        put(has_lower, j, below)
        put(has_upper, j, above)
        put(movable, j, where(free, 1.0, 0.0))
        put(scratch.dw, j, 0.0)
        put(scratch.dzl, j, 0.0)
        put(scratch.dzu, j, 0.0)
    for i in range(r.shape[0]):
        put(y, i, price if inequality[i] else 0.0)
        put(s, i, 0.0)
        if inequality[i]:
            activity = spread(0.0, c)
            for k in range(by_rows.start[i], by_rows.start[i + 1]):
                activity = activity + by_rows.value[k] * get(w, by_rows.column[k])
            put(s, i, maximum(get(r, i) - activity, 0.1 * width))
    for j in range(c.shape[0]):
        gradient = get(c, j) + m_ * get(w, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            gradient = gradient + by_columns.value[k] * get(y, by_columns.column[k])
        put(zl, j, get(has_lower, j) * (maximum(gradient, 0.0) + price))
        put(zu, j, get(has_upper, j) * (maximum(-1.0 * gradient, 0.0) + price))


@inner
def interior_restart(
    system: SmoothedSystem, tile: SmoothedTile, scratch: InteriorScratch, y: Any, width: float, price: float
) -> None:
    """A point inside the bounds near the one that belongs to multipliers y, w(y) = clip(−(c + Mᵀy)/μ, lower, upper).

    width, price: how far from its bounds a variable starts at least, and the least multiplier. Both are large enough for
    bounds and rows that bind here and did not bind where y is from, or the other way round.
    """
    by_rows, by_columns, inequality = system.by_rows, system.by_columns, system.inequality
    w, s, m_ = scratch.w, scratch.s, get(tile.mu, 0)
    for i in range(tile.r.shape[0]):
        if inequality[i]:
            put(y, i, maximum(get(y, i), price))
    for j in range(tile.c.shape[0]):
        low, high = get(tile.lower, j), get(tile.upper, j)
        free = low < high
        below, above = where(free & (low > -np.inf), 1.0, 0.0), where(free & (high < np.inf), 1.0, 0.0)
        room = minimum(spread(width, w), where(below * above > 0.0, 0.5 * high - 0.5 * low, width))
        gradient = get(tile.c, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            gradient = gradient + by_columns.value[k] * get(y, by_columns.column[k])
        point = minimum(maximum(-1.0 * gradient / m_, low), high)
        gradient = gradient + m_ * point
        point = where(below > 0.0, maximum(low + room, point), point)
        point = where(above > 0.0, minimum(high - room, point), point)
        put(w, j, point)
        put(scratch.gl, j, where(below > 0.0, maximum(point - low, 0.5 * room), 1.0))
        put(scratch.gu, j, where(above > 0.0, maximum(high - point, 0.5 * room), 1.0))
        put(scratch.zl, j, below * (maximum(gradient, 0.0) + price))
        put(scratch.zu, j, above * (maximum(-1.0 * gradient, 0.0) + price))
        put(scratch.has_lower, j, below)
        put(scratch.has_upper, j, above)
        put(scratch.movable, j, where(free, 1.0, 0.0))
        put(scratch.dw, j, 0.0)
        put(scratch.dzl, j, 0.0)
        put(scratch.dzu, j, 0.0)
    for i in range(tile.r.shape[0]):
        put(s, i, 0.0)
        if inequality[i]:
            activity = spread(0.0, w)
            for k in range(by_rows.start[i], by_rows.start[i + 1]):
                activity = activity + by_rows.value[k] * get(w, by_rows.column[k])
            put(s, i, maximum(get(tile.r, i) - activity, 0.1 * width))


@inner
def interior_point(
    system: SmoothedSystem,
    tile: SmoothedTile,
    limit: int,
    tolerance: float,
    scratch: InteriorScratch,
    y: Any,
    steps: Any,
    proven: Any,
) -> None:
    """From the point in y and `scratch`, as of `interior_start` or of an earlier call, for the lanes whose steps are −1.

    On return y (m items) holds the multipliers and steps the number taken, or −1 for a lane that did not converge, one per
    lane; `scratch` holds the last point. proven becomes True where there is no feasible point.
    """
    pattern, by_rows, by_columns, inequality = system.pattern, system.by_rows, system.by_columns, system.inequality
    c, r, values = tile.c, tile.r, scratch.values
    w, gl, gu, zl, zu, slope = scratch.w, scratch.gl, scratch.gu, scratch.zl, scratch.zu, scratch.slope
    has_lower, has_upper, movable = scratch.has_lower, scratch.has_upper, scratch.movable
    il, iu, theta, tl, tu, right = scratch.il, scratch.iu, scratch.theta, scratch.tl, scratch.tu, scratch.right
    dw, dzl, dzu = scratch.dw, scratch.dzl, scratch.dzu
    s, rp, ts, dy, ds = scratch.s, scratch.rp, scratch.ts, scratch.dy, scratch.ds
    n, m, entries = c.shape[0], r.shape[0], len(pattern.row)
    states: Any = np.empty(4, y.dtype)  # largest multiplier, residual, complementarity, lanes still running
    state, width = states.lane, lanes(y)
    count, m_ = spread(0.0, y), get(tile.mu, 0)
    for j in range(n):
        count = count + get(has_lower, j) + get(has_upper, j)
    for i in range(m):
        if inequality[i]:
            count = count + 1.0
    count, length = maximum(count, 1.0), spread(0.0, y)

    for step in range(limit + 1):
        # Take the step found last; residuals; Θ⁻¹; the predictor's right-hand side, whose targets are all zero.
        worst, gap, largest = spread(0.0, y), spread(0.0, y), spread(1.0, y)
        for j in range(n):
            move = length * get(dw, j)
            point = get(w, j) + move
            low, high = get(gl, j) + get(has_lower, j) * move, get(gu, j) - get(has_upper, j) * move
            z_low, z_high = get(zl, j) + length * get(dzl, j), get(zu, j) + length * get(dzu, j)
            put(w, j, point)
            put(gl, j, low)
            put(gu, j, high)
            put(zl, j, z_low)
            put(zu, j, z_high)
            gradient = get(c, j) + m_ * point
            for k in range(by_columns.start[j], by_columns.start[j + 1]):
                gradient = gradient + by_columns.value[k] * get(y, by_columns.column[k])
            gradient = get(movable, j) * gradient - z_low + z_high
            worst, largest = maximum(worst, absolute(gradient)), maximum(largest, absolute(point))
            gap = gap + low * z_low + high * z_high
            low, high = 1.0 / low, 1.0 / high
            inverse = get(movable, j) / (m_ + z_low * low + z_high * high)
            put(slope, j, gradient)
            put(il, j, low)
            put(iu, j, high)
            put(theta, j, inverse)
            put(right, j, inverse * (z_high - z_low - gradient))
        primal, prices = spread(0.0, y), spread(0.0, y)
        for i in range(m):
            total = get(r, i) - get(s, i)
            for k in range(by_rows.start[i], by_rows.start[i + 1]):
                total = total - by_rows.value[k] * get(w, by_rows.column[k])
            put(rp, i, total)
            primal, prices = maximum(primal, absolute(total)), maximum(prices, absolute(get(y, i)))
            gap = gap + get(s, i) * get(y, i)
        put(states, 0, prices)
        put(states, 1, maximum(primal / largest, worst / maximum(prices, 1.0)))
        put(states, 2, gap / count)
        grown = False
        for t in range(width):
            if steps[t] < 0 and state[1, t] <= max(tolerance, FEASIBLE) and state[2, t] <= tolerance:
                steps[t] = step
            grown |= steps[t] < 0 and state[0, t] > LARGE and not proven[t]
        if grown and (step % PROVE == 0 or step == limit):
            no_feasible_point(system, tile, y, dy, dw, values, proven)
        for t in range(width):
            state[3, t] = 1.0 if steps[t] < 0 and not proven[t] else 0.0
        running = get(states, 3)
        if step == limit or not any_lane(running > 0.0):
            break

        assemble(pattern, theta, values)
        for i in range(m):
            diagonal = get(values, entries + i) + REGULARIZATION
            put(scratch.ratio, i, 0.0)
            if inequality[i]:
                put(scratch.ratio, i, get(s, i) / get(y, i))
            put(values, entries + i, diagonal + get(scratch.ratio, i))
        factorize(pattern, values, 0.0)

        # Predictor: straight to complementarity zero.
        _row_target(by_rows, right, rp, dy)
        for i in range(m):
            if inequality[i]:
                put(dy, i, get(dy, i) - get(s, i))
        _solve(system, scratch, step >= REFINED, dy)
        worst = spread(1.0, y)
        for j in range(n):
            move = get(right, j)
            for k in range(by_columns.start[j], by_columns.start[j + 1]):
                move = move - get(theta, j) * by_columns.value[k] * get(dy, by_columns.column[k])
            put(dw, j, move)
            low, high = get(has_lower, j) * move * get(il, j), get(has_upper, j) * move * get(iu, j)
            worst = maximum(worst, maximum(maximum(-1.0 * low, 1.0 + low), maximum(high, 1.0 - high)))
        for i in range(m):
            if inequality[i]:
                put(ds, i, -1.0 * get(s, i) - get(s, i) * get(dy, i) / get(y, i))
                worst = maximum(worst, maximum(-1.0 * get(ds, i) / get(s, i), -1.0 * get(dy, i) / get(y, i)))
        length = 1.0 / worst
        remaining = spread(0.0, y)
        for j in range(n):
            move = get(dw, j)
            low = (get(gl, j) + length * move) * get(zl, j) * (1.0 - length * (1.0 + move * get(il, j)))
            high = (get(gu, j) - length * move) * get(zu, j) * (1.0 - length * (1.0 - move * get(iu, j)))
            remaining = remaining + low + high
        for i in range(m):
            if inequality[i]:
                remaining = remaining + (get(s, i) + length * get(ds, i)) * (get(y, i) + length * get(dy, i))
        # Corrector: to a share of the gap that depends on how far the predictor got, with its second-order terms; late ones
        # without them, which can lead round in circles.
        share, second = where(gap > 0.0, maximum(remaining, 0.0) / gap, 0.0), 1.0
        if step >= LATE:
            share, second = minimum(share, LATE_SHARE), 0.0
        aim = share * share * share * gap / count
        for j in range(n):
            move, z_low, z_high = get(dw, j), get(zl, j), get(zu, j)
            low = get(has_lower, j) * aim + second * move * z_low * (1.0 + move * get(il, j)) - get(gl, j) * z_low
            high = get(has_upper, j) * aim - second * move * z_high * (1.0 - move * get(iu, j)) - get(gu, j) * z_high
            put(tl, j, low)
            put(tu, j, high)
            put(right, j, get(theta, j) * (low * get(il, j) - high * get(iu, j) - get(slope, j)))
        for i in range(m):
            if inequality[i]:
                put(ts, i, aim - second * get(ds, i) * get(dy, i) - get(s, i) * get(y, i))
        _row_target(by_rows, right, rp, dy)
        for i in range(m):
            if inequality[i]:
                put(dy, i, get(dy, i) + get(ts, i) / get(y, i))
        _solve(system, scratch, step >= REFINED, dy)
        worst = spread(1.0, y)
        for j in range(n):
            move = get(right, j)
            for k in range(by_columns.start[j], by_columns.start[j + 1]):
                move = move - get(theta, j) * by_columns.value[k] * get(dy, by_columns.column[k])
            z_low, z_high = get(zl, j), get(zu, j)
            dz_low, dz_high = (get(tl, j) - z_low * move) * get(il, j), (get(tu, j) + z_high * move) * get(iu, j)
            put(dw, j, move)
            put(dzl, j, dz_low)
            put(dzu, j, dz_high)
            low, high = get(has_lower, j) * move * get(il, j), get(has_upper, j) * move * get(iu, j)
            worst = maximum(worst, maximum(-1.0 * low, high))
            worst = maximum(worst, where(z_low > 0.0, -1.0 * dz_low / z_low, 0.0))
            worst = maximum(worst, where(z_high > 0.0, -1.0 * dz_high / z_high, 0.0))
        for i in range(m):
            if inequality[i]:
                put(ds, i, (get(ts, i) - get(s, i) * get(dy, i)) / get(y, i))
                worst = maximum(worst, maximum(-1.0 * get(ds, i) / get(s, i), -1.0 * get(dy, i) / get(y, i)))
        # A quadratic objective ties primal and dual: one length for both. Lanes that are done stand still.
        length = running * minimum(TOWARDS_BOUNDARY / worst, 1.0)
        for i in range(m):
            put(y, i, get(y, i) + length * get(dy, i))
            if inequality[i]:
                put(s, i, get(s, i) + length * get(ds, i))


@inner
def _row_target(by_rows: SparseRows, right: Any, rp: Any, out: Any) -> None:
    """out = M · right − rp: the right-hand side of the normal equations, less what the slacks add."""
    gather(by_rows, right, out)
    for i in range(out.shape[0]):
        put(out, i, get(out, i) - get(rp, i))


@inner
def _solve(system: SmoothedSystem, scratch: InteriorScratch, refined: bool, x: Any) -> None:
    """x ← (M Θ⁻¹ Mᵀ + diag(s/y))⁻¹ x by the factor at hand, refined or not. `dw` and `work` are overwritten then."""
    pattern, target, image, work = system.pattern, scratch.target, scratch.dw, scratch.work
    if not refined:
        substitute(pattern, scratch.values, x)
        return
    for i in range(x.shape[0]):
        put(target, i, get(x, i))
    substitute(pattern, scratch.values, x)
    for _ in range(REFINEMENTS):
        gather(system.by_columns, x, image)
        for j in range(image.shape[0]):
            put(image, j, get(image, j) * get(scratch.theta, j))
        gather(system.by_rows, image, work)
        for i in range(x.shape[0]):
            put(work, i, get(target, i) - get(work, i) - get(scratch.ratio, i) * get(x, i))
        substitute(pattern, scratch.values, work)
        for i in range(x.shape[0]):
            put(x, i, get(x, i) + get(work, i))
