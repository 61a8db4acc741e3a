"""The methods that reproduce the paper's authors, beside those of `dflearn.studies.builtin`.

SCE^DYS             the authors' code: what the published figures come from; its iterates by our kernel
SCE^DYS dense       the same by the authors' dense matrices: equal but for rounding, and slow
SCE^DYS printed     the same with the hyperparameters of the text, which differ in a few places
SCE^DYS clean       the text's algorithm on our layer: bounds kept as bounds, from zero, Jacobian-free gradient
SCE^DYS unrolled    that layer, differentiated through all iterations
SCE^CVX             the exactly solved smoothed problem, on our layer with the authors' regularizer μ‖w‖₂
SCE^CVX cvxpylayers the same through cvxpylayers, as a check
CaVE                three steps of Clarabel, as the authors have it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import OptionError
from dflearn.layers import CvxpySmoothed, DavisYin, Layer, Smoothed
from dflearn.losses import SquaredDecisionError
from dflearn.paper import hyperparameters as published
from dflearn.paper.as_published import AsPublished, SparseAsPublished
from dflearn.paper.cave import CaVEAsPublished
from dflearn.program import Instance, Objective
from dflearn.solvers.base import Solution
from dflearn.studies.builtin import THROUGH_LAYERS, Prepare, fixed, register_scaled
from dflearn.studies.methods import Method, Plain, Prepared, RunContext, register

SCALED = ("MSE", "SPO+^relax", "PFY", "SCE^DYS unrolled", "SCE^smoothed", "sSPO+")  # those with a version "scaled"
ROWS_AT_A_TIME = 256  # instances whose smoothed labels are computed at once


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


def labelled(context: RunContext, layer: Layer | None = None) -> DecisionDataset:
    """The training data with the decisions that the parameter `labels` names; "smoothed" are those of `layer`."""
    kind = context.parameters["labels"]
    if kind == "exact":
        return context.train
    if kind == "relaxed":
        return label(context.train, context.problem.relaxed_solver(), progress=False)
    if kind != "smoothed" or layer is None:
        known = "'exact' or 'relaxed'" if layer is None else "'exact', 'relaxed' or 'smoothed'"
        raise OptionError(f"labels are {known} for this method, got {kind!r}")
    assert context.train.costs is not None
    with torch.no_grad():
        parts = [layer(costs) for costs in context.train.costs.split(ROWS_AT_A_TIME)]
    return context.train.with_decisions(torch.cat(parts))


def as_published(loss: str, make: Callable[..., Layer] = SparseAsPublished) -> Prepare:
    """DYS-Net as in the authors' code, through the layer that `make` makes; SqDE is averaged."""

    def prepare(context: RunContext) -> Prepared:
        own = context.parameters
        train = labelled(context)
        assert train.decisions is not None
        layer = make(context.problem, own["tau"], own["alpha"], own["iterations"], generator=context.generator())
        part = PredictedPart(layer)
        train = train.with_decisions(context.problem.program.objective.transpose(train.decisions))
        made = SquaredDecisionError(part, reduction="mean") if loss == "SqDE" else THROUGH_LAYERS[loss](part)
        return Prepared(made, train, solver_name=type(layer).__name__)

    return prepare


def _clean(loss: str) -> Prepare:
    def prepare(context: RunContext) -> Prepared:
        own, unit = context.parameters, context.unit
        tau, alpha = own["tau"] * unit, own["alpha"] / unit
        layer = DavisYin(context.problem.program, tau, alpha, own["iterations"], gradient=own["gradient"])
        return Prepared(THROUGH_LAYERS[loss](layer), context.train)

    return prepare


def _cvx(loss: str, make: Callable[..., Layer]) -> Prepare:
    def prepare(context: RunContext) -> Prepared:
        layer = make(context.problem.program, context.parameters["tau"], regularizer="norm")
        return Prepared(THROUGH_LAYERS[loss](layer), labelled(context, layer))

    return prepare


def _cave(context: RunContext) -> Prepared:
    loss = CaVEAsPublished(context.problem.program, context.parameters["iterations"])
    return Prepared(loss, context.train, solver_name="Clarabel onto the cone")


def dys_parameters(loss: str, printed: bool) -> Callable[[str], dict[str, Plain]]:
    """Those of the code or of the text; knapsacks train on decisions of the relaxation."""

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


def _add(name: str, about: str, prepare: Prepare, parameters: Callable[[str], dict[str, Plain]]) -> None:
    method = register(Method(name, about, prepare, parameters))
    if name in SCALED:
        register_scaled(method)


_add("CaVE", "angle to the cone of what binds at w*, three steps of Clarabel", _cave, fixed(iterations=3))
for _loss in THROUGH_LAYERS:
    _add(f"{_loss}^CVX", "exact smoothed problem with μ‖w‖₂", _cvx(_loss, Smoothed), _cvx_parameters(_loss))
    _add(
        f"{_loss}^CVX cvxpylayers",
        "exact smoothed problem with μ‖w‖₂, by cvxpylayers",
        _cvx(_loss, CvxpySmoothed),
        _cvx_parameters(_loss),
    )
    _add(f"{_loss}^DYS", "DYS-Net as in the authors' code", as_published(_loss), dys_parameters(_loss, False))
    _add(
        f"{_loss}^DYS dense",
        "DYS-Net as in the authors' code, by dense matrices as there",
        as_published(_loss, AsPublished),
        dys_parameters(_loss, False),
    )
    _add(
        f"{_loss}^DYS printed",
        "DYS-Net as in the authors' code, hyperparameters of the text",
        as_published(_loss),
        dys_parameters(_loss, True),
    )
    _add(f"{_loss}^DYS clean", "DYS-Net as in the text, on our layer", _clean(_loss), _clean_parameters("jfb"))
    _add(
        f"{_loss}^DYS unrolled",
        "the same, differentiated through all iterations",
        _clean(_loss),
        _clean_parameters("unrolled"),
    )
