"""The exact solution from an interior point or from multipliers, on tiles: Newton's method on the dual, and on faces.

**On the dual**, from a good start and to the last digit. The multipliers y of M w = r (rows of type "≤" have y ≥ 0) determine
everything: w(y) = clip(−(c + Mᵀy)/μ, lower, upper) minimizes the Lagrangian, q(y) is its value, and g(y) = M w(y) − r is the
gradient of the concave, piecewise quadratic q. Newton's matrix is M D Mᵀ/μ with D = which variables lie strictly inside their
bounds. Rows of type "≤" with y + g ≤ 0 are inactive: their multiplier goes to zero and they leave the system. At the right active
set one step is exact.

**On a face**, from an interior point, and where the dual method stalls. Each variable goes to the bound that its multiplier presses
it to, each row is in force or not; on that face the KKT conditions are linear equations. They are solved for corrections of w and
y, so that, unlike in w = −(c + Mᵀy)/μ, a small μ does not enlarge the errors of rounding:

    μ δw + Mᵀδy = −(c + μw + Mᵀy) on the variables inside,   M δw = r − M w on the rows in force
"""

from __future__ import annotations

import numpy as np

from dflearn.engine.linear_algebra.cholesky import assemble, entries_at, factorize, substitute
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    absolute,
    address_of,
    any_lane,
    gather,
    get,
    maximum,
    minimum,
    number_at,
    plus_row,
    put,
    spread,
    stage,
    tile_at,
    where,
)
from dflearn.engine.smoothed.interior_point import nearest_face
from dflearn.engine.smoothed.system import (
    DY,
    FACE_IN_FORCE,
    FACE_INSIDE,
    FACE_W,
    FACE_Y,
    FOUND,
    HEADS,
    IN_FORCE,
    INSIDE,
    MU,
    NEWTON_STEPS,
    NOISE,
    RESIDUAL,
    SHIFT,
    SIZE,
    SLOPE,
    STATE,
    TRIAL_G,
    TRIAL_Y,
    C,
    G,
    W,
    Y,
    column,
    column_at,
    measure,
    row,
    row_at,
    system_at,
    tile_of,
    values_at,
)

HALVINGS = 12  # of the step, before a lane gives up
HOPELESS = 1e-3  # times 1/μ: a residual from which most lanes of a tile have not been seen to get on without patience
SUFFICIENT = 1e-4  # share of the linear prediction that a step must achieve
MOST_NOISE = 1e5  # times what rounding leaves of w itself; beyond it w(y) is no answer

# Of each lane: q(y), the residual, by how much it exceeds the tolerance; the same of a trial, and the rise that was predicted for
# it; the step's length; whether the lane has come to an end; its best residual, and for how many steps it has waited since.
DUAL, NATURAL, EXCESS = STATE, STATE + 1, STATE + 2
TRIAL_DUAL, TRIAL_NATURAL, TRIAL_EXCESS, PREDICTED = STATE + 3, STATE + 4, STATE + 5, STATE + 6
LENGTH, SETTLED, BEST, WAITED = STATE + 7, STATE + 8, STATE + 9, STATE + 10


@stage("void(int64, int64, float64, int64, int64, int64)")
def _evaluate(plan: int, space: int, tolerance: float, rows: int, slopes: int, head: int) -> None:
    """For the multipliers y at `rows`: W(y), INSIDE, and g(y) at `slopes`; from head on: q(y), the natural residual at its largest,
    and by how much it exceeds the tolerance, which is relative to each row's own terms.

    The natural residual of a row is |g| where the row is in force and y where it is not. w(y) is a difference of terms as
    large as c and y, divided by μ: what rounding leaves of it, at a bound or of g beside a row's terms, counts as nothing.
    """
    system, tile, heads = system_at(plan), tile_of(plan, space), tile_at(space, HEADS)
    y, g, w = tile_at(rows, system.m), tile_at(slopes, system.m), column(plan, space, W)
    inside = column(plan, space, INSIDE)
    by_rows, by_columns, inequality = system.by_rows, system.by_columns, system.inequality
    c, r, lower, upper = tile.c, tile.r, tile.lower, tile.upper
    smoothing, q = get(tile.mu, 0), spread(0.0, c)
    largest, prices = spread(0.0, c), spread(1.0, c)
    for i in range(r.shape[0]):
        prices = maximum(prices, absolute(get(y, i)))
    noise = 4.0 * NOISE * minimum(prices / smoothing, MOST_NOISE)
    for j in range(c.shape[0]):
        gradient = plus_row(get(c, j), by_columns, j, y)
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
    _evaluate(plan, space, tolerance, address_of(y), address_of(g), DUAL)
    for step in range(limit + 1):
        running, given_up = False, 0
        for t in range(LANES):
            if state[SETTLED, t] == 0.0 and state[EXCESS, t] <= 0.0:
                state[SETTLED, t], state[NEWTON_STEPS, t] = 1.0, step
            elif patience == 1 and used > 1 and state[NATURAL, t] * state[MU, t] > HOPELESS:
                state[SETTLED, t] = 1.0
            if state[NATURAL, t] <= 0.5 * state[BEST, t]:
                state[BEST, t], state[WAITED, t] = state[NATURAL, t], 0.0
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
        damping = 1e-12 + minimum(0.1 * get(heads, NATURAL), 1e-3) * minimum(1.0, 100.0 * get(heads, NATURAL))
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
            _evaluate(plan, space, tolerance, address_of(trial_y), address_of(trial_g), TRIAL_DUAL)
            searching = False
            for t in range(LANES):
                wanted = SUFFICIENT * state[PREDICTED, t]
                rise = state[TRIAL_DUAL, t] - state[DUAL, t] >= wanted and wanted > 0.0
                small = state[TRIAL_NATURAL, t] <= 0.5 * state[NATURAL, t] or state[TRIAL_EXCESS, t] <= 0.0
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
            _evaluate(plan, space, tolerance, address_of(y), address_of(g), DUAL)
        else:
            for i in range(m):
                put(g, i, get(trial_g, i))
            for k in range(3):
                put(heads, DUAL + k, get(heads, TRIAL_DUAL + k))


# -- on a face -----

CORRECTIONS = 6
CLOSER = 0.9  # times its residual: what counts as closer
FINISHED = 10.0  # times the tolerance: a residual up to this needs no more work
DAMPING = 1e-12  # of the normal equations, whose rows have length one
VANISHING_PIVOT = 1e-11  # relative to the diagonal: the row depends on earlier ones
OFF = 1e-10  # a row that a projection breaks by more than this, beside its terms
ROUNDED, TWICE_ROUNDED = 4e-12, 1e-15  # what is noise, beside what was taken off v last, and first


@stage("void(int64, int64)")
def _correct(plan: int, space: int) -> None:
    """One correction of FACE_W and FACE_Y on their face; what leaves its bounds is cut off, and the face changes accordingly."""
    system, tile, factor = system_at(plan), tile_of(plan, space), values_at(plan, space)
    by_rows, by_columns, mu, n, m = system.by_rows, system.by_columns, get(tile.mu, 0), system.n, system.m
    w, inside, slope = column(plan, space, FACE_W), column(plan, space, FACE_INSIDE), column(plan, space, SLOPE)
    image = column(plan, space, SIZE)
    y, in_force, gap = row(plan, space, FACE_Y), row(plan, space, FACE_IN_FORCE), row(plan, space, DY)
    work = row(plan, space, SHIFT)
    values, entries = tile_at(factor, 0), entries_at(plan)
    for j in range(n):
        reduced = plus_row(get(tile.c, j) + mu * get(w, j), by_columns, j, y)
        # A variable that its reduced cost pulls off its bound becomes free.
        leaves = where((get(w, j) > get(tile.lower, j)) & (reduced > 0.0), 1.0, 0.0)
        leaves = where((get(w, j) < get(tile.upper, j)) & (reduced < 0.0), 1.0, leaves)
        put(inside, j, maximum(get(inside, j), leaves))
        put(slope, j, reduced * get(inside, j))
    for i in range(m):
        missing = get(tile.r, i) - plus_row(spread(0.0, y), by_rows, i, w)
        if system.inequality[i]:  # a row that is broken comes into force
            put(in_force, i, where(missing < 0.0, 1.0, get(in_force, i)))
        put(gap, i, -1.0 * mu * missing)
    gather(by_rows, slope, work)
    for i in range(m):
        put(gap, i, get(in_force, i) * (get(gap, i) - get(work, i)))
    assemble(plan, address_of(inside), address_of(in_force), factor)
    for i in range(m):
        put(values, entries + i, get(values, entries + i) + DAMPING)
    factorize(plan, factor, DAMPING)
    substitute(plan, factor, address_of(gap))
    gather(by_columns, gap, image)
    for j in range(n):
        move = get(inside, j) * (get(slope, j) + get(image, j)) / mu
        moved = minimum(maximum(get(w, j) - move, get(tile.lower, j)), get(tile.upper, j))
        put(w, j, moved)
        put(inside, j, where((moved > get(tile.lower, j)) & (moved < get(tile.upper, j)), 1.0, 0.0))
    for i in range(m):
        price = get(y, i) + get(gap, i)
        if system.inequality[i]:
            price = maximum(price, 0.0)
            put(in_force, i, where(price > 0.0, get(in_force, i), 0.0))
        put(y, i, price)


@stage("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def take_better(
    plan: int, space: int, found: int, column_: int, row_: int, best: int, to_column: int, to_row: int
) -> None:
    """In the lanes whose number `found` is below `best`, one answer takes over another, and that number.

    An answer is w and which variables are inside, from a column on, and y and which rows are in force, from a row on.
    """
    system, heads = system_at(plan), tile_at(space, HEADS)
    better = get(heads, found) < get(heads, best)
    put(heads, best, where(better, get(heads, found), get(heads, best)))
    if any_lane(better):
        source, target = tile_at(column_at(plan, space, column_), 0), tile_at(column_at(plan, space, to_column), 0)
        for j in range(2 * system.n):
            put(target, j, where(better, get(source, j), get(target, j)))
        source, target = tile_at(row_at(plan, space, row_), 0), tile_at(row_at(plan, space, to_row), 0)
        for i in range(2 * system.m):
            put(target, i, where(better, get(source, i), get(target, i)))


@stage("void(int64, int64, float64, int64)")
def finish_on_face(plan: int, space: int, tolerance: float, patient: int) -> None:
    """The best of the corrections on the interior point's face, where it is better than the answer and its RESIDUAL.

    patient: whether to go on where the last correction brought none of the lanes closer that are still to come there.
    """
    heads, columns, rows = tile_at(space, HEADS), column_at(plan, space, FACE_W), row_at(plan, space, FACE_Y)
    number, before = heads.lane, STATE + 1
    nearest_face(plan, space)
    for _ in range(CORRECTIONS):
        put(heads, before, get(heads, RESIDUAL))
        _correct(plan, space)
        measure(plan, space, rows, columns, NOISE, FOUND)
        take_better(plan, space, FOUND, FACE_W, FACE_Y, RESIDUAL, W, Y)
        hopeful = False  # a lane that is all but there and no longer gets closer is at its rounding
        for t in range(LANES):
            best, last = number[RESIDUAL, t], number[before, t]
            if best > FINISHED * tolerance:
                hopeful |= patient != 0 or best <= CLOSER * last
            else:
                hopeful |= best > tolerance and best <= 0.5 * last
        if not hopeful:
            return


@stage("void(int64, int64)")
def project(plan: int, space: int) -> None:
    """W = P v for v in C, P the orthogonal projection onto {x : x_j = 0 off the INSIDE, (M x)_i = 0 on the rows IN_FORCE}.

    Y = z, the multipliers of those rows: P v = D (v − Mᵀz) with z = (M D Mᵀ)⁺ M D v, D the inside. Rows that depend on
    others within the face get zero, which leaves the projection as it is. FOUND: 1 where P v is not on the face, else 0: rows of
    very different units may all but depend on each other in those of the variables, and be lost in M D Mᵀ.
    """
    system, factor, heads, n = system_at(plan), values_at(plan, space), tile_at(space, HEADS), number_at(plan, 0)
    m = number_at(plan, 1)
    x, d, image = column(plan, space, W), column(plan, space, INSIDE), column(plan, space, SIZE)
    noise = column(plan, space, SLOPE)
    mask, z, step, v = row(plan, space, IN_FORCE), row(plan, space, Y), row(plan, space, DY), column(plan, space, C)
    by_rows, by_columns = system.by_rows, system.by_columns
    for j in range(n):
        put(x, j, get(v, j) * get(d, j))
    assemble(plan, address_of(d), address_of(mask), factor)
    factorize(plan, factor, VANISHING_PIVOT)
    for i in range(m):
        put(z, i, 0.0)
    for again in range(2):  # once more for what rounding of v left, which may be much larger than P v
        gather(by_rows, x, step)
        for i in range(m):
            put(step, i, get(step, i) * get(mask, i))
        substitute(plan, factor, address_of(step))
        for i in range(m):
            put(step, i, get(step, i) * get(mask, i))
            put(z, i, get(z, i) + get(step, i))
        gather(by_columns, step, image)
        for j in range(n):
            own = get(d, j) * get(image, j)
            put(x, j, get(x, j) - own)
            if again:
                put(noise, j, get(noise, j) + ROUNDED * absolute(own))
            else:
                put(noise, j, TWICE_ROUNDED * absolute(own))
    off = spread(0.0, x)
    for i in range(m):
        gap, terms, hidden = spread(0.0, x), spread(0.0, x), spread(0.0, x)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            a, j = by_rows.value[k], by_rows.column[k]
            gap = gap + a * get(x, j)
            terms = terms + absolute(a * get(x, j))
            hidden = hidden + absolute(a * get(noise, j))
        wrong = (absolute(gap) > OFF * terms) & (absolute(gap) > hidden)
        off = maximum(off, where(wrong, get(mask, i), 0.0))
    put(heads, FOUND, off)
