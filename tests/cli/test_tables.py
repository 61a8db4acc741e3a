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
from dflearn.tables.columns import Encoding
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
    files = "--program units.lp --features x.csv --costs y.csv --map map.csv --out model.dfl"
    return main(["train", *files.split(), "--loss", "spo+", "--epochs", "2", *more])


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
    kinds = {"day": "time", "wind": "number", "zone": "category", "holiday": "boolean"}
    assert {column.name: column.kind for column in held.columns} == kinds
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
        cost = (costs[:, :2] * a).sum(1) + 2 * costs[:, 2] * b.sum(1) + 3 * found["start"]
        np.testing.assert_allclose(found[column], cost)
    assert model.solver_.program.cost_names == ("price_1", "price_2", "fuel")


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
    order = np.random.default_rng(1).permutation(ROWS)
    for name in ("x.csv", "y.csv"):
        pd.read_csv(name).iloc[order].to_csv(name, index=False)
    for more in (("--ordered",), ("--folds", "2")):
        assert train(*more) == 1
        said = capsys.readouterr().err
        assert "x.csv, line 3, column 'day' holds" in said
        assert "later ones would train the model: add --ordered day;" in said
        assert "if the rows are in order as they stand, add --ordered as-is" in said
    tests = []
    for column in ("day", "as-is"):
        assert train("--ordered", column) == 0
        tests.append(record()["test"])
    assert tests[0] != tests[1]
    assert train("--ordered", "days") == 1
    assert "x.csv has no column 'days' to sort the rows by; did you mean 'day'?" in capsys.readouterr().err
