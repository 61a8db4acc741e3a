"""The methods that reproduce the paper's authors, beside those of `dflearn.studies.builtin`.

SCE^DYS             the authors' code: what the published figures come from; its iterates by sparse rows
SCE^DYS dense       the same by the authors' dense matrices: equal but for rounding, and slow
SCE^DYS printed     the same with the hyperparameters of the text, which differ in a few places
SCE^DYS clean       the text's algorithm on our layer: bounds kept as bounds, from zero, Jacobian-free gradient
SCE^DYS unrolled    that layer, differentiated through all iterations
SCE^CVX             the exactly solved smoothed problem, on our layer with the authors' regularizer μ‖w‖₂
SCE^CVX cvxpylayers the same through cvxpylayers, as a check
CaVE                three steps of Clarabel, as the authors have it

The published figures come from the code, so methods "as published" use the code's hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import OptionError
from dflearn.layers import CvxpySmoothed, DavisYin, Layer, Smoothed
from dflearn.losses import SquaredDecisionError
from dflearn.program import Instance, Objective
from dflearn.solvers.base import Solution
from dflearn.studies.builtin import THROUGH_LAYERS
from dflearn.studies.methods import Plain, Prepared, RunContext, add
from dflearn.studies.paper.as_published import AsPublished, CaVEAsPublished, SparseAsPublished

# Methods with a row "… scaled" in the tables.
SCALED = ("MSE", "SPO+^relax", "PFY", "SCE^DYS unrolled", "SCE^smoothed", "sSPO+")
ROWS_AT_A_TIME = 256  # instances in a batch of smoothed labels
AUTHORS = "DYS-Net as in the authors' code"

ITERATIONS = 100  # of DYS-Net, in text and code
ALPHA = 0.01

# τ of DYS-Net as the text prints it, for all four losses; zero where a problem is not listed.
PRINTED_TAU = {"SP-10": 1.0, "KP-100": 1.0, "CFL-50": 0.1, "CFL-100": 0.1, "CFL-200": 0.1, "CFL-250": 0.1}
# Where the code has other values than the text.
CODE_TAU = {("SP-15", "SCE"): 1.0, ("SP-5", "SPO+"): 1.0}
CODE_ALPHA = {("KP-100", "SPO+"): 0.1, ("KP-100", "SqDE"): 0.1}

# τ of the exactly solved smoothed problem (CVX): for Regret, SqDE and SCE, then for SPO+; one for problems not listed.
# The tables have no CVX rows beyond SP-10, KP-200 and CFL-100; the code has values for them all the same.
CVX_TAU = {
    "SP-5": (1.0, 0.1), "SP-10": (0.1, 0.01), "SP-15": (0.1, 0.01), "SP-25": (0.1, 0.1),
    "KP-100": (1.0, 0.01), "KP-200": (1.0, 0.1), "KP-400": (1.0, 0.1), "KP-500": (1.0, 0.1),
    "CFL-50": (1.0, 0.1), "CFL-100": (10.0, 10.0), "CFL-200": (1.0, 1.0), "CFL-250": (1.0, 1.0),
}  # fmt: skip
CVX_TAU_OTHER = {("KP-400", "SqDE"): 0.1}  # the one place where SqDE has a value of its own


def dys_printed(problem: str) -> dict[str, Plain]:
    return {"tau": PRINTED_TAU.get(problem, 0.0), "alpha": ALPHA, "iterations": ITERATIONS}


def dys_in_code(problem: str, loss: str) -> dict[str, Plain]:
    other = {"tau": CODE_TAU.get((problem, loss)), "alpha": CODE_ALPHA.get((problem, loss))}
    return dys_printed(problem) | {name: value for name, value in other.items() if value is not None}


def cvx_tau(problem: str, loss: str) -> float:
    others, spo = CVX_TAU.get(problem, (1.0, 1.0))
    return CVX_TAU_OTHER.get((problem, loss), spo if loss == "SPO+" else others)


def dys_parameters(loss: str, printed: bool, problem: str) -> dict[str, Plain]:
    """Those of the code or of the text; knapsacks train on decisions of the relaxation."""
    own = dys_printed(problem) if printed else dys_in_code(problem, loss)
    return {**own, "labels": "relaxed" if problem.startswith("KP") else "exact"}


def _cvx_parameters(loss: str, problem: str) -> dict[str, Plain]:
    """For facility location, the labels of the authors' code are the layer's own decisions at the true costs."""
    return {"tau": cvx_tau(problem, loss), "labels": "smoothed" if problem.startswith("CFL") else "exact"}


def _our_parameters(gradient: str, problem: str) -> dict[str, Plain]:
    return {**dys_printed(problem), "gradient": gradient}


class PredictedPart(Layer):
    """v = Sᵀ w of another layer's decision w, `(*batch, p)`: the part of a decision that predicted costs multiply.

    The authors' DYS losses use this part only: obj(y, v) = yᵀv, without the known costs d. In facility location v is the
    amounts carried and d the opening costs; elsewhere v is w up to its sign.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__(Objective(layer.objective.p))
        self.layer = layer

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = self.layer.solve(y, instance, start)
        return replace(solution, decision=self.layer.objective.transpose(solution.decision))


def labelled(context: RunContext, layer: Layer | None = None) -> DecisionDataset:
    """The training data with the decisions of the parameter `labels`; "smoothed" are those of `layer`."""
    kind, known = context.parameters["labels"], ["exact", "relaxed", *([] if layer is None else ["smoothed"])]
    if kind == "exact":
        return context.train
    if kind == "relaxed":
        return label(context.train, context.relaxed_solver(), progress=False)
    if kind != "smoothed" or layer is None:
        raise OptionError(f"labels are {' or '.join(map(repr, known))} for this method, got {kind!r}")
    assert context.train.costs is not None
    with torch.no_grad():
        parts = [layer(costs) for costs in context.train.costs.split(ROWS_AT_A_TIME)]
    return context.train.with_decisions(torch.cat(parts))


def as_published(loss: str, make: Callable[..., Layer], context: RunContext) -> Prepared:
    """DYS-Net as in the authors' code, on the layer of `make`; SqDE is averaged."""
    own = context.parameters
    train = labelled(context)
    assert train.decisions is not None
    layer = make(context.problem, own["tau"], own["alpha"], own["iterations"], generator=context.generator())
    part = PredictedPart(layer)
    train = train.with_decisions(context.problem.program.objective.transpose(train.decisions))
    made = SquaredDecisionError(part, reduction="mean") if loss == "SqDE" else THROUGH_LAYERS[loss](part)
    return Prepared(made, train, solver_name=type(layer).__name__)


def _as_printed(loss: str, context: RunContext) -> Prepared:
    own = context.parameters
    mu, step = context.cost("tau"), own["alpha"] / context.unit
    layer = DavisYin(context.problem.program, mu, step, own["iterations"], gradient=own["gradient"])
    return Prepared(THROUGH_LAYERS[loss](layer), context.train)


def _cvx(loss: str, make: Callable[..., Layer], context: RunContext) -> Prepared:
    layer = make(context.problem.program, context.parameters["tau"], regularizer="norm")
    return Prepared(THROUGH_LAYERS[loss](layer), labelled(context, layer))


def _cave(context: RunContext) -> Prepared:
    loss = CaVEAsPublished(context.problem.program, context.parameters["iterations"])
    return Prepared(loss, context.train, solver_name="Clarabel onto the cone")


# -- the methods ------------------------------------------------------------------------------------------------------

add("CaVE", "angle to the cone of binding constraints, three steps of Clarabel", _cave, iterations=3)
for _loss in THROUGH_LAYERS:
    _tau, _about = partial(_cvx_parameters, _loss), "exact smoothed problem with μ‖w‖₂"
    add(f"{_loss}^CVX", _about, partial(_cvx, _loss, Smoothed), _tau)
    add(f"{_loss}^CVX cvxpylayers", f"{_about}, by cvxpylayers", partial(_cvx, _loss, CvxpySmoothed), _tau)
    _sparse, _dense = (partial(as_published, _loss, kind) for kind in (SparseAsPublished, AsPublished))
    _code, _text = (partial(dys_parameters, _loss, printed) for printed in (False, True))
    add(f"{_loss}^DYS", AUTHORS, _sparse, _code)
    add(f"{_loss}^DYS dense", f"{AUTHORS}, by dense matrices as there", _dense, _code)
    add(f"{_loss}^DYS printed", f"{AUTHORS}, hyperparameters of the text", _sparse, _text)
    _clean, _unrolled = (partial(_our_parameters, gradient) for gradient in ("jfb", "unrolled"))
    _ours, _about = partial(_as_printed, _loss), "DYS-Net as in the text, differentiated through all iterations"
    add(f"{_loss}^DYS clean", "DYS-Net as in the text, on our layer", _ours, _clean)
    add(f"{_loss}^DYS unrolled", _about, _ours, _unrolled, scaled=_loss == "SCE")
