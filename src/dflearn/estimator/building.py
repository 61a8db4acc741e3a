"""The estimator's models: from their names to modules with weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from dflearn.data import DecisionDataset
from dflearn.errors import OptionError, ShapeError
from dflearn.models import MLP, Linear, OnForecast, Positive, Scaled, Standardize, Trees


def build(
    model: str | nn.Module,
    shape: Sequence[int],
    p: int,
    *,
    hidden: Sequence[int],
    start: str,
    standardize: bool,
    positive: bool,
    scale: float,
    seed: int,
    data: DecisionDataset | None = None,
) -> nn.Module:
    """The untrained model in float64, features of this shape → p costs, in units of `scale`.

    Other arguments: as of `DecisionFocusedRegressor`. Features are standardized as those of `data` are.
    """
    if start == "boosting":
        parts: list[nn.Module] = [OnForecast(Trees(p), shape[-1], p)]
    elif isinstance(model, nn.Module):
        parts = [copy.deepcopy(model)]
    else:
        parts = [_named(model, shape, p, hidden, scale, seed)]
    if start == "ridge" or (start == "zero" and standardize):
        known = (None, None) if data is None else (data.features, data.weights)
        parts.insert(0, Standardize(shape[-1], *known))
    if positive:
        parts.append(Positive(scale))
    return (nn.Sequential(*parts) if len(parts) > 1 else parts[0]).double()


def _named(model: str, shape: Sequence[int], p: int, hidden: Sequence[int], scale: float, seed: int) -> nn.Module:
    """The model of that name."""
    per_cost, k = len(shape) == 2, shape[-1]
    if model not in ("linear", "shared", "mlp"):
        raise OptionError(f"model is 'linear', 'shared', 'mlp' or a torch module; got {model!r}")
    if len(shape) > 2 or (per_cost and shape[0] != p) or (model == "shared" and not per_cost):
        wanted = f"(n_samples, {p}, k)" if per_cost or model == "shared" else "(n_samples, k)"
        raise ShapeError(
            f"model={model!r} wants features of shape {wanted}; got (n_samples, {', '.join(map(str, shape))})"
        )
    outputs = 1 if per_cost else p
    net = MLP(k, outputs, hidden=hidden, seed=seed) if model == "mlp" else Linear(k, outputs, seed=seed)
    return Scaled(nn.Sequential(net, nn.Flatten(-2)) if per_cost else net, scale)
