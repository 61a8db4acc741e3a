"""min cᵀw  s.t.  rows · w ≤ side,  w_j ∈ {lower_j, upper_j}: all decisions in the order of what they lose, for few rows.

With prices λ ≥ 0 of the rows and reduced costs r = c + rowsᵀλ, let every variable first sit where its reduced cost wants
it. Any decision w is that one with a set of variables flipped, and

    cᵀw = bound(λ) + Σ over the flipped |r_j| + λᵀ(side − rows · w),

so a feasible w loses against the bound what its flips cost and what the room that it leaves would be worth. With the prices
of the linear relaxation the optimum loses little, and few sets of flips lose less. A depth-first search through the flips,
cheapest first, finds the best of all that lose less than a budget. The budget grows until there is one: it is optimal.

Where that takes too many steps, the problem is split in two at a variable that is a fraction in the relaxation. The parts
have prices of their own, which fit better, and what was found so far limits their budgets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.engine import ahead
from dflearn.engine.exact.few_row_lp import FAILED, FEASIBILITY, OPTIMAL, ROUNDING, room, simplex

FIRST, GROWTH = 0.05, 1.4  # the first budget, in prices of a row's largest entry, and how budgets grow
PATIENCE = 20_000  # steps after which a part is split, about half a millisecond
DEPTH = 64  # splits on the way to a part
SUMS, SURE = 1e-13, 1e-8  # rounding of a long sum, relative to its terms, and what of it an answer may have

jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def solve_batch(rows: Any, c: Any, side: Any, lower: Any, upper: Any, limit: Any, w: Any, status: Any) -> None:
    """Solve every instance.  rows `(m, n)`; c and w `(count, n)`; status `(count,)`.

    side, lower and upper have one line per instance or one for all; bounds are whole numbers at most 1 apart. An instance
    that needs more than `limit` steps is left `FAILED`, and so is one whose sums are not precise enough to compare decisions.
    """
    n = rows.shape[1]
    parts = np.empty((2, DEPTH, n))
    for i in range(c.shape[0]):
        parts[0, 0] = lower[min(i, lower.shape[0] - 1)]
        parts[1, 0] = upper[min(i, upper.shape[0] - 1)]
        status[i] = solve_parts(rows, c[i], side[min(i, side.shape[0] - 1)], parts, limit, w[i])
        if status[i] != OPTIMAL:
            w[i] = np.nan


@jit
def solve_parts(rows: Any, c: Any, side: Any, parts: Any, limit: Any, w: Any) -> Any:
    """Write the optimal decision to w, and give the status. parts: lower and upper bounds of what is still to be solved."""
    m, n = rows.shape
    relaxed, found, price = np.empty(n), np.empty(n), np.empty(m)
    slack_room, largest = np.empty(m), np.empty(m)
    for r in range(m):
        largest[r] = np.abs(rows[r]).max()
    best, better, terms, unsure, steps, count = np.inf, 0.0, 0.0, 0.0, limit, 1
    while count > 0:
        last = count - 1
        lower, upper = parts[0, last], parts[1, last]
        count = last
        for r in range(m):
            slack_room[r] = room(rows[r], side[r], lower, upper)
        # Any prices will do, optimal ones are good.
        simplex(rows, largest, c, side, lower, upper, slack_room, relaxed, price)
        for r in range(m):
            price[r] = max(-price[r], 0.0)  # λ; of either sign, rounding apart, where the row is at its least
        value, left, size = best_flips(rows, c, side, lower, upper, price, best - better, PATIENCE, found)
        unsure = max(unsure, SUMS * size)
        if value < best:
            best = value
            w[:] = found
            better, terms = gain(c, w)
        if left >= 0:
            continue
        steps -= PATIENCE
        split = most_fractional(relaxed, lower, upper)
        if steps < 0 or count + 2 > DEPTH or split < 0:
            return FAILED
        # Two parts: the last is solved next, and has the variable where the relaxation is nearer.
        parts[:, last + 1] = parts[:, last]
        near = lower[split] if relaxed[split] - lower[split] < 0.5 else upper[split]
        parts[:, last, split] = lower[split] + upper[split] - near
        parts[:, last + 1, split] = near
        count = last + 2
    return OPTIMAL if best < np.inf and (unsure <= SURE * terms or unsure == 0.0) else FAILED


@jit
def gain(c: Any, w: Any) -> Any:
    """By how much a decision that beats w is better at least: 1 where all is whole, otherwise what rounding leaves; and the
    terms of the objective at w."""
    total, terms, whole = 0.0, 0.0, True
    for j in range(c.size):
        total += abs(c[j])
        terms += abs(c[j] * w[j])
        whole &= c[j] == np.round(c[j])
    return (1.0 - 1e-6 if whole and total < 1e9 else 1e-12 * terms), terms


@jit
def most_fractional(relaxed: Any, lower: Any, upper: Any) -> Any:
    """The variable furthest from both of its bounds; −1 where none is between them."""
    split, furthest = -1, 1e-9
    for j in range(relaxed.size):
        distance = min(relaxed[j] - lower[j], upper[j] - relaxed[j])
        if distance > furthest:
            split, furthest = j, distance
    return split


@jit
def best_flips(
    rows: Any, c: Any, side: Any, lower: Any, upper: Any, price: Any, target: Any, patience: Any, w: Any
) -> Any:
    """The best decision below `target`, written to w: its value, infinite where there is none; the steps left; and the size of
    the terms that the loss of a better one would be the sum of.

    Fewer than zero steps left: given up, and there may be better ones.
    """
    m, n = rows.shape
    reduced = c.copy()
    for r in range(m):
        for j in range(n):
            reduced[j] += price[r] * rows[r, j]
    left = np.empty(m)  # what the unflipped decision leaves of each row, which may be broken by its tolerance
    bound, size = 0.0, 0.0
    for r in range(m):
        size += price[r] * abs(side[r])
        left[r] = side[r] + FEASIBILITY * abs(side[r])
        for j in range(n):
            left[r] += ROUNDING * abs(rows[r, j]) * max(abs(lower[j]), abs(upper[j]))
        bound -= price[r] * left[r]
    cost, change, index = np.empty(n), np.empty((n, m)), np.empty(n, np.int64)
    largest, most, flips = np.zeros(m), 0.0, 0
    for j in np.argsort(np.abs(reduced)):
        w[j] = upper[j] if reduced[j] < 0.0 else lower[j]
        bound += reduced[j] * w[j]
        size += abs(c[j] * w[j])
        for r in range(m):
            left[r] -= rows[r, j] * w[j]
            size += price[r] * abs(rows[r, j] * w[j])
        if lower[j] < upper[j]:
            cost[flips], index[flips] = abs(reduced[j]), j
            most += cost[flips]
            for r in range(m):
                change[flips, r] = rows[r, j] if reduced[j] < 0.0 else -rows[r, j]
                largest[r] = max(largest[r], abs(change[flips, r]))
                most += price[r] * abs(change[flips, r])
            flips += 1
    budget = 0.0
    for r in range(m):
        budget += FIRST * price[r] * largest[r]
        most += price[r] * abs(left[r])
    if budget == 0.0:
        # No row has a price: where flips cost nothing, any feasible set will do.
        budget = 2.0 * most if most > 0.0 else 1.0

    path, chosen = np.empty(flips + 1, np.int64), np.empty(flips, np.int64)
    at, spent = np.empty((flips + 1, m)), np.empty(flips + 1)
    while True:
        last = budget > min(most, target - bound)  # nothing loses more, or may
        budget = min(budget, target - bound)
        found, patience = search(cost[:flips], change, left, price, largest, budget, patience, path, at, spent, chosen)
        if found >= 0:
            for k in range(found):
                j = index[chosen[k]]
                w[j] = lower[j] + upper[j] - w[j]
            value = np.dot(c, w)
            return value, patience, size + max(value - bound, 0.0)
        if last or patience < 0:
            return np.inf, patience, 0.0 if np.isinf(target) else size + max(target - bound, 0.0)
        budget *= GROWTH


@jit
def search(
    cost: Any, change: Any, left: Any, price: Any, largest: Any, budget: Any, steps: Any,
    path: Any, at: Any, spent: Any, chosen: Any,
) -> Any:  # fmt: skip
    """The best feasible set of flips that loses less than the budget: how many they are, and the steps that are left.

    They are written to `chosen`; −1 where there is none; fewer than zero steps left: given up. path, at and spent are the
    way down to the present set: the last flip, what is left of each row, and what the flips have cost.
    """
    flips, m = cost.size, left.size
    best, found, depth, k = budget, -1, 0, 0
    spent[0] = 0.0
    loss, feasible = 0.0, True
    for r in range(m):
        at[0, r] = left[r]
        loss += price[r] * left[r]
        feasible &= left[r] >= 0.0
    if feasible and loss < best:
        best, found = loss, 0
    while True:
        # Is any set worth a look that adds flip k, or later ones, to the present set?
        promising = k < flips and spent[depth] + cost[k] < best
        if promising:
            more = float(flips - k)  # flips that can still be paid for
            if cost[k] > 0.0:
                more = min(more, np.floor((best - spent[depth]) / cost[k]))
            loss = spent[depth]
            for r in range(m):
                reach = more * largest[r]
                promising &= at[depth, r] + reach >= 0.0
                loss += price[r] * max(at[depth, r] - reach, 0.0)
            promising &= loss < best
        if not promising:
            if depth == 0:
                return found, steps
            depth -= 1
            k = path[depth] + 1
            continue
        steps -= 1
        if steps < 0:
            return found, steps
        path[depth] = k
        spent[depth + 1] = loss = spent[depth] + cost[k]
        feasible = True
        for r in range(m):
            rest = at[depth, r] + change[k, r]
            at[depth + 1, r] = rest
            loss += price[r] * rest
            feasible &= rest >= 0.0
        depth += 1
        if feasible and loss < best:
            best, found = loss, depth
            for d in range(depth):
                chosen[d] = path[d]
        k += 1
