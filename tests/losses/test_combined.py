"""Losses added with weights, and functions as losses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DataError, OptionError
from dflearn.layers import Exact, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, Combined, FenchelYoung, FunctionLoss, Loss, SPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.testing.losses import check_loss
from dflearn.training import fit
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import weights

DATA = knapsack_data(20, seed=1)
BATCH = DATA.to(torch.float64).batch()
PREDICTED = BATCH.costs + 0.3 * torch.randn(20, ITEMS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def spo_plus() -> SPOPlus:
    return SPOPlus(Exact(HiGHS(RELAXED)))


def test_value_and_gradient_are_weighted_sums() -> None:
    parts: list[tuple[float, Loss]] = [(1.0, MSE()), (0.1, spo_plus()), (2.5, SCE(Smoothed(PROGRAM, 1.0)))]
    both = MSE() + 0.1 * spo_plus() + SCE(Smoothed(PROGRAM, 1.0)) * 2.5
    leaf = PREDICTED.clone().requires_grad_()
    both(leaf, BATCH).sum().backward()
    wanted = sum(weight * loss(PREDICTED, BATCH) for weight, loss in parts)
    torch.testing.assert_close(both(PREDICTED, BATCH), wanted)
    other = PREDICTED.clone().requires_grad_()
    sum(weight * loss(other, BATCH).sum() for weight, loss in parts).backward()  # type: ignore[union-attr]
    torch.testing.assert_close(leaf.grad, other.grad)
    assert [weight for weight, _ in both.terms] == [1.0, 0.1, 2.5]  # type: ignore[attr-defined]
    halved = 0.5 * both
    assert [weight for weight, _ in halved.terms] == [0.5, 0.05, 1.25]  # type: ignore[attr-defined]


def absolute_error(predicted: Tensor, batch: Batch) -> Tensor:
    return (predicted - batch.require("costs")).abs().sum(-1)


def test_contract() -> None:
    check_loss(MSE() + 0.1 * spo_plus(), PREDICTED, BATCH)
    check_loss(MSE() + 0.1 * SCE(Smoothed(PROGRAM, 1.0)), PREDICTED, BATCH, differentiable=True)
    absolute = FunctionLoss(absolute_error)
    absolute.needs = ("costs",)  # a function does not say what it reads
    check_loss(absolute, PREDICTED, BATCH, differentiable=True)


def test_starts_are_carried_where_one_layer_takes_them() -> None:
    one = MSE() + 0.1 * spo_plus()
    assert one.layer is not None
    assert (MSE() + MSE()).layer is None
    assert (spo_plus() + spo_plus()).layer is None  # two stores would be needed
    by_warm, by_cold = Linear(FEATURES, ITEMS), Linear(FEATURES, ITEMS)
    fit(by_warm, one, DATA, epochs=3)
    fit(by_cold, MSE() + 0.1 * spo_plus(), DATA, epochs=3, warm_start=False)
    torch.testing.assert_close(weights(by_warm), weights(by_cold), rtol=1e-4, atol=1e-5)
    fit(Linear(FEATURES, ITEMS), spo_plus() + SCE(Smoothed(RELAXED, 1.0)), DATA, epochs=1)


def test_needs_and_states_are_those_of_the_parts() -> None:
    young = FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5))
    assert (0.5 * young).needs == ("decisions",)
    assert set((MSE() + young).needs) == {"costs", "decisions"}
    both = MSE() + young
    state = both.state_dict()
    first = both(PREDICTED, BATCH)
    assert not torch.equal(both(PREDICTED, BATCH), first)
    both.load_state_dict(state)
    assert torch.equal(both(PREDICTED, BATCH), first)
    with pytest.raises(DataError, match="needs costs"):
        both(PREDICTED, replace(BATCH, costs=None))


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf"), True, "a"])
def test_weights_are_positive_numbers(weight: float) -> None:
    with pytest.raises(OptionError, match="positive number"):
        weight * MSE()
    with pytest.raises(OptionError, match="added to losses"):
        MSE() + weight  # type: ignore[operator]
    with pytest.raises(OptionError, match="added to losses"):
        Combined([(1.0, torch.nn.MSELoss())])  # type: ignore[list-item]
