"""Fenchel-Young losses: convex, smooth, and in need of decisions only (Blondel et al., 2020; Berthet et al., 2020)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class FenchelYoung(Loss):
    """obj(ŷ, w*) + Ω(w*) − min over w of (obj(ŷ, w) + Ω(w)),  with gradient Sᵀ(w* − layer(ŷ)).

    Through `Smoothed`, Ω = (μ/2)‖w‖². Through `Perturbed` the minimum is the average over the noise and Ω is its
    conjugate, unknown in closed form: the value then leaves out the constant Ω(w*). The gradient needs no Jacobian.
    """

    needs: ClassVar[tuple[Field, ...]] = ("decisions",)

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def _evaluate(self, predicted: Tensor, batch: Batch) -> LossOutput:
        label = batch.require("decisions")
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        slope = self.layer.objective(predicted, label - solution.decision.detach(), batch.instance)
        value = (
            self.layer.objective(predicted.detach(), label, batch.instance)
            + self.layer.regularization(label)
            - solution.objective.detach().to(predicted)
        )
        return LossOutput(slope + (value - slope).detach(), solution)
