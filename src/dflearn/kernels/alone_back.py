"""The way back from one instance alone: the projection onto its solution's face, as of `project_tiles`, with vectors over variables."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.alone_factor import (
    COLUMNS,
    TAPE,
    TOLD,
    Values,
    array_of,
    columns_of,
    masked_factor,
    narrow_at,
    product,
    rows_of,
    substitute,
    tape_of,
    wide_at,
)
from dflearn.kernels.dual_newton import VANISHING_PIVOT
from dflearn.kernels.lanes import absolute, array_at, get, inner, jit, put
from dflearn.kernels.projection import ROUNDED, TWICE_ROUNDED, off_face
from dflearn.kernels.smoothed import system_of


@inner
def _read(gradient: Any, x: Any) -> None:
    for j in range(len(gradient)):
        x.lane[j, 0] = np.float64(gradient[j])


@inner
def _write(x: Any, factor: float, places: Any, scale: Any, out: Any, like: Any) -> None:
    """Sᵀ (factor · x), S with one entry in each row and column: rounded to the dtype of `like` before and after, as in torch."""
    for i in range(len(out)):
        j = places[i]
        out[i] = like(factor * x.lane[j, 0]) * like(scale[j])


@jit
def project_alone(plan: Any, gradient: int, out: int, single: bool, factor: float, face: Any) -> bool:
    """out `(p,)` = Sᵀ (factor · P gradient), gradient `(n,)`: addresses and kinds as in `solve_alone`, whose face it is.

    Whether P gradient is on the face; where it is not, nothing is said.
    """
    system, tape, number = system_of(plan), tape_of(plan, TAPE), np.float64(0.0)
    n, m, p = plan[0], plan[1], plan[TOLD]
    scale, places = array_at(plan, TOLD + 3, number), array_at(plan, TOLD + 25, np.uint32(0))
    wide, narrow = wide_at(plan, TOLD + 7), narrow_at(plan, TOLD + 9)
    groups, row_groups = (n + 7) // 8, (m + 7) // 8
    a, b = columns_of(wide, groups), rows_of(wide[COLUMNS * groups :], row_groups)
    x, z = columns_of(narrow, 8 * groups), rows_of(narrow[8 * COLUMNS * groups :], 8 * row_groups)
    own = Values(narrow_at(plan, TOLD + 15), narrow_at(plan, TOLD + 17), z.whole)
    if single:
        _read(array_of(gradient, n, np.float32(0.0)), x.w)
    else:
        _read(array_of(gradient, n, number), x.w)
    all_rows = True
    for j in range(n):
        x.theta.lane[j, 0] = face[j]
    for i in range(m):
        z.force.lane[i, 0] = face[n + i]
        all_rows = all_rows and face[n + i] == 1
    for j in range(a.w.shape[0]):
        put(a.w, j, get(a.w, j) * get(a.theta, j))
    masked_factor(tape, own, x.theta, z.force, all_rows, 0.0, VANISHING_PIVOT)
    for again in range(2):
        product(system.by_rows, x.w, z.dy)
        for i in range(b.dy.shape[0]):
            put(b.dy, i, get(b.dy, i) * get(b.force, i))
        substitute(tape, own, z.dy)
        for i in range(b.dy.shape[0]):
            put(b.dy, i, get(b.dy, i) * get(b.force, i))
        product(system.by_columns, z.dy, x.image)
        for j in range(a.w.shape[0]):
            part = get(a.theta, j) * get(a.image, j)
            put(a.w, j, get(a.w, j) - part)
            if again:
                put(a.slope, j, get(a.slope, j) + ROUNDED * absolute(part))
            else:
                put(a.slope, j, TWICE_ROUNDED * absolute(part))
    units = narrow_at(plan, TOLD + 13)
    put(units, 0, off_face(system, z.force[:m], x.w, x.slope))
    if units.lane[0, 0] != 0.0:
        return False
    if single:
        _write(x.w, factor, places, scale, array_of(out, p, np.float32(0.0)), np.float32)
    else:
        _write(x.w, factor, places, scale, array_of(out, p, number), np.float64)
    return True
