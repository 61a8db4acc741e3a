"""Small predictors of costs. `fit` trains any `nn.Module`; these are the ones most studies need.

Initial weights depend on `seed` alone, and torch's global generator is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from dflearn.errors import ShapeError

ROWS = 4096  # instances predicted at a time


@torch.no_grad()
def predict(model: Callable[[Tensor], Tensor], features: Tensor, *, rows: int = ROWS) -> Tensor:
    """Predicted costs `(count, p)` for features `(count, …)`, so many rows at a time.

    A module is asked in eval mode, in its own precision and on its own device, where the costs stay; it is left as it was.
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
    """ŷ = W x + b, one joint map.  `(*batch, features)` → `(*batch, costs)`."""

    def __init__(self, features: int, costs: int, *, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            super().__init__(features, costs)


class SharedLinear(nn.Module):
    """ŷ_j = vᵀ x_j + b, one map for all cost coefficients.  `(*batch, p, features)` → `(*batch, p)`."""

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


# -- what goes before and after a model -----------------------------------------------------------------------------


class Scaled(nn.Module):
    """scale · model(x): a model that works in units of the costs."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) * self.scale


class Standardize(nn.Module):
    """(x − mean) / standard deviation over the given features `(count, …, k)`; a constant one becomes zero.

    With weights `(count,)`, mean and deviation are weighted.
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
    """scale · log(1 + exp(ŷ / scale)), a softplus: positive, and nearly ŷ where that is several times the scale."""

    scale: Tensor

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    def forward(self, costs: Tensor) -> Tensor:
        return nn.functional.softplus(costs / self.scale) * self.scale
