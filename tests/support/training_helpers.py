"""What the tests of training share."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.losses import MSE, LossOutput


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


class Scripted(MSE):
    """A loss that trains as usual, but says whatever the script wants when the validation data are judged."""

    def __init__(self, *script: float) -> None:
        super().__init__()
        self.script = list(script)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        if torch.is_grad_enabled():
            return super()._output(predicted, batch)
        return LossOutput(torch.full(predicted.shape[:-1], self.script.pop(0)))


def weighted(data: DecisionDataset, seed: int = 0) -> DecisionDataset:
    """The data with weights 0, 1, 2, 3, each for some of the instances."""
    numbers = torch.randint(4, (len(data),), generator=torch.Generator().manual_seed(seed)).double()
    return replace(data, weights=numbers)


def repeated(data: DecisionDataset) -> DecisionDataset:
    """The data without weights, each instance as often as it weighs."""
    assert data.weights is not None
    rows = torch.arange(len(data)).repeat_interleave(data.weights.long())
    part = data.subset(rows)
    return DecisionDataset(part.features, part.costs, part.decisions, part.instance)
