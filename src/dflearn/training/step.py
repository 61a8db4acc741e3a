"""The parts of a training step that `fit` shares with other loops: the loss, the checks before the weights move, the store of warm starts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, DflearnError, DivergenceError, OptionError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss, LossOutput
from dflearn.solvers.base import Status

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


UNBOUNDED_IN_TRAINING = (
    "In training it is the *predicted* costs that make a program unbounded, where the true ones do not. What helps: predictions "
    "that are positive where costs are known to be (positive=True, dflearn.models.Positive), or finite bounds on the variables"
)


def loss_of(model: nn.Module, loss: Loss, batch: Batch, epoch: int, step: int) -> tuple[Tensor, LossOutput]:
    """Predicted costs and their loss; an error says in which step it happened, and to which instances."""
    predicted = _predicted(model, batch.features)
    try:
        output = loss.output(predicted, batch)
    except DflearnError as error:
        if exploded(batch, predicted):
            raise diagnose(model, batch, predicted, None, epoch, step) from error
        place = f"in epoch {epoch}, step {step}, on the instances with ids {ids_of(batch)}"
        if isinstance(error, SolverError) and Status.UNBOUNDED in error.status:
            explained = SolverError(f"{error} {UNBOUNDED_IN_TRAINING}")
            explained.add_note(place)
            raise explained from error
        error.add_note(place)
        raise
    if not output.value.requires_grad:
        through = "" if loss.layer is None else f" through {type(loss.layer).__name__}"
        raise OptionError(
            f"{type(loss).__name__}{through} does not depend on the predicted costs, so nothing can be learned: use a "
            "differentiable layer, or SPOPlus, SCE or FenchelYoung"
        )
    return predicted, output


def failed_rows(error: SolverError, count: int) -> Tensor | None:
    """Which of `count` instances a layer could not solve, bool `(count,)`; `None` where that is not all that went wrong."""
    status = torch.tensor(list(error.status), dtype=torch.int64)
    failed = status == int(Status.FAILED)
    wrong = failed | (status == int(Status.INFEASIBLE)) | (status == int(Status.UNBOUNDED))
    return failed if len(status) == count and bool(failed.any()) and torch.equal(failed, wrong) else None


def mean_of(value: Tensor, weights: Tensor | None) -> Tensor:
    """Σ weight · loss / Σ weight over a batch, both `(*batch,)`; the plain mean where there are no weights."""
    if weights is None:
        return value.mean()
    weights = weights.to(value)
    return (weights * value).sum() / weights.sum()


def counted_rows(data: DecisionDataset) -> Tensor:
    """The rows that a run draws its batches from: those of weight zero are left out."""
    return torch.arange(len(data)) if data.weights is None else data.weights.cpu().nonzero().squeeze(1)


def _predicted(model: nn.Module, features: Tensor) -> Tensor:
    """model(features); where both differ in precision and torch refuses, an error that says so."""
    try:
        return model(features)
    except RuntimeError as error:
        kinds = {parameter.dtype for parameter in model.parameters()}
        if not kinds or features.dtype in kinds:
            raise
        held = " and ".join(sorted(map(str, kinds)))
        raise DataError(
            f"the features are {features.dtype} and the model's weights {held}, which it does not mix: convert the data, "
            f"data.to({sorted(map(str, kinds))[0]}), or the model, model.to({features.dtype})"
        ) from error


def measure(
    model: nn.Module,
    mean: Tensor,
    batch: Batch,
    predicted: Tensor,
    value: Tensor,
    epoch: int,
    step: int,
    parameters: Sequence[Tensor] | None = None,
) -> tuple[float, float]:
    """Mean loss and norm of the gradient, after the backward pass; an error where they are not finite.

    So a step that is not finite is never taken. parameters: those of the model that are trained, where they are at hand.
    """
    if parameters is None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch._foreach_norm(gradients) if gradients else ()
    if mean.is_cpu and all(norm.dtype == mean.dtype for norm in norms):
        number, *sizes = mean.item(), *(norm.item() for norm in norms)
    else:  # one transfer brings the loss and every gradient's norm
        number, *sizes = torch.stack([mean.detach(), *(norm.to(mean) for norm in norms)]).tolist()
    norm = math.hypot(*sizes)
    if not math.isfinite(number + norm):
        raise diagnose(model, batch, predicted, value, epoch, step)
    return number, norm


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


class Starts:
    """One start per training instance, in a tensor `(instances, width)` that the run owns and checkpoints hold."""

    def __init__(self, blank: Tensor) -> None:
        self.rows = blank

    @classmethod
    def of(cls, layer: Layer | None, count: int, limit: int) -> tuple[Starts | None, str]:
        """The store for `count` instances, or none and a note on why. `limit` is in bytes."""
        if layer is None or not layer.start_width:
            return None, ""
        size = count * layer.start_width * layer.start_dtype.itemsize
        if size > limit:
            return None, (
                f"warm starts are off: {count} instances of {layer.start_width} numbers take {size / 2**20:.0f} MiB, "
                f"more than the limit of {limit / 2**20:.0f} MiB; raise warm_start_bytes to have them"
            )
        blank = layer.no_start(count)
        assert blank is not None
        return cls(blank), ""

    def get(self, index: Tensor) -> Tensor:
        return self.rows[index.to(self.rows.device, non_blocking=True)]

    def put(self, index: Tensor, start: Tensor) -> None:
        self.rows = self.rows.to(start.device)  # moves once, to where the layer works
        self.rows[index.to(start.device, non_blocking=True)] = start.detach()
