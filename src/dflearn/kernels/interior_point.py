"""A primal-dual interior-point method for the smoothed LP, on tiles: the sure way from a cold start.

    min cᵀw + (μ/2)‖w‖²   s.t.   M w + s = r  (s ≥ 0 on inequality rows, s = 0 on equality rows),   lower ≤ w ≤ upper

Mehrotra's predictor and corrector. With Θ = μ + z_l/g_l + z_u/g_u, where g_l = w − lower and g_u = upper − w, each step
factors M Θ⁻¹ Mᵀ + diag(s/y) once and solves with it twice. Costs arrive scaled to about one. It stops at a relative
residual that leaves the last digits, and the exact active set, to the dual Newton method.

A missing bound has gap 1 and multiplier 0 for good. Each loop below writes one array: the compiler can then check that
the others do not overlap it, and vectorizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.cholesky import Pattern, Rows, assemble, factorize, substitute
from dflearn.kernels.lanes import LANES, gather, jit, lane_max, lane_sum, spread

TOWARDS_BOUNDARY = 0.9995  # the share of the largest step that is taken
REGULARIZATION = 1e-13  # added to the diagonal of the normal equations, which is at most about 1/μ
COLUMN_ARRAYS, ROW_ARRAYS = 20, 8  # work space, in arrays (n, LANES) and (m + 1, LANES)
LOWER_MULTIPLIERS, UPPER_MULTIPLIERS = 3, 4  # where, in the work space, z_l and z_u stand on return


@jit
def _start(
    by_rows: Rows,
    by_columns: Rows,
    inequality: Any,
    c: Any,
    mu: Any,
    r: Any,
    lower: Any,
    upper: Any,
    columns: Any,
    rows: Any,
    y: Any,
    scale: Any,
    count: Any,
) -> None:
    """A point inside the bounds, with multipliers that make it dual feasible wherever there are bounds to carry them."""
    n, m = c.shape[0], r.shape[0]
    w, gl, gu, zl, zu = columns[0], columns[1], columns[2], columns[3], columns[4]
    has_lower, has_upper, movable, slope = columns[5], columns[6], columns[7], columns[8]
    s, activity = rows[0], rows[1]
    for t in range(LANES):
        scale[t], count[t] = 1.0, 0.0
        for i in range(m):
            scale[t] = max(scale[t], abs(r[i, t]))
    for j in range(n):
        for t in range(LANES):
            low, high = lower[j, t], upper[j, t]
            below, above = np.isfinite(low) and low < high, np.isfinite(high) and low < high
            w[j, t] = min(max(-c[j, t] / mu[t], -scale[t]), scale[t])
            if below and above:
                w[j, t] = 0.5 * (low + high)
            elif below:
                w[j, t] = max(low + 1.0, w[j, t])
            elif above:
                w[j, t] = min(high - 1.0, w[j, t])
            elif low == high:
                w[j, t] = low
            movable[j, t] = 1.0 if low < high else 0.0
            has_lower[j, t], gl[j, t] = (1.0, w[j, t] - low) if below else (0.0, 1.0)
            has_upper[j, t], gu[j, t] = (1.0, high - w[j, t]) if above else (0.0, 1.0)
            count[t] += has_lower[j, t] + has_upper[j, t]
    gather(by_rows.start, by_rows.column, by_rows.value, w, activity)
    for i in range(m):
        for t in range(LANES):
            y[i, t] = 0.1 if inequality[i] else 0.0
            s[i, t] = max(r[i, t] - activity[i, t], 0.1) if inequality[i] else 0.0
            count[t] += 1.0 if inequality[i] else 0.0
    gather(by_columns.start, by_columns.column, by_columns.value, y, slope)
    for j in range(n):
        for t in range(LANES):
            gradient = c[j, t] + mu[t] * w[j, t] + slope[j, t]
            zl[j, t] = has_lower[j, t] * (max(gradient, 0.0) + 0.1)
            zu[j, t] = has_upper[j, t] * (max(-gradient, 0.0) + 0.1)


@jit
def interior_point(
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
    steps: Any,
) -> None:
    """Tile arrays: c, lower, upper (n, LANES); r, y (m, LANES); mu, steps (LANES,).

    Work space: columns (COLUMN_ARRAYS, n, LANES), rows (ROW_ARRAYS, m + 1, LANES), values as of `assemble`.
    On return y holds the multipliers and steps the number taken, or −1 for a lane that did not converge.
    """
    n, m, entries = c.shape[0], r.shape[0], len(pattern.row)
    size = n * LANES
    scale, count, gap, aim, length = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    primal, worst, part = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    rows_m = rows[:-1, :m]
    _start(by_rows, by_columns, inequality, c, mu, r, lower, upper, columns, rows_m, y, scale, count)
    flat = columns.reshape(columns.shape[0], size)
    w, gl, gu, zl, zu, hl, hu = flat[0], flat[1], flat[2], flat[3], flat[4], flat[5], flat[6]
    movable, slope, il, iu, theta, tl, tu = flat[7], flat[8], flat[9], flat[10], flat[11], flat[12], flat[13]
    right, dw, dzl, dzu, ratio, lane = flat[14], flat[15], flat[16], flat[17], flat[18], flat[19]
    w2, slope2, theta2, right2, dw2, ratio2, lane2 = (
        columns[0],
        columns[8],
        columns[11],
        columns[14],
        columns[15],
        columns[18],
        columns[19],
    )
    s, rp, ts, target, dy, ds, row_ratio = rows_m[0], rows_m[1], rows_m[2], rows_m[3], rows_m[4], rows_m[5], rows_m[6]
    work = rows[7]
    cost = c.reshape(-1)
    steps[:] = -1

    for step in range(limit + 1):
        # Residuals: dual in `slope`, primal in `rp`, complementarity in `gap`.
        gather(by_columns.start, by_columns.column, by_columns.value, y, slope2)
        gather(by_rows.start, by_rows.column, by_rows.value, w2, rp)
        spread(mu, lane2)
        for e in range(size):
            slope[e] = movable[e] * (cost[e] + lane[e] * w[e] + slope[e]) - zl[e] + zu[e]
        for i in range(m):
            for t in range(LANES):
                rp[i, t] = r[i, t] - rp[i, t] - s[i, t]
                row_ratio[i, t] = abs(rp[i, t])
        primal[:], worst[:] = 0.0, 0.0
        lane_max(row_ratio, primal)
        for e in range(size):
            ratio[e] = abs(slope[e])
        lane_max(ratio2, worst)
        for e in range(size):
            ratio[e] = gl[e] * zl[e] + gu[e] * zu[e]
        lane_sum(ratio2, gap)
        running = False
        for t in range(LANES):
            for i in range(m):
                gap[t] += s[i, t] * y[i, t]
            residual = max(primal[t] / scale[t], worst[t], gap[t] / max(count[t], 1.0))
            if steps[t] < 0 and residual <= tolerance:
                steps[t] = step
            running |= steps[t] < 0
        if not running or step == limit:
            break

        # The normal equations and their factor.
        for e in range(size):
            il[e] = 1.0 / gl[e]
        for e in range(size):
            iu[e] = 1.0 / gu[e]
        for e in range(size):
            theta[e] = movable[e] / (lane[e] + zl[e] * il[e] + zu[e] * iu[e])
        assemble(pattern, theta2, values)
        for i in range(m):
            for t in range(LANES):
                values[entries + i, t] += REGULARIZATION + (s[i, t] / y[i, t] if inequality[i] else 0.0)
        factorize(pattern, values, work, 0.0)

        for corrector in range(2):
            if corrector:  # aim at a share of the gap that depends on how well the predictor did
                spread(aim, lane2)
                for e in range(size):
                    tl[e] = hl[e] * (lane[e] - dw[e] * dzl[e]) - gl[e] * zl[e]
                for e in range(size):
                    tu[e] = hu[e] * (lane[e] + dw[e] * dzu[e]) - gu[e] * zu[e]
                for i in range(m):
                    for t in range(LANES):
                        ts[i, t] = aim[t] - ds[i, t] * dy[i, t] - s[i, t] * y[i, t] if inequality[i] else 0.0
            else:
                for e in range(size):
                    tl[e] = -gl[e] * zl[e]
                for e in range(size):
                    tu[e] = -gu[e] * zu[e]
                for i in range(m):
                    for t in range(LANES):
                        ts[i, t] = -s[i, t] * y[i, t]
            for e in range(size):
                right[e] = theta[e] * (tl[e] * il[e] - tu[e] * iu[e] - slope[e])
            gather(by_rows.start, by_rows.column, by_rows.value, right2, target)
            for i in range(m):
                for t in range(LANES):
                    dy[i, t] = target[i, t] - rp[i, t] + (ts[i, t] / y[i, t] if inequality[i] else 0.0)
            substitute(pattern, values, dy, work[m:])
            gather(by_columns.start, by_columns.column, by_columns.value, dy, dw2)
            for e in range(size):
                dw[e] = right[e] - theta[e] * dw[e]
            for e in range(size):
                dzl[e] = (tl[e] - zl[e] * dw[e]) * il[e]
            for e in range(size):
                dzu[e] = (tu[e] + zu[e] * dw[e]) * iu[e]
            # The largest step: a quadratic objective ties primal and dual, so there is one length for both.
            worst[:] = 1.0
            for e in range(size):
                ratio[e] = max(-hl[e] * dw[e] * il[e], hu[e] * dw[e] * iu[e])
            lane_max(ratio2, worst)
            for e in range(size):
                ratio[e] = max(-dzl[e] / zl[e] if zl[e] > 0.0 else 0.0, -dzu[e] / zu[e] if zu[e] > 0.0 else 0.0)
            lane_max(ratio2, worst)
            for i in range(m):
                for t in range(LANES):
                    if inequality[i]:
                        ds[i, t] = (ts[i, t] - s[i, t] * dy[i, t]) / y[i, t]
                        worst[t] = max(worst[t], -ds[i, t] / s[i, t], -dy[i, t] / y[i, t])
                    else:
                        ds[i, t] = 0.0
            for t in range(LANES):
                length[t] = 1.0 / worst[t]
            if corrector == 0:
                spread(length, lane2)
                for e in range(size):
                    ratio[e] = hl[e] * (gl[e] + lane[e] * dw[e]) * (zl[e] + lane[e] * dzl[e])
                for e in range(size):
                    ratio[e] += hu[e] * (gu[e] - lane[e] * dw[e]) * (zu[e] + lane[e] * dzu[e])
                lane_sum(ratio2, part)
                for t in range(LANES):
                    for i in range(m):
                        part[t] += (s[i, t] + length[t] * ds[i, t]) * (y[i, t] + length[t] * dy[i, t])
                    share = max(part[t], 0.0) / gap[t] if gap[t] > 0.0 else 0.0
                    aim[t] = share * share * share * gap[t] / max(count[t], 1.0)

        for t in range(LANES):
            length[t] = 0.0 if steps[t] >= 0 else min(1.0, TOWARDS_BOUNDARY * length[t])
        spread(length, lane2)
        for e in range(size):
            w[e] += lane[e] * dw[e]
        for e in range(size):
            gl[e] += lane[e] * hl[e] * dw[e]
        for e in range(size):
            gu[e] -= lane[e] * hu[e] * dw[e]
        for e in range(size):
            zl[e] += lane[e] * dzl[e]
        for e in range(size):
            zu[e] += lane[e] * dzu[e]
        for i in range(m):
            for t in range(LANES):
                y[i, t] += length[t] * dy[i, t]
                s[i, t] += length[t] * ds[i, t]
