"""A basis of a linear program, its dense tableau and the decision there: what all steps of the simplex method share."""

from __future__ import annotations

from typing import Any, NamedTuple

from dflearn.kernels import ahead
from dflearn.kernels.basis import Columns, Order, factorize, inner, solve

AT_LOWER, AT_UPPER, AT_ZERO = 0, 2, 3  # as in `Basis`

# Kernels that call others: LLVM works on all that a kernel calls once more for every kernel on the way to it, so there are few.
inlined = ahead.jit(nogil=True, error_model="numpy", inline="always")


class Place(NamedTuple):
    """A basis, its tableau, and the decision there."""

    tableau: Any  # (m, k)
    basis: Any  # the variable of each row (m,), and
    outside: Any  # of each column (k,)
    at: Any  # the bound that a variable of `outside` is at, a code
    x: Any  # (m + k,)


class Lines(NamedTuple):
    """Right-hand sides and bounds, of one instance or of all."""

    right: Any
    lower: Any
    upper: Any


class Room(NamedTuple):
    """What the steps write to: by column, by row."""

    reduced: Any
    size: Any  # the terms of a reduced cost
    weight: Any
    way: Any
    width: Any
    row: Any
    value: Any
    low: Any
    high: Any
    rate: Any
    side: Any
    prices: Any
    extent: Any  # the largest that a basic variable was on the way


@inner
def copied(place: Place) -> Any:
    return Place(place.tableau.copy(), place.basis.copy(), place.outside.copy(), place.at.copy(), place.x.copy())


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
def largest_of(one: Any, other: Any) -> Any:
    largest = 0.0
    for value in one:
        largest = max(largest, abs(value))
    for value in other:
        largest = max(largest, abs(value))
    return largest


@inlined
def decide(columns: Columns, order: Order, lines: Lines, here: Place, room: Room) -> Any:
    """The basic variables, anew; whether the basis has an inverse."""
    basis, outside, x, side = here.basis, here.outside, here.x, room.side
    if not factorize(columns, basis, order):
        return False
    for r in range(len(basis)):
        side[r] = lines.right[r]
    for v in outside:
        if x[v] != 0.0:
            for e in range(columns.start[v], columns.start[v + 1]):
                side[columns.index[e]] -= columns.value[e] * x[v]
    solve(columns, basis, order, side, room.value)
    for r in range(len(basis)):
        x[basis[r]] = room.value[r]
    return True


@inner
def exchange(here: Place, r: Any, q: Any, code: Any, room: Room) -> None:
    """The variable of row r goes to a bound, that of column q becomes basic; room.row: the row then, but for a zero in column q."""
    tableau, row = here.tableau, room.row
    m, k = tableau.shape
    inverse = 1.0 / tableau[r, q]
    for j in range(k):
        row[j] = tableau[r, j] * inverse
    row[q] = 0.0
    for i in range(m):
        factor = tableau[i, q]
        if factor != 0.0 and i != r:
            line = tableau[i]
            for j in range(k):
                line[j] -= factor * row[j]
            line[q] = -factor * inverse
    for j in range(k):
        tableau[r, j] = row[j]
    tableau[r, q] = inverse
    here.basis[r], here.outside[q] = here.outside[q], here.basis[r]
    here.at[q] = code
