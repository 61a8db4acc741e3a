"""Choose by predicted values within a budget: items (knapsack, the k most valuable), or shares of assets (portfolio)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from dflearn.errors import OptionError
from dflearn.problems.base import PolynomialProblem, integral_of_ceiling, require_sizes
from dflearn.program import Program, Quadratic
from dflearn.solvers.base import Solver
from dflearn.solvers.task import best_solver


@dataclass(frozen=True)
class Knapsack(PolynomialProblem):
    """max over w of yᵀw   s.t.   weights · w ≤ capacity in each dimension,   w ∈ {0, 1}.

    Weights are uniform on 3.00, 3.01, …, 7.99; the capacity is ⌊capacity_share · items⌋ in each dimension.
    Values: B ~ Bernoulli(½);  y = ⌈5 ((z^degree) + 1) / 3.5^degree · ε⌉.
    Drawn in the order weights, B, x, ε. KP-n of the paper has n items and two dimensions.

    Args:
        items, dimensions, capacity_share: see above.
        features, degree, noise, seed: as of `PolynomialProblem`.

    Examples:
        >>> dfl.problems.Knapsack(8, seed=1).generate(2).costs.shape
        torch.Size([2, 8])
    """

    items: int
    dimensions: int = 2
    capacity_share: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(items=self.items, dimensions=self.dimensions)
        if not 0 < self.capacity_share < np.inf:
            raise OptionError(f"capacity_share must be positive and finite, got {self.capacity_share}")

    @property
    def name(self) -> str:
        return f"KP-{self.items}" if self.dimensions == 2 else f"KP-{self.items}x{self.dimensions}"

    @property
    def capacity(self) -> int:
        return math.floor(round(self.capacity_share * self.items, 9))  # 0.29 · 100 is 29, not 28.999…

    def solver(self) -> Solver:
        return best_solver(self.program)

    def relaxed_solver(self) -> Solver:
        return best_solver(self.relaxation)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        weights = rng.choice(np.arange(300, 800), (self.dimensions, self.items)) / 100
        return {"weights": weights, "B": rng.binomial(1, 0.5, (self.items, self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return chosen_within(structure["weights"], self.capacity, self.name)

    def _level(self, z: np.ndarray) -> np.ndarray:
        return 5 * (z**self.degree + 1) / 3.5**self.degree

    def _round(self, values: np.ndarray) -> np.ndarray:
        return np.ceil(values)

    def _integral(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return integral_of_ceiling(low, high)


def chosen_within(weights: np.ndarray, capacity: float, name: str) -> Program:
    """max yᵀw   s.t.   weights · w ≤ capacity in each dimension,   w ∈ {0, 1}."""
    h, S = np.full(len(weights), float(capacity)), -sp.eye_array(weights.shape[1])
    return Program(G=weights, h=h, upper=1, S=S, integer=True, sense="maximize", name=name)


@dataclass(frozen=True)
class Selection(PolynomialProblem):
    """max over w of yᵀw   s.t.   Σ w ≤ k,   w ∈ {0, 1}.

    The knapsack with one dimension and weights of one; its relaxation has integer vertices.
    Values: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε, not rounded.  Drawn in the order B, x, ε.

    Args:
        items, k: how many there are, and how many may be chosen.
        features, degree, noise, seed: as of `PolynomialProblem`.

    Examples:
        >>> best = dfl.problems.Selection(5, k=2)
        >>> best.solver().solve(torch.tensor([1.0, 5, 2, 4, 3])).decision
        tensor([0., 1., 0., 1., 0.])
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
        return best_solver(self.program)

    def relaxed_solver(self) -> Solver:
        return best_solver(self.relaxation)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.binomial(1, 0.5, (self.items, self.features))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return chosen_within(np.ones((1, self.items)), self.k, self.name)


FACTORS = 4  # that all returns depend on


@dataclass(frozen=True)
class Portfolio(PolynomialProblem):
    """max over w of yᵀw − (γ/2) wᵀΣ w   s.t.   Σ w = 1,   w ≥ 0.

    The returns of Elmachtoub and Grigas (2022), where risk was a constraint: x ~ N(0, I) (k), B ~ Bernoulli(½),
    y = (0.05/√k · B x + 0.1^(1/degree))^degree + L f + 0.01 τ ε,  f ~ N(0, I) (4),  ε ~ N(0, I),  L ~ U(−0.0025 τ, 0.0025 τ),
    so that Σ = L Lᵀ + (0.01 τ)² I, and the bracket is E[y | x].  Drawn in the order B, L, x, f, ε.

    Args:
        assets: how many.
        features, degree, noise, seed: as of `PolynomialProblem`, with τ = noise > 0.
        aversion: γ > 0, the price of risk.

    Examples:
        >>> dfl.problems.Portfolio(10).program.Q.n
        10
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
        own = np.full(self.assets, self.aversion * (0.01 * self.noise) ** 2)
        risk = Quadratic(np.sqrt(self.aversion) * structure["L"].T, own)
        S, name = -sp.eye_array(self.assets), self.name
        return Program(A=np.ones((1, self.assets)), b=[1.0], S=S, Q=risk, sense="maximize", name=name)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        common = rng.normal(0, 1, (len(features), FACTORS)) @ self.structure["L"].T
        return self._expected_costs(features) + common + 0.01 * self.noise * rng.normal(0, 1, common.shape)

    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        mixed = 0.05 / np.sqrt(self.features) * features @ self.structure["B"].T
        return (mixed + 0.1 ** (1 / self.degree)) ** self.degree
