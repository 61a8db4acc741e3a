"""The pinball loss: predictions that are quantiles of what is predicted, as newsvendors order (Koenker and Bassett, 1978)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, ShapeError
from dflearn.losses.base import Field, Loss, LossOutput


class Quantile(Loss):
    """Σ_j max(τ_j (y_j − ŷ_j), (τ_j − 1)(y_j − ŷ_j)): least in expectation where ŷ_j is the τ_j-quantile of y_j.

    The two-stage method for right-hand sides that are predicted: what is too little costs more than what is too much, or less,
    and the critical ratio of the two is the quantile to plan for. `estimator.quantiles.critical_ratios` reads it off a program.

    Args:
        level: τ strictly between 0 and 1: a number for all, or one for each predicted number `(p,)`.
    """

    layer: None
    needs: tuple[Field, ...] = ("costs",)

    level: Tensor

    def __init__(self, level: Any = 0.5) -> None:
        super().__init__()
        levels = np.asarray(level, np.float64)
        if levels.ndim > 1 or not levels.size or not ((levels > 0) & (levels < 1)).all():
            raise OptionError(
                f"a level lies strictly between 0 and 1, one for all or one for each predicted number; got {level}"
            )
        self.register_buffer("level", torch.tensor(levels))

    def extra_repr(self) -> str:
        return f"level={self.level.tolist()}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        if self.level.ndim and self.level.shape[0] != predicted.shape[-1]:
            raise ShapeError(f"{self.level.shape[0]} levels are given, and {predicted.shape[-1]} numbers are predicted")
        level, short = self.level.to(predicted), batch.require("costs") - predicted
        return LossOutput(torch.maximum(level * short, (level - 1) * short).sum(-1))
