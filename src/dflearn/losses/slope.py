"""A value with a gradient of one's own: for losses whose gradient is known without going through the layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dflearn.layers.base import Layer, refusing
from dflearn.solvers.base import Solution


def with_slope(predicted: Tensor, value: Tensor, slope: Tensor, why: str) -> Tensor:
    """The value `(*batch,)` with the gradient `slope` in ŷ, both `(*batch, p)`; `why` is the error of second derivatives."""
    loss: Tensor = _WithSlope.apply(predicted, value.detach().to(predicted), slope.detach().to(predicted), why)  # type: ignore[no-untyped-call]
    return loss


def slope_of_optimum(layer: Layer, solution: Solution) -> Tensor:
    """The gradient in y of the layer's optimum, `Solution.objective`: Sᵀ w by Danskin's theorem.  `(*batch, p)`."""
    return layer.objective.transpose(solution.decision.detach()) if solution.slope is None else solution.slope


class _WithSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, predicted: Tensor, value: Tensor, slope: Tensor, why: str) -> Tensor:
        ctx.save_for_backward(predicted, slope)
        ctx.why = why
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        predicted, slope = ctx.saved_tensors
        product = gradient.unsqueeze(-1) * slope
        return refusing(product, predicted, ctx.why) if torch.is_grad_enabled() else product, None, None, None
