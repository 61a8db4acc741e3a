"""The rest of the field's methods, for studies: gradient rules, pools, and losses that solve nothing.

Names read as in `studies.builtin`. Parameters that are costs (σ, ν, τ, ε) are in units of mean |y| where the model is
(“… scaled”); steps λ are relative to the gradient that arrives, and widths h to the true costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dflearn.data.labels import label_by_neighbours
from dflearn.data.scale import Scale
from dflearn.layers import (
    AdaptiveImplicitMLE,
    BlackBox,
    Exact,
    ImplicitMLE,
    Layer,
    LogBarrier,
    NegativeIdentity,
    Perturbed,
)
from dflearn.losses import (
    LAVA,
    LODL,
    NCE,
    PEAR,
    SCE,
    CostSensitive,
    FenchelYoung,
    PerturbationGradient,
    Ranking,
    Regret,
    SPOPlus,
    SquaredDecisionError,
)
from dflearn.losses.base import Loss
from dflearn.solvers.base import Solver
from dflearn.solvers.wrappers import Pooled
from dflearn.studies.builtin import Prepare, fixed, register_scaled, relaxed, smoothed
from dflearn.studies.methods import Method, Plain, Prepared, RunContext, register

SAMPLES = 10


def through(make: Callable[[Solver, RunContext, dict[str, Any]], Loss]) -> Prepare:
    """A loss around the solver of the relaxation, from the parameters."""
    return lambda context: Prepared(make(relaxed(context), context, dict(context.parameters)), context.train)


def over_pool(make: Callable[[Layer, RunContext, dict[str, Any]], Loss]) -> Prepare:
    """A loss over a pool that begins with the labels; one coin per batch says whether it is solved."""

    def prepare(context: RunContext) -> Prepared:
        own = dict(context.parameters)
        pool = Pooled(
            relaxed(context),
            own.pop("ratio"),
            per="batch",
            initial=context.train.decisions,
            generator=context.generator(),
        )
        return Prepared(make(Exact(pool), context, own), context.train)

    return prepare


def _perturbed(solver: Solver, context: RunContext, own: dict[str, Any], multiplicative: bool = False) -> Layer:
    sigma = own["sigma"] * (1.0 if multiplicative else context.unit)
    return Perturbed(solver, sigma, own["samples"], context.generator(), multiplicative=multiplicative)


def _implicit(solver: Solver, context: RunContext, own: dict[str, Any]) -> Loss:
    sigma = own["sigma"] * context.unit
    options = {"noise": own["noise"], "generator": context.generator(), "samples": own["samples"]}
    return Regret(ImplicitMLE(solver, sigma, own["step"], **options))


def _adaptive(solver: Solver, context: RunContext, own: dict[str, Any]) -> Loss:
    sigma = own["sigma"] * context.unit
    options = {"noise": own["noise"], "generator": context.generator(), "samples": own["samples"]}
    return Regret(AdaptiveImplicitMLE(solver, sigma, **options))


def _neighbours(context: RunContext) -> Prepared:
    own = context.parameters
    train = label_by_neighbours(context.train, relaxed(context), own["k"], own["share"], progress=False)
    return Prepared(SPOPlus(Exact(relaxed(context))), train)


def _of_program(make: Callable[..., Loss], *costs: str) -> Prepare:
    """A loss that looks at the program and solves nothing; `costs` are its parameters in units of the costs."""

    def prepare(context: RunContext) -> Prepared:
        own = {name: value * (context.unit if name in costs else 1) for name, value in context.parameters.items()}
        return Prepared(make(context.problem.program, **own), context.train, solver_name="none")

    return prepare


def _pear(context: RunContext) -> Prepared:
    return smoothed(lambda layer: PEAR(layer, injection=context.parameters["injection"]))(context)  # type: ignore[arg-type]


def _lodl(context: RunContext) -> Prepared:
    own = context.parameters
    loss = LODL.learn(
        context.train, relaxed(context), own["sigma"] * context.unit, own["samples"], generator=context.generator()
    )
    return Prepared(loss, context.train, solver_name="none")


def _barrier(context: RunContext) -> Prepared:
    """Its μ is a tenth of that of smoothing by default, as of the estimator."""
    program, mu = context.problem.program, context.parameters["mu"]
    if mu == "auto":
        mu = 0.1 * Scale.of(program.objective, context.train).mu
    return Prepared(Regret(LogBarrier(program, mu)), context.train)


def _lava(context: RunContext) -> Prepared:
    """Its labels are vertices: those of the relaxation."""
    decisions = relaxed(context).solve(context.train.batch().require("costs"), context.train.instance).check().decision
    train = context.train.with_decisions(decisions)
    return _of_program(LAVA, "margin")(replace(context, train=train))


def _add(name: str, about: str, prepare: Prepare, **parameters: Plain) -> None:
    register_scaled(register(Method(name, about, prepare, fixed(**parameters))))


_noise: dict[str, Plain] = {"sigma": 1.0, "samples": SAMPLES}
_relative: dict[str, Plain] = {"sigma": 0.5, "samples": SAMPLES}
_mean: dict[str, Any] = {"reduction": "mean"}
_add(
    "DPO^relax",
    "squared distance of the mean decision under noise",
    through(lambda solver, context, own: SquaredDecisionError(_perturbed(solver, context, own), **_mean)),
    **_noise,
)
_add(
    "DPO^relax multiplicative",
    "the same, noise that multiplies costs",
    through(lambda solver, context, own: SquaredDecisionError(_perturbed(solver, context, own, True), **_mean)),
    **_relative,
)
_add(
    "PFY^relax multiplicative",
    "perturbed Fenchel-Young, noise that multiplies costs",
    through(lambda solver, context, own: FenchelYoung(_perturbed(solver, context, own, True))),
    **_relative,
)
_add(
    "DBB^relax",
    "regret, differentiated by interpolation between two solves",
    through(lambda solver, context, own: Regret(BlackBox(solver, own["step"]))),
    step=10.0,
)
_add(
    "NID^relax",
    "regret, the Jacobian taken for the negative identity",
    through(lambda solver, context, own: Regret(NegativeIdentity(solver, own["projection"]))),
    projection="norm",
)
_add(
    "IMLE^relax",
    "regret, differences of noisy decisions",
    through(_implicit),
    **_noise,
    step=10.0,
    noise="sum-of-gamma",
)
_add("AIMLE^relax", "the same, with a step that adapts", through(_adaptive), **_noise, noise="sum-of-gamma")
_add(
    "PG^relax",
    "the decision's cost, by differences of optimal values",
    through(
        lambda solver, context, own: PerturbationGradient(Exact(solver), own["width"], difference=own["difference"])
    ),
    width=0.1,
    difference="backward",
)
_add("NCE", "label against the mean of a pool", over_pool(lambda layer, context, own: NCE(layer)), ratio=0.1)
_add(
    "CMAP",
    "label against the best of a pool",
    over_pool(lambda layer, context, own: SCE(layer, variant="plain")),
    ratio=0.1,
)
_add(
    "LTR pointwise",
    "squared error of the objective of a pool",
    over_pool(lambda layer, context, own: Ranking(layer, "pointwise")),
    ratio=0.1,
)
_add(
    "LTR pairwise",
    "the best of a pool against each other member",
    over_pool(lambda layer, context, own: Ranking(layer, "pairwise", margin=own["margin"] * context.unit)),
    ratio=0.1,
    margin=0.0,
)
_add(
    "LTR listwise",
    "cross entropy of the order of a pool",
    over_pool(lambda layer, context, own: Ranking(layer, "listwise", temperature=own["temperature"] * context.unit)),
    ratio=0.1,
    temperature=1.0,
)
_add("LAVA", "label against the vertices next to it; nothing is solved", _lava, margin=0.1, bases=20, directions=100)
_add("PEAR", "the error, projected onto the face of the smoothed decision", _pear, mu="auto", injection=0.0)
_add("Regret^barrier", "regret through the log barrier (IntOpt)", _barrier, mu="auto")
_add("LODL", "squared error with weights that regret taught", _lodl, sigma=0.5, samples=50)
_add("cost-sensitive", "squared error; harmless errors count less", _of_program(CostSensitive), harmless=0.1)
_add("SPO+^relax kNN", "SPO+ on labels of neighbours", _neighbours, k=10, share=0.5)
