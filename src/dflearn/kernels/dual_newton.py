"""Semismooth Newton on the dual of the smoothed LP, on tiles: the way from a good start, and to the last digit.

The multipliers y of M w = r (rows of type "≤" have y ≥ 0) determine everything: w(y) = clip(−(c + Mᵀy)/μ, lower, upper)
minimizes the Lagrangian, q(y) is its value, and g(y) = M w(y) − r is the gradient of the concave, piecewise quadratic q.
Newton's matrix is M D Mᵀ/μ with D = which variables lie strictly inside their bounds. Rows of type "≤" with y + g ≤ 0
are inactive: their multiplier goes to zero and they leave the system. At the right active set one step is exact.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from dflearn.kernels.cholesky import assemble, factorize, mask_rows, substitute
from dflearn.kernels.lanes import absolute, cut, gather, get, inner, lanes, maximum, minimum, put, spread, where
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile

HALVINGS = 12  # of the step, before a lane gives up
HOPELESS = 1e-3  # times 1/μ: a residual from which most lanes of a tile have not been seen to get on without patience
SUFFICIENT = 1e-4  # share of the linear prediction that a step must achieve
NOISE = 16 * float(np.finfo(np.float64).eps)
MOST_NOISE = 1e5  # times what rounding leaves of w itself; beyond it w(y) is no answer
VANISHING_PIVOT = 1e-11  # relative to the diagonal: the row depends on earlier ones


# Work space, tiles of n items: inside (which variables lie inside their bounds, 1 or 0), image. Of m items: g, the step dy,
# what is tried (trial_y, trial_g), mask (rows in force, 1 or 0), shift. values: as of `assemble`.
NewtonScratch = namedtuple("NewtonScratch", "inside image g dy trial_y trial_g mask shift values")
NEWTON_COLUMNS, NEWTON_ROWS = 2, 6  # how many of them have n items, and m items


@inner
def newton_scratch(columns: Any, rows: Any, n: int, m: int, values: Any) -> NewtonScratch:
    """The names of tiles in `columns`, of n items each, and in `rows`, of m items each."""
    return NewtonScratch(
        cut(columns, 0, n), cut(columns, 1, n),
        cut(rows, 0, m), cut(rows, 1, m), cut(rows, 2, m), cut(rows, 3, m), cut(rows, 4, m), cut(rows, 5, m),
        values,
    )  # fmt: skip


@inner
def _evaluate(
    system: SmoothedSystem, tile: SmoothedTile, tolerance: float, y: Any, w: Any, inside: Any, g: Any, state: Any
) -> None:
    """w(y), which variables are inside their bounds (1 or 0), g(y); state: q(y), the natural residual at its largest, and
    by how much it exceeds the tolerance, which is relative to each row's own terms.

    The natural residual of a row is |g| where the row is in force and y where it is not. w(y) is a difference of terms as
    large as c and y, divided by μ: what rounding leaves of it, at a bound or of g beside a row's terms, counts as nothing.
    """
    by_rows, by_columns, inequality = system.by_rows, system.by_columns, system.inequality
    c, r, lower, upper = tile.c, tile.r, tile.lower, tile.upper
    smoothing, q = get(tile.mu, 0), spread(0.0, c)
    largest, prices = spread(0.0, c), spread(1.0, c)
    for i in range(r.shape[0]):
        prices = maximum(prices, absolute(get(y, i)))
    noise = 4.0 * NOISE * minimum(prices / smoothing, MOST_NOISE)
    for j in range(c.shape[0]):
        gradient = get(c, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            gradient = gradient + by_columns.value[k] * get(y, by_columns.column[k])
        point, low, high = -1.0 * gradient / smoothing, get(lower, j), get(upper, j)
        off_low, off_high = point - low > noise, high - point > noise
        put(inside, j, where(off_low & off_high, 1.0, 0.0))
        point = where(off_high, where(off_low, point, low), high)
        put(w, j, point)
        largest = maximum(largest, absolute(point))
        q = q + point * (gradient + 0.5 * smoothing * point)
    noise = NOISE * maximum(largest, minimum(prices / smoothing, largest * MOST_NOISE))
    residual, most = spread(0.0, c), spread(0.0, c)
    for i in range(r.shape[0]):
        slope, size = spread(0.0, c) - get(r, i), absolute(get(r, i))
        q = q - get(y, i) * get(r, i)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            term = by_rows.value[k] * get(w, by_rows.column[k])
            slope = slope + term
            size = size + absolute(term)
        put(g, i, slope)
        natural = absolute(slope)
        excess = natural - maximum(tolerance * size, noise)
        if inequality[i]:
            binding = get(y, i) + slope > 0.0
            natural, excess = where(binding, natural, get(y, i)), where(binding, excess, get(y, i) - tolerance)
        residual, most = maximum(residual, natural), maximum(most, excess)
    put(state, 0, q)
    put(state, 1, residual)
    put(state, 2, most)


@inner
def dual_newton(
    system: SmoothedSystem,
    tile: SmoothedTile,
    limit: int,
    patience: int,
    tolerance: float,
    scratch: NewtonScratch,
    y: Any,
    w: Any,
    steps: Any,
) -> None:
    """From the multipliers in y (m items) to the solution: y, w (n items) and the steps taken, one number per lane.

    On return `scratch.inside` and `scratch.g` belong to the solution. steps is −1 for a lane that did not reach the
    tolerance, within `limit` steps or because `patience` of them in a row did not halve its residual; y and w then hold the
    best it found. Without patience (1), one lane of several gives up at once where it is HOPELESS, and all lanes stop as soon as
    most of them have given up.
    """
    pattern, inequality, r = system.pattern, system.inequality, tile.r
    inside, image, g, dy, values = scratch.inside, scratch.image, scratch.g, scratch.dy, scratch.values
    trial_y, trial_g, mask, shift = scratch.trial_y, scratch.trial_g, scratch.mask, scratch.shift
    n, m, entries = tile.c.shape[0], r.shape[0], len(pattern.row)
    states: Any
    trials: Any
    lengths: Any
    width = lanes(y)
    states, trials, lengths = np.empty(3, y.dtype), np.empty(4, y.dtype), np.empty(1, y.dtype)
    state, trial, length = states.lane, trials.lane, lengths.lane  # the same as numbers
    settled, best, waited = np.zeros(width, np.bool_), np.empty(width), np.zeros(width, np.int64)
    best[:] = np.inf
    any_inequality = False
    for i in range(m):
        any_inequality |= inequality[i]
        if inequality[i]:
            put(y, i, maximum(get(y, i), 0.0))
    steps[:] = -1
    _evaluate(system, tile, tolerance, y, w, inside, g, states)
    for step in range(limit + 1):
        running, given_up = False, 0
        for t in range(width):
            if not settled[t] and state[2, t] <= 0.0:
                settled[t], steps[t] = True, step
            elif patience == 1 and width > 1 and state[1, t] * tile.mu.lane[0, t] > HOPELESS:
                settled[t] = True
            if state[1, t] <= 0.5 * best[t]:
                best[t], waited[t] = state[1, t], 0
            else:
                waited[t] += 1
                settled[t] |= waited[t] >= patience
            running |= not settled[t]
            given_up += 1 if settled[t] and steps[t] < 0 else 0
        if not running or step == limit or (patience == 1 and 2 * given_up > width):
            break
        # Newton's system on the rows in force, slightly damped; the other rows become identity.
        assemble(pattern, inside, values)
        for i in range(m):
            put(mask, i, 1.0)
            put(dy, i, get(tile.mu, 0) * get(g, i))
            if inequality[i]:
                binding = get(y, i) + get(g, i) > 0.0
                put(mask, i, where(binding, 1.0, 0.0))
                put(shift, i, where(binding, 0.0, get(y, i)))
                put(dy, i, where(binding, get(dy, i), -1.0 * get(y, i)))
            else:
                put(shift, i, 0.0)
        if any_inequality:  # multipliers that go to zero move the other rows: M D Mᵀ y over the idle rows
            gather(system.by_columns, shift, image)
            for j in range(n):
                put(image, j, get(image, j) * get(inside, j))
            gather(system.by_rows, image, shift)
            for i in range(m):
                put(dy, i, get(dy, i) + get(mask, i) * get(shift, i))
            mask_rows(pattern, mask, values)
        # Less and less near the solution, where an undamped step is exact.
        damping = 1e-12 + minimum(0.1 * get(states, 1), 1e-3) * minimum(1.0, 100.0 * get(states, 1))
        for i in range(m):
            put(values, entries + i, get(values, entries + i) + get(mask, i) * damping)
        factorize(pattern, values, 0.0)
        substitute(pattern, values, dy)
        # Projected backtracking, every lane with its own length.
        for t in range(width):
            length[0, t] = 0.0 if settled[t] else 1.0
        for _ in range(HALVINGS):
            predicted = spread(0.0, r)
            for i in range(m):
                value = get(y, i) + get(lengths, 0) * get(dy, i)
                if inequality[i]:
                    value = maximum(value, 0.0)
                put(trial_y, i, value)
                predicted = predicted + get(g, i) * (value - get(y, i))
            put(trials, 3, predicted)
            _evaluate(system, tile, tolerance, trial_y, w, inside, trial_g, trials)
            searching = False
            for t in range(width):
                rise = trial[0, t] - state[0, t] >= SUFFICIENT * trial[3, t] and trial[3, t] > 0.0
                small = trial[1, t] <= 0.5 * state[1, t] or trial[2, t] <= 0.0
                if length[0, t] > 0.0 and not (rise or small):
                    length[0, t] *= 0.5
                    searching = True
            if not searching:
                break
        for t in range(width):
            if 0.0 < length[0, t] <= 0.5**HALVINGS:
                length[0, t], settled[t] = 0.0, True  # no progress from here
        for i in range(m):
            value = get(y, i) + get(lengths, 0) * get(dy, i)
            put(y, i, maximum(value, 0.0) if inequality[i] else value)
        if searching:  # the last trial was not at these lengths
            _evaluate(system, tile, tolerance, y, w, inside, g, states)
        else:
            for i in range(m):
                put(g, i, get(trial_g, i))
            put(states, 0, get(trials, 0))
            put(states, 1, get(trials, 1))
            put(states, 2, get(trials, 2))
