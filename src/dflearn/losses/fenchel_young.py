"""Fenchel-Young losses: convex, smooth, and in need of decisions only (Blondel et al., 2020; Berthet et al., 2020)."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class FenchelYoung(Loss):
    """obj(ŷ, w*) + Ω(w*) − min over w of (obj(ŷ, w) + Ω(w)),   gradient Sᵀ(w* − layer(ŷ)).

    Through `Smoothed`, Ω = (μ/2)‖w‖². Through `Perturbed` the minimum is the average over the noise and Ω is its
    conjugate, unknown in closed form: the value then leaves out the constant Ω(w*). Through `Exact` it is plain SCE.
    The gradient needs no Jacobian.
    """

    layer: Layer
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, predicted, batch)


def fenchel_young(layer: Layer, costs: Tensor, batch: Batch) -> LossOutput:
    """The Fenchel-Young loss of the batch's decisions at any costs `(*batch, p)`."""
    label, instance = batch.require("decisions"), batch.instance
    solution = layer.solve(costs, instance, batch.start).check()
    # By Danskin's theorem the minimum has gradient Sᵀ w with w held fixed: `slope` carries that, `value` the number.
    slope = layer.objective(costs, label - solution.decision.detach(), instance)
    at_label = layer.objective(costs.detach(), label, instance) + layer.regularization(label)
    value = at_label - solution.objective.detach().to(costs)
    return LossOutput(slope + (value - slope).detach(), solution)
