"""Twelve problems to confirm a default of the losses on: fixed, with their sizes and rows, before any method was trained on them.

Six have known costs (d, or Q) beside predicted ones, and six have predicted costs alone. Each draws its program and its data from
`seed`. Two take the days of DFLEARN_ENERGY, or synthetic ones where it names no file. In a study:

    import = ["fresh_problems"]
    problems = ["fresh-pumping", "fresh-freight"]
    model = "linear or shared"
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from torch import nn

from dflearn.problems import register_problem
from dflearn.program import Program
from dflearn.studies.models import linear, register_model, shared
from fresh_known import Arrays, ColdStore, Freight, Fresh, Paper, Pumping, Reservoir, Treasury, tail


@dataclass(frozen=True)
class Ambulances(Fresh):
    """5 of 18 stations are manned for a shift so that as many calls as possible have one within ten minutes, calls.

    Predicted: the calls of 24 zones, whole numbers. Hard because counts are of Gamma and Poisson with rare events of many calls,
    the rate is exponential in the features, and a zone that two stations reach counts once.
    """

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        zones, stations = rng.uniform(size=(24, 2)), rng.uniform(size=(18, 2))
        far = np.linalg.norm(zones[:, None] - stations, axis=-1)
        reached = (far < 0.24) | (far == far.min(1, keepdims=True))
        return {"reached": reached.astype(float), "base": rng.gamma(2, 1.5, 24), "B": rng.normal(0, 0.3, (24, 6))}

    def _build_program(self, structure: Arrays) -> Program:
        covered = np.hstack([-structure["reached"], np.eye(24)])  # stations, then zones
        return Program(
            G=np.vstack([covered, np.arange(42) < 18]),
            h=np.append(np.zeros(24), 5.0),
            upper=1,
            S=-np.vstack([np.zeros((18, 24)), np.eye(24)]),
            integer=np.arange(42) < 18,
            sense="maximize",
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (6,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Temperature in °C, rain in mm, cases of flu per 1,000, visitors in thousands, and the hour on a circle."""
        hour = rng.randint(0, 3, count) * 2 * np.pi / 3
        drawn = [rng.normal(11, 8, count), rng.gamma(0.6, 4, count), rng.gamma(1.5, 8, count), rng.gamma(2, 10, count)]
        return np.stack([*drawn, np.sin(hour), np.cos(hour)], 1)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = np.clip((features - [11, 2.4, 12, 20, 0, 0]) / [8, 3.1, 9.8, 14, 0.7, 0.7], -3, 3)
        rate = self.structure["base"] * np.exp(z @ self.structure["B"].T) * tail(rng, (len(z), 24), 0.01, 1)
        return rng.poisson(rate * rng.gamma(5, 0.2, rate.shape)).astype(float)


@dataclass(frozen=True)
class Vaccines(Fresh):
    """A van carries vaccines over 5 stages with 4 stops each, within a limit of minutes; what spoils is paid, €.

    Predicted: what spoils on each of 72 roads. Hard because the limit (one known row over integers) forbids the coolest roads
    together, warming is a threshold in the heat, and the same eight features drive all roads: 576 weights, 300 training rows.
    """

    ROWS = 300

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        shade = rng.uniform(size=72)
        return {
            "minutes": np.round(12 + 30 * shade + rng.uniform(0, 10, 72)),
            "shade": shade,
            "B": rng.normal(size=(72, 8)),
        }

    def _build_program(self, structure: Arrays) -> Program:
        stops = [[0], *([1 + 4 * stage + k for k in range(4)] for stage in range(5)), [21]]
        roads = [road for start, stop in itertools.pairwise(stops) for road in itertools.product(start, stop)]
        leaves = np.zeros((22, 72))
        for road, (start, stop) in enumerate(roads):
            leaves[start, road], leaves[stop, road] = 1, -1
        least, mean = quickest(roads, structure["minutes"]), 6 * structure["minutes"].mean()
        return Program(
            A=leaves[:-1],
            b=np.eye(21)[0],
            G=structure["minutes"][None],
            h=[np.ceil((least + mean) / 2)],
            upper=1,
            integer=True,
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (8,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Heat of three valleys in °C, sun of two in hours, traffic of two towns in minutes, age of the van's cooler in years."""
        heat = rng.normal(24, 5, (count, 1)) + rng.normal(0, 3, (count, 3))
        return np.hstack(
            [heat, rng.gamma(4, 2, (count, 2)), rng.gamma(2, 9, (count, 2)), rng.uniform(0, 9, (count, 1))]
        )

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = (features - [24, 24, 24, 8, 8, 18, 18, 4.5]) / [5.8, 5.8, 5.8, 4, 4, 12.7, 12.7, 2.6]
        warm = 0.6 * z @ self.structure["B"].T / np.sqrt(8) + 1.5 * (0.6 - self.structure["shade"]) + 0.3 * z[:, :1]
        return 4 + 18 * np.logaddexp(0, 2 * warm) * rng.lognormal(0, 0.3, warm.shape)


def quickest(roads: list[tuple[int, int]], minutes: np.ndarray) -> float:
    """Of the ways from the first to the last stop, where each road leads to a later one and they are in that order."""
    reached = {0: 0.0}
    for (start, stop), spent in zip(roads, minutes, strict=True):
        reached[stop] = min(reached.get(stop, np.inf), reached[start] + spent)
    return max(reached.items())[1]


@dataclass(frozen=True)
class Kidneys(Fresh):
    """Pairs of donor and patient exchange kidneys in cycles of two and three; the years that are won are to be many.

    Predicted: the years of each of 70 possible transplants between 14 pairs, from six features each (one model for all). A cycle
    has the sum of its transplants. Hard because years follow a logistic curve, because cycles overlap (integers; the relaxation
    takes halves), and because a transplant in many cycles matters more than others.
    """

    PAIRS, EDGES = 14, 70

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        every = np.array(list(itertools.permutations(range(self.PAIRS), 2)))
        return {"edges": every[np.sort(rng.permutation(len(every))[: self.EDGES])]}

    def _build_program(self, structure: Arrays) -> Program:
        edges = {(int(one), int(two)): number for number, (one, two) in enumerate(structure["edges"])}
        cycles = [
            cycle
            for size in (2, 3)
            for cycle in itertools.permutations(range(self.PAIRS), size)
            if cycle[0] == min(cycle) and all(step in edges for step in zip(cycle, cycle[1:] + cycle[:1], strict=True))
        ]
        within, years = np.zeros((self.PAIRS, len(cycles))), np.zeros((len(cycles), self.EDGES))
        for number, cycle in enumerate(cycles):
            within[list(cycle), number] = 1
            years[number, [edges[step] for step in zip(cycle, cycle[1:] + cycle[:1], strict=True)]] = 1
        some = within.any(1)
        return Program(
            G=within[some], h=np.ones(some.sum()), upper=1, S=-years, integer=True, sense="maximize", name=self.title
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (self.EDGES, 6)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Ages of donor and patient, antigens that differ, hours on the way, share of antibodies, years on dialysis."""
        donor, patient = self.structure["edges"].T
        ages = rng.uniform(20, 70, (2, count, self.PAIRS))
        waits, antibodies = rng.gamma(2, 1.5, (count, self.PAIRS)), rng.beta(0.7, 2, (count, self.PAIRS))
        differ, hours = rng.binomial(6, 0.5, (count, self.EDGES)), rng.gamma(2, 3, (count, self.EDGES))
        both = [ages[0][:, donor], ages[1][:, patient]]
        return np.stack([*both, differ, hours, antibodies[:, patient], waits[:, patient]], -1)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        donor, patient, differ, hours, antibodies, waits = np.moveaxis(features, -1, 0)
        odds = 3 - 0.05 * (donor - 45) - 0.35 * differ - 0.09 * hours - 4 * antibodies**2 - 0.15 * waits
        expected = np.clip(78 - patient, 5, None) * 0.45 / (1 + np.exp(-odds))
        return expected * rng.gamma(4, 0.25, expected.shape)


@dataclass(frozen=True)
class Forest(Fresh):
    """Of 36 stands on a grid, some are cut this year, never two side by side, and at most 10, thousand €.

    Predicted: the value of each stand, from six features each (one model for all). Hard because value is a product of volume,
    grade and price less hauling, storms halve some stands, veneer makes a few worth many times more, and there are 40 rows.
    """

    ROWS = 40
    SIDE = 6

    def _build_program(self, structure: Arrays) -> Program:
        place = np.arange(self.SIDE**2).reshape(self.SIDE, self.SIDE)
        beside = [
            *zip(place[:, :-1].flat, place[:, 1:].flat, strict=True),
            *zip(place[:-1].flat, place[1:].flat, strict=True),
        ]
        rows = np.zeros((len(beside), place.size))
        for row, pair in zip(rows, beside, strict=True):
            row[list(pair)] = 1
        return Program(
            G=np.vstack([rows, np.ones(place.size)]), h=np.append(np.ones(len(beside)), 10.0), upper=1, S=-np.eye(place.size),
            integer=True, sense="maximize", name=self.title,
        )  # fmt: skip

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (self.SIDE**2, 6)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Age in years, trees per hectare, slope in %, km to a road, oak or spruce, price of timber this year in €/m³."""
        shape = (count, self.SIDE**2)
        drawn = [
            rng.uniform(40, 160, shape),
            rng.normal(400, 90, shape),
            rng.gamma(2, 8, shape),
            rng.gamma(2, 0.8, shape),
        ]
        price = np.broadcast_to(rng.lognormal(4.4, 0.2, (count, 1)), shape)
        return np.stack([*drawn, rng.binomial(1, 0.3, shape), price], -1)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        age, trees, slope, far, oak, price = np.moveaxis(features, -1, 0)
        volume = 500 / (1 + np.exp(-(age - 90) / 18)) * np.clip(trees / 400, 0.3, 1.6)
        worth = volume * price * (1 + 0.9 * oak * (age > 110)) * tail(rng, age.shape, 0.03, 1.3)
        storm = np.where(rng.uniform(size=age.shape) < 0.06, 0.5, 1.0)
        return (worth * storm * rng.lognormal(0, 0.25, age.shape) - volume * (9 * far + 0.4 * slope)) / 1000


@dataclass(frozen=True)
class Harvest(Fresh):
    """6 crops are sown on 5 fields, hectares and thousand €; rotation, water and labour limit them.

    Predicted: 6 prices at harvest, €/t; yields of crop and field are known (S). Hard because there are 60 years of rows for nine
    features, prices move together, and droughts act beyond a threshold.
    """

    ROWS = 60
    CROPS, FIELDS = 6, 5

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        base = np.array([190.0, 170, 210, 430, 45, 260])
        yields = np.array([8.0, 7.5, 9, 3.6, 35, 5.5]) * rng.uniform(0.75, 1.25, (self.FIELDS, self.CROPS))
        area, use = rng.randint(20, 60, self.FIELDS), rng.uniform(0.5, 1.5, (2, self.CROPS))
        return {"base": base, "yields": yields, "area": area, "use": use, "B": rng.normal(0, 0.08, (6, 9))}

    def _build_program(self, structure: Arrays) -> Program:
        whole = structure["area"].sum()
        by_field = np.kron(np.eye(self.FIELDS), np.ones(self.CROPS))
        by_crop = np.tile(np.eye(self.CROPS), self.FIELDS)
        earned = structure["yields"].ravel()[:, None] * np.tile(np.eye(self.CROPS), (self.FIELDS, 1)) / 1000
        return Program(
            G=np.vstack([by_field, by_crop, np.tile(structure["use"], self.FIELDS)]),
            h=np.concatenate([structure["area"], np.full(self.CROPS, 0.35 * whole), np.full(2, 0.85 * whole)]),
            S=-earned,
            sense="maximize",
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (9,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Last year's stocks of four crops in weeks, oil in $, dollars for a euro, fertilizer in €/t, and two drought indices."""
        stocks, market = rng.normal(10, 2.5, (count, 4)), rng.normal([75, 1.1, 350], [18, 0.08, 70], (count, 3))
        return np.hstack([stocks, market, rng.normal(0, 1, (count, 2))])

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = (features - [10, 10, 10, 10, 75, 1.1, 350, 0, 0]) / [2.5, 2.5, 2.5, 2.5, 18, 0.08, 70, 1, 1]
        drought = np.clip(z[:, 7:] - 0.5, 0, None).sum(1, keepdims=True) * np.array([0.2, 0.15, 0.35, 0.1, 0.3, 0.05])
        common = rng.normal(0, 0.08, (len(z), 1))
        return self.structure["base"] * np.exp(
            z @ self.structure["B"].T + drought + common + rng.normal(0, 0.1, drought.shape)
        )


@dataclass(frozen=True)
class Television(Fresh):
    """9 advertisements of 10 to 45 seconds are put into 8 breaks of an evening, at most twice each, never twice in a break, €.

    Predicted: viewers of each break in two age groups, thousands (p = 16); what an advertiser pays for each is known (S).
    Hard because breaks are knapsacks over integers, rivals may not share one, and a match doubles two of the breaks only.
    """

    SPOTS, BREAKS = 9, 8

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {
            "seconds": rng.choice([10.0, 20, 30, 45], self.SPOTS),
            "room": rng.choice([60.0, 75, 90], self.BREAKS),
            "pays": rng.gamma(4, [[0.8], [0.8]], (2, self.SPOTS)),  # € per thousand viewers and 30 seconds
            "base": rng.uniform(150, 900, (2, self.BREAKS)),
            "B": rng.normal(0, 0.12, (2 * self.BREAKS, 7)),
        }

    def _build_program(self, structure: Arrays) -> Program:
        breaks, spots = np.eye(self.BREAKS), np.eye(self.SPOTS)  # variables break by break
        rivals = spots[0] + spots[1], spots[2] + spots[3]
        pays = structure["pays"] * structure["seconds"] / 30
        return Program(
            G=np.vstack(
                [
                    np.kron(breaks, structure["seconds"]),
                    np.kron(np.ones(self.BREAKS), spots),
                    *(np.kron(breaks, pair) for pair in rivals),
                ]
            ),
            h=np.concatenate([structure["room"], np.full(self.SPOTS, 2.0), np.ones(2 * self.BREAKS)]),
            upper=1,
            S=-np.hstack([np.kron(breaks, one[:, None]) for one in pays]),
            integer=True,
            sense="maximize",
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (7,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Temperature in °C, rain in mm, a match, a school night, weeks since the series began, and the weekday on a circle."""
        day = rng.randint(0, 7, count)
        drawn = [rng.normal(12, 7, count), rng.gamma(0.6, 4, count), rng.binomial(1, 0.2, count), day < 4]
        circle = day * 2 * np.pi / 7
        return np.stack([*drawn, rng.randint(0, 20, count), np.sin(circle), np.cos(circle)], 1)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = (features - [12, 2.4, 0.2, 0.57, 9.5, 0, 0]) / [7, 3.1, 0.4, 0.5, 5.8, 0.7, 0.7]
        level = np.exp(np.clip(z, -3, 3) @ self.structure["B"].T).reshape(-1, 2, self.BREAKS)
        level[..., 3:5] *= 1 + features[:, 2, None, None]
        level = level * self.structure["base"] * rng.lognormal(0, 0.15, (len(z), 1, self.BREAKS))
        return (level * rng.lognormal(0, 0.1, level.shape)).reshape(len(z), 2 * self.BREAKS)


KNOWN = (Pumping, ColdStore, Freight, Reservoir, Paper, Treasury)
PREDICTED = (Ambulances, Vaccines, Kidneys, Forest, Harvest, Television)
FRESH = {kind().name: kind for kind in (*KNOWN, *PREDICTED)}
for name, kind in FRESH.items():
    register_problem(name, kind, str(kind.__doc__).partition("\n")[0], example=name)


def either(features: tuple[int, ...], costs: int, seed: int) -> nn.Module:
    """A linear model: of the features of an instance, or shared by the costs where each has features of its own."""
    return (linear if len(features) == 1 else shared)(features, costs, seed)


register_model("linear or shared", either)
