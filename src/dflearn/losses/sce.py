"""SCE: self-contrastive estimation (Mulamba et al., 2021), the loss of the paper that this library grew from."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DataError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class SCE(Loss):
    """With w = layer(ŷ):

        shifted:  obj(ŷ, w*) − obj(ŷ, w) + obj(y, w) − obj(y, w*)
        plain:    obj(ŷ, w*) − obj(ŷ, w)

    Through `Exact` both have the subgradient Sᵀ(w* − w); through a differentiable layer they differ. The plain one
    needs no true costs, but is minimized by ŷ = 0 too.
    """

    needs: ClassVar[tuple[Field, ...]] = ("decisions",)

    def __init__(self, layer: Layer, *, variant: Literal["shifted", "plain"] = "shifted") -> None:
        super().__init__()
        if variant not in ("shifted", "plain"):
            raise DataError(f"variant is 'shifted' or 'plain', got {variant!r}")
        self.layer, self.variant = layer, variant

    def _evaluate(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, instance = self.layer.objective, batch.instance
        solution = self.layer.solve(predicted, instance, batch.start).check()
        difference = batch.require("decisions") - solution.decision
        value = objective(predicted, difference, instance)
        if self.variant == "shifted":
            value = value - objective(batch.require("costs"), difference, instance)
        return LossOutput(value, solution)
