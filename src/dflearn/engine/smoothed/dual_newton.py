"""Semismooth Newton on the dual of the smoothed LP, on tiles: the way from a good start, and to the last digit.

The multipliers y of M w = r (rows of type "≤" have y ≥ 0) determine everything: w(y) = clip(−(c + Mᵀy)/μ, lower, upper)
minimizes the Lagrangian, q(y) is its value, and g(y) = M w(y) − r is the gradient of the concave, piecewise quadratic q.
Newton's matrix is M D Mᵀ/μ with D = which variables lie strictly inside their bounds. Rows of type "≤" with y + g ≤ 0
are inactive: their multiplier goes to zero and they leave the system. At the right active set one step is exact.
"""

from __future__ import annotations

import numpy as np

from dflearn.engine.linear_algebra.cholesky import assemble, entries_at, factorize, substitute
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    absolute,
    address_of,
    gather,
    get,
    maximum,
    minimum,
    put,
    spread,
    stage,
    tile_at,
    where,
)
from dflearn.engine.smoothed.system import (
    DY,
    HEADS,
    IN_FORCE,
    INSIDE,
    MU,
    NEWTON_STEPS,
    SHIFT,
    SIZE,
    STATE,
    TRIAL_G,
    TRIAL_Y,
    G,
    W,
    Y,
    column,
    row,
    system_at,
    tile_of,
    values_at,
)

HALVINGS = 12  # of the step, before a lane gives up
HOPELESS = 1e-3  # times 1/μ: a residual from which most lanes of a tile have not been seen to get on without patience
SUFFICIENT = 1e-4  # share of the linear prediction that a step must achieve
NOISE = 16 * float(np.finfo(np.float64).eps)
MOST_NOISE = 1e5  # times what rounding leaves of w itself; beyond it w(y) is no answer

# Of each lane: q(y), the residual, by how much it exceeds the tolerance; the same of a trial, and the rise that was predicted for
# it; the step's length; whether the lane has come to an end; its best residual, and for how many steps it has waited since.
Q, RESIDUAL, EXCESS = STATE, STATE + 1, STATE + 2
TRIAL_Q, TRIAL_RESIDUAL, TRIAL_EXCESS, PREDICTED = STATE + 3, STATE + 4, STATE + 5, STATE + 6
LENGTH, SETTLED, BEST, WAITED = STATE + 7, STATE + 8, STATE + 9, STATE + 10


@stage("void(int64, int64, float64, int64, int64, int64)")
def _evaluate(plan: int, space: int, tolerance: float, rows: int, slopes: int, head: int) -> None:
    """For the multipliers y at `rows`: W(y), INSIDE, and g(y) at `slopes`; from head on: q(y), the natural residual at its largest,
    and by how much it exceeds the tolerance, which is relative to each row's own terms.

    The natural residual of a row is |g| where the row is in force and y where it is not. w(y) is a difference of terms as
    large as c and y, divided by μ: what rounding leaves of it, at a bound or of g beside a row's terms, counts as nothing.
    """
    system, tile, heads = system_at(plan), tile_of(plan, space), tile_at(space, HEADS)
    y, g, w, inside = (
        tile_at(rows, system.m),
        tile_at(slopes, system.m),
        column(plan, space, W),
        column(plan, space, INSIDE),
    )
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
    put(heads, head, q)
    put(heads, head + 1, residual)
    put(heads, head + 2, most)


@stage("void(int64, int64, int64, int64, int64, float64)")
def dual_newton(plan: int, space: int, used: int, limit: int, patience: int, tolerance: float) -> None:
    """From the multipliers Y to the solution: Y, W, INSIDE, IN_FORCE, G, and NEWTON_STEPS for each lane, of which `used` count.

    NEWTON_STEPS is −1 for a lane that did not reach the tolerance, within `limit` steps or because `patience` of them in a row did
    not halve its residual; Y and W then hold the best it found. Without patience (1), one lane of several gives up at once where
    it is HOPELESS, and all lanes stop as soon as most of them have given up.
    """
    system, tile, heads, factor = system_at(plan), tile_of(plan, space), tile_at(space, HEADS), values_at(plan, space)
    inequality, values, entries = system.inequality, tile_at(factor, 0), entries_at(plan)
    y, g, dy = row(plan, space, Y), row(plan, space, G), row(plan, space, DY)
    inside, image, mask = column(plan, space, INSIDE), column(plan, space, SIZE), row(plan, space, IN_FORCE)
    trial_y, trial_g, shift = row(plan, space, TRIAL_Y), row(plan, space, TRIAL_G), row(plan, space, SHIFT)
    n, m, state = system.n, system.m, heads.lane
    for t in range(LANES):
        state[SETTLED, t], state[BEST, t], state[WAITED, t], state[NEWTON_STEPS, t] = 0.0, np.inf, 0.0, -1.0
    any_inequality = False
    for i in range(m):
        any_inequality |= inequality[i]
        if inequality[i]:
            put(y, i, maximum(get(y, i), 0.0))
    _evaluate(plan, space, tolerance, address_of(y), address_of(g), Q)
    for step in range(limit + 1):
        running, given_up = False, 0
        for t in range(LANES):
            if state[SETTLED, t] == 0.0 and state[EXCESS, t] <= 0.0:
                state[SETTLED, t], state[NEWTON_STEPS, t] = 1.0, step
            elif patience == 1 and used > 1 and state[RESIDUAL, t] * state[MU, t] > HOPELESS:
                state[SETTLED, t] = 1.0
            if state[RESIDUAL, t] <= 0.5 * state[BEST, t]:
                state[BEST, t], state[WAITED, t] = state[RESIDUAL, t], 0.0
            else:
                state[WAITED, t] += 1.0
                if state[WAITED, t] >= patience:
                    state[SETTLED, t] = 1.0
            running |= state[SETTLED, t] == 0.0
            given_up += 1 if state[SETTLED, t] != 0.0 and state[NEWTON_STEPS, t] < 0.0 else 0
        if not running or step == limit or (patience == 1 and 2 * given_up > LANES):
            break
        # Newton's system on the rows in force, slightly damped; the other rows become identity.
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
        assemble(plan, address_of(inside), address_of(mask), factor)
        # Less and less near the solution, where an undamped step is exact.
        damping = 1e-12 + minimum(0.1 * get(heads, RESIDUAL), 1e-3) * minimum(1.0, 100.0 * get(heads, RESIDUAL))
        for i in range(m):
            put(values, entries + i, get(values, entries + i) + get(mask, i) * damping)
        factorize(plan, factor, 0.0)
        substitute(plan, factor, address_of(dy))
        # Projected backtracking, every lane with its own length.
        searching = False
        for t in range(LANES):
            state[LENGTH, t] = 0.0 if state[SETTLED, t] != 0.0 else 1.0
        for _ in range(HALVINGS):
            predicted = spread(0.0, y)
            for i in range(m):
                value = get(y, i) + get(heads, LENGTH) * get(dy, i)
                if inequality[i]:
                    value = maximum(value, 0.0)
                put(trial_y, i, value)
                predicted = predicted + get(g, i) * (value - get(y, i))
            put(heads, PREDICTED, predicted)
            _evaluate(plan, space, tolerance, address_of(trial_y), address_of(trial_g), TRIAL_Q)
            searching = False
            for t in range(LANES):
                wanted = SUFFICIENT * state[PREDICTED, t]
                rise = state[TRIAL_Q, t] - state[Q, t] >= wanted and wanted > 0.0
                small = state[TRIAL_RESIDUAL, t] <= 0.5 * state[RESIDUAL, t] or state[TRIAL_EXCESS, t] <= 0.0
                if state[LENGTH, t] > 0.0 and not (rise or small):
                    state[LENGTH, t] *= 0.5
                    searching = True
            if not searching:
                break
        for t in range(LANES):
            if 0.0 < state[LENGTH, t] <= 0.5**HALVINGS:
                state[LENGTH, t], state[SETTLED, t] = 0.0, 1.0  # no progress from here
        for i in range(m):
            value = get(y, i) + get(heads, LENGTH) * get(dy, i)
            put(y, i, maximum(value, 0.0) if inequality[i] else value)
        if searching:  # the last trial was not at these lengths
            _evaluate(plan, space, tolerance, address_of(y), address_of(g), Q)
        else:
            for i in range(m):
                put(g, i, get(trial_g, i))
            for k in range(3):
                put(heads, Q + k, get(heads, TRIAL_Q + k))
