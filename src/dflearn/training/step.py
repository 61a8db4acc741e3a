"""The parts of a training step that `fit` shares with other loops: the loss, and what to check before the weights move."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, DflearnError, OptionError, SolverError
from dflearn.losses.base import Loss, LossOutput
from dflearn.solvers.base import Status
from dflearn.training.divergence import diagnose, exploded, ids_of

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
