"""Names of constraints and columns, and how they are matched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, get_args

from dflearn.errors import DataError, ProgramError

Holder = Literal["b", "h", "bound", "none"]
SEPARATORS = re.compile(r"[\s_,;()\[\]{}'\"]+")  # what modelling tools write around indices
PYOMO = re.compile(r"^[cr]_[elu]_")  # how the names of rows begin in files that Pyomo wrote
PYOMO_ROW = "row of pyomo: "  # no canonical form begins so


class RightHandSide(NamedTuple):
    """Where the right-hand side r of a named constraint stands: field[position] = sign · r.

    Attributes:
        field: "b" or "h". "bound" is a constraint on one variable alone, which became bounds of the variable at
            `position`; "none" is a constraint with two limits or without any, which has no single right-hand side.
        position: in b or h, or among the variables.
        sign: −1 for a constraint ≥, which G w ≤ h holds negated.
    """

    field: Holder
    position: int
    sign: float = 1.0


class Columns(Protocol):
    """Columns by name: a dict of arrays, a DataFrame of pandas, a `Table`."""

    def keys(self) -> Iterable[Any]: ...

    def __getitem__(self, name: Any, /) -> Any: ...


def read_constraint_names(value: Any, sizes: Mapping[str, int]) -> dict[str, RightHandSide] | None:
    """The names that a user passes, checked; `sizes` says how many rows b and h have, and how many variables there are."""
    if value is None:
        return None
    names = {}
    for name, place in dict(value).items():
        held = RightHandSide(*place) if 2 <= len(place) <= 3 else None
        if not isinstance(name, str) or held is None or held.field not in get_args(Holder) or held.sign not in (1, -1):
            raise ProgramError(
                f"constraint_names maps strings to ('b' or 'h', position, 1 or -1); got {name!r}: {place}"
            )
        if held.field in sizes and not 0 <= held.position < sizes[held.field]:
            where = f"{name!r} stands at {held.field}[{held.position}], and there are {sizes[held.field]}"
            raise ProgramError(f"constraint_names: {where}")
        names[name] = held
    return names


def canonical(name: str) -> str:
    """A name as all tools might have written it: `Demand[3]`, `demand(3)`, `demand_3` and `"demand 3"` are one."""
    return SEPARATORS.sub("_", name.strip().casefold()).strip("_")


def matched(name: str, known: Collection[str], what: str) -> str | None:
    """The known name that is meant: the same one, or the only one that differs in case, brackets, spaces and the like.

    A `DataError` that begins with `what` where several may be meant; `None` where none is.
    """
    if name in known:
        return name
    forms = _by_form(tuple(known))
    wanted = canonical(name)
    alike = [] if not wanted else forms.get(wanted) or forms.get(f"{PYOMO_ROW}{wanted}") or []
    if len(alike) > 1:
        remedy = "write the one that is meant, letter by letter"
        raise DataError(f"{what} {name!r} may be any of {', '.join(map(repr, alike[:5]))}: {remedy}")
    return alike[0] if alike else None


@lru_cache(maxsize=8)
def _by_form(names: tuple[str, ...]) -> dict[str, list[str]]:
    """The names by their canonical form; those of rows that Pyomo wrote also by the form of what it began with."""
    forms: dict[str, list[str]] = {}
    for name in names:
        form = canonical(name)
        forms.setdefault(form, []).append(name)
        if PYOMO.match(form):
            forms.setdefault(PYOMO.sub(PYOMO_ROW, form), []).append(name)
    return forms


def check_unique(names: Sequence[str], source: str) -> None:
    """An error that begins with `source` where a column's name stands twice."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{source}has {names.count(twice[0])} columns named {twice[0]!r}: name each once")


def closest(name: str, others: Collection[str]) -> str:
    """The end of a message about an unknown name: those that are meant perhaps."""
    near = get_close_matches(name, others, n=3)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, list(others)[:5])) + (", …" if len(others) > 5 else "")
    return f"; there is {shown}" if others else ""
