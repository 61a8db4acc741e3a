"""Weights of instances: one of weight 2 trains and is judged as if it stood there twice, one of weight 0 as if not at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.layers.base import Exact
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import MSE, SCE, SPOPlus
from dflearn.models import Linear, Standardize
from dflearn.solvers.highs import HiGHS
from dflearn.training import fit
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import repeated, weighted, weights

TRAIN, VALIDATION = weighted(knapsack_data(50, 1)).to(torch.float64), weighted(knapsack_data(20, 2)).to(torch.float64)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def with_weights(data: DecisionDataset, numbers: torch.Tensor | None) -> DecisionDataset:
    return DecisionDataset(data.features, data.costs, data.decisions, data.instance, data.ids, weights=numbers)


@pytest.mark.parametrize(
    ("make_loss", "problem"),
    [
        (MSE, None),
        (lambda: SPOPlus(Exact(HiGHS(RELAXED))), HiGHS(PROGRAM)),
        (lambda: SCE(Smoothed(RELAXED, 0.5)), None),
    ],
    ids=["MSE", "SPO+", "SCE"],
)
def test_a_weight_counts_as_so_many_instances(make_loss: type[MSE], problem: HiGHS | None) -> None:
    options: dict[str, Any] = {"epochs": 5, "batch_size": 1000, "lr": 0.05, "problem": problem, "warm_start": False}
    runs = []
    for train, validation in ((TRAIN, VALIDATION), (repeated(TRAIN), repeated(VALIDATION))):
        model = Linear(FEATURES, ITEMS).double()
        rows = fit(model, make_loss(), train, validation=validation, **options).rows
        runs.append((weights(model), without_times(rows)))
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=1e-9, atol=1e-9)
    for row, other in zip(runs[0][1], runs[1][1], strict=True):
        assert row == pytest.approx(other, rel=1e-9)


def test_equal_weights_are_no_weights_and_their_unit_does_not_matter() -> None:
    runs = {}
    mixed = TRAIN.weights
    for name, numbers in {"none": None, "ones": torch.ones(50), "mixed": mixed, "larger": 64 * mixed}.items():
        model = Linear(FEATURES, ITEMS).double()
        data = with_weights(TRAIN, None if numbers is None else numbers.double())
        fit(model, MSE(), data, epochs=2, batch_size=16)
        runs[name] = weights(model)
    torch.testing.assert_close(runs["ones"], runs["none"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(runs["larger"], runs["mixed"], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(runs["mixed"], runs["none"], rtol=1e-3)


def test_scales_are_weighted() -> None:
    several = repeated(TRAIN)
    found, expected = (Scale.of(PROGRAM.objective, data) for data in (TRAIN, several))
    assert vars(found) == pytest.approx(vars(expected), rel=1e-12)
    bare = DecisionDataset(TRAIN.features, weights=TRAIN.weights)
    assert vars(Scale.of(PROGRAM.objective, bare)) == {"costs": 1, "objective": 1, "decisions": 1}
    found, expected = Standardize(FEATURES, TRAIN.features, TRAIN.weights), Standardize(FEATURES, several.features)
    torch.testing.assert_close(found(TRAIN.features), expected(TRAIN.features), rtol=1e-12, atol=1e-12)
    per_cost = TRAIN.features[:, None, :] + torch.arange(4.0)[:, None]
    found = Standardize(FEATURES, per_cost, TRAIN.weights)
    expected = Standardize(FEATURES, per_cost.repeat_interleave(TRAIN.weights.long(), 0))
    torch.testing.assert_close(found(per_cost), expected(per_cost), rtol=1e-12, atol=1e-12)
