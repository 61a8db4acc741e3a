"""Methods whose one parameter is a share of the mean size of the costs c = S y + d, so that one grid suits them all."""

from collections.abc import Callable

from dflearn.layers import DavisYin, Perturbed, Smoothed
from dflearn.losses import SCE, FenchelYoung, SmoothedSPOPlus
from dflearn.losses.base import Loss
from dflearn.studies import Method, Prepared, RunContext, register


def add(name: str, about: str, make: Callable[[RunContext, float, float], Loss]) -> None:
    """`make`: context, share, mean size of the costs → loss."""

    def prepare(context: RunContext) -> Prepared:
        costs = context.train.batch().require("costs")
        scale = float(context.problem.program.objective.vector(costs).abs().mean())
        return Prepared(make(context, context.parameters["share"], scale), context.train)

    register(Method(f"{name} tuned", about, prepare, lambda problem: {"share": 1.0}))


def perturbed(context: RunContext, share: float, scale: float) -> Loss:
    return FenchelYoung(Perturbed(context.problem.relaxed_solver(), share * scale, 1, context.generator()))


def smoothed(context: RunContext, share: float, scale: float) -> Smoothed:
    return Smoothed(context.problem.program, share * scale)


def unrolled(context: RunContext, share: float, scale: float) -> Loss:
    """100 iterations from zero without smoothing: all the smoothing is early stopping."""
    return SCE(DavisYin(context.problem.program, mu=0.0, step=0.1 * share / scale, gradient="unrolled"))


add("PFY^relax", "perturbed Fenchel-Young, LP relaxation, σ = share · mean |c|", perturbed)
add("SCE^DYS unrolled", "our Davis-Yin layer, step = 0.1 · share / mean |c|", unrolled)
add("SCE^smoothed", "exact smoothed problem, μ = share · mean |c|", lambda *given: SCE(smoothed(*given)))
add("sSPO+", "smoothed SPO+, μ = share · mean |c|", lambda *given: SmoothedSPOPlus(smoothed(*given), label="exact"))
