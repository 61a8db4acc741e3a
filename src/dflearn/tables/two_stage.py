"""Forecasts for a small squared error, by scikit-learn, and corrections of them for decision-focused training.

    least squares, ridge:   min over W, b of  Σ_i a_i ‖y_i − W z_i − b‖² / Σ a_i + strength · ‖W‖²,   z = standardized features

b is free; without weights a = 1. A correction (`dflearn.models.Correction`) begins at zero. A narrow run trains its b and g alone,
two numbers per cost, which few rows can determine; a wide run trains W too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.models import Correction, Linear, OnForecast, Positive, Standardize, Trees
from dflearn.program import Program

STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-12, 7))  # of ridge, relative to features of variance 1
TREES, WORK, LEAST_TREES = 100, 1500, 25  # trees per cost at most; trees of all costs together; but so many at least
ROWS_PER_TREE = 4  # so that few rows make for few trees
LEAVES, RATE, PER_LEAF = 15, 0.1, 20  # of a tree; of boosting; rows in a leaf at least
FOLDS, FIRST = 4, 1 / 3  # parts of the training rows; in order of time, the share that nothing forecasts
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of quantiles, tried where no critical ratio is known
ROUNDING = 0.05  # of the softplus that keeps predictions positive, in units of mean |y|: elsewhere it changes nothing


def units_of(y: Tensor) -> Tensor:
    """The standard deviation of each cost, 1 where it never changes; `(count, p)` → `(p,)`."""
    deviation = y.std(0, correction=0)
    return torch.where(deviation > 1e-9 * y.abs().amax(0), deviation, torch.ones_like(deviation))


def _mean(values: Tensor, weights: Tensor | None) -> float:
    """Over rows and costs `(rows, p)`, rows weighted."""
    return values.mean().item() if weights is None else ((weights / weights.sum()) @ values.mean(-1)).item()


def _some(weights: Tensor | None, rows: np.ndarray) -> Tensor | None:
    return None if weights is None else weights[rows]


# -- linear ------------------------------------------------------------------------------------------------------------


class LinearFit(NamedTuple):
    """ŷ = weight · z + bias on features standardized by `standardize`."""

    standardize: Standardize
    weight: Tensor  # (p, k)
    bias: Tensor  # (p,)

    def __call__(self, x: Tensor) -> Tensor:
        return self.standardize(x) @ self.weight.T + self.bias


def linear_fit(x: Tensor, y: Tensor, strength: float = 0.0, weights: Tensor | None = None) -> LinearFit:
    """Ridge of this strength, or least squares; x `(count, k)`, y `(count, p)`, weights `(count,)`."""
    from sklearn.linear_model import LinearRegression, Ridge

    standardize = Standardize(x.shape[-1], x, weights)
    total = len(x) if weights is None else weights.sum().item()
    model = Ridge(strength * total) if strength else LinearRegression()
    model.fit(standardize(x).numpy(), y.numpy(), None if weights is None else weights.numpy())
    weight, bias = np.reshape(model.coef_, (y.shape[1], -1)), np.reshape(model.intercept_, -1)  # flat for one cost
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


def ridge_left_out(
    x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold], strengths: Sequence[float] = STRENGTHS
) -> tuple[float, Tensor]:
    """The strength that forecasts the rows of the folds best, and its forecasts of them `(rows, p)`."""
    rows = _forecast(folds)
    truth, counts = y[rows], _some(weights, rows)
    unit = units_of(truth)

    def forecast(strength: float) -> Tensor:
        fits = [linear_fit(x[others], y[others], strength, _some(weights, others)) for others, _ in folds]
        return torch.cat([fit(x[own]) for fit, (_, own) in zip(fits, folds, strict=True)])

    found = [(strength, forecast(strength)) for strength in strengths]
    return min(found, key=lambda one: _mean(((one[1] - truth) / unit).square(), counts))


def strength_by_leaving_one_out(x: Tensor, y: Tensor, weights: Tensor | None = None) -> float:
    """The strength among `STRENGTHS` that forecasts each row best from all others."""
    from sklearn.linear_model import RidgeCV

    share = torch.full((len(x),), 1 / len(x), dtype=torch.float64) if weights is None else weights / weights.sum()
    z = Standardize(x.shape[-1], x, weights)(x)
    return float(RidgeCV(STRENGTHS).fit(z.numpy(), (y / units_of(y)).numpy(), share.numpy()).alpha_)


def quantile_fit(x: Tensor, y: Tensor, level: np.ndarray | float, weights: Tensor | None = None) -> LinearFit:
    """Linear quantile regression of each column of y `(count, p)` at its level, a number or `(p,)`: one linear program each."""
    from sklearn.linear_model import QuantileRegressor

    standardize = Standardize(x.shape[-1], x, weights)
    z, levels = standardize(x).numpy(), np.broadcast_to(level, y.shape[1:])
    weight, bias = np.zeros((y.shape[1], x.shape[-1])), np.zeros(y.shape[1])
    counts = None if weights is None else weights.numpy()
    for j, (target, own) in enumerate(zip(y.numpy().T, levels, strict=True)):
        middle, unit = float(np.median(target)), float(np.abs(target).max()) or 1.0
        fit = QuantileRegressor(quantile=float(own), alpha=0.0, solver="highs").fit(z, (target - middle) / unit, counts)
        weight[j], bias[j] = unit * fit.coef_, middle + unit * fit.intercept_
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


# -- boosting ----------------------------------------------------------------------------------------------------------


def boosting(x: Tensor, y: Tensor, trees: int, weights: Tensor | None = None, *, seed: int = 0) -> Trees:
    """So many gradient-boosted trees for each cost, by scikit-learn's `HistGradientBoostingRegressor`."""
    unit = units_of(y)
    return _as_trees(_fitted(x, y / unit, weights, trees, seed), trees, unit)


def boosting_left_out(
    x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold], *, trees: int | None = None, seed: int = 0
) -> tuple[list[Trees], Tensor]:
    """Trees of each fold, as many as forecast the rows of the folds best (or `trees`), and the forecasts `(rows, p)`."""
    most, unit = trees or max(LEAST_TREES, min(TREES, WORK // y.shape[1])), units_of(y[_forecast(folds)])
    every = [_fitted(x[others], y[others] / unit, _some(weights, others), most, seed) for others, _ in folds]
    number = most
    if trees is None:
        curves = [
            _error_curve(one, x[own], y[own] / unit, most, _some(weights, own))
            for one, (_, own) in zip(every, folds, strict=True)
        ]
        number = int(np.sum(curves, 0).argmin()) + 1
    found = [_as_trees(one, number, unit) for one in every]
    return found, torch.cat([one(x[own]) for one, (_, own) in zip(found, folds, strict=True)])


def _fitted(x: Tensor, y: Tensor, weights: Tensor | None, trees: int, seed: int) -> list[Any]:
    """scikit-learn's models, one for each cost; few rows make for few trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    options: dict[str, Any] = {
        "max_iter": min(trees, max(1, len(x) // ROWS_PER_TREE)),
        "learning_rate": RATE,
        "max_leaf_nodes": LEAVES,
        "min_samples_leaf": min(PER_LEAF, max(1, len(x) // 5)),
        "early_stopping": False,
        "random_state": seed,
    }
    counts = None if weights is None else weights.numpy()
    return [HistGradientBoostingRegressor(**options).fit(x.numpy(), target, counts) for target in y.numpy().T]


def _error_curve(fitted: Sequence[Any], x: Tensor, y: Tensor, most: int, weights: Tensor | None) -> np.ndarray:
    """Σ of squared errors with 1, 2, … most trees; models with fewer stay at their last."""
    errors, counts = np.zeros(most), np.ones(len(x)) if weights is None else weights.numpy()
    for model, truth in zip(fitted, y.T.numpy(), strict=True):
        curve = [float(counts @ np.square(forecast - truth)) for forecast in model.staged_predict(x.numpy())]
        errors += np.array(curve + curve[-1:] * (most - len(curve)))
    return errors


def _as_trees(fitted: Sequence[Any], number: int, unit: Tensor) -> Trees:
    """The first `number` trees of scikit-learn's models, one model per cost, as arrays; each cost is in its unit."""
    trees = [(tree.nodes, j) for j, model in enumerate(fitted) for (tree,) in model._predictors[:number]]
    sizes = [len(nodes) for nodes, _ in trees]
    nodes, root = np.concatenate([nodes for nodes, _ in trees]), np.cumsum([0, *sizes[:-1]])
    first, scale = np.repeat(root, sizes), np.repeat(unit.numpy()[[j for _, j in trees]], sizes)
    leaf, own = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
    base = np.array([float(np.ravel(model._baseline_prediction)[0]) for model in fitted]) * unit.numpy()
    arrays = {
        "root": root.reshape(len(fitted), -1),
        "feature": np.where(leaf, 0, nodes["feature_idx"]),
        "threshold": np.where(leaf, 0.0, np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)),
        "left": np.where(leaf, own, first + nodes["left"]),
        "right": np.where(leaf, own, first + nodes["right"]),
        "missing_left": nodes["missing_go_to_left"].astype(bool),
        "value": np.where(leaf, nodes["value"] * scale, 0.0),
        "base": base,
    }
    return Trees(len(fitted), {name: torch.tensor(array) for name, array in arrays.items()})


def best_share(linear: Tensor, boosted: Tensor, y: Tensor, unit: Tensor, weights: Tensor | None = None) -> float:
    """a in [0, 1] at which (1 − a) · linear + a · boosted, forecasts of y `(count, p)`, have the least squared error in units."""
    apart, left = (boosted - linear) / unit, (y - linear) / unit
    size = _mean(apart.square(), weights)
    return min(1.0, max(0.0, _mean(apart * left, weights) / size)) if size > 0 else 1.0


# -- folds -------------------------------------------------------------------------------------------------------------

Fold = tuple[np.ndarray, np.ndarray]  # rows to fit to, rows to forecast


def folds_of(
    rows: np.ndarray, *, ordered: bool, gap: int = 0, groups: np.ndarray | None = None, seed: int
) -> list[Fold]:
    """Rows in parts that are forecast from the others; in order of time, from earlier rows, less a gap, so that the first rows
    are in no part. Rows of one group, given by labels of all rows, stay together."""
    labels = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups)[rows], return_inverse=True)[1]
    if ordered:
        borders = np.append(np.flatnonzero(np.diff(labels)) + 1, len(rows))
        wanted = np.linspace(round(FIRST * len(rows)), len(rows), FOLDS)
        cuts = np.unique([borders[np.abs(borders - cut).argmin()] for cut in wanted])
        return [(rows[: max(1, a - gap)], rows[a:b]) for a, b in pairwise(cuts)]
    order = np.random.RandomState(seed).permutation(labels.max() + 1)
    parts = [np.isin(labels, part) for part in np.array_split(order, min(FOLDS, len(order)))]
    return [(rows[~part], rows[part]) for part in parts if not part.all()]


def _forecast(folds: Sequence[Fold]) -> np.ndarray:
    return np.concatenate([own for _, own in folds])


# -- quantiles ---------------------------------------------------------------------------------------------------------


def critical_ratios(program: Program) -> np.ndarray | None:
    """The quantile of each predicted number to plan for `(p,)`; `None` where the program does not tell it.

    A predicted row with supply u at a unit cost λ, a price a for what exceeds t and b for what it lacks costs

        λ u + a (u − t)⁺ + b (t − u)⁺,      least in expectation where  P(t ≤ u) = (b − λ)/(a + b),

    the critical ratio of the newsvendor (Arrow, Harris and Marschak, 1951). The program tells it
    where each predicted number is the right-hand side of one row, in which one variable, that no other row holds,
    brings supply at a known cost, and recourse variables of that row alone what is lacking or in excess.
    """
    if program.recourse is None or not program.predicts_rows or program.Q is not None or program.is_integer:
        return None
    if program.S is None or program.S.nnz:  # costs are predicted too
        return None
    p, sides = program.p, ((program.b, program.B), (program.h, program.H))
    moves = sp.vstack([sp.csr_array((len(side), p)) if by is None else by for side, by in sides]).tocoo()
    if sorted(moves.col) != list(range(p)) or len(set(moves.row)) < p:
        return None
    order = np.argsort(moves.col)
    row, factor = moves.row[order], moves.data[order]  # of each predicted number
    equality = row < len(program.b)
    whole = sp.vstack([program.A, program.G]).tocsr()
    entries = whole[row].tocoo()
    j, k, value = entries.row, entries.col, entries.data
    later, price = program.recourse[k], program.d[k] / np.abs(value)
    slack = (program.lower[k] == 0) & np.isinf(program.upper[k]) & (price > 0)
    alone = np.bincount(whole.indices, minlength=program.n)[k] == 1
    if not alone.all() or not slack[later].all() or (np.bincount(j[~later], minlength=p) != 1).any():
        return None
    excess, lack = np.full((2, p), np.inf)
    for least, some in ((excess, later & (value < 0)), (lack, later & (value > 0))):
        np.minimum.at(least, j[some], price[some])
    if np.isinf(excess).any() or (np.isfinite(lack) != equality).any():
        return None
    lack[~equality] = 0.0
    supply = np.empty(p)
    supply[j[~later]] = (program.d[k] / value)[~later]
    ratios = (lack - supply) / (excess + lack)
    return np.where(factor > 0, ratios, 1 - ratios) if ((ratios > 0) & (ratios < 1)).all() else None


# -- models, and where decision-focused training starts ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Start:
    """A forecast, ready to be trained on: its correction is the module that is trained.

    Attributes:
        name: of the two-stage model.
        model: features → costs; the forecast with `module`, or `module` itself where there is no forecast.
        train: rows to train on, with the features that `module` takes.
        module: what is trained; untouched, it gives the forecast.
        reach: the step of each weight that moves a forecast by about its own error, in a wide correction: the unit of learning
            rates.
        wide: whether all weights of the correction are trained, or b and g alone.
    """

    name: str
    model: nn.Module
    train: DecisionDataset
    module: nn.Module
    reach: float = 1.0
    wide: bool = True

    def rows(self, x: Tensor) -> Tensor:
        """Features → the features that `module` takes."""
        return self.model.rows(x) if isinstance(self.model, OnForecast) else x

    def on(self, data: DecisionDataset) -> DecisionDataset:
        """Other data, with the features that `module` takes."""
        return data.with_features(self.rows(data.features))


def after_model(positive: bool, scale: float) -> nn.Module | None:
    """What makes predictions positive, where they are known to be."""
    return Positive(ROUNDING * scale).double() if positive else None


def start_of(
    name: str,
    train: DecisionDataset,
    fit: LinearFit,
    after: nn.Module | None,
    trees: Trees | None = None,
    forecasts: Tensor | None = None,
    share: float = 1.0,
) -> Start:
    """A linear forecast; or, with trees, share · trees + (1 − share) · linear.

    The corrected linear forecast is one linear map again. With trees, W begins where ŷ is partly the linear forecast: the errors
    of lines and of trees differ, and their mean has less of both.

    Args:
        forecasts: by trees that did not see these rows, `(rows, p)`.
    """
    costs, k = fit.weight.shape
    forecasts = fit(train.features) if forecasts is None else forecasts
    own = Standardize(costs, forecasts)
    standardize = Standardize(k + costs)
    standardize.mean.copy_(torch.cat([fit.standardize.mean, own.mean]))
    standardize.deviation.copy_(torch.cat([fit.standardize.deviation, own.deviation]))
    unit = _errors(train, forecasts)
    module = Correction(standardize, unit, joint=trees is not None, after=after)
    if trees is not None:  # W and b with f + unit · (W z + b) = share · f + (1 − share) · fit
        rest = (1 - share) / unit
        spread = torch.where(own.deviation.isfinite(), own.deviation, 0.0)  # a forecast that never changes is its mean
        with torch.no_grad():
            module.weight.copy_(torch.cat([rest[:, None] * fit.weight, -torch.diag(rest * spread)], 1))
            module.bias.copy_(rest * (fit.bias - own.mean))
    model = OnForecast(_linear(fit) if trees is None else trees, module)
    rows = train.with_features(torch.cat([train.features, forecasts], -1))
    wide = trees is None  # few numbers to learn from the blend on, which is a good forecast already
    return Start(name, model, rows, module, module.weight.shape[1] ** -0.5 if wide else 1.0, wide)


def ridge_start(train: DecisionDataset, after: nn.Module | None = None) -> Start:
    """Ridge of the strength that forecasts each row best from all others; one map for all costs, where they have features each."""
    x, y, weights = train.features, train.batch().require("costs"), train.weights
    if x.ndim == 3:  # a row for each cost
        weights = None if weights is None else weights.repeat_interleave(y.shape[1])
        x, y, after = x.flatten(0, 1), y.reshape(-1, 1), nn.Sequential(after or nn.Identity(), nn.Flatten(-2))
    return start_of("ridge", train, linear_fit(x, y, strength_by_leaving_one_out(x, y, weights), weights), after)


def _linear(fit: LinearFit) -> nn.Module:
    linear = Linear(fit.weight.shape[1], len(fit.bias)).double()
    with torch.no_grad():
        linear.weight.copy_(fit.weight)
        linear.bias.copy_(fit.bias)
    return nn.Sequential(fit.standardize, linear)


def _errors(data: DecisionDataset, forecast: Tensor) -> Tensor:
    """How far forecasts are off, cost by cost: root mean squares `(p,)`; the cost's own unit where they are exact."""
    costs, forecast = data.batch().require("costs").reshape(-1, forecast.shape[-1]), forecast.flatten(0, -2)
    error = (costs - forecast).square().mean(0).sqrt()
    unit = units_of(costs)
    return torch.where(error > 1e-9 * unit, error, unit)
