"""Two-stage forecasts beside scikit-learn's, forecasts of rows left out, and corrections that begin at zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler

from dflearn.data import DecisionDataset
from dflearn.models import Standardize, Trees, predict
from dflearn.tables import two_stage


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
    fit = two_stage.linear_fit(x, y, strength, weights)
    own = None if weights is None else weights.numpy()
    z = StandardScaler().fit(x.numpy(), sample_weight=own).transform(x.numpy())
    total = 60.0 if own is None else own.sum()
    reference = (Ridge(strength * total) if strength else LinearRegression()).fit(z, y.numpy(), own)
    np.testing.assert_allclose(fit(x).numpy(), reference.predict(z), rtol=1e-9)


def test_features_that_depend_on_each_other_and_constant_ones_do_no_harm() -> None:
    x, y = data()
    more = torch.cat([x, x[:, :1] + x[:, 1:2], torch.ones(60, 1, dtype=torch.float64)], 1)
    np.testing.assert_allclose(two_stage.linear_fit(more, y)(more), two_stage.linear_fit(x, y)(x), rtol=1e-8)


def test_trees_are_scikit_learns() -> None:
    """To the last digits, with missing values, and after a way through a state."""
    x, y = data(300)
    x[::7, 1] = torch.nan
    trees = two_stage.boosting(x, y, 20, seed=3)
    new, _ = data(100, seed=1)
    new[::3, 1], new[::5, 0] = torch.nan, torch.nan
    for j in range(3):
        unit = y[:, j].std(correction=0).item()
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
@pytest.mark.parametrize("kind", ["ridge", "boosting"])
def test_no_row_is_forecast_by_a_model_that_saw_it(kind: str, ordered: bool) -> None:
    """Where one row's costs change, its own forecast does not; in order of time, no earlier row's does."""
    x, y = data(80)
    folds = two_stage.folds_of(np.arange(80), ordered=ordered, gap=2 if ordered else 0, seed=0)
    rows = np.concatenate([own for _, own in folds])
    assert sorted(rows) == (list(range(27, 80)) if ordered else list(range(80)))

    def forecasts(costs: torch.Tensor) -> torch.Tensor:
        if kind == "ridge":
            return two_stage.ridge_left_out(x, costs, None, folds, [0.1])[1]
        return two_stage.boosting_left_out(x, costs, None, folds, trees=5)[1]

    plain = forecasts(y)
    for changed in (40, 55):
        other = y.clone()
        other[changed] += 1e3
        near = torch.isclose(plain, forecasts(other), rtol=1e-3, atol=1e-3).all(1)  # trees are fitted in other units
        same = [row for row, one in zip(rows, near, strict=True) if one]
        assert changed in same
        assert not ordered or set(range(27, changed + 3)) <= set(same)
        assert len(same) < len(rows)


@pytest.mark.parametrize("ordered", [False, True])
def test_folds_keep_groups_together(ordered: bool) -> None:
    groups = np.repeat([f"shop {i}" for i in range(13)], 7)
    rows = np.arange(10, 91)
    folds = two_stage.folds_of(rows, ordered=ordered, groups=groups, seed=0)
    assert len(folds) > 1
    for others, own in folds:
        assert not set(groups[others]) & set(groups[own])
        assert set(others) | set(own) <= set(rows)
        assert not ordered or others.max() < own.min()


def test_strength_and_number_of_trees_are_those_that_forecast_rows_left_out_best() -> None:
    """As on a grid, fold by fold."""
    x, y = data(120)
    folds = two_stage.folds_of(np.arange(120), ordered=False, seed=0)
    truth = y[np.concatenate([own for _, own in folds])]
    unit = two_stage.units_of(truth)

    def error(forecasts: torch.Tensor) -> float:
        return float(((forecasts - truth) / unit).square().sum())

    strength, linear = two_stage.ridge_left_out(x, y, None, folds)
    for other in two_stage.STRENGTHS:
        forecasts = torch.cat([two_stage.linear_fit(x[a], y[a], other)(x[b]) for a, b in folds])
        assert error(linear) <= error(forecasts) + 1e-9
        assert other != strength or torch.allclose(linear, forecasts)
    every, boosted = two_stage.boosting_left_out(x, y, None, folds)
    number = every[0].root.shape[1]
    for other in {1, max(1, number - 1), number + 1, 22}:  # few rows make for 22 trees at most
        assert error(boosted) <= error(two_stage.boosting_left_out(x, y, None, folds, trees=other)[1]) + 1e-9


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_one_out_is_that_of_scikit_learn_row_by_row(weighted: bool) -> None:
    """Each row is forecast by a ridge that is fitted to the others; the penalty stays, in units of all rows."""
    x, y = data(30)
    weights = torch.tensor(np.random.default_rng(0).uniform(0.2, 2, 30)) if weighted else None
    counts = np.ones(30) if weights is None else weights.numpy()
    share = counts / counts.sum()
    z, unit = Standardize(x.shape[1], x, weights)(x).numpy(), two_stage.units_of(y).numpy()
    errors = {}
    for strength in two_stage.STRENGTHS:
        left = []
        for i in range(30):
            others = np.arange(30) != i
            one = Ridge(strength).fit(z[others], y.numpy()[others], share[others])
            left.append((one.predict(z[i : i + 1])[0] - y.numpy()[i]) / unit)
        errors[strength] = float(share @ np.square(left).mean(1))
    assert two_stage.strength_by_leaving_one_out(x, y, weights) == min(errors, key=errors.__getitem__)


def test_the_share_of_a_blend_is_the_best_one() -> None:
    """As on a grid; and at the ends where one forecast is best alone."""
    rng = np.random.default_rng(3)
    y, unit = torch.tensor(rng.normal(size=(50, 3))), torch.tensor([1.0, 2.0, 5.0])
    linear, boosted = (y + torch.tensor(rng.normal(size=(50, 3))) * size for size in (1.0, 0.6))
    errors = [(((1 - a) * linear + a * boosted - y) / unit).square().sum() for a in np.linspace(0, 1, 1001)]
    assert two_stage.best_share(linear, boosted, y, unit) == pytest.approx(np.argmin(errors) / 1000, abs=1e-3)
    assert two_stage.best_share(linear, y, y, unit) == 1
    assert two_stage.best_share(y, boosted, y, unit) == 0
    assert two_stage.best_share(y, y, y, unit) == 1


@pytest.mark.parametrize("kind", ["ridge", "blend"])
@pytest.mark.parametrize("positive", [False, True])
def test_a_correction_begins_at_the_forecast_and_is_part_of_the_model(kind: str, positive: bool) -> None:
    x, y = data(80)
    y = y.abs()
    rows, fit = DecisionDataset(x, y, y), two_stage.linear_fit(x, y, 0.1)
    after = two_stage.after_model(positive, 2.0)
    if kind == "ridge":
        start, forecast = two_stage.start_of(kind, rows, fit, after), fit(x)
    else:
        trees = two_stage.boosting(x, y, 5)
        folds = two_stage.folds_of(np.arange(80), ordered=False, seed=0)
        _, left_out = two_stage.boosting_left_out(x, y, None, folds, trees=5)
        part = rows.subset(np.concatenate([own for _, own in folds]))
        start = two_stage.start_of(kind, part, fit, after, trees, left_out, 0.3)
        forecast = 0.3 * trees(x) + 0.7 * fit(x)
    expected = forecast if after is None else after(forecast)
    np.testing.assert_allclose(predict(start.model, x), expected, rtol=1e-9)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in start.module.parameters():
            weight += torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    moved = predict(start.module, start.rows(x))
    assert not torch.allclose(moved, expected, rtol=1e-3)
    np.testing.assert_allclose(predict(start.model, x), moved, rtol=1e-12)
