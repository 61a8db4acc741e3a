"""Losses added with weights: `MSE() + 0.1 * SPOPlus(layer)`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.losses.base import Loss, LossOutput


class Combined(Loss):
    """Σ weight_k · loss_k, each with a layer of its own; what the operators + and * of losses make.

    Every loss solves what it solves alone. Warm starts need one store: they are used where exactly one of the losses has a
    layer that takes a start.

    Args:
        terms: positive weights with their losses; sums among them are taken apart.
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
