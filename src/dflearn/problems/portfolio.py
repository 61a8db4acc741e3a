"""A portfolio: returns are predicted, the covariance is known, risk is paid for in the objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError
from dflearn.problems.base import PolynomialProblem, require_sizes
from dflearn.program import Program, Quadratic

FACTORS = 4  # that all returns depend on


@dataclass(frozen=True)
class Portfolio(PolynomialProblem):
    """max over w of yᵀw − (γ/2) wᵀΣ w   s.t.   Σ w = 1,   w ≥ 0.

    The returns of Elmachtoub and Grigas (2022), where risk was a constraint: x ~ N(0, I) (k), B ~ Bernoulli(½),
    y = (0.05/√k · B x + 0.1^(1/degree))^degree + L f + 0.01 τ ε,  f ~ N(0, I) (4),  ε ~ N(0, I),  L ~ U(−0.0025 τ, 0.0025 τ),
    so that Σ = L Lᵀ + (0.01 τ)² I, and the bracket is E[y | x].  Drawn in the order B, L, x, f, ε.

    Args:
        assets: how many.
        features, degree: k, and the degree of the polynomial.
        noise: τ > 0.
        aversion: γ > 0, the price of risk.
    """

    assets: int
    degree: int = field(default=4, kw_only=True)
    noise: float = field(default=1.0, kw_only=True)
    aversion: float = field(default=100.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(assets=self.assets)
        for name in ("noise", "aversion"):
            if not 0 < getattr(self, name) < np.inf:
                raise OptionError(f"{name} must be positive and finite, got {getattr(self, name)}")

    @property
    def name(self) -> str:
        return f"portfolio-{self.assets}"

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        B = rng.binomial(1, 0.5, (self.assets, self.features))
        return {"B": B, "L": rng.uniform(-0.0025 * self.noise, 0.0025 * self.noise, (self.assets, FACTORS))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        risk = Quadratic(
            np.sqrt(self.aversion) * structure["L"].T, np.full(self.assets, self.aversion * (0.01 * self.noise) ** 2)
        )
        return Program(
            A=np.ones((1, self.assets)),
            b=[1.0],
            S=-sp.eye_array(self.assets),
            Q=risk,
            sense="maximize",
            name=self.name,
        )

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        common = rng.normal(0, 1, (len(features), FACTORS)) @ self.structure["L"].T
        return self._expected_costs(features) + common + 0.01 * self.noise * rng.normal(0, 1, common.shape)

    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        mixed = 0.05 / np.sqrt(self.features) * features @ self.structure["B"].T
        return (mixed + 0.1 ** (1 / self.degree)) ** self.degree
