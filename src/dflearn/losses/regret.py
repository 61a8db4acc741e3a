"""The regret itself, as a loss."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss, LossOutput


class Regret(Loss):
    """obj(y, w) − obj(y, w*),   w = layer(ŷ);   gradient (∂w/∂ŷ)ᵀ (S y + d + Q w).

    Through `Exact` the gradient is zero everywhere; through a smoothed layer it still is wherever the decision does
    not move with the costs, however large the regret. SCE and SPO+ are there for that reason.
    """

    layer: Layer
    known_rows = True
    by_layer = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        if layer.objective.value is not None:
            raise OptionError(
                "the regret as a loss needs a gradient, which the `value` of a solver has not: train with SPO+ or a perturbed "
                "Fenchel-Young loss, and judge by the regret"
            )

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        pair = solution.decision, batch.require("decisions")
        return LossOutput(self.layer.objective.difference(batch.require("costs"), *pair, batch.instance), solution)
