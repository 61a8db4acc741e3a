"""What forecasts the costs: ridge, Huber and boosting, any estimator of scikit-learn's kind, or a table that the user has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.errors import OptionError
from dflearn.tables import boosting
from dflearn.tables.combination import Estimator
from dflearn.tables.demand import quantile_fit
from dflearn.tables.linear import each_cost, linear_fit, strength_by_leaving_one_out, units_of

AVERAGE, YOURS, BLEND = "average costs", "your forecast", "blend"
CLIP = 5.0  # median deviations from the median: what the strength of Huber's regression is chosen on
HUBER_WORK = 20_000  # features times costs beyond which Huber's regression, one search per cost, is left out by default


class Fold(NamedTuple):
    """Rows to fit to, and rows to forecast."""

    fit: np.ndarray
    own: np.ndarray


class Rows(NamedTuple):
    """Features `(rows, k)`, costs `(rows, p)` and weights `(rows,)`."""

    x: Tensor
    y: Tensor
    weights: Tensor | None

    def of(self, rows: np.ndarray) -> Rows:
        """Some of them."""
        return Rows(self.x[rows], self.y[rows], None if self.weights is None else self.weights[rows])


class Forecaster(ABC):
    """Features → costs, fitted for a small error.

    Attributes:
        name: of the model in results.
        trees: whether it forecasts no value beyond those it was fitted to.
    """

    name: str
    trees: bool = False

    @abstractmethod
    def fit(self, rows: Rows) -> nn.Module: ...

    def cross_fit(self, rows: Rows, folds: Sequence[Fold]) -> tuple[Self, Tensor]:
        """Itself, with what it learned from the folds, and its forecasts `(rows, p)` of their own rows, fold after fold."""
        with torch.no_grad():
            return self, torch.cat([self.fit(rows.of(fold.fit))(rows.x[fold.own]) for fold in folds])


@dataclass(frozen=True)
class Ridge(Forecaster):
    """Ridge regression, its strength chosen by leaving one row out."""

    name: str = "ridge"

    def fit(self, rows: Rows) -> nn.Module:
        return linear_fit(rows.x, rows.y, strength_by_leaving_one_out(*rows), rows.weights).module()


@dataclass(frozen=True)
class Huber(Forecaster):
    """Huber's regression of each cost: a few rows far off pull it less."""

    name: str = "huber"

    def fit(self, rows: Rows) -> nn.Module:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import HuberRegressor
        from sklearn.utils._testing import ignore_warnings

        middle = rows.y.median(0).values
        room = CLIP * (rows.y - middle).abs().median(0).values
        near = rows.y.clamp(middle - room, middle + room)  # else rows far off would choose the strength
        strength = strength_by_leaving_one_out(rows.x, near, rows.weights) * len(rows.x)
        makes = [HuberRegressor(alpha=strength, max_iter=200) for _ in range(rows.y.shape[1])]
        with ignore_warnings(category=ConvergenceWarning):
            return each_cost(*rows, makes).module()


@dataclass(frozen=True)
class Boosting(Forecaster):
    """Gradient-boosted trees for each cost; by default as many as forecast the folds best.

    level: of a quantile, `None` for the mean.
    """

    name: str = "boosting"
    seed: int = 0
    number: int | None = None
    level: float | None = None
    trees = True

    def _models(self, rows: Rows) -> list[Any]:
        most = self.number or boosting.most_trees(rows.y.shape[1])
        loss: dict[str, Any] = {} if self.level is None else {"loss": "quantile", "quantile": self.level}
        return boosting.fitted(*rows, most, random_state=self.seed, **loss)

    def fit(self, rows: Rows) -> nn.Module:
        most = self.number or boosting.most_trees(rows.y.shape[1])
        return boosting.as_trees(self._models(rows), most, units_of(rows.y))

    def cross_fit(self, rows: Rows, folds: Sequence[Fold]) -> tuple[Boosting, Tensor]:
        if self.number is not None or self.level is not None:
            return super().cross_fit(rows, folds)
        most, parts = boosting.most_trees(rows.y.shape[1]), [rows.of(fold.fit) for fold in folds]
        models = [self._models(part) for part in parts]
        curves = []
        for every, part, fold in zip(models, parts, folds, strict=True):
            own = rows.of(fold.own)
            curves.append(boosting.error_curve(every, own.x, own.y / units_of(part.y), most, own.weights))
        number = int(np.sum(curves, 0).argmin()) + 1
        found = [
            boosting.as_trees(every, number, units_of(part.y))(rows.x[fold.own])
            for every, part, fold in zip(models, parts, folds, strict=True)
        ]
        return replace(self, number=number), torch.cat(found)


@dataclass(frozen=True)
class LinearQuantile(Forecaster):
    """Linear quantile regression at a level, a number or one for each cost."""

    level: Any
    name: str = "quantile"

    def fit(self, rows: Rows) -> nn.Module:
        return quantile_fit(rows.x, rows.y, np.asarray(self.level), rows.weights).module()


@dataclass(frozen=True)
class Own(Forecaster):
    """An estimator or pipeline of scikit-learn's kind; where it knows one cost only, one for each."""

    name: str
    estimator: Any

    def fit(self, rows: Rows) -> nn.Module:
        from sklearn.base import clone
        from sklearn.multioutput import MultiOutputRegressor
        from sklearn.utils import get_tags
        from sklearn.utils.validation import has_fit_parameter

        model, costs = clone(self.estimator), rows.y.shape[1]
        if costs > 1 and not get_tags(model).target_tags.multi_output:
            model = MultiOutputRegressor(model)
        weighs = rows.weights is not None and has_fit_parameter(model, "sample_weight")
        counts = {"sample_weight": rows.weights.numpy()} if weighs and rows.weights is not None else {}
        y = rows.y.numpy() if costs > 1 else rows.y.numpy().ravel()
        return Estimator(costs, model.fit(rows.x.numpy(), y, **counts))


NAMED = {"ridge": Ridge, "huber": Huber, "boosting": Boosting}


def forecasters_of(given: Sequence[Any] | None, features: int, costs: int, seed: int) -> list[Forecaster]:
    """The candidates: names of ours, estimators, or pairs (name, estimator); by default ours."""
    if given is None:
        given = ["ridge", "huber", "boosting"] if features * costs <= HUBER_WORK else ["ridge", "boosting"]
    found: list[Forecaster] = []
    for one in given:
        if isinstance(one, str):
            if one not in NAMED:
                raise OptionError(
                    f"forecasters are {', '.join(NAMED)}, or estimators of scikit-learn's kind; got {one!r}"
                )
            found.append(Boosting(seed=seed) if one == "boosting" else NAMED[one]())
        else:
            name, estimator = one if isinstance(one, tuple) else (type(one).__name__, one)
            if not callable(getattr(estimator, "fit", None)) or not callable(getattr(estimator, "predict", None)):
                raise OptionError(f"a forecaster has fit and predict, as scikit-learn's have; got {one!r}")
            found.append(Own(name, estimator))
    names = [one.name for one in found]
    if not found or len(set(names)) < len(names):
        raise OptionError(
            f"forecasters need a name each, and at least one is needed; got {names}: pass (name, estimator)"
        )
    return found
