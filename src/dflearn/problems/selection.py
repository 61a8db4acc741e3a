"""Choose the k most valuable of some items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError
from dflearn.problems.polynomial import PolynomialProblem, require_sizes
from dflearn.program import Program
from dflearn.solvers.base import Solver


@dataclass(frozen=True)
class Selection(PolynomialProblem):
    """max over w of yᵀw   s.t.   Σ w ≤ k,   w ∈ {0, 1}.

    The knapsack with one dimension and weights of one; its relaxation has integer vertices.
    Values: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε, not rounded.  Drawn in the order B, x, ε.
    """

    items: int
    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(items=self.items, k=self.k)
        if self.k > self.items:
            raise OptionError(f"k cannot exceed the number of items: {self.k} > {self.items}")

    @property
    def name(self) -> str:
        return f"TopK-{self.items}x{self.k}"

    def solver(self) -> Solver:
        from dflearn.solvers import oracles

        return oracles.TopK.of(self.program)

    def relaxed_solver(self) -> Solver:
        from dflearn.solvers import oracles

        return oracles.TopK.of(self.relaxation)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.binomial(1, 0.5, (self.items, self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return Program(
            G=np.ones((1, self.items)),
            h=[float(self.k)],
            upper=1,
            S=-sp.eye_array(self.items),
            integer=True,
            sense="maximize",
            name=self.name,
        )
