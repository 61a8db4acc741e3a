"""The methods of the library, by name: a loss, and the solver inside it.

A name reads LOSS^SOLVER, with a word after it where there are several versions:

    SPO+^relax          the LP relaxation by the best solver we have for it (a path oracle, a two-row simplex, HiGHS)
    SPO+^relax cold     the same LPs by HiGHS from scratch; "warm": by HiGHS from the instance's last basis
    SPO+^ILP            the program with its integers
    PFY, PFY^relax      perturbed Fenchel-Young, on the program with its integers and on its relaxation
    SCE^smoothed        the relaxation with (μ/2)‖w‖², solved exactly, μ relative to the data
    two-stage           MSE whose best epoch, if the settings keep one, has the least squared error, not regret
    start               the model before training: ridge regression, for the model "ridge"
    sSPO+ own           SPO+ of the smoothed program, with that program's own label; "sSPO+" and "sSPO+ exact" have the exact one
    CaVE clean          three steps of our own method; "exact": to the end
    SCE^smoothed scaled the model's output is multiplied by mean |y|: otherwise, with a small learning rate, few epochs leave
                        predictions far below large costs

Parameters that are costs (σ, ν, τ, ε) are in units of mean |y| for "… scaled"; steps λ are relative to the incoming gradient, and
widths h to the true costs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dflearn import layers, losses
from dflearn.data.labels import label_by_neighbours
from dflearn.layers import AdaptiveImplicitMLE, Exact, ImplicitMLE, Layer, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Ranking, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.losses.base import Loss
from dflearn.solvers.base import Solver
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Pooled
from dflearn.studies.methods import Prepared, RunContext, add
from dflearn.tables.methods import SHARE, SHARP, SQUARES, with_squares

THROUGH_LAYERS: dict[str, Callable[[Layer], Loss]]
THROUGH_LAYERS = {"Regret": Regret, "SqDE": SquaredDecisionError, "SPO+": SPOPlus, "SCE": SCE}
_ONE_DRAW: dict[str, Any] = {"sigma": 1.0, "samples": 1}
_NOISE: dict[str, Any] = {"sigma": 1.0, "samples": 10}
_RELATIVE: dict[str, Any] = {"sigma": 0.5, "samples": 10}


def _relaxed(context: RunContext) -> Layer:
    return Exact(context.relaxed_solver())


def _exact(context: RunContext) -> Layer:
    return Exact(context.exact_solver())


def _perturbed(context: RunContext, *, exact: bool = False) -> Layer:
    solver = context.exact_solver() if exact else context.relaxed_solver()
    return Perturbed(solver, context.cost("sigma"), context.parameters["samples"], context.generator())


def _multiplied(context: RunContext) -> Layer:
    sigma, samples = context.parameters["sigma"], context.parameters["samples"]
    return Perturbed(context.relaxed_solver(), sigma, samples, context.generator(), multiplicative=True)


def _smoothed(context: RunContext) -> Smoothed:
    return Smoothed(context.problem.program, context.mu)


def _share(context: RunContext, name: str = "share") -> Smoothed:
    return Smoothed(context.problem.program, context.parameters[name] * context.scale.mu)


def _pool(context: RunContext, solver: Solver | None = None) -> Layer:
    """A pool that begins with the labels; one coin per batch says whether it is solved."""
    known, solver = context.train.decisions, solver or context.relaxed_solver()
    pool = Pooled(solver, context.parameters["ratio"], per="batch", initial=known, generator=context.generator())
    return Exact(pool)


def _cave(context: RunContext) -> Prepared:
    variant = context.parameters["variant"]
    name = "interior-point steps" if variant == "inner" else "exact projection"
    loss = losses.CaVE(context.problem.program, variant=variant, iterations=context.parameters["iterations"])
    return Prepared(loss, context.train, solver_name=f"{name} onto the cone")


def _implicit(kind: Callable[..., Layer], context: RunContext) -> Loss:
    own = context.parameters
    step = (own["step"],) if "step" in own else ()
    options = {"noise": own["noise"], "generator": context.generator(), "samples": own["samples"]}
    return Regret(kind(context.relaxed_solver(), context.cost("sigma"), *step, **options))


def _pg(context: RunContext) -> Loss:
    return losses.PerturbationGradient(_relaxed(context), **context.parameters)


def _barrier(context: RunContext) -> Loss:
    share = 0.1 if context.parameters["mu"] == "auto" else 1.0
    return Regret(layers.LogBarrier(context.problem.program, share * context.mu))


def _lava(context: RunContext) -> Prepared:
    """Its labels are vertices: those of the relaxation."""
    solution = context.relaxed_solver().solve(context.train.batch().require("costs"), context.train.instance)
    train = context.train.with_decisions(solution.check().decision)
    options = {**context.parameters, "margin": context.cost("margin")}
    return Prepared(losses.LAVA(context.problem.program, **options), train)


def _lodl(context: RunContext) -> Loss:
    sigma, samples = context.cost("sigma"), context.parameters["samples"]
    return losses.LODL.learn(context.train, context.relaxed_solver(), sigma, samples, generator=context.generator())


def _neighbours(context: RunContext) -> Prepared:
    k, share = context.parameters["k"], context.parameters["share"]
    train = label_by_neighbours(context.train, context.relaxed_solver(), k, share, progress=False)
    return Prepared(SPOPlus(_relaxed(context)), train)


def _own(context: RunContext) -> Loss:
    return SmoothedSPOPlus(_share(context))


def _own_with_squares(context: RunContext) -> Loss:
    return with_squares(_own(context), context.problem.program.p, context.scale, context.parameters["weight"])


def _convex_then_sharp(context: RunContext) -> Prepared:
    return Prepared([_own(context), SCE(_share(context, "sharp"), label="smoothed")], context.train)


def _by_highs(context: RunContext) -> Prepared:
    return Prepared(SPOPlus(Exact(HiGHS(context.problem.relaxation))), context.train, context.parameters["warm_start"])


def through(loss: Callable[[Layer], Loss], layer: Callable[[RunContext], Layer]) -> Callable[[RunContext], Loss]:
    return lambda context: loss(layer(context))


add("MSE", "the squared error of the costs; nothing is solved", lambda c: MSE(), scaled=True)
_about = "squared error, which also chooses the best epoch, if one is kept"
add("two-stage", _about, lambda c: Prepared(MSE(), c.train, judged_by="loss"), scaled=True)
add("start", "the model before training", lambda c: Prepared(MSE(), c.train, judged_by="start"))
add("SPO+^relax", "subgradient, LP relaxation", through(SPOPlus, _relaxed), scaled=True)
add("SPO+^ILP", "subgradient, the program with its integers", through(SPOPlus, _exact))
add("SCE^relax", "subgradient, LP relaxation", through(SCE, _relaxed))
add("SCE^ILP", "subgradient, the program with its integers", through(SCE, _exact))
add("SPO+^relax cold", "subgradient, LPs by HiGHS from scratch", _by_highs, warm_start=False)
add("SPO+^relax warm", "subgradient, LPs by HiGHS from their last basis", _by_highs, warm_start=True)
_ONE_IN_TWENTY = "subgradient; one batch in twenty is solved"
add("SPO+^p=5%", _ONE_IN_TWENTY, lambda c: SPOPlus(_pool(c, c.exact_solver())), ratio=0.05)
_PFY = "perturbed Fenchel-Young, "
_perturb_exact = partial(_perturbed, exact=True)
add("PFY", _PFY + "the program with its integers", through(FenchelYoung, _perturb_exact), scaled=True, **_ONE_DRAW)
add("PFY^relax", _PFY + "LP relaxation", through(FenchelYoung, _perturbed), **_ONE_DRAW)
add("CaVE clean", "angle to the cone of binding constraints, three steps", _cave, variant="inner", iterations=3)
add("CaVE exact", "angle to the cone of binding constraints, exact projection", _cave, variant="exact", iterations=3)
for _name, _loss in THROUGH_LAYERS.items():
    _about = "exact smoothed problem with (μ/2)‖w‖²"
    add(f"{_name}^smoothed", _about, through(_loss, _smoothed), scaled=_name == "SCE", mu="auto")
add("FY^smoothed", "Fenchel-Young loss of the smoothed problem", through(FenchelYoung, _smoothed), mu="auto")
_about = "Fenchel-Young loss at the costs of SPO+, (μ/2)‖w‖²"
add("sSPO+", _about, through(partial(SmoothedSPOPlus, label="exact"), _smoothed), scaled=True, mu="auto")
_about = "Fenchel-Young loss at the costs of SPO+; μ is a share of the automatic one"
add("sSPO+ exact", _about, through(partial(SmoothedSPOPlus, label="exact"), _share), scaled=True, share=SHARE)
_about = "SCE with the smoothed program's own label"
add("SCE own", _about, through(partial(SCE, label="smoothed"), _share), scaled=True, share=SHARP)
_about = "SPO+ of the smoothed program, its own label; μ is a share of the automatic one"
add("sSPO+ own", _about, _own, scaled=True, share=SHARE)
add("sSPO+ own, MSE", _about + ", with squared error", _own_with_squares, scaled=True, share=SHARE, weight=SQUARES)
_about = "sSPO+ own for half of the epochs, then SCE with its own label"
add("convex, then sharp", _about, _convex_then_sharp, scaled=True, share=SHARE, sharp=SHARP)

# -- the rest of the field: gradient rules, pools, and losses that solve nothing; each with its version "scaled" --------

_MULTIPLIED = "noise that multiplies costs"
_mean = partial(SquaredDecisionError, reduction="mean")
_field = partial(add, scaled=True)
_field("DPO^relax", "squared distance of the mean decision under noise", through(_mean, _perturbed), **_NOISE)
_about = f"squared distance of the mean decision under {_MULTIPLIED}"
_field("DPO^relax multiplicative", _about, through(_mean, _multiplied), **_RELATIVE)
_field("PFY^relax multiplicative", _PFY + _MULTIPLIED, through(FenchelYoung, _multiplied), **_RELATIVE)
_about = "regret, differentiated by interpolation between two solves"
_field("DBB^relax", _about, lambda c: Regret(layers.BlackBox(c.relaxed_solver(), c.parameters["step"])), step=10.0)
_about, _rule = "regret, the Jacobian taken for the negative identity", layers.NegativeIdentity
_field("NID^relax", _about, lambda c: Regret(_rule(c.relaxed_solver(), c.parameters["projection"])), projection="norm")
_gamma: dict[str, Any] = {**_NOISE, "noise": "sum-of-gamma"}
_field("IMLE^relax", "regret, differences of noisy decisions", partial(_implicit, ImplicitMLE), **_gamma, step=10.0)
_field("AIMLE^relax", "IMLE^relax with a step that adapts", partial(_implicit, AdaptiveImplicitMLE), **_gamma)
_field("PG^relax", "the decision's cost, by differences of optimal values", _pg, width=0.1, difference="backward")
_field("NCE", "label against the mean of a pool", through(losses.NCE, _pool), ratio=0.1)
_field("CMAP", "label against the best of a pool", through(partial(SCE, variant="plain"), _pool), ratio=0.1)
_about = "squared error of the objective of a pool"
_field("LTR pointwise", _about, lambda c: Ranking(_pool(c), "pointwise"), ratio=0.1)
_about = "the best of a pool against each other member"
_field("LTR pairwise", _about, lambda c: Ranking(_pool(c), "pairwise", margin=c.cost("margin")), ratio=0.1, margin=0.0)
_about, _list = "cross entropy of the order of a pool", dict[str, Any](ratio=0.1, temperature=1.0)
_field("LTR listwise", _about, lambda c: Ranking(_pool(c), "listwise", temperature=c.cost("temperature")), **_list)
_about = "label against the vertices next to it; nothing is solved"
_field("LAVA", _about, _lava, margin=0.1, bases=20, directions=100)
_about, _pear = "the error, projected onto the face of the smoothed decision", dict[str, Any](mu="auto", injection=0.0)
_field("PEAR", _about, lambda c: losses.PEAR(_smoothed(c), injection=c.parameters["injection"]), **_pear)
_field("Regret^barrier", "regret through the log barrier (IntOpt)", _barrier, mu="auto")
_field("LODL", "squared error with weights learned from regret", _lodl, sigma=0.5, samples=50)
_sensitive = lambda c: losses.CostSensitive(c.problem.program, **c.parameters)  # noqa: E731
_field("cost-sensitive", "squared error; harmless errors count less", _sensitive, harmless=0.1)
_field("SPO+^relax kNN", "SPO+ on labels of neighbours", _neighbours, k=10, share=0.5)
