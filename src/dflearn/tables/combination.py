"""What `train` makes: a sum of forecasts, which a model file holds as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.errors import DataError, MissingExtraError, OptionError
from dflearn.models import Linear, Positive, Standardize, Trees

PLAIN = "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"  # arrays, which skops does not know yet


class Given(nn.Module):
    """The forecast that comes with the features: the columns behind them."""

    def forward(self, x: Tensor) -> Tensor:
        return x


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
            raise DataError(
                f"its model holds objects of {', '.join(sorted(unknown)[:5])}, whose code loading would run: if you trust them, "
                "load it with trust=True"
            )
        self.fitted = _skops().loads(saved, trusted=[*unknown, PLAIN])


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "estimators of your own are saved with skops: pip install 'dflearn[sklearn]'"
        ) from error
    return skops.io


class Combination(nn.Module):
    """ŷ = after(offset + Σ_m weight_m · f_m(x)): a weight of each forecast for each cost.  `(*batch, k)` → `(*batch, p)`.

    Args:
        parts: by name, the forecasts f_m: a linear map, `Trees`, `Given` or an `Estimator`.
        features: how many columns are features; behind them stand those of a given forecast.
        weight, offset: `(parts, p)` and `(p,)`; by default their mean.
        positive: the scale of the softplus that keeps predictions positive; 0: none.
    """

    def __init__(
        self,
        parts: Mapping[str, nn.Module],
        features: int,
        costs: int,
        weight: Tensor | None = None,
        offset: Tensor | None = None,
        *,
        positive: float = 0.0,
    ) -> None:
        super().__init__()
        self.names, self.parts = tuple(parts), nn.ModuleList(parts.values())
        self.features, self.costs = features, costs
        equal = torch.full((len(parts), costs), 1 / max(1, len(parts)), dtype=torch.float64)
        self.weight = nn.Parameter(equal if weight is None else weight.detach().double().clone())
        self.offset = nn.Parameter(
            torch.zeros(costs, dtype=torch.float64) if offset is None else offset.double().clone()
        )
        self.positive = positive
        self.after = Positive(positive).double() if positive else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        own, given = x[..., : self.features], x[..., self.features :]
        found = self.offset.expand(*x.shape[:-1], -1)
        for weight, part in zip(self.weight, self.parts, strict=True):
            found = found + weight * part(given if isinstance(part, Given) else own)
        return self.after(found)

    def plan(self) -> dict[str, Any]:
        """What a file keeps beside the numbers."""
        kinds = [[name, _kind(part)] for name, part in zip(self.names, self.parts, strict=True)]
        return {"parts": kinds, "features": self.features, "costs": self.costs, "positive": self.positive}

    @classmethod
    def of(cls, plan: Mapping[str, Any], *, trust: bool = False) -> Combination:
        """The combination that a plan describes, without its numbers."""
        k, p = int(plan["features"]), int(plan["costs"])
        return cls(_built(plan["parts"], k, p, trust), k, p, positive=float(plan["positive"]))

    def check(self) -> None:
        """An error where the trees that a file holds do not fit."""
        for part in self.parts:
            if isinstance(part, Trees):
                part.check(self.features)


def _kind(part: nn.Module) -> str:
    kinds = {nn.Sequential: "linear", Trees: "trees", Given: "given", Estimator: "estimator"}
    return kinds[type(part)]


def _built(parts: Sequence[Sequence[str]], k: int, p: int, trust: bool) -> dict[str, nn.Module]:
    makes: dict[str, Any] = {
        "linear": lambda: nn.Sequential(Standardize(k), Linear(k, p).double()),
        "trees": lambda: Trees(p),
        "given": Given,
        "estimator": lambda: Estimator(p, trust=trust),
    }
    unknown = [kind for _, kind in parts if kind not in makes]
    if unknown:
        raise OptionError(f"its model has a part of the kind {unknown[0]!r}, and known are {', '.join(makes)}")
    return {name: makes[kind]() for name, kind in parts}
