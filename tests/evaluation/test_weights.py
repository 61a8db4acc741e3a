"""Weights of instances: every metric is that of instances that stand there as often as they weigh."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from dflearn.data import DecisionDataset
from dflearn.errors import DataError
from dflearn.evaluation import METRICS, Evaluation, compare, estimates, evaluate
from dflearn.problems import problem_named

PROBLEM = problem_named("SP-5", seed=1)
DATA = PROBLEM.generate(80, seed=2)
WEIGHTS = np.random.RandomState(0).randint(0, 4, 80)
NOISE = torch.tensor(np.random.RandomState(1).lognormal(size=(80, 40)))


def judged(factor: float, rows: np.ndarray | None = None, weights: np.ndarray | None = WEIGHTS) -> Evaluation:
    """Predictions that are off by noise; on the given rows, or on all with weights."""
    given = None if weights is None else torch.tensor(weights).double()
    data = DecisionDataset(DATA.features, DATA.costs, weights=given)
    predicted = data.costs * (1 + factor * NOISE)
    if rows is not None:
        data, predicted = data.subset(rows), predicted[rows]
    return evaluate(predicted, PROBLEM, data, pessimistic=True, floor=True)


ROWS = np.repeat(np.arange(80), WEIGHTS)


@pytest.fixture(scope="module")
def both() -> tuple[Evaluation, Evaluation]:
    """With weights, and with each instance as often as it weighs."""
    return judged(1.0), judged(1.0, ROWS, None)


def test_a_weight_counts_as_so_many_instances(both: tuple[Evaluation, Evaluation]) -> None:
    (one, twice), plain = both, judged(1.0, weights=None)
    for name in METRICS:
        assert one.metrics[name].value == pytest.approx(twice.metrics[name].value, rel=1e-9)
        assert one.metrics[name].value != pytest.approx(plain.metrics[name].value, rel=1e-4)


def test_a_difference_is_weighted_too(both: tuple[Evaluation, Evaluation]) -> None:
    one, twice = both
    found, expected = compare(one, judged(0.3)), compare(twice, judged(0.3, ROWS, None))
    for name in ("absolute_regret", "mean_of_ratios", "ratio_of_sums"):
        assert getattr(found, name).value == pytest.approx(getattr(expected, name).value, rel=1e-9)
    with pytest.raises(DataError, match="have different weights"):
        compare(one, judged(1.0, weights=None))


def test_equal_weights_are_no_weights() -> None:
    plain, ones, larger = (judged(1.0, weights=w) for w in (None, np.ones(80), np.full(80, 2.0)))
    for name in METRICS:
        assert ones.metrics[name] == pytest.approx(plain.metrics[name], rel=1e-9)
        if name != "published_style":  # weights count as rows of a batch of 32
            assert larger.metrics[name] == pytest.approx(plain.metrics[name], rel=1e-9)


def test_an_interval_takes_each_instance_for_one_draw(both: tuple[Evaluation, Evaluation]) -> None:
    """Instances of weight zero do not narrow it, and repeated ones are narrower than weights, which are fewer draws."""
    one, twice = both
    for name in ("absolute_regret", "ratio_of_sums", "exact_share", "mse"):
        assert np.ptp(one.metrics[name][1:]) > np.ptp(twice.metrics[name][1:])
    assert estimates.effective_count(4, np.array([3.0, 3, 3, 0])) == pytest.approx(3)
    assert one.as_dict()["effective_instances"] == pytest.approx(WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum())
    assert "effective_instances" not in twice.as_dict()
    json.dumps(one.as_dict(), allow_nan=False)
    assert "worth" in str(one)
