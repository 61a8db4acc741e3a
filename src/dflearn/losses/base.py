"""The contract of every loss: unreduced, `(*batch,)`, of the predicted costs and a batch that names what it holds.

Throughout, ŷ are the predicted costs, y the true ones, w* the decision that the data hold,
obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import DataError, OptionError, ShapeError
from dflearn.layers.base import Exact, Layer, refusing
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.solvers.construction import FROM_PROGRAMS, Constructed, Conversion, refused, solver_of

Field = Literal["costs", "decisions"]


@dataclass(frozen=True)
class LossOutput:
    """A loss's value `(*batch,)` and, where the loss solved something, the `Solution` behind it.

    Examples:
        >>> output = dfl.losses.SCE(dfl.Smoothed(program, mu=1.0)).output(predicted, batch)
        >>> output.value.shape, output.solution.status.max()
        (torch.Size([40]), tensor(0, dtype=torch.int8))
    """

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
        known_rows, linear: whether it is defined only for right-hand sides that do not depend on what is predicted, and linear objectives.
        exact: whether it needs no Jacobian of its layer, so that a program or a solver stands for `Exact` of it.
        by_layer: whether right-hand sides, bounds and q enter through the layer's decision alone, whose gradient in them is the loss's.

    Examples:
        >>> loss = dfl.losses.SCE(dfl.Smoothed(program, mu=1.0))
        >>> loss.needs, loss(predicted, batch).shape
        (('costs', 'decisions'), torch.Size([40]))
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
        if program.Q is not None:
            self._check_linear(f"{program!r} has a quadratic objective")
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
        own = f"predicted costs {tuple(predicted.shape)}"
        if batch.costs is not None and batch.costs.shape != self._costs_shape(predicted):
            raise ShapeError(f"{own} and true costs {tuple(batch.costs.shape)} differ in shape")
        if batch.decisions is not None and batch.decisions.shape[:-1] != predicted.shape[:-1]:
            raise ShapeError(f"{own} and decisions {tuple(batch.decisions.shape)} differ in their batch shape")
        if batch.instance is not None:
            if batch.instance.q is not None:
                self._check_linear("the instances have a q, a quadratic objective")
            self._check_learned(batch.instance)

    def _check_linear(self, found: str) -> None:
        """An error where a quadratic objective was found, and the loss is not defined for one."""
        if self.linear:
            remedy = "train with SPOPlus, SCE or FenchelYoung"
            raise OptionError(f"{found}, and {type(self).__name__} is defined for linear ones; {remedy}")

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
        return Combined([(1.0, self), (1.0, other)])

    def __mul__(self, weight: float) -> Loss:
        """The loss times a positive number."""
        return Combined([(weight, self)])

    __rmul__ = __mul__


_REMEDY = {
    "costs": "With decisions only, use FenchelYoung, SCE with variant='plain', or SquaredDecisionError, which need no "
    "true costs.",
    "decisions": "Call dflearn.label(dataset, solver) to compute the optimal decisions first.",
}


class Combined(Loss):
    """Σ weight_k · loss_k, each with a layer of its own; what the operators + and * of losses make. Warm starts are used where exactly one
    of the losses has a layer that takes a start.

    Args:
        terms: positive weights with their losses; sums among them are taken apart.

    Examples:
        >>> loss = dfl.losses.MSE() + 0.1 * dfl.losses.SPOPlus(dfl.Exact(problem.solver()))
        >>> isinstance(loss, dfl.losses.Combined), loss(predicted, batch).shape
        (True, torch.Size([40]))
    """

    by_layer = True

    def __init__(self, terms: Iterable[tuple[float, Loss]]) -> None:
        weights: list[float] = []
        losses: list[Loss] = []
        for weight, loss in terms:
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
                raise OptionError(f"the weight of a loss is a positive number; got {weight!r}")
            if not isinstance(loss, Loss):
                raise OptionError(f"losses are added to losses; got a {type(loss).__name__}")
            for part, one in loss.terms if isinstance(loss, Combined) else ((1.0, loss),):
                weights.append(float(weight) * part)
                losses.append(one)
        starting = [i for i, loss in enumerate(losses) if loss.layer is not None and loss.layer.start_width]
        self._starting = starting[0] if len(starting) == 1 else None
        super().__init__(None if self._starting is None else losses[self._starting].layer)
        self.terms: tuple[tuple[float, Loss], ...] = tuple(zip(weights, losses, strict=True))
        self.losses = nn.ModuleList(losses)  # so that their states are part of this one's
        self.needs = tuple(dict.fromkeys(field for loss in losses for field in loss.needs))

    def extra_repr(self) -> str:
        return f"weights={[weight for weight, _ in self.terms]}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        cold = replace(batch, start=None)
        outputs = [
            loss.output(predicted, batch if i == self._starting else cold) for i, (_, loss) in enumerate(self.terms)
        ]
        value = torch.stack([weight * one.value for (weight, _), one in zip(self.terms, outputs, strict=True)]).sum(0)
        solutions = [output.solution for output in outputs if output.solution is not None]
        if not solutions:
            return LossOutput(value)
        shown = solutions[0] if self._starting is None else outputs[self._starting].solution
        assert shown is not None
        return LossOutput(value, replace(shown, seconds=sum(solution.seconds for solution in solutions)))


def one_each(value: Any, shape: tuple[int, ...], what: str, who: str = "it", remedy: str = "") -> Tensor:
    """What a user's function returned, one value for each; an error where it has another shape."""
    if isinstance(value, Tensor) and value.shape == shape:
        return value
    got = tuple(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise ShapeError(f"{what}, shape {tuple(shape)}; {who} returned {got}{remedy}")


class FunctionLoss(Loss):
    """function(ŷ, batch), for what is written in a line: `fit(model, lambda y, batch: (y - batch.costs).abs().mean(-1), data)`.

    Args:
        function: predicted costs `(*batch, p)` and their `Batch` → one loss per instance, `(*batch,)`, not their mean.

    Examples:
        >>> absolute = dfl.losses.FunctionLoss(lambda y, batch: (y - batch.costs).abs().mean(-1))
        >>> absolute(batch.costs + 0.5, batch).mean()
        tensor(0.5000)
    """

    needs: tuple[Field, ...] = ()
    by_layer = True

    def __init__(self, function: Callable[[Tensor, Batch], Tensor]) -> None:
        super().__init__()
        self.function = function

    def extra_repr(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        value, who = self.function(predicted, batch), self.extra_repr()
        remedy = ": take means over the costs, .mean(-1), and leave the mean over instances to training"
        return LossOutput(one_each(value, predicted.shape[:-1], "a loss has one value per instance", who, remedy))


# -- gradients that are known without going through the layer ---------------------------------------------------------


def with_slope(at: Tensor, value: Tensor, slope: Tensor, why: str = "") -> Tensor:
    """The value `(*batch,)` with the gradient `slope` in `at`, both `(*batch, k)`. Second derivatives are those of `slope`; where `why`
    is given, they are an error."""
    slope = (slope.detach() if why else slope).to(at)
    loss: Tensor = _WithSlope.apply(at, value.detach().to(at), (slope,), why)  # type: ignore[no-untyped-call]
    return loss


def slope_of_optimum(layer: Layer, solution: Solution) -> Tensor:
    """The gradient in y of the layer's optimum, `Solution.objective`: Sᵀ w by Danskin's theorem.  `(*batch, p)`."""
    return layer.objective.transpose(solution.decision.detach()) if solution.slope is None else solution.slope


class _WithSlope(torch.autograd.Function):
    """The slope is no input here (hence the tuple), so that the first backward never goes through it."""

    @staticmethod
    def forward(ctx: Any, at: Tensor, value: Tensor, slope: tuple[Tensor], why: str) -> Tensor:
        ctx.save_for_backward(at)
        ctx.slope, ctx.why = slope, why
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (at,), product = ctx.saved_tensors, gradient.unsqueeze(-1) * ctx.slope[0]
        if ctx.why and torch.is_grad_enabled():
            product = refusing(product, at, ctx.why)
        return product, None, None, None
