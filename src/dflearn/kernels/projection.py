"""The projection onto the face of a solution, for a batch, tile by tile: the way back through the smoothed LP."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.cholesky import assemble, factorize, mask_rows, substitute
from dflearn.kernels.dual_newton import VANISHING_PIVOT
from dflearn.kernels.lanes import (
    absolute,
    cut,
    gather,
    get,
    inner,
    jit,
    lanes,
    load,
    maximum,
    put,
    spread,
    store,
    where,
)
from dflearn.kernels.smoothed import system_of, thirds, tile_index
from dflearn.kernels.smoothed_lp import SmoothedSystem

OFF = 1e-10  # a row that a projection breaks by more than this, beside its terms
ROUNDED, TWICE_ROUNDED = 4e-12, 1e-15  # what is noise, beside what was taken off v last, and first


@jit
def project_tiles(
    plan: Any, space: Any, index: Any, inside: Any, in_force: Any, v: Any, factor: Any, out: Any, prices: Any, off: Any
) -> None:
    """out = factor · P v, P the orthogonal projection onto {x : x_j = 0 off the inside, (M x)_i = 0 on the rows in force}.

    prices = z, the multipliers of those rows: P v = D (v − Mᵀz) with z = (M D Mᵀ)⁺ M D v, D the inside. Rows that depend on
    others within the face get zero, which leaves the projection as it is. off (count, 1): nonzero where P v is not on the face.

    v, inside, out (count, n), in_force, prices (count, m), factor (count or 1,).
    """
    system, n, m, width = system_of(plan), plan[0], plan[1], lanes(space)
    columns, rows, values = thirds(space, n, m)
    x, d, image, noise = cut(columns, 0, n), cut(columns, 1, n), cut(columns, 2, n), cut(columns, 3, n)
    mask, z, step = cut(rows, 0, m), cut(rows, 1, m), cut(rows, 2, m)
    lane = np.empty(width, np.int64)
    scales: Any = np.empty(1, space.dtype)
    for first in range(0, len(index), width):
        used = tile_index(index, first, lane)
        load(inside, lane, d.lane)
        load(in_force, lane, mask.lane)
        load(v, lane, x.lane)
        load(factor.reshape(-1, 1), lane, scales.lane)
        scale = get(scales, 0)
        for j in range(n):
            put(x, j, get(x, j) * get(d, j))
        assemble(system.pattern, d, values)
        mask_rows(system.pattern, mask, values)
        factorize(system.pattern, values, VANISHING_PIVOT)
        for i in range(m):
            put(z, i, 0.0)
        for again in range(2):  # once more for what rounding of v left, which may be much larger than P v
            gather(system.by_rows, x, step)
            for i in range(m):
                put(step, i, get(step, i) * get(mask, i))
            substitute(system.pattern, values, step)
            for i in range(m):
                put(step, i, get(step, i) * get(mask, i))
                put(z, i, get(z, i) + get(step, i))
            gather(system.by_columns, step, image)
            for j in range(n):
                own = get(d, j) * get(image, j)
                put(x, j, get(x, j) - own)
                if again:
                    put(noise, j, get(noise, j) + ROUNDED * absolute(own))
                else:
                    put(noise, j, TWICE_ROUNDED * absolute(own))
        put(scales, 0, off_face(system, mask, x, noise))
        store(scales.lane, lane, used, off)
        for j in range(n):
            put(x, j, scale * get(x, j))
        store(x.lane, lane, used, out)
        store(z.lane, lane, used, prices)


@inner
def off_face(system: SmoothedSystem, mask: Any, x: Any, noise: Any) -> Any:
    """1 in lanes where x breaks a row of the mask by more than the noise of x, beside the terms of that row; else 0.

    Rows of very different units may all but depend on each other in those of the variables, and be lost in M D Mᵀ.
    """
    by_rows, found = system.by_rows, spread(0.0, x)
    for i in range(mask.shape[0]):
        gap, terms, hidden = spread(0.0, x), spread(0.0, x), spread(0.0, x)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            a, j = by_rows.value[k], by_rows.column[k]
            gap = gap + a * get(x, j)
            terms = terms + absolute(a * get(x, j))
            hidden = hidden + absolute(a * get(noise, j))
        wrong = (absolute(gap) > OFF * terms) & (absolute(gap) > hidden)
        found = maximum(found, where(wrong, get(mask, i), 0.0))
    return found
