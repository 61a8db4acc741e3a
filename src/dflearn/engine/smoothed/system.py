"""One tile of smoothed LPs as the stages of the solver see it: a plan, which all instances share, and a work space.

min cᵀw + (μ/2)‖w‖²   s.t.   M w = r on equality rows,  M w ≤ r on inequality rows,   lower ≤ w ≤ upper

Every stage takes two addresses. The plan is that of `SparseFactor.plan_of`. The space holds HEADS numbers per lane, then
COLUMNS tiles of n items, ROWS tiles of m items, and the values of a factor as of `assemble`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from dflearn.engine.linear_algebra.cholesky import (
    BY_COLUMNS,
    BY_ROWS,
    INEQUALITY,
    ROW_BYTES,
    SparseFactor,
    SparseRows,
    matrix_at,
)
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    TILE,
    address_of,
    array_at,
    cut,
    inner,
    integer_at,
    intrinsic,
    number_at,
    tile_at,
    tile_value,
    wide_tile,
)

# Numbers per lane. μ, and the shortest length that r and the bounds name (|c|/μ where they name none); the units of decisions
# and costs; the answer's residual, that of a candidate, and that of the answer before Newton's method; steps of both methods (−1:
# not converged), and of the interior points that are to run (−1 where they are); whether there is no feasible point; the objective.
MU, LEAST, SIGMA, GAMMA, RESIDUAL, FOUND, BEFORE, NEWTON_STEPS, INTERIOR_STEPS, TODO, PROVEN, VALUE = range(12)
STATE = 12  # what a method that runs knows of each lane: up to 12 numbers
HEADS = 24

# Tiles of n items: the instance; the answer, and which variables lie strictly inside their bounds (1 or 0); sizes of terms as
# of `measure`; a gradient; candidates for the answer; what `interior_point` needs.
C, LOWER, UPPER, W, INSIDE, SIZE, SLOPE, FACE_W, FACE_INSIDE, KEPT_W, KEPT_INSIDE, INTERIOR_COLUMNS = range(12)
COLUMNS = INTERIOR_COLUMNS + 18
# Tiles of m items: the same; in force: which rows bind (1 or 0); g = M w − r; a step and trials of Newton's method; multipliers
# of interior points.
R, Y, IN_FORCE, G, DY, TRIAL_Y, TRIAL_G, SHIFT, FACE_Y, FACE_IN_FORCE, KEPT_Y, KEPT_IN_FORCE, PRICES, INTERIOR_ROWS = (
    range(14)
)
ROWS = INTERIOR_ROWS + 8


class SmoothedSystem(NamedTuple):
    """The part that all instances share: sizes, M and Mᵀ by rows, and which rows are inequalities `(m,)`."""

    n: int
    m: int
    by_rows: SparseRows
    by_columns: SparseRows
    inequality: np.ndarray


class SmoothedTile(NamedTuple):
    """The instances of one tile, costs and decisions scaled to about one: tiles c, lower, upper of n items; r of m; mu of 2."""

    c: Any
    mu: Any
    r: Any
    lower: Any
    upper: Any


def workspace(factor: SparseFactor) -> np.ndarray:
    """The space of one thread."""
    n, m = factor.matrix.shape[1], factor.rows
    return wide_tile(HEADS + COLUMNS * n + ROWS * m + factor.value_rows, LANES, np.float64)


@inner
def system_at(plan: int) -> SmoothedSystem:
    """The system that a plan tells of."""
    return SmoothedSystem(
        number_at(plan, 0),
        number_at(plan, 1),
        matrix_at(plan, BY_ROWS),
        matrix_at(plan, BY_COLUMNS),
        array_at(plan, INEQUALITY, np.bool_(False)),
    )


def _tile_in(of_rows: bool) -> Any:
    """An intrinsic (plan, space, k): compiled functions that must not allocate return no arrays."""

    @intrinsic
    def part(typing_context: Any, plan: Any, space: Any, k: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            plan, space, k = arguments
            number = partial(ir.Constant, k.type)
            n, m = (integer_at(context, builder, signature.args[0], plan, number(place)) for place in (0, 1))
            items, before = (m, builder.mul(number(COLUMNS), n)) if of_rows else (n, number(0))
            place = builder.add(builder.add(number(HEADS), before), builder.mul(k, items))
            return tile_value(context, builder, builder.add(space, builder.mul(number(ROW_BYTES), place)), items)

        return TILE(types.int64, types.int64, types.int64), code

    return part


column: Any = _tile_in(of_rows=False)  # column(plan, space, k): the k-th tile of n items
row: Any = _tile_in(of_rows=True)  # row(plan, space, k): the k-th tile of m items


@inner
def column_at(plan: int, space: int, k: int) -> int:
    """Where the k-th tile of n items is."""
    return address_of(column(plan, space, k))


@inner
def row_at(plan: int, space: int, k: int) -> int:
    """Where the k-th tile of m items is."""
    return address_of(row(plan, space, k))


@inner
def values_at(plan: int, space: int) -> int:
    """Where the values of a factor are."""
    return address_of(row(plan, space, ROWS))


@inner
def tile_of(plan: int, space: int) -> SmoothedTile:
    """The instances in a space."""
    columns = column(plan, space, 0)
    n = number_at(plan, 0)
    return SmoothedTile(
        cut(columns, C, n), tile_at(space, 2), row(plan, space, R), cut(columns, LOWER, n), cut(columns, UPPER, n)
    )
