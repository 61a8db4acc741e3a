"""`Smoothed` without detours where there is nothing on the way: squared, a linear objective, the program's own right-hand sides
and bounds, no start, costs as an array on the CPU. Around kernels of some microseconds every call counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dflearn.kernels.lanes import LANES
from dflearn.kernels.smoothed import COLD, SmoothedAnswer, project_tiles, solve_tiles
from dflearn.kernels.threads import threads
from dflearn.layers.base import ACCEPTED_RESIDUAL
from dflearn.layers.rows import PATIENCE, all_instances, limits_of

if TYPE_CHECKING:
    from dflearn.layers.smoothed import Smoothed


class ShortWay:
    """A layer's program and the present μ, as the kernels want them."""

    def __init__(self, layer: Smoothed) -> None:
        rows, objective = layer.rows, layer.objective
        self.rows, self.objective, self.p = rows, objective, objective.p
        self.d = objective.d if objective.has_d else None
        self.scale = objective.diagonal
        self.sizes = rows.program.n, rows.factor.rows
        mu = np.array([layer.mu])
        self.sides = (mu, *rows.data(np.empty((0, 0)), mu, rows.program.own_sides)[2:])
        self.limits = limits_of(COLD, layer.tolerance, False, None, PATIENCE)
        self.kappa, self.factor = mu, -1.0 / mu

    def answer(self, y: np.ndarray) -> SmoothedAnswer | None:
        """The answers to costs `(count, p)`; `None` where one of them is not optimal, or something is wrong with the costs."""
        if y.ndim != 2 or y.shape[1] != self.p or not math.isfinite(np.vdot(y, y)):
            return None
        c = y.astype(np.float64, order="C") if self.scale is not None else self.objective.rows(y, np.float64)
        if self.scale is not None:
            c *= self.scale
        if self.d is not None:
            c = c + self.d
        count, (n, m) = len(c), self.sizes
        if not count or self.rows.heavy:
            return None
        steps = np.empty((2, count), np.int64)
        answer = SmoothedAnswer(
            np.empty((count, m)), np.empty((count, n)), np.empty((count, n), np.uint8), np.empty((count, m), np.uint8),
            np.empty(count), np.empty(count), np.empty(count, np.uint8), steps[0], steps[1],
        )  # fmt: skip
        lanes = 1 if count == 1 else LANES
        c = np.ascontiguousarray(c)
        if count <= lanes or threads() == 1:
            space, index = self.rows._space(lanes), all_instances(count)
            solve_tiles(self.rows.plan.numbers, space, index, COLD, *self.limits, c, *self.sides, *answer)
        else:
            self.rows._run(solve_tiles, count, None, COLD, *self.limits, c, *self.sides, *answer)
        return answer if max(answer.residual.tolist()) <= ACCEPTED_RESIDUAL else None

    def back(self, inside: np.ndarray, in_force: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """−(1/μ) Sᵀ P gradient, `(count, n)` → `(count, p)`, as of `Face.way_back`."""
        v = gradient.astype(np.float64, order="C")
        count = len(v)
        lanes = 1 if count == 1 else LANES
        if count > lanes and threads() != 1:
            out = self.rows.project(inside, in_force, v, self.factor)
        else:
            out, z, off = np.empty(v.shape), np.empty(in_force.shape), np.empty((count, 1))
            space, index = self.rows._space(lanes), all_instances(count)
            project_tiles(self.rows.plan.numbers, space, index, inside, in_force, v, self.factor, out, z, off)
            if max(off.tolist())[0]:  # a face whose rows the kernel lost
                out = self.rows.project(inside, in_force, v, self.factor)
        return self.objective.rows_back(out.astype(gradient.dtype, copy=False))
