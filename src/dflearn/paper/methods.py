"""Every method by the name that the paper's tables give it, and our own: a loss, what solves inside it, which labels.

A name reads LOSS^SOLVER, with a word after it where there are several versions:

    SCE^DYS             the authors' code: what the published figures come from
    SCE^DYS printed     the same with the hyperparameters of the text, which differ in a few places
    SCE^DYS clean       the text's algorithm on our layer: bounds kept as bounds, from zero, Jacobian-free gradient
    SCE^DYS unrolled    that layer, differentiated through all iterations
    SCE^CVX             the exactly solved smoothed problem, on our layer with the authors' regularizer μ‖w‖₂
    SCE^CVX cvxpylayers the same through cvxpylayers, as a check
    SCE^smoothed        our own: (μ/2)‖w‖², solved exactly, μ relative to the data
    SPO+^relax          the LP relaxation by the best solver we have for it (a path oracle, a two-row simplex, HiGHS)
    SPO+^relax cold     the same LPs by HiGHS from scratch; "warm": by HiGHS from the instance's last basis
    CaVE                three steps of Clarabel, as the authors have it; "clean": of our own method; "exact": to the end
    SCE^smoothed scaled the model works in units of mean |y|: its output is multiplied by that. The paper's does not, and
                        where costs are large, 25 epochs at its learning rate leave predictions short of them
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.errors import DataError
from dflearn.layers import CvxpySmoothed, DavisYin, Exact, Layer, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, CaVE, FenchelYoung, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.losses.base import Loss
from dflearn.paper import hyperparameters as published
from dflearn.paper.as_published import AsPublished
from dflearn.paper.cave import CaVEAsPublished
from dflearn.problems.base import Problem
from dflearn.program import Instance, Objective
from dflearn.solvers.base import Solution, Solver
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Pooled

Plain = float | int | str | bool
SCALED = ("MSE", "SPO+^relax", "PFY", "SCE^DYS unrolled", "SCE^smoothed", "sSPO+")  # the ones with a version "scaled"
ROWS_AT_A_TIME = 256  # instances whose smoothed labels are computed at once


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

    def labelled(self, layer: Layer | None = None) -> DecisionDataset:
        """The training data with the decisions that the parameter `labels` names; "smoothed" are those of `layer`."""
        kind = self.parameters["labels"]
        if kind == "exact":
            return self.train
        if kind == "relaxed":
            return label(self.train, self.problem.relaxed_solver(), progress=False)
        if kind != "smoothed" or layer is None:
            known = "'exact' or 'relaxed'" if layer is None else "'exact', 'relaxed' or 'smoothed'"
            raise DataError(f"labels are {known} for this method, got {kind!r}")
        assert self.train.costs is not None
        with torch.no_grad():
            parts = [layer(costs) for costs in self.train.costs.split(ROWS_AT_A_TIME)]
        return self.train.with_decisions(torch.cat(parts))


@dataclass(frozen=True)
class Prepared:
    """What `fit` needs: the loss, the training data with the labels that the method trains on, warm starts or not.

    scale: what the model's output is multiplied by.
    """

    loss: Loss
    train: DecisionDataset
    warm_start: bool = True
    scale: float = 1.0

    @property
    def solver(self) -> str:
        """What solves inside the loss, in words."""
        layer = self.loss.layer
        if isinstance(self.loss, CaVEAsPublished):
            return "Clarabel onto the cone"
        if isinstance(self.loss, CaVE):
            inner = self.loss.layer.variant == "inner"
            return "interior-point steps onto the cone" if inner else "exact projection onto the cone"
        if isinstance(layer, PredictedPart):
            layer = layer.layer
        if layer is None:
            return "none"
        name = type(layer).__name__
        return f"{name} of {layer.solver.identity}" if isinstance(layer, Exact | Perturbed) else name


@dataclass(frozen=True)
class Method:
    """One row of a table.

    Attributes:
        parameters: name of a problem → what the method has fixed there; part of a run's identity.
    """

    name: str
    about: str
    parameters: Callable[[str], dict[str, Plain]]
    prepare: Callable[[RunContext], Prepared]


_METHODS: dict[str, Method] = {}


def method_named(name: str) -> Method:
    if name not in _METHODS:
        near = difflib.get_close_matches(name, _METHODS, 3, 0.5)
        hint = f"; perhaps {' or '.join(repr(other) for other in near)}" if near else ""
        raise DataError(f"no method is named {name!r}{hint}; `dfl paper list` names them all")
    return _METHODS[name]


def method_names() -> list[str]:
    return list(_METHODS)


def resolve_parameters(method: str, problem: str, given: Mapping[str, Plain] | None = None) -> dict[str, Plain]:
    """What the method has fixed for that problem, with `given` values in their place."""
    own = method_named(method).parameters(problem)
    unknown = sorted(set(given or {}) - set(own))
    if unknown:
        known = ", ".join(own) or "none"
        raise DataError(f"{method} has no parameter {', '.join(unknown)} on {problem}; its parameters are: {known}")
    return {**own, **(given or {})}


def _add(
    name: str, about: str, parameters: Callable[[str], dict[str, Plain]], prepare: Callable[[RunContext], Prepared]
) -> None:
    _METHODS[name] = Method(name, about, parameters, prepare)


# -- without a solver, and with an exact one --------------------------------------------------------------------------


def _fixed(**values: Plain) -> Callable[[str], dict[str, Plain]]:
    return lambda problem: dict(values)


_add("MSE", "the squared error of the costs; nothing is solved", _fixed(), lambda task: Prepared(MSE(), task.train))


def _relaxed(task: RunContext) -> Solver:
    return task.problem.relaxed_solver()


def _linear(task: RunContext) -> Solver:
    return HiGHS(task.problem.relaxation)


def _integer(task: RunContext) -> Solver:
    return task.exact_solver()


def _subgradient(
    loss: Callable[[Layer], Loss], solver: Callable[[RunContext], Solver]
) -> Callable[[RunContext], Prepared]:
    """The loss through `Exact`: its classical subgradient."""
    return lambda task: Prepared(loss(Exact(solver(task))), task.train, bool(task.parameters.get("warm_start", True)))


_SUBGRADIENTS: dict[str, Callable[[Layer], Loss]] = {"SPO+": SPOPlus, "SCE": SCE}
for _name, _loss in _SUBGRADIENTS.items():
    _add(f"{_name}^relax", "subgradient, LP relaxation", _fixed(), _subgradient(_loss, _relaxed))
    _add(f"{_name}^ILP", "subgradient, the program with its integers", _fixed(), _subgradient(_loss, _integer))
_add(
    "SPO+^relax cold",
    "the same by HiGHS, each LP from scratch",
    _fixed(warm_start=False),
    _subgradient(SPOPlus, _linear),
)
_add(
    "SPO+^relax warm",
    "the same by HiGHS, each LP from its own last basis",
    _fixed(warm_start=True),
    _subgradient(SPOPlus, _linear),
)


def _pooled(task: RunContext) -> Prepared:
    """One coin per batch: solve it, or take the best of the decisions known so far; all training optima are known."""
    pool = Pooled(
        task.exact_solver(),
        task.parameters["ratio"],
        per="batch",
        initial=task.train.decisions,
        generator=task.generator(),
    )
    return Prepared(SPOPlus(Exact(pool)), task.train)


_add("SPO+^p=5%", "subgradient; one batch in twenty is solved", _fixed(ratio=published.SOLVE_RATIO), _pooled)


def _perturbed(solver: Callable[[RunContext], Solver]) -> Callable[[RunContext], Prepared]:
    def prepare(task: RunContext) -> Prepared:
        sigma, samples = task.parameters["sigma"] * task.unit, task.parameters["samples"]
        return Prepared(FenchelYoung(Perturbed(solver(task), sigma, samples, task.generator())), task.train)

    return prepare


_noise = _fixed(sigma=published.SIGMA, samples=published.SAMPLES)
_add("PFY", "perturbed Fenchel-Young, the program with its integers", _noise, _perturbed(_integer))
_add("PFY^relax", "perturbed Fenchel-Young, LP relaxation", _noise, _perturbed(_relaxed))


def _cave_as_published(task: RunContext) -> Prepared:
    return Prepared(CaVEAsPublished(task.problem.program, task.parameters["iterations"]), task.train)


def _cave(task: RunContext) -> Prepared:
    program, own = task.problem.program, task.parameters
    return Prepared(CaVE(program, variant=own["variant"], iterations=own["iterations"]), task.train)


_add("CaVE", "angle to the cone of what binds at w*, three steps of Clarabel", _fixed(iterations=3), _cave_as_published)
_add("CaVE clean", "the same on our layer, three steps", _fixed(variant="inner", iterations=3), _cave)
_add("CaVE exact", "the same with the exact projection", _fixed(variant="exact", iterations=3), _cave)

# -- through a differentiable layer ---------------------------------------------------------------------------------

_THROUGH_LAYERS: dict[str, Callable[[Layer], Loss]] = {
    "Regret": Regret,
    "SqDE": SquaredDecisionError,
    "SPO+": SPOPlus,
    "SCE": SCE,
}


class PredictedPart(Layer):
    """v = Sᵀ w of another layer's decision w, `(*batch, p)`: the part of a decision that predicted costs multiply.

    The authors' DYS losses see this part only: obj(y, v) = yᵀv, without the known costs d. It matters for facility
    location, where v is the amounts carried and d the opening costs; elsewhere v is w up to its sign.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__(Objective(layer.objective.p))
        self.layer = layer

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = self.layer.solve(y, instance, start)
        return replace(solution, decision=self.layer.objective.transpose(solution.decision))


def _as_published(loss: str) -> Callable[[RunContext], Prepared]:
    """DYS-Net as in the authors' code; knapsacks train on decisions of the relaxation; SqDE is averaged."""

    def prepare(task: RunContext) -> Prepared:
        own = task.parameters
        train = task.labelled()
        assert train.decisions is not None
        layer = AsPublished(task.problem, own["tau"], own["alpha"], own["iterations"], generator=task.generator())
        part = PredictedPart(layer)
        train = train.with_decisions(task.problem.program.objective.transpose(train.decisions))
        made = SquaredDecisionError(part, reduction="mean") if loss == "SqDE" else _THROUGH_LAYERS[loss](part)
        return Prepared(made, train)

    return prepare


def _clean(loss: str) -> Callable[[RunContext], Prepared]:
    def prepare(task: RunContext) -> Prepared:
        own, unit = task.parameters, task.unit
        tau, alpha = own["tau"] * unit, own["alpha"] / unit
        layer = DavisYin(task.problem.program, tau, alpha, own["iterations"], gradient=own["gradient"])
        return Prepared(_THROUGH_LAYERS[loss](layer), task.train)

    return prepare


def _smoothed(
    loss: Callable[[Layer], Loss], make: Callable[..., Layer], **options: Any
) -> Callable[[RunContext], Prepared]:
    """Through the exactly solved smoothed problem."""

    def prepare(task: RunContext) -> Prepared:
        program, own = task.problem.program, task.parameters
        mu = own.get("mu", own.get("tau"))
        if mu == "auto":
            mu = Scale.of(program.objective, task.train).mu
        layer = make(program, mu, **options)
        return Prepared(loss(layer), task.labelled(layer) if "labels" in own else task.train)

    return prepare


def _dys_parameters(loss: str, printed: bool) -> Callable[[str], dict[str, Plain]]:
    def parameters(problem: str) -> dict[str, Plain]:
        own = published.dys_printed(problem) if printed else published.dys_in_code(problem, loss)
        return {**own, "labels": "relaxed" if problem.startswith("KP") else "exact"}

    return parameters


def _clean_parameters(gradient: str) -> Callable[[str], dict[str, Plain]]:
    return lambda problem: {**published.dys_printed(problem), "gradient": gradient}


def _cvx_parameters(loss: str) -> Callable[[str], dict[str, Plain]]:
    """The authors' code contrasts with the layer's own solution at the true costs for facility location."""
    return lambda problem: {
        "tau": published.cvx_tau(problem, loss),
        "labels": "smoothed" if problem.startswith("CFL") else "exact",
    }


for _name, _loss in _THROUGH_LAYERS.items():
    _add(
        f"{_name}^CVX",
        "exact smoothed problem with μ‖w‖₂",
        _cvx_parameters(_name),
        _smoothed(_loss, Smoothed, regularizer="norm"),
    )
    _add(f"{_name}^DYS", "DYS-Net as in the authors' code", _dys_parameters(_name, False), _as_published(_name))
    _add(
        f"{_name}^DYS printed",
        "DYS-Net as in the authors' code, hyperparameters of the text",
        _dys_parameters(_name, True),
        _as_published(_name),
    )
    _add(f"{_name}^DYS clean", "DYS-Net as in the text, on our layer", _clean_parameters("jfb"), _clean(_name))
    _add(
        f"{_name}^DYS unrolled",
        "the same, differentiated through all iterations",
        _clean_parameters("unrolled"),
        _clean(_name),
    )
    _add(
        f"{_name}^CVX cvxpylayers",
        "exact smoothed problem with μ‖w‖₂, by cvxpylayers",
        _cvx_parameters(_name),
        _smoothed(_loss, CvxpySmoothed, regularizer="norm"),
    )
    _add(f"{_name}^smoothed", "exact smoothed problem with (μ/2)‖w‖²", _fixed(mu="auto"), _smoothed(_loss, Smoothed))
_add(
    "sSPO+",
    "Fenchel-Young loss at the costs of SPO+, (μ/2)‖w‖²",
    _fixed(mu="auto"),
    _smoothed(SmoothedSPOPlus, Smoothed),
)

# -- in units of the costs ------------------------------------------------------------------------------------------


def _scaled(prepare: Callable[[RunContext], Prepared]) -> Callable[[RunContext], Prepared]:
    """The same as if all costs had been divided by mean |y|, and the decisions' objective with them."""

    def prepare_scaled(task: RunContext) -> Prepared:
        unit = Scale.of(task.problem.program.objective, task.train).costs
        return replace(prepare(replace(task, unit=unit)), scale=unit)

    return prepare_scaled


for _name in SCALED:
    _plain = _METHODS[_name]
    _add(
        f"{_name} scaled", "the same; the model works in units of mean |y|", _plain.parameters, _scaled(_plain.prepare)
    )
