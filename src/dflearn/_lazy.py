"""Public names that are imported when they are first used.

`import dflearn` then costs next to nothing and works where numba or highspy are missing: only the names that need
them fail. Type checkers and editors see ordinary imports, under `TYPE_CHECKING`, beside each table.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, names: Mapping[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`, where `names` lists for each module the names it provides.

    What `package` itself provides are its own submodules.
    """
    where = {name: module for module, provided in names.items() for name in provided}

    def __getattr__(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if where[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return __getattr__, __dir__
