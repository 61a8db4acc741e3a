"""Two-stage forecasts as starts: each decision-focused model is a forecast that is corrected, and the correction begins at zero.

    ŷ_j = positive(f_j(x) + unit_j · (b_j + g_j · f̃_j + (W z)_j)),   b = g = W = 0 at first,   f̃ = standardized forecasts

A narrow correction has b and g alone, two numbers per cost, which few rows can tell; a wide one has W too. For "ridge", z are the
standardized features, and the sum is one linear map again. For "boosting", z holds the forecasts of all costs as well, and
what is trained are corrections of forecasts by trees that were fitted to other rows. For "blend", W does not begin at zero but
where ŷ is partly ridge's forecast: the errors of lines and of trees differ, and their mean has less of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.models import Linear, OnForecast, Positive, Scaled, Standardize, Trees
from dflearn.tables.two_stage import (
    LinearFit,
    boosting,
    boosting_left_out,
    folds_of,
    least_squares,
    ridge,
    units_of,
)

ROUNDING = 0.05  # of the softplus that keeps predictions positive, in units of mean |y|: elsewhere it changes nothing


class Correction(nn.Module):
    """The equation above, for rows that hold (z, f).

    Args:
        width: of z.
        unit: of each cost, `(p,)`: how far forecasts are off.
        middle, spread: mean and standard deviation of each forecast, `(p,)`.
        after: what makes predictions positive, where they are known to be.
    """

    unit: Tensor
    middle: Tensor
    spread: Tensor

    def __init__(
        self, width: int, unit: Tensor, middle: Tensor, spread: Tensor, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(len(unit), width, dtype=torch.float64))
        self.bias, self.gain = (nn.Parameter(torch.zeros(len(unit), dtype=torch.float64)) for _ in range(2))
        for name, value in {"unit": unit, "middle": middle, "spread": spread}.items():
            self.register_buffer(name, value)
        self.after = after or nn.Identity()

    def forward(self, rows: Tensor) -> Tensor:
        width = self.weight.shape[1]
        z, forecast = rows[..., :width], rows[..., width:]
        step = self.bias + self.gain * (forecast - self.middle) / self.spread + z @ self.weight.T
        return self.after(forecast + self.unit * step)


@dataclass(frozen=True, eq=False)
class Start:
    """A two-stage forecast, ready to be trained on.

    Attributes:
        name: of the two-stage model.
        train: rows to train on, with the features that `module` takes.
        rows: features → those features.
        module: what is trained; untouched, it gives the forecast.
        finish: the trained module → the whole model, features → costs.
        reach: the step of each weight that moves a forecast by about its own error, in a wide correction: the unit of learning
            rates.
    """

    name: str
    train: DecisionDataset
    rows: Callable[[Tensor], Tensor]
    module: nn.Module
    finish: Callable[[nn.Module], nn.Module]
    reach: float

    def on(self, data: DecisionDataset) -> DecisionDataset:
        """Other data, with the features that `module` takes."""
        return _with_features(data, self.rows(data.features))


def after_model(positive: bool, scale: float) -> nn.Module | None:
    """What makes predictions positive, where they are known to be."""
    return Positive(ROUNDING * scale).double() if positive else None


def as_linear(fit: LinearFit, scale: float, after: nn.Module | None, correction: Correction | None = None) -> nn.Module:
    """The linear model, in units of the costs, as the estimator builds it."""
    weight, bias = fit.weight, fit.bias
    if correction is not None:
        one = correction.requires_grad_(False)
        slope = one.unit * one.gain / one.spread
        weight = (1 + slope)[:, None] * weight + one.unit[:, None] * one.weight
        bias = (1 + slope) * bias + one.unit * one.bias - slope * one.middle
    linear = Linear(weight.shape[1], weight.shape[0]).double()
    with torch.no_grad():
        linear.weight.copy_(weight / scale)
        linear.bias.copy_(bias / scale)
    return nn.Sequential(fit.standardize, Scaled(linear, scale), *([] if after is None else [after])).double()


def as_boosted(trees: Trees, corrected: OnForecast | None, features: int, after: nn.Module | None) -> nn.Module:
    """Trees and their correction, as the estimator builds them."""
    whole = corrected or OnForecast(trees, features, len(trees.base))
    return (whole if after is None else nn.Sequential(whole, after)).double()


def as_blend(trees: Trees, fit: LinearFit, share: float, after: nn.Module | None) -> nn.Module:
    """share · trees + (1 − share) · linear, as the estimator builds it: a correction of the trees."""
    costs, k = fit.weight.shape
    level = torch.zeros(costs, dtype=torch.float64)
    standardize = _joined(fit.standardize, level, level + 1)
    whole = OnForecast(trees, k, costs, standardize)
    with torch.no_grad():
        whole.linear.weight.copy_(_towards(fit, share, standardize, whole.unit)[0])
        whole.linear.bias.copy_(_towards(fit, share, standardize, whole.unit)[1])
    return as_boosted(trees, whole, k, after)


def _joined(standardize: Standardize, middle: Tensor, spread: Tensor) -> Standardize:
    """For features and forecasts side by side."""
    whole = Standardize(standardize.mean.numel() + middle.numel())
    whole.mean.copy_(torch.cat([standardize.mean, middle]))
    whole.deviation.copy_(torch.cat([standardize.deviation, spread]))
    return whole


def _towards(fit: LinearFit, share: float, standardize: Standardize, unit: Tensor) -> tuple[Tensor, Tensor]:
    """W `(p, k + p)` and b `(p,)` with f + unit · (W z + b) = share · f + (1 − share) · fit, z as of `_joined`."""
    k, rest = fit.weight.shape[1], (1 - share) / unit
    middle, spread = standardize.mean[k:], standardize.deviation[k:]
    own = torch.where(spread.isfinite(), rest * spread, 0.0)  # a forecast that never changes is its mean
    return torch.cat([rest[:, None] * fit.weight, -torch.diag(own)], 1), rest * (fit.bias - middle)


def linear_start(train: DecisionDataset, fit: LinearFit, scale: float, after: nn.Module | None) -> Start:
    def rows(x: Tensor) -> Tensor:
        return torch.cat([fit.standardize(x), fit(x)], -1)

    width, forecast = train.features.shape[-1], fit(train.features)
    module = Correction(width, _errors(train, forecast), forecast.mean(0), _spread(forecast), after)

    def finish(trained: nn.Module) -> nn.Module:
        assert isinstance(trained, Correction)
        return as_linear(fit, scale, after, trained)

    return Start("ridge", _with_features(train, rows(train.features)), rows, module, finish, width**-0.5)


def start_at(
    name: str, train: DecisionDataset, choose: DecisionDataset | None, scale: float, *, positive: bool, seed: int
) -> Start:
    """The estimator's start: "ridge" or "boosting", fitted to `train`, with the setting that forecasts `choose` best."""
    after = after_model(positive, scale)
    x, y = train.features, train.batch().require("costs")
    rows = None if choose is None else (choose.features, choose.batch().require("costs"))
    if name == "ridge":
        fitted = least_squares(x, y, train.weights) if rows is None else ridge(x, y, train.weights, choose=rows)
        return linear_start(train, fitted, scale, after)
    trees = boosting(x, y, train.weights, choose=rows, seed=seed)
    return boosted_start(train, trees, forecasts_left_out(train, trees, ordered=False, gap=0, seed=seed), after)


def forecasts_left_out(
    train: DecisionDataset, trees: Trees, *, ordered: bool, gap: int, seed: int
) -> dict[str, Tensor]:
    """Rows, and forecasts of them by as many trees that were fitted to other rows."""
    costs, number = train.batch().require("costs"), trees.root.shape[1]
    folds = folds_of(np.arange(len(train)), ordered=ordered, gap=gap, seed=seed)
    _, forecasts = boosting_left_out(train.features, costs, train.weights, folds, trees=number, seed=seed)
    return {"rows": torch.tensor(np.concatenate([own for _, own in folds])), "forecasts": forecasts}


def boosted_start(
    train: DecisionDataset,
    trees: Trees,
    left_out: Mapping[str, Tensor],
    after: nn.Module | None,
    blend: tuple[LinearFit, float] | None = None,
) -> Start:
    """`left_out` is what `forecasts_left_out` gave. With a linear fit and the share of the trees, the start is their blend."""
    forecasts, k = left_out["forecasts"], train.features.shape[-1]
    part = train.subset(left_out["rows"])
    if blend is None:
        joint = torch.cat([part.features, forecasts], -1)
        standardize = Standardize(joint.shape[-1], joint, part.weights)
    else:
        standardize = _joined(blend[0].standardize, forecasts.mean(0), _spread(forecasts))

    def joined(x: Tensor, forecast: Tensor) -> Tensor:
        return torch.cat([standardize(torch.cat([x, forecast], -1)), forecast], -1)

    width, costs = standardize.mean.numel(), forecasts.shape[1]
    module = Correction(width, _errors(part, forecasts), standardize.mean[k:], standardize.deviation[k:], after)
    if blend is not None:
        with torch.no_grad():
            for weights, value in zip(
                (module.weight, module.bias), _towards(*blend, standardize, module.unit), strict=True
            ):
                weights.copy_(value)

    def finish(trained: nn.Module) -> nn.Module:
        assert isinstance(trained, Correction)
        whole = OnForecast(trees, k, costs, standardize)
        with torch.no_grad():
            whole.linear.weight.copy_(trained.weight)
            whole.linear.weight[:, k:] += torch.diag(trained.gain)
            whole.linear.bias.copy_(trained.bias)
        whole.unit = trained.unit
        return as_boosted(trees, whole, k, after)

    rows = _with_features(part, joined(part.features, forecasts))
    name = "boosting" if blend is None else "blend"
    return Start(name, rows, lambda x: joined(x, trees(x)), module, finish, width**-0.5)


def _spread(forecast: Tensor) -> Tensor:
    """The standard deviation of each forecast; infinite where it never changes, so that its gain does nothing."""
    deviation = forecast.std(0, correction=0)
    return torch.where(deviation > 1e-9 * forecast.abs().amax(0), deviation, torch.inf)


def _with_features(data: DecisionDataset, features: Tensor) -> DecisionDataset:
    return DecisionDataset(features, data.costs, data.decisions, data.instance, data.ids, weights=data.weights)


def _errors(data: DecisionDataset, forecast: Tensor) -> Tensor:
    """How far forecasts are off, cost by cost: root mean squares `(p,)`; the cost's own unit where they are exact."""
    costs = data.batch().require("costs")
    error = (costs - forecast).square().mean(0).sqrt()
    unit = units_of(costs)
    return torch.where(error > 1e-9 * unit, error, unit)
