"""The one table of methods: what each is called, here and elsewhere, what it needs, what it costs, and its line of code.

The estimator, `dfl train --loss`, `dfl methods` and docs/methods.md read it; nothing heavy is loaded for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dflearn.errors import OptionError

Needs = Literal["costs", "decisions", "program", "pool"]


@dataclass(frozen=True)
class MethodEntry:
    """One method.

    Attributes:
        name: what the estimator and `--loss` take.
        title: what papers call it.
        paper: author and year, with the arXiv number where the paper is new.
        needs: of the data, costs and decisions; besides, a program (constraints to look at, not a function that decides)
            or a pool of decisions.
        solves: per instance and training step; 1/μ stands for one smoothed solve.
        convex: whether the loss is convex in ŷ.
        tune: the parameters, apart from those of training.
        code: the line of code; in it `solver`, `program` and `data` are yours.
        pyepo: its name in PyEPO, or nothing.
        study: its name in studies.
    """

    name: str
    title: str
    paper: str
    needs: tuple[Needs, ...]
    solves: str
    convex: bool
    tune: str
    code: str
    pyepo: str = ""
    study: str = ""


_BOTH: tuple[Needs, ...] = ("costs", "decisions")
_POOL = 'Exact(Pooled(solver, 0.1, per="batch", initial=data.decisions))'

METHODS = (
    MethodEntry("mse", "two-stage, squared error", "–", ("costs",), "0", True, "–", "MSE()", "", "MSE"),
    MethodEntry(
        "sce", "SCE", "Mulamba et al. (2021), shifted", (*_BOTH, "program"), "1 smoothed", False, "μ",
        "SCE(Smoothed(program, mu))", "", "SCE^smoothed",
    ),
    MethodEntry(
        "sce-plain", "SCE, plain", "Mulamba et al. (2021)", ("decisions", "program"), "1 smoothed", False, "μ",
        'SCE(Smoothed(program, mu), variant="plain")',
    ),
    MethodEntry(
        "spo+", "SPO+", "Elmachtoub and Grigas (2022)", _BOTH, "1", True, "–",
        "SPOPlus(Exact(solver))", "SPOPlus", "SPO+^relax",
    ),
    MethodEntry(
        "smoothed-spo+", "smoothed SPO+", "Fenchel-Young loss at 2ŷ − y", (*_BOTH, "program"), "1 smoothed", True, "μ",
        "SmoothedSPOPlus(Smoothed(program, mu))", "", "sSPO+",
    ),
    MethodEntry(
        "fenchel-young", "regularized Fenchel-Young (RFY)", "Blondel et al. (2020); Dalle et al. (2022)",
        ("decisions", "program"), "1 smoothed", True, "μ",
        "FenchelYoung(Smoothed(program, mu))", "regularizedFrankWolfeFenchelYoung", "FY^smoothed",
    ),
    MethodEntry(
        "pfy", "perturbed Fenchel-Young (PFY)", "Berthet et al. (2020)", ("decisions",), "samples", True, "σ, samples",
        "FenchelYoung(Perturbed(solver, sigma, samples=10))", "perturbedFenchelYoung", "PFY^relax",
    ),
    MethodEntry(
        "regret", "QPTL: regret through a smoothed problem", "Wilder et al. (2019); Ferber et al. (2020)",
        (*_BOTH, "program"), "1 smoothed", False, "μ",
        "Regret(Smoothed(program, mu))", "regularizedFrankWolfeOpt", "Regret^smoothed",
    ),
    MethodEntry(
        "intopt", "IntOpt: regret through a log barrier", "Mandi and Guns (2020)", (*_BOTH, "program"), "1 barrier", False, "μ",
        "Regret(LogBarrier(program, mu))", "", "Regret^barrier",
    ),
    MethodEntry(
        "sqde", "squared decision error", "McKenzie et al. (2024)", ("decisions", "program"), "1 smoothed", False, "μ",
        "SquaredDecisionError(Smoothed(program, mu))", "regularizedFrankWolfeOpt", "SqDE^smoothed",
    ),
    MethodEntry(
        "cave", "CaVE", "Tang and Khalil (2024)", ("decisions", "program"), "1 projection", False, "–",
        "CaVE(program)", "coneAlignedCosine", "CaVE exact",
    ),
    MethodEntry(
        "pfy-multiplicative", "PFY, multiplicative noise", "Dalle et al. (2022)", ("decisions",), "samples", True,
        "σ, samples", "FenchelYoung(Perturbed(solver, sigma, samples=10, multiplicative=True))",
        "perturbedFenchelYoungMul", "PFY^relax multiplicative",
    ),
    MethodEntry(
        "dpo", "differentiable perturbed optimizer (DPO)", "Berthet et al. (2020)", ("decisions",), "samples", False,
        "σ, samples", 'SquaredDecisionError(Perturbed(solver, sigma, samples=10), reduction="mean")',
        "perturbedOpt", "DPO^relax",
    ),
    MethodEntry(
        "dpo-multiplicative", "DPO, multiplicative noise", "Dalle et al. (2022)", ("decisions",), "samples", False,
        "σ, samples", 'SquaredDecisionError(Perturbed(solver, sigma, samples=10, multiplicative=True), reduction="mean")',
        "perturbedOptMul", "DPO^relax multiplicative",
    ),
    MethodEntry(
        "dbb", "differentiable black box (DBB)", "Vlastelica et al. (2020)", _BOTH, "2", False, "λ",
        "Regret(BlackBox(solver, step=10))", "blackboxOpt", "DBB^relax",
    ),
    MethodEntry(
        "nid", "negative identity (NID)", "Sahoo et al. (2023)", _BOTH, "1", False, "projection",
        'Regret(NegativeIdentity(solver, "norm"))', "negativeIdentity", "NID^relax",
    ),
    MethodEntry(
        "imle", "implicit MLE (I-MLE)", "Niepert et al. (2021)", _BOTH, "2 samples", False, "λ, σ, samples",
        "Regret(ImplicitMLE(solver, sigma, step=10, samples=10))", "implicitMLE", "IMLE^relax",
    ),
    MethodEntry(
        "aimle", "adaptive implicit MLE (AI-MLE)", "Minervini et al. (2023)", _BOTH, "2 samples", False, "σ, samples",
        "Regret(AdaptiveImplicitMLE(solver, sigma, samples=10))", "adaptiveImplicitMLE", "AIMLE^relax",
    ),
    MethodEntry(
        "pg", "perturbation gradient (PG)", "Huang and Gupta (2024)", ("costs",), "2", False, "h, difference",
        "PerturbationGradient(Exact(solver), width=0.1)", "perturbationGradient", "PG^relax",
    ),
    MethodEntry(
        "nce", "noise-contrastive estimation (NCE)", "Mulamba et al. (2021)", ("decisions", "pool"), "ratio", True,
        "ratio", f"NCE({_POOL})", "noiseContrastiveEstimation", "NCE",
    ),
    MethodEntry(
        "cmap", "contrastive MAP (CMAP)", "Mulamba et al. (2021)", ("decisions", "pool"), "ratio", True, "ratio",
        f'SCE({_POOL}, variant="plain")', "contrastiveMAP", "CMAP",
    ),
    *(
        MethodEntry(
            f"ltr-{kind}", f"learning to rank, {kind}", "Mandi et al. (2022)", ("costs", "pool"), "ratio", True,
            f"ratio{extra}", f'Ranking({_POOL}, "{kind}")', f"{kind}LearningToRank", f"LTR {kind}",
        )
        for kind, extra in (("pointwise", ""), ("pairwise", ", ν"), ("listwise", ", τ"))
    ),
    MethodEntry(
        "lodl", "LODL: squared error with learned weights", "Shah et al. (2022)", ("costs",), "0", True, "σ",
        "LODL.learn(data, solver, sigma)", "", "LODL",
    ),
    MethodEntry(
        "lava", "LAVA", "Berden et al. (2025), arXiv 2505.22224", ("decisions", "program"), "0", True, "ε",
        "LAVA(program, margin=0.1)", "", "LAVA",
    ),
    MethodEntry(
        "pear", "PEAR", "Lee et al. (2026), arXiv 2605.01361", (*_BOTH, "program"), "1 smoothed", False, "μ, β",
        "PEAR(Smoothed(program, mu))", "", "PEAR",
    ),
    MethodEntry(
        "cost-sensitive", "cost-sensitive regression", "Schutte et al. (2026), arXiv 2605.18005", (*_BOTH, "program"),
        "0", True, "κ", "CostSensitive(program, harmless=0.1)", "", "cost-sensitive",
    ),
    MethodEntry(
        "task", "the cost after recourse, through a smoothed problem", "Donti et al. (2017)", ("costs", "program"),
        "1 smoothed, 1", False, "μ", "TaskLoss(Smoothed(program, mu))",
    ),
    MethodEntry(
        "score-function", "score-function estimate of that cost (SFGE)", "Silvestri et al. (2024)", ("costs",),
        "samples", False, "σ, samples", "ScoreFunction(Exact(solver), sigma, samples=8)",
    ),
    MethodEntry(
        "quantile", "two-stage, quantiles", "Koenker and Bassett (1978); the newsvendor's critical ratio", ("costs",),
        "0", True, "τ", "Quantile(level=0.9)",
    ),
)  # fmt: skip

LOSSES = tuple(entry.name for entry in METHODS)
WITH_PREDICTED_ROWS = (
    "task",
    "score-function",
    "quantile",
    "mse",
)  # those that are defined for them, the default first


LAYERS = {
    "smoothed": "the LP relaxation with (μ/2)‖w‖² added, solved exactly, with its exact gradient",
    "davis-yin": "the same by 100 iterations of Davis-Yin splitting, differentiated through all of them",
    "perturbed": "the mean decision of the relaxation under noise of scale σ on the costs",
    "relaxed": "the LP relaxation as it is, with gradient zero: subgradients only",
    "exact": "the true program as it is, with gradient zero: subgradients only, and the slowest",
}


def check_choices(losses: Sequence[str], layer: str) -> None:
    """Told before anything is read or solved."""
    for name, asked, known in (
        ("loss", losses, [loss for loss in LOSSES if loss != "mse"]),
        ("layer", [layer], ["auto", *LAYERS]),
    ):
        unknown = [one for one in asked if one not in known]
        if unknown:
            raise OptionError(f"{name} is one of {', '.join(known)}; got {unknown[0]!r}")


def default_losses(*, settled: bool) -> tuple[str, ...]:
    """What `train` trains with; settled: right-hand sides are predicted, or something is decided once the truth is known."""
    return ("task", "quantile") if settled else ("smoothed-spo+", "sce")


def check_rows(losses: Sequence[str]) -> None:
    """Told where right-hand sides are predicted, for which most losses are not defined."""
    wrong = [loss for loss in losses if loss not in WITH_PREDICTED_ROWS]
    if wrong:
        raise OptionError(
            f"loss {wrong[0]!r} is not defined where right-hand sides are predicted, since what is optimal for the truth may be "
            f"infeasible for the prediction: use {', '.join(map(repr, WITH_PREDICTED_ROWS[:-1]))}"
        )
