"""What is true about a case with a quadratic objective: in rationals on the face that Clarabel finds, or by its duality gap."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import clarabel
import numpy as np

from fuzz.cases import Case
from fuzz.exact import exact_lp, solve_rationals
from fuzz.references import (
    MOST_MIXED,
    MOST_POINTS,
    UNSURE,
    Truth,
    all_rows,
    by_clarabel,
    by_pivots,
    emptiness_of,
    integer_ranges,
    scale_of,
    wrong_side,
)


def curved_truth(case: Case, kind: str, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """As of `truth_of`."""
    if kind == "norm":
        return Truth("unknown")  # refused
    assert case.Q is not None
    Q = case.Q + (np.diag(case.curvature) if kind == "squared" else 0.0)
    whole = np.flatnonzero(case.integer)
    if kind != "none" or not whole.size:
        return _continuous(case, Q, c, b, h, lower, upper)
    low, high = integer_ranges(case, h, lower, upper)
    points = float(np.prod(high - low + 1))
    if whole.size == case.n and points <= MOST_POINTS:
        grid = np.array(list(itertools.product(*(np.arange(a, z + 1) for a, z in zip(low, high, strict=True)))))
        fits = (grid @ case.A.T == b).all(1) & (grid @ case.G.T <= h).all(1)
        value = np.where(fits, grid @ c + 0.5 * ((grid @ Q) * grid).sum(1), np.inf)
        best = int(value.argmin())
        if not fits.any():
            return Truth("infeasible")
        return Truth("optimal", float(value[best]), grid[best], scale_of(c, grid[best], float(case.bent(grid[best]))))
    if not points <= MOST_MIXED:
        return Truth("unknown")
    found = []
    for point in itertools.product(*(np.arange(a, z + 1) for a, z in zip(low, high, strict=True))):
        inner, outer = lower.copy(), upper.copy()
        inner[whole] = outer[whole] = point
        found.append(_continuous(case, Q, c, b, h, inner, outer))
    for status in ("unbounded", "unknown"):
        if any(truth.status == status for truth in found):
            return Truth(status)
    return min((truth for truth in found if truth.status == "optimal"), key=lambda truth: truth.objective,
               default=Truth("infeasible"))  # fmt: skip


def _continuous(case: Case, Q: np.ndarray, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    if (emptiness := emptiness_of(case, b, h, lower, upper)) != "feasible":
        return Truth(emptiness)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        # Without end along directions in which nothing bends and costs fall.
        low, high = np.where(np.isfinite(lower), 0.0, -1.0), np.where(np.isfinite(upper), 0.0, 1.0)
        flat = np.vstack([case.A, Q])
        fall = exact_lp(c, flat, np.zeros(len(flat)), case.G, np.zeros(len(case.G)), low, high)
        if fall.objective is not None and fall.objective < 0:
            return Truth("unbounded")
    matrix, right, equations = all_rows(case, b, h, lower, upper)
    cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
    found = by_clarabel(Q, c, matrix, right, cones)
    slack, price = np.array(found.s), np.array(found.z)
    w = by_pivots(slack, price, equations, lambda active: _on_face(Q, c, matrix, right, active, equations))
    exact = w is not None
    if w is None:
        w, binds = np.clip(np.array(found.x), lower, upper), np.arange(len(right)) < equations
        price = np.where(binds, price, np.maximum(price, 0.0))
        value, floor = float(c @ w + 0.5 * w @ Q @ w), float(-0.5 * w @ Q @ w - right @ price)
        gap = matrix @ w - right
        left = np.abs(Q @ w + c + matrix.T @ price).max(initial=0.0)
        broken = max(gap[equations:].max(initial=0.0), np.abs(gap[:equations]).max(initial=0.0))
        if not (abs(value - floor) <= UNSURE * scale_of(c, w, abs(value)) and max(left, broken) <= UNSURE):
            return Truth("unknown")
    bent = float(0.5 * w @ Q @ w)
    return Truth("optimal", float(c @ w) + bent, w, scale_of(c, w, bent), exact)


def _on_face(
    Q: np.ndarray, c: np.ndarray, matrix: np.ndarray, right: np.ndarray, active: np.ndarray, equations: int
) -> np.ndarray | int | None:
    """Q w + c + Mᵀλ = 0, M w = right on the active rows, in rationals; as of `by_pivots`."""
    n, rows = len(c), np.flatnonzero(active)
    M, exact = matrix[rows], lambda values: [Fraction(float(value)) for value in values]
    whole = np.block([[Q, M.T], [M, np.zeros((len(rows), len(rows)))]])
    system = [exact(row) + exact([side]) for row, side in zip(whole, np.concatenate([-c, right[rows]]), strict=True)]
    found = solve_rationals(system)
    if found is None:
        return None
    wrong = wrong_side([exact(row) for row in matrix], exact(right), found[:n], rows, found[n:], equations)
    if wrong is not None:
        return wrong if wrong >= equations else None
    return np.array([float(value) for value in found[:n]])
