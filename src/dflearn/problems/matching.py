"""Bipartite matching: each agent gets one task, each task one agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dflearn.problems.polynomial import PolynomialProblem, require_sizes
from dflearn.program import Program
from dflearn.solvers.base import Solver


@dataclass(frozen=True)
class Matching(PolynomialProblem):
    """min over w of yᵀw   s.t.   Σ_j w_ij = 1 for every i,   Σ_i w_ij = 1 for every j,   w ≥ 0.

    Variables are numbered agent by agent. The program is linear: its vertices are permutations (Birkhoff).
    Costs: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε.  Drawn in the order B, x, ε.
    """

    size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(size=self.size)

    @property
    def name(self) -> str:
        return f"matching-{self.size}"

    def solver(self) -> Solver:
        """The Hungarian method's successor, by scipy (Crouse, 2016)."""
        from dflearn.solvers.callable import from_callable

        function = LeastCostMatching(self.size)
        return from_callable(function, self.program.n, batched=True, name=repr(function))

    def relaxed_solver(self) -> Solver:
        return self.solver()  # the program is its own relaxation

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.binomial(1, 0.5, (self.size**2, self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        one, each = np.ones((1, self.size)), sp.eye_array(self.size)
        A = sp.vstack([sp.kron(each, one), sp.kron(one, each)])
        return Program(A=A, b=np.ones(2 * self.size), name=self.name)


@dataclass(frozen=True)
class LeastCostMatching:
    """c `(count, size²)` → the permutation matrix w of least cᵀw, row by row, `(count, size²)`."""

    size: int

    def __call__(self, c: np.ndarray) -> np.ndarray:
        from scipy.optimize import linear_sum_assignment

        w = np.zeros((len(c), self.size, self.size))
        for decision, costs in zip(w, c.reshape(w.shape), strict=True):
            decision[linear_sum_assignment(costs)] = 1
        return w.reshape(c.shape)
