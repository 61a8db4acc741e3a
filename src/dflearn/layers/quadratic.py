"""One smoothed LP by HiGHS's quadratic solver: slow and sure, for instances that the kernels did not finish."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HighsHandle

AT_BOUND = 1e-7  # relative distance at which a variable or row counts as at its bound


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


def solve_with_highs(program: Program, c: np.ndarray, mu: float, sides: Sides) -> Result:
    """min cᵀw + (μ/2)‖w‖² over the program's rows and bounds, for one instance."""
    form = program.equality_form()
    n, rows = program.n, program.A.shape[0] + program.G.shape[0]
    scale = max(float(np.abs(c).max(initial=0.0)), mu)
    try:
        handle = HighsHandle(program, sides)
    except ProgramError:  # numbers that HiGHS takes for infinite
        return no_result(program, Status.FAILED)
    highs, status = handle.highs, handle.highspy.HighsModelStatus
    if handle.run() == status.kInfeasible:  # with costs zero: is there any feasible point?
        return no_result(program, Status.INFEASIBLE)
    columns = np.arange(n, dtype=np.int32)
    # In units of μ: HiGHS adds 1e-7 to the Hessian, which must not count beside its entries.
    highs.changeColsCost(n, columns, c / mu)
    hessian = handle.highspy.HessianFormat.kTriangular
    highs.passHessian(n, n, int(hessian), np.arange(n + 1, dtype=np.int32), columns, np.ones(n))
    handle.set_option("qp_iteration_limit", 1000 + 100 * (n + rows))  # it is known to cycle
    if handle.run() != status.kOptimal:
        return no_result(program, Status.FAILED)
    solution = highs.getSolution()
    w = np.clip(np.array(solution.col_value), sides.lower, sides.upper)
    y = -np.array(solution.row_dual) * (mu / scale)
    slack = sides.h - program.G @ w
    width = 1 + np.abs(w)
    inside = (w - sides.lower > AT_BOUND * width) & (sides.upper - w > AT_BOUND * width)
    in_force = np.ones(form.matrix.shape[0], bool)
    in_force[len(form.kept) :] = (slack <= AT_BOUND * (1 + np.abs(sides.h))) & (y[program.A.shape[0] :] > AT_BOUND)
    # The residual of w = clip(−(c + Mᵀy)/μ), and of the rows.
    implied = np.clip(-(c / scale + sp.vstack([program.A, program.G]).T @ y) / (mu / scale), sides.lower, sides.upper)
    gap = np.abs(program.A @ w - sides.b).max(initial=0.0), np.maximum(-slack, 0).max(initial=0.0)
    size = 1 + max(np.abs(sides.b).max(initial=0.0), np.abs(sides.h).max(initial=0.0))
    residual = max(float(np.abs(implied - w).max(initial=0.0)) * mu / scale, max(gap) / size)
    return Result(Status.OPTIMAL, w, residual, inside.astype(np.uint8), in_force.astype(np.uint8))
