"""`train` from end to end: interruptions, refitting, forecasts of others, the stack, starts, verdicts, the choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import TimeSeriesSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dflearn as dfl
from dflearn.errors import DataError
from dflearn.tables import candidates, choice, cross_fitting, forecasters, linear, stack
from dflearn.tables.cross_fitting import Candidate
from dflearn.tables.forecasters import Combination

QUICK: dict[str, Any] = {
    "losses": ("sce",), "forecasters": ["ridge", "boosting"], "epochs": 3, "progress": False, "minutes": None
}  # fmt: skip
Named = dict[str, np.ndarray]
pytestmark = pytest.mark.xdist_group("pipeline")  # what they share is made once
LP = """\
Minimize
 cost: 1 a + 1 b + 1 c
Subject To
 need: a + b + c = 2
Bounds
 a <= 1
 b <= 1
 c <= 1.5
End
"""


@pytest.fixture(scope="module")
def tables() -> Named:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y = np.exp(x @ rng.normal(size=(2, 3)) / 2) + rng.normal(0, 0.3, (120, 3)) + 1
    return {"features": x, "costs": y}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dfl.Program:
    path = tmp_path_factory.mktemp("lp") / "need.lp"
    path.write_text(LP)
    return dfl.from_lp(path, costs=["a", "b", "c"])


def states(result: dfl.TrainResult) -> dict[str, dict[str, torch.Tensor]]:
    return {name: model.model_.state_dict() for name, model in result.models.items()}


def same(one: dfl.TrainResult, other: dfl.TrainResult) -> bool:
    a, b = states(one), states(other)
    return a.keys() == b.keys() and all(torch.equal(a[m][k], b[m][k]) for m in a for k in a[m])


@pytest.fixture(scope="module")
def whole(program: dfl.Program, tables: Named) -> dfl.TrainResult:
    return dfl.train(program, **tables, **QUICK)


def test_every_model_is_saved_and_read_again(whole: dfl.TrainResult, tables: Named, tmp_path: Path) -> None:
    for name, model in whole.models.items():
        model.save(tmp_path / "model.dfl", model.record_)
        again = dfl.DecisionFocusedRegressor.load(tmp_path / "model.dfl")
        np.testing.assert_array_equal(again.predict(tables["features"]), model.predict(tables["features"]), name)


def test_an_interrupted_call_goes_on_and_ends_with_the_same_model(
    program: dfl.Program, tables: Named, whole: dfl.TrainResult, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """What is finished is not done again; a run with other options leaves an unfinished one alone."""
    folder = tmp_path / "unfinished"
    stopped = patch.object(candidates.Candidates, "_trained", side_effect=KeyboardInterrupt)
    with stopped, pytest.raises(KeyboardInterrupt):
        dfl.train(program, **tables, **QUICK, checkpoint=folder)
    for change in ({"epochs": 2}, {"groups": np.arange(120) // 4}, {"forecasters": ["ridge"]}):
        options = QUICK | change
        capsys.readouterr()
        result = dfl.train(program, **tables, **options | {"progress": True}, checkpoint=folder)
        assert f"{folder} still holds what runs with other options or data left unfinished" in capsys.readouterr().err
        assert same(result, dfl.train(program, **tables, **options))
        assert [path.name for path in folder.iterdir()] == [whole.record["run"]]
    monkeypatch.setattr(forecasters.Boosting, "cross_fit", None)  # neither is cross-fitted again
    monkeypatch.setattr(stack, "crossed", None)
    result = dfl.train(program, **tables, **QUICK, checkpoint=folder)
    assert same(result, whole)
    assert result.record["settings"] == whole.record["settings"]
    assert not folder.exists()


def test_minutes_end_the_search_and_say_what_was_left_out(program: dfl.Program, tables: Named) -> None:
    result = dfl.train(program, **tables, **QUICK | {"minutes": 1e-9})
    assert list(result.models) == ["ridge", "boosting", "blend"]
    assert [note for note in result.notes if note.startswith("stack was left out after 1e-09 minutes")]
    assert result.chosen == result.baseline


def test_refitting_uses_all_rows_and_the_chosen_settings(
    program: dfl.Program, tables: Named, whole: dfl.TrainResult, tmp_path: Path
) -> None:
    result = dfl.train(program, **tables, **QUICK, refit=True)
    assert same(result, whole)
    assert result.final is not None
    result.save(tmp_path / "m.dfl")
    assert dfl.DecisionFocusedRegressor.load(tmp_path / "m.dfl").record_["refit"] == 120
    assert "trained again on all 120 rows" in str(result)
    one, x, y = result.final.model_, torch.tensor(tables["features"]), torch.tensor(tables["costs"])
    assert isinstance(one, Combination)
    if "ridge" in one.names:
        expected = forecasters.Ridge().fit(forecasters.Rows(x, y, None))(x)
        torch.testing.assert_close(one.parts[one.names.index("ridge")](x), expected)


@pytest.mark.parametrize(("rows", "size", "epochs"), [(160, 38, 32), (160, 600, 8), (160, 6000, 4), (10_000, 38, 4)])
def test_steps_are_counted(rows: int, size: int, epochs: int) -> None:
    assert linear.epochs_for(rows, size) == epochs


def test_a_forecast_that_is_right_is_kept_and_asked_for_later(
    program: dfl.Program, tables: Named, tmp_path: Path
) -> None:
    x, y = tables["features"], tables["costs"]
    names = list(program.cost_names or ())
    right = pd.DataFrame(y, columns=names)[names[::-1]]  # columns are matched by name
    result = dfl.train(program, **tables, **QUICK, forecast=right)
    assert result.baseline == result.chosen == "your forecast"
    assert result.tested["your forecast"].absolute_regret == pytest.approx(0, abs=1e-12)
    result.save(tmp_path / "m.dfl")
    with pytest.raises(DataError, match="builds on your own forecast"):
        dfl.decide(tmp_path / "m.dfl", x)
    decided = dfl.decide(tmp_path / "m.dfl", x, y, forecast=right)
    assert max(decided.columns["regret"]) == pytest.approx(0, abs=1e-9)
    useless = right * 0 + 1
    result = dfl.train(program, **tables, **QUICK, forecast=useless)
    assert result.baseline != "your forecast"
    assert result.verdict.startswith("Against your forecast: ")


def test_estimators_and_pipelines_are_candidates(program: dfl.Program, tables: Named, tmp_path: Path) -> None:
    ours = [("pipe", make_pipeline(StandardScaler(), Ridge(1.0))), KNeighborsRegressor(3), GradientBoostingRegressor()]
    result = dfl.train(program, **tables, **QUICK | {"forecasters": ours})
    assert list(result.models)[:4] == ["pipe", "KNeighborsRegressor", "GradientBoostingRegressor", "blend"]
    x, known = tables["features"], result.parts.train
    by_hand = make_pipeline(StandardScaler(), Ridge(1.0)).fit(x[known], tables["costs"][known]).predict(x)
    np.testing.assert_allclose(result.models["pipe"].predict(x), by_hand)
    for model in result.models.values():
        model.save(tmp_path / "model.dfl", model.record_)
        again = dfl.DecisionFocusedRegressor.load(tmp_path / "model.dfl", trust=True)
        np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_the_stack_minimizes_its_loss(program: dfl.Program, tables: Named) -> None:
    """Its gradient is that of finite differences, and no nearby weights are better; without known costs it stays near the best."""
    rng = np.random.default_rng(0)
    truth = torch.tensor(tables["costs"])
    forecasts = torch.stack([truth + torch.tensor(rng.normal(0, size, truth.shape)) for size in (0.3, 0.6)])
    data = dfl.label(dfl.DecisionDataset(torch.tensor(tables["features"]), truth), program)
    objective = stack.Objective(stack.stack_loss(program, 0.1), data)
    value, slope = objective(forecasts[0])
    way = torch.tensor(rng.normal(size=truth.shape))
    for step in (1e-4, -1e-4):
        change = (objective(forecasts[0] + step * way)[0] - value) / step
        assert change == pytest.approx(float((slope * way).sum()), rel=1e-2)
    assert objective(truth)[0] == pytest.approx(0, abs=1e-6)  # its own label: least where the forecast is the truth
    first = torch.tensor([0.0, 1.0]).double()
    numbers = stack.learn(forecasts, first, truth, objective, np.zeros(3, int), offsets=True)

    def worth(numbers: stack.Numbers) -> float:
        unit = (forecasts[1] - truth).square().mean(0).sqrt()
        predicted = numbers(forecasts)
        off = lambda one: float(((one - truth) / unit).square().mean())  # noqa: E731
        return objective(predicted)[0] / objective(forecasts[1])[0] + stack.PULL * off(predicted) / off(forecasts[1])

    best = worth(numbers)
    assert best < worth(stack.Numbers(first[:, None].expand(-1, 3), torch.zeros(3).double()))
    for _ in range(10):
        shift = 0.05 * torch.tensor(rng.normal(size=(2, 1)))
        assert worth(numbers._replace(weight=numbers.weight + shift)) >= best - 1e-6
    assert float(numbers.weight[0].mean()) > float(numbers.weight[1].mean())


def test_the_estimator_takes_a_validation_set_rows_or_a_splitter(tables: Named, program: dfl.Program) -> None:
    x, y = tables["features"], tables["costs"]
    options: dict[str, Any] = {"loss": "mse", "epochs": 2, "start": "ridge", "refit": False}
    *_, (_, last) = TimeSeriesSplit(3).split(x)
    by_splitter = dfl.DecisionFocusedRegressor(program, **options).fit(x, y, validation=TimeSeriesSplit(3))
    by_rows = dfl.DecisionFocusedRegressor(program, **options).fit(x, y, validation=last)
    first = np.setdiff1d(np.arange(120), last)
    by_data = dfl.DecisionFocusedRegressor(program, **options).fit(x[first], y[first], validation=(x[last], y[last]))
    np.testing.assert_array_equal(by_splitter.held_out_, last)
    np.testing.assert_array_equal(by_splitter.predict(x), by_rows.predict(x))
    np.testing.assert_allclose(by_splitter.predict(x), by_data.predict(x), rtol=1e-6)


def test_noise_is_not_said_to_be_learned(program: dfl.Program) -> None:
    """Costs that no feature tells: one verdict, without a claim of a difference beyond chance on the test rows."""
    rng = np.random.default_rng(4)
    result = dfl.train(program, rng.normal(size=(60, 12)), rng.uniform(1, 2, (60, 3)), **QUICK | {"epochs": 1})
    assert result.tested["average costs"].absolute_regret <= result.tested[result.chosen].absolute_regret
    assert "does not beat average costs" in result.verdict
    assert "regret, beyond chance" not in str(result)


def candidate(name: str, regrets: np.ndarray, trees: bool = False) -> Candidate:
    return Candidate(name, torch.zeros(0), lambda _: Combination({}, 1, 1), trees=trees, regrets=regrets)


def chosen(
    base: np.ndarray, focused: dict[str, list[np.ndarray]], seed: int = 0, ordered: bool = False
) -> choice.Choice:
    held = {name: [candidate(name, one) for one in some] for name, some in focused.items()}
    return choice.choose(
        candidate("ridge", base), held, np.array_split(np.arange(len(base)), 4), ordered=ordered, seed=seed
    )


def test_cross_fitting_by_hand() -> None:
    """Two rows: each is judged by what is best on the other."""
    ours, theirs = np.array([[1.0, 9.0], [5.0, 2.0]]), np.array([[4.0, 4.0]])
    np.testing.assert_allclose(choice.cross_fitted(ours, theirs, seed=0), [5.0 - 4.0, 9.0 - 4.0])


def test_the_best_of_many_by_chance_is_kept_no_more_often_than_one() -> None:
    """Fifty candidates without any gain: the best of them looks good, and is kept about as often as one standard error says."""
    rng = np.random.default_rng(0)
    kept, optimism = 0, 0.0
    for seed in range(200):
        base = rng.exponential(size=100)
        candidates = [base + rng.normal(size=100) for _ in range(50)]
        kept += chosen(base, {"sce": candidates}, seed).chosen == "sce"
        optimism += min(one.mean() for one in candidates) - base.mean()
    assert optimism / 200 < -0.2  # two standard errors of a single candidate
    assert kept <= 50  # one in six is 33; the best of fifty on the same rows would always be kept


def test_a_true_gain_is_kept_and_the_ordinary_model_otherwise() -> None:
    rng = np.random.default_rng(0)
    base = rng.exponential(size=100)
    better, worse = base - 0.3 + rng.normal(0, 0.5, 100), base + 1
    found = chosen(base, {"sce": [worse], "spo+": [base, better]})
    assert (found.baseline, found.focused, found.chosen) == ("ridge", "spo+", "spo+")
    assert found.gain.high < 0
    nearly = better + 0.01 + rng.normal(0, 0.2, 100)
    assert chosen(base, {"stack": [nearly], "spo+": [better]}).chosen == "stack"  # the simplest of equals
    found = chosen(base, {"sce": [worse]})
    assert (found.baseline, found.focused, found.chosen) == ("ridge", "sce", "ridge")
    fading = better.copy()
    fading[75:] = base[75:] + 1
    assert chosen(base, {"sce": [fading]}, ordered=True).chosen == "ridge"  # worse in the last window
    assert chosen(base[:10], {"sce": [base[:10] - 1]}).chosen == "ridge"  # too few rows
    assert chosen(base, {}).chosen == "ridge"
    assert chosen(base, {"sce": [np.full(100, np.inf)]}).chosen == "ridge"


def test_drift_votes_against_trees_and_a_forecast_that_is_there_is_kept_if_as_good() -> None:
    rng = np.random.default_rng(0)
    base = rng.exponential(size=100)
    little, much = base - 0.01 + rng.normal(0, 0.3, 100), base - 0.5
    ridge, boosting = candidate("ridge", base), candidate("boosting", little - little.mean() + base.mean() - 0.01, True)
    assert choice.best_ordinary([ridge, boosting], drifts=False) is boosting  # both are forecasts: the better one
    assert choice.best_ordinary([boosting, ridge], drifts=True) is ridge
    clear = base - 0.1 + rng.normal(0, 0.6, 100)
    clear += base.mean() - 1.5 * choice.error_of(base - clear) - clear.mean()  # by one and a half standard errors
    assert choice.best_ordinary([ridge, candidate("boosting", clear, True)], drifts=True).trees
    better, yours = candidate("boosting", much, True), candidate("your forecast", base)
    assert choice.best_ordinary([yours, better], drifts=True) is better
    assert choice.best_ordinary([boosting, yours], drifts=False) is yours
    x = rng.normal(size=(100, 2))
    assert not choice.drifting(x[:80], x[80:])
    assert choice.drifting(x[:80], x[80:] + np.array([0, 5]))
    clock = np.column_stack([x, np.arange(100)])  # days since the first are always beyond those before
    assert not choice.drifting(clock[:80], clock[80:])


def test_few_exact_solves_leave_fewer_rows_to_choose_by_and_a_note(
    program: dfl.Program, tables: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = Mock(wraps=cross_fitting.solve_cached)
    monkeypatch.setattr(cross_fitting, "solve_cached", solve)
    result = dfl.train(program, **tables, **QUICK, solves=400)
    assert 200 < sum(len(call.args[1]) for call in solve.call_args_list) < 600
    (note,) = [note for note in result.notes if "exact solves" in note]
    rows = len(result.validation[result.chosen].regrets)
    assert note == f"choices were made on {rows} of 90 rows left out, for some 400 exact solves: see solves="
    assert rows < 60
    assert not [note for note in dfl.train(program, **tables, **QUICK, solves=10**6).notes if "exact solves" in note]
