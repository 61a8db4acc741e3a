"""Differentiable layers known in closed form, as references for tests: no solver, no kernel, only torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dflearn.layers.base import Layer
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution


class ClosedFormLayer(Layer):
    """w minimizes obj(y, w) + (μ/2)‖w‖², where `_project` is the projection onto the feasible set: w = P(−c/μ)."""

    def __init__(self, program: Program, mu: float) -> None:
        super().__init__(program.objective)
        self.program, self.mu = program, mu

    def extra_repr(self) -> str:
        return f"mu={self.mu}"

    def regularization(self, w: Tensor) -> Tensor:
        return self.mu / 2 * w.square().sum(-1)

    def _project(self, z: Tensor, instance: Instance | None) -> Tensor:
        raise NotImplementedError

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        w = self._project(-self.objective.vector(y, instance) / self.mu, instance)
        value = (self.objective(y, w, instance) + self.regularization(w)).detach().double()
        return Solution(w, torch.zeros(y.shape[:-1], dtype=torch.int8), value, value)


class SmoothedBox(ClosedFormLayer):
    """lower ≤ w ≤ upper, no rows: the projection is a clip."""

    def _project(self, z: Tensor, instance: Instance | None) -> Tensor:
        lower, upper = (torch.as_tensor(np.array(side)).to(z) for side in (self.program.lower, self.program.upper))
        if instance is not None and instance.upper is not None:
            upper = instance.upper
        return torch.minimum(torch.maximum(z, lower), upper)


class SmoothedTopOne(ClosedFormLayer):
    """w ≥ 0, Σw ≤ 1 (items to choose from, at most one): max(z, 0), or the projection onto the simplex."""

    def __init__(self, items: int, mu: float) -> None:
        super().__init__(top_one(items), mu)

    def _project(self, z: Tensor, instance: Instance | None) -> Tensor:
        high = z.sort(-1, descending=True).values
        count = torch.arange(1, z.shape[-1] + 1).to(z)
        excess = (high.cumsum(-1) - 1) / count
        support = (high > excess).sum(-1, keepdim=True)
        theta = excess.gather(-1, support - 1)
        return (z - theta.clamp(min=0)).clamp(min=0)


def top_one(items: int) -> Program:
    """Choose at most one item of the largest value."""
    return Program(G=np.ones((1, items)), h=[1], S=-np.eye(items), sense="maximize")
