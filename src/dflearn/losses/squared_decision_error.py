"""The squared distance between decisions (McKenzie et al., 2024, train DYS-Net with it)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class SquaredDecisionError(Loss):
    """‖w* − w‖²,   w = layer(ŷ);   gradient 2 (∂w/∂ŷ)ᵀ (w − w*).

    `reduction="mean"` divides by the n variables, as the published DYS rows do. Needs no true costs. Like `Regret`,
    it has no gradient where the decision does not move with the costs.
    """

    layer: Layer
    by_layer = True
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, layer: Layer, *, reduction: Literal["sum", "mean"] = "sum") -> None:
        super().__init__(layer)
        if reduction not in ("sum", "mean"):
            raise OptionError(f"reduction is 'sum' or 'mean', got {reduction!r}")
        self.reduction = reduction

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        solution = self.layer.solve(predicted, batch.instance, batch.start).check()
        squares = (batch.require("decisions") - solution.decision).square()
        return LossOutput(squares.sum(-1) if self.reduction == "sum" else squares.mean(-1), solution)
