"""Forecasts beside scikit-learn's, forecasts of rows left out, combinations in files, and corrections that begin at zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from dflearn.data import DecisionDataset
from dflearn.errors import DataError, OptionError
from dflearn.models import Standardize, Trees, predict
from dflearn.tables import linear, stack
from dflearn.tables.cross_fitting import folds_of
from dflearn.tables.forecasters import (
    Boosting,
    Combination,
    Estimator,
    Forecaster,
    Given,
    Huber,
    Own,
    Ridge as OurRidge,
    Rows,
    as_trees,
    forecasters_of,
)


def data(rows: int = 60, k: int = 4, p: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(3, [1, 10, 0.1, 2], (rows, k))
    truth = np.random.default_rng(9).normal(size=(k, p))
    y = 5 + np.tanh((x - 3) / [1, 10, 0.1, 2]) @ truth * [1, 100, 0.01] + rng.normal(size=(rows, p)) * [0.1, 10, 0.001]
    return torch.tensor(x), torch.tensor(y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strength", [0.0, 0.03, 10.0])
def test_linear_fits_are_those_of_scikit_learn(strength: float, weighted: bool) -> None:
    x, y = data()
    weights = torch.rand(60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) if weighted else None
    fit = linear.linear_fit(x, y, strength, weights)
    own = None if weights is None else weights.numpy()
    z = StandardScaler().fit(x.numpy(), sample_weight=own).transform(x.numpy())
    total = 60.0 if own is None else own.sum()
    reference = (Ridge(strength * total) if strength else LinearRegression()).fit(z, y.numpy(), own)
    np.testing.assert_allclose(fit(x).numpy(), reference.predict(z), rtol=1e-9)


def test_features_that_depend_on_each_other_and_constant_ones_do_no_harm() -> None:
    x, y = data()
    more = torch.cat([x, x[:, :1] + x[:, 1:2], torch.ones(60, 1, dtype=torch.float64)], 1)
    np.testing.assert_allclose(linear.linear_fit(more, y)(more), linear.linear_fit(x, y)(x), rtol=1e-8)


def test_trees_are_scikit_learns() -> None:
    """To the last digits, with missing values, and after a way through a state."""
    x, y = data(300)
    x[::7, 1] = torch.nan
    trees = as_trees(Boosting(number=20, seed=3).models(Rows(x, y, None)), 20, linear.units_of(y))
    new, _ = data(100, seed=1)
    new[::3, 1], new[::5, 0] = torch.nan, torch.nan
    for j, unit in enumerate(y.std(0, correction=0).numpy()):
        model = HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=15, early_stopping=False, random_state=3)
        model.fit(x.numpy(), y[:, j].numpy() / unit)
        np.testing.assert_allclose(trees(new)[:, j], model.predict(new.numpy()) * unit, rtol=1e-12)
    again = Trees(3)
    again.load_state_dict(trees.state_dict())
    assert torch.equal(again(new), trees(new))
    assert torch.equal(trees(new[:1]), trees(new)[:1])
    assert trees(new[:0]).shape == (0, 3)
    assert trees.float()(new.float()).dtype == torch.float64


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("forecaster", [OurRidge(), Boosting(number=5), Own("t", DecisionTreeRegressor(max_depth=2))])
def test_no_row_is_forecast_by_a_model_that_saw_it(forecaster: Forecaster, ordered: bool) -> None:
    """Where one row's costs change, its own forecast does not; in order of time, no earlier row's does."""
    x, y = data(80)
    folds = folds_of(np.arange(80), ordered=ordered, gap=2 if ordered else 0, seed=0)
    rows = np.concatenate([own for _, own in folds])
    assert len(folds) == 4
    assert sorted(rows) == (list(range(32, 80)) if ordered else list(range(80)))
    plain = forecaster.cross_fit(Rows(x, y, None), folds)[1]
    for changed in (40, 55):
        other = y.clone()
        other[changed] += 1e3
        moved = forecaster.cross_fit(Rows(x, other, None), folds)[1]
        near = torch.isclose(plain, moved, rtol=1e-3, atol=1e-3).all(1)  # trees are fitted in other units
        same = [row for row, one in zip(rows, near, strict=True) if one]
        assert changed in same
        assert not ordered or set(range(32, changed + 3)) <= set(same)
        assert len(same) < len(rows)


@pytest.mark.parametrize("ordered", [False, True])
def test_folds_keep_groups_together(ordered: bool) -> None:
    groups = np.repeat([f"shop {i}" for i in range(13)], 7)
    rows = np.arange(10, 91)
    folds = folds_of(rows, ordered=ordered, groups=groups, seed=0)
    assert len(folds) > 1
    for others, own in folds:
        assert not set(groups[others]) & set(groups[own])
        assert set(others) | set(own) <= set(rows)
        assert not ordered or others.max() < own.min()


def test_the_number_of_trees_is_the_one_that_forecasts_rows_left_out_best() -> None:
    x, y = data(120)
    folds = folds_of(np.arange(120), ordered=False, seed=0)
    truth = y[np.concatenate([own for _, own in folds])]
    unit = linear.units_of(truth)

    def error(forecasts: torch.Tensor) -> float:
        return float(((forecasts - truth) / unit).square().sum())

    chosen, boosted = Boosting().cross_fit(Rows(x, y, None), folds)
    assert chosen.number is not None
    for other in {1, max(1, chosen.number - 1), chosen.number + 1, 22}:  # few rows make for 22 trees at most
        assert error(boosted) <= error(Boosting(number=other).cross_fit(Rows(x, y, None), folds)[1]) * (1 + 1e-3)


def test_huber_is_not_moved_by_a_row_far_off() -> None:
    x, y = data(100)
    clean = Huber().fit(Rows(x, y, None))(x).detach()
    y[3] *= 1e3
    moved = Huber().fit(Rows(x, y, None))(x).detach()
    others = np.arange(100) != 3
    assert float((moved - clean)[others].abs().max() / clean.std()) < 0.2
    assert float((OurRidge().fit(Rows(x, y, None))(x).detach() - clean)[others].abs().max() / clean.std()) > 1


def test_a_combination_is_the_weighted_sum_and_keeps_itself_in_numbers() -> None:
    """Linear maps, trees, an estimator of scikit-learn and a given forecast; the file needs no pickle."""
    x, y = data(80)
    whole, rows = torch.cat([x, y + 1], 1), Rows(x, y, None)
    parts = {
        "ridge": OurRidge().fit(rows),
        "boosting": Boosting(number=3).fit(rows),
        "own": Own("own", make_pipeline(StandardScaler(), Ridge(2.0))).fit(rows),
        "each": Own("each", HistGradientBoostingRegressor(max_iter=3)).fit(rows),
        "given": Given(),
    }
    weight, offset = torch.rand(5, 3, dtype=torch.float64), torch.tensor([1.0, -2.0, 3.0]).double()
    one = Combination(parts, 4, 3, weight, offset, positive=0.5)
    with torch.no_grad():
        found = [part(y + 1 if isinstance(part, Given) else x) for part in parts.values()]
        expected = torch.nn.functional.softplus((offset + (weight[:, None] * torch.stack(found)).sum(0)) / 0.5) * 0.5
        torch.testing.assert_close(one(whole), expected)
        again = Combination.of(one.plan())
        again.load_state_dict(one.state_dict())
        assert torch.equal(again(whole), one(whole))


class Mean(BaseEstimator):
    """An estimator that no file may bring back unasked."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Mean:
        self.mean_ = y.mean(0)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.tile(self.mean_, (len(x), 1))


def test_an_estimator_of_ones_own_is_loaded_only_by_those_who_trust_it() -> None:
    x, y = data(20)
    part = Estimator(3, Mean().fit(x.numpy(), y.numpy()))
    state = Combination({"mean": part}, 4, 3).state_dict()
    plan = {"parts": [["mean", "estimator"]], "features": 4, "costs": 3, "positive": 0, "scenarios": 0}
    with pytest.raises(DataError, match=r"holds objects of .*Mean, whose code loading would run.*trust=True"):
        Combination.of(plan).load_state_dict(state)
    with pytest.raises(DataError, match=r"1000000000 scenarios, and 100 are the most"):
        Combination.of(plan | {"scenarios": 10**9})
    trusted = Combination.of(plan, trust=True)
    trusted.load_state_dict(state)
    torch.testing.assert_close(trusted(x), y.mean(0).expand(20, 3))


def test_forecasters_by_name_and_by_hand() -> None:
    given = ["ridge", Ridge(), ("mine", Ridge(3))]
    assert [one.name for one in forecasters_of(None, 5, 5, 0)] == ["ridge", "huber", "boosting"]
    assert [one.name for one in forecasters_of(None, 500, 500, 0)] == ["ridge", "boosting"]
    assert [one.name for one in forecasters_of(given, 5, 5, 0)] == ["ridge", "Ridge", "mine"]
    wrongs = (["rigde"], "are ridge, huber, boosting"), ([3], "has fit and predict"), ([Ridge(), Ridge(2)], "name each")
    for wrong, why in wrongs:
        with pytest.raises(OptionError, match=why):
            forecasters_of(wrong, 5, 5, 0)


def test_trees_on_a_gradient_lower_the_loss_and_are_kept_as_arrays() -> None:
    """With the squared error as the loss, the sum of the trees is the forecast that was reached."""
    x, y = data(200)
    unit = linear.units_of(y)

    def loss(forecasts: torch.Tensor) -> tuple[float, torch.Tensor]:
        off = (forecasts - y) / unit
        return float(off.square().mean()), 2 * off / unit / off.numel()

    start = y.mean(0).expand_as(y)
    trees = stack.on_gradient(x, start, loss, rounds=15)
    trees.check(4)
    assert loss(start + trees(x))[0] < 0.75 * loss(start)[0]
    assert stack.as_sum([], 3)(x).abs().sum() == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_one_out_is_that_of_scikit_learn_row_by_row(weighted: bool) -> None:
    """Each row is forecast by a ridge that is fitted to the others; the penalty stays, in units of all rows."""
    x, y = data(30)
    weights = torch.tensor(np.random.default_rng(0).uniform(0.2, 2, 30)) if weighted else None
    counts = np.ones(30) if weights is None else weights.numpy()
    share = counts / counts.sum()
    z, unit = Standardize(x.shape[1], x, weights)(x).numpy(), linear.units_of(y).numpy()
    errors = {}
    for strength in linear.STRENGTHS:
        left = []
        for i in range(30):
            others = np.arange(30) != i
            one = Ridge(strength).fit(z[others], y.numpy()[others], share[others])
            left.append((one.predict(z[i : i + 1])[0] - y.numpy()[i]) / unit)
        errors[strength] = float(share @ np.square(left).mean(1))
    assert linear.strength_by_leaving_one_out(x, y, weights) == min(errors, key=errors.__getitem__)


@pytest.mark.parametrize("positive", [False, True])
def test_a_correction_begins_at_the_forecast_and_is_one_linear_map(positive: bool) -> None:
    x, y = data(80)
    y = y.abs()
    rows, fit = DecisionDataset(x, y, y), linear.linear_fit(x, y, 0.1)
    after = linear.after_model(positive, 2.0)
    start = linear.start_of("ridge", rows, fit, after)
    expected = fit(x) if after is None else after(fit(x))
    np.testing.assert_allclose(predict(start.model, x), expected, rtol=1e-9)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in start.module.parameters():
            weight += torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    moved = predict(start.module, start.rows(x))
    assert not torch.allclose(moved, expected, rtol=1e-3)
    np.testing.assert_allclose(predict(start.model, x), moved, rtol=1e-12)
    line = linear.corrected(start)(x)
    np.testing.assert_allclose(line if after is None else after(line), moved, rtol=1e-9)
