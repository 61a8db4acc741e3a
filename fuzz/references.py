"""What is true about a case: by exact arithmetic where possible, by Clarabel on the well-scaled base program otherwise."""

import itertools
import statistics
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp

from fuzz.cases import FAR, Case
from fuzz.exact import ExactAnswer, FeasibleSet, exact_lp, solve_exactly, whole_rows

MOST_POINTS = 20_000  # integer points that are enumerated
MOST_MIXED = 32  # assignments of integer variables, where the others are solved for
NEARLY = 1e-5  # relative violation up to which "infeasible" is a matter of tolerances
PIVOTS = 12  # rows that change sides before a guess is given up
UNSURE = 1e-8  # relative duality gap above which a floating-point reference is not used


class Truth(NamedTuple):
    """In base units: status ("optimal", "infeasible", "unbounded" or "unknown"), optimum, a decision w that attains it, the scale that
    errors of the objective are compared with, and whether w is exact (and, under Ω, the only one), so that others are compared with it."""

    status: str
    objective: float = np.nan
    w: np.ndarray | None = None
    scale: float = 1.0
    exact: bool = True


def truth_of(case: Case, kind: str, i: int) -> Truth:
    """The truth about instance i under Ω = "none", "relaxed" (none, integrality dropped), "squared" or "norm"."""
    if kind == "none" and not case.integer.any():
        kind = "relaxed"
    lines = case.lines(i)
    key = (kind, case.key(i))
    found: Truth = case.once(
        key, lambda: _together(case, kind, i) if case.block is not None else _tight(case, kind, *lines)
    )
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
    both = [(part.cost / case.cost, truth) for (part, _), truth in zip(case.parts, truths, strict=True)]
    objective, scale = (float(sum(f * getattr(truth, name) for f, truth in both)) for name in ("objective", "scale"))
    return Truth("optimal", objective, w, scale, all(truth.exact for truth in truths))


def _tight(case: Case, kind: str, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """Without the rows and bounds that are far off (they never bind, unless a decision runs off to them): what is optimal then, and satisfies them, is optimal with them."""
    near = h < FAR * np.abs(case.G).sum(1)
    low, high = np.where(lower > -FAR, lower, -np.inf), np.where(upper < FAR, upper, np.inf)
    if near.all() and np.array_equal(low, lower) and np.array_equal(high, upper):
        return _straight(case, kind, c, b, h, lower, upper)
    units = np.ones(len(b) + int(near.sum()))
    tight = case.once(("tight", near.tobytes()), lambda: case.changed(G=case.G[near], h=h[near], H=None, row=units))
    truth = _straight(tight, kind, c, b, h[near], low, high)
    if truth.status != "optimal" or truth.w is None:
        return truth if truth.status == "infeasible" else Truth("unknown")
    held = (lower <= truth.w).all() and (truth.w <= upper).all() and (case.G @ truth.w <= h)[~near].all()
    return truth if held and np.abs(truth.w).max(initial=0.0) < FAR / 10 else Truth("unknown")


def _straight(case: Case, kind: str, *lines: Any) -> Truth:
    if kind == "norm":
        return Truth("unknown") if case.Q is not None else _norm(case, *lines)  # with Q it is refused
    Q = case.Q
    if kind == "squared":
        Q = np.diag(case.curvature) + (0.0 if Q is None else Q)
    if kind == "none" and case.integer.any():
        return _integer(case, Q, *lines)
    return _linear(case, *lines) if Q is None else _quadratic(case, Q, *lines, kind == "squared" and case.mu > 0)


def scale_of(c: np.ndarray, w: np.ndarray, rest: float = 0.0) -> float:
    """Σ |c_j w_j| + Ω, or, where that is less, what a typical cost does at a decision of size one."""
    typical = statistics.median(np.abs(c[c != 0]).tolist()) if c.any() else 1.0
    return max(float(np.abs(c) @ np.abs(w)) + rest, typical, rest)


def _told(c: np.ndarray, answer: ExactAnswer) -> Truth:
    if answer.status != "optimal" or answer.w is None or answer.objective is None:
        return Truth(answer.status)
    w = np.array([float(value) for value in answer.w])
    return Truth("optimal", float(answer.objective), w, scale_of(c, w))


def _linear(case: Case, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    answer = _set_of(case, b, h, lower, upper).minimize(c)
    return Truth(emptiness_of(case, b, h, lower, upper)) if answer.status == "infeasible" else _told(c, answer)


def _set_of(case: Case, *sides: Any) -> FeasibleSet:
    """The decisions that b, h, lower and upper allow."""
    b, h, lower, upper = sides
    key = ("set", *(part.tobytes() for part in sides))
    found: FeasibleSet = case.once(key, lambda: FeasibleSet(case.A, b, case.G, h, lower, upper))
    return found


def emptiness_of(case: Case, b: Any, h: Any, lower: Any, upper: Any) -> str:
    """ "infeasible", "feasible", or "unknown" where no point is feasible but one is up to what answers may miss."""
    key = ("emptiness", *(part.tobytes() for part in (b, h, lower, upper)))
    found: str = case.once(key, lambda: _find_emptiness(case, b, h, lower, upper))
    return found


def _find_emptiness(case: Case, b: Any, h: Any, lower: Any, upper: Any) -> str:
    zero = np.zeros(case.n)
    if not _set_of(case, b, h, lower, upper).empty:
        return "feasible"
    rows, right = np.vstack([case.A, -case.A, case.G]), np.concatenate([b, -b, h])
    looser = right + NEARLY * (np.abs(right) + np.abs(rows).sum(1))
    room = NEARLY * (1 + np.abs(np.where(np.isfinite([lower, upper]), [lower, upper], 0.0)))
    near = exact_lp(zero, zero[None][:0], zero[:0], rows, looser, lower - room[0], upper + room[1])
    return "infeasible" if near.status == "infeasible" else "unknown"


def _integer(case: Case, Q: np.ndarray | None, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any) -> Truth:
    """By enumeration of what is integer; numbers of the base are small enough for exact sums in float64."""
    whole = np.flatnonzero(case.integer)
    low, high = integer_ranges(case, h, lower, upper)
    if (low > high).any():
        return Truth("infeasible")
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return _unbounded_integer(case, c, b, h, lower, upper) if Q is None else Truth("unknown")
    points, ranges = float(np.prod(high - low + 1)), [np.arange(a, z + 1) for a, z in zip(low, high, strict=True)]
    if whole.size == case.n and points <= MOST_POINTS:
        grid = np.array(list(itertools.product(*ranges)))
        fits = ((grid @ case.A.T == b).all(1)) & ((grid @ case.G.T <= h).all(1))
        if not fits.any():
            return Truth("infeasible")
        value = np.where(fits, grid @ c + case.bent(grid), np.inf)
        best = int(value.argmin())
        return Truth("optimal", float(value[best]), grid[best], scale_of(c, grid[best], float(case.bent(grid[best]))))
    if points > MOST_MIXED:
        return Truth("unknown")
    found = []
    for point in itertools.product(*ranges):
        inner, outer = lower.copy(), upper.copy()
        inner[whole] = outer[whole] = point
        if Q is None:
            found.append(_told(c, exact_lp(c, case.A, b, case.G, h, inner, outer)))
        else:
            found.append(_quadratic(case, Q, c, b, h, inner, outer))
    for status in ("unbounded", "unknown"):
        if any(truth.status == status for truth in found):
            return Truth(status)
    optimal = (truth for truth in found if truth.status == "optimal")
    return min(optimal, key=lambda truth: truth.objective, default=Truth("infeasible"))


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
    relaxed = _set_of(case, b, h, lower, upper).minimize(c)
    if relaxed.status == "infeasible":
        return Truth("infeasible")
    ends = [np.arange(max(a, -3), min(z, 3) + 1) for a, z in zip(np.ceil(lower), np.floor(upper), strict=True)]
    if relaxed.status == "unbounded" and case.integer.all() and np.prod([len(e) for e in ends]) <= MOST_POINTS:
        grid = np.array(list(itertools.product(*ends)))
        if (((grid @ case.A.T == b).all(1)) & ((grid @ case.G.T <= h).all(1))).any():
            return Truth("unbounded")
    return Truth("unknown")


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


def _quadratic(
    case: Case, Q: np.ndarray, c: np.ndarray, b: Any, h: Any, lower: Any, upper: Any, definite: bool = False
) -> Truth:
    """min cᵀw + ½ wᵀQ w: in rationals on the face that Clarabel finds, or by the duality gap of its answer."""
    if (emptiness := emptiness_of(case, b, h, lower, upper)) != "feasible":
        return Truth(emptiness)
    if not (definite or (np.isfinite(lower).all() and np.isfinite(upper).all())):
        # Unbounded along directions in which the objective is linear and costs fall.
        low, high = np.where(np.isfinite(lower), 0.0, -1.0), np.where(np.isfinite(upper), 0.0, 1.0)
        flat = np.vstack([case.A, Q])
        fall = exact_lp(c, flat, np.zeros(len(flat)), case.G, np.zeros(len(case.G)), low, high)
        if fall.objective is not None and fall.objective < 0:
            return Truth("unbounded")
    matrix, right, equations = all_rows(case, b, h, lower, upper)
    cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
    found = by_clarabel(Q, c, matrix, right, cones)
    slack, price, rows = np.array(found.s), np.array(found.z), np.column_stack([matrix, right])
    w = by_pivots(slack, price, equations, lambda active: _on_face(Q, c, rows, active, equations))
    exact = w is not None
    if w is None:
        w, binds = np.clip(np.array(found.x), lower, upper), np.arange(len(right)) < equations
        price = np.where(binds, price, np.maximum(price, 0.0))
        slope, gap = c + matrix.T @ price, matrix @ w - right
        # The minimum of the Lagrangian; where Q is singular, at w, if its slope there is zero.
        lowest = -0.5 * slope @ np.linalg.solve(Q, slope) if definite else -0.5 * w @ Q @ w
        left = 0.0 if definite else np.abs(Q @ w + slope).max(initial=0.0)
        value = float(c @ w + 0.5 * w @ Q @ w)
        broken = max(gap[equations:].max(initial=0.0), np.abs(gap[:equations]).max(initial=0.0))
        # Both: a penalty of 1e8 makes much of a row that is missed by 1e-13.
        sure = abs(value - float(lowest - right @ price)) <= UNSURE * scale_of(c, w, abs(value))
        if not (sure and max(left, broken) <= UNSURE):
            return Truth("unknown")
    bent = float(0.5 * w @ Q @ w)
    return Truth("optimal", float(c @ w) + bent, w, scale_of(c, w, bent), exact)


def by_pivots(
    slack: np.ndarray, price: np.ndarray, equations: int, solve: Callable[[np.ndarray], np.ndarray | int | None]
) -> np.ndarray | None:
    """The decision at the rows that bind, guessed from slacks and prices and mended row by row (Murty's least index). solve:
    takes which rows bind `(rows,)`; gives the decision, or the first row that should change sides, or nothing."""
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


def _on_face(Q: np.ndarray, c: np.ndarray, rows: Any, active: np.ndarray, equations: int) -> np.ndarray | int | None:
    """Q w + c + Mᵀλ = 0, M w = right on the active rows, in exact arithmetic; as of `by_pivots`. rows: all (M, right)."""
    n, some = len(c), np.flatnonzero(active)
    M = rows[some]
    system = np.vstack(
        [np.column_stack([Q, M[:, :-1].T, -c]), np.column_stack([M[:, :-1], np.zeros((len(M), len(M))), M[:, -1]])]
    )
    found = solve_exactly(whole_rows(system))
    if found is None:
        return None
    point, price, one = found[0][:n], found[0][n:], found[1]
    whole = whole_rows(rows)
    gap = whole[:, :-1] @ point - whole[:, -1] * one
    wrong = gap > 0
    wrong[:equations] |= gap[:equations] < 0
    wrong[some] |= (price < 0) & (some >= equations)
    if wrong.any():  # the first row that is broken or has a price of the wrong sign
        first = int(np.argmax(wrong))
        return first if first >= equations else None
    return np.array([float(Fraction(value, one)) for value in point])


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
    cones = [clarabel.ZeroConeT(equations), clarabel.NonnegativeConeT(len(right) - equations)]
    cones.append(clarabel.SecondOrderConeT(n + 1))
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
