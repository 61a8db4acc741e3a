"""How the solution of a smoothed LP moves with its right-hand sides, on tiles."""

from __future__ import annotations

from typing import Any

from dflearn.kernels.cholesky import assemble, factorize, substitute
from dflearn.kernels.dual_newton import VANISHING_PIVOT, mask_rows
from dflearn.kernels.lanes import gather, get, jit, load, put, store
from dflearn.kernels.smoothed import Workspace
from dflearn.kernels.smoothed_lp import SmoothedSystem


@jit
def prices_tile(
    system: SmoothedSystem, inside: Any, in_force: Any, v: Any, index: Any, used: int, space: Workspace, out: Any
) -> None:
    """out = (M D Mᵀ)⁺ M D v over the rows in force, D the variables inside their bounds: (dw/dr)ᵀ v.

    v, inside (count, n), in_force and out (count, m). Rows that depend on others within the face get zero: what moves all of
    them consistently is still told exactly.
    """
    x, d = space.columns[0], space.columns[1]
    mask, z, work = space.rows[0], space.rows[1], space.rows[2]
    load(inside, index, d)
    load(in_force, index, mask)
    load(v, index, x)
    for j in range(x.shape[0]):
        put(x, j, get(x, j) * get(d, j))
    gather(system.by_rows, x, z)
    for i in range(z.shape[0]):
        put(z, i, get(z, i) * get(mask, i))
    assemble(system.pattern, d, space.values)
    mask_rows(system.pattern, mask, space.values)
    factorize(system.pattern, space.values, work, VANISHING_PIVOT)
    substitute(system.pattern, space.values, z)
    for i in range(z.shape[0]):
        put(z, i, get(z, i) * get(mask, i))
    store(z, index, used, out)
