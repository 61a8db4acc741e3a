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
from dflearn.kernels.lanes import LANES, absolute, gather, get, jit, maximum, minimum, put, spread, where

COLUMN_ARRAYS, ROW_ARRAYS = 2, 7  # work space, in arrays (n, LANES) and (m, LANES)
HALVINGS = 12  # of the step, before a lane gives up
SUFFICIENT = 1e-4  # share of the linear prediction that a step must achieve
VANISHING_PIVOT = 1e-11  # relative to the diagonal: the row depends on earlier ones


@jit
def _evaluate(
    by_rows: Rows, by_columns: Rows, inequality: Any, c: Any, mu: Any, r: Any, lower: Any, upper: Any,
    y: Any, w: Any, inside: Any, g: Any, state: Any,
) -> None:  # fmt: skip
    """w(y), which variables are inside their bounds (1 or 0), g(y); state: q(y), and the natural residual at its largest.

    The natural residual of a row is |g| where the row is in force and y where it is not.
    """
    smoothing, q = get(mu, 0), spread(0.0)
    for j in range(c.shape[0]):
        gradient = get(c, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            gradient = gradient + by_columns.value[k] * get(y, by_columns.column[k])
        point, low, high = -1.0 * gradient / smoothing, get(lower, j), get(upper, j)
        put(inside, j, where((point > low) & (point < high), 1.0, 0.0))
        point = minimum(maximum(point, low), high)
        put(w, j, point)
        q = q + point * (gradient + 0.5 * smoothing * point)
    residual = spread(0.0)
    for i in range(r.shape[0]):
        slope = spread(0.0) - get(r, i)
        q = q - get(y, i) * get(r, i)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            slope = slope + by_rows.value[k] * get(w, by_rows.column[k])
        put(g, i, slope)
        natural = absolute(slope)
        if inequality[i]:
            natural = where(get(y, i) + slope > 0.0, natural, get(y, i))
        residual = maximum(residual, natural)
    put(state, 0, q)
    put(state, 1, residual)


@jit
def dual_newton(
    pattern: Pattern, by_rows: Rows, by_columns: Rows, inequality: Any, c: Any, mu: Any, r: Any, lower: Any, upper: Any,
    limit: int, tolerance: float, columns: Any, rows: Any, values: Any, y: Any, w: Any, steps: Any, residual: Any,
) -> None:  # fmt: skip
    """From the multipliers in y to the solution: y, w, steps taken and residual per lane.

    Tiles and work space as of `interior_point`. On return columns[0] tells which variables lie inside their bounds and
    rows[0] holds g. steps is −1 for a lane that did not reach the tolerance; y and w then hold the best it found.
    """
    n, m, entries = c.shape[0], r.shape[0], len(pattern.row)
    inside, image = columns[0], columns[1]
    g, dy, trial_y, trial_g, mask, shift, work = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6]
    state, trial, scale = np.empty((2, LANES)), np.empty((3, LANES)), np.ones(LANES)
    length, settled = np.zeros((1, LANES)), np.zeros(LANES, np.bool_)
    any_inequality = False
    for i in range(m):
        any_inequality |= inequality[i]
        for t in range(LANES):
            scale[t] = max(scale[t], abs(r[i, t]))
        if inequality[i]:
            put(y, i, maximum(get(y, i), 0.0))
    steps[:] = -1
    _evaluate(by_rows, by_columns, inequality, c, mu, r, lower, upper, y, w, inside, g, state)
    for step in range(limit + 1):
        running = False
        for t in range(LANES):
            if not settled[t] and state[1, t] <= tolerance * scale[t]:
                settled[t], steps[t] = True, step
            running |= not settled[t]
        if not running or step == limit:
            break
        # Newton's system on the rows in force, slightly damped; the other rows become identity.
        assemble(pattern, inside, values)
        for i in range(m):
            put(mask, i, 1.0)
            put(dy, i, get(mu, 0) * get(g, i))
            if inequality[i]:
                binding = get(y, i) + get(g, i) > 0.0
                put(mask, i, where(binding, 1.0, 0.0))
                put(shift, i, where(binding, 0.0, get(y, i)))
                put(dy, i, where(binding, get(dy, i), -1.0 * get(y, i)))
            else:
                put(shift, i, 0.0)
        if any_inequality:  # multipliers that go to zero move the other rows: M D Mᵀ y over the idle rows
            gather(by_columns.start, by_columns.column, by_columns.value, shift, image)
            for j in range(n):
                put(image, j, get(image, j) * get(inside, j))
            gather(by_rows.start, by_rows.column, by_rows.value, image, shift)
            for i in range(m):
                put(dy, i, get(dy, i) + get(mask, i) * get(shift, i))
            mask_rows(pattern, mask, values)
        damping = 1e-12 + minimum(0.1 * get(state, 1), 1e-3)
        for i in range(m):
            put(values, entries + i, get(values, entries + i) + get(mask, i) * damping)
        factorize(pattern, values, work, 0.0)
        substitute(pattern, values, dy)
        # Projected backtracking, every lane with its own length.
        for t in range(LANES):
            length[0, t] = 0.0 if settled[t] else 1.0
        for _ in range(HALVINGS):
            predicted = spread(0.0)
            for i in range(m):
                value = get(y, i) + get(length, 0) * get(dy, i)
                if inequality[i]:
                    value = maximum(value, 0.0)
                put(trial_y, i, value)
                predicted = predicted + get(g, i) * (value - get(y, i))
            put(trial, 2, predicted)
            _evaluate(by_rows, by_columns, inequality, c, mu, r, lower, upper, trial_y, w, inside, trial_g, trial)
            searching = False
            for t in range(LANES):
                rise = trial[0, t] - state[0, t] >= SUFFICIENT * trial[2, t] and trial[2, t] > 0.0
                small = trial[1, t] <= 0.5 * state[1, t] or trial[1, t] <= tolerance * scale[t]
                if length[0, t] > 0.0 and not (rise or small):
                    length[0, t] *= 0.5
                    searching = True
            if not searching:
                break
        for t in range(LANES):
            if 0.0 < length[0, t] <= 0.5**HALVINGS:
                length[0, t], settled[t] = 0.0, True  # no progress from here
        for i in range(m):
            value = get(y, i) + get(length, 0) * get(dy, i)
            put(y, i, maximum(value, 0.0) if inequality[i] else value)
        if searching:  # the last trial was not at these lengths
            _evaluate(by_rows, by_columns, inequality, c, mu, r, lower, upper, y, w, inside, g, state)
        else:
            for i in range(m):
                put(g, i, get(trial_g, i))
            put(state, 0, get(trial, 0))
            put(state, 1, get(trial, 1))
    for t in range(LANES):
        residual[t] = state[1, t] / scale[t]


@jit
def mask_rows(pattern: Pattern, mask: Any, values: Any) -> None:
    """Rows and columns of an assembled matrix where the mask (1 or 0) is zero become those of the identity."""
    m, entries = mask.shape[0], len(pattern.row)
    for j in range(m):
        keep = get(mask, j)
        for p in range(pattern.column_start[j], pattern.column_start[j + 1]):
            put(values, p, get(values, p) * keep * get(mask, pattern.row[p]))
        put(values, entries + j, get(values, entries + j) * keep + (1.0 - keep))
