"""The registry of methods: a name, and what prepares a loss and its training data from a run's context.

The methods of the library are in `studies.builtin`, those of the paper's authors in `studies.paper.methods`. Packages add theirs by an
entry point of the group `dflearn.methods` that names a module; it is imported on the first look-up, and calls `register`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

import torch

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.errors import OptionError
from dflearn.losses.base import Loss
from dflearn.problems.base import Problem
from dflearn.solvers.base import Solver

GROUP = "dflearn.methods"  # of entry points

Plain = float | int | str | bool


@dataclass(frozen=True)
class RunContext:
    """What a method starts from: the problem, training data with exact labels, and how integer programs are solved.

    unit: of the costs; parameters that are costs, or costs per decision, are multiplied by it.
    """

    problem: Problem
    train: DecisionDataset
    seed: int
    parameters: Mapping[str, Any]
    exact_solver: Callable[[], Solver]
    unit: float = 1.0

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def relaxed_solver(self) -> Solver:
        """The LP relaxation by the best solver there is for it (a path oracle, a two-row simplex, HiGHS)."""
        return self.problem.relaxed_solver()

    def cost(self, name: str) -> float:
        """A parameter that is a cost."""
        return float(self.parameters[name]) * self.unit

    @property
    def mu(self) -> float:
        """The parameter `mu`; "auto" is that of the data."""
        mu = self.parameters["mu"]
        return self.scale.mu if mu == "auto" else mu

    @property
    def scale(self) -> Scale:
        return Scale.of(self.problem.program.objective, self.train)


@dataclass(frozen=True)
class Prepared:
    """What `fit` needs: the loss, the training data with the labels that the method trains on, warm starts or not.

    Attributes:
        loss: one, or several that are trained with in turn.
        scale: what the model's output is multiplied by.
        judged_by: what tells the best epoch, where the settings keep that one; "start": what the model begins with is kept.
        solver_name: what solves inside the loss, where its layer does not tell.
    """

    loss: Loss | Sequence[Loss]
    train: DecisionDataset
    warm_start: bool = True
    scale: float = 1.0
    judged_by: Literal["regret", "loss", "start"] = "regret"
    solver_name: str = ""

    @property
    def last(self) -> Loss:
        """The loss that training ends with."""
        return self.loss if isinstance(self.loss, Loss) else self.loss[-1]

    @property
    def solver(self) -> str:
        """What solves inside the loss, in words."""
        layer = self.last.layer
        if self.solver_name or layer is None:
            return self.solver_name or "none"
        name = type(layer).__name__
        return name if layer.solver is None else f"{name} of {layer.solver.identity}"


@dataclass(frozen=True)
class Method:
    """One row of a table.

    Attributes:
        prepare: makes the loss and the training data of one run.
        parameters: name of a problem → what the method has fixed there; part of a run's identity.
    """

    name: str
    about: str
    prepare: Callable[[RunContext], Prepared]
    parameters: Callable[[str], dict[str, Plain]] = lambda problem: {}


_METHODS: dict[str, Method] = {}


def add(
    name: str,
    about: str,
    make: Callable[[RunContext], Loss | Prepared],
    parameters: Callable[[str], dict[str, Plain]] | None = None,
    *,
    scaled: bool = False,
    **values: Plain,
) -> None:
    """Register a method by what makes its loss.

    Args:
        make: a loss that trains on the labels that are there, or all of a `Prepared`.
        parameters: as of `Method`, in place of `values`, which are the same for every problem.
        scaled: also register "… scaled", as if all costs had been divided by mean |y|, and the decisions' objective with them.
    """
    parameters = parameters or (lambda problem: dict(values))

    def prepare(context: RunContext) -> Prepared:
        made = make(context)
        return made if isinstance(made, Prepared) else Prepared(made, context.train)

    def prepare_scaled(context: RunContext) -> Prepared:
        unit = context.scale.costs
        return replace(prepare(replace(context, unit=unit)), scale=unit)

    register(Method(name, about, prepare, parameters))
    if scaled:
        about = "the same; the model works in units of mean |y|"
        register(Method(f"{name} scaled", about, prepare_scaled, parameters))


def register(method: Method) -> Method:
    """Let studies know a method. A module may register its own name again, as a notebook does; others may not."""
    if not _home(method).startswith("dflearn."):
        load_plugins()  # so that it is the newcomer who is told
    taken = _METHODS.get(method.name)
    if taken is not None and _home(taken) != _home(method):
        raise OptionError(
            f"a method is named {method.name!r} already, in {_home(taken)}: choose another name in {_home(method)}"
        )
    _METHODS[method.name] = method
    return method


def _home(method: Method) -> str:
    """The module that a method comes from; a worker process calls the driver's script by another name."""
    module = method.prepare.__module__
    return "__main__" if module == "__mp_main__" else module


def method_named(name: str) -> Method:
    load_plugins()
    if name not in _METHODS:
        near = difflib.get_close_matches(name, _METHODS, 3, 0.5)
        hint = f"; perhaps {' or '.join(repr(other) for other in near)}" if near else ""
        raise OptionError(
            f"no method is named {name!r}{hint}; `dfl paper list` names those that come with dflearn, and one of your "
            'own is known where your module is imported: import = ["your_module"] in the study'
        )
    return _METHODS[name]


def method_names() -> list[str]:
    load_plugins()
    return list(_METHODS)


@cache
def load_plugins() -> None:
    """Import the methods of the library and of the paper, and those of every installed package with an entry point for them."""
    for module in ("builtin", "paper.methods"):
        import_module(f"dflearn.studies.{module}")
    for plugin in entry_points(group=GROUP):
        if plugin.value.startswith("dflearn."):  # of an installation that is older than the code
            continue
        try:
            plugin.load()
        except ImportError as error:
            raise OptionError(
                f"the package that adds methods as {plugin.name!r} ({plugin.value}) cannot be imported: {error}"
            ) from error


def resolve_parameters(method: str, problem: str, given: Mapping[str, Plain] | None = None) -> dict[str, Plain]:
    """What the method has fixed for that problem, with `given` values in their place."""
    own = method_named(method).parameters(problem)
    require_parameters(method, problem, own, given or {})
    return {**own, **(given or {})}


def require_parameters(method: str, problem: str, own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Every name that is given is one of the method's."""
    unknown = sorted(set(given) - set(own))
    if unknown:
        known = ", ".join(own) or "none"
        raise OptionError(f"{method} has no parameter {', '.join(unknown)} on {problem}; its parameters are: {known}")
