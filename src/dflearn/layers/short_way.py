"""`Smoothed` without detours where there is nothing on the way: squared, a linear objective, the program's own right-hand sides
and bounds, no start, costs as an array on the CPU. Around kernels of some microseconds every call counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dflearn.certify import OPTIMAL
from dflearn.kernels.smoothed import COLD, SmoothedAnswer, SmoothedData

if TYPE_CHECKING:
    from dflearn.layers.smoothed import Smoothed


class ShortWay:
    """A layer's program and the present μ, as the kernels want them."""

    def __init__(self, layer: Smoothed) -> None:
        self.rows, self.objective, self.tolerance = layer.rows, layer.objective, layer.tolerance
        self.n, self.m, self.p = self.rows.program.n, self.rows.factor.rows, self.objective.p
        self.d = self.objective.d if self.objective.has_d else None
        self.mu, self.minus = layer.mu, -1.0 / layer.mu
        self.one = (1, self.p) if self.rows.may_be_alone else None  # the shape of costs that are solved alone
        self.kappa = np.array([layer.mu])
        self.factor = -1.0 / self.kappa
        self.sides = self.rows.data(np.empty((0, 0)), self.kappa, self.rows.program.own_sides)[1:]

    def answer(self, y: np.ndarray) -> SmoothedAnswer | None:
        """The answers to costs `(count, p)`; `None` where one of them is not optimal, or something is wrong with the costs."""
        if y.ndim != 2 or y.shape[1] != self.p or not len(y) or not math.isfinite(np.vdot(y, y)) or self.rows.heavy:
            return None
        c = np.ascontiguousarray(self.objective.rows(y, np.float64))
        if self.d is not None:
            c = c + self.d
        count, n, m = len(c), self.n, self.m
        steps = np.empty((2, count), np.int64)
        answer = SmoothedAnswer(
            np.empty((count, m)), np.empty((count, n)), np.empty((count, n), np.uint8), np.empty((count, m), np.uint8),
            np.empty(count), np.empty(count), np.empty(count, np.uint8), steps[0], steps[1],
        )  # fmt: skip
        self.rows.run(SmoothedData(c, *self.sides), None, COLD, self.tolerance, answer)
        self.rows.look_at_dropped(answer, self.rows.program.own_sides)
        return answer if answer.residual.max() <= OPTIMAL else None

    def back(self, inside: np.ndarray, in_force: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """−(1/μ) Sᵀ P gradient, `(count, n)` → `(count, p)`, as of `Face.way_back`."""
        out = self.rows.project(inside, in_force, gradient.astype(np.float64, order="C"), self.factor)
        return self.objective.rows_back(out.astype(gradient.dtype, copy=False))
