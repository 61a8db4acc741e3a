"""Problems that played no part in the choice of a default: fixed, with their sizes, before anything was run on them.

Beside CFL-50: a flow with heavy-tailed costs, a set cover, jobs on machines with noise that depends on x, production ahead under a
linear truth with little noise, a car charged on real days, and projects with prerequisites, of which few were seen.
Features are x ~ N(0, I) (8), and z = B x / √8 with B ~ N(0, 1) (p × 8), unless said otherwise.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dflearn.problems.base import Problem
from dflearn.problems.energy import EnergyDays, EnergyProblem
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.callable import from_callable

FEATURES = 8


@dataclass(frozen=True)
class Drawn(Problem):
    """Costs that are a function of z and of noise."""

    @property
    @abstractmethod
    def predicted(self) -> int:
        """p."""

    @abstractmethod
    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The costs `(count, p)`, given z `(count, p)` and x `(count, 8)`."""

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (FEATURES,)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"B": rng.normal(size=(self.predicted, FEATURES))}

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        return rng.normal(size=(count, FEATURES))

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        return self.noisy(rng, features @ self.structure["B"].T / np.sqrt(FEATURES), features)


@dataclass(frozen=True)
class Flow(Drawn):
    """min yᵀw over flows from 4 plants by 4 hubs to 5 shops, within capacities;   y = e^(z/2) (½ + ε), ε Pareto of index 3, mean ½."""

    @property
    def name(self) -> str:
        return "flow"

    @property
    def predicted(self) -> int:
        return 36

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        flow = rng.uniform(0.5, 2, (4, 5, 4))  # plant, shop, hub: some flow, so that there is one within the capacities
        legs = np.concatenate([flow.sum(1).ravel(), flow.sum(0).T.ravel()])  # plant → hub, hub → shop
        return super()._draw_structure(rng) | {
            "capacity": legs * rng.uniform(1, 2.5, legs.size),
            "supply": flow.sum((1, 2)) * 1.3,
            "demand": flow.sum((0, 2)),
        }

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        leaves, arrives = np.kron(np.eye(4), np.ones(4)), np.tile(np.eye(5), 4)
        through = np.hstack([np.tile(np.eye(4), 4), -np.kron(np.eye(4), np.ones(5))])
        A = np.vstack([through, np.hstack([np.zeros((5, 16)), arrives])])
        b = np.concatenate([np.zeros(4), structure["demand"]])
        G = np.hstack([leaves, np.zeros((4, 20))])
        return Program(A=A, b=b, G=G, h=structure["supply"], upper=structure["capacity"], name=self.name)

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.exp(z / 2) * (0.5 + rng.pareto(3, z.shape))


@dataclass(frozen=True)
class Tried(Drawn):
    """A program of few feasible decisions: the exact solver tries them all."""

    @property
    @abstractmethod
    def feasible(self) -> np.ndarray:
        """All decisions, `(decisions, n)`."""

    def solver(self) -> Solver:
        every = self.feasible
        name = f"all decisions of {self.name}, seed {self.seed}"
        return from_callable(lambda c: every[np.argmin(c @ every.T, axis=1)], every.shape[1], batched=True, name=name)


@dataclass(frozen=True)
class Cover(Tried):
    """min yᵀw,   w ∈ {0, 1}¹⁴,   each of 12 elements in one of the sets taken; 3 sets hold each.   y = (1 + z/2)² + ½ ε, ε ~ U(0, 1)."""

    @property
    def name(self) -> str:
        return "cover"

    @property
    def predicted(self) -> int:
        return 14

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        holds = np.zeros((12, 14))
        for element in holds:
            element[rng.permutation(14)[:3]] = 1
        return super()._draw_structure(rng) | {"holds": holds}

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.array(list(itertools.product((0.0, 1.0), repeat=14)))
        return every[(every @ self.structure["holds"].T >= 1).all(1)]

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return Program(G=-structure["holds"], h=-np.ones(12), upper=1, integer=True, name=self.name)

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return (1 + z / 2) ** 2 + 0.5 * rng.uniform(size=z.shape)


@dataclass(frozen=True)
class Assignment(Tried):
    """min yᵀw: 8 jobs, each on one of 3 machines of limited hours.   y = log(1 + e^(1 + 2 z)) + (0.2 + 0.6 |x₁|) ε, ε ~ N(0, 1)."""

    @property
    def name(self) -> str:
        return "jobs"

    @property
    def predicted(self) -> int:
        return 24

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        hours = rng.randint(2, 8, (8, 3)).astype(float)
        return super()._draw_structure(rng) | {"hours": hours, "room": np.ceil(0.45 * hours.sum(0))}

    @cached_property
    def feasible(self) -> np.ndarray:
        chosen = np.array(list(itertools.product(range(3), repeat=8)))
        every = np.eye(3)[chosen]
        used = (every * self.structure["hours"]).sum(1)
        return every.reshape(len(every), 24)[(used <= self.structure["room"]).all(1)]

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        G = np.zeros((3, 8, 3))
        for machine in range(3):
            G[machine, :, machine] = structure["hours"][:, machine]
        A = np.kron(np.eye(8), np.ones(3))
        return Program(
            A=A, b=np.ones(8), G=G.reshape(3, 24), h=structure["room"], upper=1, integer=True, name=self.name
        )

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.log1p(np.exp(1 + 2 * z)) + (0.2 + 0.6 * np.abs(x[:, :1])) * rng.normal(size=z.shape)


@dataclass(frozen=True)
class Projects(Tried):
    """min yᵀw over sets of 14 projects with all prerequisites of theirs (a closure).   y = 0.3 + z + z³ / 3 + ε / 2, ε ~ N(0, 1)."""

    @property
    def name(self) -> str:
        return "projects"

    @property
    def predicted(self) -> int:
        return 14

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        pairs = [(later, earlier) for later in range(4, 14) for earlier in rng.permutation(later)[:2]]
        return super()._draw_structure(rng) | {"needs": np.array(pairs)}

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.array(list(itertools.product((0.0, 1.0), repeat=14)))
        later, earlier = self.structure["needs"].T
        return every[(every[:, later] <= every[:, earlier]).all(1)]

    def relaxed_solver(self) -> Solver:
        return self.solver()  # the constraints are totally unimodular

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        each = np.eye(14)
        later, earlier = structure["needs"].T
        return Program(G=each[later] - each[earlier], h=np.zeros(len(later)), upper=1, name=self.name)

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 0.3 + z + z**3 / 3 + 0.5 * rng.normal(size=z.shape)


@dataclass(frozen=True)
class Production(Drawn):
    """What period s makes for the demand of period t ≥ s, in 12 periods: min Σ demand_t (y_s + 0.15 (t − s)) w_st,   Σ_s w_st = 1.

    A linear truth with little noise: y = 5 + z + ε / 10, ε ~ N(0, 1).
    """

    @property
    def name(self) -> str:
        return "production"

    @property
    def predicted(self) -> int:
        return 12

    @property
    def pairs(self) -> np.ndarray:
        """Made in s for t, t by t.  `(78, 2)`"""
        return np.array([(s, t) for t in range(12) for s in range(t + 1)])

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return super()._draw_structure(rng) | {"demand": rng.uniform(0.5, 2, 12)}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        made, used = self.pairs.T
        amount = structure["demand"][used]
        A = (np.arange(12)[:, None] == used).astype(float)
        S, d = np.eye(12)[made] * amount[:, None], 0.15 * (used - made) * amount
        return Program(A=A, b=np.ones(12), S=S, d=d, name=self.name)

    def solver(self) -> Solver:
        """For each t the cheapest s."""
        last = np.cumsum(np.arange(1, 13))

        def cheapest(c: np.ndarray) -> np.ndarray:
            w, row = np.zeros_like(c), np.arange(len(c))
            for end, size in zip(last, range(1, 13), strict=True):
                w[row, end - size + c[:, end - size : end].argmin(1)] = 1
            return w

        program = self.program
        name = f"the cheapest periods, seed {self.seed}"
        return from_callable(cheapest, program.n, S=program.S, d=program.d, batched=True, name=name)

    def relaxed_solver(self) -> Solver:
        return self.solver()  # the program is linear

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 5 + z + 0.1 * rng.normal(size=z.shape)


@dataclass(frozen=True)
class Charging(EnergyProblem):
    """A car on real prices: min yᵀw,   w ∈ [0, 1]⁴⁸,   Σ w = 16,   at least 5 half-hours of the first 14, and 10 of the first 34."""

    @property
    def name(self) -> str:
        return "charging"

    def costs(self, days: EnergyDays) -> np.ndarray:
        return days.prices

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        before = np.array([np.arange(48) < 14, np.arange(48) < 34], float)
        return Program(A=np.ones((1, 48)), b=[16.0], G=-before, h=[-5.0, -10.0], upper=1, name=self.name)

    def solver(self) -> Solver:
        """A matroid: the cheapest of the first part, of the rest of the second, of what is left."""
        return from_callable(_charge, 48, batched=True, name="charging by deadlines")

    def relaxed_solver(self) -> Solver:
        return self.solver()


def _charge(c: np.ndarray) -> np.ndarray:
    w = np.zeros_like(c)
    for end, amount in ((14, 5), (34, 5), (48, 6)):
        left = np.where(w[:, :end] > 0, np.inf, c[:, :end])
        np.put_along_axis(w, np.argsort(left, axis=1, kind="stable")[:, :amount], 1.0, axis=1)
    return w


NEW = {kind().name: kind for kind in (Flow, Cover, Assignment, Production, Charging, Projects)}
