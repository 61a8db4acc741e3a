"""Two-stage forecasts as starts: each decision-focused model is a forecast that is corrected, and the correction begins at zero.

    ŷ = positive(f(x) + unit · (W z + b)),   W = 0 and b = 0 at first

For "linear", f is ridge, z are the standardized features, and the sum is one linear map again. For "boosting", f are trees
and z holds their forecasts as well; W and b are trained on forecasts of trees that were fitted to other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.estimator.two_stage import LinearFit, out_of_fold, units_of
from dflearn.models import Linear, OnForecast, Positive, Scaled, Standardize, Trees

ROUNDING = 0.05  # of the softplus that keeps predictions positive, in units of mean |y|: elsewhere it changes nothing


class Correction(nn.Module):
    """ŷ = positive(forecast + unit · (W z + b)), for rows that hold (z, forecast)."""

    unit: Tensor

    def __init__(self, width: int, unit: Tensor, after: nn.Module | None = None) -> None:
        super().__init__()
        self.linear = nn.Linear(width, len(unit), dtype=torch.float64)
        self.register_buffer("unit", unit)
        self.after = after or nn.Identity()
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, rows: Tensor) -> Tensor:
        width = self.linear.in_features
        return self.after(rows[..., width:] + self.unit * self.linear(rows[..., :width]))


@dataclass(frozen=True, eq=False)
class Start:
    """A two-stage forecast, ready to be trained on.

    Attributes:
        name: of the two-stage model.
        train: rows to train on, with the features that `module` takes.
        rows: features → those features.
        module: what is trained; untouched, it gives the forecast.
        finish: the trained module → the whole model, features → costs.
        reach: the step of each weight that would move a forecast by about its own error: the unit of learning rates.
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
        weight = weight + correction.unit[:, None] * correction.linear.weight.detach()
        bias = bias + correction.unit * correction.linear.bias.detach()
    linear = Linear(weight.shape[1], weight.shape[0]).double()
    with torch.no_grad():
        linear.weight.copy_(weight / scale)
        linear.bias.copy_(bias / scale)
    return nn.Sequential(fit.standardize, Scaled(linear, scale), *([] if after is None else [after])).double()


def as_boosted(trees: Trees, corrected: OnForecast | None, features: int, after: nn.Module | None) -> nn.Module:
    """Trees and their correction, as the estimator builds them."""
    whole = corrected or OnForecast(trees, features, len(trees.base))
    return (whole if after is None else nn.Sequential(whole, after)).double()


def linear_start(train: DecisionDataset, fit: LinearFit, scale: float, after: nn.Module | None) -> Start:
    def rows(x: Tensor) -> Tensor:
        return torch.cat([fit.standardize(x), fit(x)], -1)

    width = train.features.shape[-1]
    module = Correction(width, _errors(train, fit(train.features)), after)

    def finish(trained: nn.Module) -> nn.Module:
        assert isinstance(trained, Correction)
        return as_linear(fit, scale, after, trained)

    return Start("ridge", _with_features(train, rows(train.features)), rows, module, finish, width**-0.5)


def forecasts_left_out(
    train: DecisionDataset, trees: Trees, *, ordered: bool, gap: int, seed: int
) -> dict[str, Tensor]:
    """Rows, and forecasts of them by as many trees that were fitted to other rows."""
    costs, number = train.batch().require("costs"), trees.root.shape[1]
    rows, forecasts = out_of_fold(
        train.features, costs, train.weights, trees=number, ordered=ordered, gap=gap, seed=seed
    )
    return {"rows": torch.tensor(rows), "forecasts": forecasts}


def boosted_start(
    train: DecisionDataset, trees: Trees, left_out: Mapping[str, Tensor], after: nn.Module | None
) -> Start:
    """`left_out` is what `forecasts_left_out` gave."""
    costs, forecasts = train.batch().require("costs"), left_out["forecasts"]
    part = train.subset(left_out["rows"])
    joint = torch.cat([part.features, forecasts], -1)
    standardize = Standardize(joint.shape[-1], joint, part.weights)

    def joined(x: Tensor, forecast: Tensor) -> Tensor:
        return torch.cat([standardize(torch.cat([x, forecast], -1)), forecast], -1)

    width = standardize.mean.numel()
    module = Correction(width, _errors(part, forecasts), after)

    def finish(trained: nn.Module) -> nn.Module:
        assert isinstance(trained, Correction)
        whole = OnForecast(trees, train.features.shape[-1], costs.shape[1], standardize)
        whole.linear.load_state_dict(trained.linear.state_dict())
        whole.unit = trained.unit
        return as_boosted(trees, whole, train.features.shape[-1], after)

    rows = _with_features(part, joined(part.features, forecasts))
    return Start("boosting", rows, lambda x: joined(x, trees(x)), module, finish, width**-0.5)


def _with_features(data: DecisionDataset, features: Tensor) -> DecisionDataset:
    return DecisionDataset(features, data.costs, data.decisions, data.instance, data.ids, weights=data.weights)


def _errors(data: DecisionDataset, forecast: Tensor) -> Tensor:
    """How far forecasts are off, cost by cost: root mean squares `(p,)`; the cost's own unit where they are exact."""
    costs = data.batch().require("costs")
    error = (costs - forecast).square().mean(0).sqrt()
    unit = units_of(costs)
    return torch.where(error > 1e-9 * unit, error, unit)
