"""Who is served by whom: bipartite matching, and capacitated facility location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dflearn.problems.base import PolynomialProblem, integral_of_ceiling, require_sizes
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.callable import from_callable
from dflearn.solvers.structured import RelaxationFirst


@dataclass(frozen=True)
class Matching(PolynomialProblem):
    """min over w of yᵀw   s.t.   Σ_j w_ij = 1 for every i,   Σ_i w_ij = 1 for every j,   w ≥ 0.

    Variables are numbered agent by agent. The program is linear: its vertices are permutations (Birkhoff).
    Costs: B ~ Bernoulli(½);  y = ((z^degree) + 1) / 3.5^degree · ε.  Drawn in the order B, x, ε.

    Args:
        size: how many agents, and as many tasks.
        features, degree, noise, seed: as of `PolynomialProblem`.

    Examples:
        >>> dfl.problems.Matching(4).program.n
        16
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
        function = LeastCostMatching(self.size)
        return from_callable(function, self.program.n, batched=True, name=repr(function))

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


LEAST_COST, LARGEST_COST = 0.01, 100.0  # transport costs are clipped to this range


@dataclass(frozen=True)
class FacilityLocation(PolynomialProblem):
    """min  Σ_c Σ_f demand_c y_cf w_cf + Σ_f opening_f W_f
    s.t.  Σ_f w_cf = 1 for each customer c,   Σ_c demand_c w_cf ≤ capacity_f W_f for each facility f,
          w_cf ∈ [0, 1],   W_f ∈ {0, 1}.

    y_cf, the cost of carrying one unit to customer c from facility f, is predicted; the rest is known, so S holds the
    demands and d the opening costs. The decision is (w, W): w customer by customer, then W.

    Demands: N(2.5, 1.25) clipped to [1, 6], two digits. Capacities: U(5, 15), scaled up to the total demand where they
    fall short, then ⌈·⌉. Opening costs: ⌈U(5, 25)⌉. Costs: B = Bernoulli(¼) · U(−2, 2);
    y = z^degree / 3^(degree − 1) · ε, clipped to [0.01, 100], two digits.
    Drawn in the order demands, capacities, opening costs, the Bernoulli factor of B, its uniform factor, x, ε, as in the
    public code of the paper's authors.

    Args:
        customers, facilities: how many.
        features, degree, noise, seed: as of `PolynomialProblem`.

    Examples:
        >>> dfl.problems.FacilityLocation(6, 3).program.n  # 6 · 3 shares and 3 facilities
        21
    """

    customers: int
    facilities: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_sizes(customers=self.customers, facilities=self.facilities)

    @property
    def name(self) -> str:
        short = PUBLISHED_FACILITIES.get(self.customers) == self.facilities
        return f"CFL-{self.customers}" if short else f"CFL-{self.customers}x{self.facilities}"

    def solver(self) -> Solver:
        return RelaxationFirst(self.program) if RelaxationFirst.suits(self.program) else super().solver()

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        demands = np.round(np.clip(rng.normal(2.5, 1.25, self.customers), 1, 6), 2)
        capacities = rng.uniform(5, 15, self.facilities)
        capacities = np.ceil(capacities * max(1.0, demands.sum() / capacities.sum()))
        opening_costs = np.ceil(rng.uniform(5, 25, self.facilities))
        shape = (self.customers * self.facilities, self.features)
        B = rng.binomial(1, 0.25, shape) * rng.uniform(-2, 2, shape)
        return {"demands": demands, "capacities": capacities, "opening_costs": opening_costs, "B": B}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        demands, facilities = structure["demands"], sp.eye_array(self.facilities)
        pairs = self.customers * self.facilities
        served = sp.kron(sp.eye_array(self.customers), np.ones((1, self.facilities)))
        loads = sp.kron(demands[None, :], facilities)
        carried = sp.diags_array(np.repeat(demands, self.facilities))
        return Program(
            A=sp.hstack([served, sp.csr_array((self.customers, self.facilities))]),
            b=np.ones(self.customers),
            G=sp.hstack([loads, -sp.diags_array(structure["capacities"])]),
            h=np.zeros(self.facilities),
            upper=1,
            S=sp.vstack([carried, sp.csr_array((self.facilities, pairs))]),
            d=np.concatenate([np.zeros(pairs), structure["opening_costs"]]),
            integer=np.arange(pairs, pairs + self.facilities),
            name=self.name,
        )

    def _level(self, z: np.ndarray) -> np.ndarray:
        return z**self.degree / 3 ** (self.degree - 1)

    def _round(self, values: np.ndarray) -> np.ndarray:
        return np.round(np.clip(values, LEAST_COST, LARGEST_COST), 2)

    def _integral(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The clipped ends are constants; in between, rounding 100 t to the nearest integer is ⌈100 t − ½⌉."""
        inner_low, inner_high = (np.clip(end, LEAST_COST, LARGEST_COST) for end in (low, high))
        below = np.minimum(high, LEAST_COST) - np.minimum(low, LEAST_COST)
        above = np.maximum(high, LARGEST_COST) - np.maximum(low, LARGEST_COST)
        inside = integral_of_ceiling(100 * inner_low - 0.5, 100 * inner_high - 0.5) / 100**2
        return LEAST_COST * below + inside + LARGEST_COST * above


PUBLISHED_FACILITIES = {50: 5, 100: 10, 200: 10, 250: 10}  # how many the paper has for so many customers
