"""Which objective coefficients are predicted, in the words that every front end shares.

    "all"                           every variable's coefficient is a predicted cost
    "x[1]", "flow*"                 the variable of that name; the variables whose names begin so
    re.compile(r"x\\[\\d+\\]")         the variables whose whole name matches
    ["x[1]", "flow*", …]            several of these, in that order
    {"price": {"a": 2.0, "b": 3}}   a cost by name, and the variables whose coefficients it enters, times a known factor

The coefficient that a model holds for a predicted variable is replaced; the others stay, as the known part d.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError, ProgramError
from dflearn.program.names import closest

Costs = str | re.Pattern[str] | Sequence[str | re.Pattern[str]] | Mapping[str, Mapping[str, float]]


class Coefficients(NamedTuple):
    """The objective coefficients c = S y + d of a model in its own sense, and what the costs y are called."""

    S: sp.csr_array
    d: np.ndarray
    names: tuple[str, ...] | None


def by_name(costs: Any, names: Sequence[str], coefficients: np.ndarray) -> Coefficients:
    """The costs that `costs` selects by the `names` of the variables, whose coefficients are `coefficients` `(n,)`."""
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        raise ProgramError("costs are selected by name, but some variables share a name: give each its own")
    if isinstance(costs, Mapping):
        return _by_factor(costs, place, coefficients)
    if isinstance(costs, str) and costs == "all":
        return by_index(range(len(names)), coefficients, names)
    parts = [costs] if isinstance(costs, str | re.Pattern) else costs
    if not isinstance(parts, Iterable):
        raise OptionError(f"costs is 'all', a name, a beginning and '*', a pattern, or a list of these; got {costs!r}")
    return by_index([i for part in parts for i in _matches(part, place)], coefficients, names)


def by_index(chosen: Iterable[int], coefficients: np.ndarray, names: Sequence[str] | None) -> Coefficients:
    """Cost k is the coefficient of variable `chosen[k]`, and is called like it."""
    n = len(coefficients)
    index = np.fromiter(chosen, np.int64)
    if not index.size:
        raise OptionError("costs selects no variable, so there is nothing to predict")
    if index.min() < 0 or index.max() >= n:
        raise OptionError(f"costs selects a variable outside 0 … {n - 1}: {index.min()} … {index.max()}")
    variables, times = np.unique(index, return_counts=True)
    if times.max() > 1:
        twice = variables[times.argmax()]
        raise OptionError(f"costs selects variable {names[twice]!r} twice" if names else f"costs holds {twice} twice")
    S = sp.csr_array((np.ones(index.size), (index, np.arange(index.size))), shape=(n, index.size))
    d = np.array(coefficients, np.float64)
    d[index] = 0.0
    return Coefficients(S, d, None if names is None else tuple(names[i] for i in index))


def listed(costs: Any, entries: Callable[[Any], list[Any] | None]) -> list[Any] | None:
    """All entries of `costs`, which may be a list of lists; `entries` reads one part, and gives `None` where it cannot."""
    read = entries(costs)
    if read is not None or not isinstance(costs, list | tuple):
        return read
    parts = [listed(part, entries) for part in costs]
    return None if None in parts else [entry for part in parts for entry in part or ()]


def _matches(part: Any, place: Mapping[str, int]) -> list[int]:
    """The variables that one entry of `costs` stands for."""
    if isinstance(part, re.Pattern):
        chosen = [i for name, i in place.items() if part.fullmatch(name)]
    elif not isinstance(part, str):
        raise OptionError(f"costs holds {part!r}, a {type(part).__name__}: names and patterns only")
    elif part in place:
        return [place[part]]
    elif part.endswith("*"):
        chosen = [i for name, i in place.items() if name.startswith(part[:-1])]
    else:
        raise _unknown(part, place)
    if not chosen:
        raise OptionError(f"costs: no variable matches {part!r}{closest('', place)}")
    return chosen


def _by_factor(
    costs: Mapping[str, Mapping[str, float]], place: Mapping[str, int], coefficients: np.ndarray
) -> Coefficients:
    S = sp.lil_array((len(coefficients), len(costs)))
    d = np.array(coefficients, np.float64)
    if not costs:
        raise OptionError("costs is empty, so there is nothing to predict")
    for k, (cost, factors) in enumerate(costs.items()):
        if not isinstance(factors, Mapping) or not factors:
            raise OptionError(f"costs[{cost!r}] maps variables to known factors, as in {{'x': 2.0}}; got {factors!r}")
        for variable, factor in factors.items():
            if variable not in place:
                raise _unknown(variable, place)
            S[place[variable], k] = factor
            d[place[variable]] = 0.0
    return Coefficients(sp.csr_array(S), d, tuple(map(str, costs)))


def _unknown(name: str, place: Mapping[str, int]) -> OptionError:
    return OptionError(f"costs: the model has no variable {name!r}{closest(str(name), place)}")
