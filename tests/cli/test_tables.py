"""dfl train and dfl decide on tables as people have them: categories, dates, gaps, groups, and a price for several units."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dflearn as dfl
from dflearn.cli import main
from dflearn.errors import SolverError
from dflearn.tables import fine_tuning
from dflearn.tables.encoding import Encoding
from dflearn.tables.tables import read_mixed

Output = pytest.CaptureFixture[str]
ROWS, NEW = 60, 4
UNITS = """\
Minimize
 cost: 1 gen(a,1) + 1 gen(a,2) + 2 gen(b,1) + 2 gen(b,2) + 3 start
Subject To
 need(1): gen(a,1) + gen(b,1) >= 3
 need(2): gen(a,2) + gen(b,2) >= 4
 c_u_once_: gen(a,1) + gen(a,2) - 5 start <= 1
Bounds
 start <= 1
 gen(a,1) <= 4
 gen(a,2) <= 4
 gen(b,1) <= 5
 gen(b,2) <= 5
General
 start
End
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """units.lp; x.csv with every kind of column; y.csv with a price for each hour, and b's own; new.csv."""
    monkeypatch.chdir(tmp_path)
    Path("units.lp").write_text(UNITS)
    Path("map.csv").write_text('cost,variable,factor\nprice_{t},"gen(a,{t})",1\nfuel,"gen(b,*)",2\n')
    rng = np.random.default_rng(0)
    wind = rng.normal(8, 3, ROWS + NEW).round(2)
    zone = rng.choice(["north", "south"], ROWS + NEW)
    x = pd.DataFrame(
        {
            "day": [f"{d:%d.%m.%Y}" for d in pd.date_range("2024-01-25", periods=ROWS + NEW)],
            "wind": [f"{1000 * w:,.1f}" for w in wind],
            "zone": zone,
            "holiday": rng.choice(["yes", "no"], ROWS + NEW),
            "block": np.arange(ROWS + NEW) // 4,
        }
    )
    x.loc[[2, 9, 30], "wind"] = ""
    x.loc[11, "zone"] = None
    level = 3 + 0.3 * wind + (zone == "north")
    y = pd.DataFrame({f"price_{t}": (level + t + rng.normal(0, 0.2, ROWS + NEW)).round(3) for t in (1, 2)})
    y["fuel"] = (2 + 0.2 * wind + rng.normal(0, 0.1, ROWS + NEW)).round(3)
    for what, name in ((x, "x"), (y, "y")):
        what[:ROWS].to_csv(f"{name}.csv", index=False)
        what[ROWS:].to_csv(f"new_{name}.csv", index=False)
    return tmp_path


def train(*more: str) -> int:
    files = [
        "--program",
        "units.lp",
        "--features",
        "x.csv",
        "--costs",
        "y.csv",
        "--map",
        "map.csv",
        "--out",
        "model.dfl",
    ]
    return main(["train", *files, "--loss", "spo+", "--epochs", "2", *more])


def decide(*more: str) -> int:
    return main(["decide", "--model", "model.dfl", "--features", "new_x.csv", "--out", "decided.csv", *more])


def record() -> dict[str, Any]:
    with zipfile.ZipFile("model.dfl") as archive:
        return json.loads(archive.read("metadata.json"))["record"]


def test_from_mixed_tables_to_decisions(folder: Path, capsys: Output) -> None:
    assert train("--ordered", "--gap", "1", "--groups", "block") == 0
    out = capsys.readouterr().out
    assert "column 'wind' is empty (3 such rows): taken as" in out
    held = Encoding.from_dict(record()["encoding"])
    assert {column.name: column.kind for column in held.columns} == {
        "day": "time",
        "wind": "number",
        "zone": "category",
        "holiday": "boolean",
    }
    assert held.aside == ("block",)
    new = pd.read_csv("new_x.csv")
    new.loc[1, "zone"] = "west"
    new.loc[2, "wind"] = "999,999.0"
    new.assign(mood="fine").to_csv("new_x.csv", index=False)
    assert decide("--costs", "new_y.csv") == 0
    said = capsys.readouterr().out
    assert "note: new_x.csv, line 3, column 'zone' holds 'west', which no row trained on does" in said
    assert "note: new_x.csv, line 4, column 'wind' holds 999999, far outside" in said
    assert "note: new_x.csv has the column 'mood', which is no feature of the model: ignored" in said
    assert "block" not in said
    found = pd.read_csv("decided.csv")
    model = dfl.DecisionFocusedRegressor.load("model.dfl")
    predicted = model.predict(held(read_mixed("new_x.csv")))
    a, b = found[["gen(a,1)", "gen(a,2)"]].to_numpy(), found[["gen(b,1)", "gen(b,2)"]].to_numpy()
    for costs, column in ((predicted, "predicted_objective"), (pd.read_csv("new_y.csv").to_numpy(), "true_objective")):
        np.testing.assert_allclose(
            found[column], (costs[:, :2] * a).sum(1) + 2 * costs[:, 2] * b.sum(1) + 3 * found["start"]
        )
    assert model.solver_.program.cost_names == ("price_1", "price_2", "fuel")


def test_frames_of_the_same_tables_give_the_same_model(folder: Path) -> None:
    """Python and the command line; and rows that stand in another order under the same index."""
    assert train() == 0
    saved = dfl.DecisionFocusedRegressor.load("model.dfl")
    x, y = pd.read_csv("x.csv", dtype={"wind": str}), pd.read_csv("y.csv")
    x["day"] = pd.to_datetime(x["day"], format="%d.%m.%Y")
    x["zone"], x["holiday"] = x["zone"].astype("category"), x["holiday"] == "yes"
    x["wind"] = x["wind"].str.replace(",", "").astype(float)
    program = dfl.from_lp("units.lp", costs={"price_{t}": {"gen(a,{t})": 1}, "fuel": {"gen(b,*)": 2}})
    labels = [f"r{i}" for i in range(ROWS)]
    shuffled = y.set_index(pd.Index(labels)).sample(frac=1, random_state=0)
    options: dict[str, Any] = {"losses": ["spo+"], "epochs": 2, "progress": False}
    result = dfl.train(program, x.set_index(pd.Index(labels)), shuffled, **options)
    new = read_mixed("new_x.csv")
    one, other = (Encoding.from_dict(held["encoding"]) for held in (saved.record_, result.model.record_))
    np.testing.assert_array_equal(one(new), other(new))
    np.testing.assert_allclose(saved.predict(one(new)), result.model.predict(other(new)), rtol=1e-9)


def test_sides_by_names_of_another_tool(folder: Path) -> None:
    """The table says `need[1]` and `once`, the file `need(1)` and `c_u_once_`."""
    sides = pd.DataFrame({"Need[1]": np.full(ROWS, 2.0), "once": np.full(ROWS, "1,000.0")})
    sides.to_csv("sides.csv", index=False)
    assert train("--instances", "sides.csv", "--positive") == 0
    sides[:NEW].to_csv("new_sides.csv", index=False)
    assert decide("--instances", "new_sides.csv") == 0
    found = pd.read_csv("decided.csv")
    np.testing.assert_allclose(found["gen(a,1)"] + found["gen(b,1)"], 2)
    assert not found["start"].any()


def test_folds_and_weights(folder: Path, capsys: Output) -> None:
    pd.DataFrame({"w": np.linspace(1, 2, ROWS)}).to_csv("w.csv", index=False)
    assert train("--folds", "2", "--weights", "w.csv", "--epochs", "1") == 0
    out = capsys.readouterr().out
    assert "2 folds in order of time" in out
    assert "model of the last fold" in out
    page = Path("model.html").read_text(encoding="utf-8")
    assert "All folds" in page
    for line in out.split("mean regret\n\n")[1].split("\n\n")[0].splitlines()[2:]:  # the rows of the printed table
        assert all(cell in page for cell in re.split(r"  +", line.strip()))
    assert decide() == 0
    assert train("--folds", "40") == 1
    assert "--test 0.5 of 60 rows is 30 for 40 folds" in capsys.readouterr().err


def test_rows_in_order_of_a_column(folder: Path, capsys: Output) -> None:
    assert train("--ordered", "day") == 0
    expected = record()["test"]
    order = np.random.default_rng(1).permutation(ROWS)
    for name in ("x.csv", "y.csv"):
        pd.read_csv(name).iloc[order].to_csv(name, index=False)
    capsys.readouterr()
    for more in (("--ordered",), ("--folds", "2")):
        assert train(*more) == 1
        said = capsys.readouterr().err
        assert "x.csv, line 3, column 'day' holds" in said
        assert "not in order of time by this column, and later ones would train the model: add --ordered day;" in said
        assert "if the rows are in order as they stand, add --ordered as-is" in said
    assert train("--ordered", "day") == 0
    assert record()["test"] == expected
    assert train("--ordered", "as-is") == 0
    assert record()["test"] != expected
    assert train("--ordered", "days") == 1
    assert "x.csv has no column 'days' to sort the rows by; did you mean 'day'?" in capsys.readouterr().err


def test_codes_and_words_from_training_to_decisions(folder: Path, capsys: Output) -> None:
    """Rows of 01 and of 1 differ in their costs, and so do those of "none" and of an empty cell."""
    x, y = pd.read_csv("x.csv"), pd.read_csv("y.csv")
    code, event = np.tile(["01", "1", "02"], ROWS // 3), np.tile(["none", "", "fair", "none"], ROWS // 4)
    x["code"], x["event"] = code, event
    y["fuel"] += 5 * (code == "01")
    x.to_csv("x.csv", index=False)
    y.to_csv("y.csv", index=False)
    assert train() == 0
    out = capsys.readouterr().out
    assert "note: the feature 'code' holds codes with leading zeros, as '01'" in out
    assert "x.csv, line 3, column 'event' is empty (15 such rows)" in out
    names = Encoding.from_dict(record()["encoding"]).names
    assert {"code=01", "code=1", "code=02", "event=none", "event=fair", "event missing"} <= set(names)
    new = pd.read_csv("new_x.csv").iloc[[0] * 4].assign(code=["01", "1", "02", "001"], event="none")
    new.to_csv("new_x.csv", index=False)
    assert decide() == 0
    assert "line 5, column 'code' holds '001', which no row trained on does" in capsys.readouterr().out
    model = dfl.DecisionFocusedRegressor.load("model.dfl")
    fuel = model.predict("new_x.csv")[:, 2]
    assert fuel[0] > fuel[1] + 2
    for code in ("01", "1"):  # alone in a table, where it could be a number
        new[new["code"] == code].to_csv("one.csv", index=False)
        assert model.predict("one.csv")[0, 2] == pytest.approx(fuel[0 if code == "01" else 1])


def test_the_next_command_works_after_an_error(folder: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise SolverError("something failed")

    with monkeypatch.context() as broken:
        broken.setattr(fine_tuning, "fit", fail)
        assert train() == 1
    assert Path("model.dfl.unfinished").exists()
    capsys.readouterr()
    assert train("--test", "0.3") == 0
    assert "model.dfl.unfinished still holds what runs with other options" in capsys.readouterr().err
    assert train() == 0
    assert not Path("model.dfl.unfinished").exists()
