"""The registry of models: a name, and a function that makes a new one for the features and costs of a problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from dflearn.errors import OptionError
from dflearn.models import MLP, Linear, SharedLinear, TileNet

#: (shape of one instance's features, number of costs, seed, options by name) → a new model
ModelFactory = Callable[..., nn.Module]

_MODELS: dict[str, ModelFactory] = {}


def register_model(name: str, make: ModelFactory) -> None:
    """Add a model for studies.

    Args:
        name: the name in TOML files.
        make: `make(features, costs, seed, **options)` → a new module from features `(*batch, *features)` to costs
            `(*batch, costs)`, whose first weights depend only on the seed.

    Examples:
        >>> from dflearn.studies import register_model
        >>> register_model("my-net", lambda features, costs, seed: dfl.models.MLP(features[0], costs, seed=seed))
    """
    taken = _MODELS.get(name, make).__module__
    if taken.removeprefix("__mp_") != make.__module__.removeprefix("__mp_"):
        raise OptionError(f"a model is named {name!r} already, in {taken}: choose another name")
    _MODELS[name] = make


def check_model(name: str, options: Mapping[str, Any]) -> None:
    """An error for an unknown name or option of a model."""
    if name not in _MODELS:
        raise OptionError(
            f"no model is named {name!r}: use one of {', '.join(_MODELS)}; for one of your own, add "
            'import = ["your_module"] to the study'
        )
    known = list(inspect.signature(_MODELS[name]).parameters)[3:]
    if unknown := sorted(set(options) - set(known)):
        names = ", ".join(known) or "none"
        raise OptionError(f"the model {name!r} has no option {', '.join(unknown)}; its options are: {names}")


def make_model(name: str, features: tuple[int, ...], costs: int, seed: int, **options: Any) -> nn.Module:
    check_model(name, options)
    return _MODELS[name](features, costs, seed, **options)


def _check(fits: bool, takes: str, features: tuple[int, ...], instead: str = "") -> None:
    if not fits:
        raise OptionError(f"this model takes {takes}; these data have features of shape {features}{instead}")


def _joint(features: tuple[int, ...]) -> int:
    other = ': use model = "shared", which has one row per cost'
    _check(len(features) == 1, "one row of features per instance", features, other)
    return features[0]


def linear(features: tuple[int, ...], costs: int, seed: int) -> nn.Module:
    return Linear(_joint(features), costs, seed=seed)


def mlp(features: tuple[int, ...], costs: int, seed: int, hidden: tuple[int, ...] = (64,)) -> nn.Module:
    return MLP(_joint(features), costs, hidden=hidden, seed=seed)


def shared(features: tuple[int, ...], costs: int, seed: int) -> nn.Module:
    _check(len(features) == 2, "features of each cost, (costs, k)", features, ': use model = "linear"')
    return SharedLinear(features[-1], seed=seed)


def tiles(features: tuple[int, ...], costs: int, seed: int, channels: int = 8) -> nn.Module:
    side = round(costs**0.5)
    square = side * side == costs and len(features) == 3 and features[0] == 3
    takes = f"square images (3, height, width) of {costs} tiles, one for each cost"
    _check(square and not any(size % side for size in features[1:]), takes, features)
    return TileNet(features[1] // side, channels=channels, seed=seed)


for _make in (linear, mlp, shared, tiles):
    register_model(_make.__name__, _make)
register_model("ridge", linear)  # `run` starts it with ridge regression on the training set
