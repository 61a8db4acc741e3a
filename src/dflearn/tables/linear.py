"""Linear forecasts by scikit-learn, and corrections of them for decision-focused training.

    least squares, ridge:   min over W, b of  Σ_i a_i ‖y_i − W z_i − b‖² / Σ a_i + strength · ‖W‖²,   z = standardized features

b is free; without weights a = 1. A correction (`dflearn.models.Correction`) begins at zero, so that training begins at the forecast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.models import Correction, Linear, OnForecast, Positive, Standardize

STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-12, 7))  # of ridge, relative to features of variance 1
ROUNDING = 0.05  # of the softplus that keeps predictions positive, in units of mean |y|: elsewhere it changes nothing


def units_of(y: Tensor) -> Tensor:
    """The standard deviation of each cost, 1 where it never changes; `(count, p)` → `(p,)`."""
    deviation = y.std(0, correction=0)
    return torch.where(deviation > 1e-9 * y.abs().amax(0), deviation, torch.ones_like(deviation))


class LinearFit(NamedTuple):
    """ŷ = weight · z + bias on features standardized by `standardize`."""

    standardize: Standardize
    weight: Tensor  # (p, k)
    bias: Tensor  # (p,)

    def __call__(self, x: Tensor) -> Tensor:
        return self.standardize(x) @ self.weight.T + self.bias

    def module(self) -> nn.Module:
        """The same as a module."""
        linear = Linear(self.weight.shape[1], len(self.bias)).double()
        with torch.no_grad():
            linear.weight.copy_(self.weight)
            linear.bias.copy_(self.bias)
        return nn.Sequential(self.standardize, linear)


def linear_fit(x: Tensor, y: Tensor, strength: float = 0.0, weights: Tensor | None = None) -> LinearFit:
    """Ridge of this strength, or least squares; x `(count, k)`, y `(count, p)`, weights `(count,)`."""
    from sklearn.linear_model import LinearRegression, Ridge

    standardize = Standardize(x.shape[-1], x, weights)
    total = len(x) if weights is None else weights.sum().item()
    model = Ridge(strength * total) if strength else LinearRegression()
    model.fit(standardize(x).numpy(), y.numpy(), None if weights is None else weights.numpy())
    weight, bias = np.reshape(model.coef_, (y.shape[1], -1)), np.reshape(model.intercept_, -1)  # flat for one cost
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


def strength_by_leaving_one_out(x: Tensor, y: Tensor, weights: Tensor | None = None) -> float:
    """The strength among `STRENGTHS` that forecasts each row best from all others."""
    from sklearn.linear_model import RidgeCV

    share = torch.full((len(x),), 1 / len(x), dtype=torch.float64) if weights is None else weights / weights.sum()
    z = Standardize(x.shape[-1], x, weights)(x)
    return float(RidgeCV(STRENGTHS).fit(z.numpy(), (y / units_of(y)).numpy(), share.numpy()).alpha_)


def each_cost(x: Tensor, y: Tensor, weights: Tensor | None, makes: list[Any]) -> LinearFit:
    """A linear estimator of scikit-learn for each column of y `(count, p)`, on features and costs in their units."""
    standardize = Standardize(x.shape[-1], x, weights)
    z, counts = standardize(x).numpy(), None if weights is None else weights.numpy()
    weight, bias = np.zeros((y.shape[1], x.shape[-1])), np.zeros(y.shape[1])
    for j, (target, estimator) in enumerate(zip(y.numpy().T, makes, strict=True)):
        middle = float(np.median(target))
        unit = float(np.abs(target - middle).mean()) or 1.0
        fit = estimator.fit(z, (target - middle) / unit, counts)
        weight[j], bias[j] = unit * fit.coef_, middle + unit * fit.intercept_
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


# -- where decision-focused training starts ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Start:
    """A forecast, ready to be trained on: its correction is the module that is trained.

    Attributes:
        name: of the forecast.
        model: features → costs; the forecast with `module`, or `module` itself where there is no forecast.
        train: rows to train on, with the features that `module` takes.
        module: what is trained; untouched, it gives the forecast.
        reach: the step of each weight that moves a forecast by about its own error: the unit of learning rates.
    """

    name: str
    model: nn.Module
    train: DecisionDataset
    module: nn.Module
    reach: float = 1.0

    def rows(self, x: Tensor) -> Tensor:
        """Features → the features that `module` takes."""
        return self.model.rows(x) if isinstance(self.model, OnForecast) else x

    def on(self, data: DecisionDataset) -> DecisionDataset:
        """Other data, with the features that `module` takes."""
        return data.with_features(self.rows(data.features))


def after_model(positive: bool, scale: float) -> nn.Module | None:
    """What makes predictions positive, where they are known to be."""
    return Positive(ROUNDING * scale).double() if positive else None


def start_of(name: str, train: DecisionDataset, fit: LinearFit, after: nn.Module | None) -> Start:
    """A linear forecast, to be corrected on these rows."""
    costs, k = fit.weight.shape
    forecasts = fit(train.features)
    own = Standardize(costs, forecasts)
    standardize = Standardize(k + costs)
    standardize.mean.copy_(torch.cat([fit.standardize.mean, own.mean]))
    standardize.deviation.copy_(torch.cat([fit.standardize.deviation, own.deviation]))
    module = Correction(standardize, _errors(train, forecasts), after=after)
    rows = train.with_features(torch.cat([train.features, forecasts], -1))
    return Start(name, OnForecast(fit.module(), module), rows, module, module.weight.shape[1] ** -0.5)


def ridge_start(train: DecisionDataset, after: nn.Module | None = None) -> Start:
    """Ridge of the strength that forecasts each row best from all others; one map for all costs, where they have features each."""
    x, y, weights = train.features, train.batch().require("costs"), train.weights
    if x.ndim == 3:  # a row for each cost
        weights = None if weights is None else weights.repeat_interleave(y.shape[1])
        x, y, after = x.flatten(0, 1), y.reshape(-1, 1), nn.Sequential(after or nn.Identity(), nn.Flatten(-2))
    return start_of("ridge", train, linear_fit(x, y, strength_by_leaving_one_out(x, y, weights), weights), after)


def _errors(data: DecisionDataset, forecast: Tensor) -> Tensor:
    """How far forecasts are off, cost by cost: root mean squares `(p,)`; the cost's own unit where they are exact."""
    costs, forecast = data.batch().require("costs").reshape(-1, forecast.shape[-1]), forecast.flatten(0, -2)
    error = (costs - forecast).square().mean(0).sqrt()
    unit = units_of(costs)
    return torch.where(error > 1e-9 * unit, error, unit)


def corrected(start: Start) -> LinearFit:
    """A trained correction of a linear forecast, without what comes after it, as one linear map."""
    correction = start.module
    assert isinstance(correction, Correction)
    assert isinstance(start.model, OnForecast)
    forecast = start.model.forecast
    assert isinstance(forecast, nn.Sequential)
    standardize, linear = forecast
    assert isinstance(standardize, Standardize)
    assert isinstance(linear, nn.Linear)
    k = linear.weight.shape[1]
    mean, deviation = correction.standardize.mean[k:], correction.standardize.deviation[k:]
    gain = correction.unit * correction.gain / deviation  # of the forecast itself
    with torch.no_grad():
        weight = linear.weight * (1 + gain)[:, None] + correction.unit[:, None] * correction.weight
        bias = linear.bias * (1 + gain) - gain * mean + correction.unit * correction.bias
    return LinearFit(standardize, weight.detach(), bias.detach())
