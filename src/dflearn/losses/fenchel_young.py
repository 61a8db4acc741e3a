"""Fenchel-Young losses: convex, smooth, and in need of decisions only (Blondel et al., 2020; Berthet et al., 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Layer
from dflearn.losses.base import Field, Loss, LossOutput


class FenchelYoung(Loss):
    """obj(ŷ, w*) + Ω(w*) − min over w of (obj(ŷ, w) + Ω(w)),   gradient Sᵀ(w* − layer(ŷ)).

    Through `Smoothed`, Ω = (μ/2)‖w‖². Through `Perturbed` the minimum is the average over the noise and Ω is its
    conjugate, unknown in closed form: the value then leaves out the constant Ω(w*). Through `Exact` it is plain SCE.
    Where the optimum of the layer has another gradient than Sᵀ layer(ŷ), `Solution.slope`, it takes its place.
    The gradient needs no Jacobian; second derivatives are −Sᵀ(dw/dy), the layer's.
    """

    layer: Layer
    known_rows = True
    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return fenchel_young(self.layer, predicted, batch)


def fenchel_young(layer: Layer, costs: Tensor, batch: Batch) -> LossOutput:
    """The Fenchel-Young loss of the batch's decisions at any costs `(*batch, p)`."""
    label, instance = batch.require("decisions"), batch.instance
    solution = layer.solve(costs, instance, batch.start).check()
    c, difference = layer.objective.vector(costs, instance), label - solution.decision
    exact = label.double()  # what is left of two large numbers
    at_label = layer.objective(costs.detach().double(), exact, instance) + layer.regularization(exact)
    value = (at_label.detach() - solution.objective.to(at_label)).to(costs)
    if solution.slope is None:
        loss: Tensor = _Danskin.apply(c, value, (difference,))  # type: ignore[no-untyped-call]
    else:
        difference = layer.objective.transpose(label) - solution.slope.to(costs)
        loss = _Danskin.apply(costs, value, (difference,))  # type: ignore[no-untyped-call]
    if label.requires_grad:
        loss = loss + (at_label - at_label.detach()).to(loss)
    return LossOutput(loss, solution)


class _Danskin(torch.autograd.Function):
    """The value, with gradient `difference` in c.

    By Danskin's theorem that is the gradient of a minimum, with its argument held fixed; the argument's own derivative
    enters second derivatives alone. So it is no input here, and the first way back never goes through the layer.
    """

    @staticmethod
    def forward(ctx: Any, c: Tensor, value: Tensor, difference: tuple[Tensor]) -> Tensor:
        ctx.difference = difference
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.unsqueeze(-1) * ctx.difference[0], None, None
