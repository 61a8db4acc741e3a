"""Problems by name: those of the package, and those that a user registers."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dflearn.errors import DataError, OptionError
from dflearn.problems.assignment import PUBLISHED_FACILITIES, FacilityLocation, Matching
from dflearn.problems.base import Problem
from dflearn.problems.energy import EnergyKnapsack
from dflearn.problems.knapsack import Knapsack, Portfolio, Selection
from dflearn.problems.paths import ShortestPath, Terrain
from dflearn.problems.scheduling import Scheduling
from dflearn.program.names import closest

PROBLEMS = (
    "SP-5", "SP-10", "SP-15", "SP-25",
    "KP-100", "KP-200", "KP-400", "KP-500",
    "CFL-50", "CFL-100", "CFL-200", "CFL-250",
)  # fmt: skip
"""The names of the paper's problems, in the order of its tables.

Examples:
    >>> dfl.problems.PROBLEMS[:4]
    ('SP-5', 'SP-10', 'SP-15', 'SP-25')
"""

Sizes = dict[str, Any]  # arguments of a problem that its name fixes


@dataclass(frozen=True)
class ProblemForm:
    """How the problems of one kind are named, and what makes them.

    Attributes:
        form: such as "SP-{rows}x{columns}"; what stands in braces is a whole number.
        sizes: the numbers in the name → the sizes that `make` takes; `None` for numbers that no problem has.
    """

    form: str
    make: Callable[..., Problem]
    about: str = ""
    sizes: Callable[..., Sizes | None] = dict
    example: str = ""

    def sizes_of(self, name: str) -> Sizes | None:
        """The sizes that a name gives; `None` where the name is of another form."""
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[0-9]+)", re.escape(self.form))
        found = re.fullmatch(pattern, name)
        return None if found is None else self.sizes(**{key: int(value) for key, value in found.groupdict().items()})

    def options(self, sizes: Sizes) -> list[str]:
        return [option for option in inspect.signature(self.make).parameters if option not in sizes]


MOST = 250_000  # the product of the sizes of a problem that a file names, and any other number of it
_FORMS: dict[str, ProblemForm] = {}


def register_problem(
    form: str,
    make: Callable[..., Problem],
    about: str = "",
    *,
    sizes: Callable[..., Sizes | None] = dict,
    example: str = "",
) -> None:
    """Let `problem_named`, studies and the command line know a kind of problem.

        register_problem("Billboards-{m}x{k}", Billboards)      # "Billboards-8x3" is Billboards(m=8, k=3)

    Args:
        form: a name with whole numbers in braces.
        make: a class or function that takes these numbers, a seed and options by name, and gives a `Problem`.
        about: one line for lists.
        sizes: numbers of the name by name → arguments of `make`, where the two differ.
        example: the name of a small problem of this form, for lists.

    Examples:
        >>> grid = lambda side, seed=0: dfl.problems.ShortestPath(side, side, seed=seed)
        >>> dfl.problems.register_problem("Grid-{side}", grid)
        >>> dfl.problems.problem_named("Grid-4").program.n
        24
    """
    taken = _FORMS.get(form)
    if taken is not None and (taken.make.__module__, taken.make.__qualname__) != (make.__module__, make.__qualname__):
        raise OptionError(f"the form {form!r} is taken by {taken.make.__qualname__}: choose another name")
    _FORMS[form] = ProblemForm(form, make, about, sizes, example)


def problem_forms() -> list[ProblemForm]:
    """Every form that a problem's name may have, in the order of their registration.

    Examples:
        >>> [form.form for form in dfl.problems.problem_forms()][:2]
        ['SP-{side}', 'SP-{rows}x{columns}']
    """
    return list(_FORMS.values())


def problem_named(name: str, **options: Any) -> Problem:
    """The problem of that name: one of `PROBLEMS`, any size in a registered form; `options` as of its class (seed, degree, …).

    Examples:
        >>> dfl.problems.problem_named("SP-5", seed=1).program.n
        40
    """
    form, sizes = _form_of(name)
    known = form.options(sizes)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise OptionError(f"{name} has no option {', '.join(unknown)}; its options are {', '.join(known) or 'none'}")
    return form.make(**sizes, **options)


def options_of(name: str) -> list[str]:
    """The options that `problem_named` takes for this name."""
    form, sizes = _form_of(name)
    return form.options(sizes)


def problem_of_origin(origin: Mapping[str, Any], asked: Mapping[str, Any] | None = None) -> Problem:
    """The problem that a data set was generated from, by its `DecisionDataset.origin`; `asked` must not contradict it.

    Examples:
        >>> dfl.problems.problem_of_origin(data.origin) == problem
        True
    """
    if "problem" not in origin:
        raise DataError("these data do not say which problem they were generated from: name it, with its seed")
    name, given = str(origin["problem"]), {key: value for key, value in origin.items() if key != "problem"}
    _, sizes = _form_of(name)
    if math.prod(size for size in sizes.values() if isinstance(size, int) and size > 0) > MOST or any(
        isinstance(value, int) and value > MOST for key, value in given.items() if key != "seed"
    ):
        raise DataError(f"these data ask for {dict(origin)}, larger than is made for a file: make it in Python")
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    problem = problem_named(name, **{key: value for key, value in options.items() if key not in sizes})
    if problem.origin != dict(origin):
        raise DataError(f"these data say they come from {dict(origin)}, which is no problem of this version")
    wrong = [f"{key} {value}" for key, value in (asked or {}).items() if value != origin.get(key)]
    if wrong:
        raise OptionError(f"the data come from {name} with seed {problem.seed}: leave out {', '.join(wrong)}")
    return problem


def _form_of(name: str) -> tuple[ProblemForm, Sizes]:
    for form in _FORMS.values():
        if (sizes := form.sizes_of(name)) is not None:
            return form, sizes
    raise OptionError(
        f"no problem is named {name!r}; names have the forms {', '.join(_FORMS)}, each word in braces a number; one of your own "
        f'is known after register_problem, in a study by import = ["your_module"]{closest(name, PROBLEMS)}'
    )


# -- the problems of the package --------------------------------------------------------------------------------------


def _published(customers: int) -> Sizes | None:
    facilities = PUBLISHED_FACILITIES.get(customers)
    return None if facilities is None else {"customers": customers, "facilities": facilities}


def _schedule(tasks: int, machines: int, seed: int = 0, path: str | None = None, digest: str = "") -> Problem:
    return replace(Scheduling.synthetic(tasks, machines, seed), path=path, digest=digest)


register_problem(
    "SP-{side}", ShortestPath, "the shortest path through a square grid", example="SP-5",
    sizes=lambda side: {"rows": side, "columns": side},
)  # fmt: skip
register_problem("SP-{rows}x{columns}", ShortestPath, "the shortest path through a grid", example="SP-3x5")
register_problem(
    "KP-{items}", Knapsack, "the knapsack with two dimensions", example="KP-100",
    sizes=lambda items: {"items": items, "dimensions": 2},
)  # fmt: skip
register_problem("KP-{items}x{dimensions}", Knapsack, "the knapsack with several dimensions", example="KP-20x3")
register_problem("CFL-{customers}", FacilityLocation, "as in the paper", sizes=_published, example="CFL-50")
register_problem("CFL-{customers}x{facilities}", FacilityLocation, "capacitated facility location", example="CFL-20x5")
register_problem("TopK-{items}x{k}", Selection, "the k most valuable of some items", example="TopK-10x2")
register_problem(
    "energy-{capacity}", EnergyKnapsack, "half-hours of a day by their value, on real or synthetic days", example="energy-60",
    sizes=lambda capacity: {"capacity": capacity, "predict": "value"},
)  # fmt: skip
register_problem(
    "energy-{capacity}-price", EnergyKnapsack, "the same, where the price is predicted", example="energy-60-price",
    sizes=lambda capacity: {"capacity": capacity, "predict": "price"},
)  # fmt: skip
_about = "tasks on machines when electricity is cheap, on the same days"
register_problem("scheduling-{tasks}x{machines}", _schedule, _about, example="scheduling-10x3")
register_problem("matching-{size}", Matching, "agents and tasks, one to one, at least cost", example="matching-5")
register_problem("portfolio-{assets}", Portfolio, "returns less the price of risk, quadratic", example="portfolio-20")
register_problem("terrain-{side}", Terrain, "the cheapest way across a map, seen as an image", example="terrain-6")
