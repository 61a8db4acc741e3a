"""`train` from end to end: budgets that can be repeated, interruptions, refitting, starts, verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import TimeSeriesSplit

import dflearn as dfl
from dflearn.data.split import Parts
from dflearn.errors import SolverError
from dflearn.solvers.task import DecisionTask
from dflearn.tables import fine_tuning, pipeline, two_stage

QUICK: dict[str, Any] = {"losses": ("sce",), "epochs": 3, "progress": False, "minutes": None}
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
def tables() -> dict[str, np.ndarray]:
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
def whole(program: dfl.Program, tables: dict[str, np.ndarray]) -> dfl.TrainResult:
    return dfl.train(program, **tables, **QUICK)


def test_decision_focused_models_are_never_worse_than_their_start_on_the_rows_to_choose_by(
    whole: dfl.TrainResult,
) -> None:
    for name in set(whole.models) - {"least squares", "ridge", "boosting", "blend"}:
        assert whole.validation[name].absolute_regret <= whole.validation["blend"].absolute_regret + 1e-12
    assert whole.baseline in ("least squares", "ridge", "boosting", "blend")


def test_every_model_is_saved_and_read_again(
    whole: dfl.TrainResult, tables: dict[str, np.ndarray], tmp_path: Path
) -> None:
    for name, model in whole.models.items():
        model.save(tmp_path / "model.dfl", model.record_)
        again = dfl.DecisionFocusedRegressor.load(tmp_path / "model.dfl")
        np.testing.assert_array_equal(again.predict(tables["features"]), model.predict(tables["features"]), name)


def test_steps_repeat_a_run_that_time_cut_short(
    program: dfl.Program, tables: dict[str, np.ndarray], whole: dfl.TrainResult
) -> None:
    cut = dfl.train(program, **tables, **QUICK | {"minutes": 1e-9})
    assert set(cut.record["steps"].values()) == {1}
    assert set(whole.record["steps"].values()) == {3}
    assert cut.record["runs"] != whole.record["runs"]
    again = dfl.train(program, **tables, **QUICK | {"steps": cut.record["steps"]})
    assert same(again, cut)
    assert again.record["runs"] == cut.record["runs"]


def test_an_interrupted_call_goes_on_and_ends_with_the_same_model(
    program: dfl.Program,
    tables: dict[str, np.ndarray],
    whole: dfl.TrainResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of a run, and between stages; what is finished is not done again."""
    folder, seen = tmp_path / "unfinished", []
    end = fine_tuning.Phases.on_epoch_end

    def stop(self: Any, run: Any, row: Any) -> bool:
        seen.append(row["epoch"])
        if len(seen) in stops:
            raise KeyboardInterrupt
        return end(self, run, row)

    monkeypatch.setattr(fine_tuning.Phases, "on_epoch_end", stop)
    stops: tuple[int, ...] = ()
    assert same(dfl.train(program, **tables, **QUICK), whole)
    uninterrupted, stops = len(seen), (5, 8)
    seen.clear()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            dfl.train(program, **tables, **QUICK, checkpoint=folder)
        assert (folder / whole.record["run"] / "boosting.stage").exists()
        monkeypatch.setattr(two_stage, "boosting_left_out", None)  # they are not fitted again
    result = dfl.train(program, **tables, **QUICK, checkpoint=folder)
    assert same(result, whole)
    assert result.record["steps"] == whole.record["steps"]
    assert result.record["runs"] == whole.record["runs"]
    assert not folder.exists()
    assert len(seen) == uninterrupted + 5  # each interruption loses the run that it falls into, two epochs and three


def test_a_run_with_other_options_leaves_an_unfinished_one_alone(
    program: dfl.Program,
    tables: dict[str, np.ndarray],
    whole: dfl.TrainResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is the model of a run in an empty folder, whatever differs; then the first goes on where it was."""
    folder = tmp_path / "unfinished"
    fits = fine_tuning.fit

    def fail(*_: Any, **__: Any) -> None:
        raise SolverError("the first run ends in an error")

    monkeypatch.setattr(fine_tuning, "fit", fail)
    with pytest.raises(SolverError):
        dfl.train(program, **tables, **QUICK, checkpoint=folder)
    monkeypatch.setattr(fine_tuning, "fit", fits)
    others = ({"epochs": 2}, {"losses": ("spo+",)}, {"groups": np.arange(120) // 4}, {"steps": {"": 1}})
    for change in others:
        options = QUICK | {"progress": True} | change
        capsys.readouterr()
        result = dfl.train(program, **tables, **options, checkpoint=folder)
        assert f"{folder} still holds what runs with other options or data left unfinished" in capsys.readouterr().err
        assert same(result, dfl.train(program, **tables, **QUICK | change))
        assert [path.name for path in folder.iterdir()] == [whole.record["run"]]
    monkeypatch.setattr(two_stage, "boosting_left_out", None)  # what is finished is not done again
    assert same(dfl.train(program, **tables, **QUICK, checkpoint=folder), whole)
    assert not folder.exists()


def test_refitting_uses_all_rows_and_the_chosen_settings(
    program: dfl.Program, tables: dict[str, np.ndarray], whole: dfl.TrainResult, tmp_path: Path
) -> None:
    result = dfl.train(program, **tables, **QUICK, refit=True)
    assert same(result, whole)
    assert result.final is not None
    result.save(tmp_path / "m.dfl")
    assert dfl.DecisionFocusedRegressor.load(tmp_path / "m.dfl").record_["refit"] == 120
    assert "trained again on all 120 rows" in str(result)
    if result.chosen in ("least squares", "ridge"):
        x, y = torch.tensor(tables["features"]), torch.tensor(tables["costs"])
        strength = 0.0 if result.chosen == "least squares" else None
        assert strength is None or torch.allclose(
            torch.tensor(result.model.predict(tables["features"])), two_stage.linear_fit(x, y, strength)(x)
        )


def pipeline_of(
    program: dfl.Program, tables: dict[str, np.ndarray], cuts: list[int], **settings: Any
) -> pipeline.Pipeline:
    x, costs = (torch.tensor(tables[name]) for name in ("features", "costs"))
    data, task = dfl.label(dfl.DecisionDataset(x, costs), program), DecisionTask.of(program)
    parts = Parts(*np.split(np.arange(120), cuts))
    clock, quiet = fine_tuning.Clock(), fine_tuning.Progress(False)
    return pipeline.Pipeline(task, task.solver, data, parts, pipeline.Settings(**settings), clock, quiet)


@pytest.mark.parametrize("name", ["ridge", "boosting", "blend", "sce"])
def test_any_model_can_be_refitted(name: str, program: dfl.Program, tables: dict[str, np.ndarray]) -> None:
    """With all rows in the training part but a few, the refitted model is nearly the model."""
    one = pipeline_of(program, tables, [112, 116], losses=("sce",), epochs=3, lr=0.01)
    one.run()
    again = one.refit(name)
    before, after = (fitted.module(one.data.features).detach() for fitted in (one.models[name], again))
    assert not torch.equal(before, after)
    assert float((before - after).abs().mean() / before.std()) < 0.3


def test_the_share_of_the_blend_is_by_regret_where_that_tells(
    program: dfl.Program, tables: dict[str, np.ndarray]
) -> None:
    """Forecasts that are all too high by the same decide rightly, whatever their squared error."""
    costs, one = torch.tensor(tables["costs"]), pipeline_of(program, tables, [60, 90], losses=("sce",))
    one._left_out_rows = np.arange(120)
    noise = torch.tensor(np.random.default_rng(1).normal(0, 1, costs.shape))
    assert one._share(costs + noise, costs + 5) == 1
    assert one._share(costs + 5, costs + noise) == 0
    unit = two_stage.units_of(costs)
    assert two_stage.best_share(costs + 1, costs - 2, costs, unit) < pipeline.SHARE
    assert one._share(costs + 1, costs - 2) == pipeline.SHARE  # both decide rightly
    least = two_stage.best_share(costs - 2, costs + 1, costs, unit)
    assert 0.6 < least < 0.7
    assert one._share(costs - 2, costs + 1) == least


@pytest.mark.parametrize(("rows", "size", "epochs"), [(160, 38, 32), (160, 600, 8), (160, 6000, 4), (10_000, 38, 4)])
def test_steps_are_counted(rows: int, size: int, epochs: int) -> None:
    assert fine_tuning.epochs_for(rows, size) == epochs


# -- the estimator --------------------------------------------------------------------------------------------------


def test_the_estimator_starts_at_ridge(tables: dict[str, np.ndarray], program: dfl.Program) -> None:
    x, y = tables["features"], tables["costs"]
    regressor = dfl.DecisionFocusedRegressor(program, start="ridge", epochs=1, lr=1e-9, refit=False).fit(x, y)
    kept = np.setdiff1d(np.arange(120), regressor.held_out_)
    rows = torch.tensor(x[kept]), torch.tensor(y[kept])
    reference = two_stage.linear_fit(*rows, two_stage.strength_by_leaving_one_out(*rows))
    np.testing.assert_allclose(regressor.predict(x), reference(torch.tensor(x)), rtol=1e-3)


def test_the_estimator_takes_a_validation_set_rows_or_a_splitter(
    tables: dict[str, np.ndarray], program: dfl.Program
) -> None:
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


# -- what it says ---------------------------------------------------------------------------------------------------


def test_noise_is_not_said_to_be_learned(program: dfl.Program) -> None:
    """Costs that no feature tells: one verdict, without a claim of a difference beyond chance on the test rows."""
    rng = np.random.default_rng(4)
    result = dfl.train(program, rng.normal(size=(60, 12)), rng.uniform(1, 2, (60, 3)), **QUICK | {"epochs": 1})
    assert result.tested["average costs"].absolute_regret <= result.tested[result.chosen].absolute_regret
    assert "does not beat average costs" in result.verdict
    assert "regret, beyond chance" not in str(result)


# -- the choice -----------------------------------------------------------------------------------------------------


def test_cross_fitting_by_hand() -> None:
    """Two rows: each is judged by what is best on the other."""
    ours, theirs = np.array([[1.0, 9.0], [5.0, 2.0]]), np.array([[4.0, 4.0]])
    np.testing.assert_allclose(fine_tuning.cross_fitted(ours, theirs, seed=0), [5.0 - 4.0, 9.0 - 4.0])


def test_the_best_of_many_by_chance_is_hardly_ever_kept() -> None:
    """Fifty candidates without any gain: the best of them looks good, and is kept about as often as two standard errors say."""
    rng = np.random.default_rng(0)
    kept, optimism = 0, 0.0
    for seed in range(200):
        base = rng.exponential(size=100)
        candidates = [base + rng.normal(size=100) for _ in range(50)]
        found = fine_tuning.choose("blend", base, {"sce": candidates}, seed=seed)
        kept += found.chosen == "sce"
        optimism += min(one.mean() for one in candidates) - base.mean()
    assert optimism / 200 < -0.2  # two standard errors of a single candidate
    assert kept <= 12  # one in forty is 5; the best of fifty on the same rows would always be kept


def test_a_true_gain_is_kept_and_two_stage_otherwise() -> None:
    rng = np.random.default_rng(0)
    base = rng.exponential(size=100)
    better, worse = base - 0.3 + rng.normal(0, 0.5, 100), base + 1
    found = fine_tuning.choose("blend", base, {"sce": [worse], "spo+": [base, better]}, seed=0)
    assert (found.baseline, found.focused, found.chosen) == ("blend", "spo+", "spo+")
    assert found.gain.high < 0
    found = fine_tuning.choose("blend", base, {"sce": [worse]}, seed=0)
    assert (found.baseline, found.focused, found.chosen) == ("blend", "sce", "blend")
    few = fine_tuning.choose("blend", base[:10], {"sce": [base[:10] - 1]}, seed=0)
    assert few.chosen == "blend"
    assert fine_tuning.choose("blend", base, {}, seed=0).chosen == "blend"
