"""`train` and `decide` from Python: frames, dicts, arrays and files of the same data give the same model and decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.linear_model import LinearRegression

import dflearn as dfl
from dflearn.cli import main
from dflearn.errors import DataError, OptionError, SolverError
from dflearn.evaluation.regret import without_roundoff
from dflearn.problems import problem_named
from dflearn.tables.tables import read_table

MODEL = """\
Maximize
 value: 1 tent + 1 stove + 1 rope + 0.5 spare
Subject To
 weight: 3 tent + 4 stove + 5 rope + spare <= 9
 least: tent + stove + rope >= 1
Binary
 tent stove rope spare
End
"""
ORDINARY = ["ridge"]
FEATURES, COSTS = ["rain", "wind"], ["tent", "stove", "rope"]
QUICK: dict[str, Any] = {"losses": ("spo+",), "forecasters": ["ridge"], "epochs": 2, "lr": 0.03, "progress": False}


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pd.DataFrame]:
    """Features, costs and instances of 30 days, and the program as a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("pack.lp").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.normal([10, 300], [5, 90], (30, 2)).round(3)
    y = (5 + ((x - [10, 300]) / [5, 90]) @ rng.uniform(-1, 1, (2, 3)) + rng.normal(0, 0.3, (30, 3))).round(3)
    sides = np.column_stack([rng.integers(6, 14, 30), rng.choice([0.0, 1.0], 30)])
    return {
        "features": pd.DataFrame(x, columns=FEATURES),
        "costs": pd.DataFrame(y, columns=COSTS),
        "instances": pd.DataFrame(sides, columns=["weight", "upper:rope"]),
    }


def program() -> dfl.Program:
    return dfl.from_lp("pack.lp", costs=COSTS)


def weights(model: dfl.DecisionFocusedRegressor) -> list[torch.Tensor]:
    return [value for _, value in sorted(model.model_.state_dict().items())]


def test_all_ways_to_hand_over_a_table_give_one_model(tables: dict[str, pd.DataFrame]) -> None:
    """Frames, shuffled columns, dicts, arrays, tables of files, and the command."""
    shuffled = {name: frame[frame.columns[::-1]] for name, frame in tables.items() if name != "features"}
    ways = [
        tables,
        {**shuffled, "features": tables["features"]},
        {name: frame.to_dict("list") for name, frame in tables.items()},
        {**tables, "features": tables["features"].to_numpy(), "costs": torch.tensor(tables["costs"].to_numpy())},
    ]
    for name, frame in tables.items():
        frame.to_csv(f"{name}.csv", index=False)
    ways.append({name: read_table(f"{name}.csv") for name in tables})
    results = [dfl.train(program(), **way, **QUICK) for way in ways]
    files = [part for name in tables for part in (f"--{name}", f"{name}.csv")]
    command = ["train", "--program", "pack.lp", "--loss", "spo+", "--forecasters", "ridge", "--out", "m.dfl"]
    command += ["--epochs", "2", "--lr", "0.03"]
    assert main([*command, *files]) == 0
    saved = dfl.DecisionFocusedRegressor.load("m.dfl")
    for result in results:
        for one, other in zip(weights(result.model), weights(saved), strict=True):
            assert torch.equal(one, other)
        assert result.chosen == saved.record_["chosen"]
        assert {name: judged.as_dict() for name, judged in result.tested.items()} == saved.record_["test"]


def test_the_result(tables: dict[str, pd.DataFrame]) -> None:
    result = dfl.train(program(), **tables, **QUICK | {"losses": ("spo+", "pfy")})
    focused = ["spo+", "pfy"]
    assert list(result.models) == [*ORDINARY, "stack", *focused, "focused boosting"]
    assert list(result.tested) == ["average costs", *result.models]
    assert result.rows == (22, 22, 8)
    regrets = {name: judged.absolute_regret for name, judged in result.validation.items()}
    assert result.baseline in ORDINARY
    assert regrets.keys() == result.models.keys()
    assert result.compared in ("stack", *focused, "focused boosting")
    difference = result.tested[result.compared].absolute_regret - result.tested[result.baseline].absolute_regret
    assert result.difference.absolute_regret.value == pytest.approx(difference)
    x = tables["features"].to_numpy()[result.parts.test]
    for name, model in result.models.items():  # models share their parts
        np.testing.assert_array_equal(result.tested[name].predictions, model.predict(x))
    text = str(result)
    assert "30 rows: 22 for training (22 left out in turn, for validation), 8 for testing" in text
    assert all(f"note: {note}" in text for note in result.notes)
    result.save("model.dfl")
    assert dfl.DecisionFocusedRegressor.load("model.dfl").record_["options"]["losses"] == ["spo+", "pfy"]


def test_decisions_are_optimal_for_the_predicted_costs(tables: dict[str, pd.DataFrame]) -> None:
    result = dfl.train(program(), **tables, **QUICK)
    result.save("model.dfl")
    new = {name: frame.head(6) for name, frame in tables.items()}
    found = dfl.decide(result.model, **new)
    assert dfl.decide("model.dfl", **new).columns == found.columns
    frame = pd.DataFrame(found.columns)
    assert list(frame) == ["status", "predicted_objective", "true_objective", "regret", *COSTS, "spare"]
    predicted, y = result.model.predict(new["features"].to_numpy()), new["costs"].to_numpy()
    reached = frame["true_objective"] + frame["regret"]
    for costs, objectives in ((predicted, frame["predicted_objective"]), (y, reached)):
        for row, (weight, rope), objective in zip(costs, new["instances"].to_numpy(), objectives, strict=True):
            rows = LinearConstraint([[3, 4, 5, 1], [-1, -1, -1, 0]], ub=[weight, -1])
            best = milp(-np.append(row, 0.5), constraints=rows, bounds=Bounds(0, [1, 1, rope, 1]), integrality=1)
            assert objective == pytest.approx(-best.fun, rel=1e-7)
    assert str(found).startswith("6 decisions, 6 optimal\nmean regret ")


def test_rows_are_matched_by_an_id_column(tables: dict[str, pd.DataFrame]) -> None:
    plain = dfl.train(program(), **tables, **QUICK)
    days = [f"d{i}" for i in range(30)]
    named = {name: frame.assign(day=days) for name, frame in tables.items()}
    named["costs"] = named["costs"].sample(frac=1, random_state=0)
    result = dfl.train(program(), **named, id_column="day", **QUICK)
    for one, other in zip(weights(result.model), weights(plain.model), strict=True):
        assert torch.equal(one, other)
    found = dfl.decide(result.model, named["features"], instances=named["instances"])  # the id column is remembered
    assert found.columns["day"] == days


def test_in_order_of_time_nothing_of_later_rows_is_trained_on(tables: dict[str, pd.DataFrame]) -> None:
    """Each window is forecast from the rows before it, less a gap; the models are fitted to all rows but those to test on."""
    x, y = tables["features"], tables["costs"]
    options = {**QUICK, "ordered": True, "gap": 2, "forecasters": [("least squares", LinearRegression()), "ridge"]}
    result = dfl.train(program(), x, y, **options)
    train, choose, test = result.parts
    assert (train.max() + 2, choose.max(), test.max()) == (test.min() - 1, train.max(), 29)
    assert result.rows == (20, 12, 8)
    with_one = np.column_stack([np.ones(30), x])
    after = with_one @ np.linalg.lstsq(with_one[train], y.to_numpy()[train], rcond=None)[0]
    np.testing.assert_allclose(result.models["least squares"].predict(x.to_numpy()), after)
    errors = []
    for own in np.array_split(choose, [3, 6, 9]):  # the windows
        before = np.arange(own[0] - 2)
        fit = np.linalg.lstsq(with_one[before], y.to_numpy()[before], rcond=None)[0]
        errors.append(np.square(with_one[own] @ fit - y.to_numpy()[own]))
    assert result.validation["least squares"].mse == pytest.approx(np.concatenate(errors).mean())
    assert result.model.record_["options"].items() >= {"ordered": True, "gap": 2}.items()


def test_a_named_column_puts_rows_in_order(tables: dict[str, pd.DataFrame]) -> None:
    """The same model and tests as of tables that were sorted by hand, with groups and weights; by a feature and by the id."""
    days = pd.date_range("2023-12-20", periods=30).strftime("%d.%m.%Y")  # as texts in another order
    groups, weights_of_rows = np.arange(30) // 3, np.linspace(1, 2, 30)
    shuffled = np.random.default_rng(1).permutation(30)
    options = {**QUICK, "gap": 1}
    for name, more in (("feature", {}), ("id", {"id_column": "day"})):
        x, y = tables["features"].assign(day=days), tables["costs"].assign(**({"day": days} if name == "id" else {}))
        by_hand: dict[str, Any] = {"groups": groups, "weights": weights_of_rows, "ordered": True}
        sorted_by_hand = dfl.train(program(), x, y, **by_hand, **options, **more)
        x, y = x.iloc[shuffled], y.iloc[shuffled]
        given = {"groups": groups[shuffled], "weights": weights_of_rows[shuffled], **options, **more}
        with pytest.raises(DataError, match=r"not in order of time.*pass ordered='day'"):
            dfl.train(program(), x, y, ordered=True, **given)
        result = dfl.train(program(), x, y, ordered="day", **given)
        assert [result.row_names[row] for row in result.parts.test] == [
            sorted_by_hand.row_names[row] if name == "id" else f"row {np.flatnonzero(shuffled == row)[0]}"
            for row in sorted_by_hand.parts.test
        ]
        for one, other in zip(weights(result.model), weights(sorted_by_hand.model), strict=True):
            assert torch.equal(one, other)
        assert result.record["test"] == sorted_by_hand.record["test"]
        assert result.record["options"]["ordered"] == "day"
    untold = dfl.train(program(), tables["features"], tables["costs"], ordered=True, **QUICK)
    assert "nothing in the table of features tells the time of a row" in untold.notes[0]


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "loss": ({"losses": ("spo",)}, OptionError, "^loss is one of sce, .*; got 'spo'"),
    "layer": ({"layer": "soft"}, OptionError, "^layer is one of auto, "),
    "test": ({"test": 0.9}, OptionError, "^test=0.9 of 30 rows is 27"),
    "few rows": ({"features": np.ones((9, 2)), "costs": np.ones((9, 3))}, DataError, "has 9 rows; .* 10 is the least"),
    "row count": ({"costs": np.ones((29, 3))}, DataError, "features has 30 rows and the table of costs has 29.*id_column"),
    "width": ({"costs": np.ones((30, 2))}, DataError, r"the table of costs needs .* 3: tent, stove, rope; got \(30, 2\)"),
    "names": ({"costs": pd.DataFrame(np.ones((30, 3)), columns=["tent", "stove", "ropes"])}, DataError, "did you mean 'ropes'"),
    "constant": ({"features": pd.DataFrame({"day": ["mon"] * 30})}, DataError, "every column holds one value in all rows"),
    "empty": ({"features": pd.DataFrame({"rain": [np.nan] * 30})}, DataError, "every column holds one value in all rows"),
    "infinite": ({"features": pd.DataFrame({"rain": [np.inf] * 30})}, DataError, "column 'rain' holds inf, no finite number"),
    "cost": ({"costs": pd.DataFrame({"tent": ["a"] * 30, "stove": 1, "rope": 2})}, DataError, "row 0, column 'tent' holds 'a'"),
    "twice": ({"features": pd.DataFrame(np.ones((30, 2)), columns=["a", "a"])}, DataError, "has 2 columns named 'a'"),
    "positive": ({"costs": -np.ones((30, 3)), "positive": True}, DataError, "column 'tent' holds -1, and positive=True"),
    "side": ({"instances": pd.DataFrame({"wieght": np.ones(30)})}, DataError, "'wieght' is neither .*'weight'"),
    "infeasible": ({"instances": {"weight": np.ones(30)}}, SolverError, "the table of instances, row 0 is INFEASIBLE"),
    "solver": ({"solver": dfl.HiGHS(dfl.Program(A=[[1, 1, 1]], b=[1]))}, DataError, "the solver solves .*which is another program"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_words_of_arguments(case: str, tables: dict[str, pd.DataFrame]) -> None:
    changes, kind, message = WRONG[case]
    with pytest.raises(kind, match=message) as error:
        dfl.train(program(), **{"features": tables["features"], "costs": tables["costs"], **QUICK, **changes})
    assert "--" not in str(error.value)


def test_decide_says_what_is_wrong(tables: dict[str, pd.DataFrame]) -> None:
    features = tables["features"]
    with_sides = dfl.train(program(), **tables, **QUICK).model
    plain = dfl.train(program(), features, tables["costs"], **QUICK).model
    with pytest.raises(DataError, match=r"the model was trained with instances \(columns weight, upper:rope\)"):
        dfl.decide(with_sides, features)
    with pytest.raises(DataError, match="the model was trained without instances"):
        dfl.decide(plain, features, instances=tables["instances"])
    by_hand = dfl.DecisionFocusedRegressor(program(), loss="mse", epochs=1)
    by_hand.fit(features.to_numpy(), tables["costs"].to_numpy())
    with pytest.raises(DataError, match="the model was not made by dfl train"):
        dfl.decide(by_hand, features)
    with pytest.raises(DataError, match="lacks the column 'wind' of the features in training; did you mean 'winds'"):
        dfl.decide(plain, features.rename(columns={"wind": "winds"}))
    heavy = {"weight": np.full(30, 1.0), "upper:rope": np.ones(30)}
    with pytest.raises(SolverError, match="the table of instances, row 0 is INFEASIBLE"):
        dfl.decide(with_sides, features, instances=heavy)
    assert set(dfl.decide(with_sides, features, instances=heavy, partial=True).columns["status"]) == {"infeasible"}
    light = dfl.HiGHS(replace(program(), h=program().h - [1, 0]))
    with pytest.raises(DataError, match=r"the solver solves .*which is another program"):
        dfl.decide(plain, features, solver=light)
    same = dfl.decide(plain, features, tables["costs"], solver=dfl.HiGHS(program()))
    assert same.columns["regret"] == dfl.decide(plain, features, tables["costs"]).columns["regret"]
    assert "constant" not in str(same)
    plain.record_ = {**plain.record_, "offset": -500.0}
    moved = dfl.decide(plain, features, tables["costs"])
    np.testing.assert_allclose(np.array(moved.columns["true_objective"]) + 500, same.columns["true_objective"])
    assert "% (the optimum without the constant -500 of the objective)" in str(moved)


def test_problems_and_solvers_say_what_is_decided_too(tmp_path: Path) -> None:
    problem = problem_named("KP-8", seed=1)
    data = problem.generate(30)
    x, y = data.features.double().numpy(), data.costs.double().numpy()
    given = (problem.program, problem, dfl.HiGHS(problem.program))
    first, *others = [dfl.train(what, x, y, **QUICK).model for what in given]
    others[0].save(tmp_path / "model.dfl", others[0].record_)
    for model, what in zip(others, (tmp_path / "model.dfl", others[1]), strict=True):
        np.testing.assert_allclose(model.predict(x), first.predict(x), rtol=1e-6)
        decided = dfl.decide(what, x).columns
        np.testing.assert_array_equal(np.column_stack([decided[f"w[{k}]"] for k in range(8)]), model.decide(x))
    with pytest.raises(OptionError, match="knows none"):
        dfl.train(dfl.from_callable(lambda c: (c < 0).astype(float), 8), x, y)


def test_one_row_as_people_write_it(tables: dict[str, pd.DataFrame]) -> None:
    """A dict of single values, a Series, a list of dicts, a file: the decision and the costs are those of the frame."""
    days = [f"d{i}" for i in range(30)]
    features, costs = (tables[name].assign(day=days) for name in ("features", "costs"))
    model = dfl.train(program(), features, costs, id_column="day", **QUICK).model
    whole = dfl.decide(model, features, costs)
    row = features.iloc[3]
    features.iloc[[3]].to_csv("one.csv", index=False)
    features.iloc[[3]].to_parquet("one.parquet")
    columns = {name: [cells[3]] for name, cells in whole.columns.items()}
    cells = {name: [cell] for name, cell in row.items()}
    for one in (row.to_dict(), row, [row.to_dict()], cells, "one.csv", Path("one.parquet")):
        assert dfl.decide(model, one, costs.iloc[[3]]).columns == columns
    assert dfl.decide(model, row.to_dict(), costs.iloc[3].to_dict()).columns == columns
    del columns["day"], columns["true_objective"], columns["regret"]
    for one in (row.drop("day").to_dict(), row[FEATURES].to_numpy(float)[None], features[FEATURES].iloc[[3]]):
        assert dfl.decide(model, one).columns == columns  # rows need no name to be decided
    with pytest.raises(DataError, match="'wind' is a single value, and 'rain' is a column of 2: give each one entry"):
        dfl.decide(model, {"rain": [1.0, 2.0], "wind": 3.0})
    with pytest.raises(DataError, match=r"got \(2,\); write one row as \[\[…\]\]"):
        dfl.decide(model, row[FEATURES].to_numpy(float))
    with pytest.raises(DataError, match="there is no table of features"):
        dfl.decide(model, None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the table of features is a int: pass a pandas DataFrame"):
        dfl.decide(model, 3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has no column 'date' to name the rows"):
        dfl.decide(model, features, id_column="date")


def test_a_trained_model_predicts_from_tables(tables: dict[str, pd.DataFrame]) -> None:
    """Whatever the order of columns, with text and gaps among them: as `decide` reads them."""
    zones = np.tile(["01", "1", "x"], 10)
    features = tables["features"].assign(zone=zones, open=np.tile(["yes", "no"], 15))
    result = dfl.train(program(), features, tables["costs"], **QUICK)
    result.save("m.dfl")
    features.to_csv("x.csv", index=False)
    expected = result.model.predict(result.data.features.numpy())
    loaded = dfl.load("m.dfl")
    backward = features[features.columns[::-1]]
    held = [features.to_dict("list"), features.to_dict("records"), features.to_numpy(), "x.csv"]
    for table in (features, backward, *held):
        np.testing.assert_array_equal(loaded.predict(table), expected)
    first = result.model.predict(result.data.features[:1].numpy())
    np.testing.assert_array_equal(loaded.predict(features.iloc[0].to_dict()), first)
    decided = pd.DataFrame(dfl.decide(loaded, features).columns)[[*COSTS, "spare"]]
    np.testing.assert_allclose(loaded.decide(backward)[[*COSTS, "spare"]], decided, atol=1e-9)
    solve = lambda y: dfl.HiGHS(program()).solve(torch.tensor(y)).decision.numpy()  # noqa: E731
    best, worth = solve(tables["costs"].to_numpy()), solve(expected)
    value = lambda w: (w * np.column_stack([tables["costs"], np.full(30, 0.5)])).sum()  # noqa: E731
    assert loaded.score(backward, tables["costs"]) == pytest.approx(value(worth) / value(best) - 1, abs=1e-9)
    with pytest.raises(DataError, match="features lacks the column 'wind' of the features in training"):
        loaded.predict(features.drop(columns="wind"))
    with pytest.raises(ValueError, match="expecting"):
        loaded.predict(np.ones((2, 9)))


def test_own_costs_that_predictions_replace_are_told(tables: dict[str, pd.DataFrame]) -> None:
    Path("pack.lp").write_text(MODEL.replace("1 tent + 1 stove + 1 rope", "0.4 tent + 0.6 stove + 0 rope"))
    told = "the model's own cost of 2 predicted variables, 0.4 … 0.6, is replaced by the predicted cost"
    assert program().elastic("weight", 9.0).replaced == {0: 0.4, 1: 0.6}
    assert any(note.startswith(told) for note in dfl.train(program(), **tables, **QUICK).notes)
    kept = tables["instances"].assign(**{"d:tent": 0.4, "d:stove": 0.6})
    assert not any("own cost" in note for note in dfl.train(program(), **tables | {"instances": kept}, **QUICK).notes)


def test_names_of_a_table_of_costs_are_remembered(tables: dict[str, pd.DataFrame]) -> None:
    nameless, other = replace(program(), cost_names=None), COSTS[::-1]
    given = {name: tables[name] for name in ("features", "costs")}
    result = dfl.train(nameless, **given, forecast=tables["costs"][other] + 1.0, **QUICK)
    alike = dfl.train(program(), **given, forecast=tables["costs"] + 1.0, **QUICK)
    assert result.tested["your forecast"].as_dict() == alike.tested["your forecast"].as_dict()
    result = dfl.train(nameless, **given, **QUICK)
    result.save("model.dfl")
    for model in (result.model, dfl.load("model.dfl")):
        one, two = (dfl.decide(model, given["features"], given["costs"][names]) for names in (COSTS, other))
        assert one.columns == two.columns
        assert list(one.predicted) == list(model.predict(given["features"])) == COSTS
        with pytest.raises(DataError, match="lacks the column 'tent' of the costs in training"):
            dfl.decide(model, given["features"], given["costs"].rename(columns={"tent": "sail"}))
    array = dfl.train(nameless, given["features"], given["costs"].to_numpy(), **QUICK)
    assert list(dfl.decide(array.model, given["features"], given["costs"]).predicted) == ["y[0]", "y[1]", "y[2]"]


def test_roundoff_is_no_regret_and_no_winner(tables: dict[str, pd.DataFrame]) -> None:
    result = dfl.train(program(), **tables, **QUICK)
    optima, noise = np.full(40, 3.0), np.random.default_rng(0).normal(size=40) * 1e-14
    measured: dict[str, Any] = {"ids": np.arange(40), "regrets": noise, "optima": optima, "squared_errors": optima}
    rounded = replace(result.tested[result.chosen], **measured)
    tested = {name: replace(rounded, regrets=noise * (k + 1) - 1e-15) for k, name in enumerate(result.tested)}
    same = dfl.compare(tested[result.compared], tested[result.baseline])
    text = str(replace(result, tested=tested, difference=same))
    assert not [words for words in ("did best", "would tell", "-0.00%") if words in text]
    assert "are the same on every row" in text
    regrets = without_roundoff(np.array([-1e-14, 2e-6, -1.0, np.nan]), np.array([1.0, 1.0, 0.0, np.nan]))
    np.testing.assert_array_equal(regrets, [0.0, 2e-6, -1.0, np.nan])


def test_a_gap_is_told(tables: dict[str, pd.DataFrame]) -> None:
    gap = dfl.train(program(), **tables, **QUICK, solver=dfl.Parallel(dfl.HiGHS(program(), gap=0.2), 1))
    assert any("within a gap of 0.2: regrets are against such decisions" in note for note in gap.notes)
