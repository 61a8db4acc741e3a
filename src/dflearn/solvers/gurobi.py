"""Gurobi, as an exact solver of LPs, MILPs and integer QPs under the same contract as HiGHS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.errors import SolverError, optional
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw, Status
from dflearn.solvers.convex import Found, QuadraticModel
from dflearn.solvers.highs import HiGHS, ModelSolver
from dflearn.solvers.model import Model

# Gurobi's codes of a basis, by ours: at lower bound, basic, at upper bound, free at zero.
VARIABLE_CODES = np.array([-1, 0, -2, -3])
ROW_CODES = np.array([-1, 0, -1, -1])

REMEDIES = {  # by Gurobi's error number
    10009: "no licence was found: install one (gurobi.com has free academic ones) or use HiGHS",
    10010: "the licence that comes with gurobipy solves small models only (2000 variables, 2000 rows): install a full "
    "licence or use HiGHS",
}


class Gurobi(ModelSolver):
    """Exact LP, MILP and integer QP solver on Gurobi. Arguments: as of `HiGHS`.

    QPs without integers are solved as by `HiGHS`.

    Examples:
        >>> dfl.Gurobi(program, time_limit=10.0).solve(data.costs[:1]).decision.sum()
        tensor(4.)
    """

    def __init__(self, program: Program, *, time_limit: float = np.inf, gap: float = 0.0, threads: int = 1) -> None:
        _gurobipy()
        super().__init__(program, time_limit=time_limit, gap=gap, threads=threads)

    @property
    def identity(self) -> str:
        version = ".".join(map(str, _gurobipy().gurobi.version()))
        return f"Gurobi {version} time_limit={self.time_limit} gap={self.gap} threads={self.threads}"

    @property
    def next_solver(self) -> ModelSolver:
        """HiGHS. Gurobi counts 1e-5 as an integer, which a big M turns into a broken row."""
        return HiGHS(self.program, time_limit=self.time_limit, gap=self.gap, threads=self.threads)

    def _build(self, program: Program) -> Model:
        return _GurobiModel(self, program)

    def _solve_quadratic(self, c: np.ndarray, sides: Sides) -> Raw:
        if not self.program.is_integer:
            return super()._solve_quadratic(c, sides)
        return _GurobiQuadratic(self).solve(c, sides, self.convex, self.gap)


class _GurobiModel(Model):
    def __init__(self, solver: Gurobi, program: Program) -> None:
        super().__init__(program, solver._build, solver.time_limit)
        program = self.scaled
        self.gurobipy = _gurobipy()
        try:
            environment = self.gurobipy.Env(params={"OutputFlag": 0})
            self.model = self.gurobipy.Model(env=environment)
        except self.gurobipy.GurobiError as error:
            raise _explained(error, program) from error
        for name, value in (
            ("TimeLimit", solver.time_limit),
            ("MIPGap", solver.gap),
            ("MIPGapAbs", 1e-9),
            ("Threads", solver.threads),
            ("Seed", 0),
        ):
            self.model.setParam(name, value)
        kinds = np.where(program.integer, self.gurobipy.GRB.INTEGER, self.gurobipy.GRB.CONTINUOUS)
        self.w = self.model.addMVar(self.n, lb=program.lower, ub=program.upper, vtype=kinds)
        self.equality = self.model.addMConstr(sp.csr_matrix(program.A), self.w, "=", program.b)
        self.inequality = self.model.addMConstr(sp.csr_matrix(program.G), self.w, "<", program.h)
        self.model.update()
        self.variables = self.model.getVars()
        self.constraints = self.model.getConstrs()
        code = self.gurobipy.GRB
        self.statuses = {
            code.OPTIMAL: Status.OPTIMAL,
            code.INFEASIBLE: Status.INFEASIBLE,
            code.UNBOUNDED: Status.UNBOUNDED,
            code.INF_OR_UNBD: None,
        }
        self.limits = {code.TIME_LIMIT, code.ITERATION_LIMIT, code.NODE_LIMIT, code.MEM_LIMIT, code.WORK_LIMIT}

    def change_rows(self, b: np.ndarray, h: np.ndarray) -> None:
        if self.equalities:
            self.equality.RHS = b
        if self.inequalities:
            self.inequality.RHS = h

    def change_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.w.LB, self.w.UB = lower, upper

    def run(self, c: np.ndarray, basis: np.ndarray | None) -> Status | None:
        model = self.model
        self.w.Obj = c
        model.reset()
        if basis is not None:
            model.setAttr("VBasis", self.variables, VARIABLE_CODES[basis[: self.n]].tolist())
            model.setAttr("CBasis", self.constraints, ROW_CODES[basis[self.n :]].tolist())
        return self.optimize()

    def optimize(self) -> Status | None:
        """Solve what the object holds. Gurobi catches Ctrl-C in place of Python, and only reports it by a status."""
        model = self.model
        try:
            model.optimize()
        except self.gurobipy.GurobiError as error:
            raise _explained(error, self.program) from error
        if model.Status == self.gurobipy.GRB.INTERRUPTED:
            raise KeyboardInterrupt
        if model.Status in self.limits:
            return Status.FEASIBLE if model.SolCount else Status.NOT_FOUND
        return self.statuses.get(model.Status, Status.FAILED)

    def decision(self) -> np.ndarray:
        return np.array(self.model.getAttr("X", self.variables))

    def decision_and_prices(self) -> tuple[np.ndarray, np.ndarray]:
        optimal = self.model.Status == self.gurobipy.GRB.OPTIMAL
        y = np.array(self.model.getAttr("Pi", self.constraints), dtype=float) if optimal else np.zeros(self.rows)
        return self.decision(), y

    def be_strict(self, strict: bool, presolve: bool = False) -> None:
        self.model.setParam(
            "Presolve", 0 if strict and not presolve else -1
        )  # another way to the answer, beside other tolerances
        self.model.setParam("IntFeasTol", 1e-9 if strict else 1e-5)
        for name in ("FeasibilityTol", "OptimalityTol"):
            self.model.setParam(name, 1e-9 if strict else 1e-6)

    def bound(self) -> float:
        return float(self.model.ObjBound)

    def basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        variables = np.array(self.model.getAttr("VBasis", self.variables), dtype=np.int64)
        rows = np.array(self.model.getAttr("CBasis", self.constraints), dtype=np.int64)
        codes[: self.n] = np.array([Basis.BASIC, Basis.AT_LOWER, Basis.AT_UPPER, Basis.AT_ZERO])[-variables]
        codes[self.n : self.n + self.equalities] = Basis.AT_LOWER
        codes[self.n + self.equalities :] = Basis.AT_UPPER
        codes[self.n :][rows == 0] = Basis.BASIC


class _GurobiQuadratic(QuadraticModel):
    """Integer programs with Q, on the model object of the others, with variables z = R w besides."""

    def __init__(self, solver: Gurobi) -> None:
        super().__init__(solver.program)
        self.held = _GurobiModel(solver, replace(solver.program, Q=None))
        self.held.be_strict(True)
        model, infinity = self.held.model, self.held.gurobipy.GRB.INFINITY
        self.z = model.addMVar(self.Q.factor.shape[0], lb=-infinity)
        if self.z.size:
            model.addConstr(sp.csr_matrix(self.Q.factor) @ self.held.w - self.z == 0)
        model.update()

    def run(self, c: np.ndarray, gamma: float, sides: Sides) -> Found:
        held, model = self.held, self.held.model
        held.set_sides(sides)
        w = held.w
        curved = w @ sp.csr_matrix(sp.diags_array(0.5 * gamma * self.Q.diagonal)) @ w
        model.setObjective(c @ w + curved + 0.5 * gamma * (self.z @ self.z if self.z.size else 0.0))
        model.reset()
        status = held.optimize()
        if status is None or not status.has_decision:
            return Found(status, np.full(held.n, np.nan), -np.inf)
        return Found(status, held.decision(), held.bound())


def _gurobipy() -> Any:
    return optional("gurobipy", "gurobi", "Gurobi")


def _explained(error: Any, program: Program) -> SolverError:
    remedy = REMEDIES.get(error.errno, "see the message of Gurobi")
    return SolverError(f"Gurobi could not solve {program!r} ({error}): {remedy}")
