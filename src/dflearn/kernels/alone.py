"""The smoothed LP for one instance: vectors over variables, where the lanes of a tile would run empty.

The same units, interior points and face as in `smoothed`, in the same words, on memory that is looked at in two ways: `wide`, eight
neighbouring variables or rows at a time, for what is done to each of them alike; `narrow`, one by one, for what follows the
matrix. Products for the factor are added up entry by entry, and its updates are one list: short columns spend their time on loops.

This way knows the program's own right-hand sides and bounds, and the usual course of things: at most STEPS steps, CORRECTIONS of the
face, and an answer that the multipliers confirm. What goes another way is left to `solve_tiles`, from the beginning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.alone_factor import (
    COLUMNS,
    TAPE,
    TOLD,
    Columns,
    Rows,
    Tape,
    Values,
    array_of,
    columns_of,
    factorize,
    masked_factor,
    narrow_at,
    product,
    rows_of,
    substitute,
    tape_of,
    wide_at,
)
from dflearn.kernels.dual_newton import _evaluate
from dflearn.kernels.face import DAMPING
from dflearn.kernels.interior_point import FEASIBLE, REFINED, REGULARIZATION, TOWARDS_BOUNDARY
from dflearn.kernels.lanes import absolute, array_at, get, inner, jit, lanes, maximum, minimum, put, spread, where
from dflearn.kernels.optimality import in_force, measure
from dflearn.kernels.smoothed import system_of, to_units
from dflearn.kernels.smoothed_lp import SmoothedTile

STEPS = REFINED  # of interior points: later ones are refined
CORRECTIONS = 4
WIDTH, PRICE = 1.0, 0.1  # as of `interior_start`


@inner
def _largest(tile: Any, i: int) -> float:
    """The largest number of a row."""
    number = tile.lane
    best = number[i, 0]
    for t in range(1, lanes(tile)):
        best = max(best, number[i, t])
    return best


@inner
def _sum(tile: Any, i: int) -> float:
    number = tile.lane
    return ((number[i, 0] + number[i, 4]) + (number[i, 1] + number[i, 5])) + (
        (number[i, 2] + number[i, 6]) + (number[i, 3] + number[i, 7])
    )


@inner
def _start(system: Any, a: Columns, b: Rows, x: Columns, z: Rows, m_: float) -> None:
    """As `interior_start`. a, b: wide; x, z: the same, narrow."""
    for j in range(a.c.shape[0]):
        low, high, below, above = get(a.lower, j), get(a.upper, j), get(a.has_lower, j), get(a.has_upper, j)
        room = minimum(spread(WIDTH, a.c), where(below * above > 0.0, 0.5 * high - 0.5 * low, WIDTH))
        point = minimum(maximum(-1.0 * get(a.c, j) / m_, -1.0 * WIDTH), WIDTH)
        point = where(below > 0.0, maximum(low + room, point), point)
        point = where(above > 0.0, minimum(high - room, point), point)
        point = where(get(a.movable, j) > 0.0, point, low)
        put(a.w, j, point)
        put(a.gl, j, where(below > 0.0, maximum(point - low, 0.5 * room), 1.0))
        put(a.gu, j, where(above > 0.0, maximum(high - point, 0.5 * room), 1.0))
        put(a.dw, j, 0.0)
        put(a.dzl, j, 0.0)
        put(a.dzu, j, 0.0)
    product(system.by_rows, x.w, z.work)
    for i in range(b.r.shape[0]):
        slack = maximum(get(b.r, i) - get(b.work, i), 0.1 * WIDTH)
        put(b.y, i, PRICE * get(b.inequality, i))
        put(b.s, i, where(get(b.inequality, i) > 0.0, slack, 0.0))
    product(system.by_columns, z.y, x.image)
    for j in range(a.c.shape[0]):
        gradient = get(a.c, j) + m_ * get(a.w, j) + get(a.image, j)
        put(a.zl, j, get(a.has_lower, j) * (maximum(gradient, 0.0) + PRICE))
        put(a.zu, j, get(a.has_upper, j) * (maximum(-1.0 * gradient, 0.0) + PRICE))


@inner
def _interior(
    system: Any,
    tape: Tape,
    own: Values,
    a: Columns,
    b: Rows,
    x: Columns,
    z: Rows,
    m_: float,
    tolerance: float,
    few: Any,
) -> bool:
    """As `interior_point`, one instance; whether it came to an end within STEPS. few: six rows of scratch."""
    columns, rows, entries, m = a.c.shape[0], b.r.shape[0], len(tape.row), len(tape.start) - 1
    count, length = 0.0, 0.0
    total = spread(0.0, a.c)
    for j in range(columns):
        total = total + get(a.has_lower, j) + get(a.has_upper, j)
    for i in range(rows):
        total = total + get(b.inequality, i)
    put(few, 0, total)
    count = max(_sum(few, 0), 1.0)
    for step in range(STEPS + 1):
        product(system.by_columns, z.y, x.image)
        worst, gap, largest = spread(0.0, a.c), spread(0.0, a.c), spread(1.0, a.c)
        for j in range(columns):
            move = length * get(a.dw, j)
            point = get(a.w, j) + move
            low, high = get(a.gl, j) + get(a.has_lower, j) * move, get(a.gu, j) - get(a.has_upper, j) * move
            z_low, z_high = get(a.zl, j) + length * get(a.dzl, j), get(a.zu, j) + length * get(a.dzu, j)
            put(a.w, j, point)
            put(a.gl, j, low)
            put(a.gu, j, high)
            put(a.zl, j, z_low)
            put(a.zu, j, z_high)
            gradient = get(a.movable, j) * (get(a.c, j) + m_ * point + get(a.image, j)) - z_low + z_high
            worst, largest = maximum(worst, absolute(gradient)), maximum(largest, absolute(point))
            gap = gap + low * z_low + high * z_high
            low, high = 1.0 / low, 1.0 / high
            inverse = get(a.movable, j) / (m_ + z_low * low + z_high * high)
            put(a.slope, j, gradient)
            put(a.il, j, low)
            put(a.iu, j, high)
            put(a.theta, j, inverse)
            put(a.right, j, inverse * (z_high - z_low - gradient))
        product(system.by_rows, x.w, z.work)
        primal, prices = spread(0.0, a.c), spread(0.0, a.c)
        for i in range(rows):
            missing = get(b.r, i) - get(b.s, i) - get(b.work, i)
            put(b.rp, i, missing)
            primal, prices = maximum(primal, absolute(missing)), maximum(prices, absolute(get(b.y, i)))
            gap = gap + get(b.s, i) * get(b.y, i)
        put(few, 0, primal)
        put(few, 1, largest)
        put(few, 2, worst)
        put(few, 3, prices)
        put(few, 4, gap)
        all_gap = _sum(few, 4)
        residual = max(_largest(few, 0) / _largest(few, 1), _largest(few, 2) / max(_largest(few, 3), 1.0))
        if residual <= max(tolerance, FEASIBLE) and all_gap <= tolerance * count:
            return True
        if step == STEPS or not residual < np.inf:
            return False

        product(tape.products, x.theta, own.values)
        for i in range(rows):
            binds = get(b.inequality, i) > 0.0
            put(b.price, i, where(binds, 1.0 / where(binds, get(b.y, i), 1.0), 0.0))
            put(b.dy, i, REGULARIZATION + get(b.s, i) * get(b.price, i))
        for i in range(m):
            diagonal = get(own.values, entries + i) + get(z.dy, i)
            put(own.values, entries + i, diagonal)
            put(own.whole, i, diagonal)
        factorize(tape, own, 0.0)

        # Predictor.
        product(system.by_rows, x.right, z.dy)
        for i in range(rows):
            put(b.dy, i, get(b.dy, i) - get(b.rp, i) - get(b.s, i))
        substitute(tape, own, z.dy)
        product(system.by_columns, z.dy, x.image)
        # What is left of the gap after a step of length t is (1 − t) gap − t² bend.
        worst, bend = spread(1.0, a.c), spread(0.0, a.c)
        for j in range(columns):
            move = get(a.right, j) - get(a.theta, j) * get(a.image, j)
            put(a.dw, j, move)
            low, high = get(a.has_lower, j) * move * get(a.il, j), get(a.has_upper, j) * move * get(a.iu, j)
            worst = maximum(worst, maximum(maximum(-1.0 * low, 1.0 + low), maximum(high, 1.0 - high)))
            bend = bend + move * (get(a.zl, j) * (1.0 + low) - get(a.zu, j) * (1.0 - high))
        for i in range(rows):
            share = get(b.dy, i) * get(b.price, i)
            put(b.ds, i, -1.0 * get(b.s, i) * (1.0 + share))
            worst = maximum(worst, maximum(1.0 + share, -1.0 * share))
            bend = bend + get(b.dy, i) * get(b.s, i) * (1.0 + share)
        put(few, 0, worst)
        put(few, 1, bend)
        length = 1.0 / _largest(few, 0)
        share_left = 0.0
        if all_gap > 0.0:
            share_left = max((1.0 - length) - length * length * _sum(few, 1) / all_gap, 0.0)
        aim = share_left * share_left * share_left * all_gap / count

        # Corrector.
        for j in range(columns):
            move, z_low, z_high = get(a.dw, j), get(a.zl, j), get(a.zu, j)
            low = get(a.has_lower, j) * aim + move * z_low * (1.0 + move * get(a.il, j)) - get(a.gl, j) * z_low
            high = get(a.has_upper, j) * aim - move * z_high * (1.0 - move * get(a.iu, j)) - get(a.gu, j) * z_high
            put(a.tl, j, low)
            put(a.tu, j, high)
            put(a.right, j, get(a.theta, j) * (low * get(a.il, j) - high * get(a.iu, j) - get(a.slope, j)))
        for i in range(rows):
            put(b.ts, i, get(b.inequality, i) * (aim - get(b.ds, i) * get(b.dy, i) - get(b.s, i) * get(b.y, i)))
        product(system.by_rows, x.right, z.dy)
        for i in range(rows):
            put(b.dy, i, get(b.dy, i) - get(b.rp, i) + get(b.ts, i) * get(b.price, i))
        substitute(tape, own, z.dy)
        product(system.by_columns, z.dy, x.image)
        worst = spread(1.0, a.c)
        for j in range(columns):
            move, z_low, z_high = get(a.right, j) - get(a.theta, j) * get(a.image, j), get(a.zl, j), get(a.zu, j)
            dz_low, dz_high = (
                (get(a.tl, j) - z_low * move) * get(a.il, j),
                (get(a.tu, j) + z_high * move) * get(a.iu, j),
            )
            put(a.dw, j, move)
            put(a.dzl, j, dz_low)
            put(a.dzu, j, dz_high)
            low, high = get(a.has_lower, j) * move * get(a.il, j), get(a.has_upper, j) * move * get(a.iu, j)
            worst = maximum(worst, maximum(-1.0 * low, high))
            worst = maximum(worst, where(z_low > 0.0, -1.0 * dz_low / z_low, 0.0))
            worst = maximum(worst, where(z_high > 0.0, -1.0 * dz_high / z_high, 0.0))
        for i in range(rows):
            slack, binds = get(b.s, i), get(b.inequality, i) > 0.0
            change = (get(b.ts, i) - slack * get(b.dy, i)) * get(b.price, i)
            put(b.ds, i, change)
            worst = maximum(worst, -1.0 * get(b.dy, i) * get(b.price, i))
            worst = maximum(worst, where(binds, -1.0 * change / where(binds, slack, 1.0), 0.0))
        put(few, 0, worst)
        length = min(TOWARDS_BOUNDARY / _largest(few, 0), 1.0)
        for i in range(rows):
            put(b.y, i, get(b.y, i) + length * get(b.dy, i))
            put(b.s, i, get(b.s, i) + length * get(b.ds, i))
    return False


@inner
def _snap(a: Columns, b: Rows) -> None:
    """As `face.snap`: the face goes to theta (the inside), dw (its w), work (rows in force) and y."""
    for j in range(a.c.shape[0]):
        low = where(get(a.zl, j) > get(a.gl, j), get(a.has_lower, j), 0.0)
        high = where(get(a.zu, j) > get(a.gu, j), get(a.has_upper, j), 0.0)
        w = minimum(maximum(get(a.w, j), get(a.lower, j)), get(a.upper, j))
        w = where(high > 0.0, get(a.upper, j), where(low > 0.0, get(a.lower, j), w))
        put(a.dw, j, w)
        put(a.theta, j, where((w > get(a.lower, j)) & (w < get(a.upper, j)), 1.0, 0.0))
    for i in range(b.r.shape[0]):
        binds = where(get(b.y, i) > get(b.s, i), 1.0, 0.0)
        put(b.force, i, where(get(b.inequality, i) > 0.0, binds, 1.0))
        put(b.y, i, get(b.y, i) * get(b.force, i))


@inner
def _correct(
    system: Any, tape: Tape, own: Values, a: Columns, b: Rows, x: Columns, z: Rows, mu: float, few: Any
) -> None:
    """As `face.correct`."""
    columns, rows = a.c.shape[0], b.r.shape[0]
    product(system.by_columns, z.y, x.image)
    for j in range(columns):
        w = get(a.dw, j)
        reduced = get(a.c, j) + mu * w + get(a.image, j)
        leaves = where((w > get(a.lower, j)) & (reduced > 0.0), 1.0, 0.0)
        leaves = where((w < get(a.upper, j)) & (reduced < 0.0), 1.0, leaves)
        put(a.theta, j, maximum(get(a.theta, j), leaves))
        put(a.slope, j, reduced * get(a.theta, j))
    product(system.by_rows, x.dw, z.rp)
    product(system.by_rows, x.slope, z.dy)
    least = spread(1.0, a.c)
    for i in range(rows):
        missing, force = get(b.r, i) - get(b.rp, i), get(b.force, i)
        force = where(missing < 0.0, where(get(b.inequality, i) > 0.0, 1.0, force), force)
        put(b.force, i, force)
        put(b.dy, i, force * (-1.0 * mu * missing - get(b.dy, i)))
        least = minimum(least, force)
    put(few, 0, -1.0 * least)
    masked_factor(tape, own, x.theta, z.force, _largest(few, 0) == -1.0, DAMPING, DAMPING)
    substitute(tape, own, z.dy)
    product(system.by_columns, z.dy, x.image)
    for j in range(columns):
        move = get(a.theta, j) * (get(a.slope, j) + get(a.image, j)) / mu
        moved = minimum(maximum(get(a.dw, j) - move, get(a.lower, j)), get(a.upper, j))
        put(a.dw, j, moved)
        put(a.theta, j, where((moved > get(a.lower, j)) & (moved < get(a.upper, j)), 1.0, 0.0))
    for i in range(rows):
        price, binds = get(b.y, i) + get(b.dy, i), get(b.inequality, i) > 0.0
        price = where(binds, maximum(price, 0.0), price)
        put(b.force, i, where(binds, where(price > 0.0, get(b.force, i), 0.0), get(b.force, i)))
        put(b.y, i, price)


@inner
def _read(numbers: Any, column: Any, scale: Any, d: Any, c: Any) -> float:
    """c = S y + d, S with one entry in each row; the largest |c|, not finite where one of y or c is not."""
    size, cost = 0.0, c.lane
    for j in range(len(column)):
        value = np.float64(numbers[column[j]]) * scale[j] + d[j]
        cost[j, 0] = value
        size += value * value
    return size


@jit
def solve_alone(
    plan: Any,
    y: int,
    w: int,
    single: bool,
    mu: float,
    tolerance: float,
    near: float,
    face: Any,
    objective: Any,
    residual: Any,
) -> bool:
    """The answer to costs y `(p,)` at that address into w `(n,)`, both float32 (single) or float64; face: which variables are inside,
    and then which rows in force; objective, residual `(1,)`. Whether it is one: otherwise nothing is said."""
    system, tape, at = system_of(plan), tape_of(plan, TAPE), TOLD
    n, m, p = plan[0], plan[1], plan[at]
    index, number = np.uint32(0), np.float64(0.0)
    column, scale, d = array_at(plan, at + 1, index), array_at(plan, at + 3, number), array_at(plan, at + 5, number)
    wide, narrow, few, units = (
        wide_at(plan, at + 7),
        narrow_at(plan, at + 9),
        wide_at(plan, at + 11),
        narrow_at(plan, at + 13),
    )
    values, scaled = narrow_at(plan, at + 15), narrow_at(plan, at + 17)
    r_given, lower, upper = (
        array_at(plan, at + 19, number),
        array_at(plan, at + 21, number),
        array_at(plan, at + 23, number),
    )
    groups, row_groups = (n + 7) // 8, (m + 7) // 8
    a, b = columns_of(wide, groups), rows_of(wide[COLUMNS * groups :], row_groups)
    x, z = columns_of(narrow, 8 * groups), rows_of(narrow[8 * COLUMNS * groups :], 8 * row_groups)
    own = Values(values, scaled, z.whole)
    c = x.c[:n]
    size = (
        _read(array_of(y, p, np.float32(0.0)), column, scale, d, c)
        if single
        else _read(array_of(y, p, number), column, scale, d, c)
    )
    if not size < np.inf:
        return False
    for j in range(n):
        x.lower.lane[j, 0], x.upper.lane[j, 0] = lower[j], upper[j]
    for i in range(m):
        z.r.lane[i, 0] = r_given[i]
    mus = units[2:4]
    mus.lane[0, 0] = mu
    tile = SmoothedTile(c, mus, z.r[:m], x.lower[:n], x.upper[:n])
    to_units(system, tile, units[:2])
    sigma, gamma, m_ = units.lane[0, 0], units.lane[1, 0], mus.lane[0, 0]
    _start(system, a, b, x, z, m_)
    if not _interior(system, tape, own, a, b, x, z, m_, near, few):
        return False
    _snap(a, b)
    found, prices, place = np.empty(1), z.y[:m], x.w[:n]
    state = units[4:7]
    for _ in range(CORRECTIONS):
        _correct(system, tape, own, a, b, x, z, m_, few)
        _evaluate(system, tile, tolerance, prices, place, x.zl[:n], z.work[:m], state)
        if state.lane[2, 0] <= 0.0:
            measure(system, tile, prices, place, x.image[:n], 0.0, found)
            if found[0] <= tolerance:
                break
    else:
        return False
    in_force(system, tile, prices, place, z.work[:m], x.image[:n], z.force[:m])
    value = 0.0
    for j in range(n):
        point = place.lane[j, 0]
        value += point * (c.lane[j, 0] + 0.5 * m_ * point)
        face[j] = x.zl.lane[j, 0]
    for i in range(m):
        face[n + i] = z.force.lane[i, 0]
    objective[0], residual[0] = gamma * sigma * value, found[0]
    if single:
        out = array_of(w, n, np.float32(0.0))
        for j in range(n):
            out[j] = np.float32(sigma * place.lane[j, 0])
    else:
        exact = array_of(w, n, number)
        for j in range(n):
            exact[j] = sigma * place.lane[j, 0]
    return True
