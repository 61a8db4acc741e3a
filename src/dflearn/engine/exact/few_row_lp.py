"""min cᵀw  s.t.  rows · w + slack = side,  lower ≤ w ≤ upper,  0 ≤ slack ≤ room: a dual simplex method for few rows.

Every variable has two finite bounds (a slack's room is what the bounds of w leave it), so any basis is dual feasible once
each nonbasic variable sits at the bound that its reduced cost asks for. Each iteration forms the small inverse anew, puts
the nonbasic variables where they belong, and lets the most infeasible basic variable leave; the ratio test walks on
past every variable whose jump to its other bound still leaves the leaving one infeasible. Nothing is updated from
iteration to iteration but the basis, so no error builds up. Variable n + i is the slack of row i.

Tolerances are relative to the terms that a number is the sum of, in any units.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.engine import ahead

OPTIMAL, FAILED = 0, 5  # as in `Status`
AT_LOWER, BASIC, AT_UPPER = 0, 1, 2  # as in `Basis`
FEASIBILITY, OPTIMALITY, PIVOT = 1e-9, 1e-12, 1e-11  # relative tolerances
NOISE, ROUNDING = 1e-13, 1e-15  # what rounding may leave of a sum, and usually leaves, relative to its terms

jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def solve_batch(
    rows: Any, equalities: Any, c: Any, side: Any, lower: Any, upper: Any, w: Any, prices: Any, status: Any
) -> None:
    """Solve every instance.  rows `(m, n)`, the first `equalities` of them equations; c and w `(count, n)`.

    side, lower and upper have one line per instance or one for all; prices `(count, m)`, status `(count,)`. What has no
    decision is `FAILED`, too.
    """
    m = len(rows)
    slack_room, largest = np.empty(m), np.empty(m)
    for r in range(m):
        largest[r] = np.abs(rows[r]).max()
    shared = max(side.shape[0], lower.shape[0], upper.shape[0]) == 1
    for i in range(c.shape[0]):
        s, lo = side[min(i, side.shape[0] - 1)], lower[min(i, lower.shape[0] - 1)]
        up = upper[min(i, upper.shape[0] - 1)]
        if i == 0 or not shared:
            for r in range(m):
                slack_room[r] = 0.0 if r < equalities else room(rows[r], s[r], lo, up)
        status[i] = simplex(rows, largest, c[i], s, lo, up, slack_room, w[i], prices[i])
        if status[i] != OPTIMAL:
            w[i] = np.nan


@jit
def room(row: Any, side: Any, lower: Any, upper: Any) -> Any:
    """side − min over the bounds of row · w: how large the slack can get; negative where the row cannot hold."""
    total = side
    for j in range(row.size):
        total -= row[j] * (lower[j] if row[j] > 0.0 else upper[j])
    return total


@jit
def invert(rows: Any, basis: Any, inverse: Any, matrix: Any, own: Any) -> Any:
    """inverse = (columns of the basis)⁻¹ by Gauss-Jordan with row exchanges; whether there is one.

    A basic slack takes its own row. The other columns are then solved without these rows: their entries of the inverse are zero
    there, without rounding. own `(m,)` is room for the row that each line came from.
    """
    m, n = rows.shape
    largest = 0.0
    for k in range(m):
        own[k] = k
        for r in range(m):
            inverse[r, k] = 1.0 if r == k else 0.0
            matrix[r, k] = rows[r, basis[k]] if basis[k] < n else (1.0 if basis[k] - n == r else 0.0)
            largest = max(largest, abs(matrix[r, k]))
    for k in range(m):
        if basis[k] >= n:
            place = 0
            while own[place] != basis[k] - n:
                place += 1
            exchange(matrix, inverse, own, k, place)
    for k in range(m):
        if basis[k] >= n:
            continue
        pivot = k
        for r in range(k + 1, m):
            if basis[r] < n and abs(matrix[r, k]) > abs(matrix[pivot, k]):
                pivot = r
        if abs(matrix[pivot, k]) <= PIVOT * largest:
            return False
        exchange(matrix, inverse, own, k, pivot)
        scale = 1.0 / matrix[k, k]
        for q in range(m):
            matrix[k, q] *= scale
            inverse[k, q] *= scale
        for r in range(m):
            factor = matrix[r, k]
            if r != k and factor != 0.0:
                for q in range(m):
                    matrix[r, q] -= factor * matrix[k, q]
                    before = inverse[r, q]
                    after = before - factor * inverse[k, q]
                    # Else it is what rounding left.
                    inverse[r, q] = after if abs(after) > ROUNDING * abs(before) else 0.0
    return True


@jit
def exchange(matrix: Any, inverse: Any, own: Any, one: Any, other: Any) -> None:
    """Exchange two lines."""
    if one != other:
        own[one], own[other] = own[other], own[one]
        for q in range(own.size):
            matrix[one, q], matrix[other, q] = matrix[other, q], matrix[one, q]
            inverse[one, q], inverse[other, q] = inverse[other, q], inverse[one, q]


@jit
def simplex(
    rows: Any, largest: Any, c: Any, side: Any, lower: Any, upper: Any, slack_room: Any, w: Any, price: Any
) -> Any:
    """From the basis of slacks to an optimal one; w and price `(m,)` are written on the way. Gives the status.

    largest `(m,)`: the largest entry of each row.
    """
    m, n = rows.shape
    code, basis, own = np.zeros(n + m, np.int8), np.empty(m, np.int64), np.empty(m, np.int64)
    square, line, work = np.empty((2, m, m)), np.empty((4, m)), np.empty((4, n + m))
    inverse, matrix = square[0], square[1]
    left, value, held, terms = line[0], line[1], line[2], line[3]
    reduced, ratio, weight, alpha = work[0], work[1], work[2], work[3]
    candidate = np.empty(n + m, np.int64)
    for r in range(m):
        code[n + r] = BASIC
        basis[r] = n + r
    scale = 0.0
    for j in range(n):
        scale = max(scale, abs(c[j]))
    for _ in range(50 + 10 * m):  # what cycles is HiGHS's
        if not invert(rows, basis, inverse, matrix, own):
            return FAILED

        # Prices and reduced costs; every nonbasic variable goes to the bound that its reduced cost asks for.
        for r in range(m):
            price[r] = 0.0
            left[r] = side[r]
            for k in range(m):
                if basis[k] < n:
                    price[r] += c[basis[k]] * inverse[k, r]
        for j in range(n):
            reduced[j] = c[j]
        for r in range(m):
            for j in range(n):
                reduced[j] -= price[r] * rows[r, j]
            reduced[n + r] = -price[r]
        most = scale
        for r in range(m):
            most += abs(price[r]) * max(largest[r], 1.0)
        small = OPTIMALITY * most
        for j in range(n + m):
            wanted = AT_LOWER if reduced[j] > small else (AT_UPPER if reduced[j] < -small else code[j])
            code[j] = BASIC if code[j] == BASIC else wanted
        for j in range(n):
            w[j] = 0.0 if code[j] == BASIC else (upper[j] if code[j] == AT_UPPER else lower[j])
        for r in range(m):
            total, terms[r] = 0.0, abs(side[r])
            for j in range(n):
                term = rows[r, j] * w[j]
                total += term
                terms[r] += abs(term)
            slack = slack_room[r] if code[n + r] == AT_UPPER else 0.0
            left[r] -= total + slack
            terms[r] += slack

        # Basic variables, and the terms of each row with them; the one that breaks a bound most leaves.
        for k in range(m):
            value[k], j = 0.0, basis[k]
            for r in range(m):
                value[k] += inverse[k, r] * left[r]
            for r in range(m):
                terms[r] += abs(value[k] * (rows[r, j] if j < n else (1.0 if j - n == r else 0.0)))
        leaving, worst, margin, up = -1, 0.0, 0.0, False
        for k in range(m):
            j, noise = basis[k], 0.0
            for r in range(m):
                noise += abs(inverse[k, r]) * terms[r]
            low, high = (lower[j], upper[j]) if j < n else (0.0, slack_room[j - n])
            violation, allowed = max(low - value[k], value[k] - high), 0.0
            if violation > 0.0:
                size = terms[j - n] if j >= n else abs(low if value[k] < low else high)
                allowed = max(FEASIBILITY * size, NOISE * noise)
            if violation <= allowed:  # what is rounding beside a bound is the bound
                held[k] = (
                    low
                    if value[k] - low <= ROUNDING * noise
                    else (high if high - value[k] <= ROUNDING * noise else value[k])
                )
            elif violation > worst:
                leaving, worst, margin, up = k, violation, allowed, value[k] < low
        if leaving < 0:
            for k in range(m):
                if basis[k] < n:
                    w[basis[k]] = held[k]
            return OPTIMAL

        # Along its row: which nonbasic variables can help, at what price, and how far.
        least = 0.0
        for j in range(n):
            alpha[j] = 0.0
        for r in range(m):
            for j in range(n):
                alpha[j] += inverse[leaving, r] * rows[r, j]
            alpha[n + r] = inverse[leaving, r]
            least = max(least, PIVOT * abs(inverse[leaving, r]) * largest[r])
        found, reach = 0, 0.0
        for j in range(n + m):
            width = upper[j] - lower[j] if j < n else slack_room[j - n]
            helps = (alpha[j] < 0.0) == (up == (code[j] == AT_LOWER))
            helps &= (code[j] != BASIC) & (width > 0.0) & (abs(alpha[j]) > least)
            candidate[found] = j
            ratio[found] = abs(reduced[j]) / abs(alpha[j])
            weight[found] = abs(alpha[j]) * width
            reach += weight[found] if helps else 0.0
            found += 1 if helps else 0
        if reach < worst - margin:
            return FAILED  # no decision holds this row, it seems
        entering = walk(ratio, weight, candidate, alpha, found, worst)
        code[basis[leaving]] = AT_LOWER if up else AT_UPPER
        code[entering] = BASIC
        basis[leaving] = entering
    return FAILED


@jit
def walk(ratio: Any, weight: Any, candidate: Any, alpha: Any, found: Any, need: Any) -> Any:
    """The candidate at which the weights, added in the order of the ratios, reach `need`: a quickselect."""
    first, end = 0, found
    while True:
        pivot = ratio[(first + end) // 2]
        middle, lighter = split(ratio, weight, candidate, first, end, pivot, False)
        if lighter >= need:
            end = middle
        elif middle > first:
            need -= lighter
            first = middle
        else:  # the pivot is the least: all that are equal to it come next
            middle, equal = split(ratio, weight, candidate, first, end, pivot, True)
            if equal >= need or middle == end:
                break
            need -= equal
            first = middle
    best = candidate[first]  # of equal ratios, the largest pivot element
    for k in range(first + 1, middle):
        if abs(alpha[candidate[k]]) > abs(alpha[best]):
            best = candidate[k]
    return best


@jit
def split(ratio: Any, weight: Any, candidate: Any, first: Any, end: Any, pivot: Any, equal: Any) -> Any:
    """Move what is below the pivot (or equal to it) to the front, without a branch; where it ends, and what it weighs."""
    middle, total = first, 0.0
    for k in range(first, end):
        r, x, j = ratio[k], weight[k], candidate[k]
        ratio[k], weight[k], candidate[k] = ratio[middle], weight[middle], candidate[middle]
        ratio[middle], weight[middle], candidate[middle] = r, x, j
        below = r <= pivot if equal else r < pivot
        total += x if below else 0.0
        middle += 1 if below else 0
    return middle, total
