"""Any function as a loss."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import ShapeError
from dflearn.losses.base import Field, Loss, LossOutput


class FunctionLoss(Loss):
    """function(ŷ, batch), for what is written in a line: `fit(model, lambda y, batch: (y - batch.costs).abs().mean(-1), data)`.

    Args:
        function: predicted costs `(*batch, p)` and their `Batch` → one loss per instance, `(*batch,)`, not their mean.
    """

    needs: tuple[Field, ...] = ()

    by_layer = True

    def __init__(self, function: Callable[[Tensor, Batch], Tensor]) -> None:
        super().__init__()
        self.function = function

    def extra_repr(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        value = self.function(predicted, batch)
        if not isinstance(value, Tensor) or value.shape != predicted.shape[:-1]:
            got = tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ShapeError(
                f"a loss has one value per instance, shape {tuple(predicted.shape[:-1])}; {self.extra_repr()} returned {got}: "
                "take means over the costs, .mean(-1), and leave the mean over instances to training"
            )
        return LossOutput(value)
