"""min cᵀx  s.t.  M x = right,  lower ≤ x ≤ upper:  a primal simplex method on a small dense tableau.

x are the variables of a program and the slacks of its inequalities; M has no dependent rows. With a basis B, all other
variables at a bound (or at zero, where they have none), the tableau is B⁻¹ M without the columns of the basis: m × k numbers,
which a step exchanges in place. Every instance begins at the same basis B₀ of the program, so that no answer depends on another.

B₀ is feasible. Steps enter the variable of the steepest descent by reference weights (Devex; Forrest and Goldfarb, 1992), leave by
the largest pivot among the rows that bind first, and follow Bland's rule after a stall.

At the end decisions, prices and reduced costs are refined with the program's own numbers. For that B⁻¹ = (B⁻¹ B₀) B₀⁻¹ is at hand:
B₀⁻¹ is stored, and B⁻¹ B₀ has a column of the tableau for each variable that has left B₀, and a unit vector for each other. Where
refined reduced costs ask for more steps, the steps go on. The caller checks the answers. All tolerances are relative to the terms
that a number is the sum of.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dflearn.engine import ahead

OPTIMAL, FAILED = 0, 5  # as in `Status`
AT_LOWER, AT_UPPER, AT_ZERO = 0, 2, 3  # as in `Basis`
DUAL = 1e-12  # reduced costs, and
PRIMAL = 1e-11  # decisions, that are smaller relative to their terms are rounding
PIVOT = 1e-9  # entries of a column this small beside its largest are rounding
SNAP = 1e-14  # a basic variable this near to its bound, relative to its terms, is at it
VANISHING = 1e-28  # relative to all numbers of the instance, what is rounding of terms that cancelled
NEAR = 1e-9  # farther from its bound, relative to all numbers of the instance, it is not looked at so closely
RESIDUAL = 1e-14  # of an equation, relative to its terms, that is not refined further
ROUNDS = 4  # of steps, then of refinement
REFINEMENTS = 4

jit = ahead.jit(nogil=True, error_model="numpy")
# Kernels that only kernels call have no entry from Python, which takes long to compile where tuples of arrays go in. LLVM works on
# all that a kernel calls once more for every kernel on the way to it, so those that call others are inlined.
inner = ahead.jit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
inlined = ahead.jit(nogil=True, error_model="numpy", inline="always")


class System(NamedTuple):
    """M by columns: value[e] is in row index[e], for e from start[v] to start[v + 1]. And B₀⁻¹ `(m, m)`, by rows and by columns."""

    start: Any
    index: Any
    value: Any
    by_rows: Any
    by_columns: Any


class Place(NamedTuple):
    """A basis, its tableau, and the decision there."""

    tableau: Any  # (m, k)
    basis: Any  # the variable of each row (m,), and
    outside: Any  # of each column (k,)
    at: Any  # the bound that a variable of `outside` is at, a code
    x: Any  # (m + k,)


class Lines(NamedTuple):
    """Right-hand sides `(m,)`, and bounds `(m + k,)`."""

    right: Any
    lower: Any
    upper: Any


class Room(NamedTuple):
    """What the kernels write to: `(k,)`, then `(m,)`, then where each variable is: its row, or −1 − its column `(m + k,)`."""

    reduced: Any
    size: Any  # the terms of a reduced cost
    weight: Any
    way: Any
    width: Any
    line: Any
    value: Any
    low: Any
    high: Any
    rate: Any
    terms: Any
    prices: Any
    part: Any
    extent: Any  # the largest that a basic variable was on the way
    where: Any


@jit
def solve_batch(system: System, reference: Place, lines: Lines, c: Any, w: Any, y: Any, status: Any) -> None:
    """Solve every instance.  c, w `(count, n)`, prices y `(count, m)`, status `(count,)`.

    Where the status is not OPTIMAL, w and y stay as they are.
    """
    m, k = reference.tableau.shape
    tableau, basis, outside, at, x = reference
    here = Place(tableau.copy(), basis.copy(), outside.copy(), at.copy(), x.copy())
    by_column, by_row = np.empty((6, k)), np.empty((8, m))
    room = Room(
        by_column[0], by_column[1], by_column[2], by_column[3], by_column[4], by_column[5],
        by_row[0], by_row[1], by_row[2], by_row[3], by_row[4], by_row[5], by_row[6], by_row[7],
        np.empty(m + k, np.int64),
    )  # fmt: skip
    cost = np.zeros(m + k)
    for i in range(len(c)):
        status[i] = FAILED
        copy(reference, here)
        for j in range(c.shape[1]):
            cost[j] = c[i, j]
        if optimize(system, lines, cost, reference.basis, here, room):
            status[i] = OPTIMAL
            for j in range(c.shape[1]):
                w[i, j] = here.x[j]
            for r in range(m):
                y[i, r] = room.prices[r]


@inner
def copy(one: Place, other: Place) -> None:
    m, k = one.tableau.shape
    for r in range(m):
        other.basis[r] = one.basis[r]
        for j in range(k):
            other.tableau[r, j] = one.tableau[r, j]
    for j in range(k):
        other.outside[j], other.at[j] = one.outside[j], one.at[j]
    for v in range(m + k):
        other.x[v] = one.x[v]


@inner
def bound_of(lines: Lines, v: Any, at: Any) -> Any:
    return lines.upper[v] if at == AT_UPPER else 0.0 if at == AT_ZERO else lines.lower[v]


@inner
def exchange(here: Place, r: Any, q: Any, code: Any, line: Any) -> None:
    """The variable of row r goes to a bound, that of column q becomes basic; line: the row then, but for a zero in column q."""
    tableau = here.tableau
    m, k = tableau.shape
    inverse = 1.0 / tableau[r, q]
    for j in range(k):
        line[j] = tableau[r, j] * inverse
    line[q] = 0.0
    for i in range(m):
        factor = tableau[i, q]
        if factor != 0.0 and i != r:
            other = tableau[i]
            for j in range(k):
                other[j] -= factor * line[j]
            other[q] = -factor * inverse
    for j in range(k):
        tableau[r, j] = line[j]
    tableau[r, q] = inverse
    here.basis[r], here.outside[q] = here.outside[q], here.basis[r]
    here.at[q] = code


# -- refinement -------------------------------------------------------------------------------------------------------


@inner
def locate(here: Place, where: Any) -> None:
    for r in range(len(here.basis)):
        where[here.basis[r]] = r
    for q in range(len(here.outside)):
        where[here.outside[q]] = -1 - q


@inner
def decide(system: System, lines: Lines, first: Any, here: Place, room: Room) -> None:
    """Refine the basic variables until M x = right but for rounding.  first `(m,)`: the variables of B₀."""
    tableau, basis, x = here.tableau, here.basis, here.x
    left, terms, part = room.rate, room.terms, room.part
    m, k = tableau.shape
    locate(here, room.where)
    for _ in range(REFINEMENTS):
        for i in range(m):
            left[i], terms[i] = lines.right[i], abs(lines.right[i])
        for v in range(m + k):
            if x[v] != 0.0:
                for e in range(system.start[v], system.start[v + 1]):
                    term = system.value[e] * x[v]
                    left[system.index[e]] -= term
                    terms[system.index[e]] += abs(term)
        more = False
        for i in range(m):
            more |= abs(left[i]) > RESIDUAL * terms[i]
        if not more:
            return
        for p in range(m):
            part[p] = 0.0
        for i in range(m):
            if left[i] != 0.0:
                column = system.by_columns[i]
                for p in range(m):
                    part[p] += column[p] * left[i]
        for p in range(m):  # B⁻¹ B₀ times that
            r = room.where[first[p]]
            if r >= 0:
                x[basis[r]] += part[p]
            elif part[p] != 0.0:
                for r in range(m):
                    x[basis[r]] += tableau[r, -1 - room.where[first[p]]] * part[p]


@inner
def price(system: System, cost: Any, first: Any, here: Place, room: Room) -> Any:
    """Prices, refined until Bᵀy = c but for rounding; reduced costs with their terms. Whether one still asks for a step."""
    tableau, basis, outside = here.tableau, here.basis, here.outside
    prices, left, by_column = room.prices, room.rate, room.line
    m, k = tableau.shape
    locate(here, room.where)
    for r in range(m):
        prices[r] = 0.0
    for _ in range(REFINEMENTS):
        more = False
        for r in range(m):
            left[r], size = reduced_cost(system, basis[r], cost[basis[r]], prices)
            more |= abs(left[r]) > RESIDUAL * size
        if not more:
            break
        for j in range(k):
            by_column[j] = 0.0
        for r in range(m):
            if left[r] != 0.0:
                for j in range(k):
                    by_column[j] += left[r] * tableau[r, j]
        for p in range(m):
            place = room.where[first[p]]
            part = left[place] if place >= 0 else by_column[-1 - place]
            if part != 0.0:
                line = system.by_rows[p]
                for i in range(m):
                    prices[i] += part * line[i]
    wanted = False
    for j in range(k):
        v = outside[j]
        room.reduced[j], room.size[j] = reduced_cost(system, v, cost[v], prices)
        wanted |= gain(room.way[j], room.reduced[j]) > DUAL * room.size[j]
    return wanted


@inner
def reduced_cost(system: System, v: Any, cost: Any, prices: Any) -> Any:
    """cost − (column v)ᵀ prices, and the size of its terms."""
    size = abs(cost)
    for e in range(system.start[v], system.start[v + 1]):
        term = system.value[e] * prices[system.index[e]]
        cost -= term
        size += abs(term)
    return cost, size


# -- steps ---------------------------------------------------------------------------------------------------------


@inner
def largest_of(one: Any, other: Any) -> Any:
    largest = 0.0
    for value in one:
        largest = max(largest, abs(value))
    for value in other:
        largest = max(largest, abs(value))
    return largest


@inner
def beyond(lines: Lines, v: Any, x: Any) -> Any:
    """By how much a variable breaks its bounds; not above zero where it holds them."""
    return max(lines.lower[v] - x[v], x[v] - lines.upper[v])


@inner
def size_of(system: System, first: Any, here: Place, r: Any, room: Room) -> Any:
    """Σ_i |(B⁻¹)_ri| terms_i: the size of the terms that the basic variable of row r is the sum of, those of other variables
    included that it follows from. Times ε it bounds the rounding error (Skeel, 1979). It follows on `decide` at this basis."""
    part = room.part
    m = len(part)
    for i in range(m):
        part[i] = 0.0
    for p in range(m):
        place = room.where[first[p]]
        entry = here.tableau[r, -1 - place] if place < 0 else 1.0 if place == r else 0.0
        if entry != 0.0:
            line = system.by_rows[p]
            for i in range(m):
                part[i] += entry * line[i]
    size = 0.0
    for i in range(m):
        size += abs(part[i]) * room.terms[i]
    return size


@inlined
def optimize(system: System, lines: Lines, cost: Any, first: Any, here: Place, room: Room) -> Any:
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
        room.low[r], room.high[r], room.extent[r] = lines.lower[v], lines.upper[v], abs(x[v])
        if cost[v] != 0.0:
            for j in range(k):
                term = cost[v] * tableau[r, j]
                room.reduced[j] -= term
                room.size[j] += abs(term)
    steps, small = 50 * (m + k), PRIMAL * largest_of(x, lines.right)
    for _ in range(ROUNDS):
        for r in range(m):
            room.value[r] = x[basis[r]]
        steps = descend(lines, here, room, small, steps)
        if steps < 0:
            return False
        for r in range(m):
            x[basis[r]] = room.value[r]
        for j in range(k):
            x[outside[j]] = bound_of(lines, outside[j], at[j])
        decide(system, lines, first, here, room)
        if price(system, cost, first, here, room):
            continue
        largest = largest_of(x, lines.right)
        near = NEAR * largest
        for r in range(m):
            v, broken = basis[r], beyond(lines, basis[r], x)
            gap = min(abs(x[v] - lines.lower[v]), abs(lines.upper[v] - x[v]))
            if broken > 0.0 or 0.0 < gap <= near:
                size = size_of(system, first, here, r, room)
                if broken > max(PRIMAL * size, VANISHING * largest):
                    return False
                if broken > 0.0 or gap <= SNAP * size:
                    x[v] = lines.lower[v] if x[v] - lines.lower[v] < lines.upper[v] - x[v] else lines.upper[v]
        return True
    return False


@inner
def way_of(at: Any, width: Any) -> Any:
    """Where a variable may go from its bound: 1 up, −1 down, 0 nowhere, 2 up or down."""
    return 2.0 if at == AT_ZERO else 0.0 if width <= 0.0 else -1.0 if at == AT_UPPER else 1.0


@inner
def gain(way: Any, reduced: Any) -> Any:
    """How fast the objective falls as the variable goes where it may."""
    return abs(reduced) if way == 2.0 else -way * reduced


@inner
def entering_column(outside: Any, room: Room, careful: Any) -> Any:
    """The column of the steepest descent by reference weights, or by Bland's rule that of the first variable; −1: there is none."""
    entering, best = -1, 0.0
    for j in range(len(room.reduced)):
        fall = gain(room.way[j], room.reduced[j])
        if fall > DUAL * room.size[j]:
            if careful:
                entering = j if entering < 0 or outside[j] < outside[entering] else entering
            elif fall * fall > best * room.weight[j]:
                entering, best = j, fall * fall / room.weight[j]
    return entering


@inner
def descend(lines: Lines, here: Place, room: Room, small: Any, steps: Any) -> Any:
    """Primal steps while reduced costs ask for one; how many are left, or −1 where they do not end.

    What is rounding in a basic variable is relative to the largest that it was on the way. small: steps that are no longer count
    as a stall. All but here.x follows the steps.
    """
    tableau, basis, outside, at, extent = here.tableau, here.basis, here.outside, here.at, room.extent
    reduced, size, weight, way, width = room.reduced, room.size, room.weight, room.way, room.width
    value, low, high, rate, line = room.value, room.low, room.high, room.rate, room.line
    m, k = tableau.shape
    for j in range(k):
        weight[j] = 1.0
    stalled, patience = 0, m + k
    while steps > 0:
        steps -= 1
        careful = stalled > patience  # Bland's rule: slow, and cannot cycle
        q = entering_column(outside, room, careful)
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
        cost, pivot, reference = reduced[q], tableau[leaving, q], weight[q]
        exchange(here, leaving, q, AT_LOWER if rate[leaving] > 0.0 else AT_UPPER, line)
        low[leaving], high[leaving] = lines.lower[basis[leaving]], lines.upper[basis[leaving]]
        width[q] = lines.upper[outside[q]] - lines.lower[outside[q]]
        way[q] = way_of(at[q], width[q])
        for j in range(k):
            change = cost * line[j]
            reduced[j] -= change
            size[j] = max(size[j], abs(change))
            weight[j] = max(weight[j], line[j] * line[j] * reference)
        reduced[q] = -cost / pivot
        size[q] = max(abs(reduced[q]), size[q] / abs(pivot))
        weight[q] = max(reference / (pivot * pivot), 1.0)
    return -1
