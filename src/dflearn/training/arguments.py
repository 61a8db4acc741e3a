"""What arrives at the door of `fit` and `DecisionModule`: taken in where the meaning is clear, refused with a remedy otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dflearn.data import Batch, Data, DecisionDataset, as_dataset
from dflearn.errors import DataError, OptionError
from dflearn.losses.base import FunctionLoss, Loss
from dflearn.solvers.task import Decided

MakeOptimizer = Callable[..., torch.optim.Optimizer]
MakeScheduler = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
OPTIMIZERS: dict[str, MakeOptimizer] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}

AnyLoss = Loss | Callable[[Tensor, Batch], Tensor]


def as_loss(loss: AnyLoss) -> Loss:
    """A `Loss` as it is; a function of predicted costs and batch as a `FunctionLoss`."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(getattr(loss, "_orig_mod", None), Loss):  # what torch.compile makes of a module
        raise OptionError(
            "a loss solves outside of torch, so torch.compile can do nothing for it: pass the loss itself, and compile the "
            "model where that pays, fit(torch.compile(model), loss, …)"
        )
    if isinstance(loss, type):
        raise OptionError(f"the loss is a class: make one, {loss.__name__}(…)")
    if isinstance(loss, nn.Module) or not callable(loss):
        raise OptionError(
            f"the loss is a dflearn.losses.Loss, or a function of predicted costs and batch with one value per instance; got "
            f"a {type(loss).__name__}. For squared error: dflearn.losses.MSE()"
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
        raise OptionError(
            f"the model is a torch.nn.Module, whose parameters are trained; got {what}. For example: "
            "dflearn.models.Linear(features, costs)"
        )


def check_parts(
    model: Any, loss: AnyLoss | Sequence[AnyLoss], train: Data, validation: Data | None, problem: Decided | None
) -> tuple[list[Loss], DecisionDataset]:
    """Losses and training data as a run takes them; an error where the parts of a run do not fit together."""
    check_model(model)
    losses = [as_loss(one) for one in loss] if isinstance(loss, list | tuple) and loss else [as_loss(loss)]
    train = as_dataset(train, "train")
    if not len(train):
        raise DataError("the training set is empty")
    if validation is None and problem is not None:
        raise OptionError("`problem` judges the run on validation data: pass `validation` too")
    return losses, train


def make_optimizer(
    optimizer: str | MakeOptimizer, parameters: Iterable[nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    """The optimizer of this name, or what the callable makes of `(parameters, lr=lr)`."""
    if isinstance(optimizer, torch.optim.Optimizer):
        name = type(optimizer).__name__
        raise OptionError(
            f"optimizer is a finished {name}, and it is made here, for the model's parameters: pass the class, "
            f"optimizer=torch.optim.{name}, or a function, optimizer=lambda parameters, lr: {name}(parameters, lr=lr, …)"
        )
    named = isinstance(optimizer, str) and optimizer in OPTIMIZERS
    if isinstance(optimizer, str) and optimizer in OPTIMIZERS:
        optimizer = OPTIMIZERS[optimizer]
    if not callable(optimizer):
        raise OptionError(
            f"optimizer is one of {', '.join(OPTIMIZERS)}, a class, or a function (parameters, lr=…) → optimizer; got "
            f"{optimizer!r}"
        )
    trained = list(parameters)
    if not trained:
        raise OptionError("the model has no parameters to train: none asks for a gradient (requires_grad)")
    return optimizer(trained, lr=lr, **({"fused": True} if named else {}))  # one kernel for all parameters


def make_scheduler(
    scheduler: MakeScheduler | None, optimizer: torch.optim.Optimizer
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """What the function makes of the optimizer."""
    if scheduler is None:
        return None
    if isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler) or not callable(scheduler):
        raise OptionError(
            f"scheduler is a function optimizer → scheduler, since the optimizer is made here; got a "
            f"{type(scheduler).__name__}. For example: scheduler=lambda optimizer: StepLR(optimizer, 10)"
        )
    return scheduler(optimizer)
