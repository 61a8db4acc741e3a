"""Quadratic objectives from files and models: the same Q by every way, and the optimum of the model's own solver."""

from __future__ import annotations

from pathlib import Path

import cvxpy
import gurobipy
import numpy as np
import pyomo.environ as pe
import pytest
import torch

import dflearn as dfl
from dflearn.errors import ProgramError
from dflearn.program import Program

Q = np.array([[2.0, 3, 0], [3, 8, 0], [0, 0, 0]])
Y = torch.tensor([-1.0, 2, 3], dtype=torch.float64)

MPS = """NAME portfolio
ROWS
 N  cost
 E  budget
COLUMNS
    x  cost  1  budget  1
    y  cost  1  budget  1
    z  cost  1  budget  1
RHS
    RHS  budget  1
{section}
ENDATA
"""
LP = """minimize
 cost: x + y + z + [ 2 x^2 + 6 x * y + 8 y^2 ] / 2
subject to
 budget: x + y + z = 1
end
"""


def check(program: Program, sign: float = 1.0) -> None:
    """min yᵀw + ½ wᵀQ w over the simplex, by definition and by its optimum."""
    assert program.Q is not None
    np.testing.assert_allclose(program.Q.matrix.toarray()[:3, :3], Q)
    w = cvxpy.Variable(3)
    root = np.linalg.cholesky(Q[:2, :2] + 1e-15 * np.eye(2)).T
    objective = sign * Y.numpy() @ w + 0.5 * cvxpy.sum_squares(root @ w[:2])
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(w) == 1, w >= 0])
    problem.solve(solver="CLARABEL")
    found = dfl.HiGHS(program).solve(Y).check()
    assert float(found.objective) == pytest.approx(problem.value, abs=1e-6)


@pytest.mark.parametrize(
    "section",
    ["QUADOBJ\n    x  x  2\n    x  y  3\n    y  y  8", "QMATRIX\n    x  x  2\n    x  y  3\n    y  x  3\n    y  y  8"],
)
def test_mps(section: str, tmp_path: Path) -> None:
    path = tmp_path / "portfolio.mps"
    path.write_text(MPS.format(section=section))
    check(dfl.from_mps(path))
    path.write_text(MPS.format(section="QUADOBJ\n    x  x  2\n    x  y  9\n    y  y  8"))
    with pytest.raises(ProgramError, match="not positive semidefinite"):
        dfl.from_mps(path)


def test_lp(tmp_path: Path) -> None:
    path = tmp_path / "portfolio.lp"
    path.write_text(LP)
    check(dfl.from_lp(path))


@pytest.mark.parametrize("maximize", [False, True])
def test_gurobi(maximize: bool) -> None:
    model = gurobipy.Model(env=gurobipy.Env(params={"OutputFlag": 0}))
    w = model.addMVar(3)
    model.addConstr(w.sum() == 1)
    sign = -1 if maximize else 1
    model.setObjective(sign * (0.5 * w @ Q @ w) + w.sum(), gurobipy.GRB.MAXIMIZE if maximize else gurobipy.GRB.MINIMIZE)
    check(dfl.from_gurobi(model), sign)
    model.setObjective(-sign * (0.5 * w @ Q @ w), gurobipy.GRB.MAXIMIZE if maximize else gurobipy.GRB.MINIMIZE)
    with pytest.raises(ProgramError, match="not positive semidefinite"):
        dfl.from_gurobi(model)


def pyomo_model() -> pe.ConcreteModel:
    model = pe.ConcreteModel()
    model.w = pe.Var(range(3), domain=pe.NonNegativeReals)
    model.y = pe.Param(range(3), initialize=1.0, mutable=True)
    model.budget = pe.Constraint(expr=sum(model.w[j] for j in range(3)) == 1)
    curved = 0.5 * sum(Q[i, j] * model.w[i] * model.w[j] for i in range(3) for j in range(3))
    model.cost = pe.Objective(expr=sum(model.y[j] * model.w[j] for j in range(3)) + curved + 4.0)
    return model


def test_pyomo() -> None:
    model = pyomo_model()
    check(dfl.from_pyomo(model, model.y))
    check(dfl.from_pyomo(model, model.w))
    kept = dfl.from_pyomo(model, model.y, keep_offset=True)
    values = [float(dfl.HiGHS(one).solve(Y).objective) for one in (kept, dfl.from_pyomo(model, model.y))]
    assert values[0] == pytest.approx(values[1] + 4)


@pytest.mark.parametrize("maximize", [False, True])
def test_cvxpy(maximize: bool) -> None:
    w, y = cvxpy.Variable(3, nonneg=True), cvxpy.Parameter(3)
    curved = 0.5 * cvxpy.quad_form(w, cvxpy.psd_wrap(Q))
    objective = cvxpy.Maximize(y @ w - curved) if maximize else cvxpy.Minimize(y @ w + curved)
    read = dfl.from_cvxpy(cvxpy.Problem(objective, [cvxpy.sum(w) == 1]), y)
    check(read.program, -1 if maximize else 1)
    weight = cvxpy.Parameter(nonneg=True, value=1.0)
    problem = cvxpy.Problem(cvxpy.Minimize(y @ w + weight * cvxpy.sum_squares(w)), [cvxpy.sum(w) == 1])
    with pytest.raises(ProgramError, match="share Q"):
        dfl.from_cvxpy(problem, y)


def test_scipy() -> None:
    row = np.ones((1, 3))
    check(dfl.from_linprog(A_eq=row, b_eq=[1], Q=Q))
    check(dfl.from_milp(constraints=(row, 1, 1), Q=Q))
