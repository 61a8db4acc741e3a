"""What `fit` shares with other loops: the loss of a step, the checks before the weights move, warm starts, the check of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dflearn.data import Batch, Data, DecisionDataset, as_dataset
from dflearn.errors import DataError, DflearnError, DivergenceError, OptionError, SolverError
from dflearn.layers.base import Layer
from dflearn.losses.base import FunctionLoss, Loss, LossOutput
from dflearn.solvers.base import Status
from dflearn.solvers.task import Decided

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
    bad_prediction, bad = ~torch.isfinite(predicted).all(-1), None
    bad_value = None if value is None else ~torch.isfinite(value)
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
        f"epoch {epoch}, step {step}: {what}. Instances: {ids_of(batch, bad)}. {why} The model holds its last finite weights."
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
        why = "so nothing can be learned: use a differentiable layer, or SPOPlus, SCE or FenchelYoung"
        raise OptionError(f"{type(loss).__name__}{through} does not depend on the predicted costs, {why}")
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
    """Mean loss and norm of the gradient (of `parameters`, default: all); an error, before the step, if they are not finite."""
    if parameters is None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
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


@dataclass
class Starts:
    """One start per training instance, in a tensor `(instances, width)` that the run owns and checkpoints hold."""

    rows: Tensor

    @classmethod
    def of(cls, layer: Layer | None, count: int, limit: int) -> tuple[Starts | None, str]:
        """The store for `count` instances, or none and a note on why. `limit` is in bytes."""
        if layer is None or not layer.start_width:
            return None, ""
        size = count * layer.start_width * layer.start_dtype.itemsize
        if size > limit:
            numbers = f"{count} instances of {layer.start_width} numbers take {size / 2**20:.0f} MiB"
            remedy = f"more than the limit of {limit / 2**20:.0f} MiB; raise warm_start_bytes to have them"
            return None, f"warm starts are off: {numbers}, {remedy}"
        blank = layer.no_start(count)
        assert blank is not None
        return cls(blank), ""

    def get(self, index: Tensor) -> Tensor:
        return self.rows[index.to(self.rows.device, non_blocking=True)]

    def put(self, index: Tensor, start: Tensor) -> None:
        self.rows = self.rows.to(start.device)  # moves once, to where the layer works
        self.rows[index.to(start.device, non_blocking=True)] = start.detach()


MakeOptimizer = Callable[..., torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]
OPTIMIZERS: dict[str, MakeOptimizer] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}

AnyLoss = Loss | Callable[[Tensor, Batch], Tensor]


def as_loss(loss: AnyLoss) -> Loss:
    """A `Loss` as it is; a function of predicted costs and batch as a `FunctionLoss`."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(getattr(loss, "_orig_mod", None), Loss):  # what torch.compile makes of a module
        remedy = "pass the loss itself, and compile the model where that pays, fit(torch.compile(model), loss, …)"
        raise OptionError(f"a loss solves outside of torch, so torch.compile can do nothing for it: {remedy}")
    if isinstance(loss, type):
        raise OptionError(f"the loss is a class: make one, {loss.__name__}(…)")
    if isinstance(loss, nn.Module) or not callable(loss):
        got = repr(loss) if isinstance(loss, str) else f"a {type(loss).__name__}"
        raise OptionError(
            "the loss is a dflearn.losses.Loss, or a function of predicted costs and batch with one value per instance; got "
            f"{got}. For squared error: dflearn.losses.MSE(). Losses by name are for DecisionFocusedRegressor and train"
        )
    if str(getattr(loss, "__module__", None)).startswith("torch"):
        name = getattr(loss, "__name__", "it")
        raise OptionError(
            f"torch's {name} is told predicted and true costs and takes the mean over instances; a loss here is told the whole "
            f"batch and has one value per instance: lambda y, batch: {name}(y, batch.costs, reduction='none').mean(-1). For "
            "squared error: dflearn.losses.MSE()"
        )
    return FunctionLoss(loss)


def as_device(device: str | torch.device) -> torch.device:
    """The device that is meant; an error that says how to get it, where it is not here."""
    try:
        meant = torch.device(device)
    except RuntimeError as error:
        raise OptionError(f"device is 'cpu', 'cuda' or 'cuda:1', say; got {device!r}") from error
    if meant.type != "cuda":
        return meant
    if torch.version.cuda is None:
        raise OptionError(
            f"device={str(device)!r} needs a build of torch for CUDA, and torch {torch.__version__} here is none: "
            "install torch's wheel for CUDA (pytorch.org names the command) on a machine with an NVIDIA GPU, or use device='cpu'"
        )
    if not torch.cuda.is_available():
        raise OptionError(
            f"device={str(device)!r} needs an NVIDIA GPU and its driver, and torch {torch.__version__} finds none here: nvidia-smi "
            "shows whether there is one; or use device='cpu'"
        )
    if meant.index is not None and meant.index >= torch.cuda.device_count():
        raise OptionError(f"device={str(device)!r}: there are {torch.cuda.device_count()} GPUs here, from cuda:0 on")
    return meant


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        what = "a class: make one" if isinstance(model, type) else f"a {type(model).__name__}: write it as a module"
        got = f"got {what}. For example: dflearn.models.Linear"
        raise OptionError(f"the model is a torch.nn.Module, whose parameters are trained; {got}")


def check_parts(
    model: Any, loss: AnyLoss | Sequence[AnyLoss], train: Data, validation: Data | None, problem: Decided | None
) -> tuple[list[Loss], DecisionDataset]:
    """Losses and training data as a run takes them; an error where the parts of a run do not fit together."""
    check_model(model)
    several = isinstance(loss, Sequence) and not isinstance(loss, str) and len(loss) > 0
    losses = [as_loss(one) for one in (loss if several else [cast(AnyLoss, loss)])]  # type: ignore[union-attr]
    train = as_dataset(train, "train")
    if not len(train):
        raise DataError("the training set is empty")
    if validation is None and problem is not None:
        raise OptionError("`problem` judges the run on validation data: pass `validation` too")
    return losses, train


def make_optimizer(optimizer: str | MakeOptimizer, parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """The optimizer of this name, or what the callable makes of `(parameters, lr=lr)`."""
    if isinstance(optimizer, torch.optim.Optimizer):
        name = type(optimizer).__name__
        raise OptionError(
            f"optimizer is a finished {name}, and it is made here, for the model's parameters: pass the class, "
            f"optimizer=torch.optim.{name}, or a function, optimizer=lambda parameters, lr: {name}(parameters, lr=lr, …)"
        )
    named = isinstance(optimizer, str)
    optimizer = OPTIMIZERS.get(optimizer, optimizer) if isinstance(optimizer, str) else optimizer
    if not callable(optimizer):
        kinds = f"{', '.join(OPTIMIZERS)}, a class, or a function (parameters, lr=…) → optimizer"
        raise OptionError(f"optimizer is {kinds}; got {optimizer!r}")
    trained = list(parameters)
    if not trained:
        raise OptionError("the model has no parameters to train: none asks for a gradient (requires_grad)")
    return optimizer(trained, lr=lr, **({"fused": True} if named else {}))  # one kernel for all parameters


def make_scheduler(scheduler: MakeScheduler | None, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
    """What the function makes of the optimizer."""
    if scheduler is None:
        return None
    if isinstance(scheduler, LRScheduler) or not callable(scheduler):
        got = f"got a {type(scheduler).__name__}. For example: scheduler=lambda optimizer: StepLR(optimizer, 10)"
        raise OptionError(f"scheduler is a function optimizer → scheduler, since the optimizer is made here; {got}")
    return scheduler(optimizer)
