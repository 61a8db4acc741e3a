"""The registry of methods: a name, and a function that prepares a loss and its training data from a run's context.

The library's methods are in `studies.builtin`, those of the paper's authors in `studies.paper.methods`. A package adds its own by
an entry point of the group `dflearn.methods` that names a module; the first look-up imports it, and it calls `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from dflearn.program.names import closest
from dflearn.solvers.base import Solver

GROUP = "dflearn.methods"  # of entry points

Plain = float | int | str | bool
Judge = Literal["regret", "loss", "start"]


@dataclass(frozen=True)
class RunContext:
    """The inputs of a method: the problem, training data with exact labels (`train`), and the solver of integer programs.

    unit: of the costs. Parameters that are costs, or costs per decision, are multiplied by it.

    Examples:
        >>> from dflearn.studies import RunContext
        >>> run = RunContext(problem, data, seed=0, parameters={"mu": 0.1}, exact_solver=problem.solver, unit=2.0)
        >>> run.cost("mu"), run.parameters["mu"]
        (0.2, 0.1)
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
        """Solves the LP relaxation, by the best solver for it (a path oracle, a two-row simplex, HiGHS)."""
        return self.problem.relaxed_solver()

    def cost(self, name: str) -> float:
        return float(self.parameters[name]) * self.unit

    @property
    def mu(self) -> float:
        """The parameter `mu`; "auto" depends on the data."""
        mu = self.parameters["mu"]
        return self.scale.mu if mu == "auto" else mu

    @property
    def scale(self) -> Scale:
        return Scale.of(self.problem.program.objective, self.train)


@dataclass(frozen=True)
class Prepared:
    """The inputs of `fit`: the loss, the training data with the method's labels, warm starts or not.

    Attributes:
        loss: one, or several for one training after the other.
        train, warm_start: as of `fit`.
        scale: the factor of the model's output.
        judged_by: the criterion of the best epoch, if the settings keep that one; "start" keeps the weights before training.
        solver_name: the solver inside the loss, if its layer does not name one.

    Examples:
        >>> from dflearn.studies import Prepared
        >>> Prepared(dfl.losses.SPOPlus(dfl.Exact(problem.solver())), data).solver
        'Exact of DagShortestPath'
    """

    loss: Loss | Sequence[Loss]
    train: DecisionDataset
    warm_start: bool = True
    scale: float = 1.0
    judged_by: Judge = "regret"
    solver_name: str = ""

    @property
    def last(self) -> Loss:
        return self.loss if isinstance(self.loss, Loss) else self.loss[-1]

    @property
    def solver(self) -> str:
        """The solver inside the loss, in words."""
        layer = self.last.layer
        if self.solver_name or layer is None:
            return self.solver_name or "none"
        name = type(layer).__name__
        return name if layer.solver is None else f"{name} of {layer.solver.identity}"


@dataclass(frozen=True)
class Method:
    """One row of a table.

    Attributes:
        name, about: its name in TOML files and tables, and a sentence about it.
        prepare: makes the loss and the training data of one run.
        parameters: name of a problem → the method's parameters there; part of a run's identity.

    Examples:
        >>> from dflearn.studies import Method, Prepared
        >>> prepare = lambda run: Prepared(dfl.losses.SPOPlus(dfl.Exact(run.exact_solver())), run.train)
        >>> Method("my-spo", "SPO+", prepare).parameters("SP-5")
        {}
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
    """Register a method.

    Args:
        make: makes a loss that trains on the exact labels, or a `Prepared`.
        parameters: as of `Method`, in place of `values`, which are the same for every problem.
        scaled: also register "… scaled", as if all costs, and so all objectives, had been divided by mean |y|.
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
        register(Method(f"{name} scaled", f"{name} with a model in units of mean |y|", prepare_scaled, parameters))


def register(method: Method) -> Method:
    """Add a method for studies. Only the module that registered a name may register it again, as a notebook does.

    Examples:
        >>> from dflearn.studies import Method, Prepared, register
        >>> register(Method("my-mse", "squared error", lambda run: Prepared(dfl.losses.MSE(), run.train))).name
        'my-mse'
    """
    home = _home(method)
    if not home.startswith("dflearn."):
        load_plugins()  # so that the user's module gets the error
    taken = _home(_METHODS.get(method.name, method))
    if taken != home:
        raise OptionError(f"a method is named {method.name!r} already, in {taken}: choose another name in {home}")
    _METHODS[method.name] = method
    return method


def _home(method: Method) -> str:
    """The module that a method comes from; a worker process calls the driver's script by another name."""
    module = method.prepare.__module__
    return "__main__" if module == "__mp_main__" else module


def method_named(name: str) -> Method:
    load_plugins()
    if name not in _METHODS:
        raise OptionError(
            f"no method is named {name!r}: `dfl paper list` names the methods of dflearn; for one of your own, add "
            f'import = ["your_module"] to the study{closest(name, _METHODS)}'
        )
    return _METHODS[name]


def method_names() -> list[str]:
    load_plugins()
    return list(_METHODS)


@cache
def load_plugins() -> None:
    """Import the methods of the library, of the paper, and of installed packages with an entry point."""
    for module in ("builtin", "paper.methods"):
        import_module(f"dflearn.studies.{module}")
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except ImportError as error:
            raise OptionError(f"the methods of the plugin {plugin.name!r} ({plugin.value}) fail: {error}") from error


def resolve_parameters(
    method: str, problem: str, given: Mapping[str, Plain], tuning: Iterable[str]
) -> dict[str, Plain]:
    """The method's parameters for that problem, with the `given` values. tuning: names that must be parameters, too."""
    own = method_named(method).parameters(problem)
    if unknown := sorted({*given, *tuning} - set(own)):
        known = ", ".join(own) or "none"
        raise OptionError(f"{method} has no parameter {', '.join(unknown)} on {problem}; its parameters are: {known}")
    return {**own, **given}
