"""CaVE as the authors of the paper ran it: an interior-point method stopped after three steps, on the multipliers.

Where a solver stands after three steps depends on the solver and on how the problem is written, and on the knapsack the
regret of CaVE depends on that a lot. So the published rows need this very solver and form; `dflearn.losses.CaVE` is ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from dflearn.data import Batch
from dflearn.losses.base import Field, Loss, LossOutput
from dflearn.program import Program

TIGHT = 1e-5  # slack of a row, or distance to 0 or 1, at which it counts as binding
KEPT = 1024  # decisions whose problems are kept: more than the paper's training sets hold


class CaVEAsPublished(Loss):
    """1 − cos(v, p),   v = −(S ŷ + d),   p = Nᵀλ after a few steps of Clarabel towards min over λ ≥ 0 of ‖v − Nᵀλ‖².

    The rows of N are what binds at w*: inequalities, equalities in both directions, −e_j where w*_j = 0, e_j where
    w*_j = 1. For programs with variables between 0 and 1, as the paper's are. Needs the extra `cvxpy`.

    Args:
        iterations: at most so many steps.
    """

    needs: tuple[Field, ...] = ("decisions",)

    def __init__(self, program: Program, iterations: int = 3) -> None:
        super().__init__()
        import clarabel

        self.program, self.clarabel = program, clarabel
        self.settings = clarabel.DefaultSettings()
        self.settings.verbose, self.settings.max_iter = False, int(iterations)
        self.settings.max_threads = 1
        self._problems: dict[bytes, tuple[sp.csr_matrix, sp.csc_matrix, sp.csc_matrix]] = {}

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        v = -self.program.objective.vector(predicted)
        vectors = v.detach().double().numpy().reshape(-1, self.program.n)
        decisions = batch.require("decisions").double().numpy().reshape(-1, self.program.n)
        found = np.stack([self.project(*pair) for pair in zip(vectors, decisions, strict=True)])
        target = torch.as_tensor(found).to(v).reshape(v.shape)
        return LossOutput(1.0 - cosine_similarity(v, target, dim=-1))

    def project(self, v: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Where Clarabel stands after its last step: near the projection of v `(n,)` onto the cone at w `(n,)`."""
        normals, quadratic, matrix = self._problem(w)
        rows, n = normals.shape
        cones: list[Any] = [self.clarabel.ZeroConeT(n), self.clarabel.NonnegativeConeT(rows)]
        side = np.concatenate([v, np.zeros(rows)])
        solver = self.clarabel.DefaultSolver(quadratic, np.zeros(rows + n), matrix, side, cones, self.settings)
        return normals.T @ np.array(solver.solve().x[:rows])

    def normals(self, w: np.ndarray) -> sp.csr_matrix:
        """N, `(binding, n)`."""
        program, unit = self.program, sp.eye(self.program.n, format="csr")
        tight = np.flatnonzero(np.abs(program.h - program.G @ w) < TIGHT)
        low, high = np.flatnonzero(w <= TIGHT), np.flatnonzero(w >= 1 - TIGHT)
        return sp.csr_matrix(sp.vstack([program.G[tight], program.A, -program.A, -unit[low], unit[high]]))

    def _problem(self, w: np.ndarray) -> tuple[sp.csr_matrix, sp.csc_matrix, sp.csc_matrix]:
        """N, and the problem over (λ, r) in Clarabel's form:  min ‖r‖²   s.t.   Nᵀλ + r = v,   λ ≥ 0."""
        key = w.tobytes()
        found = self._problems.get(key)
        if found is None:
            normals = self.normals(w)
            rows, n = normals.shape
            quadratic = sp.block_diag([sp.csc_matrix((rows, rows)), 2 * sp.eye(n)], format="csc")
            fit = sp.hstack([normals.T, sp.eye(n)])
            signs = sp.hstack([-sp.eye(rows), sp.csc_matrix((rows, n))])
            while len(self._problems) >= KEPT:
                self._problems.pop(next(iter(tuple(self._problems))), None)  # a copy: other threads write there too
            self._problems[key] = found = (normals, quadratic, sp.vstack([fit, signs], format="csc"))
        return found
