"""Which costs enter which variables: patterns, names of other tools, and files that say so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dflearn as dfl
from dflearn.errors import DataError, OptionError
from dflearn.frontends.costs import may_be, spelled_out
from dflearn.tables.table_files import read_cost_map

UNITS = """\
Minimize
 cost: 1 gen(a,1) + 1 gen(a,2) + 2 gen(b,1) + 2 gen(b,2) + 7 start
Subject To
 need(1): gen(a,1) + gen(b,1) >= 3
 need(2): gen(a,2) + gen(b,2) >= 4
 once: gen(a,1) + gen(a,2) - 9 start <= 0
Bounds
 start <= 1
End
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "units.lp"
    path.write_text(UNITS)
    return path


def test_an_hourly_price_enters_all_units(model: Path) -> None:
    program = dfl.from_lp(model, costs={"price_{t}": {"gen(*,{t})": 1.0}, "heat": {"GEN[a,1]": 0.5, "gen_a_2": 0.25}})
    assert program.cost_names == ("price_1", "price_2", "heat")
    expected = {"gen(a,1)": [1, 0, 0.5], "gen(a,2)": [0, 1, 0.25], "gen(b,1)": [1, 0, 0], "gen(b,2)": [0, 1, 0]}
    for name, row in expected.items():
        np.testing.assert_array_equal(program.S.toarray()[program.variable_names.index(name)], row)
    assert program.d[program.variable_names.index("start")] == 7


def test_a_hole_is_one_index() -> None:
    names = ["gen_a_1", "gen_b_1", "gen_b_12", "gen_b_c_12"]
    assert spelled_out({"p{t}": {"gen_*_{t}": 2.0}}, names) == {
        "p1": {"gen_a_1": 2.0, "gen_b_1": 2.0},
        "p12": {"gen_b_12": 2.0, "gen_b_c_12": 2.0},
    }
    assert spelled_out({"p": {"gen_{u}_{u}": 1}}, ["gen_1_1", "gen_1_2"]) == {"p": {"gen_1_1": 1}}
    assert may_be("p{t}", "p12")
    assert not may_be("p{t}", "p_12")


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"p_{t}": {"gen(*)": 1}}, r"'p_\{t\}' holds \{t\}, and 'gen\(\*\)' does not say"),
        ({"p": {"run(*)": 1}}, r"no variable matches 'run\(\*\)'"),
        ({"p": {"gen(*,1)": 1, "gen(a,*)": 2}}, r"'gen\(a,1\)' holds 'p' twice"),
        ({"p": {"gen(c,1)": 1}}, r"no variable 'gen\(c,1\)'; did you mean"),
        ({"p": {}}, "maps variables to known factors"),
        ({}, "costs is empty"),
    ],
)
def test_what_is_wrong_with_a_mapping(costs: dict[str, dict[str, float]], message: str, model: Path) -> None:
    with pytest.raises(OptionError, match=message):
        dfl.from_lp(model, costs=costs)


def test_variables_that_are_alike_must_be_named_letter_by_letter(tmp_path: Path) -> None:
    path = tmp_path / "a.lp"
    path.write_text("Minimize\n o: x(1) + x_1\nSubject To\n c: x(1) + x_1 >= 1\nEnd\n")
    assert dfl.from_lp(path, costs=["x_1"]).cost_names == ("x_1",)
    with pytest.raises(OptionError, match=r"'x\[1\]' may be any of 'x\(1\)', 'x_1'"):
        dfl.from_lp(path, costs=["x[1]"])


def test_maps_in_files(tmp_path: Path, model: Path) -> None:
    table, text = tmp_path / "map.csv", tmp_path / "map.json"
    table.write_text('cost,variable,factor\nprice_{t},"gen(*,{t})",\nheat,start,"1,200"\n')
    text.write_text(json.dumps({"price_{t}": {"gen(*,{t})": 1.0}, "heat": {"start": 1200}}))
    assert read_cost_map(table) == read_cost_map(text) == {"price_{t}": {"gen(*,{t})": 1.0}, "heat": {"start": 1200.0}}
    assert dfl.from_lp(model, costs=read_cost_map(table)).cost_names == ("price_1", "price_2", "heat")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.csv", "cost,variables\np,x\n", "lacks 'variable': its columns are .*did you mean 'variables'"),
        ("m.csv", "cost,variable,unit\np,x,1\n", "has 'unit': its columns are"),
        ("m.csv", "cost,variable,factor\np,,1\n", "line 2, column 'variable' is empty"),
        ("m.csv", "cost,variable,factor\np,x,two\n", "line 2, column 'factor' holds 'two', which is no number"),
        ("m.csv", "cost,variable\np,x\np,x\n", "line 3: 'x' stands twice for 'p'"),
        ("m.json", "[1", "cannot be read as JSON"),
        ("m.json", '{"p": 1}', "should hold"),
    ],
)
def test_what_is_wrong_with_a_file(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_cost_map(path)
    assert str(path) in str(error.value)
