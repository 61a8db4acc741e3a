"""NCE: noise-contrastive estimation over a pool of decisions (Mulamba et al., 2021)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer
from dflearn.losses.base import LossOutput
from dflearn.losses.pool import PoolLoss


class NCE(PoolLoss):
    """mean over w in the pool of

        plain:    obj(ŷ, w*) − obj(ŷ, w)
        shifted:  (ŷ − y)ᵀ Sᵀ(w* − w)

    Linear in ŷ, so that only the mean of the pool matters: gradient Sᵀ(w* − w̄). With the pool's best member in place of
    its mean it is contrastive MAP, which is `SCE` through the same layer.
    """

    def __init__(self, layer: Layer, *, variant: Literal["plain", "shifted"] = "plain") -> None:
        super().__init__(layer)
        if variant not in ("plain", "shifted"):
            raise OptionError(f"variant is 'plain' or 'shifted', got {variant!r}")
        self.variant = variant
        self.needs = ("decisions",) if variant == "plain" else ("costs", "decisions")

    def extra_repr(self) -> str:
        return f"variant={self.variant!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        pool, solution = self._pooled(predicted, batch)
        difference = batch.require("decisions") - pool.mean(0)
        if self.variant == "plain":
            return LossOutput(self.layer.objective(predicted, difference, batch.instance), solution)
        error = predicted - batch.require("costs")
        return LossOutput((error * self.layer.objective.transpose(difference)).sum(-1), solution)
