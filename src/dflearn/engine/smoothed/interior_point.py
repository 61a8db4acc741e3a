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

import numpy as np

from dflearn.engine.linear_algebra.cholesky import assemble, entries_at, factorize, substitute
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    absolute,
    address_of,
    cut,
    gather,
    get,
    maximum,
    minimum,
    number_at,
    plus_row,
    put,
    spread,
    stage,
    tile_at,
    where,
)
from dflearn.engine.smoothed.system import (
    FACE_IN_FORCE,
    FACE_INSIDE,
    FACE_W,
    FACE_Y,
    HEADS,
    INTERIOR_COLUMNS,
    INTERIOR_ROWS,
    PRICES,
    PROVEN,
    STATE,
    TODO,
    column,
    no_feasible_point,
    row,
    row_at,
    system_at,
    tile_of,
    values_at,
)

TOWARDS_BOUNDARY = 0.9995  # the share of the largest step that is taken
REGULARIZATION = 1e-13  # added to the diagonal of the normal equations, which is at most about 1/μ
REFINED = 14  # from this step on, solutions of the normal equations are refined
LARGE = 100.0  # multipliers beyond which an instance may have no feasible point; they are looked at every PROVE steps
PROVE = 3
FEASIBLE = 1e-12  # residual of rows and stationarity below which only complementarity counts
REFINEMENTS = 2
LATE = 20  # from this step on, no second-order terms, which can lead round in circles
LATE_SHARE = 0.5  # of the gap, which the corrector aims at the cube of: at most so much in those late steps


# Work space: the point, its gaps and multipliers, and what a step is computed from, from INTERIOR_COLUMNS and INTERIOR_ROWS on.
# Tiles of n items: w; gaps gl, gu and their multipliers zl, zu; has_lower, has_upper, movable (1 or 0); slope, the gradient of
# the Lagrangian; il, iu = 1/gl, 1/gu; theta = Θ⁻¹; targets tl, tu; right, the right-hand side; steps dw, dzl, dzu.
# Of m items: slacks s; rp = r − s − M w; targets ts; steps dy, ds; work; target of `_solve`; ratio = s/y.
POINT_ZL, POINT_ZU = INTERIOR_COLUMNS + 3, INTERIOR_COLUMNS + 4
THETA, DW = INTERIOR_COLUMNS + 11, INTERIOR_COLUMNS + 15
POINT_S, WORK, TARGET, RATIO = INTERIOR_ROWS, INTERIOR_ROWS + 5, INTERIOR_ROWS + 6, INTERIOR_ROWS + 7


@stage("void(int64, int64, int64, float64, float64)")
def interior_start(plan: int, space: int, near: int, width: float, price: float) -> None:
    """A point inside the bounds, with multipliers that make it dual feasible wherever there are bounds to carry them.

    near: whether it is to be near the point of the multipliers in PRICES, w(y) = clip(−(c + Mᵀy)/μ, lower, upper).
    width: how far from its bounds a variable starts at least, in units of the decisions; price: the least multiplier. Near a point
    both are large enough for bounds and rows that bind here and did not bind where y is from, or the other way round.
    """
    system, tile, y = system_at(plan), tile_of(plan, space), row(plan, space, PRICES)
    first, n, m, s = column(plan, space, INTERIOR_COLUMNS), system.n, system.m, row(plan, space, POINT_S)
    w, gl, gu, zl, zu = cut(first, 0, n), cut(first, 1, n), cut(first, 2, n), cut(first, 3, n), cut(first, 4, n)
    has_lower, has_upper, movable = cut(first, 5, n), cut(first, 6, n), cut(first, 7, n)
    dw, dzl, dzu = cut(first, 15, n), cut(first, 16, n), cut(first, 17, n)
    by_rows, by_columns, inequality, m_ = system.by_rows, system.by_columns, system.inequality, get(tile.mu, 0)
    for i in range(m):
        least = spread(price if inequality[i] else 0.0, y)
        if near:
            least = maximum(get(y, i), price) if inequality[i] else get(y, i)
        put(y, i, least)
    for j in range(n):
        low, high = get(tile.lower, j), get(tile.upper, j)
        free = low < high
        below, above = where(free & (low > -np.inf), 1.0, 0.0), where(free & (high < np.inf), 1.0, 0.0)
        room = minimum(spread(width, w), where(below * above > 0.0, 0.5 * high - 0.5 * low, width))
        gradient, point = get(tile.c, j), spread(0.0, w)
        if near:
            gradient = plus_row(gradient, by_columns, j, y)
            point = minimum(maximum(-1.0 * gradient / m_, low), high)
        else:
            point = minimum(maximum(-1.0 * gradient / m_, -1.0 * width), width)
        point = where(below > 0.0, maximum(low + room, point), point)
        point = where(above > 0.0, minimum(high - room, point), point)
        point = where(free, point, low)
        put(w, j, point)
        put(gl, j, where(below > 0.0, maximum(point - low, 0.5 * room), 1.0))
        put(gu, j, where(above > 0.0, maximum(high - point, 0.5 * room), 1.0))
        put(has_lower, j, below)
        put(has_upper, j, above)
        put(movable, j, where(free, 1.0, 0.0))
        put(dw, j, 0.0)
        put(dzl, j, 0.0)
        put(dzu, j, 0.0)
        gradient = plus_row(get(tile.c, j) + m_ * point, by_columns, j, y)
        put(zl, j, below * (maximum(gradient, 0.0) + price))
        put(zu, j, above * (maximum(-1.0 * gradient, 0.0) + price))
    for i in range(m):
        put(s, i, 0.0)
        if inequality[i]:
            activity = plus_row(spread(0.0, w), by_rows, i, w)
            put(s, i, maximum(get(tile.r, i) - activity, 0.1 * width))


@stage("void(int64, int64, int64, int64)")
def _solve(plan: int, space: int, refined: int, target: int) -> None:
    """x ← (M Θ⁻¹ Mᵀ + diag(s/y))⁻¹ x by the factor at hand, refined or not, for x at `target`. DW and WORK are overwritten then."""
    factor = values_at(plan, space)
    if not refined:
        substitute(plan, factor, target)
        return
    system, x, wanted = system_at(plan), tile_at(target, number_at(plan, 1)), row(plan, space, TARGET)
    work = row(plan, space, WORK)
    image, theta, ratio = column(plan, space, DW), column(plan, space, THETA), row(plan, space, RATIO)
    for i in range(system.m):
        put(wanted, i, get(x, i))
    substitute(plan, factor, target)
    for _ in range(REFINEMENTS):
        gather(system.by_columns, x, image)
        for j in range(system.n):
            put(image, j, get(image, j) * get(theta, j))
        gather(system.by_rows, image, work)
        for i in range(system.m):
            put(work, i, get(wanted, i) - get(work, i) - get(ratio, i) * get(x, i))
        substitute(plan, factor, address_of(work))
        for i in range(system.m):
            put(x, i, get(x, i) + get(work, i))


@stage("void(int64, int64, int64, float64)")
def interior_point(plan: int, space: int, limit: int, tolerance: float) -> None:
    """From the point in the space, as of `interior_start` or of an earlier call, for the lanes whose TODO is −1.

    On return PRICES are the multipliers, TODO is the number of steps taken, or −1 for a lane that did not converge, and the space
    holds the last point. PROVEN becomes 1 where there is no feasible point.
    """
    system, tile, heads, factor = system_at(plan), tile_of(plan, space), tile_at(space, HEADS), values_at(plan, space)
    by_rows, by_columns, inequality, entries = system.by_rows, system.by_columns, system.inequality, entries_at(plan)
    n, m, c, r, y, values = system.n, system.m, tile.c, tile.r, row(plan, space, PRICES), tile_at(factor, 0)
    first = column(plan, space, INTERIOR_COLUMNS)
    w, gl, gu, zl, zu = cut(first, 0, n), cut(first, 1, n), cut(first, 2, n), cut(first, 3, n), cut(first, 4, n)
    has_lower, has_upper, movable, slope = cut(first, 5, n), cut(first, 6, n), cut(first, 7, n), cut(first, 8, n)
    il, iu, theta, tl, tu = cut(first, 9, n), cut(first, 10, n), cut(first, 11, n), cut(first, 12, n), cut(first, 13, n)
    right, dw, dzl, dzu = cut(first, 14, n), cut(first, 15, n), cut(first, 16, n), cut(first, 17, n)
    first = row(plan, space, INTERIOR_ROWS)
    s, rp, ts, dy, ds = cut(first, 0, m), cut(first, 1, m), cut(first, 2, m), cut(first, 3, m), cut(first, 4, m)
    ratio = cut(first, 7, m)
    # Largest multiplier, residual, complementarity, lanes still running.
    state, count, m_ = heads.lane, spread(0.0, y), get(tile.mu, 0)
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
            gradient = plus_row(get(c, j) + m_ * point, by_columns, j, y)
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
            total = get(r, i) - get(s, i) - plus_row(spread(0.0, y), by_rows, i, w)
            put(rp, i, total)
            primal, prices = maximum(primal, absolute(total)), maximum(prices, absolute(get(y, i)))
            gap = gap + get(s, i) * get(y, i)
        put(heads, STATE, prices)
        put(heads, STATE + 1, maximum(primal / largest, worst / maximum(prices, 1.0)))
        put(heads, STATE + 2, gap / count)
        grown, going = False, False
        for t in range(LANES):
            if (
                state[TODO, t] < 0
                and state[STATE + 1, t] <= max(tolerance, FEASIBLE)
                and state[STATE + 2, t] <= tolerance
            ):
                state[TODO, t] = step
            grown |= state[TODO, t] < 0 and state[STATE, t] > LARGE and state[PROVEN, t] == 0.0
        if grown and (step % PROVE == 0 or step == limit):
            no_feasible_point(plan, space, row_at(plan, space, PRICES), address_of(dy), address_of(dw))
        for t in range(LANES):
            runs = state[TODO, t] < 0 and state[PROVEN, t] == 0.0
            state[STATE + 3, t] = 1.0 if runs else 0.0
            going |= runs
        running = get(heads, STATE + 3)
        if step == limit or not going:
            break

        assemble(plan, address_of(theta), 0, factor)
        for i in range(m):
            diagonal = get(values, entries + i) + REGULARIZATION
            put(ratio, i, 0.0)
            if inequality[i]:
                put(ratio, i, get(s, i) / get(y, i))
            put(values, entries + i, diagonal + get(ratio, i))
        factorize(plan, factor, 0.0)

        # Predictor: straight to complementarity zero.
        for i in range(m):
            total = plus_row(-1.0 * get(rp, i), by_rows, i, right)
            put(dy, i, total - get(s, i) if inequality[i] else total)
        _solve(plan, space, step >= REFINED, address_of(dy))
        worst = spread(1.0, y)
        for j in range(n):
            move = get(right, j) - get(theta, j) * plus_row(spread(0.0, y), by_columns, j, dy)
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
        for i in range(m):
            total = plus_row(-1.0 * get(rp, i), by_rows, i, right)
            put(dy, i, total + get(ts, i) / get(y, i) if inequality[i] else total)
        _solve(plan, space, step >= REFINED, address_of(dy))
        worst = spread(1.0, y)
        for j in range(n):
            move = get(right, j) - get(theta, j) * plus_row(spread(0.0, y), by_columns, j, dy)
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


@stage("void(int64, int64)")
def nearest_face(plan: int, space: int) -> None:
    """The face nearest to an interior point with its PRICES: a gap smaller than its multiplier is closed, a multiplier smaller than
    its gap vanishes."""
    system, tile, w = system_at(plan), tile_of(plan, space), column(plan, space, FACE_W)
    inside = column(plan, space, FACE_INSIDE)
    y, in_force, prices = row(plan, space, FACE_Y), row(plan, space, FACE_IN_FORCE), row(plan, space, PRICES)
    s = row(plan, space, POINT_S)
    first, n = column(plan, space, INTERIOR_COLUMNS), system.n
    point, gl, gu, zl, zu = cut(first, 0, n), cut(first, 1, n), cut(first, 2, n), cut(first, 3, n), cut(first, 4, n)
    has_lower, has_upper = cut(first, 5, n), cut(first, 6, n)
    for j in range(n):
        low = where(get(zl, j) > get(gl, j), get(has_lower, j), 0.0)
        high = where(get(zu, j) > get(gu, j), get(has_upper, j), 0.0)
        x = minimum(maximum(get(point, j), get(tile.lower, j)), get(tile.upper, j))
        x = where(high > 0.0, get(tile.upper, j), where(low > 0.0, get(tile.lower, j), x))
        put(w, j, x)
        put(inside, j, where((x > get(tile.lower, j)) & (x < get(tile.upper, j)), 1.0, 0.0))
    for i in range(system.m):
        put(in_force, i, 1.0)
        put(y, i, get(prices, i))
        if system.inequality[i]:
            put(in_force, i, where(get(prices, i) > get(s, i), 1.0, 0.0))
            put(y, i, get(prices, i) * get(in_force, i))
