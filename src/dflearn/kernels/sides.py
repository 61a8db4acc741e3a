"""How the solution of a smoothed LP moves with its right-hand sides, on tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.cholesky import assemble, factorize, substitute
from dflearn.kernels.dual_newton import VANISHING_PIVOT, mask_rows
from dflearn.kernels.lanes import cut, gather, get, jit, lanes, load, put, store
from dflearn.kernels.smoothed import system_of, thirds, tile_index


@jit
def price_tiles(plan: Any, space: Any, index: Any, inside: Any, in_force: Any, v: Any, out: Any) -> None:
    """out = (M D Mᵀ)⁺ M D v over the rows in force, D the variables inside their bounds: (dw/dr)ᵀ v.

    v, inside (count, n), in_force and out (count, m). Rows that depend on others within the face get zero: what moves all of
    them consistently is still told exactly.
    """
    system, n, m, width = system_of(plan), plan[0], plan[1], lanes(space)
    columns, rows, values = thirds(space, n, m)
    x, d = cut(columns, 0, n), cut(columns, 1, n)
    mask, z = cut(rows, 0, m), cut(rows, 1, m)
    lane = np.empty(width, np.int64)
    for first in range(0, len(index), width):
        used = tile_index(index, first, lane)
        load(inside, lane, d.lane)
        load(in_force, lane, mask.lane)
        load(v, lane, x.lane)
        for j in range(n):
            put(x, j, get(x, j) * get(d, j))
        gather(system.by_rows, x, z)
        for i in range(m):
            put(z, i, get(z, i) * get(mask, i))
        assemble(system.pattern, d, values)
        mask_rows(system.pattern, mask, values)
        factorize(system.pattern, values, VANISHING_PIVOT)
        substitute(system.pattern, values, z)
        for i in range(m):
            put(z, i, get(z, i) * get(mask, i))
        store(z.lane, lane, used, out)
