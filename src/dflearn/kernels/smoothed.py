"""The smoothed LP for a batch, tile by tile: load, scale, solve, store. And the projection onto its solution's face.

    min cᵀw + (μ/2)‖w‖²   s.t.   M w = r on equality rows,  M w ≤ r on inequality rows,   lower ≤ w ≤ upper

Costs and μ of an instance are divided by their largest entry first: w does not change, multipliers scale along.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels import dual_newton as newton, interior_point as interior
from dflearn.kernels.cholesky import Pattern, Rows, SparseFactor, assemble, factorize, substitute
from dflearn.kernels.dual_newton import dual_newton, mask_rows
from dflearn.kernels.interior_point import interior_point
from dflearn.kernels.lanes import LANES, absolute, gather, get, jit, load, maximum, put, spread, store


class System(NamedTuple):
    """What all instances share."""

    pattern: Pattern
    by_rows: Rows
    by_columns: Rows
    inequality: np.ndarray


class Data(NamedTuple):
    """One row per instance (or a single one, shared by all): c, lower, upper (·, n); r (·, m); mu (·,).

    c is of either dtype; all arithmetic is in float64.
    """

    c: np.ndarray
    mu: np.ndarray
    r: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Answer(NamedTuple):
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
    def empty(cls, count: int, n: int, m: int, dtype: Any = np.float64) -> Answer:
        not_run = np.empty((2, count), np.int64)
        not_run.fill(-2)
        residual = np.empty(count)
        residual.fill(np.inf)
        faces = np.empty((count, n), np.uint8), np.empty((count, m), np.uint8)
        return cls(np.empty((count, m)), np.empty((count, n), dtype), *faces, np.empty(count), residual, *not_run)


class Workspace(NamedTuple):
    """Scratch of one thread, reused from call to call."""

    columns: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, factor: SparseFactor) -> Workspace:
        n, m = factor.matrix.shape[1], factor.rows
        columns = max(newton.COLUMN_ARRAYS, interior.COLUMN_ARRAYS) + 4
        rows = max(newton.ROW_ARRAYS, interior.ROW_ARRAYS) + 2
        return cls(np.empty((columns, n, LANES)), np.empty((rows, m, LANES)), np.empty((factor.entries + m, LANES)))


@jit
def solve_tile(
    system: System,
    data: Data,
    index: Any,
    used: int,
    warm: bool,
    newton_limit: int,
    interior_limit: int,
    tolerance: float,
    interior_tolerance: float,
    space: Workspace,
    answer: Answer,
) -> None:
    """Instances `index` of the batch: from the multipliers in `answer.y` if warm, otherwise by the interior-point method."""
    own = space.columns.shape[0] - 4
    c, lower, upper, w = space.columns[own], space.columns[own + 1], space.columns[own + 2], space.columns[own + 3]
    r, y = space.rows[space.rows.shape[0] - 2], space.rows[space.rows.shape[0] - 1]
    columns, rows = space.columns[:own], space.rows[: space.rows.shape[0] - 2]
    lanes, residual, steps = np.empty((2, LANES)), np.empty(LANES), np.empty(LANES, np.int64)
    mu = lanes[0:1]
    load(data.c, index, c)
    load(data.r, index, r)
    load(data.lower, index, lower)
    load(data.upper, index, upper)
    load(data.mu.reshape(-1, 1), index, mu)
    scale = get(mu, 0)
    for j in range(c.shape[0]):
        scale = maximum(scale, absolute(get(c, j)))
    for j in range(c.shape[0]):
        put(c, j, get(c, j) / scale)
    put(lanes, 1, scale)
    put(mu, 0, get(mu, 0) / scale)
    if warm:
        load(answer.y, index, y)
        for i in range(y.shape[0]):
            put(y, i, get(y, i) / scale)
    else:
        interior_point(
            system.pattern, system.by_rows, system.by_columns, system.inequality, c, mu, r, lower, upper,
            interior_limit, interior_tolerance, columns, rows, space.values, y, steps,
        )  # fmt: skip
        for t in range(used):
            answer.interior_steps[index[t]] = steps[t]
    dual_newton(
        system.pattern, system.by_rows, system.by_columns, system.inequality, c, mu, r, lower, upper,
        newton_limit, tolerance, columns, rows, space.values, y, w, steps, residual,
    )  # fmt: skip
    inside, g = columns[0], rows[0]
    value, half = spread(0.0), 0.5 * get(mu, 0)
    for j in range(c.shape[0]):
        value = value + get(w, j) * (get(c, j) + half * get(w, j))
    put(mu, 0, scale * value)
    store(w, index, used, answer.w)
    store(inside, index, used, answer.inside)
    for t in range(used):
        row = index[t]
        answer.objective[row] = mu[0, t]
        answer.residual[row] = residual[t]
        answer.newton_steps[row] = steps[t]
        for i in range(y.shape[0]):
            idle = system.inequality[i] and y[i, t] + g[i, t] <= 0.0
            answer.in_force[row, i] = 0 if idle else 1
            answer.y[row, i] = y[i, t] * lanes[1, t]


@jit
def project_tile(
    system: System, inside: Any, in_force: Any, v: Any, factor: Any, index: Any, used: int, space: Workspace, out: Any
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
    gather(system.by_rows.start, system.by_rows.column, system.by_rows.value, x, z)
    for i in range(z.shape[0]):
        put(z, i, get(z, i) * get(mask, i))
    assemble(system.pattern, d, space.values)
    mask_rows(system.pattern, mask, space.values)
    factorize(system.pattern, space.values, work, newton.VANISHING_PIVOT)
    substitute(system.pattern, space.values, z)
    gather(system.by_columns.start, system.by_columns.column, system.by_columns.value, z, image)
    lanes = np.empty((1, LANES))
    load(factor.reshape(-1, 1), index, lanes)
    scale = get(lanes, 0)
    for j in range(x.shape[0]):
        put(x, j, scale * (get(x, j) - get(d, j) * get(image, j)))
    store(x, index, used, out)


@jit
def cone_tile(system: System, data: Data, index: Any, used: int, limit: int, space: Workspace, out: Any) -> None:
    """out = Mᵀy − z_l + z_u after `limit` interior-point steps: a point inside the cone of what binds, (count, n)."""
    own = space.columns.shape[0] - 4
    c, lower, upper, slope = space.columns[own], space.columns[own + 1], space.columns[own + 2], space.columns[own + 3]
    r, y = space.rows[space.rows.shape[0] - 2], space.rows[space.rows.shape[0] - 1]
    columns, rows = space.columns[:own], space.rows[: space.rows.shape[0] - 2]
    mu, steps = np.empty((1, LANES)), np.empty(LANES, np.int64)
    load(data.c, index, c)
    load(data.r, index, r)
    load(data.lower, index, lower)
    load(data.upper, index, upper)
    load(data.mu.reshape(-1, 1), index, mu)
    interior_point(
        system.pattern, system.by_rows, system.by_columns, system.inequality, c, mu, r, lower, upper,
        limit, 0.0, columns, rows, space.values, y, steps,
    )  # fmt: skip
    zl, zu = columns[interior.LOWER_MULTIPLIERS], columns[interior.UPPER_MULTIPLIERS]
    gather(system.by_columns.start, system.by_columns.column, system.by_columns.value, y, slope)
    for j in range(slope.shape[0]):
        put(slope, j, get(slope, j) + get(zu, j) - get(zl, j))
    store(slope, index, used, out)
