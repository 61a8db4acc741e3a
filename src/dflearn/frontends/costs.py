"""Which objective coefficients are predicted, in the words that every front end shares.

    "all"                           every variable's coefficient is a predicted cost
    "x[1]", "flow*"                 the variable of that name; the variables whose names begin so
    re.compile(r"x\\[\\d+\\]")         the variables whose whole name matches
    ["x[1]", "flow*", …]            several of these, in that order
    {"price": {"a": 2.0, "b": 3}}   a cost by name, and the variables whose coefficients it enters, times a known factor
    {"price_{t}": {"gen_*_{t}": 1}} a cost for each t: * stands for anything, {t} for the same text without a separator

Names of variables are matched kindly: where none is the same, `x[1]`, `x(1)` and `X_1` are, as long as one alone is meant.
The coefficient that a model holds for a predicted variable is replaced; the others stay, as the known part d.

Where no variable has the name, a row may: then its right-hand side is what is predicted, times the factor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.program.names import closest, matched

Costs = str | re.Pattern[str] | Sequence[str | re.Pattern[str]] | Mapping[str, Mapping[str, float]]

HOLE = re.compile(r"\{(\w+)\}")  # of a name, to be filled
INDEX = r"[^\s_,;()\[\]{}'\"]"  # a letter of what fills it


class Coefficients(NamedTuple):
    """The objective coefficients c = S y + d of a model in its own sense, and what the costs y are called.

    rows: T `(rows, p)`, where T y are right-hand sides of the model's rows; `None` where none is predicted.
    replaced: by variable, the coefficients of the model that predictions replace, zeros apart.
    """

    S: sp.csr_array
    d: np.ndarray
    names: tuple[str, ...] | None
    rows: sp.csr_array | None = None
    replaced: Mapping[int, float] | None = None


def by_name(costs: Any, names: Sequence[str], coefficients: np.ndarray, rows: Sequence[str] = ()) -> Coefficients:
    """The costs that `costs` selects by the `names` of the variables, whose coefficients are `coefficients` `(n,)`, or by those of
    the `rows`."""
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        raise ProgramError("costs are selected by name, but some variables share a name: give each its own")
    if isinstance(costs, str) and costs == "all":
        return by_index(range(len(names)), coefficients, names)
    n, times = len(names), Counter(rows)
    of_rows = {name: n + i for i, name in enumerate(rows) if name and times[name] == 1 and name not in place}
    every = np.append(coefficients, np.zeros(len(rows)))
    if isinstance(costs, Mapping):
        return _apart(_by_factor(costs, place, of_rows, every), n)
    parts = [costs] if isinstance(costs, str | re.Pattern) else costs
    if not isinstance(parts, Iterable):
        raise OptionError(f"costs is 'all', a name, a beginning and '*', a pattern, or a list of these; got {costs!r}")
    chosen = [i for part in parts for i in _matches(part, place, of_rows)]
    return _apart(by_index(chosen, every, [*names, *rows]), n)


def _apart(whole: Coefficients, n: int) -> Coefficients:
    """What belongs to the n variables, and what to the rows that were counted after them."""
    T = sp.csr_array(whole.S[n:])
    return whole._replace(S=sp.csr_array(whole.S[:n]), d=whole.d[:n], rows=T if T.nnz else None)


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
    own = None if names is None else tuple(names[i] for i in index)
    return Coefficients(S, d, own, replaced=_replaced(index, coefficients))


def _replaced(variables: Iterable[int], coefficients: np.ndarray) -> dict[int, float]:
    return {int(i): float(coefficients[i]) for i in variables if coefficients[i]}


def listed(costs: Any, entries: Callable[[Any], list[Any] | None]) -> list[Any] | None:
    """All entries of `costs`, which may be a list of lists; `entries` reads one part, and gives `None` where it cannot."""
    read = entries(costs)
    if read is not None or not isinstance(costs, list | tuple):
        return read
    parts = [listed(part, entries) for part in costs]
    return None if None in parts else [entry for part in parts for entry in part or ()]


def unique(names: Sequence[str]) -> Sequence[str] | None:
    """The names, where each stands for one thing."""
    return names if len(set(names)) == len(names) else None


def by_variables(
    costs: Any,
    entries: Callable[[Any], list[Any] | None],
    column: Callable[[Any], int],
    names: Sequence[str],
    coefficients: np.ndarray,
) -> Coefficients:
    """The costs of the variables that `costs` holds, read by `entries`, each in its `column`; by name where it holds names."""
    chosen = listed(costs, entries)
    if chosen is None and not (isinstance(costs, str) and costs == "all"):
        return by_name(costs, names, coefficients)
    columns = range(len(names)) if chosen is None else map(column, chosen)
    return by_index(columns, coefficients, unique(names))


def _matches(part: Any, place: Mapping[str, int], rows: Mapping[str, int]) -> list[int]:
    """The variables, or else the rows, that one entry of `costs` stands for."""
    for held in (place, rows):
        if isinstance(part, re.Pattern):
            chosen = [i for name, i in held.items() if part.fullmatch(name)]
        elif not isinstance(part, str):
            raise OptionError(f"costs holds {part!r}, a {type(part).__name__}: names and patterns only")
        elif part.endswith("*") and part not in place:
            chosen = [i for name, i in held.items() if name.startswith(part[:-1])]
        else:
            name = _variable(part, place, rows)
            return [place[name] if name in place else rows[name]]
        if chosen:
            return chosen
    raise OptionError(f"costs: no variable matches {part!r}{closest('', place)}")


def _by_factor(
    costs: Mapping[str, Mapping[str, float]],
    place: Mapping[str, int],
    rows: Mapping[str, int],
    coefficients: np.ndarray,
) -> Coefficients:
    spelled = spelled_out(costs, place, rows)
    S = sp.lil_array((len(coefficients), len(spelled)))
    d, every = np.array(coefficients, np.float64), {**rows, **place}
    for k, factors in enumerate(spelled.values()):
        for variable, factor in factors.items():
            S[every[variable], k] = factor
    entered = sorted({every[variable] for factors in spelled.values() for variable in factors})
    d[entered] = 0.0
    return Coefficients(sp.csr_array(S), d, tuple(spelled), replaced=_replaced(entered, coefficients))


def spelled_out(
    costs: Mapping[str, Mapping[str, float]], variables: Collection[str], rows: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """Each cost with the variables, or rows, that it enters, as the model names them: patterns and kindly matched names
    resolved."""
    if not costs:
        raise OptionError("costs is empty, so there is nothing to predict")
    found: dict[str, dict[str, float]] = {}
    for cost, factors in costs.items():
        if not isinstance(factors, Mapping) or not factors:
            raise OptionError(f"costs[{cost!r}] maps variables to known factors, as in {{'x': 2.0}}; got {factors!r}")
        for pattern, factor in factors.items():
            for name, variable in _entered(str(cost), pattern, variables, rows):
                if variable in found.setdefault(name, {}):
                    raise OptionError(f"costs: {variable!r} holds {name!r} twice: name it once, with one factor")
                found[name][variable] = factor
    return found


def may_be(cost: str, name: str) -> bool:
    """Whether a cost of a mapping, with holes perhaps, stands for one of this name."""
    parts = [f"{INDEX}+" if HOLE.fullmatch(part) else re.escape(part) for part in re.split(r"(\{\w+\})", cost)]
    return re.fullmatch("".join(parts), name) is not None


def _entered(cost: str, pattern: Any, variables: Collection[str], rows: Collection[str] = ()) -> list[tuple[str, str]]:
    """The pairs of cost and variable, or row, that one entry stands for."""
    holes = HOLE.findall(cost)
    if not isinstance(pattern, str) or pattern in variables or not (holes or HOLE.search(pattern) or "*" in pattern):
        return [(cost, _variable(pattern, variables, rows))]
    named: set[str] = set()
    parts = []
    for part in re.split(r"(\{\w+\}|\*)", pattern):
        if part == "*":
            parts.append(".*")
        elif HOLE.fullmatch(part):
            name = part[1:-1]
            parts.append(f"(?P={name})" if name in named else f"(?P<{name}>{INDEX}+)")
            named.add(name)
        else:
            parts.append(re.escape(part))
    lacking = [hole for hole in holes if hole not in named]
    if lacking:
        raise OptionError(f"costs: {cost!r} holds {{{lacking[0]}}}, and {pattern!r} does not say what it stands for")
    for held in (variables, rows):
        fits = [(name, match.groupdict()) for name in held if (match := re.fullmatch("".join(parts), name))]
        if fits:
            break
    else:
        raise OptionError(f"costs: no variable matches {pattern!r}{closest(pattern, variables)}")
    return [(HOLE.sub(lambda hole, found=found: found[hole[1]], cost), variable) for variable, found in fits]  # type: ignore[misc]


def _variable(name: Any, variables: Collection[str], rows: Collection[str] = ()) -> str:
    """The variable of this name, or else the row; an error that names those that are meant perhaps."""
    try:
        known = matched(name, variables, "the variable") if isinstance(name, str) else None
        if known is None and isinstance(name, str):
            known = matched(name, rows, "the row")
    except DataError as error:
        raise OptionError(f"costs: {error}") from error
    if known is None:
        raise OptionError(f"costs: the model has no variable {name!r}{closest(str(name), variables)}")
    return known
