"""The contract of every loss: unreduced, `(*batch,)`, of the predicted costs and a batch that names what it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import DataError
from dflearn.solvers.base import Solution

Field = Literal["costs", "decisions"]


@dataclass(frozen=True)
class LossOutput:
    """A loss's value `(*batch,)` and, where the loss solved something, the `Solution` behind it."""

    value: Tensor
    solution: Solution | None = None


class Loss(nn.Module, ABC):
    """predicted costs ŷ `(*batch, p)`, batch → loss `(*batch,)`.

    Subclasses write `_evaluate` and declare in `needs` what the data must hold.
    """

    needs: ClassVar[tuple[Field, ...]] = ("costs", "decisions")

    def forward(self, predicted: Tensor, batch: Batch) -> Tensor:
        return self.evaluate(predicted, batch).value

    def evaluate(self, predicted: Tensor, batch: Batch) -> LossOutput:
        """The value together with the decision that was computed on the way."""
        for field in self.needs:
            if getattr(batch, field) is None:
                raise DataError(f"{type(self).__name__} needs {field}, and the data hold none. {_REMEDY[field]}")
        return self._evaluate(predicted, batch)

    @abstractmethod
    def _evaluate(self, predicted: Tensor, batch: Batch) -> LossOutput: ...


_REMEDY = {
    "costs": "With decisions only, use FenchelYoung (or SCE with variant='plain'), whose gradients need no true costs.",
    "decisions": "Call dflearn.label(dataset, solver) to compute the optimal decisions first.",
}
