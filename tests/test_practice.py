"""The practice problems: the same seed gives the same tables, every row can be decided, and the features tell something."""

import numpy as np
import pytest
import torch

from benchmarks.practice import DEVELOPMENT, PROBLEMS, Case
from benchmarks.practice.two_stage import average, ridge
from dflearn.data import DecisionDataset
from dflearn.data.encoding import Encoding
from dflearn.data.tables import MixedTable
from dflearn.evaluation import evaluate
from dflearn.solvers.task import DecisionTask

ON_DAYS = (
    "energy knapsack",
    "energy scheduling",
    "battery",
)  # whose few synthetic days leave ridge and average costs alike


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
    rows = parts.test[:: 4 if case.program.is_integer else 1]
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
    if name not in ON_DAYS:
        assert judged[ridge].absolute_regret < judged[average].absolute_regret
    assert (judged[ridge].regrets >= -1e-6 * np.abs(judged[ridge].optima).max()).all()
