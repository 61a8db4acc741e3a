"""The methods of the field study: by their names there, what is tuned, and the five values that are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dflearn.data.labels import label_by_neighbours
from dflearn.data.scale import Scale
from dflearn.layers import Exact, Layer, Smoothed
from dflearn.losses import MSE, SCE, SmoothedSPOPlus, SPOPlus
from dflearn.losses.base import Loss
from dflearn.studies.builtin import Prepare, relaxed, smoothed
from dflearn.studies.methods import Prepared, RunContext

RATES = (0.002, 0.006, 0.02, 0.06, 0.2)
SHARES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of μ: times `Scale.mu`; of σ, ε, τ, ν: times mean |y|
MARGINS = (0.01, 0.03, 0.1, 0.3, 1.0)
SAMPLES = 5


@dataclass(frozen=True)
class FieldMethod:
    """One method of the study.

    Attributes:
        name: in its tables.
        study: in the registry of studies, where `prepare` is not given.
        tuned: the parameter whose values are tried, or "learning rate".
        trials: these values.
        solves: per instance and step.
        family: what stands behind it, for figures.
        quadratic: whether it is defined for quadratic objectives and cheap there.
    """

    name: str
    study: str
    tuned: str = "learning rate"
    trials: tuple[float, ...] = RATES
    solves: float = 0
    family: str = "convex"
    quadratic: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    prepare: Prepare | None = None


def _plain(layer: Layer) -> SCE:
    return SCE(layer, variant="plain")


def _with_squared_error(loss: Callable[[Smoothed], Any]) -> Prepare:
    """The loss, and a share of the squared error: summed over the costs, in units of the costs."""

    def prepare(context: RunContext) -> Prepared:
        program, unit = context.problem.program, context.unit
        scale = Scale.of(program.objective, context.train)
        weight = float(context.parameters["share"]) * program.p / unit
        return Prepared(loss(Smoothed(program, scale.mu)) + weight * MSE(), context.train)

    return prepare


def _of_neighbours(*losses: Callable[[RunContext, float], Loss], squared: float = 0.0) -> Prepare:
    """The sum of the losses, of the context and a μ, and a share of the squared error, on labels of neighbours."""

    def prepare(context: RunContext) -> Prepared:
        own, program = context.parameters, context.problem.program
        mu = Scale.of(program.objective, context.train).mu
        loss: Any = losses[0](context, mu)
        for other in losses[1:]:
            loss = loss + other(context, mu)
        if squared:
            loss = loss + squared * program.p / context.unit * MSE()
        train = label_by_neighbours(context.train, relaxed(context), own["k"], own["share"], progress=False)
        return Prepared(loss, train)

    return prepare


def _sce(context: RunContext, mu: float) -> Loss:
    return SCE(Smoothed(context.problem.program, mu))


def _smoothed_spo(context: RunContext, mu: float) -> Loss:
    return SmoothedSPOPlus(Smoothed(context.problem.program, mu))


def _spo(context: RunContext, mu: float) -> Loss:
    return SPOPlus(Exact(relaxed(context)))


_of_mu: dict[str, Any] = {"tuned": "mu", "trials": SHARES, "solves": 1, "quadratic": True}
_noisy: dict[str, Any] = {"tuned": "sigma", "trials": SHARES, "solves": SAMPLES, "fixed": {"samples": SAMPLES}}
_implicit: dict[str, Any] = {**_noisy, "solves": 2 * SAMPLES, "fixed": {"samples": SAMPLES, "noise": "gumbel"}}
_pool: dict[str, Any] = {"solves": 0.1, "family": "pool"}
_weighted: dict[str, Any] = {"tuned": "share", "trials": (0.003, 0.01, 0.03, 0.1, 0.3), "solves": 1, "family": "ours"}
_kept: dict[str, Any] = {"tuned": "share", "trials": (0.1, 0.3, 0.5, 0.7, 0.9), "fixed": {"k": 10}}

METHODS = (
    FieldMethod("MSE", "MSE", family="prediction", quadratic=True),
    FieldMethod("cost-sensitive", "cost-sensitive", "harmless", (0.01, 0.03, 0.1, 0.3, 0.6), family="prediction"),
    FieldMethod("SPO+", "SPO+^relax", solves=1),
    FieldMethod("sSPO+", "sSPO+", **_of_mu, family="ours"),
    FieldMethod("RFY", "FY^smoothed", **_of_mu),
    FieldMethod("PFY", "PFY^relax", **_noisy),
    FieldMethod("PFY multiplicative", "PFY^relax multiplicative", **_noisy),
    FieldMethod("SCE", "SCE^smoothed", **_of_mu, family="ours"),
    FieldMethod("SCE plain", "", **_of_mu, family="ours", prepare=smoothed(_plain)),
    FieldMethod("QPTL", "Regret^smoothed", **_of_mu, family="direct"),
    FieldMethod("SqDE", "SqDE^smoothed", **_of_mu, family="direct"),
    FieldMethod("PEAR", "PEAR", "mu", SHARES, 1, "direct", fixed={"injection": 0.1}),
    FieldMethod("CaVE", "CaVE exact", solves=1, family="convex"),
    FieldMethod("LAVA", "LAVA", "margin", MARGINS, fixed={"bases": 20, "directions": 0}),
    FieldMethod("LAVA directions", "LAVA", "margin", MARGINS, fixed={"bases": 20, "directions": 100}),
    FieldMethod("DPO", "DPO^relax", **_noisy, family="direct"),
    FieldMethod("DPO multiplicative", "DPO^relax multiplicative", **_noisy, family="direct"),
    FieldMethod("DBB", "DBB^relax", "step", (1.0, 3.0, 10.0, 30.0, 100.0), 2, "direct"),
    FieldMethod("NID", "NID^relax", solves=1, family="direct"),
    FieldMethod("I-MLE", "IMLE^relax", **_implicit, family="direct"),
    FieldMethod("AI-MLE", "AIMLE^relax", **_implicit, family="direct"),
    FieldMethod("PG", "PG^relax", "width", SHARES, 2, "direct"),
    FieldMethod("NCE", "NCE", **_pool),
    FieldMethod("CMAP", "CMAP", **_pool),
    FieldMethod("LTR pointwise", "LTR pointwise", **_pool),
    FieldMethod("LTR pairwise", "LTR pairwise", "margin", (0.0, 0.1, 0.3, 1.0, 3.0), **_pool),
    FieldMethod("LTR listwise", "LTR listwise", "temperature", SHARES, **_pool),
    FieldMethod("LODL", "LODL", "sigma", SHARES, fixed={"samples": 50}, family="prediction"),
    FieldMethod("SPO+ kNN", "SPO+^relax kNN", **_kept, solves=1),
    FieldMethod("IntOpt", "Regret^barrier", "mu", (0.01, 0.03, 0.1, 0.3, 1.0), 1, "direct", quadratic=True),
    FieldMethod("sSPO+ with MSE", "", **_weighted, prepare=_with_squared_error(SmoothedSPOPlus)),
    FieldMethod("SCE with MSE", "", **_weighted, prepare=_with_squared_error(SCE)),
    FieldMethod("SCE kNN", "", **_kept, solves=1, family="ours", prepare=_of_neighbours(_sce)),
    FieldMethod("SCE kNN with MSE", "", **_kept, solves=1, family="ours", prepare=_of_neighbours(_sce, squared=0.03)),
    FieldMethod("sSPO+ kNN", "", **_kept, solves=1, family="ours", prepare=_of_neighbours(_smoothed_spo)),
    FieldMethod("SPO+ kNN with MSE", "", **_kept, solves=1, prepare=_of_neighbours(_spo, squared=0.03)),
    FieldMethod("SPO+ and SCE kNN", "", **_kept, solves=2, family="ours", prepare=_of_neighbours(_spo, _sce, squared=0.03)),
)  # fmt: skip
