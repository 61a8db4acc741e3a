"""One tile of smoothed LPs as the stages of the solver see it: its plan and work space, what an answer is worth, and the proof that
an instance has no feasible point.

min cᵀw + (μ/2)‖w‖²   s.t.   M w = r on equality rows,  M w ≤ r on inequality rows,   lower ≤ w ≤ upper

Every stage takes two addresses. The plan is that of `SparseFactor.plan_of`. The space holds HEADS numbers per lane, then
COLUMNS tiles of n items, ROWS tiles of m items, and the values of a factor as of `assemble`.

`measure` is the rule of `dflearn.engine.certify` for lanes, with y ≥ 0 on inequality rows and reduced costs c + μ w + Mᵀy. While a
method runs, it takes a simple allowance for rounding, so that the method stops: a row, or a variable, whose terms are all noise
beside the largest decision, or beside the largest cost or price, counts as satisfied. The last word on an answer is said without it,
and where that is no, by `dflearn.engine.certify`.

The proof is a y (y ≥ 0 on inequality rows) whose combination of the rows, yᵀM w, is larger than yᵀr for every w within the bounds
(Farkas).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types

from dflearn.engine.limits import DOUBT, NOTHING
from dflearn.engine.linear_algebra.cholesky import (
    BY_COLUMNS,
    BY_ROWS,
    INEQUALITY,
    SparseFactor,
    SparseRows,
    assemble,
    entries_at,
    factorize,
    matrix_at,
    substitute,
)
from dflearn.engine.linear_algebra.lanes import (
    LANES,
    TILE,
    absolute,
    address_of,
    any_lane,
    array_at,
    cut,
    get,
    inner,
    integer_at,
    intrinsic,
    maximum,
    minimum,
    number_at,
    put,
    spread,
    stage,
    tile_at,
    tile_value,
    where,
    wide_tile,
)

EPS = float(np.finfo(np.float64).eps)
NOISE = 16 * EPS  # beside the largest cost or price; in rows times SILENT, beside the largest decision
SILENT = 64.0
FAR_PRICE = 10.0  # times the largest cost
ZERO = 1e-10  # as of `dflearn.engine.certify`
PROOF = 1e-7  # yᵀM w − yᵀr, beside its terms, from which on a proof counts
EPSILON = 1e-7  # of the projection in `no_feasible_point`
FAINT = 1e-11  # multipliers this small beside the largest are rounding
CANCELLED = 1e-10  # a sum this small beside its terms is rounding
FAR = 1e6  # in units of the decisions

ROW_BYTES = 8 * LANES  # of a tile
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
    by_rows, by_columns = matrix_at(plan, BY_ROWS), matrix_at(plan, BY_COLUMNS)
    inequality = array_at(plan, INEQUALITY, np.bool_(False))
    return SmoothedSystem(number_at(plan, 0), number_at(plan, 1), by_rows, by_columns, inequality)


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


# -- what an answer is worth ------------------------------------------------------------------------------------------


@stage("void(int64, int64, int64, int64, float64, int64)")
def measure(plan: int, space: int, rows: int, columns: int, noise: float, head: int) -> None:
    """Head: the worst error of the decisions and multipliers at those addresses, as of `dflearn.engine.certify`.

    noise: 0, or NOISE for the allowance of a method that runs. SIZE becomes the terms of the variables.
    """
    system, tile, heads = system_at(plan), tile_of(plan, space), tile_at(space, HEADS)
    w, y, size = tile_at(columns, system.n), tile_at(rows, system.m), column(plan, space, SIZE)
    by_rows, by_columns, inequality = system.by_rows, system.by_columns, system.inequality
    c, r, lower, upper, mu = tile.c, tile.r, tile.lower, tile.upper, get(tile.mu, 0)
    worst, value, loss, sum_, doubt = spread(0.0, y), spread(0.0, y), spread(0.0, y), spread(0.0, y), spread(0.0, y)
    faint, quiet, least, reach, per_mu = spread(0.0, y), spread(0.0, y), spread(0.0, y), spread(np.inf, y), 1.0 / mu
    if noise > 0.0:
        costs, prices, felt, largest = spread(0.0, y), spread(0.0, y), spread(0.0, y), get(tile.mu, 1)
        for j in range(c.shape[0]):
            cost, pull = absolute(get(c, j)), absolute(mu * get(w, j))
            costs = maximum(costs, maximum(cost, pull))
            inside = (get(w, j) > get(lower, j)) & (get(w, j) < get(upper, j))
            felt = maximum(felt, where(inside, maximum(cost, pull), pull))
            largest = maximum(largest, absolute(get(w, j)))
        for i in range(r.shape[0]):
            prices = maximum(prices, absolute(get(y, i)))
        # Neither the cost of a variable at its bound nor a price without bound makes other costs faint.
        faint, quiet = noise * maximum(felt, minimum(prices, FAR_PRICE * costs)), noise * SILENT * largest
        least, reach = faint * largest, largest  # far from the solution, costs that pull without end hide no progress
    for j in range(c.shape[0]):
        x = get(w, j)
        pull = mu * x
        reduced, total = get(c, j) + pull, absolute(get(c, j)) + absolute(pull)
        value = value + (absolute(get(c, j)) + 0.5 * absolute(pull)) * absolute(x)
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            term = by_columns.value[k] * get(y, by_columns.column[k])
            reduced = reduced + term
            total = total + absolute(term)
        put(size, j, total)
        sum_, doubt = sum_ + absolute(x) + total, doubt + EPS * total * absolute(x)
        bound = where(reduced > 0.0, get(lower, j), get(upper, j))
        off, wrong = absolute(x - bound), where(total > faint, absolute(reduced), 0.0)
        wrong = where(off > 0.0, wrong, 0.0)
        far = where(wrong > ZERO * total, minimum(off, reach), minimum(off, absolute(x)))
        loss = loss + where(wrong > NOTHING * total, wrong * minimum(far, wrong * per_mu), 0.0)
        if any_lane(wrong > worst * total):  # divisions are dear
            near = where(absolute(bound) < np.inf, off / maximum(absolute(x), absolute(bound)), np.inf)
            worst = maximum(worst, where(wrong > 0.0, minimum(wrong / total, near), 0.0))
    for i in range(r.shape[0]):
        gap, total, price = spread(0.0, y) - get(r, i), absolute(get(r, i)), get(y, i)
        for k in range(by_rows.start[i], by_rows.start[i + 1]):
            term = by_rows.value[k] * get(w, by_rows.column[k])
            gap = gap + term
            total = total + absolute(term)
        wrong, sum_ = where(total > quiet, absolute(gap), 0.0), sum_ + total
        loss = loss + wrong * absolute(price)
        if not any_lane(wrong > worst * total):
            continue
        wrong = where(wrong > 0.0, wrong / total, 0.0)
        if inequality[i]:
            share = spread(0.0, y)
            if any_lane((wrong > 0.0) & (price > 0.0)):
                for k in range(by_rows.start[i], by_rows.start[i + 1]):
                    part = absolute(by_rows.value[k] * price)
                    share = maximum(share, where(part > faint, part / get(size, by_rows.column[k]), 0.0))
            wrong = where(gap > 0.0, wrong, minimum(wrong, share))
        worst = maximum(worst, wrong)
    loss = maximum(where(loss > least, loss, 0.0), where((value > 0.0) & (doubt > DOUBT * value), doubt, 0.0))
    worst = maximum(worst, where(loss > 0.0, loss / (value + loss), 0.0))
    put(heads, head, worst)
    put(heads, STATE, sum_)  # comparisons with what is not a number do not hold, so that it must be looked for
    number = heads.lane
    for t in range(LANES):
        if not (np.isfinite(number[head, t]) and np.isfinite(number[STATE, t])):
            number[head, t] = np.inf


@stage("void(int64, int64)")
def in_force(plan: int, space: int) -> None:
    """IN_FORCE of the answer W, Y with its G and SIZE: 1 for rows in force, and 0.

    A row with a price and some slack is in force if its price is the larger of the two, beside their terms: in other units
    one of them may look like nothing.
    """
    system, tile, w, y = system_at(plan), tile_of(plan, space), column(plan, space, W), row(plan, space, Y)
    g, size, mask, by_rows = row(plan, space, G), column(plan, space, SIZE), row(plan, space, IN_FORCE), system.by_rows
    for i in range(g.shape[0]):
        put(mask, i, 1.0)
        if not system.inequality[i]:
            continue
        price, slack = get(y, i), -1.0 * get(g, i)
        put(mask, i, where(price > slack, 1.0, 0.0))
        doubtful = (price > 0.0) & (slack > price)
        if any_lane(doubtful):
            total, share = absolute(get(tile.r, i)), spread(0.0, y)
            for k in range(by_rows.start[i], by_rows.start[i + 1]):
                a, j = by_rows.value[k], by_rows.column[k]
                total = total + absolute(a * get(w, j))
                share = maximum(share, where(absolute(a) * price > 0.0, absolute(a * price) / get(size, j), 0.0))
            put(mask, i, where(doubtful & (share * total > slack), 1.0, get(mask, i)))


@stage("void(int64, int64, int64, int64)")
def _proof(plan: int, space: int, rows: int, columns: int) -> None:
    """Three numbers from STATE + 4 on: by how much min yᵀM w over the bounds exceeds yᵀr, beside the terms; the same less what variables
    without bounds undo if they go FAR; and the largest (yᵀM)_j of those, beside its terms. There loose (n items) becomes
    1/Σ_i M_ij². y and loose are at those addresses."""
    system, tile, heads = system_at(plan), tile_of(plan, space), tile_at(space, HEADS)
    y, loose = tile_at(rows, system.m), tile_at(columns, system.n)
    by_columns, r, lower, upper = system.by_columns, tile.r, tile.lower, tile.upper
    value, total, left, undo = spread(0.0, y), spread(1e-300, y), spread(0.0, y), spread(0.0, y)
    for i in range(r.shape[0]):
        term = get(y, i) * get(r, i)
        value = value - term
        total = total + absolute(term)
    for j in range(lower.shape[0]):
        slope, size, square = spread(0.0, y), spread(1e-300, y), 1e-300
        for k in range(by_columns.start[j], by_columns.start[j + 1]):
            term = by_columns.value[k] * get(y, by_columns.column[k])
            slope, size = slope + term, size + absolute(term)
            square += by_columns.value[k] * by_columns.value[k]
        bound = where(slope > 0.0, get(lower, j), get(upper, j))
        missing = absolute(bound) > 1e300
        term = where(missing, 0.0, slope * where(missing, 0.0, bound))
        value = value + term
        total = total + absolute(term)
        left = maximum(left, where(missing, absolute(slope) / size, 0.0))
        undo = undo + where(missing, FAR * absolute(slope), 0.0)
        put(loose, j, where(missing, 1.0 / square, get(loose, j)))
    put(heads, STATE + 4, value / total)
    put(heads, STATE + 5, (value - undo) / total)
    put(heads, STATE + 6, left)


@stage("void(int64, int64, int64, int64, int64)")
def no_feasible_point(plan: int, space: int, prices: int, rows: int, columns: int) -> None:
    """Do multipliers y, at `prices`, that grow and grow prove that there is no feasible point?  PROVEN becomes 1 where so.

    Where variables without bounds stand in the way, y is first moved to where they cancel: P y, P the projection onto
    {x : (Mᵀx)_j = 0 for those j}, as lim ε (M D Mᵀ + ε)⁻¹ for ε → 0, D = 1/Σ_i M_ij² at those j.  The proof, at `rows`, and
    D, at `columns`, are scratch, and so are the values of the factor.
    """
    system, heads, factor = system_at(plan), tile_at(space, HEADS), values_at(plan, space)
    inequality, m, margin = system.inequality, system.m, heads.lane
    y, proof, loose, values = tile_at(prices, m), tile_at(rows, m), tile_at(columns, system.n), tile_at(factor, 0)
    entries, largest = entries_at(plan), spread(1e-300, y)
    for i in range(m):
        largest = maximum(largest, absolute(get(y, i)))
    for i in range(m):
        price = get(y, i) / largest
        put(proof, i, maximum(price, 0.0) if inequality[i] else price)
    for j in range(system.n):
        put(loose, j, 0.0)
    for attempt in range(4):
        _proof(plan, space, rows, columns)
        promising = False
        for t in range(LANES):
            if margin[STATE + 5, t] > PROOF and margin[STATE + 6, t] <= CANCELLED:
                margin[PROVEN, t] = 1.0
            promising |= margin[STATE + 4, t] > PROOF and margin[PROVEN, t] == 0.0
        if not promising or attempt == 3:
            return
        assemble(plan, columns, 0, factor)
        for i in range(m):
            put(values, entries + i, get(values, entries + i) + EPSILON)
        factorize(plan, factor, 0.0)
        for _ in range(2):
            substitute(plan, factor, rows)
            for i in range(m):
                put(proof, i, EPSILON * get(proof, i))
        for i in range(m):  # what is left of rows that the proof does not need goes
            price = where(absolute(get(proof, i)) > FAINT, get(proof, i), 0.0)
            put(proof, i, maximum(price, 0.0) if inequality[i] else price)
