"""From an interior point to the face of the solution, on tiles: on the way to the last digits, and the answer where the
dual Newton method stalls.

Each variable goes to the bound that its multiplier presses it to, each row is in force or not; on that face the KKT
conditions are linear equations. They are solved for corrections of w and y, so that, unlike in w = −(c + Mᵀy)/μ, a small
μ does not enlarge the errors of rounding:

    μ δw + Mᵀδy = −(c + μw + Mᵀy) on the variables inside,   M δw = r − M w on the rows in force
"""

from __future__ import annotations

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
    put,
    spread,
    stage,
    tile_at,
    where,
)
from dflearn.engine.smoothed.interior_point import (
    HAS_LOWER,
    HAS_UPPER,
    POINT_GL,
    POINT_GU,
    POINT_S,
    POINT_W,
    POINT_ZL,
    POINT_ZU,
)
from dflearn.engine.smoothed.optimality import NOISE, measure
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
    PRICES,
    RESIDUAL,
    SHIFT,
    SIZE,
    SLOPE,
    STATE,
    C,
    W,
    Y,
    column,
    column_at,
    row,
    row_at,
    system_at,
    tile_of,
    values_at,
)

CORRECTIONS = 6
CLOSER = 0.9  # times its residual: what counts as closer
FINISHED = 10.0  # times the tolerance: a residual up to this needs no more work
DAMPING = 1e-12  # of the normal equations, whose rows have length one
VANISHING_PIVOT = 1e-11  # relative to the diagonal: the row depends on earlier ones
OFF = 1e-10  # a row that a projection breaks by more than this, beside its terms
ROUNDED, TWICE_ROUNDED = 4e-12, 1e-15  # what is noise, beside what was taken off v last, and first


@stage("void(int64, int64)")
def _snap(plan: int, space: int) -> None:
    """The face nearest to an interior point with its PRICES: a gap smaller than its multiplier is closed, a multiplier smaller than
    its gap vanishes."""
    system, tile, w, inside = (
        system_at(plan),
        tile_of(plan, space),
        column(plan, space, FACE_W),
        column(plan, space, FACE_INSIDE),
    )
    y, in_force, prices, s = (
        row(plan, space, FACE_Y),
        row(plan, space, FACE_IN_FORCE),
        row(plan, space, PRICES),
        row(plan, space, POINT_S),
    )
    point, gl, gu = column(plan, space, POINT_W), column(plan, space, POINT_GL), column(plan, space, POINT_GU)
    zl, zu = column(plan, space, POINT_ZL), column(plan, space, POINT_ZU)
    has_lower, has_upper = column(plan, space, HAS_LOWER), column(plan, space, HAS_UPPER)
    for j in range(system.n):
        low = where(get(zl, j) > get(gl, j), get(has_lower, j), 0.0)
        high = where(get(zu, j) > get(gu, j), get(has_upper, j), 0.0)
        x = minimum(maximum(get(point, j), get(tile.lower, j)), get(tile.upper, j))
        x = where(high > 0.0, get(tile.upper, j), where(low > 0.0, get(tile.lower, j), x))
        put(w, j, x)
        put(inside, j, where((x > get(tile.lower, j)) & (x < get(tile.upper, j)), 1.0, 0.0))
    for i in range(system.m):
        put(in_force, i, 1.0)
        put(y, i, get(prices, i))
        if system.inequality[i]:
            put(in_force, i, where(get(prices, i) > get(s, i), 1.0, 0.0))
            put(y, i, get(prices, i) * get(in_force, i))


@stage("void(int64, int64)")
def _correct(plan: int, space: int) -> None:
    """One correction of FACE_W and FACE_Y on their face; what leaves its bounds is cut off, and the face changes accordingly."""
    system, tile, factor = system_at(plan), tile_of(plan, space), values_at(plan, space)
    by_rows, by_columns, mu, n, m = system.by_rows, system.by_columns, get(tile.mu, 0), system.n, system.m
    w, inside, slope, image = (
        column(plan, space, FACE_W),
        column(plan, space, FACE_INSIDE),
        column(plan, space, SLOPE),
        column(plan, space, SIZE),
    )
    y, in_force, gap, work = (
        row(plan, space, FACE_Y),
        row(plan, space, FACE_IN_FORCE),
        row(plan, space, DY),
        row(plan, space, SHIFT),
    )
    values, entries = tile_at(factor, 0), entries_at(plan)
    for j in range(n):
        reduced = get(tile.c, j) + mu * get(w, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            reduced = reduced + by_columns.value[k] * get(y, by_columns.column[k])
        # A variable that its reduced cost pulls off its bound becomes free.
        leaves = where((get(w, j) > get(tile.lower, j)) & (reduced > 0.0), 1.0, 0.0)
        leaves = where((get(w, j) < get(tile.upper, j)) & (reduced < 0.0), 1.0, leaves)
        put(inside, j, maximum(get(inside, j), leaves))
        put(slope, j, reduced * get(inside, j))
    for i in range(m):
        missing = get(tile.r, i)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            missing = missing - by_rows.value[k] * get(w, by_rows.column[k])
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
    _snap(plan, space)
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
    system, factor, heads, n, m = (
        system_at(plan),
        values_at(plan, space),
        tile_at(space, HEADS),
        number_at(plan, 0),
        number_at(plan, 1),
    )
    x, d, image, noise = (
        column(plan, space, W),
        column(plan, space, INSIDE),
        column(plan, space, SIZE),
        column(plan, space, SLOPE),
    )
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
