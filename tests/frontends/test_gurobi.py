"""`from_gurobi` against Gurobi."""

from __future__ import annotations

import re
from typing import Any

import gurobipy
import numpy as np
import pytest
from gurobipy import GRB

import dflearn as dfl
from support.gurobi_models import build, optimum
from support.random_models import COUNT, check, choose, random_model, solve, with_costs


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_models(seed: int, gurobi_environment: Any) -> None:
    model = random_model(seed)
    chosen = choose(model, seed)
    # Gurobi's own range rows bring a variable each, so they are tested where variables are looked up by name.
    made = build(model, gurobi_environment, ranges=bool(seed % 2))
    program = dfl.from_gurobi(made, [model.names[i] for i in chosen], keep_offset=seed % 5 == 0)
    model, y = with_costs(model, chosen, seed)
    check(model, program, y, optimum(build(model, gurobi_environment)), offset=seed % 5 == 0)
    assert program.cost_names == tuple(model.names[i] for i in chosen)


@pytest.fixture
def assignment(gurobi_environment: Any) -> Any:
    """Workers to tasks at least time, some pairs excluded, a worker may be left idle at a known fee, overtime by the hour."""
    rng = np.random.default_rng(0)
    made = gurobipy.Model("assignment", env=gurobi_environment)
    pairs = [(i, j) for i in range(6) for j in range(5) if (i + j) % 4]
    x = made.addVars(pairs, vtype=GRB.BINARY, name="assign")
    idle = made.addVars(6, vtype=GRB.BINARY, name="idle")
    overtime = made.addVar(ub=10, name="overtime")
    made.addConstrs((x.sum(i, "*") + idle[i] == 1 for i in range(6)), "worker")
    made.addConstrs((x.sum("*", j) == 1 for j in range(5)), "task")
    hours = {pair: rng.uniform(1, 3) for pair in pairs}
    made.addConstr(x.prod(hours) <= 8 + overtime, "hours")
    made.setObjective(x.sum() + 2.5 * idle.sum() + 4 * overtime)
    made.update()
    return made, x


def test_every_way_to_name_the_costs(assignment: Any) -> None:
    made, x = assignment
    pairs = [f"assign[{i},{j}]" for i, j in x]
    for costs, names in (
        ("all", made.getAttr("VarName", made.getVars())),
        (x, pairs),
        ("assign*", pairs),
        (re.compile(r"assign\[\d,\d\]"), pairs),
        (["overtime", "idle*"], ["overtime", *(f"idle[{i}]" for i in range(6))]),
        (made.getVarByName("overtime"), ["overtime"]),
        ([x, made.getVarByName("overtime")], [*pairs, "overtime"]),
        ({"fee": {"idle[0]": 1.0, "overtime": 2}}, ["fee"]),
    ):
        assert dfl.from_gurobi(made, costs).cost_names == tuple(names)
    program = dfl.from_gurobi(made, {"fee": {"idle[0]": 1.0, "overtime": 2}})
    names = program.variable_names or ()
    assert program.S.toarray()[[names.index("idle[0]"), names.index("overtime")], 0].tolist() == [1, 2]
    assert program.S.nnz == 2
    assert program.d[names.index("idle[0]")] == program.d[names.index("overtime")] == 0


def test_matrix_variables(gurobi_environment: Any) -> None:
    made = gurobipy.Model(env=gurobi_environment)
    x = made.addMVar((2, 3), ub=1, name="x")
    made.addConstr(x.sum() >= 2)
    assert dfl.from_gurobi(made, x[1]).cost_names == ("x[1,0]", "x[1,1]", "x[1,2]")
    assert dfl.from_gurobi(made, x).p == 6


def test_binary_is_zero_or_one_whatever_the_bounds(gurobi_environment: Any) -> None:
    made = gurobipy.Model(env=gurobi_environment)
    made.addVar(vtype=GRB.BINARY, lb=-5, ub=7, obj=-1, name="z")
    program = dfl.from_gurobi(made)
    assert solve(program, np.array([-1.0]))[0] == optimum(made) == -1
    assert (program.lower.tolist(), program.upper.tolist()) == ([0], [1])


def test_names_that_repeat_are_dropped(gurobi_environment: Any) -> None:
    made = gurobipy.Model(env=gurobi_environment)
    x = [made.addVar(ub=1, name="x"), made.addVar(ub=2, name="x")]
    made.update()
    program = dfl.from_gurobi(made, x)
    assert program.variable_names is program.cost_names is None
    with pytest.raises(dfl.errors.ProgramError, match="share a name"):
        dfl.from_gurobi(made, "x")


def overtime(made: Any) -> Any:
    return made.getVarByName("overtime")


@pytest.mark.parametrize(
    ("change", "costs", "message"),
    [
        (lambda m, x: setattr(overtime(m), "VType", GRB.SEMICONT), "all", "'overtime' is semi-continuous.*binary"),
        (lambda m, x: m.addSOS(GRB.SOS_TYPE1, list(x.values())[:3]), "all", "special ordered sets"),
        (lambda m, x: m.addGenConstrIndicator(x[0, 1], True, overtime(m) <= 1), "all", "general constraints"),
        (lambda m, x: m.addConstr(overtime(m) * overtime(m) <= 4), "all", "quadratic constraints"),
        (lambda m, x: m.setObjective(-1 * overtime(m) * overtime(m)), "all", "positive semidefinite"),
        (lambda m, x: m.setPWLObj(overtime(m), [0, 1, 2], [0, 1, 3]), "all", "piecewise-linear"),
        (lambda m, x: m.setObjectiveN(x.sum(), 1), "all", "2 objectives"),
        (lambda m, x: setattr(m.Params, "LazyConstraints", 1), "all", "lazy constraints"),
        (None, "assing[0,1]", r"no variable 'assing\[0,1\]'; did you mean 'assign\[0,1\]'"),
        (None, "zzz*", "no variable matches 'zzz\\*'"),
        (None, ["idle[0]", "idle*"], r"'idle\[0\]' twice"),
        (None, [], "nothing to predict"),
        (None, {"fee": {}}, "maps variables to known factors"),
        (None, {"fee": {"nobody": 1}}, "no variable 'nobody'"),
        (None, 3, "costs is 'all'"),
    ],
)
def test_refused(change: Any, costs: Any, message: str, assignment: Any) -> None:
    made, x = assignment
    if change is not None:
        change(made, x)
    with pytest.raises((dfl.errors.OptionError, dfl.errors.ProgramError), match=message):
        dfl.from_gurobi(made, costs)


def test_foreign_variables_and_models(assignment: Any, gurobi_environment: Any) -> None:
    other = gurobipy.Model(env=gurobi_environment)
    stranger = other.addVar(name="stranger")
    other.update()
    with pytest.raises(dfl.errors.OptionError, match="not a variable of this model"):
        dfl.from_gurobi(assignment[0], stranger)
    with pytest.raises(dfl.errors.OptionError, match=r"reads a gurobipy.Model; got a dict"):
        dfl.from_gurobi({})
