"""Problems by the names that the paper and the tables use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dflearn.errors import DataError, ProgramError
from dflearn.problems.facility_location import PUBLISHED_FACILITIES, FacilityLocation
from dflearn.problems.knapsack import Knapsack
from dflearn.problems.polynomial import PolynomialProblem
from dflearn.problems.selection import Selection
from dflearn.problems.shortest_path import ShortestPath

#: The names of the paper's problems, in the order of its tables.
PROBLEMS = (
    "SP-5", "SP-10", "SP-15", "SP-25",
    "KP-100", "KP-200", "KP-400", "KP-500",
    "CFL-50", "CFL-100", "CFL-200", "CFL-250",
)  # fmt: skip

FORMS = "SP-{side}, SP-{rows}x{columns}, KP-{items}, KP-{items}x{dimensions}, CFL-{customers}x{facilities}, TopK-{items}x{k}"

_KINDS: dict[str, type[PolynomialProblem]] = {
    "SP": ShortestPath,
    "KP": Knapsack,
    "CFL": FacilityLocation,
    "TopK": Selection,
}


def problem_named(name: str, **options: Any) -> PolynomialProblem:
    """The problem of that name: one of `PROBLEMS`, or any size in one of the forms of `FORMS`.

    `options` are fields of the problem: seed, features, degree, noise, and for knapsacks capacity_share.
    """
    match = re.fullmatch(r"([A-Za-z]+)-([0-9]+)(?:x([0-9]+))?", name)
    kind = _KINDS.get(match[1]) if match else None
    sizes = _sizes(match[1], int(match[2]), int(match[3]) if match[3] else None) if match and kind else None
    if match is None or kind is None or sizes is None:
        raise ProgramError(f"no problem is named {name!r}; the paper's are {', '.join(PROBLEMS)}; others are {FORMS}")
    known = [f.name for f in fields(kind) if f.name not in sizes]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ProgramError(f"{name} has no option {', '.join(unknown)}; its options are {', '.join(known)}")
    return kind(**sizes, **options)


def problem_of_origin(origin: Mapping[str, Any]) -> PolynomialProblem:
    """The problem that a data set was generated from, by its `DecisionDataset.origin`."""
    if "problem" not in origin:
        raise DataError("these data do not say which problem they were generated from: name it, with its seed")
    name, given = str(origin["problem"]), {key: value for key, value in origin.items() if key != "problem"}
    sizes = {f.name for f in fields(problem_named(name))} - _OPTIONS
    problem = problem_named(name, **{key: value for key, value in given.items() if key not in sizes})
    if problem.origin != dict(origin):
        raise DataError(f"these data say they come from {dict(origin)}, which is no problem of this version")
    return problem


_OPTIONS = {"seed", "features", "degree", "noise", "capacity_share"}


def _sizes(kind: str, first: int, second: int | None) -> dict[str, int] | None:
    """The fields that a name fixes; `None` where the name leaves one open."""
    if kind == "SP":
        return {"rows": first, "columns": first if second is None else second}
    if kind == "KP":
        return {"items": first, "dimensions": 2 if second is None else second}
    if kind == "CFL":
        facilities = PUBLISHED_FACILITIES.get(first) if second is None else second
        return None if facilities is None else {"customers": first, "facilities": facilities}
    return None if second is None else {"items": first, "k": second}
