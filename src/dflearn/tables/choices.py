"""Losses and layers by name, with μ and σ relative to the data: what the estimator and `dfl` offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dflearn.data import DecisionDataset
from dflearn.data.scale import Scale
from dflearn.errors import OptionError
from dflearn.layers import AdaptiveImplicitMLE, BlackBox, Exact, ImplicitMLE, Layer, NegativeIdentity, Perturbed
from dflearn.losses import (
    LAVA,
    LODL,
    MSE,
    NCE,
    PEAR,
    SCE,
    CaVE,
    CostSensitive,
    FenchelYoung,
    PerturbationGradient,
    Quantile,
    Ranking,
    Regret,
    ScoreFunction,
    SmoothedSPOPlus,
    SPOPlus,
    SquaredDecisionError,
    TaskLoss,
)
from dflearn.losses.base import Loss
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.solvers.wrappers import Pooled
from dflearn.tables.methods import LAYERS, LOSSES, check_rows
from dflearn.tables.two_stage import critical_ratios

SAMPLES = 10  # of layers that average over noise, where their Jacobian is used
POOL_RATIO = 0.1  # of batches that a loss over a pool solves
BARRIER = 0.1  # μ of a log barrier, in units of the μ of smoothing: slacks of some tenths at costs of one
RELATIVE_SIGMA = 0.5  # of multiplicative noise: the standard deviation of log |y|
MARGIN = (
    0.1  # of a label over the vertices next to it, in units of the objective: mean |S y| times the size of decisions
)
LEARNED_SIGMA = 0.5  # of the draws that a loss is learned from, in units of mean |y|

Amount = float | Literal["auto"]

# For each loss that takes a layer: the layer it is used with by default, and how it is made.
_LOSSES: dict[str, tuple[str, Callable[[Any], Loss]]] = {
    "sce": ("smoothed", SCE),
    "sce-plain": ("smoothed", lambda layer: SCE(layer, variant="plain")),
    "spo+": ("relaxed", SPOPlus),
    "smoothed-spo+": ("smoothed", SmoothedSPOPlus),
    "fenchel-young": ("smoothed", FenchelYoung),
    "pfy": ("perturbed", FenchelYoung),
    "regret": ("smoothed", Regret),
    "sqde": ("smoothed", SquaredDecisionError),
    "pear": ("smoothed", PEAR),
    "task": ("smoothed", TaskLoss),
}

# Losses that look at the constraints themselves.
_OF_PROGRAMS: dict[str, Callable[[Program, Scale], Loss]] = {
    "cave": lambda program, _: CaVE(program),
    "lava": lambda program, scale: LAVA(program, MARGIN * scale.objective * scale.decisions),
    "cost-sensitive": lambda program, _: CostSensitive(program),
}


@dataclass(frozen=True)
class _Numbers:
    """σ, λ where it is given, and the seed of what draws."""

    sigma: float
    step: dict[str, Any]
    seed: int


def _pool(solver: Solver, numbers: _Numbers, data: DecisionDataset | None) -> Layer:
    known = None if data is None else data.decisions
    return Exact(Pooled(solver, POOL_RATIO, per="batch", initial=known, generator=numbers.seed))


# Methods whose gradient rule is a layer of its own, or a pool: named compositions around a solver.
_AROUND_SOLVERS: dict[str, Callable[[Solver, _Numbers, DecisionDataset | None], Loss]] = {
    "pfy-multiplicative": lambda solver, of, _: FenchelYoung(
        Perturbed(solver, RELATIVE_SIGMA, generator=of.seed, multiplicative=True)
    ),
    "dpo": lambda solver, of, _: SquaredDecisionError(Perturbed(solver, of.sigma, SAMPLES, of.seed), reduction="mean"),
    "dpo-multiplicative": lambda solver, of, _: SquaredDecisionError(
        Perturbed(solver, RELATIVE_SIGMA, SAMPLES, of.seed, multiplicative=True), reduction="mean"
    ),
    "dbb": lambda solver, of, _: Regret(BlackBox(solver, **of.step)),
    "nid": lambda solver, of, _: Regret(NegativeIdentity(solver, "norm")),
    "imle": lambda solver, of, _: Regret(ImplicitMLE(solver, of.sigma, samples=SAMPLES, generator=of.seed, **of.step)),
    "aimle": lambda solver, of, _: Regret(AdaptiveImplicitMLE(solver, of.sigma, SAMPLES, of.seed)),
    "pg": lambda solver, of, _: PerturbationGradient(Exact(solver)),
    "nce": lambda solver, of, data: NCE(_pool(solver, of, data)),
    "cmap": lambda solver, of, data: SCE(_pool(solver, of, data), variant="plain"),
    "ltr-pointwise": lambda solver, of, data: Ranking(_pool(solver, of, data), "pointwise"),
    "ltr-pairwise": lambda solver, of, data: Ranking(_pool(solver, of, data), "pairwise"),
    "ltr-listwise": lambda solver, of, data: Ranking(_pool(solver, of, data), "listwise"),
    "lodl": lambda solver, of, data: (
        LODL.untaught(solver.objective.p) if data is None else LODL.learn(data, solver, of.sigma, generator=of.seed)
    ),
    "score-function": lambda solver, of, _: ScoreFunction(Exact(solver), of.sigma, generator=of.seed),
}


def make_loss(
    loss: str | Loss,
    layer: str | Layer,
    task: DecisionTask,
    scale: Scale,
    *,
    mu: Amount = "auto",
    sigma: Amount = "auto",
    step: Amount = "auto",
    seed: int = 0,
    data: DecisionDataset | None = None,
) -> Loss:
    """The loss of that name through the layer of that name; objects pass through.

    Args:
        loss: one of `LOSSES`, or "auto": "task" where right-hand sides are predicted, "sce" otherwise. "quantile" is at the
            critical ratios of the program, or else at the median.
        layer: one of `LAYERS`, or "auto": the one that suits the loss.
        mu, sigma: in units of the costs, or "auto": those of `scale`, or a share of them (μ of "intopt", σ of "lodl").
        step: of "davis-yin", or λ of "dbb" and "imle"; "auto" leaves it to the layer.
        seed: of noise, and of the coins of a pool.
        data: what is trained on. A pool begins with its decisions, or else empty; "lodl" learns from it, and has learned nothing without.
    """
    if isinstance(loss, Loss):
        return loss
    predicts = task.program is not None and task.program.predicts_rows
    loss = ("task" if predicts else "sce") if loss == "auto" else loss
    if predicts and loss in LOSSES:
        check_rows([loss])
    if loss == "mse":
        return MSE()
    if loss == "quantile":
        ratios = None if task.program is None else critical_ratios(task.program)
        return Quantile(0.5 if ratios is None else ratios)
    if loss in _OF_PROGRAMS:
        return _OF_PROGRAMS[loss](_program(task, loss), scale)
    if loss == "intopt":
        from dflearn.layers.log_barrier import LogBarrier

        if layer != "auto":
            raise OptionError(f"loss 'intopt' brings its own layer, the log barrier: layer is 'auto'; got {layer!r}")
        return Regret(LogBarrier(_program(task, loss), BARRIER * scale.mu if mu == "auto" else mu))
    if loss in _AROUND_SOLVERS:
        if layer not in ("auto", "relaxed", "exact"):
            raise OptionError(
                f"loss {loss!r} brings its own layer around a solver: layer is 'auto' or 'relaxed' for that of the "
                f"relaxation, or 'exact'; got {layer!r}"
            )
        solver = task.solver if layer == "exact" else task.relaxed
        noise = scale.sigma * (LEARNED_SIGMA if loss == "lodl" else 1.0) if sigma == "auto" else sigma
        numbers = _Numbers(noise, {} if step == "auto" else {"step": step}, seed)
        return _AROUND_SOLVERS[loss](solver, numbers, data)
    if loss not in _LOSSES:
        raise OptionError(f"loss is one of {', '.join(LOSSES)}, or a Loss; got {loss!r}")
    default, make = _LOSSES[loss]
    if isinstance(layer, Layer):
        return make(layer)
    name = default if layer == "auto" else layer
    if name == "exact":
        return make(Exact(task.solver))
    if name == "relaxed":
        return make(Exact(task.relaxed))
    if name == "perturbed":
        noise = scale.sigma if sigma == "auto" else sigma
        return make(Perturbed(task.relaxed, noise, generator=torch.Generator().manual_seed(seed)))
    smoothing = scale.mu if mu == "auto" else mu
    if name == "smoothed":
        from dflearn.layers.smoothed import Smoothed

        return make(Smoothed(_program(task, name), smoothing))
    if name == "davis-yin":
        from dflearn.layers.davis_yin import DavisYin, Gradient

        length, program = None if step == "auto" else step, _program(task, name)
        rule: Gradient = "implicit" if program.predicts_rows else "unrolled"
        return make(DavisYin(program, smoothing, length, gradient=rule))
    raise OptionError(f"layer is 'auto', one of {', '.join(LAYERS)}, or a Layer; got {layer!r}")


def _program(task: DecisionTask, name: str) -> Program:
    if task.program is None:
        raise OptionError(
            f"{name!r} works on the constraints of a program, and {task.solver!r} knows none: "
            "use layer='exact' or 'perturbed' with loss 'spo+', 'sce' or 'pfy'"
        )
    return task.program
