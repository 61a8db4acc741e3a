"""Optional packages, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dflearn.errors import MissingExtraError


def optional(module: str, extra: str, user: str) -> Any:
    """The module; where its package is missing, an error that says which extra of dflearn brings it to `user`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(f"{user} needs the package {package}: pip install 'dflearn[{extra}]'") from error
