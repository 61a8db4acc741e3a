"""Objects that are pickled without what can be made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar


class WithoutCaches:
    """Pickles and copies leave out the values of cached properties, and make anew what `made_anew` names."""

    made_anew: ClassVar[Mapping[str, Callable[[], Any]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.__dict__.items()
            if name not in self.made_anew and not isinstance(getattr(type(self), name, None), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, **{name: make() for name, make in self.made_anew.items()}})
