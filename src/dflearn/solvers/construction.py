"""How solvers, layers and losses are made from what is at hand: a program, a problem, a solver or a layer.

    HiGHS(problem) = HiGHS(problem.program),   Exact(program) = Exact(best_solver(program)),   SPOPlus(solver) = SPOPlus(Exact(solver))

What has no one sensible meaning is an error that says what to write, and so is an argument by its name in PyEPO.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from dflearn.errors import OptionError
from dflearn.program import Program

PYEPO = {"lambd": "step", "n_samples": "samples", "optmodel": "program, solver or layer"}  # names there → here

Conversion = Callable[[type, Any], Any]

if TYPE_CHECKING:
    from dflearn.solvers.base import Solver

    Constructed = ABCMeta
else:

    class Constructed(ABCMeta):
        """The class of `Solver`, `Layer` and `Loss`. By the name of the first parameter, `conversions` tells how it is converted."""

        conversions: Mapping[str, Conversion] = {}

        def __call__(cls, *args: Any, **options: Any) -> Any:
            names = _parameters(cls)
            for name in options.keys() - names.keys():
                if name in PYEPO:
                    raise OptionError(
                        f"{cls.__name__} has no argument {name!r}, which in PyEPO is what is called {PYEPO[name]} here; it takes "
                        f"{', '.join(names)}"
                    )
            first = next(iter(names), "")
            if (convert := cls.conversions.get(first)) is not None:
                if args:
                    args = (convert(cls, args[0]), *args[1:])
                elif first in options:
                    options[first] = convert(cls, options[first])
            return super().__call__(*args, **options)


@cache
def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Of the constructor, by name."""
    return dict(list(inspect.signature(cls.__init__).parameters.items())[1:])  # type: ignore[misc]


def program_of(cls: type, what: Any) -> Program:
    """For a parameter `program`."""
    if isinstance(what, Program):
        return what
    if isinstance(found := getattr(what, "program", None), Program):  # of a problem, a task, a solver or a layer
        return found
    raise refused(cls, "a Program", what, "program")


def solver_of(cls: type, what: Any) -> Solver:
    """For a parameter `solver`."""
    from dflearn.solvers.base import Solver
    from dflearn.solvers.task import Decides, DecisionTask, best_solver

    if isinstance(what, Solver):
        return what
    if isinstance(what, Program):
        return best_solver(what)
    if isinstance(what, Decides | DecisionTask):
        return DecisionTask.of(what).solver
    if isinstance(found := getattr(what, "solver", None), Solver):  # of a layer
        return found
    raise refused(cls, "a Solver", what, "HiGHS(program)")


def refused(cls: type, wanted: str, got: Any, example: str) -> OptionError:
    what = f"the class {got.__name__}" if isinstance(got, type) else f"a {type(got).__name__}"
    return OptionError(f"{cls.__name__} takes {wanted}, and got {what}: write {cls.__name__}({example}, …)")


FROM_PROGRAMS: dict[str, Conversion] = {"program": program_of, "solver": solver_of}
