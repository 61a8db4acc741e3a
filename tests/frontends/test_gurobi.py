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


def test_assignment(assignment: Any) -> None:
    """The times are predicted; fees and overtime are known."""
    made, x = assignment
    program = dfl.from_gurobi(made, x)
    assert program.cost_names is not None
    assert program.cost_names[:2] == ("assign[0,1]", "assign[0,2]")
    assert program.p == len(x)
    known = dict(zip(program.variable_names or (), program.d, strict=True))
    assert known["idle[3]"] == 2.5
    assert known["overtime"] == 4
    assert known["assign[0,1]"] == 0
    rng = np.random.default_rng(1)
    for _ in range(20):
        times = rng.uniform(0.5, 5, len(x))
        value, w = solve(program, times)
        made.setAttr("Obj", list(x.values()), times.tolist())
        assert value == pytest.approx(optimum(made))
        decided = dict(zip(program.variable_names or (), w, strict=True))
        assert sum(decided[f"assign[{i},{j}]"] for i, j in x) == 5


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


def test_the_model_is_not_changed(assignment: Any) -> None:
    made, x = assignment
    before = made.getAttr("Obj", made.getVars())
    dfl.from_gurobi(made, x)
    assert made.getAttr("Obj", made.getVars()) == before


def test_names_that_repeat_are_dropped(gurobi_environment: Any) -> None:
    made = gurobipy.Model(env=gurobi_environment)
    x = [made.addVar(ub=1, name="x"), made.addVar(ub=2, name="x")]
    made.update()
    program = dfl.from_gurobi(made, x)
    assert program.variable_names is program.cost_names is None
    with pytest.raises(dfl.errors.ProgramError, match="share a name"):
        dfl.from_gurobi(made, "x")


def change_nothing(made: Any, x: Any) -> None:
    pass


def make_semi_continuous(made: Any, x: Any) -> None:
    made.getVarByName("overtime").VType = GRB.SEMICONT


def add_set(made: Any, x: Any) -> None:
    made.addSOS(GRB.SOS_TYPE1, list(x.values())[:3])


def add_indicator(made: Any, x: Any) -> None:
    made.addGenConstrIndicator(x[0, 1], True, made.getVarByName("overtime") <= 1)


def add_quadratic_row(made: Any, x: Any) -> None:
    made.addConstr(made.getVarByName("overtime") * made.getVarByName("overtime") <= 4)


def set_quadratic_objective(made: Any, x: Any) -> None:
    made.setObjective(-1 * made.getVarByName("overtime") * made.getVarByName("overtime"))


def set_pieces(made: Any, x: Any) -> None:
    made.setPWLObj(made.getVarByName("overtime"), [0, 1, 2], [0, 1, 3])


def add_objective(made: Any, x: Any) -> None:
    made.setObjectiveN(x.sum(), 1)


def expect_callback(made: Any, x: Any) -> None:
    made.Params.LazyConstraints = 1


@pytest.mark.parametrize(
    ("change", "costs", "message"),
    [
        (make_semi_continuous, "all", "'overtime' is semi-continuous.*binary"),
        (add_set, "all", "special ordered sets"),
        (add_indicator, "all", "general constraints"),
        (add_quadratic_row, "all", "quadratic constraints"),
        (set_quadratic_objective, "all", "positive semidefinite"),
        (set_pieces, "all", "piecewise-linear"),
        (add_objective, "all", "2 objectives"),
        (expect_callback, "all", "lazy constraints"),
        (change_nothing, "assing[0,1]", r"no variable 'assing\[0,1\]'; did you mean 'assign\[0,1\]'"),
        (change_nothing, "zzz*", "no variable matches 'zzz\\*'"),
        (change_nothing, re.compile("q"), "no variable matches"),
        (change_nothing, ["idle[0]", "idle*"], r"'idle\[0\]' twice"),
        (change_nothing, [], "nothing to predict"),
        (change_nothing, {}, "nothing to predict"),
        (change_nothing, {"fee": {}}, "maps variables to known factors"),
        (change_nothing, {"fee": {"nobody": 1}}, "no variable 'nobody'"),
        (change_nothing, 3, "costs is 'all'"),
        (change_nothing, [3], "names and patterns only"),
    ],
)
def test_refused(change: Any, costs: Any, message: str, assignment: Any) -> None:
    made, x = assignment
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
