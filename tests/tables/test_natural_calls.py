"""Calls as people write them: frames for frames, arrays for arrays, and errors that say what to write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dflearn as dfl
from dflearn.cli import main
from dflearn.errors import DataError, OptionError
from dflearn.tables import TrainResult

ITEMS = ["tent", "rope", "stove"]
LP = "Maximize\n obj: tent + rope + stove\nSubject To\n w: 3 tent + 2 rope + 4 stove <= 6\nBinaries\n tent rope stove\nEnd\n"
Tables = tuple[pd.DataFrame, pd.DataFrame]


def program() -> dfl.Program:
    return dfl.Program(
        G=[[3.0, 2.0, 4.0]], h=[6.0], upper=1, integer=True, S=-np.eye(3), sense="maximize", cost_names=ITEMS, variable_names=ITEMS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> Tables:
    rng = np.random.default_rng(0)
    days = [f"d{i}" for i in range(60)]
    x = pd.DataFrame({"day": days, "rain": rng.normal(size=60), "zone": np.tile(["01", "02", "10"], 20)})
    y = pd.DataFrame(4 + x[["rain"]].to_numpy() * [1, -1, 2] + rng.normal(size=(60, 3)), columns=ITEMS)
    return x, y.assign(day=days)


@pytest.fixture(scope="module")
def result(tables: Tables) -> TrainResult:
    return dfl.train(program(), *tables, id_column="day", losses=["spo+"], epochs=2, progress=False)


def test_a_loaded_model_answers_frames_with_frames(result: TrainResult, tables: Tables, tmp_path: Path) -> None:
    new = tables[0].tail(4)
    result.save(tmp_path / "m.dfl")
    model = dfl.load(tmp_path / "m.dfl")
    numbers = model.predict(new[["rain", "zone"]].to_numpy())
    assert isinstance(numbers, np.ndarray)
    costs = model.predict(new)
    expected = pd.DataFrame(numbers, pd.Index(new["day"], name="day"), ITEMS)
    pd.testing.assert_frame_equal(costs, expected, check_dtype=False)
    decided = model.decide(new)
    pd.testing.assert_frame_equal(decided, dfl.decide(model, new).frame[list(decided)])
    assert list(decided.index) == list(new["day"])
    assert list(decided) == [*(f"predicted {name}" for name in ITEMS), *ITEMS]
    np.testing.assert_array_equal(decided[ITEMS], model.decide(new[["rain", "zone"]].to_numpy()))
    told = dfl.decide(model, new).frame
    assert list(told) == ["status", *list(decided)[:3], "predicted_objective", *ITEMS]
    np.testing.assert_allclose(told["predicted_objective"], (costs.to_numpy() * decided[ITEMS].to_numpy()).sum(1))
    unnamed = new.drop(columns="day").set_axis(list("abcd"))
    assert list(model.decide(unnamed).index) == list(model.predict(unnamed).index) == list("abcd")
    assert model.predict(unnamed).index.name is None
    one = unnamed.iloc[0]  # other ways to write one row: tests/tables/test_workflow.py
    np.testing.assert_array_equal(model.decide(one)[ITEMS].to_numpy(), decided[ITEMS].to_numpy()[:1])
    np.testing.assert_allclose(model.predict(one).to_numpy(), numbers[:1])


def test_unusual_cells_are_said(result: TrainResult, tables: Tables) -> None:
    model, row = result.model, {"rain": 0.1, "zone": "01"}
    with pytest.warns(UserWarning, match=r"'zone' holds 'x', which no row trained on does"):
        model.predict(row | {"zone": "x"})
    as_pandas_reads = pd.DataFrame({"rain": [0.1, 0.2], "zone": [1, 10]})
    codes = r"'zone' holds 1, a number, and the rows trained on codes such as '01' \(2 such rows\)"
    with pytest.warns(UserWarning, match=f"{codes}: taken as none of its categories; read"):
        model.decide(as_pandas_reads)
    assert "read the column as text" in str(dfl.decide(model, as_pandas_reads))
    assert not dfl.decide(model, row).notes


def test_rows_trained_on_are_said(result: TrainResult, tables: Tables) -> None:
    known = [int(row) for part in result.parts[:2] for row in part]
    x, y = (table.iloc[[*known[:5], *result.parts.test]] for table in tables)
    notes = dfl.decide(result.model, x, y).notes
    assert notes == (f"5 of the {len(x)} rows were trained on: their regret says nothing about new rows",)
    assert not dfl.decide(result.model, x.iloc[5:], y.iloc[5:]).notes
    assert not dfl.decide(result.model, x).notes, "without costs there is no regret to doubt"


def test_dfl_evaluate_takes_a_model_beside_forecasts(
    result: TrainResult, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = (table.iloc[result.parts.test] for table in tables)
    result.save("m.dfl")
    Path("p.lp").write_text(LP)
    x.to_csv("x.csv", index=False)
    y.to_csv("y.csv", index=False)
    y.assign(**dict.fromkeys(ITEMS, 4.0)).to_csv("old.csv", index=False)
    asked = ["evaluate", "old.csv", "m.dfl", "--program", "p.lp", "--costs", "y.csv", "--id", "day"]
    assert main([*asked, "--features", "x.csv", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    tested = result.tested[result.chosen].absolute_regret
    assert document["predictions"]["m.dfl"]["metrics"]["absolute_regret"]["value"] == pytest.approx(tested)
    assert main(asked) != 0
    assert "m.dfl is a model and predicts from features: add --features TABLE" in capsys.readouterr().err


def test_errors_say_what_to_write(result: TrainResult, tables: Tables) -> None:
    x, y = tables
    for wrong in (program(), result):
        with pytest.raises(OptionError, match=r"got a \w+: write decide\(result\.model, …\)"):
            dfl.decide(wrong, x)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"losses are several names: write losses=\['sce'\]"):
        dfl.train(program(), x, y, losses="sce")
    with pytest.raises(OptionError, match="or a fitted estimator in scikit-learn's conventions; got a Program"):
        dfl.evaluate(program(), program(), result.data)
    with pytest.raises(DataError, match=r"write batch\.features"):
        result.data.batch()[0]


def test_fit_refuses_tables_with_another_index(tables: Tables) -> None:
    x, y = tables[0][["rain"]], tables[1][ITEMS]
    regressor = dfl.DecisionFocusedRegressor(program(), loss="mse", epochs=1)
    with pytest.raises(DataError, match=r"row 0 is 0 in the index of X and 59 in that of y: write y\.loc\[X\.index\]"):
        regressor.fit(x, y[::-1])
    same: Any = regressor.fit(x, y).predict(x)
    assert isinstance(same, np.ndarray)
    np.testing.assert_array_equal(regressor.fit(x, y.to_numpy()).predict(x), same)


def test_a_history_prints_in_ten_lines() -> None:
    history = dfl.History()
    assert str(history) == "no epoch is done yet"
    data = dfl.DecisionDataset(torch.randn(20, 2), torch.randn(20, 3))
    for epochs, validation in ((1, None), (40, data)):
        how: Any = {"validation": validation, "epochs": epochs, "progress": False}
        history = dfl.fit(torch.nn.Linear(2, 3), dfl.losses.MSE(), data, **how)
        lines = str(history).splitlines()
        assert len(lines) <= 10
        assert lines[-1].startswith(f"{epochs} epochs in ")
        assert lines[1].split()[0] == "1"
        assert lines[-2].split()[0] == str(epochs)
        if validation is not None:
            assert history.best is not None
            assert any(line.split()[0] == str(history.best["epoch"]) and line.endswith("best") for line in lines)
