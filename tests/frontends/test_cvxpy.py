"""`from_cvxpy` against CVXPY with other solvers."""

from __future__ import annotations

import copy
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

import dflearn as dfl
from support.random_models import COUNT, RandomModel, choose, random_model, with_costs


def optimum(problem: Any) -> float:
    problem.solve(solver=cp.GUROBI if problem.is_mixed_integer() else cp.CLARABEL, **precise(problem))
    assert problem.status == cp.OPTIMAL
    return problem.value


def precise(problem: Any) -> dict[str, float]:
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)
    return {"MIPGap": 0} if problem.is_mixed_integer() else tight


def build(model: RandomModel, chosen: list[int], seed: int) -> tuple[Any, Any, Any, Any]:
    """The model in CVXPY, its variables in pieces; the right-hand sides of the inequalities are a parameter.

    Predicted are the coefficients of the chosen variables, by an affine map of the parameter: c = (cost + cost) / 2.
    """
    pieces = [cp.Variable(name=f"w{i}", integer=bool(whole)) for i, whole in enumerate(model.integer)]
    w = cp.hstack(pieces)
    cost, side = cp.Parameter(len(chosen), name="cost"), cp.Parameter(2 * len(model.M), name="side")
    constraints = [piece >= low for piece, low in zip(pieces, model.lower, strict=True) if np.isfinite(low)]
    constraints += [piece <= high for piece, high in zip(pieces, model.upper, strict=True) if np.isfinite(high)]
    values = np.zeros(2 * len(model.M))
    for r, (row, low, high) in enumerate(zip(model.M, model.row_lower, model.row_upper, strict=True)):
        if low == high:
            constraints.append(row @ w == side[r])
            values[r] = low
            continue
        if np.isfinite(low):
            constraints.append(row @ w >= side[r] + 1)
            values[r] = low - 1
        if np.isfinite(high):
            constraints.append(row @ w <= 2 * side[len(model.M) + r])
            values[len(model.M) + r] = high / 2
    known = model.c.copy()
    known[chosen] = 0.0
    value = known @ w + ((cost + cost) / 2) @ w[chosen] + model.offset
    problem = cp.Problem(cp.Maximize(value) if model.maximize else cp.Minimize(value), constraints)
    side.value = values
    return problem, cost, side, pieces


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_problems(seed: int) -> None:
    model = random_model(seed)
    chosen = choose(model, seed)
    problem, cost, side, pieces = build(model, chosen, seed)
    made = dfl.from_cvxpy(problem, cost, keep_offset=seed % 2 == 0)
    model, y = with_costs(model, chosen, seed)
    typical = side.value.copy()
    wider = np.random.default_rng(seed).uniform(0, 0.5, side.shape)
    wider[np.flatnonzero(model.row_lower == model.row_upper)] = 0
    wider[: len(model.M)] *= -1
    costs = made.costs(cost=np.stack([y, y]))
    solution = dfl.HiGHS(made.program).solve(costs, made.instance(side=np.stack([typical, typical + wider]))).check()
    cost.value = y
    sign = -1 if model.maximize else 1
    offset = 0 if seed % 2 == 0 else model.offset
    for i, value in enumerate((typical, typical + wider)):
        side.value = value
        assert sign * solution.objective[i].item() + offset == pytest.approx(optimum(problem), rel=1e-6, abs=1e-6)
    decided = made.variables(solution.decision)
    assert list(decided) == [piece.name() for piece in pieces]
    w = torch.stack([decided[name] for name in model.names], -1)
    assert model.violation(w[0].numpy()) < 1e-6


ASSETS = 12


@pytest.fixture
def portfolio() -> dict[str, Any]:
    """Rebalance a portfolio for the largest predicted return, less what trading costs, within limits of sectors."""
    rng = np.random.default_rng(0)
    returns = cp.Parameter(ASSETS, name="returns")
    holdings = cp.Parameter(ASSETS, nonneg=True, name="holdings")
    cap = cp.Parameter(3, nonneg=True, name="cap")
    weights = cp.Variable(ASSETS, nonneg=True, name="weights")
    fee = rng.uniform(0.001, 0.01, ASSETS)
    sector = np.eye(3)[np.arange(ASSETS) % 3].T
    constraints = [cp.sum(weights) == 1, sector @ weights <= cap, weights <= 0.3, cp.norm1(weights - holdings) <= 0.8]
    value = returns @ weights - fee @ cp.abs(weights - holdings)
    holdings.value, cap.value = np.full(ASSETS, 1 / ASSETS), np.array([0.4, 0.5, 0.6])
    problem = cp.Problem(cp.Maximize(value), constraints)
    return {"problem": problem, "returns": returns, "holdings": holdings, "cap": cap, "weights": weights}


def test_portfolio(portfolio: dict[str, Any]) -> None:
    """Returns are predicted; holdings and caps differ from day to day; abs and norm1 bring variables of their own."""
    made = dfl.from_cvxpy(portfolio["problem"], portfolio["returns"])
    assert made.program.p == ASSETS
    assert made.program.n > ASSETS
    assert made.program.sense == "maximize"
    rng = np.random.default_rng(1)
    count = 20
    returns = rng.normal(0.01, 0.02, (count, ASSETS))
    holdings, caps = rng.dirichlet(np.ones(ASSETS), count), rng.uniform(0.35, 0.7, (count, 3))
    instance = made.instance(holdings=holdings, cap=torch.as_tensor(caps))
    assert set(instance.present()) == {"h"}
    solution = dfl.HiGHS(made.program).solve(made.costs(returns=returns), instance).check()
    found = made.variables(solution.decision)["weights"].numpy()
    for i in range(count):
        for name, value in (("returns", returns[i]), ("holdings", holdings[i]), ("cap", caps[i])):
            portfolio[name].value = value
        best = optimum(portfolio["problem"])
        assert -solution.objective[i].item() == pytest.approx(best, abs=1e-7)
        portfolio["weights"].value = found[i]
        assert portfolio["problem"].objective.value == pytest.approx(best, abs=1e-7)
        assert max(constraint.violation().max() for constraint in portfolio["problem"].constraints) < 1e-7


def test_shapes_are_in_c_order() -> None:
    """CVXPY flattens column by column; costs and variables come and go as numpy and torch flatten."""
    cost, x = cp.Parameter((2, 3), name="cost"), cp.Variable((2, 3), name="x")
    made = dfl.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, x))), [x >= 0, cp.sum(x, axis=1) == 1]), cost)
    assert made.program.cost_names == ("cost[0,0]", "cost[0,1]", "cost[0,2]", "cost[1,0]", "cost[1,1]", "cost[1,2]")
    assert made.program.variable_names is not None
    assert made.program.variable_names[:2] == ("x[0,0]", "x[1,0]")
    values = torch.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])
    assert made.costs(cost=values).tolist() == values.reshape(-1).tolist()
    found = made.variables(dfl.HiGHS(made.program).solve(values.reshape(1, -1)).decision)
    assert found["x"].tolist() == [[[0, 1, 0], [0, 0, 1]]]
    assert made.program.S.nnz == 6


def test_several_costs_known_data_and_bounds() -> None:
    """A known part that differs, several predicted parameters, booleans, declared bounds, an offset that is predicted."""
    a, b, fee, room = (cp.Parameter(name=name) for name in ("a", "b", "fee", "room"))
    x, z = cp.Variable(2, bounds=[0, 3], name="x"), cp.Variable(boolean=True, name="z")
    problem = cp.Problem(
        cp.Minimize(a * x[0] + (2 * b - 1) * x[1] + fee * z + a), [x[0] + x[1] >= 2 - z, x[1] <= room, cp.sum(x) <= 5]
    )
    fee.value, room.value = 4.0, 1.5
    made = dfl.from_cvxpy(problem, [a, b], keep_offset=True)
    assert made.program.variable_names == ("x[0]", "x[1]", "z", "constant")
    assert made.program.cost_names == ("a", "b")
    np.testing.assert_array_equal(made.program.S.toarray(), [[1, 0], [0, 2], [0, 0], [1, 0]])
    np.testing.assert_array_equal(made.program.d, [0, -1, 4, 0])
    np.testing.assert_array_equal(made.program.upper, [3, 1.5, 1, 1])
    instance = made.instance(fee=[0.5, 3.0], room=[0.25, 1.0])
    assert set(instance.present()) == {"d", "lower", "upper"}
    assert instance.d is not None
    assert instance.upper is not None
    assert instance.d.tolist() == [[0, -1, 0.5, 0], [0, -1, 3, 0]]
    assert instance.upper.tolist() == [[3, 0.25, 1, 1], [3, 1, 1, 1]]
    solution = dfl.HiGHS(made.program).solve(made.costs(a=[2.0, 2.0], b=[1.0, 1.0]), instance).check()
    for i in range(2):
        a.value, b.value, fee.value, room.value = 2.0, 1.0, (0.5, 3.0)[i], (0.25, 1.0)[i]
        assert solution.objective[i].item() == pytest.approx(optimum(problem))


X, C, A = cp.Variable(2, name="x"), cp.Parameter(2, name="c"), cp.Parameter(name="a")
BOX = [X >= 0, X <= 1]
UNSET, SYMMETRIC = cp.Parameter(name="unset"), cp.Variable((2, 2), symmetric=True, name="s")
A.value = 1.0


@pytest.mark.parametrize(
    ("objective", "constraints", "costs", "message"),
    [
        (cp.Minimize(C @ X), BOX, A, "no parameter of the problem"),
        (cp.Minimize(C @ X), BOX, [], "nothing to predict"),
        (cp.Minimize(cp.abs(C @ X)), BOX, C, "predicted parameter c stands in a constraint, or .* abs or max"),
        (cp.Minimize(C @ X), [*BOX, C @ X >= 1], C, "predicted parameter c stands in a constraint"),
        (cp.Minimize(C @ X), [*BOX, A * X[0] + X[1] >= 1], C, "parameter a multiplies a variable"),
        (cp.Minimize((A * C) @ X), BOX, C, "DPP"),
        (cp.Maximize(cp.sum(cp.abs(X)) + C @ X), BOX, C, "DCP"),
        (cp.Minimize(C @ X), [*BOX, cp.norm(X) <= 1], C, "more than linear constraints"),
        (cp.Minimize(C @ X), [*BOX, X[0] <= UNSET], C, "unset is neither predicted nor has a value: set unset.value"),
        (cp.Minimize(C @ X + cp.sum(cp.Variable(2, name="x"))), BOX, C, "two variables are called 'x'"),
        (cp.Minimize(C @ X + cp.trace(SYMMETRIC)), BOX, C, "s is declared symmetric"),
        (cp.Minimize(C @ X + cp.sum(cp.Variable(2, bounds=[0, A]))), BOX, C, "write them as constraints"),
        (cp.Minimize(C @ X), [*BOX, A >= 2], C, "row 4 holds no variable"),
    ],
)
def test_refused(objective: Any, constraints: list[Any], costs: Any, message: str) -> None:
    with pytest.raises((dfl.errors.OptionError, dfl.errors.ProgramError), match=message):
        dfl.from_cvxpy(cp.Problem(objective, constraints), costs)


def test_values_that_do_not_fit(portfolio: dict[str, Any]) -> None:
    made = dfl.from_cvxpy(portfolio["problem"], portfolio["returns"])
    assert made.instance().present() == {}
    for call, message in (
        (lambda: made.instance(returns=np.ones(ASSETS)), "'returns' is predicted"),
        (lambda: made.instance(nonsense=1), "'nonsense' is no parameter"),
        (lambda: made.instance(cap=np.ones(4)), r"cap must have shape \(\*batch, 3\); got \(4,\)"),
        (lambda: made.instance(cap=np.ones((5, 3)), holdings=np.ones(ASSETS)), "share their batch shape"),
        (lambda: made.costs(), "a value for each of"),
        (lambda: made.variables(torch.zeros(3)), "decisions must have shape"),
    ):
        with pytest.raises(dfl.errors.ShapeError, match=message):
            call()
    assert "holdings" in repr(made)


def test_an_instance_that_cannot_be_is_named(portfolio: dict[str, Any]) -> None:
    """A constraint between parameters alone is checked for each instance."""
    rows = [*portfolio["problem"].constraints, portfolio["cap"][0] <= 0.5]
    problem = cp.Problem(portfolio["problem"].objective, rows)
    made = dfl.from_cvxpy(problem, portfolio["returns"])
    with pytest.raises(dfl.errors.ProgramError, match="of instance 1 holds no variable"):
        made.instance(cap=[[0.4, 0.5, 0.6], [0.6, 0.5, 0.6]])


def test_solvers_and_layers_take_the_program_of_it() -> None:
    cost, w = cp.Parameter(2, name="cost"), cp.Variable(2, nonneg=True, name="w")
    made: Any = dfl.from_cvxpy(cp.Problem(cp.Minimize(cost @ w), [cp.sum(w) == 1]), costs=cost)
    for taken in (dfl.HiGHS(made), dfl.solvers.SmallLP(made), dfl.Smoothed(made, 0.1), dfl.DavisYin(made, 0.1)):
        assert taken.program is made.program
    with pytest.raises(AttributeError, match="no attribute 'weights'"):
        _ = made.weights
    again = copy.deepcopy(made)
    assert again.program.fingerprint == made.program.fingerprint
