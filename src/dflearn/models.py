"""Small predictors of costs. `fit` trains any `nn.Module`; these are the ones most studies need.

Initial weights depend on `seed` alone, and torch's global generator is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from dflearn.errors import ShapeError


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
