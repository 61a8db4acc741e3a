"""A smoothed quadratic program as a smoothed linear one, by a change of variables.

    min cᵀw + ½ wᵀQ w + (μ/2)‖w‖²   with   Q = RᵀR + diag(δ)   is   min (D c)ᵀv + ½‖v‖² + ½‖z‖²   over   w = D v,   z = R w,

D = diag(δ + μ)^(−1/2): the smoothed LP with μ = 1 over (v, z), with one more row for each of R, which the kernels solve as
any other. Its exact gradient becomes the QP's, −Z(Zᵀ(Q + μI)Z)⁻¹Zᵀ on the face, through the same two maps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution

if TYPE_CHECKING:
    from dflearn.layers.smoothed import Smoothed


class Lifted:
    """The layer over (v, z) for one program with Q and one μ, which may be zero where Q is definite."""

    def __init__(self, program: Program, mu: float, tolerance: float = 1e-10) -> None:
        from dflearn.layers.smoothed import Smoothed

        assert program.Q is not None
        Q = program.Q if mu > 0 else program.Q.definite
        assert Q is not None
        self.n, self.more = program.n, Q.factor.shape[0]
        scale = 1 / np.sqrt(Q.diagonal + mu)
        D, z = sp.diags_array(scale), sp.eye_array(self.more)
        beside = [sp.csr_array((part.shape[0], self.more)) for part in (program.A, program.G)]
        rows = sp.block_array([[program.A @ D, beside[0]], [Q.factor @ D, -z]]) if self.more else program.A @ D
        free = np.full(self.more, np.inf)
        whole = Program(
            A=rows,
            b=np.concatenate([program.b, np.zeros(self.more)]),
            G=sp.hstack([program.G @ D, beside[1]]),
            h=program.h,
            lower=np.concatenate([program.lower / scale, -free]),
            upper=np.concatenate([program.upper / scale, free]),
            n=self.n + self.more,
            name=program.name,
        )
        self.layer: Smoothed = Smoothed(whole, mu=1.0, tolerance=tolerance)
        self.scale = torch.tensor(scale)

    def solve(self, costs: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        """The answer for c `(*batch, n)`, differentiable in c. Its start is the multipliers of rows, those of R last but for G."""
        scale = self.scale.to(costs.device)
        lifted = self._widened(costs.double() * scale)
        solution = self.layer._solve(lifted, self._instance(instance), start)
        decision = (solution.decision[..., : self.n] * scale).to(costs)
        return replace(solution, decision=decision)

    def face(self, inside: np.ndarray, inequalities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A face of the program as one over (v, z), for `SmoothedRows`: which variables lie inside `(count, n)`, which rows of G
        are in force `(count, rows)`."""
        form, count = self.layer.rows.form, len(inside)
        wide = np.hstack([inside, np.ones((count, self.more), np.uint8)])
        rows = np.hstack([np.ones((count, len(form.kept)), np.uint8), inequalities])
        return np.ascontiguousarray(wide), self.layer.rows.ordered(rows)

    def way_back(self, inside: np.ndarray, inequalities: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(dw/dc)ᵀ v on such a face, `(count, n)` → `(count, n)`."""
        scale = self.scale.numpy()
        wide = np.hstack([v * scale, np.zeros((len(v), self.more))])
        return -scale * self.layer.rows.project(*self.face(inside, inequalities), wide)[:, : self.n]

    def _widened(self, part: Tensor, value: float = 0.0) -> Tensor:
        """With entries for z."""
        if not self.more:
            return part
        return torch.cat([part, part.new_full((*part.shape[:-1], self.more), value)], -1)

    def _instance(self, instance: Instance | None) -> Instance | None:
        if instance is None:
            return None
        given = {name: value.double() for name, value in instance.present().items() if name != "d"}
        if "b" in given:
            given["b"] = self._widened(given["b"])
        for name, end in (("lower", -np.inf), ("upper", np.inf)):
            if name in given:
                given[name] = self._widened(given[name] / self.scale.to(given[name].device), end)
        return Instance(**given)
