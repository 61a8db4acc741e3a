"""Semismooth Newton on the dual of the smoothed LP, on tiles: the way from a good start, and to the last digit.

The multipliers y of M w = r (rows of type "≤" have y ≥ 0) determine everything: w(y) = clip(−(c + Mᵀy)/μ, lower, upper)
minimizes the Lagrangian, q(y) is its value, and g(y) = M w(y) − r is the gradient of the concave, piecewise quadratic q.
Newton's matrix is M D Mᵀ/μ with D = which variables lie strictly inside their bounds. Rows of type "≤" with y + g ≤ 0
are inactive: their multiplier goes to zero and they leave the system. At the right active set one step is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.cholesky import Pattern, Rows, assemble, factorize, substitute
from dflearn.kernels.lanes import LANES, gather, jit, lane_max, lane_sum, spread

COLUMN_ARRAYS, ROW_ARRAYS = 6, 8  # work space, in arrays (n, LANES) and (m + 1, LANES)
HALVINGS = 12  # of the step, before a lane gives up
SUFFICIENT = 1e-4  # share of the linear prediction that a step must achieve
VANISHING_PIVOT = 1e-11  # relative to the diagonal: the row depends on earlier ones


@jit
def _evaluate(
    by_rows: Rows,
    by_columns: Rows,
    inequality: Any,
    c: Any,
    mu_all: Any,
    r: Any,
    lower: Any,
    upper: Any,
    y: Any,
    z: Any,
    w: Any,
    term: Any,
    g: Any,
    natural: Any,
    q: Any,
    residual: Any,
) -> None:
    """w(y), g(y), q(y) and the natural residual: |g| on rows in force, y on the others; row by row and at its largest."""
    gather(by_columns.start, by_columns.column, by_columns.value, y, z)
    flat_z, flat_w, flat_c, flat_mu = z.reshape(-1), w.reshape(-1), c.reshape(-1), mu_all.reshape(-1)
    flat_lower, flat_upper, flat_term = lower.reshape(-1), upper.reshape(-1), term.reshape(-1)
    for e in range(flat_z.shape[0]):
        flat_z[e] += flat_c[e]
    for e in range(flat_z.shape[0]):
        flat_w[e] = min(max(-flat_z[e] / flat_mu[e], flat_lower[e]), flat_upper[e])
    for e in range(flat_z.shape[0]):
        flat_term[e] = flat_w[e] * (flat_z[e] + 0.5 * flat_mu[e] * flat_w[e])
    lane_sum(term, q)
    gather(by_rows.start, by_rows.column, by_rows.value, w, g)
    for i in range(g.shape[0]):
        for t in range(LANES):
            q[t] -= y[i, t] * r[i, t]
            g[i, t] -= r[i, t]
            natural[i, t] = y[i, t] if inequality[i] and y[i, t] + g[i, t] <= 0.0 else abs(g[i, t])
    residual[:] = 0.0
    lane_max(natural, residual)


@jit
def dual_newton(
    pattern: Pattern,
    by_rows: Rows,
    by_columns: Rows,
    inequality: Any,
    c: Any,
    mu: Any,
    r: Any,
    lower: Any,
    upper: Any,
    limit: int,
    tolerance: float,
    columns: Any,
    rows: Any,
    values: Any,
    y: Any,
    w: Any,
    steps: Any,
    residual: Any,
) -> None:
    """From the multipliers in y to the solution: y, w, steps taken and residual per lane.

    Tile arrays and work space as of `interior_point`. steps is −1 for a lane that did not reach the tolerance; y and w
    then hold the best it found.
    """
    n, m, entries = c.shape[0], r.shape[0], len(pattern.row)
    z, term, inside, mu_all, trial_w, image = columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]
    rows_m = rows[:-1, :m]
    g, natural, dy, trial_y, trial_g, mask, shift = (
        rows_m[0],
        rows_m[1],
        rows_m[2],
        rows_m[3],
        rows_m[4],
        rows_m[5],
        rows_m[6],
    )
    work = rows[7]
    q, trial_q, trial_residual, length = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    scale, settled = np.ones(LANES), np.zeros(LANES, np.bool_)
    spread(mu, mu_all)
    any_inequality = False
    for i in range(m):
        any_inequality |= inequality[i]
        for t in range(LANES):
            scale[t] = max(scale[t], abs(r[i, t]))
            if inequality[i]:
                y[i, t] = max(y[i, t], 0.0)
    steps[:] = -1
    _evaluate(by_rows, by_columns, inequality, c, mu_all, r, lower, upper, y, z, w, term, g, natural, q, residual)
    flat_inside, flat_z, flat_mu = inside.reshape(-1), z.reshape(-1), mu_all.reshape(-1)
    flat_lower, flat_upper = lower.reshape(-1), upper.reshape(-1)
    for step in range(limit + 1):
        running = False
        for t in range(LANES):
            if not settled[t] and residual[t] <= tolerance * scale[t]:
                settled[t], steps[t] = True, step
            running |= not settled[t]
        if not running or step == limit:
            break
        # Newton's system on the rows in force; the others are identity rows.
        for e in range(n * LANES):
            point = -flat_z[e] / flat_mu[e]
            flat_inside[e] = 1.0 if point > flat_lower[e] and point < flat_upper[e] else 0.0
        assemble(pattern, inside, values)
        for i in range(m):
            for t in range(LANES):
                idle = inequality[i] and y[i, t] + g[i, t] <= 0.0
                mask[i, t] = 0.0 if idle else 1.0
                shift[i, t] = y[i, t] if idle else 0.0
                dy[i, t] = -y[i, t] if idle else mu[t] * g[i, t]
        if any_inequality:  # rows that go to zero move the others: M D Mᵀ y over the idle rows
            gather(by_columns.start, by_columns.column, by_columns.value, shift, image)
            for j in range(n):
                for t in range(LANES):
                    image[j, t] *= inside[j, t]
            gather(by_rows.start, by_rows.column, by_rows.value, image, shift)
            for i in range(m):
                for t in range(LANES):
                    dy[i, t] += mask[i, t] * shift[i, t]
            for j in range(m):
                for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
                    i = pattern.row[p]
                    for t in range(LANES):
                        values[p, t] *= mask[i, t] * mask[j, t]
        for i in range(m):
            for t in range(LANES):
                damping = 1e-12 + min(1e-3, 0.1 * residual[t])
                values[entries + i, t] = mask[i, t] * (values[entries + i, t] + damping) + (1.0 - mask[i, t])
        factorize(pattern, values, work, 0.0)
        substitute(pattern, values, dy, work[m:])
        # Projected backtracking, every lane with its own length.
        for t in range(LANES):
            length[t] = 0.0 if settled[t] else 1.0
        searching = True
        for _ in range(HALVINGS):
            for i in range(m):
                for t in range(LANES):
                    value = y[i, t] + length[t] * dy[i, t]
                    trial_y[i, t] = max(value, 0.0) if inequality[i] else value
            _evaluate(
                by_rows, by_columns, inequality, c, mu_all, r, lower, upper, trial_y, image, trial_w, term, trial_g,
                natural, trial_q, trial_residual,
            )  # fmt: skip
            searching = False
            for t in range(LANES):
                if length[t] == 0.0:
                    continue
                predicted = 0.0
                for i in range(m):
                    predicted += g[i, t] * (trial_y[i, t] - y[i, t])
                rise = trial_q[t] - q[t] >= SUFFICIENT * predicted and predicted > 0.0
                if not (rise or trial_residual[t] <= 0.5 * residual[t] or trial_residual[t] <= tolerance * scale[t]):
                    length[t] *= 0.5
                    searching = True
            if not searching:
                break
        for t in range(LANES):
            if length[t] > 0.0 and length[t] <= 0.5**HALVINGS:
                length[t], settled[t] = 0.0, True  # no progress from here
        for i in range(m):
            for t in range(LANES):
                value = y[i, t] + length[t] * dy[i, t]
                y[i, t] = max(value, 0.0) if inequality[i] else value
        _evaluate(by_rows, by_columns, inequality, c, mu_all, r, lower, upper, y, z, w, term, g, natural, q, residual)
    for t in range(LANES):
        residual[t] /= scale[t]
