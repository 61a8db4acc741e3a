"""What a tile's answer is worth, by the rule of `dflearn.certify`; and the proof that an instance has no feasible point.

`measure` is the rule for lanes, with y ≥ 0 on inequality rows and reduced costs c + μ w + Mᵀy. While a method runs, it takes a
simple allowance for rounding, so that the method stops: a row, or a variable, whose terms are all noise beside the largest
decision, or beside the largest cost or price, counts as satisfied. The last word on an answer is said without it, and where that
is no, by `dflearn.certify`.

The proof is a y (y ≥ 0 on inequality rows) whose combination of the rows, yᵀM w,
is larger than yᵀr for every w within the bounds (Farkas).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.cholesky import assemble, factorize, substitute
from dflearn.kernels.curved import own_rows_of
from dflearn.kernels.lanes import absolute, any_lane, get, inner, lanes, maximum, minimum, put, spread, where
from dflearn.kernels.limits import DOUBT, NOTHING
from dflearn.kernels.smoothed_lp import SmoothedSystem, SmoothedTile

EPS = float(np.finfo(np.float64).eps)
NOISE = 16 * EPS  # beside the largest cost or price; in rows times SILENT, beside the largest decision
SILENT = 64.0
FAR_PRICE = 10.0  # times the largest cost
ZERO = 1e-10  # as of `dflearn.certify`
PROOF = 1e-7  # yᵀM w − yᵀr, beside its terms, from which on a proof counts
EPSILON = 1e-7  # of the projection in `no_feasible_point`
FAINT = 1e-11  # multipliers this small beside the largest are rounding
CANCELLED = 1e-10  # a sum this small beside its terms is rounding
FAR = 1e6  # in units of the decisions


@inner
def measure(system: SmoothedSystem, tile: SmoothedTile, y: Any, w: Any, size: Any, noise: float, error: Any) -> None:
    """error, one number per lane: the worst error of w (n items) and y (m items), as of `dflearn.certify`.

    noise: 0, or NOISE for the allowance of a method that runs. size (n items) becomes the terms of the variables.
    """
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
    out: Any = np.empty(2, y.dtype)
    put(out, 0, worst)
    put(out, 1, sum_)  # comparisons with what is not a number do not hold, so that it must be looked for
    number = out.lane
    for t in range(lanes(y)):
        error[t] = number[0, t] if np.isfinite(number[0, t]) and np.isfinite(number[1, t]) else np.inf


@inner
def in_force(system: SmoothedSystem, tile: SmoothedTile, y: Any, w: Any, g: Any, size: Any, mask: Any) -> None:
    """mask (m items): 1 for rows in force, and 0. g = M w − r, size as of `measure`.

    A row with a price and some slack is in force if its price is the larger of the two, beside their terms: in other units
    one of them may look like nothing.
    """
    by_rows = system.by_rows
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


@inner
def _proof(system: SmoothedSystem, tile: SmoothedTile, y: Any, loose: Any, margin: Any) -> None:
    """margin (3 items): by how much min yᵀM w over the bounds exceeds yᵀr, beside the terms; the same less what variables
    without bounds undo if they go FAR; and the largest (yᵀM)_j of those, beside its terms. There loose (n items) becomes
    1/Σ_i M_ij²."""
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
    put(margin, 0, value / total)
    put(margin, 1, (value - undo) / total)
    put(margin, 2, left)


@inner
def no_feasible_point(
    system: SmoothedSystem, tile: SmoothedTile, y: Any, proof: Any, loose: Any, values: Any, proven: Any
) -> None:
    """Do multipliers that grow and grow prove that there is no feasible point?  proven becomes True where so.

    Where variables without bounds stand in the way, y is first moved to where they cancel: P y, P the projection onto
    {x : (Mᵀx)_j = 0 for those j}, as lim ε (M D Mᵀ + ε)⁻¹ for ε → 0, D = 1/Σ_i M_ij² at those j.  proof (m items), loose (n items) and
    values are scratch.
    """
    pattern, inequality, m = system.pattern, system.inequality, len(system.inequality)
    margins: Any = np.empty(3, y.dtype)
    margin, entries, largest = margins.lane, len(system.pattern.row), spread(1e-300, y)
    for i in range(m):
        largest = maximum(largest, absolute(get(y, i)))
    for i in range(m):
        price = get(y, i) / largest
        put(proof, i, maximum(price, 0.0) if inequality[i] else price)
    curved = len(pattern.curve) > 0
    for i in range(own_rows_of(pattern.curve) if curved else m, m):  # z = R w has a solution whatever w is
        put(proof, i, 0.0)
    for j in range(loose.shape[0]):
        put(loose, j, 0.0)
    for attempt in range(4):
        _proof(system, tile, proof, loose, margins)
        promising = False
        for t in range(lanes(y)):
            proven[t] |= margin[1, t] > PROOF and margin[2, t] <= CANCELLED
            promising |= margin[0, t] > PROOF and not proven[t]
        if not promising or curved or attempt == 3:
            return
        assemble(pattern, loose, values)
        for i in range(m):
            put(values, entries + i, get(values, entries + i) + EPSILON)
        factorize(pattern, values, 0.0)
        for _ in range(2):
            substitute(pattern, values, proof)
            for i in range(m):
                put(proof, i, EPSILON * get(proof, i))
        for i in range(m):  # what is left of rows that the proof does not need goes
            price = where(absolute(get(proof, i)) > FAINT, get(proof, i), 0.0)
            put(proof, i, maximum(price, 0.0) if inequality[i] else price)
