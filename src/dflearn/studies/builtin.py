"""The methods of the library, by name: a loss, and what solves inside it.

A name reads LOSS^SOLVER, with a word after it where there are several versions:

    SPO+^relax          the LP relaxation by the best solver we have for it (a path oracle, a two-row simplex, HiGHS)
    SPO+^relax cold     the same LPs by HiGHS from scratch; "warm": by HiGHS from the instance's last basis
    SPO+^ILP            the program with its integers
    PFY, PFY^relax      perturbed Fenchel-Young, on the program with its integers and on its relaxation
    SCE^smoothed        the relaxation with (μ/2)‖w‖², solved exactly, μ relative to the data
    two-stage           MSE whose best epoch, where the settings keep one, has the least squared error, not regret
    CaVE clean          three steps of our own method; "exact": to the end
    SCE^smoothed scaled the model works in units of mean |y|: its output is multiplied by that. Where costs are large, few
                        epochs at a small learning rate leave predictions short of them otherwise
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dflearn.data.scale import Scale
from dflearn.layers import Exact, Layer, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, CaVE, FenchelYoung, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.losses.base import Loss
from dflearn.solvers.base import Solver
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Pooled
from dflearn.studies.methods import Method, Plain, Prepared, RunContext, no_parameters, register

Prepare = Callable[[RunContext], Prepared]
THROUGH_LAYERS: dict[str, Callable[[Layer], Loss]] = {
    "Regret": Regret,
    "SqDE": SquaredDecisionError,
    "SPO+": SPOPlus,
    "SCE": SCE,
}


def fixed(**values: Plain) -> Callable[[str], dict[str, Plain]]:
    """Parameters that are the same for every problem."""
    return lambda problem: dict(values)


# -- what solves inside a loss ----------------------------------------------------------------------------------------


def relaxed(context: RunContext) -> Solver:
    return context.problem.relaxed_solver()


def linear(context: RunContext) -> Solver:
    return HiGHS(context.problem.relaxation)


def integer(context: RunContext) -> Solver:
    return context.exact_solver()


# -- loss and solver → how a run is prepared --------------------------------------------------------------------------


def subgradient(loss: Callable[[Layer], Loss], solver: Callable[[RunContext], Solver]) -> Prepare:
    """The loss through `Exact`: its classical subgradient."""
    return lambda context: Prepared(
        loss(Exact(solver(context))), context.train, bool(context.parameters.get("warm_start", True))
    )


def perturbed(solver: Callable[[RunContext], Solver]) -> Prepare:
    def prepare(context: RunContext) -> Prepared:
        sigma, samples = context.parameters["sigma"] * context.unit, context.parameters["samples"]
        return Prepared(FenchelYoung(Perturbed(solver(context), sigma, samples, context.generator())), context.train)

    return prepare


def smoothed(loss: Callable[[Layer], Loss], make: Callable[..., Layer] = Smoothed, **options: Any) -> Prepare:
    """Through the exactly solved smoothed problem."""

    def prepare(context: RunContext) -> Prepared:
        program, mu = context.problem.program, context.parameters["mu"]
        if mu == "auto":
            mu = Scale.of(program.objective, context.train).mu
        return Prepared(loss(make(program, mu, **options)), context.train)

    return prepare


def scaled(prepare: Prepare) -> Prepare:
    """The same as if all costs had been divided by mean |y|, and the decisions' objective with them."""

    def prepare_scaled(context: RunContext) -> Prepared:
        unit = Scale.of(context.problem.program.objective, context.train).costs
        return replace(prepare(replace(context, unit=unit)), scale=unit)

    return prepare_scaled


def register_scaled(plain: Method) -> None:
    """Register "… scaled" beside a method."""
    about = "the same; the model works in units of mean |y|"
    register(Method(f"{plain.name} scaled", about, scaled(plain.prepare), plain.parameters))


def _pooled(context: RunContext) -> Prepared:
    """One coin per batch: solve it, or take the best of the decisions known so far; all training optima are known."""
    pool = Pooled(
        context.exact_solver(),
        context.parameters["ratio"],
        per="batch",
        initial=context.train.decisions,
        generator=context.generator(),
    )
    return Prepared(SPOPlus(Exact(pool)), context.train)


def _cave(context: RunContext) -> Prepared:
    program, own = context.problem.program, context.parameters
    name = "interior-point steps" if own["variant"] == "inner" else "exact projection"
    loss = CaVE(program, variant=own["variant"], iterations=own["iterations"])
    return Prepared(loss, context.train, solver_name=f"{name} onto the cone")


# -- the methods ------------------------------------------------------------------------------------------------------


_made: dict[str, Method] = {}


def _add(
    name: str, about: str, prepare: Prepare, parameters: Callable[[str], dict[str, Plain]] = no_parameters
) -> None:
    _made[name] = register(Method(name, about, prepare, parameters))


_add("MSE", "the squared error of the costs; nothing is solved", lambda context: Prepared(MSE(), context.train))
_add(
    "two-stage",
    "the same, and its best epoch, where one is kept, is that of the least squared error",
    lambda context: Prepared(MSE(), context.train, judged_by="loss"),
)
for _name, _loss in {"SPO+": SPOPlus, "SCE": SCE}.items():
    _add(f"{_name}^relax", "subgradient, LP relaxation", subgradient(_loss, relaxed))
    _add(f"{_name}^ILP", "subgradient, the program with its integers", subgradient(_loss, integer))
_add(
    "SPO+^relax cold",
    "the same by HiGHS, each LP from scratch",
    subgradient(SPOPlus, linear),
    fixed(warm_start=False),
)
_add(
    "SPO+^relax warm",
    "the same by HiGHS, each LP from its own last basis",
    subgradient(SPOPlus, linear),
    fixed(warm_start=True),
)
_add("SPO+^p=5%", "subgradient; one batch in twenty is solved", _pooled, fixed(ratio=0.05))
_noise = fixed(sigma=1.0, samples=1)
_add("PFY", "perturbed Fenchel-Young, the program with its integers", perturbed(integer), _noise)
_add("PFY^relax", "perturbed Fenchel-Young, LP relaxation", perturbed(relaxed), _noise)
_add("CaVE clean", "angle to the cone of what binds at w*, three steps", _cave, fixed(variant="inner", iterations=3))
_add("CaVE exact", "the same with the exact projection", _cave, fixed(variant="exact", iterations=3))
for _name, _through in THROUGH_LAYERS.items():
    _add(f"{_name}^smoothed", "exact smoothed problem with (μ/2)‖w‖²", smoothed(_through), fixed(mu="auto"))
_add("FY^smoothed", "Fenchel-Young loss of the smoothed problem", smoothed(FenchelYoung), fixed(mu="auto"))
_add("sSPO+", "Fenchel-Young loss at the costs of SPO+, (μ/2)‖w‖²", smoothed(SmoothedSPOPlus), fixed(mu="auto"))
for _name in ("MSE", "two-stage", "SPO+^relax", "PFY", "SCE^smoothed", "sSPO+"):
    register_scaled(_made[_name])
