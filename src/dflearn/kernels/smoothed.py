"""The smoothed LP for a batch, tile by tile: load, scale, solve, store.

The program is stated in `smoothed_lp`. Every instance is solved in units of its own, σ for decisions and γ for costs:

    w = σ v,   y = γ η,   c = γ c',   r, lower, upper = σ (r', lower', upper'),   μ' = μ σ/γ

Both are powers of two, so that the change of units rounds nothing, and nothing depends on the units that the user chose.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels.cholesky import SparseFactor, SparseRows
from dflearn.kernels.dual_newton import (
    NEWTON_COLUMNS,
    NEWTON_ROWS,
    dual_newton,
    newton_scratch,
)
from dflearn.kernels.face import (
    FACE_COLUMNS,
    FACE_ROWS,
    FINISHED,
    face_scratch,
    finish_on_face,
    keep_better,
    keep_face,
    kept_face,
)
from dflearn.kernels.interior_point import (
    INTERIOR_COLUMNS,
    INTERIOR_ROWS,
    interior_point,
    interior_restart,
    interior_scratch,
    interior_start,
)
from dflearn.kernels.lanes import (
    absolute,
    array_at,
    cut,
    gather,
    get,
    inner,
    jit,
    lanes,
    load,
    maximum,
    minimum,
    put,
    spread,
    store,
    where,
    wide_tile,
)
from dflearn.kernels.optimality import NOISE, in_force, measure
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile
from dflearn.kernels.symbolic import Pattern

ENOUGH = 1e-7  # a residual up to this needs no other start
CONFIRMED = 2  # steps of Newton's method from the solution's face: at the right one a single step is exact
CLOSE, CLOSER, CLOSEST = 1e-3, 1e-4, 1e-6  # times its tolerance, where the face or Newton's method did not finish
WIDER = 100.0  # times its distance from the bounds, where it did not finish itself
NEAR, NEAR_PRICE = 0.1, 0.002  # from multipliers: its distance from the bounds, and the least multiplier
COLUMNS = 4 + INTERIOR_COLUMNS + NEWTON_COLUMNS + FACE_COLUMNS  # tiles of n items in the work space, and of m items
ROWS = 3 + INTERIOR_ROWS + NEWTON_ROWS + FACE_ROWS

# How a batch is solved: by interior points from nothing; by Newton's method from the multipliers at hand, as long as that is
# quick; by interior points from there.
COLD, NEWTON, RESTART = 0, 1, 2


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
    def empty(cls, count: int, n: int, m: int, dtype: Any = np.float64) -> SmoothedAnswer:
        not_run = np.empty((2, count), np.int64)
        not_run.fill(-2)
        residual = np.empty(count)
        residual.fill(np.inf)
        faces = np.empty((count, n), np.uint8), np.empty((count, m), np.uint8)
        return cls(
            np.empty((count, m)),
            np.empty((count, n), dtype),
            *faces,
            np.empty(count),
            residual,
            np.zeros(count, np.uint8),
            *not_run,
        )


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


class Plan(NamedTuple):
    """What compiled code is told of a program, as one array of addresses and sizes: a call with few arguments is a fast one."""

    numbers: np.ndarray
    kept: tuple[np.ndarray, ...]  # the arrays at those addresses

    @classmethod
    def of(cls, factor: SparseFactor, inequality: np.ndarray) -> Plan:
        pattern, by_rows, by_columns = factor.pattern, factor.by_rows, factor.by_columns
        kept = tuple(
            map(
                np.ascontiguousarray,
                (*pattern[:-1], *by_rows, *by_columns, inequality.astype(np.bool_), pattern.curve),
            )
        )
        sizes = [number for array in kept for number in (array.ctypes.data, array.size)]
        return cls(np.array([factor.matrix.shape[1], factor.rows, *sizes], np.int64), kept)


def workspace(factor: SparseFactor, width: int) -> np.ndarray:
    """Scratch of one thread for tiles of so many lanes: COLUMNS tiles of n items, ROWS of m, and values as of `assemble`."""
    n, m = factor.matrix.shape[1], factor.rows
    return wide_tile(COLUMNS * n + ROWS * m + factor.value_rows, width, np.float64)


@inner
def thirds(space: Any, n: int, m: int) -> Any:
    """The tiles of n items in a work space, those of m items, and the values."""
    rows = COLUMNS * n + ROWS * m
    return space[: COLUMNS * n], space[COLUMNS * n : rows], space[rows:]


@inner
def system_of(plan: Any) -> SmoothedSystem:
    """The system that a plan's numbers tell of."""
    index, number, truth = np.uint32(0), np.float64(0.0), np.bool_(False)
    pattern = Pattern(
        array_at(plan, 2, index), array_at(plan, 4, index), array_at(plan, 6, index), array_at(plan, 8, index),
        array_at(plan, 10, index), array_at(plan, 12, index), array_at(plan, 14, index), array_at(plan, 16, index),
        array_at(plan, 18, index), array_at(plan, 20, index), array_at(plan, 22, number), array_at(plan, 38, np.int64(0)),
    )  # fmt: skip
    by_rows = SparseRows(array_at(plan, 24, index), array_at(plan, 26, index), array_at(plan, 28, number))
    by_columns = SparseRows(array_at(plan, 30, index), array_at(plan, 32, index), array_at(plan, 34, number))
    return SmoothedSystem(pattern, by_rows, by_columns, array_at(plan, 36, truth))


@inner
def load_tile(data: SmoothedData, index: Any, n: int, m: int, columns: Any, rows: Any) -> Any:
    """The instances `index` as a tile, and places for w and y. Takes four tiles of `columns` and two of `rows`."""
    tile = SmoothedTile(
        cut(columns, 0, n), np.empty(2, columns.dtype), cut(rows, 0, m), cut(columns, 1, n), cut(columns, 2, n)
    )
    load(data.c, index, tile.c.lane)
    load(data.r, index, tile.r.lane)
    load(data.lower, index, tile.lower.lane)
    load(data.upper, index, tile.upper.lane)
    load(data.mu.reshape(-1, 1), index, tile.mu.lane)
    return tile, cut(columns, 3, n), cut(rows, 1, m)


@inner
def power_of_two(x: float, otherwise: float) -> float:
    """The smallest power of two from x on; `otherwise` where x is not a positive number."""
    if not (x > 0.0 and x < np.inf):
        return otherwise
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


@inner
def to_units(system: SmoothedSystem, tile: SmoothedTile, units: Any) -> None:
    """The tile in its instances' own units (see the top of this module); units (2 items) become σ and γ.

    σ: the least that the solution's size can be, given the right-hand sides and bounds; or the size of the solution
    without rows, clip(−c/μ), if that is larger and some right-hand side is as large. γ: the largest of costs and of μσ.
    """
    c, mu, r, lower, upper = tile.c, tile.mu, tile.r, tile.lower, tile.upper
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
    sizes: Any = np.empty(3, c.dtype)
    put(sizes, 0, maximum(forced, pull))
    put(sizes, 1, maximum(sides, bounds))
    put(sizes, 2, costs)
    size, unit = sizes.lane, units.lane
    for t in range(lanes(c)):
        sigma = power_of_two(size[0, t], power_of_two(size[1, t], 1.0))
        unit[0, t], unit[1, t] = sigma, power_of_two(max(size[2, t], mu.lane[0, t] * sigma), 1.0)
    per_sigma, per_gamma = 1.0 / get(units, 0), 1.0 / get(units, 1)
    put(mu, 0, smoothing * get(units, 0) * per_gamma)
    least = where(least < np.inf, least, where(costs > 0.0, costs / smoothing, get(units, 0)))
    put(mu, 1, least * per_sigma)
    for j in range(c.shape[0]):
        put(c, j, get(c, j) * per_gamma)
        put(lower, j, get(lower, j) * per_sigma)
        put(upper, j, get(upper, j) * per_sigma)
    for i in range(r.shape[0]):
        put(r, i, get(r, i) * per_sigma)


@inner
def solve_tile(
    system: SmoothedSystem,
    data: SmoothedData,
    index: Any,
    used: int,
    way: int,
    limits: Limits,
    n: int,
    m: int,
    space: Any,
    answer: SmoothedAnswer,
) -> None:
    """Instances `index` of the batch, the first `used` of them for good: from the multipliers in `answer.y` unless cold."""
    columns, rows, values = thirds(space, n, m)
    tile, w, y = load_tile(data, index, n, m, columns, rows)
    c, mu, width = tile.c, tile.mu, lanes(tile.c)
    units, residual, steps = np.empty(2, c.dtype), np.empty(width), np.empty(width, np.int64)
    to_units(system, tile, units)
    sigma, gamma = get(units, 0), get(units, 1)
    columns, rows = columns[4 * n :], rows[2 * m :]
    last = newton_scratch(columns, rows, n, m, values)
    columns, rows = columns[NEWTON_COLUMNS * n :], rows[NEWTON_ROWS * m :]
    point = interior_scratch(columns, rows, n, m, values)
    columns, rows = columns[INTERIOR_COLUMNS * n :], rows[INTERIOR_ROWS * m :]
    prices = cut(rows, 0, m)
    proven, inner_steps = np.zeros(width, np.bool_), np.empty(width, np.int64)
    inner_steps[:], steps[:] = -1, -1
    if way != COLD:
        load(answer.y, index, y.lane)
        for i in range(m):
            put(y, i, get(y, i) / gamma)
            put(prices, i, get(y, i))
    if way != NEWTON:
        if way == COLD:
            interior_start(system, tile, point, prices, 1.0, 0.1)
        else:
            interior_restart(system, tile, point, prices, NEAR, NEAR_PRICE)
        side = face_scratch(columns, rows[m:], n, m, values)
        residual[:] = np.inf
        for i in range(m):
            put(y, i, 0.0)
        # To the solution's face, which Newton's method then only confirms; once more from closer by where it is not found.
        goal, todo = limits.interior_tolerance, inner_steps
        for again in range(2):
            interior_point(system, tile, limits.interior_steps, goal, point, prices, todo, proven)
            if not limits.cheap:  # where faces led nowhere before, Newton's method from here may
                break
            for t in range(width):
                residual[t] = 0.0 if proven[t] else residual[t]
            finish_on_face(
                system, tile, point, prices, limits.tolerance, again > 0, side, residual, w, y, last.inside, last.mask
            )
            goal, todo, any_left = limits.interior_tolerance * CLOSE, np.zeros(width, np.int64), False
            for t in range(width):
                if inner_steps[t] >= 0 and not (proven[t] or residual[t] <= FINISHED * limits.tolerance):
                    todo[t], any_left = -1, True
            if not any_left:
                break
        for t in range(width):
            if not residual[t] <= ENOUGH:
                for i in range(m):
                    y.lane[i, t] = prices.lane[i, t]
    if not proven.all():
        at_most, on_face = limits.newton_steps, np.empty(width)
        side = face_scratch(columns, rows[m:], n, m, values)
        if way != NEWTON:
            all_there = True
            for t in range(width):
                on_face[t] = residual[t]
                all_there = all_there and (proven[t] or residual[t] <= FINISHED * limits.tolerance)
            if all_there:
                at_most = min(at_most, CONFIRMED)
            keep_face(side, w, y, last.inside, last.mask)
        dual_newton(system, tile, at_most, limits.patience, limits.tolerance, last, y, w, steps)
        if way == NEWTON and limits.patience == 1 and (steps < 0).all():
            # Nothing is written but that: steps without patience that led nowhere are no better place to begin than the start.
            for t in range(used):
                answer.residual[index[t]], answer.newton_steps[index[t]] = np.inf, -1
            return
        measure(system, tile, y, w, last.image, 0.0 if way == NEWTON else NOISE, residual)
        in_force(system, tile, y, w, last.g, last.image, last.mask)
        if way != NEWTON:
            for t in range(width):  # an answer that Newton's method confirms stays as it is
                on_face[t] = on_face[t] if residual[t] > FINISHED * limits.tolerance else np.inf
            keep_better(kept_face(side), on_face, residual, w, y, last.inside, last.mask)
            for attempt in range(limits.attempts + 1):
                for t in range(width):
                    if proven[t] or residual[t] <= FINISHED * limits.tolerance:
                        residual[t] = 0.0  # done: what other lanes still need leaves it as it is
                if (residual <= FINISHED * limits.tolerance).all() or (attempt > 1 and (residual <= ENOUGH).all()):
                    break
                if attempt > 0:
                    if limits.cheap:  # lanes that came to an end of their steps get no more of them
                        hopeful = False
                        for t in range(width):
                            hopeful |= residual[t] > FINISHED * limits.tolerance and inner_steps[t] >= 0
                        if not hopeful:
                            break
                    if attempt > 2:  # another start
                        wide = WIDER ** (attempt - 2)
                        interior_start(system, tile, point, prices, wide, 0.1 * wide)
                    for t in range(width):
                        inner_steps[t] = -1 if residual[t] > FINISHED * limits.tolerance else 0
                    goal = limits.interior_tolerance * CLOSER * (CLOSEST if attempt == 2 else 1.0)
                    interior_point(system, tile, limits.interior_steps, goal, point, prices, inner_steps, proven)
                finish_on_face(
                    system, tile, point, prices, limits.tolerance, True, side, residual, w, y, last.inside, last.mask
                )
            measure(system, tile, y, w, last.image, 0.0, residual)  # the last word, without any allowance
    value, half = spread(0.0, c), 0.5 * get(mu, 0)
    for j in range(n):
        value = value + get(w, j) * (get(c, j) + half * get(w, j))
        put(w, j, sigma * get(w, j))
    put(mu, 0, gamma * sigma * value)
    for i in range(m):
        put(y, i, gamma * get(y, i))
    store(w.lane, index, used, answer.w)
    store(y.lane, index, used, answer.y)
    store(last.inside.lane, index, used, answer.inside)
    store(last.mask.lane, index, used, answer.in_force)
    for t in range(used):
        row = index[t]
        answer.objective[row] = mu.lane[0, t]
        answer.residual[row] = np.inf if proven[t] else residual[t]
        answer.infeasible[row] = 1 if proven[t] else 0
        answer.newton_steps[row] = steps[t]
        answer.interior_steps[row] = -2 if way == NEWTON else inner_steps[t]


@inner
def tile_index(index: Any, first: int, lane: Any) -> int:
    """lane: the instance numbers from `first` on, the last one repeated; how many of them there are."""
    used = min(len(lane), len(index) - first)
    for t in range(len(lane)):
        lane[t] = index[first + min(t, used - 1)]
    return used


@jit
def solve_tiles(
    plan: Any, space: Any, index: Any, way: int,
    newton_steps: int, patience: int, interior_steps: int, tolerance: float, interior_tolerance: float, attempts: int, cheap: bool,
    c: Any, mu: Any, r: Any, lower: Any, upper: Any,
    y: Any, w: Any, inside: Any, in_force: Any, objective: Any, residual: Any, infeasible: Any, newton: Any, interior: Any,
) -> None:  # fmt: skip
    """Instances `index` of a batch, tile by tile: `Plan.numbers`, `workspace`, `Limits`, `SmoothedData`, `SmoothedAnswer`."""
    system, width = system_of(plan), lanes(space)
    limits = Limits(newton_steps, patience, interior_steps, tolerance, interior_tolerance, attempts, cheap)
    data = SmoothedData(c, mu, r, lower, upper)
    answer = SmoothedAnswer(y, w, inside, in_force, objective, residual, infeasible, newton, interior)
    lane = np.empty(width, np.int64)
    for first in range(0, len(index), width):
        used = tile_index(index, first, lane)
        solve_tile(system, data, lane, used, way, limits, plan[0], plan[1], space, answer)


@jit
def cone_tiles(
    plan: Any, space: Any, index: Any, limit: int, c: Any, mu: Any, r: Any, lower: Any, upper: Any, out: Any
) -> None:
    """out = Mᵀy − z_l + z_u after `limit` interior-point steps: a point inside the cone of what binds, (count, n)."""
    system, n, m, width = system_of(plan), plan[0], plan[1], lanes(space)
    columns, rows, values = thirds(space, n, m)
    data, lane = SmoothedData(c, mu, r, lower, upper), np.empty(width, np.int64)
    scratch = interior_scratch(columns[4 * n :], rows[2 * m :], n, m, values)
    for first in range(0, len(index), width):
        used = tile_index(index, first, lane)
        tile, slope, y = load_tile(data, lane, n, m, columns, rows)
        steps = np.empty(width, np.int64)
        steps[:] = -1
        interior_start(system, tile, scratch, y, 1.0, 0.1)
        interior_point(system, tile, limit, 0.0, scratch, y, steps, np.zeros(width, np.bool_))
        gather(system.by_columns, y, slope)
        for j in range(n):
            put(slope, j, get(slope, j) + get(scratch.zu, j) - get(scratch.zl, j))
        store(slope.lane, lane, used, out)
