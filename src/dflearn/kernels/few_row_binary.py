"""min cᵀw  s.t.  rows · w ≤ side,  w_j ∈ {lower_j, upper_j}: all decisions in the order of what they lose, for few rows.

With prices λ ≥ 0 of the rows and reduced costs r = c + rowsᵀλ, let every variable first sit where its reduced cost wants
it. Any decision w is that one with a set of variables flipped, and

    cᵀw = bound(λ) + Σ over the flipped |r_j| + λᵀ(side − rows · w),

so a feasible w loses against the bound what its flips cost and what the room that it leaves would be worth. With the prices
of the linear relaxation the optimum loses little, and few sets of flips lose less. A depth-first search through the flips,
cheapest first, finds the best of all that lose less than a budget. The budget grows until there is one: it is optimal.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from dflearn.kernels.few_row_lp import FAILED, FEASIBILITY, INFEASIBLE, OPTIMAL, invert, iterate, room, slack_basis

FIRST, GROWTH = 0.05, 1.4  # the first budget, in prices of a row's largest entry, and how budgets grow

jit = numba.njit(nogil=True, cache=True, error_model="numpy")


@jit
def solve_batch(rows: Any, c: Any, side: Any, lower: Any, upper: Any, limit: Any, w: Any, status: Any) -> None:
    """Solve every instance.  rows `(m, n)`; c and w `(count, n)`; status `(count,)`.

    side, lower and upper have one line per instance or one for all; bounds are whole numbers at most 1 apart. An instance
    that needs more than `limit` steps is left `FAILED`.
    """
    m, n = rows.shape
    code, basis, slack_room = np.empty(n + m, np.int8), np.empty(m, np.int64), np.empty(m)
    work, candidate = np.empty((4, n + m)), np.empty(n + m, np.int64)
    price = np.empty(m)
    for i in range(c.shape[0]):
        s, lo, up = (
            side[min(i, side.shape[0] - 1)],
            lower[min(i, lower.shape[0] - 1)],
            upper[min(i, upper.shape[0] - 1)],
        )
        for r in range(m):
            slack_room[r] = room(rows[r], s[r], lo, up)
        slack_basis(code, basis)
        status[i] = iterate(rows, c[i], s, lo, up, slack_room, code, basis, work, candidate, w[i])
        if status[i] == OPTIMAL:
            row_prices(rows, c[i], basis, price)
            status[i] = best_flips(rows, c[i], s, lo, up, price, limit, w[i])
        if status[i] != OPTIMAL:
            w[i] = np.nan


@jit
def row_prices(rows: Any, c: Any, basis: Any, price: Any) -> None:
    """λ of an optimal basis; rounding may leave a price below zero, where it has no business."""
    m, n = rows.shape
    inverse, matrix = np.empty((m, m)), np.empty((m, m))
    invert(rows, basis, inverse, matrix)
    for r in range(m):
        total = 0.0
        for k in range(m):
            if basis[k] < n:
                total -= c[basis[k]] * inverse[k, r]
        price[r] = max(total, 0.0)


@jit
def best_flips(rows: Any, c: Any, side: Any, lower: Any, upper: Any, price: Any, limit: Any, w: Any) -> Any:
    """Write the optimal decision to w, and give the status."""
    m, n = rows.shape
    reduced = c.copy()
    for r in range(m):
        for j in range(n):
            reduced[j] += price[r] * rows[r, j]
    order = np.argsort(np.abs(reduced))
    left = np.empty(m)  # what the unflipped decision leaves of each row; a row may be broken by its tolerance
    for r in range(m):
        left[r] = side[r] + FEASIBILITY * (1.0 + abs(side[r]))
    cost, change, index = np.empty(n), np.empty((n, m)), np.empty(n, np.int64)
    largest, most = np.zeros(m), 0.0
    flips = 0
    for j in order:
        w[j] = upper[j] if reduced[j] < 0.0 else lower[j]
        other = lower[j] + upper[j] - w[j]
        for r in range(m):
            left[r] -= rows[r, j] * w[j]
        if other != w[j]:
            cost[flips], index[flips] = abs(reduced[j]), j
            most += cost[flips]
            for r in range(m):
                change[flips, r] = rows[r, j] * (w[j] - other)
                largest[r] = max(largest[r], abs(change[flips, r]))
                most += price[r] * abs(change[flips, r])
            flips += 1
    budget, scale = 0.0, 0.0
    for r in range(m):
        budget += FIRST * price[r] * largest[r]
        most += price[r] * abs(left[r])
    for j in range(n):
        scale = max(scale, abs(c[j]))
    budget = max(budget, 1e-9 * scale)
    if budget == 0.0:
        budget = 1.0  # all costs are zero: whatever is feasible will do

    chosen, path = np.empty(flips, np.int64), np.empty(flips + 1, np.int64)
    at, spent = np.empty((flips + 1, m)), np.empty(flips + 1)
    steps, tried = limit, 0.0
    while tried <= most:  # nothing loses more than that
        found, steps = search(cost[:flips], change, left, price, largest, budget, steps, path, at, spent, chosen)
        if steps < 0:
            return FAILED
        if found >= 0:
            for k in range(found):
                j = index[chosen[k]]
                w[j] = lower[j] + upper[j] - w[j]
            return OPTIMAL
        tried, budget = budget, GROWTH * budget
    return INFEASIBLE


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
            more = flips - k  # flips that can still be paid for
            if cost[k] > 0.0:
                more = min(more, int((best - spent[depth]) / cost[k]))
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
