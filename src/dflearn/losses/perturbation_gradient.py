"""PG: the true cost of the predicted decision as a difference quotient of optimal values (Huang and Gupta, 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers.base import Layer, raised, weight
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.losses.slope import slope_of_optimum, with_slope
from dflearn.solvers.base import Solution

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
