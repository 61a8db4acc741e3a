"""SCIP, for integer programs with a convex quadratic objective, which HiGHS does not solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.engine.hard.scaling import power_of_two
from dflearn.errors import ProgramError, optional
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Status
from dflearn.solvers.convex import Found, QuadraticModel
from dflearn.solvers.highs import ModelSolver
from dflearn.solvers.model import Model

TOLERANCE = 1e-7  # of SCIP's nonlinear constraint, which holds the quadratic part
GAP = 2e-7  # below this it branches without end on what is rounding
SMALLEST, NODES = 1e-6, 1_000  # unit of a second solve, and its nodes: there, rounding may be branched on, too
STATUSES: dict[str, Status | None] = {
    "optimal": Status.OPTIMAL, "gaplimit": Status.OPTIMAL, "infeasible": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED, "inforunbd": None,
}  # fmt: skip
LIMITS = ("timelimit", "memlimit", "nodelimit", "bestsollimit")


class SCIP(ModelSolver):
    """Exact integer QPs on SCIP, through the package pyscipopt. Arguments: as of `HiGHS`.

    LPs and MILPs are HiGHS's, and so are QPs without integers.

    Examples:
        >>> whole = dfl.Program(n=2, upper=3, integer=True, Q=np.eye(2))
        >>> dfl.SCIP(whole).solve(torch.tensor([-2.2, -0.7])).decision
        tensor([2., 1.])
    """

    def __init__(self, program: Program, *, time_limit: float = np.inf, gap: float = 0.0, threads: int = 1) -> None:
        _pyscipopt()
        if program.Q is None or not program.is_integer:
            raise ProgramError(
                f"SCIP is here for integer programs with a quadratic objective; use HiGHS for {program!r}"
            )
        super().__init__(program, time_limit=time_limit, gap=gap, threads=threads)

    @property
    def identity(self) -> str:
        version = _pyscipopt().Model().version()
        return f"SCIP {version} time_limit={self.time_limit} gap={self.gap} threads={self.threads}"

    def _build(self, program: Program) -> Model:
        raise ProgramError("SCIP is here for integer programs with a quadratic objective")

    def _solve_quadratic(self, c: np.ndarray, sides: Sides) -> Raw:
        return _SCIPModel(self, self.program).solve(c, sides, self.convex, self.gap)


class _SCIPModel(QuadraticModel):
    def __init__(self, solver: SCIP, program: Program) -> None:
        super().__init__(program)
        self.time_limit, self.gap = solver.time_limit, solver.gap
        self.rows = sp.vstack([self.scaled.A, self.scaled.G], format="csr")

    def run(self, c: np.ndarray, gamma: float, sides: Sides) -> Found:
        """Where the optimum is small beside the tolerance of the quadratic part, it is solved for again, in units of it."""
        found = self.run_once(c, gamma, sides)
        if found.status is Status.OPTIMAL:
            size = float(np.abs(c * found.w).sum() + gamma * self.Q.value(found.w))
            unit = float(power_of_two(np.array(max(size, SMALLEST))))
            if size > 0 and unit < 1:
                again = self.run_once(c / unit, gamma / unit, sides, NODES)
                if again.status is not None and again.status.has_decision:
                    return Found(Status.OPTIMAL, again.w, max(found.bound, again.bound * unit))
        return found

    def run_once(self, c: np.ndarray, gamma: float, sides: Sides, nodes: int = -1) -> Found:
        """A model is built for each instance: SCIP forgets what it presolved, and starts cold."""
        scip = _pyscipopt()
        model, n = scip.Model(), self.program.n
        model.hideOutput()
        if np.isfinite(self.time_limit):
            model.setParam("limits/time", self.time_limit)
        model.setParam("limits/gap", max(self.gap, GAP))
        model.setParam("limits/nodes", nodes)
        model.setParam("numerics/feastol", TOLERANCE)
        kinds = np.where(self.program.integer, "I", "C")

        def end(value: float) -> float | None:
            return float(value) if np.isfinite(value) else None

        w = [model.addVar(lb=end(sides.lower[j]), ub=end(sides.upper[j]), vtype=str(kinds[j])) for j in range(n)]
        right = np.concatenate([sides.b, sides.h])
        for i in range(self.rows.shape[0]):
            part = slice(self.rows.indptr[i], self.rows.indptr[i + 1])
            total = scip.quicksum(
                float(a) * w[j] for j, a in zip(self.rows.indices[part], self.rows.data[part], strict=True)
            )
            model.addCons(total == float(right[i]) if i < len(sides.b) else total <= float(right[i]))
        cost = scip.quicksum(float(c[j]) * w[j] for j in range(n))
        if gamma > 0:
            Q = sp.triu(self.Q.matrix, format="coo")
            entries = zip(*Q.coords, Q.data * np.where(Q.coords[0] == Q.coords[1], 0.5, 1.0), strict=True)
            t = model.addVar(lb=0.0, ub=None)
            model.addCons(scip.quicksum(float(gamma * q) * w[i] * w[j] for i, j, q in entries) <= t)
            cost = cost + t
        model.setObjective(cost, "minimize")
        try:
            model.optimize()
        except Exception:  # numerical trouble is a bare Exception of pyscipopt
            return Found(Status.FAILED, np.full(n, np.nan), -np.inf)
        if model.getStatus() == "userinterrupt":  # SCIP catches Ctrl-C in place of Python
            raise KeyboardInterrupt
        status = STATUSES.get(model.getStatus(), Status.FAILED)
        if model.getStatus() in LIMITS:
            status = Status.FEASIBLE if model.getNSols() else Status.NOT_FOUND
        if status is None or not status.has_decision:
            return Found(status, np.full(n, np.nan), -np.inf)
        best = model.getBestSol()
        return Found(status, np.array([best[one] for one in w]), float(model.getDualbound()))


def _pyscipopt() -> Any:
    return optional("pyscipopt", "scip", "SCIP")
