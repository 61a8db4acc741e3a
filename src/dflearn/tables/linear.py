"""Linear forecasts by scikit-learn, and corrections of them for decision-focused training.

    least squares, ridge:   min over W, b of  Σ_i a_i ‖y_i − W z_i − b‖² / Σ a_i + strength · ‖W‖²,   z = standardized features

b is free; without weights a = 1. A correction (`dflearn.models.Correction`) begins at zero, so that training begins at the forecast.
A run has four phases, each twice as long as the one before; a snapshot is the mean of the weights over a phase, which is steadier
than the last of them. Rows that the run did not see decide which snapshot is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dflearn.data import DecisionDataset
from dflearn.errors import DivergenceError
from dflearn.losses.base import Loss
from dflearn.models import Correction, Linear, OnForecast, Positive, Standardize
from dflearn.training import Callback, History, Run, fit
from dflearn.training.validation import Validation

STRENGTHS = tuple(10.0 ** (half / 2) for half in range(-12, 7))  # of ridge, relative to features of variance 1
ROUNDING = 0.05  # of the softplus that keeps predictions positive, in units of mean |y|: elsewhere it changes nothing
LENGTHS = (1, 2, 4, 8)  # of the phases, relative to each other
EPOCHS, STEPS, BATCH = 4, 160, 32  # epochs at least; steps of a run; rows in a step
SIZE = 300  # of a program beyond which there are fewer steps
ERRORS = 1.0  # standard errors by which ridge regression must be beaten
RATE = 0.03  # how far a step moves forecasts, in units of their error


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
        linear.load_state_dict({"weight": self.weight, "bias": self.bias})
        return nn.Sequential(self.standardize, linear)


def linear_fit(x: Tensor, y: Tensor, strength: Any = 0.0, weights: Tensor | None = None) -> LinearFit:
    """Ridge of this strength, a number or one for each cost, or least squares; x `(count, k)`, y `(count, p)`, weights `(count,)`."""
    from sklearn.linear_model import LinearRegression, Ridge

    standardize = Standardize(x.shape[-1], x, weights)
    total = len(x) if weights is None else weights.sum().item()
    model = Ridge(strength * total) if np.any(strength) else LinearRegression()
    model.fit(standardize(x).numpy(), y.numpy(), None if weights is None else weights.numpy())
    weight, bias = np.reshape(model.coef_, (y.shape[1], -1)), np.reshape(model.intercept_, -1)  # flat for one cost
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


def strength_by_leaving_one_out(x: Tensor, y: Tensor, weights: Tensor | None = None, *, each: bool = False) -> Any:
    """The strength among `STRENGTHS` that forecasts each row best from all others; each: one for each cost, `(p,)`."""
    from sklearn.linear_model import RidgeCV

    share = torch.full((len(x),), 1 / len(x), dtype=torch.float64) if weights is None else weights / weights.sum()
    z = Standardize(x.shape[-1], x, weights)(x)
    model = RidgeCV(STRENGTHS, alpha_per_target=each and y.shape[1] > 1)
    return model.fit(z.numpy(), (y / units_of(y)).numpy(), share.numpy()).alpha_


def each_cost(x: Tensor, y: Tensor, weights: Tensor | None, makes: Sequence[Any]) -> LinearFit:
    """A linear estimator of scikit-learn for each column of y `(count, p)`, on features and costs in their units."""
    standardize = Standardize(x.shape[-1], x, weights)
    z, counts = standardize(x).numpy(), None if weights is None else weights.numpy()
    weight, bias = np.zeros((y.shape[1], x.shape[-1])), np.zeros(y.shape[1])
    for j, (target, estimator) in enumerate(zip(y.numpy().T, makes, strict=True)):
        middle = float(np.median(target))
        unit = float(np.abs(target - middle).mean()) or 1.0
        model = estimator.fit(z, (target - middle) / unit, counts)
        weight[j], bias[j] = unit * model.coef_, middle + unit * model.intercept_
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias))


@dataclass(frozen=True, eq=False)
class Start:
    """A forecast, ready to be trained on: its correction is the module that is trained."""

    name: str
    model: nn.Module  # features → costs: the forecast with `module`, or `module` itself
    train: DecisionDataset  # training rows, with the features that `module` takes
    module: nn.Module  # trained; untouched, it gives the forecast
    reach: float = 1.0  # the unit of learning rates: a step of each weight by it moves a forecast by about its error

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
    """A linear forecast, to be corrected on these rows in units of its root mean squared errors."""
    costs, k = fit.weight.shape
    forecasts = fit(train.features)
    truth = train.batch().require("costs").reshape(-1, costs)
    error, unit = (truth - forecasts.flatten(0, -2)).square().mean(0).sqrt(), units_of(truth)
    own, standardize = Standardize(costs, forecasts), Standardize(k + costs)
    standardize.mean.copy_(torch.cat([fit.standardize.mean, own.mean]))
    standardize.deviation.copy_(torch.cat([fit.standardize.deviation, own.deviation]))
    module = Correction(standardize, torch.where(error > 1e-9 * unit, error, unit), after=after)
    rows = train.with_features(torch.cat([train.features, forecasts], -1))
    return Start(name, OnForecast(fit.module(), module), rows, module, module.weight.shape[1] ** -0.5)


def ridge_start(train: DecisionDataset, after: nn.Module | None = None, *, each: bool = False) -> Start:
    """Ridge of the best strength on rows left out, for each cost if `each`; one map for all costs that have features each."""
    x, y, weights = train.features, train.batch().require("costs"), train.weights
    if x.ndim == 3:  # a row for each cost
        weights = None if weights is None else weights.repeat_interleave(y.shape[1])
        x, y, after = x.flatten(0, 1), y.reshape(-1, 1), nn.Sequential(after or nn.Identity(), nn.Flatten(-2))
    strength = strength_by_leaving_one_out(x, y, weights, each=each)
    return start_of("ridge", train, linear_fit(x, y, strength, weights), after)


def corrected(start: Start) -> LinearFit:
    """A trained correction of a linear forecast, without what comes after it, as one linear map."""
    correction = cast(Correction, start.module)
    parts = tuple(cast(nn.Sequential, cast(OnForecast, start.model).forecast))
    standardize, linear = cast(tuple[Standardize, nn.Linear], parts)
    k = linear.weight.shape[1]
    mean, deviation = correction.standardize.mean[k:], correction.standardize.deviation[k:]
    gain = correction.unit * correction.gain / deviation  # of the forecast itself
    with torch.no_grad():
        weight = linear.weight * (1 + gain)[:, None] + correction.unit[:, None] * correction.weight
        bias = linear.bias * (1 + gain) - gain * mean + correction.unit * correction.bias
    return LinearFit(standardize, weight.detach(), bias.detach())


class Phases(Callback):
    """Averages weights over each phase, which ends after one of these epochs."""

    def __init__(self, ends: Sequence[int], tell: Callable[[str], None]) -> None:
        self.ends, self.tell = list(ends), tell
        self.seen: list[Tensor] = []  # after each epoch of this phase
        self.found: list[Tensor] = []

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        self.seen.append(parameters_to_vector(run.model.parameters()).detach().cpu())
        self.tell(f"epoch {run.epoch} of {self.ends[-1]}, loss {row['loss']:.4g}")
        if run.epoch in self.ends:
            self.found.append(torch.stack(self.seen).mean(0))
            self.seen = []


def shortened(size: int) -> float:
    """The share of all steps that a program of so many variables and constraints gets."""
    return min(1.0, (SIZE / max(1, size)) ** 2)


def epochs_for(rows: int, size: int = 0) -> int:
    """Epochs for `STEPS` steps, or for fewer if the program is large: not timed, so that a busy machine trains the same model."""
    return max(EPOCHS, math.ceil(STEPS * shortened(size) * BATCH / rows))


def snapshots(
    start: Start, loss: Loss, epochs: int, rate: float, *, seed: int, device: str | None, tell: Callable[[str], None]
) -> list[Tensor]:
    """The weights after each phase of a run; fewer where it diverges."""
    ends = np.cumsum(LENGTHS) * epochs / sum(LENGTHS)
    phases = Phases(sorted({max(1, round(end)) for end in ends} & set(range(1, epochs + 1))), tell)
    options: dict[str, Any] = {"epochs": epochs, "batch_size": BATCH, "lr": rate * start.reach, "seed": seed}
    try:
        fit(start.module, loss, start.train, callbacks=[phases], device=device, progress=False, **options)
    except DivergenceError as error:
        tell(f"ended early, {error}")
    start.module.cpu()
    return phases.found


def with_weights(module: nn.Module, weights: Tensor) -> None:
    """Give a module these weights."""
    vector_to_parameters(weights.clone(), module.parameters())


def best_of(history: History) -> float:
    """What its best epoch reached; zero where nothing was watched."""
    best = history.best
    return 0.0 if best is None or history.monitored is None else float(best[history.monitored])


def beats(judge: Validation, trained: nn.Module, start: nn.Module) -> bool:
    """Whether its regret is less by more than one standard error: fewer rows choose an epoch than train it."""
    rows = torch.arange(len(judge.data))
    gain = judge.regrets(start, rows).regret - judge.regrets(trained, rows).regret
    counts = torch.ones_like(gain) if judge.data.weights is None else judge.data.weights
    share = counts / counts.sum()
    mean = float(share @ gain)
    return mean > 0 and mean**2 > ERRORS**2 * float(share.square() @ (gain - mean).square())
