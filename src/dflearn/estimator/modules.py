"""Modules of one's own in model files: by their import path, since a file holds no code."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from dflearn.errors import DataError, OptionError


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
        found: Any = importlib.import_module(name)
        for part in rest.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"{path!r} cannot be imported here ({error}): install what it is in, or add its folder to PYTHONPATH"
        ) from error
    if not callable(found):
        raise OptionError(f"{path!r} is a {type(found).__name__}, and something to call is wanted")
    return found


# -- in a file ------------------------------------------------------------------------------------------------------

HOW = (
    "build it by its import path, model=dflearn.estimator.Imported('package.module:Class', …its arguments…), or use "
    "model='linear', 'shared' or 'mlp', or keep the weights alone, with "
    "safetensors.torch.save_file(regressor.model_.state_dict(), path), and build the module anew"
)


def as_saved(module: nn.Module) -> dict[str, Any]:
    """How a file says which module it is. One that is no `Imported` must be importable and take no arguments."""
    if isinstance(module, Imported):
        return {"import": module.path, "arguments": module.arguments}
    kind = type(module)
    refused = f"model is a {kind.__name__}, and a file holds names and numbers only"
    path = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise DataError(f"{refused}; its class has no import path: move it into a module, and {HOW}")
    try:
        again = Imported(path).module
    except (OptionError, TypeError) as error:
        raise DataError(f"{refused}: {HOW}") from error
    shapes = [{name: value.shape for name, value in one.state_dict().items()} for one in (module, again)]
    if shapes[0] != shapes[1]:
        raise DataError(f"{refused}, and {path} without arguments has other weights: {HOW}")
    return {"import": path, "arguments": {}, "bare": True}


def from_saved(held: Mapping[str, Any], *, trust: bool) -> nn.Module:
    """The module that `as_saved` told of, once who loads it has said that the code may run."""
    path, arguments = str(held["import"]), dict(held["arguments"])
    if not trust:
        raise DataError(
            f"its model is built by code that is not dflearn's, {path}: loading it runs that code, with arguments from the "
            "file. If you trust both, load it with trust=True"
        )
    warnings.warn(f"{path} is imported and run, as the model file asks and trust=True allows", stacklevel=5)
    module = Imported(path, **arguments)
    return module.module if held.get("bare") else module
