"""Six problems for one hypothesis (`field_fresh`): fixed, with their sizes, before anything was run on them.

Features are x ~ N(0, I) (8), z = B x / √8 with B ~ N(0, 1) (p × 8), and costs are made of u = (1 + z / 4)^degree ε, ε ~ U(1 − h, 1 + h).
Each of degree 1, 4 and 6 goes with little noise (h = 0.1) once and with much (h = 0.5) once.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dflearn.program import Program
from dflearn.solvers.base import Solver
from field_new_problems import Drawn, Tried

LITTLE, MUCH = 0.1, 0.5


@dataclass(frozen=True)
class Polynomial(Drawn):
    """Costs of u."""

    @property
    @abstractmethod
    def law(self) -> tuple[int, float]:
        """The degree, and the half-width h of the noise."""

    def costs_of(self, u: np.ndarray) -> np.ndarray:
        """y `(count, p)`: u itself, unless said otherwise."""
        return u

    def noisy(self, rng: np.random.RandomState, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        degree, width = self.law
        return self.costs_of((1 + z / 4) ** degree * rng.uniform(1 - width, 1 + width, z.shape))


@dataclass(frozen=True)
class Blending(Polynomial):
    """min yᵀw,   Σ w = 1, w ≥ 0 of 12 ingredients,   no less of each of 3 nutrients than the mean over ingredients.   y = u."""

    @property
    def name(self) -> str:
        return "blending"

    @property
    def predicted(self) -> int:
        return 12

    @property
    def law(self) -> tuple[int, float]:
        return 1, MUCH

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return super()._draw_structure(rng) | {"holds": rng.uniform(size=(3, 12))}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        holds = structure["holds"]
        return Program(A=np.ones((1, 12)), b=[1.0], G=-holds, h=-holds.mean(1), name=self.name)


@dataclass(frozen=True)
class Roster(Tried, Polynomial):
    """min yᵀw,   w ∈ {0, 1, 2}¹⁰ people on shifts of 3 to 5 hours in a row,   enough of them in each of 10 hours.   y = hours · u."""

    @property
    def name(self) -> str:
        return "roster"

    @property
    def predicted(self) -> int:
        return 10

    @property
    def law(self) -> tuple[int, float]:
        return 1, LITTLE

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        lengths = rng.randint(3, 6, 10)
        starts = rng.randint(0, 11 - lengths)
        hour = np.arange(10)[:, None]
        works = ((hour >= starts) & (hour < starts + lengths)).astype(float)
        need = works @ rng.randint(0, 3, 10)  # what some roster gives, so that there is one
        return super()._draw_structure(rng) | {"works": works, "need": need}

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.array(list(itertools.product((0.0, 1.0, 2.0), repeat=10)))
        return every[(every @ self.structure["works"].T >= self.structure["need"]).all(1)]

    def relaxed_solver(self) -> Solver:
        return self.solver()  # ones in a row: the constraints are totally unimodular

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        asked = structure["need"] > 0
        return Program(G=-structure["works"][asked], h=-structure["need"][asked], upper=2, name=self.name)

    def costs_of(self, u: np.ndarray) -> np.ndarray:
        return self.structure["works"].sum(0) * u


@dataclass(frozen=True)
class Auction(Tried, Polynomial):
    """max of the bids taken, Σ −y w,   w ∈ {0, 1}¹⁴,   each of 10 goods to one bid at most; each bid is for 3.   y = −u."""

    @property
    def name(self) -> str:
        return "auction"

    @property
    def predicted(self) -> int:
        return 14

    @property
    def law(self) -> tuple[int, float]:
        return 4, MUCH

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        goods = np.zeros((10, 14))
        for bid in goods.T:
            bid[rng.permutation(10)[:3]] = 1
        return super()._draw_structure(rng) | {"goods": goods}

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.array(list(itertools.product((0.0, 1.0), repeat=14)))
        return every[(every @ self.structure["goods"].T <= 1).all(1)]

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return Program(G=structure["goods"], h=np.ones(10), upper=1, integer=True, name=self.name)

    def costs_of(self, u: np.ndarray) -> np.ndarray:
        return -u


@dataclass(frozen=True)
class Tree(Tried, Polynomial):
    """min yᵀw over spanning trees of 6 nodes, all 15 edges allowed: Σ w = 5, at most |S| − 1 within each set S of nodes.   y = u."""

    @property
    def name(self) -> str:
        return "tree"

    @property
    def predicted(self) -> int:
        return 15

    @property
    def law(self) -> tuple[int, float]:
        return 4, LITTLE

    @property
    def within(self) -> np.ndarray:
        """Which edges lie within each set of 3, 4 and 5 nodes.  `(41, 15)`"""
        sets = [set(some) for size in (3, 4, 5) for some in itertools.combinations(range(6), size)]
        edges = list(itertools.combinations(range(6), 2))
        return np.array([[float(some.issuperset(edge)) for edge in edges] for some in sets])

    @property
    def most(self) -> np.ndarray:
        """|S| − 1.  `(41,)`"""
        return np.repeat([2.0, 3.0, 4.0], [20, 15, 6])

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.zeros((3003, 15))
        np.put_along_axis(every, np.array(list(itertools.combinations(range(15), 5))), 1.0, axis=1)
        return every[(every @ self.within.T <= self.most).all(1)]

    def relaxed_solver(self) -> Solver:
        return self.solver()  # a matroid: the program is exact

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        return Program(A=np.ones((1, 15)), b=[5.0], G=self.within, h=self.most, upper=1, name=self.name)


@dataclass(frozen=True)
class Options(Tried, Polynomial):
    """max Σ −y w: one of 4 options for each of 5 things, within a budget (a multiple-choice knapsack).   y = −u."""

    @property
    def name(self) -> str:
        return "options"

    @property
    def predicted(self) -> int:
        return 20

    @property
    def law(self) -> tuple[int, float]:
        return 6, LITTLE

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        prices = rng.randint(1, 20, (5, 4)).astype(float)
        budget = np.ceil((prices.min(1).sum() + prices.mean(1).sum()) / 2)
        return super()._draw_structure(rng) | {"prices": prices.ravel(), "budget": np.array([budget])}

    @cached_property
    def feasible(self) -> np.ndarray:
        every = np.eye(4)[np.array(list(itertools.product(range(4), repeat=5)))].reshape(-1, 20)
        return every[every @ self.structure["prices"] <= self.structure["budget"]]

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        A = np.kron(np.eye(5), np.ones(4))
        G, h = structure["prices"][None], structure["budget"]
        return Program(A=A, b=np.ones(5), G=G, h=h, upper=1, integer=True, name=self.name)

    def costs_of(self, u: np.ndarray) -> np.ndarray:
        return -u


@dataclass(frozen=True)
class Ordering(Tried, Polynomial):
    """min yᵀw over orders of 5 things, w_ij = 1 where i comes before j > i: no cycles of three.   y = u − 1, of either sign."""

    @property
    def name(self) -> str:
        return "ordering"

    @property
    def predicted(self) -> int:
        return 10

    @property
    def law(self) -> tuple[int, float]:
        return 6, MUCH

    @cached_property
    def feasible(self) -> np.ndarray:
        places = np.array(list(itertools.permutations(range(5))))
        first, second = np.triu_indices(5, 1)
        return (places[:, first] < places[:, second]).astype(float)

    def relaxed_solver(self) -> Solver:
        return self.solver()  # up to five things the inequalities of three are all that is needed

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        pairs = list(itertools.combinations(range(5), 2))
        G = np.zeros((10, 10))
        for row, (i, j, k) in zip(G, itertools.combinations(range(5), 3), strict=True):
            row[[pairs.index((i, j)), pairs.index((j, k))]] = 1
            row[pairs.index((i, k))] = -1
        h = np.concatenate([np.ones(10), np.zeros(10)])  # 0 ≤ w_ij + w_jk − w_ik ≤ 1
        return Program(G=np.vstack([G, -G]), h=h, upper=1, name=self.name)

    def costs_of(self, u: np.ndarray) -> np.ndarray:
        return u - 1


FRESH = {kind().name: kind for kind in (Blending, Roster, Auction, Tree, Options, Ordering)}
