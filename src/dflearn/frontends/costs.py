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
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import ProgramError

Costs = str | re.Pattern[str] | Sequence[str | re.Pattern[str]] | Mapping[str, Mapping[str, float]]


class Coefficients(NamedTuple):
    """The objective coefficients c = S y + d of a model in its own sense, and what the costs y are called."""

    S: sp.csr_array
    d: np.ndarray
    names: tuple[str, ...] | None


def by_name(costs: Any, names: Sequence[str], coefficients: np.ndarray) -> Coefficients:
    """What `costs` selects among variables of these `names`, which hold these `coefficients` `(n,)`."""
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        raise ProgramError("costs are selected by name, but some variables share a name: give each its own")
    if isinstance(costs, Mapping):
        return _by_factor(costs, place, coefficients)
    if isinstance(costs, str) and costs == "all":
        return by_index(range(len(names)), coefficients, names)
    parts = [costs] if isinstance(costs, str | re.Pattern) else costs
    if not isinstance(parts, Iterable):
        raise ProgramError(f"costs is 'all', a name, a beginning and '*', a pattern, or a list of these; got {costs!r}")
    return by_index([i for part in parts for i in _matches(part, place)], coefficients, names)


def by_index(
    chosen: Iterable[int],
    coefficients: np.ndarray,
    names: Sequence[str] | None,
    cost_names: Sequence[str] | None = None,
) -> Coefficients:
    """Cost k is the coefficient of variable `chosen[k]`, and is called like it unless `cost_names` says otherwise."""
    n = len(coefficients)
    index = np.fromiter(chosen, np.int64)
    if not index.size:
        raise ProgramError("costs selects no variable, so there is nothing to predict")
    if index.min() < 0 or index.max() >= n:
        raise ProgramError(f"costs selects a variable outside 0 … {n - 1}: {index.min()} … {index.max()}")
    found, times = np.unique(index, return_counts=True)
    if times.max() > 1:
        twice = found[times.argmax()]
        raise ProgramError(f"costs selects variable {names[twice]!r} twice" if names else f"costs holds {twice} twice")
    S = sp.csr_array((np.ones(index.size), (index, np.arange(index.size))), shape=(n, index.size))
    d = np.array(coefficients, np.float64)
    d[index] = 0.0
    if cost_names is None and names is not None:
        cost_names = [names[i] for i in index]
    return Coefficients(S, d, None if cost_names is None else tuple(cost_names))


def _matches(part: Any, place: Mapping[str, int]) -> list[int]:
    """The variables that one entry of `costs` stands for."""
    if isinstance(part, re.Pattern):
        found = [i for name, i in place.items() if part.fullmatch(name)]
    elif not isinstance(part, str):
        raise ProgramError(f"costs holds {part!r}, a {type(part).__name__}: names and patterns only")
    elif part in place:
        return [place[part]]
    elif part.endswith("*"):
        found = [i for name, i in place.items() if name.startswith(part[:-1])]
    else:
        raise _unknown(part, place)
    if not found:
        raise ProgramError(f"costs: no variable matches {part!r}; the names begin with {_some(place)}")
    return found


def _by_factor(
    costs: Mapping[str, Mapping[str, float]], place: Mapping[str, int], coefficients: np.ndarray
) -> Coefficients:
    S = sp.lil_array((len(coefficients), len(costs)))
    d = np.array(coefficients, np.float64)
    if not costs:
        raise ProgramError("costs is empty, so there is nothing to predict")
    for k, (cost, factors) in enumerate(costs.items()):
        if not isinstance(factors, Mapping) or not factors:
            raise ProgramError(f"costs[{cost!r}] maps variables to known factors, as in {{'x': 2.0}}; got {factors!r}")
        for variable, factor in factors.items():
            if variable not in place:
                raise _unknown(variable, place)
            S[place[variable], k] = factor
            d[place[variable]] = 0.0
    return Coefficients(sp.csr_array(S), d, tuple(map(str, costs)))


def _unknown(name: str, place: Mapping[str, int]) -> ProgramError:
    close = get_close_matches(str(name), place, n=3)
    hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"the names begin with {_some(place)}"
    return ProgramError(f"costs: the model has no variable {name!r}; {hint}")


def _some(names: Iterable[str], count: int = 5) -> str:
    names = list(names)
    return ", ".join(map(repr, names[:count])) + (", …" if len(names) > count else "")
