"""What is true about a case: by exact arithmetic where possible, by Clarabel on the well-scaled base program otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp

from fuzz.cases import Case
from fuzz.exact import ExactAnswer, exact_lp, solve_rationals

MOST_POINTS = 20_000  # integer points that are enumerated
MOST_MIXED = 32  # assignments of integer variables, where the others are solved for
NEARLY = 1e-5  # relative violation up to which "infeasible" is a matter of tolerances
LOOSE = 1e5  # rows and bounds this far from decisions of size one never bind, unless a decision runs off to them
PIVOTS = 12  # rows that change sides before a guess is given up
UNSURE = 1e-8  # relative duality gap above which a floating-point reference is not used


class Truth(NamedTuple):
    """In base units.

    Attributes:
        status: "optimal", "infeasible", "unbounded" or "unknown".
        objective: the optimum.
        w: a decision that attains it.
        scale: the size that errors of the objective are compared with.
        exact: the decision is exact (and, under Ω, the only one), so that others can be compared with it.
    """

    status: str
    objective: float = np.nan
    w: np.ndarray | None = None
    scale: float = 1.0
    exact: bool = True


def truth_of(case: Case, kind: str, i: int) -> Truth:
    """The truth about instance i under Ω = "none", "relaxed" (none, integrality dropped), "squared" or "norm"."""
    if kind == "none" and not case.integer.any():
        kind = "relaxed"
    lines = [case.c(i), *(case.line(name, i) for name in ("b", "h", "lower", "upper"))]
    key = (kind, *(line.tobytes() for line in lines))
    if key not in case.remembered:
        case.remembered[key] = _together(case, kind, i) if case.block is not None else _tight(case, kind, *lines)
    found: Truth = case.remembered[key]
    return found


def _together(case: Case, kind: str, i: int) -> Truth:
    """The truth about all parts of a case, from that about each. A norm is no sum over parts."""
    if kind == "norm":
        return Truth("unknown")
    truths = [truth_of(part, kind, i) for part, _ in case.parts]
    for status in ("infeasible", "unknown", "unbounded"):
        if any(truth.status == status for truth in truths):
            return Truth(status)
    w = np.zeros(case.n)
    for (_, own), truth in zip(case.parts, truths, strict=True):
        w[own] = truth.w
    factors = [part.cost / case.cost for part, _ in case.parts]
    objective, scale = (
        float(sum(factor * getattr(truth, name) for factor, truth in zip(factors, truths, strict=True)))
        for name in ("objective", "scale")
    )
    return Truth("optimal", objective, w, scale, all(truth.exact for truth in truths))


def _tight(case: Case, kind: str, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """Without the rows and bounds that are far off: what is optimal then, and satisfies them, is optimal with them."""
    near = h < LOOSE * np.abs(case.G).sum(1)
    low, high = np.where(lower > -LOOSE, lower, -np.inf), np.where(upper < LOOSE, upper, np.inf)
    if near.all() and np.array_equal(low, lower) and np.array_equal(high, upper):
        return _straight(case, kind, c, b, h, lower, upper)
    key = ("tight", near.tobytes())
    if key not in case.remembered:
        case.remembered[key] = case.changed(G=case.G[near], h=h[near], H=None, row=np.ones(len(b) + int(near.sum())))
    truth = _straight(case.remembered[key], kind, c, b, h[near], low, high)
    if truth.status != "optimal" or truth.w is None:
        return truth if truth.status == "infeasible" else Truth("unknown")
    held = (lower <= truth.w).all() and (truth.w <= upper).all() and (case.G @ truth.w <= h)[~near].all()
    return truth if held and np.abs(truth.w).max(initial=0.0) < LOOSE / 10 else Truth("unknown")


def _straight(case: Case, kind: str, *lines: Any) -> Truth:
    if case.Q is not None:
        from fuzz.curvature import curved_truth

        return curved_truth(case, kind, *lines)
    return {"none": _integer, "relaxed": _linear, "squared": _squared, "norm": _norm}[kind](case, *lines)


def scale_of(c: np.ndarray, w: np.ndarray, rest: float = 0.0) -> float:
    """Σ |c_j w_j| + Ω, or, where that is less, what a typical cost does at a decision of size one."""
    typical = float(np.median(np.abs(c[c != 0]))) if c.any() else 1.0
    return max(float(np.abs(c) @ np.abs(w)) + rest, typical, rest)


def _told(c: np.ndarray, answer: ExactAnswer) -> Truth:
    if answer.status != "optimal" or answer.w is None or answer.objective is None:
        return Truth(answer.status)
    w = np.array([float(value) for value in answer.w])
    return Truth("optimal", float(answer.objective), w, scale_of(c, w))


def _linear(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    answer = exact_lp(c, case.A, b, case.G, h, lower, upper)
    return Truth(emptiness_of(case, b, h, lower, upper)) if answer.status == "infeasible" else _told(c, answer)


def emptiness_of(case: Case, b: Any, h: Any, lower: Any, upper: Any) -> str:
    """ "infeasible", "feasible", or "unknown" where no point is feasible but one is up to what answers may miss."""
    key = ("emptiness", *(part.tobytes() for part in (b, h, lower, upper)))
    if key not in case.remembered:
        case.remembered[key] = _find_emptiness(case, b, h, lower, upper)
    found: str = case.remembered[key]
    return found


def _find_emptiness(case: Case, b: Any, h: Any, lower: Any, upper: Any) -> str:
    zero = np.zeros(case.n)
    if exact_lp(zero, case.A, b, case.G, h, lower, upper).status != "infeasible":
        return "feasible"
    rows, right = np.vstack([case.A, -case.A, case.G]), np.concatenate([b, -b, h])
    looser = right + NEARLY * (np.abs(right) + np.abs(rows).sum(1))
    room = NEARLY * (1 + np.abs(np.where(np.isfinite([lower, upper]), [lower, upper], 0.0)))
    near = exact_lp(zero, zero[None][:0], zero[:0], rows, looser, lower - room[0], upper + room[1])
    return "infeasible" if near.status == "infeasible" else "unknown"


def _integer(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """By enumeration of what is integer; numbers of the base are small enough for exact sums in float64."""
    whole = np.flatnonzero(case.integer)
    if not whole.size:
        return _linear(case, c, b, h, lower, upper)
    low, high = integer_ranges(case, h, lower, upper)
    if (low > high).any():
        return Truth("infeasible")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return _unbounded_integer(case, c, b, h, lower, upper)
    points = float(np.prod(high - low + 1))
    if whole.size == case.n and points <= MOST_POINTS:
        grid = np.array(list(itertools.product(*(np.arange(a, z + 1) for a, z in zip(low, high, strict=True)))))
        fits = ((grid @ case.A.T == b).all(1)) & ((grid @ case.G.T <= h).all(1))
        if not fits.any():
            return Truth("infeasible")
        value = np.where(fits, grid @ c, np.inf)
        best = int(value.argmin())
        return Truth("optimal", float(value[best]), grid[best], scale_of(c, grid[best]))
    if points > MOST_MIXED:
        return Truth("unknown")
    best_answer = ExactAnswer("infeasible")
    for point in itertools.product(*(np.arange(a, z + 1) for a, z in zip(low, high, strict=True))):
        inner, outer = lower.copy(), upper.copy()
        inner[whole] = outer[whole] = point
        answer = exact_lp(c, case.A, b, case.G, h, inner, outer)
        if answer.status == "unbounded":
            return Truth("unbounded")
        if answer.objective is not None and (best_answer.objective is None or answer.objective < best_answer.objective):
            best_answer = answer
    return _told(c, best_answer)


def integer_ranges(case: Case, h: Any, lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest value of each integer variable: by its bounds, and by rows that hold nothing else."""
    low, high = lower.copy(), upper.copy()
    for row, side in zip(case.G, h, strict=True):
        (used,) = np.nonzero(row)
        if used.size == 1 and abs(row[used[0]]) == 1:  # no rounding
            j = int(used[0])
            low[j], high[j] = (low[j], min(high[j], side)) if row[j] > 0 else (max(low[j], -side), high[j])
    return np.ceil(low[case.integer]), np.floor(high[case.integer])


def _unbounded_integer(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """Rational data: where the relaxation is unbounded and an integer point exists, so is the integer program."""
    relaxed = exact_lp(c, case.A, b, case.G, h, lower, upper)
    if relaxed.status == "infeasible":
        return Truth("infeasible")
    ends = [np.arange(max(a, -3), min(z, 3) + 1) for a, z in zip(np.ceil(lower), np.floor(upper), strict=True)]
    if relaxed.status == "unbounded" and case.integer.all() and np.prod([len(e) for e in ends]) <= MOST_POINTS:
        grid = np.array(list(itertools.product(*ends)))
        if (((grid @ case.A.T == b).all(1)) & ((grid @ case.G.T <= h).all(1))).any():
            return Truth("unbounded")
    return Truth("unknown")


# -- smoothed -------------------------------------------------------------------------------------------------------


def all_rows(case: Case, b: Any, h: Any, lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Equations, then inequalities, then finite bounds, all as rows; how many are equations."""
    unit, low, high = np.eye(case.n), np.isfinite(lower), np.isfinite(upper)
    matrix = np.vstack([case.A.reshape(-1, case.n), case.G.reshape(-1, case.n), -unit[low], unit[high]])
    return matrix, np.concatenate([b, h, -lower[low], upper[high]]), len(b)


def by_clarabel(P: Any, c: np.ndarray, matrix: np.ndarray, right: np.ndarray, cones: list[Any]) -> Any:
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    return clarabel.DefaultSolver(sp.csc_matrix(P), c, sp.csc_matrix(matrix), right, cones, settings).solve()


def _squared(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    if (emptiness := emptiness_of(case, b, h, lower, upper)) != "feasible":
        return Truth(emptiness)
    q = case.curvature
    matrix, right, equations = all_rows(case, b, h, lower, upper)
    cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
    found = by_clarabel(np.diag(q), c, matrix, right, cones)
    slack, price = np.array(found.s), np.array(found.z)
    w = by_pivots(slack, price, equations, lambda active: _exact_active_set(q, c, matrix, right, active, equations))
    exact = w is not None
    if w is None:
        w = np.clip(np.array(found.x), lower, upper)
        value, floor = _value(q, c, w), _dual_value(q, c, matrix, right, price, equations)
        feasible = (
            (matrix @ w - right)[equations:].max(initial=0.0),
            np.abs((matrix @ w - right)[:equations]).max(initial=0.0),
        )
        # Both ways: a penalty of 1e8 makes much of a row that is missed by 1e-13.
        if not (abs(value - floor) <= UNSURE * scale_of(c, w, abs(value)) and max(feasible) <= UNSURE):
            return Truth("unknown")
    rest = float(0.5 * q @ w**2)
    return Truth("optimal", _value(q, c, w), w, scale_of(c, w, rest), exact)


def by_pivots(
    slack: np.ndarray, price: np.ndarray, equations: int, solve: Callable[[np.ndarray], np.ndarray | int | None]
) -> np.ndarray | None:
    """The decision at the rows that bind, guessed from slacks and prices and mended row by row (Murty's least index).

    solve: takes which rows bind `(rows,)`; gives the decision, or the first row that should change sides, or nothing.
    """
    binds = np.arange(len(slack)) < equations
    for guess in (price > slack, slack <= 1e-9, slack <= 1e-6):
        active = binds | guess
        for _ in range(PIVOTS):
            found = solve(active)
            if isinstance(found, np.ndarray):
                return found
            if found is None:
                break
            active[found] = not active[found]
    return None


def wrong_side(
    matrix: Sequence[Sequence[Fraction]],
    right: Sequence[Fraction],
    w: Sequence[Fraction],
    rows: np.ndarray,
    price: Sequence[Fraction],
    equations: int,
) -> int | None:
    """The first row that is broken or has a price of the wrong sign; `None` where all is well."""
    negative = {int(i) for i, value in zip(rows, price, strict=True) if i >= equations and value < 0}
    for i, (row, side) in enumerate(zip(matrix, right, strict=True)):
        if i in negative:
            return i
        gap = sum((a * v for a, v in zip(row, w, strict=True) if a), Fraction(0)) - side
        if gap > 0 or (i < equations and gap < 0):
            return i
    return None


def _value(q: np.ndarray, c: np.ndarray, w: np.ndarray) -> float:
    return float(c @ w + 0.5 * q @ w**2)


def _dual_value(
    q: np.ndarray, c: np.ndarray, matrix: np.ndarray, right: np.ndarray, price: np.ndarray, me: int
) -> float:
    """A lower bound: the unconstrained minimum of the Lagrangian."""
    price = np.where(np.arange(len(price)) < me, price, np.maximum(price, 0.0))
    slope = c + matrix.T @ price
    return float(-0.5 * (slope**2 / q).sum() - right @ price)


def _exact_active_set(
    q: np.ndarray, c: np.ndarray, matrix: np.ndarray, right: np.ndarray, active: np.ndarray, equations: int
) -> np.ndarray | int | None:
    """The smoothed solution in rationals where the rows `active` bind: q w + c + Mᵀλ = 0, M w = right; as of `by_pivots`."""
    n, rows = len(c), np.flatnonzero(active)
    exact = lambda values: [Fraction(float(value)) for value in values]  # noqa: E731
    M, r = [exact(row) for row in matrix], exact(right)
    Q, costs = exact(q), exact(c)
    # w = −(c + Mᵀλ)/q: the rows become (M Q⁻¹ Mᵀ) λ = −right − M Q⁻¹ c.
    system = [
        [sum((a * b / s for a, b, s in zip(M[i], M[k], Q, strict=True) if a and b), Fraction(0)) for k in rows]
        + [-r[i] - sum((a * e / s for a, e, s in zip(M[i], costs, Q, strict=True) if a and e), Fraction(0))]
        for i in rows
    ]
    price = solve_rationals(system) if system else []
    if price is None:
        return None
    w = [
        -(costs[j] + sum((M[i][j] * value for i, value in zip(rows, price, strict=True) if value), Fraction(0))) / Q[j]
        for j in range(n)
    ]
    wrong = wrong_side(M, r, w, rows, price, equations)
    if wrong is not None:
        return wrong if wrong >= equations else None
    return np.array([float(value) for value in w])


def _norm(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """min cᵀw + ‖v ∘ w‖₂ as a second-order cone program; whether it is bounded, by the recession cone."""
    if (emptiness := emptiness_of(case, b, h, lower, upper)) != "feasible":
        return Truth(emptiness)
    v = case.norm_weights
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        slope = _recession(case, c, v, lower, upper)
        if slope > 1 + 1e-6:
            return Truth("unbounded")
        if slope > 1 - 1e-6:
            return Truth("unknown")
    n = case.n
    matrix, right, equations = all_rows(case, b, h, lower, upper)
    head = np.hstack([matrix, np.zeros((len(right), 1))])
    cone = -np.vstack([np.eye(n + 1)[n], np.hstack([np.diag(v), np.zeros((n, 1))])])
    cones = [
        clarabel.ZeroConeT(equations),
        clarabel.NonnegativeConeT(len(right) - equations),
        clarabel.SecondOrderConeT(n + 1),
    ]
    found = by_clarabel(
        np.zeros((n + 1, n + 1)), np.append(c, 1.0), np.vstack([head, cone]), np.append(right, np.zeros(n + 1)), cones
    )
    w = np.clip(np.array(found.x)[:n], lower, upper)
    value = float(c @ w + np.linalg.norm(v * w))
    scale = scale_of(c, w, float(np.linalg.norm(v * w)))
    if "Solved" not in str(found.status) or not abs(value - found.obj_val_dual) <= UNSURE * scale:
        return Truth("unknown")
    return Truth("optimal", value, w, scale)


def _recession(case: Case, c: np.ndarray, v: np.ndarray, lower: Any, upper: Any) -> float:
    """The steepest fall of cᵀw per ‖v ∘ w‖ along directions that never end: the norm of a projection onto that cone."""
    low, high = np.where(np.isfinite(lower), 0.0, -np.inf), np.where(np.isfinite(upper), 0.0, np.inf)
    me = len(case.A)
    matrix, right, equations = all_rows(case, np.zeros(me), np.zeros(len(case.G)), low, high)
    cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
    found = by_clarabel(np.diag(v**2), c, matrix, right, cones)
    return float(np.linalg.norm(v * np.array(found.x)))
