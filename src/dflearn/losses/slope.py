"""Losses whose gradient is known without going through the layer: PEAR and PG."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer, raised, weight
from dflearn.layers.smoothed import Smoothed
from dflearn.losses.base import Field, Loss, LossOutput, slope_of_optimum, with_slope
from dflearn.solvers.base import Solution


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


Difference = Literal["backward", "central", "forward"]
SIDES: dict[Difference, tuple[int, int]] = {"backward": (0, -1), "central": (1, -1), "forward": (1, 0)}


class PerturbationGradient(Loss):
    """With V(c) = min over w of cᵀw (+ Ω(w)), ĉ = S ŷ + d and c = S y + d:

        backward:  [V(ĉ) − V(ĉ − h c)] / h
        central:   [V(ĉ + h c) − V(ĉ − h c)] / 2h
        forward:   [V(ĉ + h c) − V(ĉ)] / h

    All tend to cᵀw*(ĉ), the true cost of the decision, as h → 0; since V is concave, backward ≥ cᵀw*(ĉ) ≥ forward. Gradient
    by Danskin's theorem, Sᵀ(w⁺ − w⁻)/h (central: 2h), not through the layer. Differences of concave functions: not convex.

    Two solves per instance, and no optimal decisions needed. The value is a cost, not a regret: it is zero nowhere.

    Args:
        width: h > 0, a share of the true costs; may be set later, `loss.width = …`.
    """

    layer: Layer
    known_rows = linear = exact = True
    needs: tuple[Field, ...] = ("costs",)

    def __init__(self, layer: Layer, width: float = 0.1, *, difference: Difference = "backward") -> None:
        super().__init__(layer)
        if difference not in SIDES:
            raise OptionError(f"difference is one of {', '.join(SIDES)}; got {difference!r}")
        self.width = weight(width, "PerturbationGradient", "a finite width > 0", lambda value: value > 0)
        self.difference: Difference = difference

    def extra_repr(self) -> str:
        return f"width={self.width}, difference={self.difference!r}"

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        above, below = SIDES[self.difference]
        with torch.no_grad():
            high = self._at(above, predicted, batch, batch.start)
            low = self._at(below, predicted, batch, high.start)
            distance = self.width * (above - below)
            value = (high.objective - low.objective) / distance
            slope = (slope_of_optimum(self.layer, high) - slope_of_optimum(self.layer, low)) / distance
        why = "PerturbationGradient has no second derivatives: use FenchelYoung through Smoothed"
        return LossOutput(with_slope(predicted, value, slope, why), replace(high, seconds=high.seconds + low.seconds))

    def _at(self, side: int, predicted: Tensor, batch: Batch, start: Tensor | None) -> Solution:
        """The layer's answer at ĉ + side · h · c."""
        step, instance, objective = side * self.width, batch.instance, self.layer.objective
        known = objective.vector(torch.zeros_like(predicted), instance)  # d
        if step and bool(known.any()):
            instance = raised(objective, instance, step * known)
        return self.layer.solve(predicted + step * batch.require("costs"), instance, start).check()
