"""The smoothed LP for a batch, tile by tile: load, scale, solve, store. And the projection onto its solution's face.

The program is stated in `smoothed_lp`. Every instance is solved in units of its own, σ for decisions and γ for costs:

    w = σ v,   y = γ η,   c = γ c',   r, lower, upper = σ (r', lower', upper'),   μ' = μ σ/γ

Both are powers of two, so that the change of units rounds nothing, and nothing depends on the units that the user chose.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels.cholesky import SparseFactor, assemble, factorize, substitute
from dflearn.kernels.dual_newton import (
    NEWTON_COLUMNS,
    NEWTON_ROWS,
    VANISHING_PIVOT,
    dual_newton,
    mask_rows,
    newton_scratch,
)
from dflearn.kernels.face import FACE_COLUMNS, FACE_ROWS, face_scratch, finish_on_face
from dflearn.kernels.interior_point import (
    INTERIOR_COLUMNS,
    INTERIOR_ROWS,
    interior_point,
    interior_scratch,
    interior_start,
)
from dflearn.kernels.lanes import LANES, absolute, gather, get, jit, load, maximum, minimum, put, spread, store, where
from dflearn.kernels.optimality import measure
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile

FINISHED = 10.0  # times the tolerance: a residual up to this needs no more work
ENOUGH = 1e-7  # a residual up to this needs no other start
CLOSER, CLOSEST = 1e-4, 1e-6  # times its tolerance, where the dual Newton method did not finish
WIDER = 100.0  # times its distance from the bounds, where it did not finish itself


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

    attempts: of the interior-point method, after the first: two from its last point, the others from other starts.
    cheap: whether an instance gets no further attempt once it used up its steps.
    """

    newton_steps: int
    interior_steps: int
    tolerance: float
    interior_tolerance: float
    attempts: int
    cheap: bool


class Workspace(NamedTuple):
    """Scratch of one thread, reused from call to call: arrays (·, n, LANES) and (·, m, LANES), values as of `assemble`.

    The first ones hold the instances and their solution, see `load_tile`; each method has some of the others.
    """

    columns: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, factor: SparseFactor) -> Workspace:
        n, m = factor.matrix.shape[1], factor.rows
        columns = 4 + INTERIOR_COLUMNS + NEWTON_COLUMNS + FACE_COLUMNS
        rows = 3 + INTERIOR_ROWS + NEWTON_ROWS + FACE_ROWS
        return cls(np.empty((columns, n, LANES)), np.empty((rows, m, LANES)), np.empty((factor.entries + m, LANES)))


@jit
def load_tile(data: SmoothedData, index: Any, space: Workspace) -> Any:
    """The instances `index` as a tile, places for w and y, and the rest of the work space: its columns and rows."""
    mu = np.empty((2, LANES))
    tile = SmoothedTile(space.columns[0], mu, space.rows[0], space.columns[1], space.columns[2])
    load(data.c, index, tile.c)
    load(data.r, index, tile.r)
    load(data.lower, index, tile.lower)
    load(data.upper, index, tile.upper)
    load(data.mu.reshape(-1, 1), index, mu)
    return tile, space.columns[3], space.rows[1], space.columns[4:], space.rows[2:]


@jit
def power_of_two(x: float, otherwise: float) -> float:
    """The smallest power of two from x on; `otherwise` where x is not a positive number."""
    if not (x > 0.0 and x < np.inf):
        return otherwise
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


@jit
def to_units(system: SmoothedSystem, tile: SmoothedTile, units: Any) -> None:
    """The tile in its instances' own units (see the top of this module); units (2, LANES) become σ and γ.

    σ: the least that the solution's size can be, given the right-hand sides and bounds; or the size of the solution
    without rows, clip(−c/μ), if that is larger and some right-hand side is as large. γ: the largest of costs and of μσ.
    """
    c, mu, r, lower, upper = tile.c, tile.mu, tile.r, tile.lower, tile.upper
    forced, pull, sides, costs, smoothing = spread(0.0), spread(0.0), spread(0.0), spread(0.0), get(mu, 0)
    bounds, target, least = spread(0.0), -1.0 / smoothing, spread(np.inf)
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
    own, other = np.empty((2, LANES)), np.empty((2, LANES))
    put(own, 0, maximum(forced, pull))
    put(own, 1, costs)
    put(other, 0, maximum(sides, bounds))
    for t in range(LANES):
        sigma = power_of_two(own[0, t], power_of_two(other[0, t], 1.0))
        units[0, t], units[1, t] = sigma, power_of_two(max(own[1, t], mu[0, t] * sigma), 1.0)
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


@jit
def solve_tile(
    system: SmoothedSystem,
    data: SmoothedData,
    index: Any,
    used: int,
    warm: bool,
    limits: Limits,
    space: Workspace,
    answer: SmoothedAnswer,
) -> None:
    """Instances `index` of the batch: from the multipliers in `answer.y` if warm, otherwise by the interior-point method."""
    tile, w, y, columns, rows = load_tile(data, index, space)
    c, mu, n, m = tile.c, tile.mu, tile.c.shape[0], tile.r.shape[0]
    units, residual, steps = np.empty((2, LANES)), np.empty(LANES), np.empty(LANES, np.int64)
    to_units(system, tile, units)
    sigma, gamma = get(units, 0), get(units, 1)
    last = newton_scratch(columns, rows, space.values)
    point = interior_scratch(columns[NEWTON_COLUMNS:], rows[NEWTON_ROWS:], space.values)
    prices, proven, inner_steps = (
        rows[NEWTON_ROWS + INTERIOR_ROWS],
        np.zeros(LANES, np.bool_),
        np.empty(LANES, np.int64),
    )
    inner_steps[:] = -1
    if warm:
        load(answer.y, index, y)
        for i in range(m):
            put(y, i, get(y, i) / gamma)
    else:
        interior_start(system, tile, point, prices, 1.0, 0.1)
        interior_point(
            system, tile, limits.interior_steps, limits.interior_tolerance, point, prices, inner_steps, proven
        )
        for i in range(m):
            put(y, i, get(prices, i))
    if not proven.all():
        dual_newton(system, tile, limits.newton_steps, limits.tolerance, last, y, w, steps)
        measure(system, tile, y, w, last.image, residual)
        for i in range(m):
            put(last.mask, i, 1.0)
            if system.inequality[i]:
                put(last.mask, i, where(get(y, i) + get(last.g, i) > 0.0, 1.0, 0.0))
        if not warm:
            side = face_scratch(
                columns[NEWTON_COLUMNS + INTERIOR_COLUMNS :], rows[NEWTON_ROWS + INTERIOR_ROWS + 1 :], space.values
            )
            for attempt in range(limits.attempts + 1):
                for t in range(LANES):
                    residual[t] = 0.0 if proven[t] else residual[t]
                if (residual <= FINISHED * limits.tolerance).all() or (attempt > 1 and (residual <= ENOUGH).all()):
                    break
                if attempt > 0 and limits.cheap:  # lanes that came to an end of their steps get no more of them
                    hopeful = False
                    for t in range(LANES):
                        hopeful |= residual[t] > FINISHED * limits.tolerance and inner_steps[t] >= 0
                    if not hopeful:
                        break
                if attempt > 2:  # another start
                    wide = WIDER ** (attempt - 2)
                    interior_start(system, tile, point, prices, wide, 0.1 * wide)
                for t in range(LANES):
                    inner_steps[t] = -1 if residual[t] > FINISHED * limits.tolerance else 0
                extra, goal = limits.interior_steps, limits.interior_tolerance * CLOSER
                if attempt > 0:
                    goal = goal * CLOSEST if attempt == 2 else goal
                    interior_point(system, tile, extra, goal, point, prices, inner_steps, proven)
                finish_on_face(
                    system, tile, point, prices, limits.tolerance, side, residual, w, y, last.inside, last.mask
                )
    value, half = spread(0.0), 0.5 * get(mu, 0)
    for j in range(n):
        value = value + get(w, j) * (get(c, j) + half * get(w, j))
        put(w, j, sigma * get(w, j))
    put(mu, 0, gamma * sigma * value)
    store(w, index, used, answer.w)
    store(last.inside, index, used, answer.inside)
    store(last.mask, index, used, answer.in_force)
    for t in range(used):
        row = index[t]
        answer.objective[row] = mu[0, t]
        answer.residual[row] = np.inf if proven[t] else residual[t]
        answer.infeasible[row] = 1 if proven[t] else 0
        answer.newton_steps[row] = steps[t]
        answer.interior_steps[row] = -2 if warm else inner_steps[t]
        for i in range(m):
            answer.y[row, i] = y[i, t] * units[1, t]


@jit
def project_tile(
    system: SmoothedSystem,
    inside: Any,
    in_force: Any,
    v: Any,
    factor: Any,
    index: Any,
    used: int,
    space: Workspace,
    out: Any,
) -> None:
    """out = factor · P v, P the orthogonal projection onto {x : x_j = 0 off the inside, (M x)_i = 0 on the rows in force}.

    v, inside (count, n), in_force (count, m), factor (count or 1,). Rows that depend on others within the face are left
    out, which leaves the projection as it is.
    """
    x, d, image = space.columns[0], space.columns[1], space.columns[2]
    mask, z, work = space.rows[0], space.rows[1], space.rows[2]
    load(inside, index, d)
    load(in_force, index, mask)
    load(v, index, x)
    for j in range(x.shape[0]):
        put(x, j, get(x, j) * get(d, j))
    gather(system.by_rows, x, z)
    for i in range(z.shape[0]):
        put(z, i, get(z, i) * get(mask, i))
    assemble(system.pattern, d, space.values)
    mask_rows(system.pattern, mask, space.values)
    factorize(system.pattern, space.values, work, VANISHING_PIVOT)
    substitute(system.pattern, space.values, z)
    gather(system.by_columns, z, image)
    lanes = np.empty((1, LANES))
    load(factor.reshape(-1, 1), index, lanes)
    scale = get(lanes, 0)
    for j in range(x.shape[0]):
        put(x, j, scale * (get(x, j) - get(d, j) * get(image, j)))
    store(x, index, used, out)


@jit
def cone_tile(
    system: SmoothedSystem, data: SmoothedData, index: Any, used: int, limit: int, space: Workspace, out: Any
) -> None:
    """out = Mᵀy − z_l + z_u after `limit` interior-point steps: a point inside the cone of what binds, (count, n)."""
    tile, slope, y, columns, rows = load_tile(data, index, space)
    scratch = interior_scratch(columns, rows, space.values)
    steps = np.empty(LANES, np.int64)
    steps[:] = -1
    interior_start(system, tile, scratch, y, 1.0, 0.1)
    interior_point(system, tile, limit, 0.0, scratch, y, steps, np.zeros(LANES, np.bool_))
    gather(system.by_columns, y, slope)
    for j in range(slope.shape[0]):
        put(slope, j, get(slope, j) + get(scratch.zu, j) - get(scratch.zl, j))
    store(slope, index, used, out)
