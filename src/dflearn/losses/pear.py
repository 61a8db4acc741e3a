"""PEAR: the prediction error, projected onto the face of the decision (Lee, Jin and Lee, 2026; arXiv 2605.01361)."""

from __future__ import annotations

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import weight
from dflearn.layers.smoothed import Smoothed
from dflearn.losses.base import Loss, LossOutput
from dflearn.losses.slope import with_slope


class PEAR(Loss):
    """obj(y, w) + Ω(w) − obj(y, w*) − Ω(w*),   w = layer(ŷ),   Ω = (μ/2)‖w‖²;   gradient

        g = (1/μ) Sᵀ P S (ŷ − y),   P the projector onto the face of w, that is, at the *predicted* costs.

    It is the regret of the smoothed problem up to a constant (its optimum is at layer(y), not at w*), and g its exact
    gradient: by optimality of w, P(S ŷ + d + μ w) = 0, so that P(S y + d + μ w) = −P S(ŷ − y). One solve per instance, at ŷ.
    The gradient of shifted `SCE` is g + Sᵀ(w* − w). So where the decision is a vertex, P = 0 and PEAR has no gradient,
    however wrong it is, and SCE has one.

    Against that the paper (by a review of it; its full text was not at hand) adds, for linear programs, the part that was projected away, n = (1/μ) SᵀS(ŷ − y) − g, at the length
    of g: g + β n ‖g‖/‖n‖, which is the gradient of nothing.

    Args:
        layer: `Smoothed` with the squared regularizer.
        injection: β ≥ 0.
    """

    layer: Smoothed
    known_rows = linear = True

    def __init__(self, layer: Smoothed, *, injection: float = 0.0) -> None:
        super().__init__(layer)
        if not isinstance(layer, Smoothed) or layer.regularizer != "squared":
            raise OptionError(f"PEAR projects onto the face of Smoothed(program, mu), squared; got {layer!r}")
        self.injection = weight(injection, "PEAR", "a finite injection >= 0", lambda value: value >= 0)

    def extra_repr(self) -> str:
        return f"injection={self.injection}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        objective, mu, label = self.layer.objective, self.layer.mu, batch.require("decisions")
        truth = batch.require("costs")
        with torch.enable_grad():
            at = predicted.detach().requires_grad_()
            solution = self.layer.solve(at, batch.instance, batch.start).check()
            error = objective.predicted(at.detach() - truth)
            (back,) = torch.autograd.grad(solution.decision, at, error)
        w, slope = solution.decision.detach(), -back
        if self.injection:
            normal = objective.transpose(error) / mu - slope
            length = torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
            size = torch.linalg.vector_norm(slope, dim=-1, keepdim=True)
            slope = slope + self.injection * size / length.where(length > 0, 1.0) * normal
        regularization = self.layer.regularization(w) - self.layer.regularization(label)
        value = objective(truth, w - label, batch.instance) + regularization
        why = "PEAR has no second derivatives: use SCE through Smoothed"
        return LossOutput(with_slope(predicted, value, slope, why), solution)
