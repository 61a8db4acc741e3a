"""One smoothed LP alone: the slow way for what the kernels did not finish.

And the check of its answers, row by row and variable by variable, in plain linear algebra.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.layers.augmented import ATTEMPTS, Face, InteriorPoint, Quadratic, balanced
from dflearn.program import Program, Quadratic as Curvature
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.convex import ConvexQP, Quality
from dflearn.solvers.highs import HiGHS

TIME_LIMIT = 20.0  # seconds of one instance
TOLERANCE = 1e-11  # of the relative residual
ENOUGH = 1e-6  # a residual that needs no other attempt
ROUNDING = 16 * float(np.finfo(np.float64).eps)
SILENT = 64.0  # times the rounding of the largest decision: a row whose terms are smaller says nothing
FAR_PRICE = 10.0  # times the largest cost
NO_PRICE = 1e-9  # beside the terms of every variable of its row
NOTHING = 1e-9  # a price beside the largest, or a gap to a bound beside the largest decision, that may be rounding


class Result(NamedTuple):
    """Decision `(n,)`, relative KKT residual, and the face: variables inside their bounds, rows of Â in force."""

    status: Status
    w: np.ndarray
    residual: float
    inside: np.ndarray
    in_force: np.ndarray


def no_result(program: Program, status: Status) -> Result:
    """The result of an instance without a decision."""
    rows = program.equality_form().matrix.shape[0]
    return Result(status, np.full(program.n, np.nan), np.inf, np.zeros(program.n, np.uint8), np.ones(rows, np.uint8))


def no_feasible_point(program: Program, sides: Sides, count: int) -> np.ndarray:
    """Which of so many instances are proven to have no feasible point.  bool `(count,)`"""
    try:
        return HiGHS(program, time_limit=TIME_LIMIT).proven_infeasible(sides, count)
    except ProgramError:  # its numbers span more than HiGHS can hold
        return np.zeros(count, bool)


def solve_alone(program: Program, c: np.ndarray, mu: float, sides: Sides, time_limit: float = TIME_LIMIT) -> Result:
    """min cᵀw + (μ/2)‖w‖² over the program's rows and bounds, for one instance, in at most so many seconds.

    OPTIMAL with the residual of the best answer found, which may be large; FAILED where there is none.
    """
    ends, best = time.monotonic() + time_limit, no_result(program, Status.FAILED)
    equalities, form = program.A.shape[0], program.equality_form()
    matrix = sp.csr_array(sp.vstack([program.A, program.G]))
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    lengths[lengths == 0] = 1.0
    matrix = sp.csr_array(sp.diags_array(1 / lengths) @ matrix)
    right = np.concatenate([sides.b, sides.h]) / lengths
    free, kept = sides.lower < sides.upper, np.concatenate([form.kept, np.arange(equalities, len(right))])
    w, y = np.where(free, 0.0, sides.lower), np.zeros(len(right))
    if not free.any():  # nothing is left to decide
        residual, _ = judge(w, y, c, mu, matrix, right, equalities, sides)
        return best if residual > ENOUGH else best._replace(status=Status.OPTIMAL, w=w, residual=residual)
    sums, bounds = (right - matrix @ w)[kept], (sides.lower[free], sides.upper[free])
    own = Quadratic(c[free], np.full(int(free.sum()), mu), matrix[kept][:, free], sums, len(form.kept), *bounds)
    for regularization, wider in ATTEMPTS:
        same, units = balanced(own, wider)
        for found in _answers(same, regularization, ends):
            w[free] = np.clip(units.columns * found[0], *bounds)
            y[kept] = units.rows * np.where(same.inequality, np.maximum(found[1], 0.0), found[1])
            residual, shares = judge(w, y, c, mu, matrix, right, equalities, sides)
            if residual < best.residual:
                inside, in_force = (w > sides.lower) & (w < sides.upper), ~same.inequality | (shares[kept] > NO_PRICE)
                best = Result(Status.OPTIMAL, w.copy(), residual, inside.astype(np.uint8), in_force.astype(np.uint8))
            if residual <= TOLERANCE:
                return best
        if best.residual <= ENOUGH:
            return best
    other = _by_other_scales(program, c, mu, sides, ends - time.monotonic())
    if other is not None:
        w, y = np.clip(other.w, sides.lower, sides.upper), -other.y * lengths
        y[equalities:] = np.maximum(y[equalities:], 0.0)
        residual, shares = judge(w, y, c, mu, matrix, right, equalities, sides)
        if residual <= ENOUGH:
            inside, in_force = (w > sides.lower) & (w < sides.upper), ~same.inequality | (shares[kept] > NO_PRICE)
            best = Result(Status.OPTIMAL, w, residual, inside.astype(np.uint8), in_force.astype(np.uint8))
    return best


def _by_other_scales(program: Program, c: np.ndarray, mu: float, sides: Sides, seconds: float) -> Quality | None:
    """What the solver of quadratic programs finds, which scales rows and columns in another way."""
    smoothed = replace(program.relax(), Q=Curvature(diagonal=np.full(program.n, mu)))
    with np.errstate(all="ignore"):
        return ConvexQP(smoothed, max(seconds, 1.0)).best(c, sides)


def _answers(program: Quadratic, regularization: float, ends: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """w and y of each point of the interior-point method that may be the answer: put onto its face, then corrected."""
    with contextlib.suppress(FloatingPointError), np.errstate(all="ignore"):
        for point in InteriorPoint(program, regularization).run(ends):
            face = Face.of(program, point)
            found = face.snapped(program, point)
            yield found
            found = face.corrected(program, *found, regularization)
            if all(np.isfinite(part).all() for part in found):
                yield found
                yield _rounded(program, *found)


def _rounded(program: Quadratic, w: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w and y with what is next to nothing set to nothing: where costs and sides are zero, both only ever get smaller."""
    near = NOTHING * np.abs(w).max(initial=0.0)
    for bound in (program.lower, program.upper):
        w = np.where(np.abs(w - bound) <= near, bound, w)
    return w, np.where(np.abs(y) <= NOTHING * np.abs(y).max(initial=0.0), 0.0, y)


class Judgement(NamedTuple):
    """residual: the largest of all relative residuals. shares `(rows,)`: what the price of each row means to the variable that
    feels it most, its term beside all of that variable's."""

    residual: float
    shares: np.ndarray


def judge(
    w: np.ndarray,
    y: np.ndarray,
    c: np.ndarray,
    mu: float,
    matrix: sp.csr_array,
    right: np.ndarray,
    equalities: int,
    sides: Sides,
) -> Judgement:
    """w and the prices y, y ≥ 0 on inequalities; rows are equalities first.

    Each violation is divided by the terms of its own row or variable. What is rounding and what is not: see `kernels.optimality`.
    """
    sizes, costs, pulls = abs(matrix), np.abs(c), mu * np.abs(w)
    reduced, terms = c + mu * w + matrix.T @ y, costs + pulls + sizes.T @ np.abs(y)
    wrong = np.maximum(np.where(w < sides.upper, -reduced, 0.0), np.where(w > sides.lower, reduced, 0.0))
    wrong = np.maximum(wrong, 0.0)
    inside, largest = (w > sides.lower) & (w < sides.upper), np.abs(w).max(initial=0.0)
    felt = np.where(inside, np.maximum(costs, pulls), pulls).max(initial=0.0)
    most = FAR_PRICE * max(costs.max(initial=0.0), pulls.max(initial=0.0))
    faint, quiet = ROUNDING * max(felt, min(np.abs(y).max(initial=0.0), most)), ROUNDING * largest
    with np.errstate(divide="ignore", invalid="ignore"):
        stationarity = np.where(terms > faint, wrong / terms, 0.0)
        gap, around = matrix @ w - right, np.abs(right) + sizes @ np.abs(w)
        rows = np.where((np.abs(gap) > quiet) | (around > SILENT * quiet), np.abs(gap) / around, 0.0)
        beside = sp.csr_array(sizes @ sp.diags_array(np.where(terms > faint, 1 / terms, 0.0))).max(axis=1).toarray()
    shares: np.ndarray = np.abs(y) * beside.reshape(-1)
    idle = (np.arange(len(right)) >= equalities) & (gap <= 0)
    room = np.minimum(np.where(reduced > 0, w - sides.lower, sides.upper - w), largest)
    loss = np.where(rows > 0, np.abs(gap * y), 0.0).sum() + np.where(stationarity > 0, wrong * room, 0.0).sum()
    value = np.abs(c * w).sum() + 0.5 * mu * (w @ w)
    rows[idle] = np.minimum(rows, shares)[idle]
    missed = loss / (value + loss) if loss > faint * largest else 0.0
    return Judgement(float(max(stationarity.max(initial=0.0), rows.max(initial=0.0), missed)), shares)
