"""SPO+: the convex upper bound of the regret (Elmachtoub and Grigas, 2022), and its smoothed form."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss, LossOutput
from dflearn.losses.fenchel_young import fenchel_young


class SPOPlus(Loss):
    """obj(2ŷ − y, w*) − obj(2ŷ − y, w̃),   w̃ = layer(2ŷ − y).

    The known part of the objective enters once, since 2(Sŷ + d) − (Sy + d) = S(2ŷ − y) + d, and likewise Q.
    Through `Exact`: subgradient 2Sᵀ(w* − w̃). Through a differentiable layer: the full gradient
    2Sᵀ(w* − w̃) − 2(∂w̃)ᵀ(S(2ŷ − y) + d + Q w̃).
    """

    layer: Layer
    known_rows = True
    by_layer = True
    exact = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        shifted = 2 * predicted - batch.require("costs")
        solution = self.layer.solve(shifted, batch.instance, batch.start).check()
        pair = batch.require("decisions"), solution.decision
        return LossOutput(self.layer.objective.difference(shifted, *pair, batch.instance), solution)


class SmoothedSPOPlus(Loss):
    """The Fenchel-Young loss at the costs of SPO+:

        obj(2ŷ − y, w*) + Ω(w*) − min over w of (obj(2ŷ − y, w) + Ω(w)),   gradient 2Sᵀ(w* − layer(2ŷ − y)).

    Convex and smooth in ŷ, and no Jacobian of the layer is needed: what SPO+ becomes when the minimum itself is
    smoothed, not only the decision in it. Through `Exact` (Ω = 0) it is SPO+.
    """

    layer: Layer
    known_rows = True

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, 2 * predicted - batch.require("costs"), batch)
