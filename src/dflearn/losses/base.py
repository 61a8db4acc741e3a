"""The contract of every loss: unreduced, `(*batch,)`, of the predicted costs and a batch that names what it holds.

Throughout, ŷ are the predicted costs, y the true ones, w* the decision that the data hold,
obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.layers.base import Exact, Layer
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.solvers.construction import FROM_PROGRAMS, Constructed, Conversion, refused, solver_of

Field = Literal["costs", "decisions"]


@dataclass(frozen=True)
class LossOutput:
    """A loss's value `(*batch,)` and, where the loss solved something, the `Solution` behind it."""

    value: Tensor
    solution: Solution | None = None


def layer_of(cls: type, what: Any) -> Layer | None:
    """For a parameter `layer`. Losses that need no Jacobian (`exact`) take `Exact`; for others there is a choice to make."""
    if what is None or isinstance(what, Layer):
        return what
    if issubclass(cls, Loss) and cls.exact:
        return Exact(solver_of(cls, what))
    raise refused(cls, "a Layer", what, "Smoothed(program)")


class Loss(nn.Module, metaclass=Constructed):
    """Predicted costs ŷ `(*batch, p)`, batch → loss `(*batch,)`.

    Subclasses write `_output` and declare in `needs` what the data must hold.

    Attributes:
        layer: what turns costs into a decision; `None` for a loss that solves nothing.
        needs: the fields of a `Batch` that the loss reads.
        known_rows: whether the loss is defined only where right-hand sides do not depend on what is predicted.
        linear: whether it is defined only for linear objectives.
        exact: whether it needs no Jacobian of its layer, so that a program or a solver stands for `Exact` of it.
        by_layer: whether right-hand sides, bounds and q enter through the layer's decision alone, whose gradient in them is the loss's.
    """

    conversions: ClassVar[Mapping[str, Conversion]] = {**FROM_PROGRAMS, "layer": layer_of}
    layer: Layer | None
    known_rows: ClassVar[bool] = False
    linear: ClassVar[bool] = False
    by_layer: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    needs: tuple[Field, ...] = ("costs", "decisions")

    def __init__(self, layer: Layer | None = None) -> None:
        super().__init__()
        self.layer = layer
        self._check_form(None if layer is None else layer.program)

    def _check_form(self, program: Program | None) -> None:
        """An error where the loss is not defined for such a program."""
        if program is None:
            return
        if self.linear and program.Q is not None:
            raise OptionError(
                f"{program!r} has a quadratic objective, and {type(self).__name__} is defined for linear ones; train with "
                "SPOPlus, SCE or FenchelYoung"
            )
        if self.known_rows and program.predicts_rows:
            raise OptionError(
                f"{program!r} has predicted right-hand sides: what is optimal for the truth may be infeasible for the prediction, so "
                f"that {type(self).__name__} is not defined; train with TaskLoss(Smoothed(program)), ScoreFunction(Exact(solver), sigma) or MSE"
            )

    def forward(self, predicted: Tensor, batch: Batch) -> Tensor:
        return self.output(predicted, batch).value

    def output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        """The value together with the decision that was computed on the way."""
        self._check(predicted, batch)
        return self._output(predicted, batch)

    def _check(self, predicted: Tensor, batch: Batch) -> None:
        """An error where the data do not hold what the loss needs, or in another shape."""
        for field in self.needs:
            if getattr(batch, field) is None:
                raise DataError(f"{type(self).__name__} needs {field}, and the data hold none. {_REMEDY[field]}")
        # Tensors of other shapes would broadcast into a number that looks like a loss.
        if batch.costs is not None and batch.costs.shape != self._costs_shape(predicted):
            raise ShapeError(
                f"predicted costs {tuple(predicted.shape)} and true costs {tuple(batch.costs.shape)} differ in shape"
            )
        if batch.decisions is not None and batch.decisions.shape[:-1] != predicted.shape[:-1]:
            raise ShapeError(
                f"predicted costs {tuple(predicted.shape)} and decisions {tuple(batch.decisions.shape)} "
                "differ in their batch shape"
            )
        if self.linear and batch.instance is not None and batch.instance.q is not None:
            raise OptionError(
                f"the instances have a q, a quadratic objective, and {type(self).__name__} is defined for linear ones; train "
                "with SPOPlus, SCE or FenchelYoung"
            )
        if batch.instance is not None:
            self._check_learned(batch.instance)

    def _check_learned(self, instance: Instance) -> None:
        """An error where a gradient in the instance's fields is wanted that the loss does not give."""
        known = self.by_layer and (self.layer is None or self.layer.moves_rows)
        lost = [name for name in instance.learned() if name != "d"]
        if lost and not known:
            through = "" if self.layer is None else f" through {type(self.layer).__name__}"
            raise OptionError(
                f"{type(self).__name__}{through} gives no gradient in the instance's {', '.join(lost)}: detach them, or train with "
                "TaskLoss, Regret, SCE or SquaredDecisionError through Smoothed"
            )

    def _costs_shape(self, predicted: Tensor) -> tuple[int, ...]:
        """The shape that true costs must have."""
        return predicted.shape

    @abstractmethod
    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput: ...

    def __radd__(self, other: int) -> Loss:
        """Python's `sum` begins with 0."""
        return self if other == 0 else NotImplemented

    def __add__(self, other: Loss) -> Loss:
        """The sum of two losses: see `Combined`."""
        from dflearn.losses.combined import Combined

        return Combined([(1.0, self), (1.0, other)])

    def __mul__(self, weight: float) -> Loss:
        """The loss times a positive number."""
        from dflearn.losses.combined import Combined

        return Combined([(weight, self)])

    __rmul__ = __mul__


_REMEDY = {
    "costs": "With decisions only, use FenchelYoung, SCE with variant='plain', or SquaredDecisionError, which need no "
    "true costs.",
    "decisions": "Call dflearn.label(dataset, solver) to compute the optimal decisions first.",
}
