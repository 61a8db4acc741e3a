"""The parts of a training step that `fit` shares with other loops: the loss, and what to check before the weights move."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DflearnError, OptionError
from dflearn.losses.base import Loss, LossOutput
from dflearn.training.divergence import diagnose, exploded, ids_of


def loss_of(model: nn.Module, loss: Loss, batch: Batch, epoch: int, step: int) -> tuple[Tensor, LossOutput]:
    """Predicted costs and their loss; an error says in which step it happened, and to which instances."""
    predicted = model(batch.features)
    try:
        output = loss.output(predicted, batch)
    except DflearnError as error:
        if exploded(batch, predicted):
            raise diagnose(model, batch, predicted, None, epoch, step) from error
        error.add_note(f"in epoch {epoch}, step {step}, on the instances with ids {ids_of(batch)}")
        raise
    if not output.value.requires_grad:
        through = "" if loss.layer is None else f" through {type(loss.layer).__name__}"
        raise OptionError(
            f"{type(loss).__name__}{through} does not depend on the predicted costs, so nothing can be learned: use a "
            "differentiable layer, or SPOPlus, SCE or FenchelYoung"
        )
    return predicted, output


def mean_of(value: Tensor, weights: Tensor | None) -> Tensor:
    """Σ weight · loss / Σ weight over a batch, both `(*batch,)`; the plain mean where there are no weights."""
    if weights is None:
        return value.mean()
    weights = weights.to(value)
    return (weights * value).sum() / weights.sum()


def counted_rows(data: DecisionDataset) -> Tensor:
    """The rows that a run draws its batches from: those of weight zero are left out."""
    return torch.arange(len(data)) if data.weights is None else data.weights.cpu().nonzero().squeeze(1)


def measure(
    model: nn.Module, mean: Tensor, batch: Batch, predicted: Tensor, value: Tensor, epoch: int, step: int
) -> tuple[float, float]:
    """Mean loss and norm of the gradient, after the backward pass; an error where they are not finite.

    So a step that is not finite is never taken.
    """
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # One transfer brings the loss and every gradient's norm.
    norms = [torch.linalg.vector_norm(p.grad).to(mean) for p in moving if p.grad is not None]
    number, *sizes = torch.stack([mean.detach(), *norms]).tolist()
    norm = math.hypot(*sizes)
    if not math.isfinite(number + norm):
        raise diagnose(model, batch, predicted, value, epoch, step)
    return number, norm


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
