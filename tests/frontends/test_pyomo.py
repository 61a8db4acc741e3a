"""`from_pyomo` against Pyomo with Gurobi."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyomo.environ as pe
import pytest
from pyomo.gdp import Disjunct

import dflearn as dfl
from support.random_models import COUNT, RandomModel, check, choose, random_model, with_costs


def optimum(model: Any) -> float:
    solver = pe.SolverFactory("gurobi_direct")
    answer = solver.solve(model, options={"MIPGap": 0, "OutputFlag": 0, "Threads": 1})
    assert answer.solver.termination_condition == pe.TerminationCondition.optimal
    return pe.value(next(model.component_data_objects(pe.Objective, active=True)))


def build(model: RandomModel, chosen: list[int]) -> Any:
    """The model in Pyomo. The objective is written with a parameter for what is predicted, in a roundabout way."""
    made = pe.ConcreteModel("random")
    made.cost = pe.Param(range(len(chosen)), mutable=True)
    made.double = pe.Param(initialize=2.0, mutable=True)
    kinds = [pe.Integers if integer else pe.Reals for integer in model.integer]
    finite = lambda value: None if np.isinf(value) else value  # noqa: E731
    bounds = lambda _, i: (finite(model.lower[i]), finite(model.upper[i]))  # noqa: E731
    made.w = pe.Var(range(model.n), domain=lambda _, i: kinds[i], bounds=bounds)
    made.rows = pe.ConstraintList()
    for row, low, high in zip(model.M, model.row_lower, model.row_upper, strict=True):
        body = sum(value * made.w[i] for i, value in enumerate(row) if value)
        if low == high:
            made.rows.add(body == low)
        elif np.isfinite(low) or np.isfinite(high):
            made.rows.add((finite(low), body, finite(high)))
    coefficients: list[Any] = list(model.c)
    for k, i in enumerate(chosen):
        coefficients[i] = (made.cost[k] * made.double + made.cost[k] * made.double) / 4
    value = sum(c * made.w[i] for i, c in enumerate(coefficients)) + model.offset
    made.value = pe.Objective(expr=value, sense=pe.maximize if model.maximize else pe.minimize)
    return made


def rename(program: dfl.Program) -> dfl.Program:
    """Pyomo's w[3] is the model's w3."""
    names = [re.sub(r"w\[(\d+)\]", r"w\1", name) for name in program.variable_names or ()]
    return replace(program, variable_names=names)


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_models(seed: int) -> None:
    model = random_model(seed)
    chosen = choose(model, seed)
    made = build(model, chosen)
    keep = seed % 5 == 0
    program = dfl.from_pyomo(made, made.cost, keep_offset=keep)
    assert program.cost_names == tuple(f"cost[{k}]" for k in range(len(chosen)))
    model, y = with_costs(model, chosen, seed)
    for k, value in enumerate(y):
        made.cost[k] = value
    check(model, rename(program), y, optimum(made), offset=keep)
    if seed % 5 == 1:  # the same by variables
        by_variable = dfl.from_pyomo(made, [made.w[i] for i in chosen])
        assert by_variable.cost_names == tuple(f"w[{i}]" for i in chosen)
        check(model, rename(by_variable), y, optimum(made))


def small() -> Any:
    model = pe.ConcreteModel()
    model.price = pe.Param([1, 2], mutable=True, initialize=1.0)
    model.scale = pe.Param(mutable=True)
    model.fixed_price = pe.Param([1, 2], initialize=1.0)
    model.x = pe.Var([1, 2], bounds=(0, 4))
    model.y = pe.Var(domain=pe.Binary)
    model.row = pe.Constraint(expr=model.x[1] + model.x[2] + model.y >= 2)
    model.value = pe.Objective(expr=model.price[1] * model.x[1] + 2 * model.price[2] * model.x[2] + 3 * model.y)
    return model


def test_costs_in_several_variables_and_scalar_parameters() -> None:
    model = small()
    model.value.expr = model.scale * (model.x[1] + 3 * model.y) + model.x[2] - model.scale * 5
    program = dfl.from_pyomo(model, model.scale)
    assert program.cost_names == ("scale",)
    assert program.variable_names == ("x[1]", "x[2]", "y")
    np.testing.assert_array_equal(program.S.toarray(), [[1], [0], [3]])
    np.testing.assert_array_equal(program.d, [0, 1, 0])
    kept = dfl.from_pyomo(model, model.scale, keep_offset=True)
    np.testing.assert_array_equal(kept.S.toarray()[:, 0], [1, 0, 3, -5])
    model.value.expr += model.price[2] * model.y
    both = dfl.from_pyomo(model, [model.scale, model.price])
    assert both.cost_names == ("scale", "price[1]", "price[2]")


def test_fixed_variables_and_deactivated_parts() -> None:
    model = small()
    model.y.fix(1)
    model.second = pe.Constraint(expr=model.x[1] >= 3)
    model.second.deactivate()
    model.other = pe.Objective(expr=model.x[1])
    model.other.deactivate()
    program = dfl.from_pyomo(model, model.price)
    assert program.variable_names == ("x[1]", "x[2]")
    np.testing.assert_array_equal(program.h, [-1])
    assert dfl.from_pyomo(model, model.price, keep_offset=True).d[-1] == 3


def test_variables_of_another_block() -> None:
    """A variable of a block that is deactivated counts where it is used."""
    model = small()
    model.block = pe.Block()
    model.block.z = pe.Var(bounds=(0, 1))
    model.use = pe.Constraint(expr=model.block.z + model.x[1] >= 1)
    model.block.deactivate()
    assert dfl.from_pyomo(model, model.x).variable_names == ("x[1]", "x[2]", "y", "block.z")


def with_objective(make: Any) -> Any:
    def change(model: Any) -> Any:
        model.value.expr = make(model)
        return model.price

    return change


def add(name: str, make: Any) -> Any:
    def change(model: Any) -> Any:
        model.add_component(name, make(model))
        return model.price

    return change


def fix_first(model: Any) -> Any:
    model.x[1].fix(1)
    return model.x


def bound_by_price(model: Any) -> Any:
    model.x[2].setub(4 * model.price[1])
    return model.price


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_objective(lambda m: m.price[1] ** 2 * m.x[1]), "not linear in the variables or the predicted"),
        (with_objective(lambda m: m.price[1] * m.price[2]), "quadratic in the predicted parameters"),
        (with_objective(lambda m: m.price[1] * m.x[1] + m.x[1] * m.x[2]), "positive semidefinite"),
        (with_objective(lambda m: m.price[1] * pe.exp(m.x[1])), "not linear in the variables"),
        (with_objective(lambda m: m.x[1]), "do not enter the objective"),
        (add("bad", lambda m: pe.Constraint(expr=m.x[1] * m.x[2] <= 1)), "constraint bad is not linear"),
        (add("bad", lambda m: pe.Constraint(expr=m.price[1] * m.x[2] <= 1)), r"bad depends on .* price\[1\]"),
        (add("bad", lambda m: pe.Constraint(expr=m.x[2] <= m.price[2])), r"bad depends on .* price\[2\]"),
        (add("bad", lambda m: pe.Objective(expr=m.x[1])), "2 active objectives"),
        (add("bad", lambda m: pe.SOSConstraint(var=m.x, sos=1)), "active SOSConstraint"),
        (add("bad", lambda m: Disjunct()), "active Disjunct"),
        (add("bad", lambda m: pe.Var(domain=pe.Set(initialize=[1, 3, 4.5]))), "has the domain"),
        (bound_by_price, r"bound of variable x\[2\] depends on .* price\[1\]"),
        (fix_first, r"x\[1\], which is fixed"),
        (lambda m: m.fixed_price, "mutable=True"),
        (lambda m: [m.price, m.x], "mixes parameters with variables"),
        (lambda m: "z", "no variable 'z'"),
    ],
)
def test_refused(change: Any, message: str) -> None:
    model = small()
    costs = change(model)
    with pytest.raises((dfl.errors.OptionError, dfl.errors.ProgramError), match=message):
        dfl.from_pyomo(model, costs)
