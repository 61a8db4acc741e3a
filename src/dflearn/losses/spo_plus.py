"""SPO+: the convex upper bound of the regret (Elmachtoub and Grigas, 2022)."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss, LossOutput


class SPOPlus(Loss):
    """obj(2ŷ − y, w*) − obj(2ŷ − y, w̃),   w̃ = layer(2ŷ − y).

    The known part d enters once, since 2(Sŷ + d) − (Sy + d) = S(2ŷ − y) + d.
    Through `Exact`: subgradient 2Sᵀ(w* − w̃). Through a differentiable layer: its full gradient.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def _evaluate(self, predicted: Tensor, batch: Batch) -> LossOutput:
        shifted = 2 * predicted - batch.require("costs")
        solution = self.layer.solve(shifted, batch.instance, batch.start).check()
        difference = batch.require("decisions") - solution.decision
        return LossOutput(self.layer.objective(shifted, difference, batch.instance), solution)
