"""From an interior point to the face of the solution, on tiles: on the way to the last digits, and the answer where the
dual Newton method stalls.

Each variable goes to the bound that its multiplier presses it to, each row is in force or not; on that face the KKT
conditions are linear equations. They are solved for corrections of w and y, so that, unlike in w = −(c + Mᵀy)/μ, a small
μ does not enlarge the errors of rounding:

    μ δw + Mᵀδy = −(c + μw + Mᵀy) on the variables inside,   M δw = r − M w on the rows in force
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from dflearn.kernels.cholesky import assemble, factorize, mask_rows, substitute
from dflearn.kernels.interior_point import InteriorScratch
from dflearn.kernels.lanes import cut, gather, get, inner, lanes, maximum, minimum, put, where
from dflearn.kernels.optimality import NOISE, measure
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile

CORRECTIONS = 6
CLOSER = 0.9  # times its residual: what counts as closer
FINISHED = 10.0  # times the tolerance: a residual up to this needs no more work
DAMPING = 1e-12  # of the normal equations, whose rows have length one


# Work space: tiles inside, w, slope, image of n items; in_force, y, gap, work of m items; values as of `assemble`.
FaceScratch = namedtuple("FaceScratch", "inside w slope image in_force y gap work values")
FACE_COLUMNS, FACE_ROWS = 4, 4  # how many of them have n items, and m items


@inner
def face_scratch(columns: Any, rows: Any, n: int, m: int, values: Any) -> FaceScratch:
    """The names of tiles in `columns`, of n items each, and in `rows`, of m items each."""
    return FaceScratch(
        cut(columns, 0, n), cut(columns, 1, n), cut(columns, 2, n), cut(columns, 3, n),
        cut(rows, 0, m), cut(rows, 1, m), cut(rows, 2, m), cut(rows, 3, m),
        values,
    )  # fmt: skip


@inner
def snap(system: SmoothedSystem, tile: SmoothedTile, point: InteriorScratch, prices: Any, face: FaceScratch) -> None:
    """The face nearest to an interior point with the multipliers `prices` of its rows: a gap smaller than its multiplier
    is closed, a multiplier smaller than its gap vanishes."""
    for j in range(tile.c.shape[0]):
        low = where(get(point.zl, j) > get(point.gl, j), get(point.has_lower, j), 0.0)
        high = where(get(point.zu, j) > get(point.gu, j), get(point.has_upper, j), 0.0)
        w = minimum(maximum(get(point.w, j), get(tile.lower, j)), get(tile.upper, j))
        w = where(high > 0.0, get(tile.upper, j), where(low > 0.0, get(tile.lower, j), w))
        put(face.w, j, w)
        put(face.inside, j, where((w > get(tile.lower, j)) & (w < get(tile.upper, j)), 1.0, 0.0))
    for i in range(tile.r.shape[0]):
        put(face.in_force, i, 1.0)
        put(face.y, i, get(prices, i))
        if system.inequality[i]:
            put(face.in_force, i, where(get(prices, i) > get(point.s, i), 1.0, 0.0))
            put(face.y, i, get(prices, i) * get(face.in_force, i))


@inner
def correct(system: SmoothedSystem, tile: SmoothedTile, face: FaceScratch) -> None:
    """One correction of w and y on their face; what leaves its bounds is cut off, and the face changes accordingly."""
    pattern, by_rows, by_columns, mu = system.pattern, system.by_rows, system.by_columns, get(tile.mu, 0)
    n, m, entries = tile.c.shape[0], tile.r.shape[0], len(pattern.row)
    w, y, slope, image, gap = face.w, face.y, face.slope, face.image, face.gap
    for j in range(n):
        reduced = get(tile.c, j) + mu * get(w, j)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            reduced = reduced + by_columns.value[k] * get(y, by_columns.column[k])
        # A variable that its reduced cost pulls off its bound becomes free.
        leaves = where((get(w, j) > get(tile.lower, j)) & (reduced > 0.0), 1.0, 0.0)
        leaves = where((get(w, j) < get(tile.upper, j)) & (reduced < 0.0), 1.0, leaves)
        put(face.inside, j, maximum(get(face.inside, j), leaves))
        put(slope, j, reduced * get(face.inside, j))
    for i in range(m):
        missing = get(tile.r, i)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            missing = missing - by_rows.value[k] * get(w, by_rows.column[k])
        if system.inequality[i]:  # a row that is broken comes into force
            put(face.in_force, i, where(missing < 0.0, 1.0, get(face.in_force, i)))
        put(gap, i, -1.0 * mu * missing)
    gather(by_rows, slope, face.work)
    for i in range(m):
        put(gap, i, get(face.in_force, i) * (get(gap, i) - get(face.work, i)))
    assemble(pattern, face.inside, face.values)
    mask_rows(pattern, face.in_force, face.values)
    for i in range(m):
        put(face.values, entries + i, get(face.values, entries + i) + DAMPING)
    factorize(pattern, face.values, DAMPING)
    substitute(pattern, face.values, gap)
    gather(by_columns, gap, image)
    for j in range(n):
        move = get(face.inside, j) * (get(slope, j) + get(image, j)) / mu
        moved = minimum(maximum(get(w, j) - move, get(tile.lower, j)), get(tile.upper, j))
        put(w, j, moved)
        put(face.inside, j, where((moved > get(tile.lower, j)) & (moved < get(tile.upper, j)), 1.0, 0.0))
    for i in range(m):
        price = get(y, i) + get(gap, i)
        if system.inequality[i]:
            price = maximum(price, 0.0)
            put(face.in_force, i, where(price > 0.0, get(face.in_force, i), 0.0))
        put(y, i, price)


@inner
def keep_better(face: FaceScratch, found: Any, best: Any, w: Any, y: Any, inside: Any, in_force: Any) -> None:
    """w, y, inside and in_force take over what `face` holds in the lanes whose residual `found` is below `best`."""
    better: Any = np.empty(1, w.dtype)
    any_better = False
    put(better, 0, 0.0)
    number = better.lane
    for t in range(lanes(w)):
        if found[t] < best[t]:
            best[t], number[0, t], any_better = found[t], 1.0, True
    if not any_better:
        return
    chosen = get(better, 0)
    for j in range(w.shape[0]):
        put(w, j, where(chosen > 0.0, get(face.w, j), get(w, j)))
        put(inside, j, where(chosen > 0.0, get(face.inside, j), get(inside, j)))
    for i in range(y.shape[0]):
        put(y, i, where(chosen > 0.0, get(face.y, i), get(y, i)))
        put(in_force, i, where(chosen > 0.0, get(face.in_force, i), get(in_force, i)))


@inner
def keep_face(face: FaceScratch, w: Any, y: Any, inside: Any, in_force: Any) -> None:
    """Copies of an answer, in what `correct` works with: `kept_face` is it until the next correction."""
    for j in range(w.shape[0]):
        put(face.slope, j, get(w, j))
        put(face.image, j, get(inside, j))
    for i in range(y.shape[0]):
        put(face.gap, i, get(y, i))
        put(face.work, i, get(in_force, i))


@inner
def kept_face(face: FaceScratch) -> FaceScratch:
    """What `keep_face` kept, as a face."""
    return FaceScratch(
        face.image, face.slope, face.slope, face.image, face.work, face.gap, face.gap, face.work, face.values
    )


@inner
def finish_on_face(
    system: SmoothedSystem,
    tile: SmoothedTile,
    point: InteriorScratch,
    prices: Any,
    tolerance: float,
    patient: bool,
    face: FaceScratch,
    best: Any,
    w: Any,
    y: Any,
    inside: Any,
    in_force: Any,
) -> None:
    """The best of the corrections on the interior point's face, where it is better than what w, y and `best` hold.

    patient: whether to go on where the last correction brought none of the lanes closer that are still to come there.
    """
    found, before = np.empty(lanes(w)), np.empty(lanes(w))
    snap(system, tile, point, prices, face)
    for _ in range(CORRECTIONS):
        before[:] = best
        correct(system, tile, face)
        measure(system, tile, face.y, face.w, face.image, NOISE, found)
        keep_better(face, found, best, w, y, inside, in_force)
        hopeful = False  # a lane that is all but there and no longer gets closer is at its rounding
        for t in range(lanes(w)):
            if best[t] > FINISHED * tolerance:
                hopeful |= patient or best[t] <= CLOSER * before[t]
            else:
                hopeful |= best[t] > tolerance and best[t] <= 0.5 * before[t]
        if not hopeful:
            return
