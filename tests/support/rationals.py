"""Optima of small programs in rational numbers: every vertex, every integer, no rounding and no tolerance."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from dflearn.program import Program

Row = tuple[list[Fraction], Fraction]


def exact_optimum(program: Program, c: Any, *, h: Any = None) -> Fraction | None:
    """min cᵀw over a program whose lower bounds are finite and whose optimum exists; `None` where it has no decision.

    Integer variables need finite upper bounds. h: right-hand sides other than the program's.
    """
    costs = [Fraction(float(x)) for x in c]
    equations = _rows(program.A.toarray(), program.b)
    inequalities = _rows(program.G.toarray(), program.h if h is None else h)
    lower = [Fraction(float(x)) for x in program.lower]
    upper = [None if np.isinf(x) else Fraction(float(x)) for x in program.upper]
    best: Fraction | None = None
    whole = np.flatnonzero(program.integer)
    ranges = [range(int(np.ceil(program.lower[j])), int(np.floor(program.upper[j])) + 1) for j in whole]
    for choice in itertools.product(*ranges):
        low, high = list(lower), list(upper)
        for j, value in zip(whole, choice, strict=True):
            low[j] = high[j] = Fraction(value)
        for w in _vertices(equations, inequalities, low, high):
            value = sum((a * x for a, x in zip(costs, w, strict=True)), Fraction(0))
            best = value if best is None or value < best else best
    return best


def _rows(matrix: np.ndarray, side: Any) -> list[Row]:
    return [([Fraction(float(x)) for x in row], Fraction(float(q))) for row, q in zip(matrix, side, strict=True)]


def _vertices(
    equations: list[Row], inequalities: list[Row], lower: list[Fraction], upper: list[Fraction | None]
) -> Iterator[list[Fraction]]:
    """Every vertex: some variables at a bound, the others from as many rows as it takes."""
    n = len(lower)
    must = range(len(equations))
    may = range(len(equations), len(equations) + len(inequalities))
    rows = equations + inequalities
    sides = [[low] if high is None or high == low else [low, high] for low, high in zip(lower, upper, strict=True)]
    fixed = {j for j in range(n) if upper[j] == lower[j]}
    for size in range(min(n - len(fixed), len(rows)) + 1):
        for basic in itertools.combinations([j for j in range(n) if j not in fixed], size):
            rest = [j for j in range(n) if j not in basic]
            for active in itertools.combinations([*must, *may], size):
                for at in itertools.product(*(sides[j] for j in rest)):
                    w: list[Fraction] = [Fraction(0)] * n
                    for j, value in zip(rest, at, strict=True):
                        w[j] = value
                    found = _solve(
                        [[rows[i][0][j] for j in basic] for i in active],
                        [rows[i][1] - sum((rows[i][0][j] * w[j] for j in rest), Fraction(0)) for i in active],
                    )
                    if found is None:
                        continue
                    for j, value in zip(basic, found, strict=True):
                        w[j] = value
                    if _holds(w, equations, inequalities, lower, upper):
                        yield w


def _holds(w: list[Fraction], equations: list[Row], inequalities: list[Row], lower: Any, upper: Any) -> bool:
    def dot(row: list[Fraction]) -> Fraction:
        return sum((a * x for a, x in zip(row, w, strict=True)), Fraction(0))

    return (
        all(low <= x and (high is None or x <= high) for x, low, high in zip(w, lower, upper, strict=True))
        and all(dot(row) == side for row, side in equations)
        and all(dot(row) <= side for row, side in inequalities)
    )


def _solve(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """The solution of a square system; `None` where it has none or many."""
    m = len(matrix)
    rows = [[*row, q] for row, q in zip(matrix, right, strict=True)]
    for k in range(m):
        pivot = next((r for r in range(k, m) if rows[r][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for r in range(m):
            if r != k and rows[r][k] != 0:
                factor = rows[r][k] / rows[k][k]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[k], strict=True)]
    return [rows[k][m] / rows[k][k] for k in range(m)]
