"""The smoothed LP for a batch, tile by tile: load, scale, solve, store. And the projection onto its solution's face.

The program is stated in `smoothed_lp`. Costs and μ of an instance are divided by their largest entry first: w does not
change, multipliers scale along.
"""

from __future__ import annotations

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
from dflearn.kernels.interior_point import INTERIOR_COLUMNS, INTERIOR_ROWS, interior_point, interior_scratch
from dflearn.kernels.lanes import LANES, absolute, gather, get, jit, load, maximum, put, spread, store
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile


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
    their bounds, in_force: which rows bind (1 or 0). objective: cᵀw + (μ/2)‖w‖², residual, and steps of each method
    (−1: not converged, −2: not run), (count,).
    """

    y: np.ndarray
    w: np.ndarray
    inside: np.ndarray
    in_force: np.ndarray
    objective: np.ndarray
    residual: np.ndarray
    newton_steps: np.ndarray
    interior_steps: np.ndarray

    @classmethod
    def empty(cls, count: int, n: int, m: int, dtype: Any = np.float64) -> SmoothedAnswer:
        not_run = np.empty((2, count), np.int64)
        not_run.fill(-2)
        residual = np.empty(count)
        residual.fill(np.inf)
        faces = np.empty((count, n), np.uint8), np.empty((count, m), np.uint8)
        return cls(np.empty((count, m)), np.empty((count, n), dtype), *faces, np.empty(count), residual, *not_run)


class Limits(NamedTuple):
    """The end of each method: at most so many steps, or a relative residual at or below its tolerance."""

    newton_steps: int
    interior_steps: int
    tolerance: float
    interior_tolerance: float


class Workspace(NamedTuple):
    """Scratch of one thread, reused from call to call: arrays (·, n, LANES) and (·, m, LANES), values as of `assemble`.

    The first ones hold the instances and their solution, see `load_tile`; the methods share the others.
    """

    columns: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, factor: SparseFactor) -> Workspace:
        n, m = factor.matrix.shape[1], factor.rows
        columns, rows = 4 + max(NEWTON_COLUMNS, INTERIOR_COLUMNS), 2 + max(NEWTON_ROWS, INTERIOR_ROWS)
        return cls(np.empty((columns, n, LANES)), np.empty((rows, m, LANES)), np.empty((factor.entries + m, LANES)))


@jit
def load_tile(data: SmoothedData, index: Any, space: Workspace) -> Any:
    """The instances `index` as a tile, places for w and y, and the rest of the work space: its columns and rows."""
    mu = np.empty((1, LANES))
    tile = SmoothedTile(space.columns[0], mu, space.rows[0], space.columns[1], space.columns[2])
    load(data.c, index, tile.c)
    load(data.r, index, tile.r)
    load(data.lower, index, tile.lower)
    load(data.upper, index, tile.upper)
    load(data.mu.reshape(-1, 1), index, mu)
    return tile, space.columns[3], space.rows[1], space.columns[4:], space.rows[2:]


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
    c, mu = tile.c, tile.mu
    lanes, residual, steps = np.empty((1, LANES)), np.empty(LANES), np.empty(LANES, np.int64)
    scale = get(mu, 0)
    for j in range(c.shape[0]):
        scale = maximum(scale, absolute(get(c, j)))
    for j in range(c.shape[0]):
        put(c, j, get(c, j) / scale)
    put(lanes, 0, scale)
    put(mu, 0, get(mu, 0) / scale)
    if warm:
        load(answer.y, index, y)
        for i in range(y.shape[0]):
            put(y, i, get(y, i) / scale)
    else:
        scratch = interior_scratch(columns, rows, space.values)
        interior_point(system, tile, limits.interior_steps, limits.interior_tolerance, scratch, y, steps)
        for t in range(used):
            answer.interior_steps[index[t]] = steps[t]
    last = newton_scratch(columns, rows, space.values)
    dual_newton(system, tile, limits.newton_steps, limits.tolerance, last, y, w, steps, residual)
    value, half = spread(0.0), 0.5 * get(mu, 0)
    for j in range(c.shape[0]):
        value = value + get(w, j) * (get(c, j) + half * get(w, j))
    put(mu, 0, scale * value)
    store(w, index, used, answer.w)
    store(last.inside, index, used, answer.inside)
    for t in range(used):
        row = index[t]
        answer.objective[row] = mu[0, t]
        answer.residual[row] = residual[t]
        answer.newton_steps[row] = steps[t]
        for i in range(y.shape[0]):
            idle = system.inequality[i] and y[i, t] + last.g[i, t] <= 0.0
            answer.in_force[row, i] = 0 if idle else 1
            answer.y[row, i] = y[i, t] * lanes[0, t]


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
    interior_point(system, tile, limit, 0.0, scratch, y, np.empty(LANES, np.int64))
    gather(system.by_columns, y, slope)
    for j in range(slope.shape[0]):
        put(slope, j, get(slope, j) + get(scratch.zu, j) - get(scratch.zl, j))
    store(slope, index, used, out)
