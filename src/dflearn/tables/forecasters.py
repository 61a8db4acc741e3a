"""What forecasts the costs: ridge, Huber and boosting, any estimator of scikit-learn's kind, or a table that the user has; and
their weighted sum, which a model file holds as numbers.

Boosted trees are fitted by scikit-learn, and kept as arrays (`dflearn.models.Trees`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.errors import DataError, MissingExtraError, OptionError
from dflearn.models import Linear, Positive, Standardize, Trees
from dflearn.tables.demand import quantile_fit
from dflearn.tables.linear import each_cost, linear_fit, strength_by_leaving_one_out, units_of

PLAIN = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"  # arrays, which skops does not know yet
AVERAGE, YOURS, BLEND = "average costs", "your forecast", "blend"
CLIP = 5.0  # median deviations from the median: what the strength of Huber's regression is chosen on
HUBER_WORK = 20_000  # features times costs beyond which Huber's regression, one search per cost, is left out by default
MOST_SCENARIOS = 100  # that a file may hold
TREES, WORK, LEAST_TREES = 100, 6000, 25  # trees per cost at most; trees of all costs together; but so many at least
ROWS_PER_TREE = 4  # so that few rows make for few trees
LEAVES, RATE, PER_LEAF = 15, 0.1, 20  # of a tree; of boosting; rows in a leaf at least


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
    """Features → costs, fitted for a small error."""

    name: str  # of the model in results
    trees: bool = False  # it forecasts no value beyond those it was fitted to

    @abstractmethod
    def fit(self, rows: Rows) -> nn.Module: ...

    def cross_fit(self, rows: Rows, folds: Sequence[Fold]) -> tuple[Self, Tensor]:
        """Itself, with settings learned from the folds, and its forecasts `(rows, p)` of their own rows, fold after fold."""
        with torch.no_grad():
            return self, torch.cat([self.fit(rows.of(fold.fit))(rows.x[fold.own]) for fold in folds])


@dataclass(frozen=True)
class Ridge(Forecaster):
    """Ridge regression, the strength for each cost chosen by leaving one row out."""

    name: str = "ridge"

    def fit(self, rows: Rows) -> nn.Module:
        return linear_fit(rows.x, rows.y, strength_by_leaving_one_out(*rows, each=True), rows.weights).module()


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
        strength = strength_by_leaving_one_out(*rows._replace(y=near), each=True)
        alphas = np.broadcast_to(strength, rows.y.shape[1:]) * len(rows.x)
        makes = [HuberRegressor(alpha=alpha, max_iter=200) for alpha in alphas]
        with ignore_warnings(category=ConvergenceWarning):
            return each_cost(*rows, makes).module()


@dataclass(frozen=True)
class Boosting(Forecaster):
    """Gradient-boosted trees for each cost in its unit; by default as many as forecast the folds best.

    level: of a quantile, one or one for each cost, `None` for the mean.
    """

    name: str = "boosting"
    seed: int = 0
    number: int | None = None
    level: Any = None
    trees = True

    def _most(self, costs: int) -> int:
        return self.number or max(LEAST_TREES, min(TREES, WORK // costs))

    def models(self, rows: Rows) -> list[Any]:
        """scikit-learn's, one for each cost; few rows make for few trees."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        costs = rows.y.shape[1]
        options: dict[str, Any] = {
            "max_iter": min(self._most(costs), max(1, len(rows.x) // ROWS_PER_TREE)),
            "learning_rate": RATE,
            "max_leaf_nodes": LEAVES,
            "min_samples_leaf": min(PER_LEAF, max(1, len(rows.x) // 5)),
            "early_stopping": False,
            "random_state": self.seed,
        }
        levels: Any = [] if self.level is None else np.broadcast_to(self.level, (costs,))
        kinds = [{"loss": "quantile", "quantile": float(level)} for level in levels] or [{}] * costs
        counts, targets = None if rows.weights is None else rows.weights.numpy(), (rows.y / units_of(rows.y)).numpy().T
        made = [HistGradientBoostingRegressor(**options, **kind) for kind in kinds]
        with one_thread():
            return [model.fit(rows.x.numpy(), y, counts) for model, y in zip(made, targets, strict=True)]

    def fit(self, rows: Rows) -> nn.Module:
        return as_trees(self.models(rows), self._most(rows.y.shape[1]), units_of(rows.y))

    def cross_fit(self, rows: Rows, folds: Sequence[Fold]) -> tuple[Boosting, Tensor]:
        if self.number is not None or self.level is not None:
            return super().cross_fit(rows, folds)
        parts, errors = [rows.of(fold.fit) for fold in folds], np.zeros(self._most(rows.y.shape[1]))
        models = [self.models(part) for part in parts]
        for every, part, fold in zip(models, parts, folds, strict=True):
            own = rows.of(fold.own)
            counts = np.ones(len(own.x)) if own.weights is None else own.weights.numpy()
            for model, truth in zip(every, (own.y / units_of(part.y)).T.numpy(), strict=True):
                with one_thread():
                    curve = [float(counts @ np.square(found - truth)) for found in model.staged_predict(own.x.numpy())]
                errors += np.array(curve + curve[-1:] * (len(errors) - len(curve)))
        number = int(errors.argmin()) + 1
        kept = [as_trees(every, number, units_of(part.y)) for every, part in zip(models, parts, strict=True)]
        found = torch.cat([trees(rows.x[fold.own]) for trees, fold in zip(kept, folds, strict=True)])
        return replace(self, number=number), found


def one_thread() -> AbstractContextManager[Any]:
    """One OpenMP thread: on small data, several wait for each other, on a busy machine sixty times as long as they work."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "openmp")


def as_trees(models: Sequence[Any], number: int, unit: Tensor) -> Trees:
    """The first `number` trees of scikit-learn's boosting models, one model per cost, as arrays; each cost is in its unit."""
    names = {"leaf": "is_leaf", "feature": "feature_idx", "threshold": "num_threshold", "missing": "missing_go_to_left"}
    names |= {name: name for name in ("left", "right", "value")}
    found = []
    for model, scale in zip(models, unit.numpy(), strict=True):
        trees = [{name: tree.nodes[own] for name, own in names.items()} for (tree,) in model._predictors[:number]]
        found.append([tree | {"value": tree["value"] * scale} for tree in trees])
    return joined(found, np.array([float(np.ravel(one._baseline_prediction)[0]) for one in models]) * unit.numpy())


def joined(trees: Sequence[Sequence[Mapping[str, np.ndarray]]], base: np.ndarray) -> Trees:
    """The trees of each cost as arrays, all nodes one after another; a leaf is its own child."""
    flat = [tree for each in trees for tree in each]
    if not flat:
        return Trees(len(base))
    sizes = [len(tree["leaf"]) for tree in flat]
    of = {name: np.concatenate([tree[name] for tree in flat]) for name in flat[0]}
    root = np.cumsum([0, *sizes[:-1]])
    first, leaf, own = np.repeat(root, sizes), of["leaf"].astype(bool), np.arange(sum(sizes))
    arrays = {
        "root": root.reshape(len(base), -1),
        "feature": np.where(leaf, 0, of["feature"]),
        "threshold": np.where(leaf, 0.0, np.minimum(of["threshold"], np.finfo(np.float64).max)),
        "left": np.where(leaf, own, first + of["left"]),
        "right": np.where(leaf, own, first + of["right"]),
        "missing_left": of["missing"].astype(bool),
        "value": np.where(leaf, of["value"], 0.0),
        "base": base,
    }
    return Trees(len(base), {name: torch.tensor(array) for name, array in arrays.items()})


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
        weighs = has_fit_parameter(model, "sample_weight")
        counts = {} if rows.weights is None or not weighs else {"sample_weight": rows.weights.numpy()}
        y = rows.y.numpy() if costs > 1 else rows.y.numpy().ravel()
        return Estimator(costs, model.fit(rows.x.numpy(), y, **counts))


def forecasters_of(given: Sequence[Any] | None, features: int, costs: int, seed: int) -> list[Forecaster]:
    """The candidates: names of ours, estimators, or pairs (name, estimator); by default ours."""
    if given is None:
        given = ["ridge", "huber", "boosting"] if features * costs <= HUBER_WORK else ["ridge", "boosting"]
    ours = {one.name: one for one in (Ridge(), Huber(), Boosting(seed=seed))}
    found: list[Forecaster] = []
    for one in given:
        if isinstance(one, str) and one not in ours:
            raise OptionError(f"forecasters are {', '.join(ours)}, or estimators of scikit-learn's kind; got {one!r}")
        name, estimator = one if isinstance(one, tuple) else (type(one).__name__, one)
        if not isinstance(one, str) and not all(hasattr(estimator, method) for method in ("fit", "predict")):
            raise OptionError(f"a forecaster has fit and predict, as scikit-learn's have; got {one!r}")
        found.append(ours[one] if isinstance(one, str) else Own(name, estimator))
    names = [one.name for one in found]
    if not found or len(set(names)) < len(names):
        what = "forecasters need a name each, and at least one is needed"
        raise OptionError(f"{what}; got {names}: pass (name, estimator)")
    return found


class Given(nn.Identity):
    """The forecast in the columns behind the features."""


class Estimator(nn.Module):
    """A fitted estimator of scikit-learn's kind. A file keeps it by skops; what it is made of must be known, or trusted."""

    def __init__(self, costs: int, fitted: Any = None, *, trust: bool = False) -> None:
        super().__init__()
        self.costs, self.fitted, self.trust = costs, fitted, trust

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor(np.reshape(self.fitted.predict(x.numpy()), (len(x), self.costs)), dtype=torch.float64)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "saved"] = torch.frombuffer(bytearray(_skops().dumps(self.fitted)), dtype=torch.uint8)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
        saved = bytes(state_dict[prefix + "saved"].numpy())
        unknown = [kind for kind in _skops().get_untrusted_types(data=saved) if kind != PLAIN]
        if unknown and not self.trust:
            what = f"its model holds objects of {', '.join(sorted(unknown)[:5])}, whose code loading would run"
            raise DataError(f"{what}: if you trust them, load it with trust=True")
        self.fitted = _skops().loads(saved, trusted=[*unknown, PLAIN])


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        what = "estimators of your own are saved with skops"
        raise MissingExtraError(f"{what}: pip install 'dflearn[sklearn]'") from error
    return skops.io


class Combination(nn.Module):
    """ŷ = after(offset + Σ_m weight_m · f_m(x)): a weight of each forecast for each cost.  `(*batch, k)` → `(*batch, p)`.

    Args:
        parts: by name, the forecasts f_m: a linear map, `Trees`, `Given` or an `Estimator`.
        features: the number of columns that are features; behind them stand those of a given forecast.
        weight, offset: `(parts, p)` and `(p,)`; by default their mean.
        positive: the scale of the softplus that keeps predictions positive; 0: none.
        errors: `(K, p)` of K scenarios to decide in at once (`dflearn.tables.demand`), or none.
    """

    errors: Tensor

    def __init__(
        self,
        parts: Mapping[str, nn.Module],
        features: int,
        costs: int,
        weight: Tensor | None = None,
        offset: Tensor | None = None,
        *,
        positive: float = 0.0,
        errors: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.names, self.parts = tuple(parts), nn.ModuleList(parts.values())
        self.features, self.costs = features, costs
        equal = torch.full((len(parts), costs), 1 / max(1, len(parts)), dtype=torch.float64)
        zero = torch.zeros(costs, dtype=torch.float64)
        self.weight = nn.Parameter(equal if weight is None else weight.detach().double().clone())
        self.offset = nn.Parameter(zero if offset is None else offset.double().clone())
        self.positive = positive
        self.after = Positive(positive).double() if positive else nn.Identity()
        self.register_buffer("errors", zero.new_zeros(0, costs) if errors is None else errors)

    def forward(self, x: Tensor, known: dict[nn.Module, Tensor] | None = None) -> Tensor:
        """known: collects the forecasts of parts for x, which combinations may share."""
        own, given = x[..., : self.features], x[..., self.features :]
        found, known = self.offset.expand(*x.shape[:-1], -1), {} if known is None else known
        for weight, part in zip(self.weight, self.parts, strict=True):
            if part not in known:
                known[part] = part(given if isinstance(part, Given) else own)
            found = found + weight * known[part]
        return self.after(found)

    def plan(self) -> dict[str, Any]:
        """The rest of the model, for a file with its numbers."""
        kinds = {nn.Sequential: "linear", Trees: "trees", Given: "given", Estimator: "estimator"}
        parts = [[name, kinds[type(part)]] for name, part in zip(self.names, self.parts, strict=True)]
        sizes = {"features": self.features, "costs": self.costs, "scenarios": len(self.errors)}
        return {"parts": parts, **sizes, "positive": self.positive}

    @classmethod
    def of(cls, plan: Mapping[str, Any], *, trust: bool = False) -> Combination:
        """The combination that a plan describes, without its numbers."""
        k, p = int(plan["features"]), int(plan["costs"])
        if not 0 <= (several := int(plan["scenarios"])) <= MOST_SCENARIOS:
            raise DataError(f"its model has {several} scenarios, and {MOST_SCENARIOS} are the most")
        errors = torch.zeros(several, p, dtype=torch.float64)
        makes: dict[str, Any] = {
            "linear": lambda: nn.Sequential(Standardize(k), Linear(k, p).double()),
            "trees": lambda: Trees(p),
            "given": Given,
            "estimator": lambda: Estimator(p, trust=trust),
        }
        unknown = [kind for _, kind in plan["parts"] if kind not in makes]
        if unknown:
            raise OptionError(f"its model has a part of the kind {unknown[0]!r}, and known are {', '.join(makes)}")
        parts = {name: makes[kind]() for name, kind in plan["parts"]}
        return cls(parts, k, p, positive=float(plan["positive"]), errors=errors)

    def check(self) -> None:
        """An error if the trees of a file do not fit."""
        for part in self.parts:
            if isinstance(part, Trees):
                part.check(self.features)
