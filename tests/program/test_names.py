"""Names of variables, costs and constraints: kept, checked, no part of what a program is; and instances by name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gurobipy
import numpy as np
import pandas as pd
import pyomo.environ as pe
import pytest
import torch

import dflearn as dfl
from dflearn.errors import DataError
from dflearn.program import Program
from dflearn.program.names import RightHandSide, matched
from dflearn.tables import saving
from dflearn.tables.tables import Table


def test_names_are_kept() -> None:
    program = dfl.Program(
        A=[[1, 1]], b=[1], S=[[2], [3]], variable_names=["a", "b"], cost_names=["price"], integer=True
    )
    assert program.variable_names == ("a", "b")
    assert program.cost_names == ("price",)
    assert program.relax().variable_names == ("a", "b")
    assert pickle.loads(pickle.dumps(program)).cost_names == ("price",)
    assert replace(program, S=None, cost_names=program.variable_names).cost_names == ("a", "b")


@pytest.mark.parametrize("field", ["variable_names", "cost_names"])
@pytest.mark.parametrize(
    ("names", "message"),
    [(["a"], "2 strings"), ("ab", "2 strings"), (["a", 1], "2 strings"), (["a", "a"], "'a' more than once")],
)
def test_bad_names(field: str, names: object, message: str) -> None:
    with pytest.raises(dfl.errors.ProgramError, match=f"{field} .*{message}"):
        dfl.Program(A=[[1, 1]], b=[1], **{field: names})


# -- constraints by name --------------------------------------------------------------------------------------------


def knapsack() -> dfl.Program:
    """max Σ y w + 0.5 w_2 with weight ≤ 9, least ≥ 1 (held negated), total = 4, and names of rows without a side."""
    return dfl.Program(
        A=[[1, 1, 1]],
        b=[4],
        G=[[3, 4, 1], [-1, -1, 0]],
        h=[9, -1],
        upper=[2, 5.5, 9],
        d=[0, 0, -0.5],
        S=-np.eye(3),
        integer=[0, 1],
        sense="maximize",
        name="pack",
        variable_names=["tent", "rope", "spare"],
        constraint_names={
            "weight": ("h", 0),
            "least": ("h", 1, -1.0),
            "total": ("b", 0),
            "alone": ("bound", 1),
            "range": ("none", 0),
        },
    )


COLUMNS = {
    "least": [0, 2],
    "upper:rope": [5.5, 2.9],
    "d:spare": [0.7, -0.1],
    "total": [3.0, 4.0],
    "lower:spare": [-np.inf, 0],
}


@pytest.mark.parametrize("kind", ["dict", "frame", "table"])
def test_an_instance_by_names_of_columns(kind: str) -> None:
    frame = pd.DataFrame(COLUMNS)
    columns = {"dict": COLUMNS, "frame": frame, "table": Table.of(frame, "t", infinite=True)}[kind]
    found = knapsack().instance(columns)
    assert set(found.present()) == {"b", "h", "lower", "upper", "d"}
    np.testing.assert_array_equal(found.b, [[3], [4]])
    np.testing.assert_array_equal(found.h, [[9, 0], [9, -2]])  # weight stays; ≥ is held negated
    np.testing.assert_array_equal(found.lower, [[0, 0, -np.inf], [0, 0, 0]])
    np.testing.assert_array_equal(found.upper, [[2, 5, 9], [2, 2, 9]])  # bounds of integers are integers
    np.testing.assert_array_equal(found.d, [[0, 0, -0.7], [0, 0, 0.1]])  # values of a program that maximizes
    assert found.batch_shape() == (2,)


WRONG = {
    "unknown": ({"wieght": [1]}, r"column 'wieght' is neither a constraint of pack nor .*did you mean 'weight'"),
    "unknown variable": ({"upper:ropes": [1]}, r"column 'upper:ropes' is neither .*did you mean 'rope'"),
    "bound": ({"alone": [1]}, "'alone' holds 'rope' alone, so it is a bound: call the column lower:rope or upper:rope"),
    "two limits": ({"range": [1]}, "'range' has two limits or none"),
    "infinite": ({"weight": [1, np.inf]}, "row 1, column 'weight': only bounds may be infinite"),
    "missing": ({"upper:rope": [1, np.nan]}, "row 1, column 'upper:rope': holds nan"),
    "crossed": ({"lower:rope": [0, 6]}, "row 1: the bounds of 'rope' leave nothing: check lower:rope and upper:rope"),
    "lengths": ({"weight": [1, 2], "total": [1]}, "columns differ in length"),
    "text": ({"weight": ["much"]}, "column 'weight' holds what is no number"),
    "underscore": ({"weight": ["1_5"]}, "column 'weight' holds what is no number: .*'1_5'"),
    "one row twice": (
        {"weight": [1], "Weight_": [2]},
        "columns 'weight' and 'Weight_' hold the same number of the program",
    ),
    "one bound twice": ({"upper:rope": [1], "upper:Rope": [2]}, "columns 'upper:rope' and 'upper:Rope' hold the same"),
}


@pytest.mark.parametrize("case", WRONG)
def test_columns_that_say_nothing(case: str) -> None:
    columns, message = WRONG[case]
    for given in (columns, pd.DataFrame(columns) if case != "lengths" else columns):
        with pytest.raises(dfl.errors.DataError, match=message):
            knapsack().instance(given)


@pytest.mark.parametrize("row", ["total", "least"])
def test_a_predicted_right_hand_side_has_no_column(row: str) -> None:
    """It would be added to the prediction; what stands in other rows is as ever."""
    predicted = replace(knapsack(), **({"B": [[1, 0, 0]]} if row == "total" else {"H": [[0, 0, 0], [0, -1, 0]]}))
    for name in (row, row.upper()):
        with pytest.raises(dfl.errors.DataError, match=f"the right-hand side of '{row}' is predicted.*drop the column"):
            predicted.instance({name: [3.0]})
    np.testing.assert_array_equal(predicted.instance({"weight": [5]}).h, [[5, -1]])


def test_names_of_constraints_are_kept(tmp_path: Path) -> None:
    program = knapsack()
    assert program.constraint_names["least"] == RightHandSide("h", 1, -1.0)
    assert program.relax().constraint_names == program.constraint_names
    assert pickle.loads(pickle.dumps(program)).constraint_names == program.constraint_names
    assert replace(program, constraint_names=None).fingerprint == program.fingerprint
    for name, saved in (("named", program), ("plain", replace(program, constraint_names=None))):
        saving.write(tmp_path / name, {}, {}, saved)
        assert saving.read(tmp_path / name).program.constraint_names == saved.constraint_names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"a": ("b", 1)}, r"'a' stands at b\[1\], and there are 1"),
        ({"a": ("h", -1)}, r"'a' stands at h\[-1\]"),
        ({"a": ("c", 0)}, "'b' or 'h'"),
        ({"a": ("b", 0, 2.0)}, "1 or -1"),
        ({"a": ("b",)}, "'b' or 'h', position"),
        ({1: ("b", 0)}, "maps strings"),
    ],
)
def test_bad_names_of_constraints(names: dict[Any, Any], message: str) -> None:
    with pytest.raises(dfl.errors.ProgramError, match=message):
        dfl.Program(A=[[1, 1]], b=[1], constraint_names=names)


def test_files_and_models_name_their_constraints(tmp_path: Path) -> None:
    """One model by LP file, Gurobi and Pyomo: rows =, ≤, ≥ (held negated), with one variable, and with two limits."""
    path = tmp_path / "m.lp"
    path.write_text(
        "min\n obj: x + 2 y\nst\n need: x + y = 4\n room: x + 3 y <= 9\n some: 2 x + y >= 1\n alone: x <= 3\nend\n"
    )
    model = pe.ConcreteModel()
    model.x, model.y = pe.Var(bounds=(0, None)), pe.Var(bounds=(0, None))
    model.obj = pe.Objective(expr=model.x + 2 * model.y)
    model.need = pe.Constraint(expr=model.x + model.y == 4)
    model.room = pe.Constraint(expr=model.x + 3 * model.y <= 9)
    model.some = pe.Constraint(expr=2 * model.x + model.y >= 1)
    model.both = pe.Constraint(expr=pe.inequality(-1, model.x - model.y, 2))
    model.alone = pe.Constraint(expr=model.x <= 3)
    with gurobipy.Env(params={"OutputFlag": 0}) as environment, gurobipy.Model(env=environment) as other:
        x, y = other.addVar(obj=1, name="x"), other.addVar(obj=2, name="y")
        for name, row in (("need", x + y == 4), ("room", x + 3 * y <= 9), ("some", 2 * x + y >= 1), ("alone", x <= 3)):
            other.addConstr(row, name=name)
        programs = [dfl.from_lp(path), dfl.from_pyomo(model), dfl.from_gurobi(other)]
    assert programs[1].constraint_names["both"].field == "none"
    sides = {"need": np.array([5.0]), "room": np.array([7.0]), "some": np.array([2.5])}
    for program in programs:
        found = program.instance(sides)
        w = torch.tensor([[1.5, 2.0]])
        left = {"need": 3.5, "room": 7.5, "some": 5.0}
        wanted = max(abs(left["need"] - 5) / 8.5, (left["room"] - 7) / 14.5, 0)
        assert program.violation(w, found).item() == pytest.approx(wanted)
        worse = program.instance({"some": [9.0]})
        assert program.violation(torch.tensor([[2.0, 2.0]]), worse).item() == pytest.approx(3 / 15)
        with pytest.raises(dfl.errors.DataError, match="'alone' holds 'x' alone"):
            program.instance({"alone": [1.0]})


def test_a_bound_never_lifts_a_constraint(tmp_path: Path) -> None:
    """A row with one variable became its bound; a column for the bound may be tighter, not looser."""
    path = tmp_path / "m.lp"
    path.write_text("min\n obj: - 2 x - z\nst\n cap: x <= 5\n tot: x + z <= 12\nbounds\n x <= 10\n z <= 10\nend\n")
    program = dfl.from_lp(path, ["x", "z"])
    assert program.instance({"upper:x": [3.0, 5.0], "upper:z": [20.0, 1.0]}).upper is not None
    with pytest.raises(dfl.errors.DataError, match="would lift the constraint 'cap'"):
        program.instance({"upper:x": [8.0]})


# -- names as the modelling tool wrote them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["demand[3]", "demand(3)", "demand_3", '"demand 3"', "Demand_3_", "DEMAND [ 3 ]", "'demand[3]'"]
)
def test_names_are_matched_however_they_are_written(name: str) -> None:
    for held in ("demand[3]", "demand_3", "c_e_demand(3)_", "c_u_demand(3)_"):
        assert matched(name, ["demand[13]", held, "demand[3,1]"], "the column") == held


def test_the_same_name_comes_first_and_two_alike_are_an_error() -> None:
    known = ["x[1]", "x_1", "y", "x[-1]"]
    assert matched("x_1", known, "the column") == "x_1"
    with pytest.raises(DataError, match=r"^the column 'x\(1\)' may be any of 'x\[1\]', 'x_1': write"):
        matched("x(1)", known, "the column")
    assert matched("x(-1)", known, "the column") == "x[-1]"
    assert matched("z", known, "the column") is None
    assert matched("()", known, "the column") is None


def test_an_instance_by_names_of_another_tool() -> None:
    program = Program(
        G=[[1, 1], [1, 0.5]],
        h=[4, 3],
        n=2,
        variable_names=["ship[a,1]", "ship[a,2]"],
        constraint_names={"room[1]": ("h", 0), "c_u_room(2)_": ("h", 1)},
    )
    columns = {"Room_1": [1.0], "room(2)": [2.0], "upper:ship_a_2": [9.0]}
    instance = program.instance(columns)
    np.testing.assert_array_equal(instance.h, [[1, 2]])
    assert instance.upper[0, 1] == 9
