"""min cᵀx  s.t.  M x = right,  lower ≤ x ≤ upper:  a primal simplex method on a small dense tableau.

x are the variables of a program and the slacks of its inequalities; M has no dependent rows. With a basis B, all other
variables at a bound (or at zero, where they have none), the tableau is B⁻¹ M without the columns of the basis: m × k numbers,
which a step exchanges in place. Every instance begins at the same basis of the program, so that no answer depends on another.

Where right-hand sides and bounds of an instance make that basis infeasible, dual steps for costs that it is optimal for lead to
a feasible one. Steps enter the variable of the steepest descent by reference weights (Devex; Forrest and Goldfarb, 1992), leave
by the largest pivot among the rows that bind first, and follow Bland's rule after a stall.

At the end decisions, prices and reduced costs are computed anew from the basis and the program's own numbers (`basis`); where
they say that the tableau has lost its digits, the steps go on from them. What is not optimal then is not called so. All
tolerances are relative to the terms that a number is the sum of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels import ahead
from dflearn.kernels.basis import Columns, Order, inner, left_over, room_for_order, solve_transposed
from dflearn.kernels.tableau import (
    AT_LOWER,
    AT_UPPER,
    AT_ZERO,
    Lines,
    Place,
    Room,
    bound_of,
    copied,
    copy,
    decide,
    exchange,
    inlined,
    largest_of,
)

OPTIMAL, FAILED = 0, 5  # as in `Status`
DUAL = 1e-12  # reduced costs, and
PRIMAL = 1e-11  # decisions, that are smaller relative to their terms are rounding
PIVOT = 1e-9  # entries of a column this small beside its largest are rounding
SNAP = 1e-15  # a basic variable this near to its bound, relative to its terms, is at it
NEAR = 1e-9  # farther from its bound, relative to all numbers of the instance, it is not looked at so closely
ROUNDS = 4  # of steps, then numbers anew

jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def solve_batch(columns: Columns, reference: Place, lines: Lines, c: Any, w: Any, y: Any, status: Any) -> None:
    """Solve every instance.  c, w `(count, n)`, prices y `(count, m)`, status `(count,)`.

    Fields of `lines` have one line per instance or one for all. Where the status is not OPTIMAL, w and y stay as they are.
    """
    m, k = reference.tableau.shape
    first, here = copied(reference), copied(reference)
    order = room_for_order(m, len(columns.value))
    by_column, by_row = np.empty((6, k)), np.empty((7, m))
    room = Room(
        by_column[0], by_column[1], by_column[2], by_column[3], by_column[4], by_column[5],
        by_row[0], by_row[1], by_row[2], by_row[3], by_row[4], by_row[5], by_row[6],
    )  # fmt: skip
    shared = max(len(lines.right), len(lines.lower), len(lines.upper)) == 1
    cost = np.zeros(m + k)
    feasible = False
    for i in range(len(c)):
        mine = Lines(
            lines.right[min(i, len(lines.right) - 1)],
            lines.lower[min(i, len(lines.lower) - 1)],
            lines.upper[min(i, len(lines.upper) - 1)],
        )
        if i == 0 or not shared:
            copy(reference, first)
            feasible = begin(columns, order, mine, first, room)
        status[i] = FAILED
        if not feasible:
            continue
        copy(first, here)
        for j in range(c.shape[1]):
            cost[j] = c[i, j]
        if optimize(columns, order, mine, cost, here, room):
            status[i] = OPTIMAL
            for j in range(c.shape[1]):
                w[i, j] = here.x[j]
            for r in range(m):
                y[i, r] = room.prices[r]


# -- a feasible basis -------------------------------------------------------------------------------------------------


@inlined
def begin(columns: Columns, order: Order, lines: Lines, here: Place, room: Room) -> Any:
    """From the reference to a basis that is feasible for these sides, by dual steps; whether one was found.

    For costs of zero first, with the largest pivots. These may go round in circles: then for costs that the basis at hand is the
    one optimum for, whose bound rises from step to step.
    """
    tableau, basis, outside, at, x = here
    m, k = tableau.shape
    for j in range(k):
        low, high = lines.lower[outside[j]], lines.upper[outside[j]]
        if np.isinf(low) and np.isinf(high):
            at[j] = AT_ZERO
        elif np.isinf(low) or (at[j] == AT_UPPER and not np.isinf(high)):
            at[j] = AT_UPPER
        else:
            at[j] = AT_LOWER
        x[outside[j]] = bound_of(lines, outside[j], at[j])
    reduced, careful, anew = room.reduced, m + k, True
    for step in range(1, 4 * (m + k) + 2):
        if anew and not decide(columns, order, lines, here, room):
            return False
        leaving, worst = m, PRIMAL * largest_of(x, lines.right)
        for r in range(m):
            broken = beyond(lines, basis[r], x)
            if broken > worst:
                leaving, worst = r, broken
        if leaving == m and not anew:
            anew = True
            continue
        if leaving == m:
            leaving = broken_still(columns, order, lines, here, room)
            if leaving == m:
                return True
        anew = step % (m + k) == 0
        if step == careful:
            for j in range(k):
                reduced[j] = 0.0 if at[j] == AT_ZERO else -1.0 if at[j] == AT_UPPER else 1.0
        up = x[basis[leaving]] < lines.lower[basis[leaving]]
        least, entering, best = PIVOT * largest_of(tableau[leaving], room.prices[:0]), k, np.inf
        for j in range(k):
            v, size = outside[j], abs(tableau[leaving, j])
            rises = (tableau[leaving, j] < 0.0) == up  # x_v must rise for it
            can = at[j] == AT_ZERO or ((at[j] == AT_LOWER) == rises and lines.lower[v] < lines.upper[v])
            share = -size if step < careful else abs(reduced[j]) / size
            if can and size > least and share < best:
                entering, best = j, share
        if entering == k:
            return False
        bound = lines.lower[basis[leaving]] if up else lines.upper[basis[leaving]]
        move = (x[basis[leaving]] - bound) / tableau[leaving, entering]
        for r in range(m):
            x[basis[r]] -= move * tableau[r, entering]
        x[outside[entering]] += move
        x[basis[leaving]] = bound
        price, pivot = reduced[entering], tableau[leaving, entering]
        exchange(here, leaving, entering, AT_LOWER if up else AT_UPPER, room)
        for j in range(k):
            reduced[j] -= price * room.row[j]
        reduced[entering] = -price / pivot
    return False


# -- an optimal one ---------------------------------------------------------------------------------------------------


@inlined
def optimize(columns: Columns, order: Order, lines: Lines, cost: Any, here: Place, room: Room) -> Any:
    """From a feasible basis to an optimal one; whether it was found. x and room.prices are then exact but for rounding."""
    tableau, basis, outside, at, x = here
    m, k = tableau.shape
    for j in range(k):
        v = outside[j]
        room.reduced[j] = cost[v]
        room.size[j] = abs(cost[v])
        room.width[j] = lines.upper[v] - lines.lower[v]
        room.way[j] = way_of(at[j], room.width[j])
    for r in range(m):
        v = basis[r]
        room.value[r], room.low[r], room.high[r] = x[v], lines.lower[v], lines.upper[v]
        room.extent[r] = abs(x[v])
        price = cost[v]
        if price != 0.0:
            for j in range(k):
                term = price * tableau[r, j]
                room.reduced[j] -= term
                room.size[j] += abs(term)
    steps, small = 50 * (m + k), PRIMAL * largest_of(x, lines.right)
    for _ in range(ROUNDS):
        steps = descend(lines, here, room, small, steps)
        if steps < 0:
            return False
        for j in range(k):
            v = outside[j]
            x[v] = bound_of(lines, v, at[j])
        if not decide(columns, order, lines, here, room):
            return False
        for r in range(m):
            room.rate[r] = cost[basis[r]]
        solve_transposed(columns, basis, order, room.rate, room.prices)
        if not priced(columns, cost, here, room):
            return settled(columns, order, lines, here, room)
    return False


@inner
def way_of(at: Any, width: Any) -> Any:
    """Where a variable may go from its bound: 1 up, −1 down, 0 nowhere, 2 wherever it likes."""
    return 2.0 if at == AT_ZERO else 0.0 if width <= 0.0 else -1.0 if at == AT_UPPER else 1.0


@inner
def gain(way: Any, reduced: Any) -> Any:
    """How fast the objective falls as the variable goes where it may."""
    return abs(reduced) if way == 2.0 else -way * reduced


@inner
def priced(columns: Columns, cost: Any, here: Place, room: Room) -> Any:
    """Reduced costs anew, with their terms; whether there is still one that asks for a step."""
    wanted = False
    for j in range(len(here.outside)):
        v = here.outside[j]
        room.reduced[j] = left_over(columns, v, cost[v], room.prices)
        size = abs(cost[v])
        for e in range(columns.start[v], columns.start[v + 1]):
            size += abs(columns.value[e] * room.prices[columns.index[e]])
        room.size[j] = size
        wanted |= gain(room.way[j], room.reduced[j]) > DUAL * size
    return wanted


@inner
def beyond(lines: Lines, v: Any, x: Any) -> Any:
    """By how much a variable breaks its bounds; not above zero where it holds them."""
    return max(lines.lower[v] - x[v], x[v] - lines.upper[v])


@inner
def row_terms(columns: Columns, lines: Lines, x: Any, terms: Any) -> None:
    """terms = |right| + Σ_v |M_v x_v|, by row."""
    for r in range(len(terms)):
        terms[r] = abs(lines.right[r])
    for v in range(len(x)):
        if x[v] != 0.0:
            for e in range(columns.start[v], columns.start[v + 1]):
                terms[columns.index[e]] += abs(columns.value[e] * x[v])


@inner
def size_of(columns: Columns, order: Order, basis: Any, r: Any, terms: Any, unit: Any, inverse: Any) -> Any:
    """Σ_i |(B⁻¹)_ri| terms_i: the size of the terms that the basic variable of position r is the sum of, those of other variables
    included that it follows from. Times ε it bounds the rounding error (Skeel, 1979). unit and inverse are room."""
    for k in range(len(basis)):
        unit[k] = 0.0
    unit[r] = 1.0
    solve_transposed(columns, basis, order, unit, inverse)
    size = 0.0
    for i in range(len(basis)):
        size += abs(inverse[i]) * terms[i]
    return size


@inner
def broken_still(columns: Columns, order: Order, lines: Lines, here: Place, room: Room) -> Any:
    """The position of a basic variable that breaks a bound by more than rounding, relative to its own terms; m if there is none.

    It is for violations that are small beside all numbers of the instance, and for the basis that was factorized last.
    """
    basis, x = here.basis, here.x
    m, known = len(basis), False
    for r in range(m):
        broken = beyond(lines, basis[r], x)
        if broken > 0.0:
            if not known:
                row_terms(columns, lines, x, room.side)
                known = True
            if broken > PRIMAL * size_of(columns, order, basis, r, room.side, room.rate, room.value):
                return r
    return m


@inner
def settled(columns: Columns, order: Order, lines: Lines, here: Place, room: Room) -> Any:
    """Basic variables within their bounds, but for rounding: there at last, and whether they were.

    Only variables near a bound, and not at it, need the size of their terms. The basis is the one that was factorized last.
    """
    basis, x = here.basis, here.x
    near, known = NEAR * largest_of(x, lines.right), False
    for r in range(len(basis)):
        v = basis[r]
        low, high = lines.lower[v], lines.upper[v]
        gap = min(abs(x[v] - low), abs(high - x[v]))
        broken = beyond(lines, v, x)
        if broken > 0.0 or 0.0 < gap <= near:
            if not known:
                row_terms(columns, lines, x, room.side)
                known = True
            size = size_of(columns, order, basis, r, room.side, room.rate, room.value)
            if broken > PRIMAL * size:
                return False
            if broken > 0.0 or gap <= SNAP * size:
                x[v] = low if x[v] - low < high - x[v] else high
    return True


@inner
def steepest(room: Room) -> Any:
    """The column of the steepest descent by reference weights; −1 where there is none."""
    entering, best = -1, 0.0
    for j in range(len(room.reduced)):
        fall = gain(room.way[j], room.reduced[j])
        if fall > DUAL * room.size[j] and fall * fall > best * room.weight[j]:
            entering, best = j, fall * fall / room.weight[j]
    return entering


@inner
def first_of_all(outside: Any, room: Room) -> Any:
    """The column of the first variable that may improve the objective; −1 where there is none."""
    entering = -1
    for j in range(len(outside)):
        if gain(room.way[j], room.reduced[j]) > DUAL * room.size[j]:
            entering = j if entering < 0 or outside[j] < outside[entering] else entering
    return entering


@inner
def descend(lines: Lines, here: Place, room: Room, small: Any, steps: Any) -> Any:
    """Primal steps while reduced costs ask for one; how many are left, or −1 where they do not end.

    What is rounding in a basic variable is relative to the largest that it was, and moved, on the way. small: steps that are no
    longer count as a stall. All but here.x follows the steps.
    """
    tableau, basis, outside, at = here.tableau, here.basis, here.outside, here.at
    reduced, size, weight, way, width = room.reduced, room.size, room.weight, room.way, room.width
    value, low, high, rate, row, extent = room.value, room.low, room.high, room.rate, room.row, room.extent
    m, k = tableau.shape
    for j in range(k):
        weight[j] = 1.0
    stalled, patience = 0, m + k
    while steps > 0:
        steps -= 1
        careful = stalled > patience  # Bland's rule: slow, and cannot cycle
        q = first_of_all(outside, room) if careful else steepest(room)
        if q < 0:
            return steps

        # How far, and what leaves.
        up = way[q] == 1.0 or (way[q] == 2.0 and reduced[q] < 0.0)
        sign, top = 1.0 if up else -1.0, 0.0
        for r in range(m):
            rate[r] = sign * tableau[r, q]
            top = max(top, abs(rate[r]))
        least, reach = PIVOT * top, np.inf
        for r in range(m):
            fast = abs(rate[r])
            if fast > least:
                space = value[r] - low[r] if rate[r] > 0.0 else high[r] - value[r]
                reach = min(reach, (max(space, 0.0) + PRIMAL * extent[r]) / fast)
        leaving, length, largest = m, np.inf, 0.0
        for r in range(m):
            fast = abs(rate[r])
            if fast > least:
                space = max(value[r] - low[r] if rate[r] > 0.0 else high[r] - value[r], 0.0)
                if space <= reach * fast and (
                    (leaving == m or basis[r] < basis[leaving]) if careful else fast > largest
                ):
                    leaving, length, largest = r, space / fast, fast
        length, flips = min(length, width[q]), width[q] <= length
        if np.isinf(length):
            return -1  # without end, it seems
        stalled = 0 if length * top > small else stalled + 1
        if length > 0.0:
            for r in range(m):
                value[r] -= length * rate[r]
                extent[r] = max(extent[r], abs(value[r]))
        if flips:  # from one bound to the other
            at[q], way[q] = AT_UPPER if up else AT_LOWER, -sign
            continue
        value[leaving] = sign * length + bound_of(lines, outside[q], at[q])
        extent[leaving] = max(abs(value[leaving]), length)
        price, pivot, reference = reduced[q], tableau[leaving, q], weight[q]
        exchange(here, leaving, q, AT_LOWER if rate[leaving] > 0.0 else AT_UPPER, room)
        low[leaving], high[leaving] = lines.lower[basis[leaving]], lines.upper[basis[leaving]]
        width[q] = lines.upper[outside[q]] - lines.lower[outside[q]]
        way[q] = way_of(at[q], width[q])
        for j in range(k):
            change = price * row[j]
            reduced[j] -= change
            size[j] = max(size[j], abs(change))
            weight[j] = max(weight[j], row[j] * row[j] * reference)
        reduced[q] = -price / pivot
        size[q] = max(abs(reduced[q]), size[q] / abs(pivot))
        weight[q] = max(reference / (pivot * pivot), 1.0)
    return -1
