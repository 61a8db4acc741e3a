"""Compilation before the clock starts."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import torch
from torch import Tensor, nn

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Loss
from dflearn.models import predict
from dflearn.training.validation import Validation

ROWS = 2  # instances that are tried: enough for most kernels to be compiled


def rows_to_try(loss: Loss, batch_size: int, count: int) -> Tensor:
    """The instances on which `prepare` tries a loss: as many as its kernels need to be compiled as in training."""
    by_batch = any(isinstance(module, Layer) and module.compiles_by_batch for module in loss.modules())
    return torch.arange(min(batch_size if by_batch else ROWS, count))


def prepare(model: nn.Module, loss: Loss, batch: Batch, validation: Validation | None = None) -> float:
    """Go once forward and back through the layers of the loss, and once through the solver that judges; the seconds it took.

    Kernels are compiled (or read from the cache) when they are first called. Nothing is changed: not a weight, not a draw of
    noise, not a pool. An error is left to training, which says where it happened.
    """
    begun = perf_counter()
    state = loss.state_dict()
    with suppress(Exception):
        if any(isinstance(module, Layer) for module in loss.modules()):
            predicted = predict(model, batch.features).requires_grad_()
            with torch.enable_grad():
                value = loss.output(predicted, batch).value
                if value.requires_grad:
                    torch.autograd.grad(value.sum(), predicted)
        if validation is not None and validation.solver is not None:
            validation.totals(model, torch.arange(min(ROWS, len(validation.data))))
    loss.load_state_dict(state)
    return perf_counter() - begun
