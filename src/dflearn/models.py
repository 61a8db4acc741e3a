"""Small predictors of costs. `fit` trains any `nn.Module`; these are the ones most studies need.

Initial weights depend on `seed` alone, and torch's global generator is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dflearn.errors import ShapeError

ROWS = 4096  # instances predicted at a time
NODES = 2**20  # of trees that are looked at at once


@torch.no_grad()
def predict(model: Callable[[Tensor], Tensor], features: Tensor, *, rows: int = ROWS) -> Tensor:
    """Predicted costs `(count, p)` of `model` for features `(count, …)`, `rows` of them at a time.

    A module is asked in eval mode, in its own precision and on its own device, where the costs stay; it is left as it was.

    Examples:
        >>> dfl.models.predict(dfl.models.Linear(10, 12), data.features).shape
        torch.Size([40, 12])
    """
    modes: list[tuple[nn.Module, bool]] = []
    if isinstance(model, nn.Module):
        first = next(model.parameters(), None)
        features = features if first is None else features.to(first)
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
    try:
        return torch.cat([model(part) for part in features.split(rows)])
    finally:
        for module, training in modes:
            module.training = training


class Linear(nn.Linear):
    """ŷ = W x + b, one joint map.  `(*batch, features)` → `(*batch, costs)`.

    Examples:
        >>> dfl.models.Linear(10, 12, seed=1)(data.features).shape
        torch.Size([40, 12])
    """

    def __init__(self, features: int, costs: int, *, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            super().__init__(features, costs)


class SharedLinear(nn.Module):
    """ŷ_j = vᵀ x_j + b, one map for all cost coefficients.  `(*batch, p, features)` → `(*batch, p)`.  v is drawn by `seed`.

    Examples:
        >>> dfl.models.SharedLinear(3)(torch.zeros(40, 12, 3)).shape
        torch.Size([40, 12])
    """

    def __init__(self, features: int, *, seed: int = 0) -> None:
        super().__init__()
        self.linear = Linear(features, 1, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).squeeze(-1)


class MLP(nn.Sequential):
    """Linear maps with an activation between them.  `(*batch, features)` → `(*batch, costs)`.

    Args:
        hidden: widths of the hidden layers; none gives a linear model.
        activation: makes the module between two maps.
        seed: of the first weights.

    Examples:
        >>> dfl.models.MLP(10, 12, hidden=[32, 32])(data.features).shape
        torch.Size([40, 12])
    """

    def __init__(
        self,
        features: int,
        costs: int,
        *,
        hidden: Sequence[int] = (64,),
        activation: Callable[[], nn.Module] = nn.ReLU,
        seed: int = 0,
    ) -> None:
        if min(features, costs, *hidden) < 1:
            raise ShapeError(f"every width must be at least 1; got {features}, {tuple(hidden)}, {costs}")
        widths = [features, *hidden, costs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            modules: list[nn.Module] = [nn.Linear(features, widths[1])]
            for inner, outer in pairwise(widths[1:]):
                modules += [activation(), nn.Linear(inner, outer)]
        super().__init__(*modules)


class TileNet(nn.Module):
    """Positive costs of the tiles of an image: a small net looks at each tile, another at what the first saw around it.

    `(*batch, 3, rows · pixels, columns · pixels)` → `(*batch, rows · columns)`, row by row.

    Args:
        pixels: of a tile, each way.
        channels: of both hidden layers.
        seed: of the first weights.

    Examples:
        >>> dfl.models.TileNet(pixels=4)(torch.zeros(2, 3, 12, 12)).shape
        torch.Size([2, 9])
    """

    def __init__(self, pixels: int, *, channels: int = 8, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tile = nn.Conv2d(3, channels, pixels, stride=pixels)
            self.around = nn.Conv2d(channels, channels, 3, padding=1)
            self.cost = nn.Conv2d(2 * channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[:-3]
        seen = torch.relu(self.tile(x.reshape(-1, *x.shape[-3:])))
        both = torch.cat([seen, torch.relu(self.around(seen))], 1)
        return nn.functional.softplus(self.cost(both)).reshape(*batch, -1)


class Scaled(nn.Module):
    """scale · model(x): a model that works in units of the costs.

    Examples:
        >>> model = dfl.models.Scaled(dfl.models.Linear(10, 12), scale=100.0)
        >>> model(data.features).shape
        torch.Size([40, 12])
    """

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) * self.scale


class Standardize(nn.Module):
    """(x − mean) / standard deviation over the given features `(count, …, k)`; a constant one becomes zero.

    With weights `(count,)`, mean and deviation are weighted.

    Examples:
        >>> standardize = dfl.models.Standardize(10, data.features)
        >>> standardize(data.features).mean(0).abs().max() < 1e-6
        tensor(True)
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, k: int, features: Tensor | None = None, weights: Tensor | None = None) -> None:
        super().__init__()
        flat = torch.zeros(1, k, dtype=torch.float64) if features is None else features.double().reshape(-1, k)
        if features is None or weights is None:
            mean, deviation = flat.mean(0), flat.std(0, correction=0)
        else:
            share = (weights / weights.sum()).to(flat).repeat_interleave(len(flat) // len(weights))
            share = share / share.sum()
            mean = share @ flat
            deviation = (share @ (flat - mean).square()).sqrt()
        constant = deviation <= 1e-9 * flat.abs().amax(0)
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", torch.where(constant, torch.inf, deviation))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


class Positive(nn.Module):
    """scale · log(1 + exp(ŷ / scale)), a softplus: positive, and nearly ŷ where that is several times the scale.

    Examples:
        >>> dfl.models.Positive()(torch.tensor([-1.0, 0.0, 10.0]))
        tensor([ 0.3133,  0.6931, 10.0000])
    """

    scale: Tensor

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    def forward(self, costs: Tensor) -> Tensor:
        return nn.functional.softplus(costs / self.scale) * self.scale


class Trees(nn.Module):
    """A sum of regression trees for each cost, as plain arrays: ŷ_j = base_j + Σ over trees t of leaf_jt(x).

    `(*batch, features)` → `(*batch, costs)`, in float64. `dflearn.tables.forecasters` fits the trees with scikit-learn. All trees lie
    one after another; a leaf is its own child.

    Buffers:
        root: node at which a tree begins, int64 `(costs, trees)`.
        feature: which feature a node looks at, int64 `(nodes,)`.
        threshold: at most this goes left, float64 `(nodes,)`.
        left, right: the node that follows, int64 `(nodes,)`.
        missing_left: whether NaN goes left, bool `(nodes,)`.
        value: what a leaf adds, float64 `(nodes,)`.
        base: float64 `(costs,)`.

    Examples:
        >>> dfl.models.Trees(costs=12)(data.features).shape  # without trees yet: zero
        torch.Size([40, 12])
    """

    root: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    value: Tensor
    base: Tensor

    KINDS: ClassVar[dict[str, torch.dtype]] = {
        **dict.fromkeys(("root", "feature", "left", "right"), torch.int64),
        **dict.fromkeys(("threshold", "value", "base"), torch.float64),
        "missing_left": torch.bool,
    }

    def __init__(self, costs: int, arrays: Mapping[str, Tensor] | None = None) -> None:
        """Without arrays: no trees yet, to load a state into."""
        super().__init__()
        empty = {
            name: torch.zeros((costs, 0) if name == "root" else (0,), dtype=kind) for name, kind in self.KINDS.items()
        }
        for name, array in (empty | {"base": torch.zeros(costs)} | dict(arrays or {})).items():
            self.register_buffer(name, array.to(self.KINDS[name]))

    def check(self, features: int) -> None:
        """An error unless every tree looks at one of so many features and ends: children stand after their parent."""
        nodes, costs = len(self.feature), len(self.base)
        own = torch.arange(nodes)
        lengths = {getattr(self, name).shape for name in self.KINDS if name not in ("root", "base")}
        if lengths != {(nodes,)} or self.root.shape[:1] != (costs,) or self.root.ndim != 2:
            raise ShapeError("the arrays of its trees do not fit one another")
        for name, most in (("root", nodes), ("feature", features), ("left", nodes), ("right", nodes)):
            part = getattr(self, name)
            if bool(((part < 0) | (part >= most)).any()):
                raise ShapeError(f"its trees name a {name} that is not there")
        if not bool((((self.left > own) & (self.right > own)) | ((self.left == own) & (self.right == own))).all()):
            raise ShapeError("its trees run in circles")

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        rows = max(1, NODES // max(1, self.root.numel()))
        found = [self._sum(part.to(torch.float64)) for part in flat.split(rows)] if len(flat) else [self.base[:0]]
        return torch.cat(found).reshape(*x.shape[:-1], len(self.base))

    def _sum(self, x: Tensor) -> Tensor:
        """`(rows, features)` → `(rows, costs)`: all trees go down one level at a time, until all are at their leaves."""
        node = self.root.reshape(1, -1).expand(len(x), -1)
        while True:
            cell = x.gather(1, self.feature[node])
            goes_left = torch.where(cell.isnan(), self.missing_left[node], cell <= self.threshold[node])
            following = torch.where(goes_left, self.left[node], self.right[node])
            if torch.equal(following, node):
                break
            node = following
        return self.base + self.value[node].reshape(len(x), *self.root.shape).sum(-1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Trees:
        """Moves between devices; thresholds and values stay in float64, so that answers stay what they are."""
        super()._apply(fn, recurse)
        for name, kind in self.KINDS.items():
            setattr(self, name, getattr(self, name).to(kind))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Takes arrays of any length."""
        for name in self.KINDS:
            held = state_dict.get(prefix + name)
            if held is not None and (name != "base" or held.shape == self.base.shape):
                setattr(self, name, torch.empty_like(held))
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class Correction(nn.Module):
    """ŷ = after(f + unit · (b + g · f̃ + W z)) for rows `(*batch, features + costs)` that hold features x and forecasts f.

    f̃ are standardized forecasts. z are the first columns of the standardized rows: the features, or everything.
    b, g and W begin at zero, so that ŷ is the forecast.

    Args:
        standardize: of the rows.
        unit: of each cost, `(costs,)`: how far forecasts are off.
        joint: whether z holds the forecasts too.
        after: what makes predictions positive, where costs are known to be.

    Examples:
        >>> correction = dfl.models.Correction(dfl.models.Standardize(14, torch.randn(40, 14)), torch.ones(12))
        >>> rows = torch.randn(5, 14)  # two features, twelve forecasts
        >>> correction(rows).equal(rows[:, 2:])  # untrained, it changes no forecast
        True
    """

    unit: Tensor

    def __init__(
        self, standardize: Standardize, unit: Tensor, *, joint: bool = False, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        costs, width = len(unit), len(standardize.mean)
        self.weight = nn.Parameter(torch.zeros(costs, width if joint else width - costs, dtype=torch.float64))
        self.bias, self.gain = (nn.Parameter(torch.zeros(costs, dtype=torch.float64)) for _ in range(2))
        self.standardize, self.after = standardize, after or nn.Identity()
        self.register_buffer("unit", unit)

    def forward(self, rows: Tensor) -> Tensor:
        costs, z = len(self.unit), self.standardize(rows)
        step = self.bias + self.gain * z[..., -costs:] + z[..., : self.weight.shape[1]] @ self.weight.T
        return self.after(rows[..., -costs:] + self.unit * step)


class OnForecast(nn.Module):
    """A forecast f with its `Correction`.  `(*batch, features)` → `(*batch, costs)`.

    Examples:
        >>> forecast = dfl.models.Linear(2, 12)
        >>> correction = dfl.models.Correction(dfl.models.Standardize(14, torch.randn(40, 14)), torch.ones(12))
        >>> dfl.models.OnForecast(forecast, correction)(torch.randn(5, 2)).shape
        torch.Size([5, 12])
    """

    def __init__(self, forecast: nn.Module, correction: nn.Module) -> None:
        super().__init__()
        self.forecast, self.correction = forecast, correction

    def rows(self, x: Tensor) -> Tensor:
        """Features and their forecasts side by side, for the correction."""
        return torch.cat([x, self.forecast(x)], -1)

    def forward(self, x: Tensor) -> Tensor:
        return self.correction(self.rows(x))
