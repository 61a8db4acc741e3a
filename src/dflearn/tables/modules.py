"""The modules of estimators: by name, or of a user's own by their import path, since a model file holds no code."""

from __future__ import annotations

import copy
import importlib
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.models import MLP, Correction, Linear, OnForecast, Positive, Scaled, Standardize, Trees


def build(
    of: Mapping[str, Any], shape: tuple[int, ...], p: int, scale: float, seed: int, data: DecisionDataset | None = None
) -> nn.Module:
    """The untrained model in float64 of an estimator with these parameters, features → p costs, in units of `scale`.

    Features have this shape, and are standardized as those of `data` are.
    """
    k, after = shape[-1], Positive(scale) if of["positive"] else None
    if of["start"] != "zero":
        if len(shape) == 2:  # one map that all costs share
            p, after = 1, nn.Sequential(after or nn.Identity(), nn.Flatten(-2))
        joint = of["start"] == "boosting"
        forecast = Trees(p) if joint else nn.Sequential(Standardize(k), Linear(k, p).double())
        return OnForecast(forecast, Correction(Standardize(k + p), torch.ones(p).double(), joint=joint, after=after))
    model = of["model"]
    parts = [
        copy.deepcopy(model) if isinstance(model, nn.Module) else _named(model, of["hidden"], shape, p, scale, seed)
    ]
    if of["standardize"]:
        known = (None, None) if data is None else (data.features, data.weights)
        parts.insert(0, Standardize(k, *known))
    if after is not None:
        parts.append(after)
    return (nn.Sequential(*parts) if len(parts) > 1 else parts[0]).double()


def _named(model: str, hidden: Sequence[int], shape: tuple[int, ...], p: int, scale: float, seed: int) -> nn.Module:
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


class Imported(nn.Module):
    """A module that is built by importing and calling: `Imported("nets:PriceNet", hidden=32)`.

    So it can be saved with an estimator: the file holds the import path, the arguments and the weights.

    Args:
        path: "module:name" of a class or function that returns a module, importable wherever the file is loaded.
        arguments: what it is called with, as JSON holds it.
    """

    def __init__(self, path: str, **arguments: Any) -> None:
        super().__init__()
        try:
            plain = json.loads(json.dumps(arguments, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise OptionError(
                f"the arguments of {path} are to be kept in a file, as JSON holds them: {error}"
            ) from error
        built = _imported(path)(**arguments)
        if not isinstance(built, nn.Module):
            raise OptionError(f"{path} gives a {type(built).__name__}, and a torch module is wanted")
        self.path, self.arguments, self.module = path, plain, built

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)

    def extra_repr(self) -> str:
        return self.path


def _imported(path: str) -> Callable[..., Any]:
    name, colon, rest = path.partition(":")
    if not (name and colon and rest):
        raise OptionError(f"a module is imported by 'package.module:name', got {path!r}")
    try:
        made: Any = attrgetter(rest)(importlib.import_module(name))
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"{path!r} cannot be imported here ({error}): install what it is in, or add its folder to PYTHONPATH"
        ) from error
    if not callable(made):
        raise OptionError(f"{path!r} is a {type(made).__name__}, and something to call is wanted")
    return made


# -- in a file ------------------------------------------------------------------------------------------------------


def as_saved(module: nn.Module) -> dict[str, Any]:
    """How a file says which module it is."""
    if isinstance(module, Imported):
        return {"import": module.path, "arguments": module.arguments}
    raise DataError(
        f"model is a {type(module).__name__}, and a file holds names and numbers only: build it by its import path, "
        "model=dflearn.tables.Imported('package.module:Class', …its arguments…), or use model='linear', 'shared' or 'mlp', or "
        "keep the weights alone, with safetensors.torch.save_file(regressor.model_.state_dict(), path), and build the module anew"
    )


def from_saved(held: Mapping[str, Any], *, trust: bool) -> nn.Module:
    """The module that `as_saved` names, once who loads it has said that the code may run."""
    path, arguments = str(held["import"]), dict(held["arguments"])
    if not trust:
        raise DataError(
            f"its model is built by code that is not dflearn's, {path}: loading it runs that code, with arguments from the "
            "file. If you trust both, load it with trust=True"
        )
    warnings.warn(f"{path} is imported and run, as the model file asks and trust=True allows", stacklevel=5)
    return Imported(path, **arguments)
