"""What the tests of training share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflearn.data import Batch
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
