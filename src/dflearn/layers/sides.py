"""Gradients of a decision in the right-hand sides, bounds and q of its instance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dflearn.layers.base import as_rows, attached, refusing
from dflearn.program import Instance

NO_MORE = "gradients in an instance's sides have no second derivatives"


def wanted_sides(instance: Instance | None) -> dict[str, Tensor]:
    """The right-hand sides, bounds and q that a gradient is wanted for."""
    if instance is None or not torch.is_grad_enabled():
        return {}
    return {name: value for name, value in instance.learned().items() if name != "d"}


def with_sides(
    decision: Tensor, wanted: dict[str, Tensor], slopes: Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
) -> Tensor:
    """The decision `(*batch, n)`, differentiable in those sides of its instance too.

    slopes: decisions and gradients in them, `(count, n)` → by name, gradients in the sides.
    """
    count = decision.shape[:-1].numel()
    w = as_rows(decision, count, np.float64)

    def backward(gradient: Tensor) -> tuple[Tensor, ...]:
        found = slopes(w, as_rows(gradient, count, np.float64))
        return tuple(torch.as_tensor(found[name]).reshape(value.shape).to(value) for name, value in wanted.items())

    return moved_by(decision, backward, *wanted.values())


def moved_by(decision: Tensor, backward: Callable[[Tensor], tuple[Tensor, ...]], *sides: Tensor) -> Tensor:
    """The decision, differentiable in the sides too: `backward` turns a gradient in it into those in the sides."""

    def own(gradient: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        found = backward(gradient.detach())
        return tuple(refusing(part, value, NO_MORE) for part in found) if torch.is_grad_enabled() else found

    return attached(decision, own, *sides)
