"""The travelling salesman: all tours of a few cities, four formulations as programs, and travel times to predict.

`TSP-8` names it in a study, and the methods there are a loss through one formulation:

    SPO+^MTZ                        SPO+ through the relaxation of a formulation
    sSPO+^MTZ, SCE^MTZ              smoothed SPO+ and SCE through the smoothed relaxation, μ = share · mean travel time
    SCE^MTZ, u as written           the same without scaling the positions u
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp
import torch

import dflearn as dfl
from beside import scattered
from dflearn.losses.base import Loss
from dflearn.studies import Method, Prepared, RunContext, register, register_problem

FORMULATIONS = ("assignment", "MTZ", "MTZ, lifted", "DFJ")  # from weak to tight
AS_WRITTEN = ", u as written"
FEATURES = 6


@dataclass(frozen=True)
class Tours(dfl.problems.Problem):
    """Tours through `cities` cities. Costs y are those of the roads {i, j}, i < j; both directions cost the same. A road takes
    its length times a delay, the fourth power of a combination of six features: no linear model can follow it."""

    cities: int

    @property
    def name(self) -> str:
        return f"TSP-{self.cities}"

    @cached_property
    def roads(self) -> np.ndarray:
        """`(roads, 2)`."""
        return np.array(list(itertools.combinations(range(self.cities), 2)))

    @cached_property
    def arcs(self) -> np.ndarray:
        """Both directions of every road, `(2 · roads, 2)`."""
        return np.concatenate([self.roads, self.roads[:, ::-1]])

    @cached_property
    def all(self) -> np.ndarray:
        """The order in which each tour visits the cities, beginning at city 0, one direction of each; `(tours, cities)`."""
        rest = itertools.permutations(range(1, self.cities))
        return np.array([(0, *order) for order in rest if order[0] < order[-1]])

    @cached_property
    def used(self) -> np.ndarray:
        """Which roads each tour uses, `(tours, roads)`."""
        number = np.zeros((self.cities, self.cities), int)
        number[self.arcs[:, 0], self.arcs[:, 1]] = np.tile(np.arange(len(self.roads)), 2)
        out = np.zeros((len(self.all), len(self.roads)))
        steps = number[self.all, np.roll(self.all, -1, axis=1)]
        np.put_along_axis(out, steps, 1.0, axis=1)
        return out

    def solver(self) -> dfl.Solver:
        """The exact solver: the best of all tours, which are few enough to try."""
        used = self.used
        return dfl.from_callable(
            lambda c: used[np.argmin(c @ used.T, axis=1)], len(self.roads), batched=True, name=f"tours of {self.cities}"
        )

    def subsets(self) -> Iterator[np.ndarray]:
        """Every set of at least two and at most half of the cities (the rest follow), as a mask."""
        for size in range(2, self.cities // 2 + 1):
            for chosen in itertools.combinations(range(self.cities), size):
                yield np.isin(np.arange(self.cities), chosen)

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> dfl.Program:
        """The exact integer program over roads: two at each city, and no subtour. What decisions are judged on."""
        one, other = self.roads.T
        ends = np.stack([(one == city) | (other == city) for city in range(self.cities)])
        within = np.array([inside[one] & inside[other] for inside in self.subsets()])
        sizes = np.array([inside.sum() - 1 for inside in self.subsets()])
        return dfl.Program(
            A=ends.astype(float), b=np.full(self.cities, 2.0), G=within.astype(float), h=sizes, upper=1, integer=True,
            name=self.name,
        )  # fmt: skip

    def formulation(self, name: str, rescaled: bool = False) -> dfl.Program:
        """The directed integer program: x for each arc, then (MTZ) a position u for each city but the first. `rescaled` centres
        the positions and divides them by n − 2, so that they lie in [−½, ½]. The linear relaxation is the same; smoothing, which
        charges (μ/2) u², is not."""
        n, (tail, head) = self.cities, self.arcs.T
        count = len(tail)
        out, into = (np.stack([end == city for city in range(n)]).astype(float) for end in (tail, head))
        A, b = np.vstack([out, into]), np.ones(2 * n)
        S = np.tile(np.eye(len(self.roads)), (2, 1))
        whole = {"b": b, "name": f"{name}, {n} cities"}
        if name in ("assignment", "DFJ"):
            sets = [*self.subsets()] if name == "DFJ" else []
            rows = np.array([inside[tail] & inside[head] for inside in sets], float).reshape(-1, count)
            h = np.array([inside.sum() - 1.0 for inside in sets])
            return dfl.Program(A=A, G=rows, h=h, upper=1, S=S, integer=True, **whole)
        rows, h = self._positions(lifted=name == "MTZ, lifted")
        lower, upper = np.full(n - 1, 1.0), np.full(n - 1, n - 1.0)
        if rescaled:  # u = n/2 + (n − 2) v
            h = h - rows[:, count:] @ np.full(n - 1, n / 2)
            rows[:, count:] *= n - 2
            lower, upper = np.full(n - 1, -0.5), np.full(n - 1, 0.5)
        return dfl.Program(
            A=np.hstack([A, np.zeros((2 * n, n - 1))]), G=sp.csr_array(rows), h=h, integer=np.arange(count),
            lower=np.append(np.zeros(count), lower), upper=np.append(np.ones(count), upper),
            S=np.vstack([S, np.zeros((n - 1, len(self.roads)))]), **whole,
        )  # fmt: skip

    def _positions(self, lifted: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows over (x, u) and right-hand sides that make u count the stops of one tour that begins at city 0."""
        n, place = self.cities, {tuple(arc): k for k, arc in enumerate(self.arcs.tolist())}
        rows, h = [], []
        for i, j in itertools.permutations(range(1, n), 2):
            row = np.zeros(len(place) + n - 1)
            row[place[i, j]], row[len(place) + i - 1], row[len(place) + j - 1] = n - 1, 1, -1
            if lifted:
                row[place[j, i]] = n - 3
            rows.append(row)
            h.append(n - 2)
        for i in range(1, n) if lifted else ():
            first, last = place[0, i], place[i, 0]
            low, high = np.zeros(len(place) + n - 1), np.zeros(len(place) + n - 1)
            low[len(place) + i - 1], low[first], low[last] = -1, -1, n - 3  # u ≥ 2 − x_0i + (n − 3) x_i0
            high[len(place) + i - 1], high[first], high[last] = 1, n - 3, -1  # u ≤ n − 2 − (n − 3) x_0i + x_i0
            rows += [low, high]
            h += [-2, n - 2]
        return np.array(rows), np.array(h, float)

    def directed(self, roads: torch.Tensor, program: dfl.Program, rescaled: bool) -> torch.Tensor:
        """Labels over roads `(count, roads)` → over arcs and positions, `(count, n)`; one direction of each tour."""
        which = torch.cdist(roads.double(), torch.as_tensor(self.used)).argmin(1)
        order = self.all[which.numpy()]
        place = np.zeros((self.cities, self.cities), int)
        place[self.arcs[:, 0], self.arcs[:, 1]] = np.arange(len(self.arcs))
        out = np.zeros((len(order), program.n))
        np.put_along_axis(out, place[order, np.roll(order, -1, axis=1)], 1.0, axis=1)
        if program.n > len(self.arcs):
            u = np.argsort(order, axis=1)[:, 1:].astype(float)
            out[:, len(self.arcs) :] = (u - self.cities / 2) / (self.cities - 2) if rescaled else u
        return torch.as_tensor(out).to(roads)

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (FEATURES,)

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        """Where the cities lie, and how features mix into the delays of roads."""
        places = scattered(rng, rng.uniform(size=(1, 2)), self.cities)
        return {"places": places, "mixing": rng.binomial(1, 0.5, (len(self.roads), FEATURES))}

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        return rng.normal(size=(count, FEATURES))

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        times = self._expected_costs(features)
        return times * rng.uniform(0.75, 1.25, times.shape)

    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        one, other = (self.structure["places"][end] for end in self.roads.T)
        length = np.linalg.norm(one - other, axis=1)
        return (0.3 + length) * ((features @ self.structure["mixing"].T / np.sqrt(FEATURES) + 3) / 3) ** 4


register_problem("TSP-{cities}", Tours, "the travelling salesman, all tours tried", example="TSP-6")


def posed(context: RunContext, formulation: str, rescaled: bool) -> tuple[dfl.Program, dfl.DecisionDataset]:
    """The formulation as a program, and the training days with its labels."""
    tours = context.problem
    assert isinstance(tours, Tours)
    program = tours.formulation(formulation, rescaled)
    labels = tours.directed(context.train.batch().require("decisions"), program, rescaled)
    return program, context.train.with_decisions(labels)


def plain(formulation: str) -> Callable[[RunContext], Prepared]:
    def prepare(context: RunContext) -> Prepared:
        program, train = posed(context, formulation, rescaled=True)
        return Prepared(dfl.losses.SPOPlus(dfl.Exact(dfl.HiGHS(program.relax()))), train)

    return prepare


def smoothed(kind: Callable[[dfl.Layer], Loss], formulation: str, rescaled: bool) -> Callable[[RunContext], Prepared]:
    def prepare(context: RunContext) -> Prepared:
        program, train = posed(context, formulation, rescaled)
        scale = float(train.batch().require("costs").mean())
        return Prepared(kind(dfl.Smoothed(program, context.parameters["share"] * scale)), train)

    return prepare


for _formulation in FORMULATIONS:
    register(Method(f"SPO+^{_formulation}", f"SPO+ through {_formulation}", plain(_formulation)))
    for _name, _kind in {"sSPO+": partial(dfl.losses.SmoothedSPOPlus, label="exact"), "SCE": dfl.losses.SCE}.items():
        for _end in ("", AS_WRITTEN) if _name == "SCE" and "MTZ" in _formulation else ("",):
            _prepare = smoothed(_kind, _formulation, rescaled=not _end)
            _about = f"{_name} through smoothed {_formulation}"
            register(Method(f"{_name}^{_formulation}{_end}", _about, _prepare, lambda problem: {"share": 1.0}))
