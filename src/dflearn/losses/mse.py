"""MSE: the prediction error, the baseline that ignores decisions."""

from __future__ import annotations

from torch import Tensor

from dflearn.data import Batch
from dflearn.losses.base import Field, Loss, LossOutput


class MSE(Loss):
    """(1/p) ‖ŷ − y‖², the mean over the p predicted costs of an instance.

    Its mean over a batch is the mean over all entries, the same number as `torch.nn.MSELoss()`.
    """

    by_layer = True  # nothing of an instance enters
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self) -> None:
        super().__init__()

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput((predicted - batch.require("costs")).square().mean(-1))
