"""The one table of methods: names, papers, needs, solves, the line of code, and what makes the loss, μ and σ relative to the data.

The estimator, `dfl train --loss`, `dfl methods` and docs/reference/methods.md read it; nothing heavy is loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from dflearn import layers, losses
from dflearn.errors import OptionError

if TYPE_CHECKING:
    from dflearn.data import DecisionDataset
    from dflearn.data.scale import Scale
    from dflearn.layers import Layer
    from dflearn.losses import Loss
    from dflearn.program import Program
    from dflearn.solvers.base import Solver
    from dflearn.solvers.task import DecisionTask

Needs = Literal["costs", "decisions", "program", "pool"]
Amount = float | Literal["auto"]

OWN, OWN_SOLVER = "own", "own, around a solver"  # layers of methods that bring them
SHARE, SHARP = 0.1, 0.3  # of the automatic μ: of the convex loss, and of SCE with its own label
SQUARES = 0.03  # weight of the squared error beside the convex loss
SAMPLES = 10  # of layers that average over noise, where their Jacobian is used
POOL_RATIO = 0.1  # of batches that a loss over a pool solves
BARRIER = 0.1  # μ of a log barrier, in units of the μ of smoothing: slacks of some tenths at costs of one
RELATIVE_SIGMA = 0.5  # of multiplicative noise: the standard deviation of log |y|
MARGIN = 0.1  # of a label over vertices next to it, in units of the objective: mean |S y| times the size of decisions
LEARNED_SIGMA = 0.5  # of the draws that a loss is learned from, in units of mean |y|


@dataclass(frozen=True)
class MethodEntry:
    """One method, of losses and where it is known."""

    name: str  # for the estimator and `--loss`
    title: str  # in papers
    paper: str  # author and year; the arXiv number of a new one
    needs: tuple[Needs, ...]  # costs and decisions of the data; a program with constraints, or a pool of decisions
    solves: str  # per instance and training step
    convex: bool  # in ŷ
    tune: str  # parameters apart from those of training
    code: str  # in which `solver`, `program` and `data` are yours
    layer: str  # the default one, of `LAYERS`; `OWN`, or empty for none
    make: Callable[[Materials], Loss]
    pyepo: str = ""  # its name in PyEPO
    study: str = ""  # its name in studies
    share: float = 1.0  # μ for "auto", as a share of the automatic one

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("layer", "make", "share")}

    def __str__(self) -> str:
        solves, convex = f"{self.solves} per instance and step", "yes" if self.convex else "no"
        lines = {"paper": self.paper, "needs": ", ".join(self.needs), "solves": solves, "convex": convex}
        lines |= {"to tune": self.tune, "code": self.code, "PyEPO": self.pyepo or "–", "studies": self.study or "–"}
        return "\n".join([f"{self.name}: {self.title}", *(f"  {name:<8} {value}" for name, value in lines.items())])


def with_squares(loss: Loss, p: int, scale: Scale, weight: float = SQUARES) -> Loss:
    """The loss plus weight · Σ (ŷ − y)² / mean |y|, summed over the p costs."""
    return loss + weight * p / (scale.costs or 1.0) * losses.MSE()


@dataclass(frozen=True)
class Materials:
    """The ingredients of losses."""

    loss: str
    through: str | Layer  # the layer, or one of `LAYERS`
    task: DecisionTask
    scale: Scale
    mu: Amount = "auto"  # in units of the costs, as σ; "auto": of `scale`
    sigma: Amount = "auto"
    step: Amount = "auto"  # of "davis-yin", or λ of "dbb" and "imle"; "auto" leaves it to the layer
    seed: int = 0  # of noise, and of the coins of a pool
    data: DecisionDataset | None = None  # training data, for losses that learn from it or keep a pool
    share: float = 1.0  # of the automatic μ

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.step == "auto" else {"step": self.step}

    @property
    def program(self) -> Program:
        if self.task.program is None:
            what = f"{self.loss!r} works on the constraints of a program, and {self.task.solver!r} knows none"
            raise OptionError(f"{what}: use layer='exact' or 'perturbed' with loss 'spo+', 'sce' or 'pfy'")
        return self.task.program

    @property
    def solver(self) -> Solver:
        return self.task.solver if self.through == "exact" else self.task.relaxed

    @property
    def noise(self) -> float:
        return self.scale.sigma if self.sigma == "auto" else self.sigma

    def smoothing(self, share: float | None = None) -> float:
        return (self.share if share is None else share) * self.scale.mu if self.mu == "auto" else self.mu

    def perturbed(self, samples: int, *, multiplicative: bool = False) -> Layer:
        noise = RELATIVE_SIGMA if multiplicative else self.noise
        return layers.Perturbed(self.solver, noise, samples, self.seed, multiplicative=multiplicative)

    @property
    def layer(self) -> Any:
        if not isinstance(self.through, str):
            return self.through
        if self.through in ("exact", "relaxed"):
            return layers.Exact(self.solver)
        if self.through == "perturbed":
            return self.perturbed(1)
        if self.through == "smoothed":
            return layers.Smoothed(self.program, self.smoothing())
        if self.through == "davis-yin":
            rule: Literal["implicit", "unrolled"] = "implicit" if self.program.predicts_rows else "unrolled"
            return layers.DavisYin(self.program, self.smoothing(), gradient=rule, **self.options)
        raise OptionError(f"layer is 'auto', one of {', '.join(LAYERS)}, or a Layer; got {self.through!r}")

    @property
    def pool(self) -> Layer:
        from dflearn.solvers.wrappers import Pooled

        known = None if self.data is None else self.data.decisions
        return layers.Exact(Pooled(self.solver, POOL_RATIO, per="batch", initial=known, generator=self.seed))

    @property
    def learned(self) -> Loss:
        if self.data is None:
            return losses.LODL.untaught(self.solver.objective.p)
        noise = LEARNED_SIGMA * self.scale.sigma if self.sigma == "auto" else self.sigma
        return losses.LODL.learn(self.data, self.solver, noise, generator=self.seed)

    @property
    def level(self) -> Any:
        from dflearn.tables.demand import critical_ratios

        ratios = None if self.task.program is None else critical_ratios(self.task.program)
        return 0.5 if ratios is None else ratios


_BOTH: tuple[Needs, ...] = ("costs", "decisions")
_ALL: tuple[Needs, ...] = (*_BOTH, "program")
_POOL = 'Exact(Pooled(solver, 0.1, per="batch", initial=data.decisions))'

METHODS = (
    MethodEntry("mse", "two-stage, squared error", "–", ("costs",), "0", True, "–", "MSE()", "", lambda _: losses.MSE(), study="MSE"),
    MethodEntry("sce", "SCE", "Mulamba et al. (2021), shifted", _ALL, "1 smoothed", False, "μ",
        "SCE(Smoothed(program, mu))", "smoothed", lambda of: losses.SCE(of.layer), study="SCE^smoothed"),
    MethodEntry("sce-own", "SCE with the smoothed program's own label", "Mulamba et al. (2021), own label", ("costs", "program"), "1 smoothed", False, "μ",
        'SCE(Smoothed(program, mu), label="smoothed")', "smoothed", lambda of: losses.SCE(of.layer, label="smoothed"), share=SHARP),
    MethodEntry("sce-plain", "SCE, plain", "Mulamba et al. (2021)", ("decisions", "program"), "1 smoothed", False, "μ",
        'SCE(Smoothed(program, mu), variant="plain")', "smoothed", lambda of: losses.SCE(of.layer, variant="plain")),
    MethodEntry("spo+", "SPO+", "Elmachtoub and Grigas (2022)", _BOTH, "1", True, "–",
        "SPOPlus(Exact(solver))", "relaxed", lambda of: losses.SPOPlus(of.layer), "SPOPlus", "SPO+^relax"),
    MethodEntry("smoothed-spo+", "SPO+ of the smoothed program", "Elmachtoub and Grigas (2022), smoothed", ("costs", "program"), "1 smoothed", True, "μ",
        "SmoothedSPOPlus(Smoothed(program, mu))", "smoothed", lambda of: losses.SmoothedSPOPlus(of.layer), study="sSPO+ own", share=SHARE),
    MethodEntry("smoothed-spo+mse", "SPO+ of the smoothed program, with a little squared error", "–", ("costs", "program"), "1 smoothed", True, "μ",
        "SmoothedSPOPlus(Smoothed(program, mu)) + 0.03 * MSE()", "smoothed",
        lambda of: with_squares(losses.SmoothedSPOPlus(of.layer), of.task.objective.p, of.scale), study="sSPO+ own, MSE", share=SHARE),
    MethodEntry("fenchel-young", "regularized Fenchel-Young (RFY)", "Blondel et al. (2020); Dalle et al. (2022)", ("decisions", "program"), "1 smoothed",
        True, "μ", "FenchelYoung(Smoothed(program, mu))", "smoothed", lambda of: losses.FenchelYoung(of.layer), "regularizedFrankWolfeFenchelYoung",
        "FY^smoothed"),
    MethodEntry("pfy", "perturbed Fenchel-Young (PFY)", "Berthet et al. (2020)", ("decisions",), "samples", True, "σ, samples",
        "FenchelYoung(Perturbed(solver, sigma, samples=10))", "perturbed", lambda of: losses.FenchelYoung(of.layer), "perturbedFenchelYoung",
        "PFY^relax"),
    MethodEntry("regret", "QPTL: regret through a smoothed problem", "Wilder et al. (2019); Ferber et al. (2020)", _ALL, "1 smoothed", False, "μ",
        "Regret(Smoothed(program, mu))", "smoothed", lambda of: losses.Regret(of.layer), "regularizedFrankWolfeOpt", "Regret^smoothed"),
    MethodEntry("intopt", "IntOpt: regret through a log barrier", "Mandi and Guns (2020)", _ALL, "1 barrier", False, "μ",
        "Regret(LogBarrier(program, mu))", OWN, lambda of: losses.Regret(layers.LogBarrier(of.program, of.smoothing(BARRIER))),
        study="Regret^barrier"),
    MethodEntry("sqde", "squared decision error", "McKenzie et al. (2024)", ("decisions", "program"), "1 smoothed", False, "μ",
        "SquaredDecisionError(Smoothed(program, mu))", "smoothed", lambda of: losses.SquaredDecisionError(of.layer), "regularizedFrankWolfeOpt",
        "SqDE^smoothed"),
    MethodEntry("cave", "CaVE", "Tang and Khalil (2024)", ("decisions", "program"), "1 projection", False, "–",
        "CaVE(program)", "", lambda of: losses.CaVE(of.program), "coneAlignedCosine", "CaVE exact"),
    MethodEntry("pfy-multiplicative", "PFY, multiplicative noise", "Dalle et al. (2022)", ("decisions",), "samples", True, "σ, samples",
        "FenchelYoung(Perturbed(solver, sigma, samples=10, multiplicative=True))", OWN_SOLVER,
        lambda of: losses.FenchelYoung(of.perturbed(1, multiplicative=True)), "perturbedFenchelYoungMul", "PFY^relax multiplicative"),
    MethodEntry("dpo", "differentiable perturbed optimizer (DPO)", "Berthet et al. (2020)", ("decisions",), "samples", False, "σ, samples",
        'SquaredDecisionError(Perturbed(solver, sigma, samples=10), reduction="mean")', OWN_SOLVER,
        lambda of: losses.SquaredDecisionError(of.perturbed(SAMPLES), reduction="mean"), "perturbedOpt", "DPO^relax"),
    MethodEntry("dpo-multiplicative", "DPO, multiplicative noise", "Dalle et al. (2022)", ("decisions",), "samples", False, "σ, samples",
        'SquaredDecisionError(Perturbed(solver, sigma, samples=10, multiplicative=True), reduction="mean")', OWN_SOLVER,
        lambda of: losses.SquaredDecisionError(of.perturbed(SAMPLES, multiplicative=True), reduction="mean"), "perturbedOptMul",
        "DPO^relax multiplicative"),
    MethodEntry("dbb", "differentiable black box (DBB)", "Vlastelica et al. (2020)", _BOTH, "2", False, "λ",
        "Regret(BlackBox(solver, step=10))", OWN_SOLVER, lambda of: losses.Regret(layers.BlackBox(of.solver, **of.options)), "blackboxOpt",
        "DBB^relax"),
    MethodEntry("nid", "negative identity (NID)", "Sahoo et al. (2023)", _BOTH, "1", False, "projection",
        'Regret(NegativeIdentity(solver, "norm"))', OWN_SOLVER, lambda of: losses.Regret(layers.NegativeIdentity(of.solver, "norm")),
        "negativeIdentity", "NID^relax"),
    MethodEntry("imle", "implicit MLE (I-MLE)", "Niepert et al. (2021)", _BOTH, "2 samples", False, "λ, σ, samples",
        "Regret(ImplicitMLE(solver, sigma, step=10, samples=10))", OWN_SOLVER,
        lambda of: losses.Regret(layers.ImplicitMLE(of.solver, of.noise, samples=SAMPLES, generator=of.seed, **of.options)), "implicitMLE",
        "IMLE^relax"),
    MethodEntry("aimle", "adaptive implicit MLE (AI-MLE)", "Minervini et al. (2023)", _BOTH, "2 samples", False, "σ, samples",
        "Regret(AdaptiveImplicitMLE(solver, sigma, samples=10))", OWN_SOLVER,
        lambda of: losses.Regret(layers.AdaptiveImplicitMLE(of.solver, of.noise, SAMPLES, of.seed)), "adaptiveImplicitMLE", "AIMLE^relax"),
    MethodEntry("pg", "perturbation gradient (PG)", "Huang and Gupta (2024)", ("costs",), "2", False, "h, difference",
        "PerturbationGradient(Exact(solver), width=0.1)", OWN_SOLVER, lambda of: losses.PerturbationGradient(layers.Exact(of.solver)),
        "perturbationGradient", "PG^relax"),
    MethodEntry("nce", "noise-contrastive estimation (NCE)", "Mulamba et al. (2021)", ("decisions", "pool"), "ratio", True, "ratio",
        f"NCE({_POOL})", OWN_SOLVER, lambda of: losses.NCE(of.pool), "noiseContrastiveEstimation", "NCE"),
    MethodEntry("cmap", "contrastive MAP (CMAP)", "Mulamba et al. (2021)", ("decisions", "pool"), "ratio", True, "ratio",
        f'SCE({_POOL}, variant="plain")', OWN_SOLVER, lambda of: losses.SCE(of.pool, variant="plain"), "contrastiveMAP", "CMAP"),
    MethodEntry("ltr-pointwise", "learning to rank, pointwise", "Mandi et al. (2022)", ("costs", "pool"), "ratio", True, "ratio",
        f'Ranking({_POOL}, "pointwise")', OWN_SOLVER, lambda of: losses.Ranking(of.pool, "pointwise"), "pointwiseLearningToRank", "LTR pointwise"),
    MethodEntry("ltr-pairwise", "learning to rank, pairwise", "Mandi et al. (2022)", ("costs", "pool"), "ratio", True, "ratio, ν",
        f'Ranking({_POOL}, "pairwise")', OWN_SOLVER, lambda of: losses.Ranking(of.pool, "pairwise"), "pairwiseLearningToRank", "LTR pairwise"),
    MethodEntry("ltr-listwise", "learning to rank, listwise", "Mandi et al. (2022)", ("costs", "pool"), "ratio", True, "ratio, τ",
        f'Ranking({_POOL}, "listwise")', OWN_SOLVER, lambda of: losses.Ranking(of.pool, "listwise"), "listwiseLearningToRank", "LTR listwise"),
    MethodEntry("lodl", "LODL: squared error with learned weights", "Shah et al. (2022)", ("costs",), "0", True, "σ",
        "LODL.learn(data, solver, sigma)", OWN_SOLVER, lambda of: of.learned, study="LODL"),
    MethodEntry("lava", "LAVA", "Berden et al. (2025), arXiv 2505.22224", ("decisions", "program"), "0", True, "ε",
        "LAVA(program, margin=0.1)", "", lambda of: losses.LAVA(of.program, MARGIN * of.scale.objective * of.scale.decisions), study="LAVA"),
    MethodEntry("pear", "PEAR", "Lee et al. (2026), arXiv 2605.01361", _ALL, "1 smoothed", False, "μ, β",
        "PEAR(Smoothed(program, mu))", "smoothed", lambda of: losses.PEAR(of.layer), study="PEAR"),
    MethodEntry("cost-sensitive", "cost-sensitive regression", "Schutte et al. (2026), arXiv 2605.18005", _ALL, "0", True, "κ",
        "CostSensitive(program, harmless=0.1)", "", lambda of: losses.CostSensitive(of.program), study="cost-sensitive"),
    MethodEntry("task", "the cost after recourse, through a smoothed problem", "Donti et al. (2017)", ("costs", "program"), "1 smoothed, 1", False, "μ",
        "TaskLoss(Smoothed(program, mu))", "smoothed", lambda of: losses.TaskLoss(of.layer)),
    MethodEntry("score-function", "score-function estimate of that cost (SFGE)", "Silvestri et al. (2024)", ("costs",), "samples", False, "σ, samples",
        "ScoreFunction(Exact(solver), sigma, samples=8)", OWN_SOLVER,
        lambda of: losses.ScoreFunction(layers.Exact(of.solver), of.noise, generator=of.seed)),
    MethodEntry("quantile", "two-stage, quantiles", "Koenker and Bassett (1978); the newsvendor's critical ratio", ("costs",), "0", True, "τ",
        "Quantile(level=0.9)", "", lambda of: losses.Quantile(of.level)),
)  # fmt: skip

LOSSES = tuple(entry.name for entry in METHODS)
WITHOUT_SOLVES = ("mse", "quantile")  # which no decisions of the data enter, nor the automatic μ
WITH_PREDICTED_ROWS = ("task", "score-function", "quantile", "mse")  # defined there; the default first
LAYERS = {
    "smoothed": "the LP relaxation with (μ/2)‖w‖² added, solved exactly, with its exact gradient",
    "davis-yin": "the same by 100 iterations of Davis-Yin splitting, differentiated through all of them",
    "perturbed": "the mean decision of the relaxation under noise of scale σ on the costs",
    "relaxed": "the LP relaxation as it is, with gradient zero: subgradients only",
    "exact": "the true program as it is, with gradient zero: subgradients only, and the slowest",
}


def default_losses(task: DecisionTask, with_costs: bool = True) -> tuple[str, ...]:
    """The loss of "auto": SPO+ of the smoothed program with a little squared error (results/default says why).

    "task" if right-hand sides are predicted. SPO+ if a function decides. Without costs, a Fenchel-Young loss.
    """
    if task.program is None:
        return ("spo+" if with_costs else "pfy",)
    if not with_costs:
        return ("fenchel-young",)
    return ("task",) if task.program.predicts_rows else ("smoothed-spo+mse",)


def make_loss(loss: str | Loss, layer: str | Layer, task: DecisionTask, scale: Scale, **options: Any) -> Loss:
    """The loss of that name, one of `LOSSES`, through the layer of that name, one of `LAYERS`; objects pass through.

    "quantile" is at the critical ratios of the program, or else at the median. options: those of `Materials`.
    """
    if not isinstance(loss, str):
        return loss
    entry = next((entry for entry in METHODS if entry.name == loss), None)
    if entry is None:
        raise OptionError(f"loss is one of {', '.join(LOSSES)}, or a Loss; got {loss!r}")
    check_rows(task.program, [loss])
    if entry.layer == OWN_SOLVER and layer not in ("auto", "relaxed", "exact"):
        one_of = "'auto' or 'relaxed' for that of the relaxation, or 'exact'"
        raise OptionError(f"loss {loss!r} brings its own layer around a solver: layer is {one_of}; got {layer!r}")
    if entry.layer == OWN and layer != "auto":
        raise OptionError(f"loss {loss!r} brings its own layer: layer is 'auto'; got {layer!r}")
    through = entry.layer if layer == "auto" else layer
    return entry.make(Materials(loss, through, task, scale, share=entry.share, **options))


def check_choices(losses: Sequence[str], layer: str) -> None:
    """An error before anything is read or solved."""
    if isinstance(losses, str):
        raise OptionError(f"losses are several names: write losses=[{losses!r}]")
    known = {"loss": [loss for loss in LOSSES if loss != "mse"], "layer": ["auto", *LAYERS]}
    for name, one in [*(("loss", loss) for loss in losses), ("layer", layer)]:
        if one not in known[name]:
            raise OptionError(f"{name} is one of {', '.join(known[name])}; got {one!r}")


def losses_for(program: Program, losses: Sequence[str] | None) -> tuple[str, ...]:
    """The losses of `train`: those given, or the default; an error if one is not defined for this program."""
    if losses is None:
        settled = program.predicts_rows or program.recourse is not None
        return ("task", "quantile") if settled else ("smoothed-spo+", "sce")
    check_rows(program, losses)
    return tuple(losses)


def check_rows(program: Program | None, losses: Sequence[str]) -> None:
    """An error if the program predicts right-hand sides, and a loss is not defined there."""
    wrong = [loss for loss in losses if loss not in WITH_PREDICTED_ROWS]
    if program is not None and program.predicts_rows and wrong:
        raise OptionError(
            f"loss {wrong[0]!r} is not defined where right-hand sides are predicted, since what is optimal for the truth may be "
            f"infeasible for the prediction: use {', '.join(map(repr, WITH_PREDICTED_ROWS[:-1]))}"
        )
