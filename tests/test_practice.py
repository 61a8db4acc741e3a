"""The practice problems: the same seed gives the same tables, every row can be decided, and the features tell something."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks.practice import DEVELOPMENT, ON_DAYS, PROBLEMS, SEEDS, Case, study
from benchmarks.practice.page import by_choosing, difference, in_hindsight, over_seeds, summary, write
from benchmarks.practice.two_stage import TWO_STAGE, average, ridge
from dflearn.data import DecisionDataset
from dflearn.evaluation import evaluate
from dflearn.solvers.task import DecisionTask
from dflearn.tables.encoding import Encoding
from dflearn.tables.tables import MixedTable


@pytest.fixture(autouse=True)
def synthetic_days(monkeypatch):
    monkeypatch.delenv("DFLEARN_ENERGY", raising=False)


def held(case: Case) -> dict[str, np.ndarray]:
    return {
        f"{part}:{name}": column
        for part in ("features", "costs", "instances")
        for name, column in (getattr(case, part) or {}).items()
    }


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_seed_is_a_world(name):
    one, again, other = (held(PROBLEMS[name](seed)) for seed in (0, 0, 1))
    assert all(len(column) == len(one[key]) for column in one.values() for key in [next(iter(one))])
    for key, column in one.items():
        np.testing.assert_array_equal(column, again[key])
    assert any(len(other[key]) != len(column) or (other[key] != column).any() for key, column in one.items())


@pytest.mark.parametrize("name", PROBLEMS)
def test_ridge_forecasts_and_decides_better_than_average_costs(name):
    case = PROBLEMS[name](DEVELOPMENT)
    parts = case.parts
    assert not set(parts.train) & set(parts.test)
    assert not case.ordered or parts.train.max() < parts.choose.min() <= parts.choose.max() < parts.test.min()
    table = MixedTable.of(case.features, "features")
    X = Encoding.of(table, parts.train)(table)
    assert np.isfinite(X).all()
    Y = np.column_stack([case.costs[one] for one in case.program.cost_names])
    assert case.program.p <= 60
    rows = parts.test[:: 8 if case.program.is_integer else 1]
    instance = (
        None
        if case.instances is None
        else case.program.instance({key: column[rows] for key, column in case.instances.items()})
    )
    data = DecisionDataset(torch.tensor(X[rows]), torch.tensor(Y[rows]), instance=instance)
    task = DecisionTask.of(case.program)
    judged = {
        forecast: evaluate(
            forecast(X[parts.train], Y[parts.train])(X[rows]), task.program, data, task.solver, progress=False
        )
        for forecast in (average, ridge)
    }
    assert judged[ridge].mse < judged[average].mse
    if name not in ON_DAYS:  # whose few synthetic days leave ridge and average costs alike
        assert judged[ridge].absolute_regret < judged[average].absolute_regret
    assert (judged[ridge].regrets >= -1e-6 * np.abs(judged[ridge].optima).max()).all()


# -- the study's page -------------------------------------------------------------------------------------------------


def test_intervals_pool_the_seeds_and_widen_with_blocks():
    """Where rows are in order of time, ten neighbours that are alike tell as much as one."""
    rng = np.random.RandomState(0)
    alike = [np.repeat(rng.normal(0, 1, 40), 10) for _ in range(5)]
    told = {}
    for ordered in (True, False):
        records = [{"ordered": ordered, "regrets": {"default": one, "ridge": np.zeros(400)}} for one in alike]
        told[ordered] = difference(records, ["ridge"] * 5)
        assert told[ordered].value == pytest.approx(np.concatenate(alike).mean())
    half = 1.96 * np.concatenate(alike).std() / np.sqrt(2000)
    assert told[False].high - told[False].value == pytest.approx(half, rel=0.1)
    assert 2 < (told[True].high - told[True].low) / (2 * half) < 4


def test_intervals_over_seeds_are_those_of_students_test():
    rng = np.random.RandomState(0)
    records = [{"regrets": {"default": rng.normal(1, 1, 40), "ridge": rng.normal(0, 1, 40)}} for _ in range(6)]
    means = [np.mean(one["regrets"]["default"] - one["regrets"]["ridge"]) for one in records]
    found, wanted = over_seeds(records, ["ridge"] * 6), stats.ttest_1samp(means, 0).confidence_interval(0.95)
    np.testing.assert_allclose(found, [np.mean(means), wanted.low, wanted.high])


def record(seed, default, ordered=False):
    """Ridge loses about 1, least squares 2; the default as much more than ridge as it is told, give or take 0.1."""
    rng = np.random.RandomState(seed)
    regrets = {
        name: np.abs(rng.normal(mean, 0.1, 60)).tolist()
        for name, mean in (("average costs", 5), ("least squares", 2), ("ridge", 1), ("boosting", 3))
    }
    regrets |= {f"dflearn {name}": regrets[name] for name in TWO_STAGE} | {"dflearn blend": regrets["ridge"]}
    return {
        "problem": "battery", "seed": seed, "money": "€", "ordered": ordered, "synthetic days": True, "chosen": "spo+",
        "choosing": {name: 1.0 if name == "ridge" else 4.0 for name in regrets}, "optima": [10.0] * 60,
        "regrets": regrets | {"default": (np.add(regrets["ridge"], default - 1) + np.tile([0.1, -0.1], 30)).tolist()},
        "seconds": {"default": 5.0, "default, processor": 4.0}, "machine": {"commit": "abc"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("default", "verdict"), [(0.5, "better"), (1.5, "worse"), (1.0, "no difference beyond chance")]
)
def test_a_loss_is_shown_like_a_win(default, verdict, tmp_path):
    kept = tmp_path / study.RECORDS
    study.keep(kept, [record(2, default), record(1, default)])
    records = study.read(kept)
    assert [one["seed"] for one in records] == [1, 2]
    assert difference(records, [by_choosing(one) for one in records]).verdict == verdict
    assert in_hindsight(records) == "ridge"
    text = write(tmp_path, records)
    assert verdict in text
    assert "SYNTHETIC" in text
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == text
    assert (tmp_path / "saved.png").stat().st_size > 1000


# -- what is committed ------------------------------------------------------------------------------------------------

FOLDER = Path(__file__).parents[1] / "results" / "practice"


def test_the_committed_study_is_complete_and_its_table_that_of_the_records():
    records = study.read(FOLDER / study.RECORDS)
    there = [(one["problem"], one["seed"]) for one in records]
    rounds = sum(problem == "transport" for problem, _ in there)  # complete ones: a seed of each problem
    assert there == [(name, seed) for name in PROBLEMS for seed in SEEDS[name][:rounds]]
    assert rounds >= 2
    assert len({one["machine"]["commit"] for one in records}) == 1  # one default made them all
    assert not any(one["synthetic days"] for one in records)
    assert (FOLDER / "table.md").read_text(encoding="utf-8") == summary(records)
