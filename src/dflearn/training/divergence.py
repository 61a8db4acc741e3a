"""Why a run went to NaN: where it happened, to which instances, and the likely cause."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.errors import DivergenceError

SHOWN = 8  # ids that a message names
EXPLODED = 1e6  # predicted costs this many times larger than the true ones are no prediction
ABSURD = 1e30  # nor are costs this large, where there are no true ones to compare with


def ids_of(batch: Batch, bad: Tensor | None = None) -> str:
    """The ids of the instances that are `bad`, or of all of them, cut to a readable length."""
    if batch.ids is None:
        return "unknown"
    ids = (batch.ids if bad is None else batch.ids[bad.to(batch.ids.device)]).reshape(-1).tolist()
    return ", ".join(map(str, ids[:SHOWN])) + (", …" if len(ids) > SHOWN else "")


def weights_are_finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def exploded(batch: Batch, predicted: Tensor) -> bool:
    """Whether predicted costs are not finite, or out of all proportion to the true ones."""
    largest = float(predicted.detach().abs().max()) if predicted.numel() else 0.0
    if batch.costs is None:
        return not largest <= ABSURD
    scale = float(batch.costs.abs().max()) if batch.costs.numel() else 0.0
    return not largest <= EXPLODED * max(scale, 1.0)


def diagnose(
    model: nn.Module, batch: Batch, predicted: Tensor, value: Tensor | None, epoch: int, step: int
) -> DivergenceError:
    """The error to raise when the loss or its gradient is not finite. `value` is `None` where there was no loss."""
    bad_prediction = ~torch.isfinite(predicted).all(-1)
    bad_value = None if value is None else ~torch.isfinite(value)
    bad = None
    if not weights_are_finite(model):
        what = "the weights are no longer finite"
        why = "The last step was too long: lower lr, or scale the costs."
    elif bool(bad_prediction.any()):
        what, bad = "predicted costs are not finite", bad_prediction
        why = "The model overflows on these instances: look at their features, scale them, or lower lr."
    elif exploded(batch, predicted):
        what = f"predicted costs exploded, up to {float(predicted.detach().abs().max()):.3g}"
        why = "Steps are too long: lower lr, or scale features and costs."
    elif bad_value is not None and bool(bad_value.any()):
        what, bad = "the loss is not finite, though the predicted costs are", bad_value
        why = "Look at the costs and decisions of these instances, and at the scale of the costs."
    else:
        what = "the gradient is not finite, though the loss is"
        why = "The layer's or the model's derivative fails here: smooth more (a larger mu or sigma), or lower lr."
    return DivergenceError(
        f"epoch {epoch}, step {step}: {what}. Instances: {ids_of(batch, bad)}. {why} "
        "The model holds the last weights that were finite."
    )
