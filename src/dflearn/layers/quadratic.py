"""One smoothed LP by HiGHS's own quadratic solver: the slow way for what the kernels did not finish.

And the check of its answers, row by row and variable by variable, in plain linear algebra.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS, HighsHandle
from dflearn.solvers.model import SMALLEST

TIME_LIMIT = 10.0  # seconds; HiGHS's quadratic solver is known to cycle
ROUNDING = 16 * float(np.finfo(np.float64).eps)
AT_BOUND = 1e-9  # distance from a bound, or price, beside the size of the instance, that counts as none


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


def solve_with_highs(
    program: Program, c: np.ndarray, mu: float, sides: Sides, time_limit: float = TIME_LIMIT
) -> Result:
    """min cᵀw + (μ/2)‖w‖² over the program's rows and bounds, for one instance, in at most so many seconds."""
    n, equalities = program.n, program.A.shape[0]
    matrix = sp.csr_array(sp.vstack([program.A, program.G]))
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).reshape(-1))
    lengths[lengths == 0] = 1.0
    matrix = sp.csr_array(sp.diags_array(1 / lengths) @ matrix)
    right = np.concatenate([sides.b, sides.h]) / lengths
    size = decision_size(c, mu, right, equalities, sides)
    own = Sides(right[:equalities] / size, right[equalities:] / size, sides.lower / size, sides.upper / size)
    same = Program(
        A=matrix[:equalities], b=own.b, G=matrix[equalities:], h=own.h, lower=own.lower, upper=own.upper, n=n
    )
    try:
        handle = HighsHandle(same, own, small_matrix_value=SMALLEST)
    except ProgramError:  # numbers that HiGHS takes for infinite
        return no_result(program, Status.FAILED)
    if np.abs(matrix.data).min(initial=1.0) <= SMALLEST:  # HiGHS would solve another program
        return no_result(program, Status.FAILED)
    highs, status = handle.highs, handle.highspy.HighsModelStatus
    columns = np.arange(n, dtype=np.int32)
    # In units of μ: HiGHS adds 1e-7 to the Hessian, which must not count beside its entries.
    highs.changeColsCost(n, columns, c / (mu * size))
    hessian = handle.highspy.HessianFormat.kTriangular
    highs.passHessian(n, n, int(hessian), np.arange(n + 1, dtype=np.int32), columns, np.ones(n))
    handle.set_option("qp_iteration_limit", 1000 + 100 * (n + len(right)))
    if handle.run(time_limit) != status.kOptimal:
        return no_result(program, Status.FAILED)
    solution = highs.getSolution()
    w = np.clip(np.array(solution.col_value), own.lower, own.upper)
    y = -np.array(solution.row_dual)
    w = np.where(w - own.lower <= AT_BOUND, own.lower, np.where(own.upper - w <= AT_BOUND, own.upper, w))
    slack, price = own.h - matrix[equalities:] @ w, y[equalities:]
    y[equalities:] = np.where(slack <= AT_BOUND, np.maximum(price, 0.0), 0.0)
    residual = relative_residual(w, y, c / (mu * size), 1.0, matrix, right / size, equalities, own)
    in_force = np.ones(program.equality_form().matrix.shape[0], bool)
    in_force[len(program.equality_form().kept) :] = y[equalities:] > AT_BOUND * np.abs(y).max(initial=0.0)
    inside = (w > own.lower) & (w < own.upper)
    w = np.clip(size * w, sides.lower, sides.upper)
    return Result(Status.OPTIMAL, w, residual, inside.astype(np.uint8), in_force.astype(np.uint8))


def decision_size(c: np.ndarray, mu: float, right: np.ndarray, equalities: int, sides: Sides) -> float:
    """A power of two about as large as the decision, from rows of length one: what the sides force upon it, or else the
    largest of them, or else how far costs pull it."""
    forced = np.concatenate([np.abs(right[:equalities]), -right[equalities:], sides.lower, -sides.upper])
    given = np.abs(np.concatenate([right, sides.lower, sides.upper]))
    for sizes in (forced, given[np.isfinite(given)], np.abs(c) / mu):
        if (size := float(sizes.max(initial=0.0))) > 0:
            return float(2.0 ** np.floor(np.log2(size)))
    return 1.0


def relative_residual(
    w: np.ndarray,
    y: np.ndarray,
    c: np.ndarray,
    mu: float,
    matrix: sp.csr_array,
    right: np.ndarray,
    equalities: int,
    sides: Sides,
) -> float:
    """The largest of all relative residuals of w and the prices y, y ≥ 0 on inequalities; rows are equalities first.

    Each violation is divided by the terms of its own row or variable: see `kernels.optimality`.
    """
    sizes = abs(matrix)
    reduced, terms = c + mu * w + matrix.T @ y, np.abs(c) + mu * np.abs(w) + sizes.T @ np.abs(y)
    wrong = np.maximum(np.where(w < sides.upper, -reduced, 0.0), np.where(w > sides.lower, reduced, 0.0))
    faint = ROUNDING * max(np.abs(c).max(initial=0.0), np.abs(y).max(initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        stationarity = np.where(terms > faint, np.maximum(wrong, 0.0) / terms, 0.0)
        gap, around = matrix @ w - right, np.abs(right) + sizes @ np.abs(w)
        rows = np.where(np.abs(gap) > ROUNDING * np.abs(w).max(initial=0.0), np.abs(gap) / around, 0.0)
        beside = sp.csr_array(sizes @ sp.diags_array(np.where(terms > faint, 1 / terms, 0.0))).max(axis=1).toarray()
    price = np.abs(y) * beside.reshape(-1)
    idle = (np.arange(len(right)) >= equalities) & (gap <= 0)
    room = np.minimum(np.where(reduced > 0, w - sides.lower, sides.upper - w), np.abs(w).max(initial=0.0))
    loss = np.where(rows > 0, np.abs(gap * y), 0.0).sum() + np.where(stationarity > 0, wrong * room, 0.0).sum()
    value = np.abs(c * w).sum() + 0.5 * mu * (w @ w)
    rows[idle] = np.minimum(rows, price)[idle]
    missed = loss / (value + loss) if loss > faint * np.abs(w).max(initial=0.0) else 0.0
    return float(max(stationarity.max(initial=0.0), rows.max(initial=0.0), missed))
