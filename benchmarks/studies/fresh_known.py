"""Six fresh problems with known costs (d, or Q) beside predicted ones, and what all twelve share: see fresh_problems."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dflearn.data import DecisionDataset, Split
from dflearn.models import Standardize
from dflearn.problems import EnergyDays, Problem
from dflearn.problems.energy import SLOTS, EnergyProblem
from dflearn.program import Program, Quadratic

Arrays = Mapping[str, np.ndarray]


class Named:
    """Problems that are called like their class."""

    @property
    def name(self) -> str:
        return f"fresh-{type(self).__name__.lower()}"


@dataclass(frozen=True)
class Fresh(Named, Problem):
    """A problem with features in their own units and a number of training rows of its own.

    `split` keeps the first `ROWS` training rows and a quarter as many validation rows, and standardizes features by the training
    rows: each column of `(rows, k)`, and of `(rows, p, k)` over rows and costs.
    """

    ROWS: ClassVar[int] = 400

    def split(self, count: int, seed: int, test: int | float, validation: int | float) -> Split:
        parts = super().split(count, seed, test, validation)
        parts = Split(parts.train.subset(slice(self.ROWS)), parts.validation.subset(slice(self.ROWS // 4)), parts.test)
        known = parts.train.features.double()
        scale = Standardize(known.shape[-1], known)
        return Split(*(DecisionDataset(scale(p.features).float(), p.costs, ids=p.ids) for p in parts))


def tail(rng: np.random.RandomState, shape: tuple[int, ...], share: float, power: float) -> np.ndarray:
    """Factors of at least 1: a `share` of them Pareto of that power, cut at 20, the others 1."""
    return np.where(rng.uniform(size=shape) < share, 1 + np.minimum(rng.pareto(power, shape), 19), 1.0)


@dataclass(frozen=True)
class Pumping(Named, EnergyProblem):
    """A water tower is filled by a pump that runs at 40 to 100 % or stands, in 24 hours, for a known demand, m³ and € a day.

    Known: 12 € of wear for each start of the pump. Predicted: 48 real prices of half-hours, €/MWh; an hour takes the mean of two.
    Hard because starts couple the hours: the level of the prices says when a start pays, not their order alone.
    """

    def costs(self, days: EnergyDays) -> np.ndarray:
        return days.prices

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        hour = np.arange(24)
        rhythm = 1 + 0.5 * np.exp(-(((hour - 8) / 2) ** 2)) + 0.6 * np.exp(-(((hour - 19) / 3) ** 2)) - 0.5 * (hour < 5)
        return {"demand": np.round(290 * rhythm * rng.uniform(0.9, 1.1, 24))}

    def _build_program(self, structure: Arrays) -> Program:
        one, before, none = np.eye(24), np.eye(24, k=-1), np.zeros((24, 24))
        first = one[0]  # share of the pump's power, whether it runs, starts, level of the tower
        return Program(
            A=np.hstack([700 * one, none, none, before - one]),
            b=structure["demand"] - 900 * first,
            G=np.block([[none, one - before, -one, none], [one, -one, none, none], [-one, 0.4 * one, none, none]]),
            h=np.concatenate([first, np.zeros(48)]),  # it runs at midnight
            lower=np.concatenate([np.zeros(72), np.full(23, 200.0), [900.0]]),
            upper=np.repeat([1.0, 1.0, 1.0, 1800.0], 24),
            S=np.vstack([0.6 * np.kron(one, [0.5, 0.5]), np.zeros((72, SLOTS))]),  # MWh at full power
            d=np.repeat([0.0, 0.0, 12.0, 0.0], 24),
            integer=np.repeat([False, True, False, False], 24),
            name=self.title,
        )


@dataclass(frozen=True)
class ColdStore(Named, EnergyProblem):
    """A store is cooled through 48 half-hours; it warms towards the weather, which is known. € a day.

    Known: 0.15 € per K² and half-hour away from the wanted temperature (Q). Predicted: 48 real prices, €/MWh.
    Hard because the price of comfort is in euros: prices of the right order and a wrong size cool at a wrong depth.
    """

    def costs(self, days: EnergyDays) -> np.ndarray:
        return days.prices

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        slot = np.arange(SLOTS)
        return {
            "warmer": 24 + rng.uniform(-3, 3) + 9 * np.sin((slot - 18) * 2 * np.pi / SLOTS)
        }  # K above the wanted one

    def _build_program(self, structure: Arrays) -> Program:
        one = np.eye(SLOTS)  # power in kW, then K above the wanted temperature
        return Program(
            A=np.hstack([0.0125 * one, one - 0.97 * np.eye(SLOTS, k=-1)]),
            b=0.03 * structure["warmer"],
            lower=np.concatenate([np.zeros(SLOTS), np.full(SLOTS, -6.0)]),
            upper=np.concatenate([np.full(SLOTS, 140.0), np.full(SLOTS, 6.0)]),
            S=np.vstack([0.0005 * one, np.zeros((SLOTS, SLOTS))]),  # MWh of one kW in half an hour
            Q=Quadratic(diagonal=np.repeat([0.0, 0.3], SLOTS)),
            name=self.title,
        )


@dataclass(frozen=True)
class Freight(Fresh):
    """Dry and chilled goods go from 3 ports over 4 inland and 4 border terminals to 3 cities, tonnes and € a week.

    Known: tolls of the last legs, and trucks that go straight at 130 to 170 €/t. Predicted: 28 costs of the other legs, which
    chilled goods pay 1.4 times; both share a leg's capacity. Hard because of delays: 4 % of the costs are multiplied by a Pareto
    factor, the mean is exponential in weather, queues and fuel, and trucks only pay where the size of a forecast is right.
    """

    PORTS, INLAND, BORDER, CITIES = 3, 4, 4, 3

    def _legs(self) -> list[tuple[int, int]]:
        """From node to node: predicted legs, legs with a toll, trucks."""
        ends = np.cumsum([0, self.PORTS, self.INLAND, self.BORDER, self.CITIES])
        ports, inland, border, cities = (range(*pair) for pair in itertools.pairwise(ends))
        pairs = ((ports, inland), (inland, border), (border, cities), (ports, cities))
        return [leg for starts, stops in pairs for leg in itertools.product(starts, stops)]

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        sent = rng.uniform(40, 90, (2, self.PORTS))
        taken = rng.dirichlet(np.full(self.CITIES, 5.0), 2) * sent.sum(1, keepdims=True)
        return {
            "sent": sent,
            "taken": taken,
            "tolls": np.concatenate([rng.uniform(4, 20, 12), rng.uniform(130, 170, 9)]),
            "room": rng.uniform(50, 110, 28),
            "base": rng.uniform(15, 45, 28),
            "B": rng.normal(0, 0.22, (28, 6)),
        }

    def _build_program(self, structure: Arrays) -> Program:
        legs = self._legs()
        leaves = np.zeros((14, len(legs)))
        for leg, (start, stop) in enumerate(legs):
            leaves[start, leg], leaves[stop, leg] = 1, -1
        balance = [np.concatenate([structure["sent"][k], np.zeros(8), -structure["taken"][k]]) for k in (0, 1)]
        shared_room = np.eye(28, len(legs))
        predicted = np.eye(len(legs), 28)
        return Program(
            A=np.kron(np.eye(2), leaves[:-1]),  # the last node's balance follows from the others
            b=np.concatenate([one[:-1] for one in balance]),
            G=np.hstack([shared_room, shared_room]),
            h=structure["room"],
            S=np.vstack([predicted, 1.4 * predicted]),
            d=np.tile(np.concatenate([np.zeros(28), structure["tolls"]]), 2),
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (6,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Snow in cm, queues of three ports in hours, fuel in €/l, holidays on the way."""
        snow, queues = rng.gamma(0.7, 4, (count, 1)), rng.gamma(3, 5, (count, 3))
        return np.hstack([snow, queues, rng.normal(1.6, 0.15, (count, 1)), rng.poisson(0.4, (count, 1))])

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = (features - [2.8, 15, 15, 15, 1.6, 0.4]) / [3.3, 8.7, 8.7, 8.7, 0.15, 0.63]
        mean = self.structure["base"] * np.exp(np.clip(z, -3, 3) @ self.structure["B"].T)
        return mean * rng.lognormal(0, 0.15, mean.shape) * tail(rng, mean.shape, 0.04, 1.5)


@dataclass(frozen=True)
class Reservoir(Fresh):
    """Two reservoirs in a row release water through turbines for a fortnight, hm³ and thousand € .

    Known: 25 thousand € per hm³ that the river below lacks, and what water left at the end is worth. Predicted: 14 prices of a day,
    €/MWh. Hard because the penalty is lopsided and fixed, prices stop at 5 €/MWh, and load enters them with its third power,
    so that weekends, which move with the first weekday, are no linear effect.
    """

    DAYS = 14

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"inflow": np.round(rng.gamma(2, [[0.7], [0.25]], (2, self.DAYS)), 2)}

    def _build_program(self, structure: Arrays) -> Program:
        one, none, last = np.eye(self.DAYS), np.zeros((self.DAYS, self.DAYS)), np.eye(self.DAYS)[-1]
        kept = one - np.eye(self.DAYS, k=-1)  # release of both, spill of both, volume of both, what the river lacks
        start = np.concatenate([[12.0], np.zeros(13), [5.0], np.zeros(13)])
        return Program(
            A=np.block([[one, none, one, none, kept, none, none], [-one, one, -one, one, none, kept, none]]),
            b=structure["inflow"].ravel() + start,
            G=np.hstack([none, -one, none, -one, none, none, -one]),
            h=np.full(self.DAYS, -1.1),
            lower=np.concatenate([np.zeros(56), np.full(14, 2.0), np.full(14, 1.0), np.zeros(14)]),
            upper=np.repeat([3.0, 3.5, np.inf, np.inf, 20.0, 8.0, 1.1], self.DAYS),
            S=-np.vstack([0.16 * one, 0.11 * one, *[none] * 5]),  # GWh of one hm³
            d=np.concatenate([np.zeros(56), -13.0 * last, -5.0 * last, np.full(14, 25.0)]),
            sense="maximize",
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (7,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Gas in €/MWh, wind of both weeks in GW, cold in K, nuclear plants away, and the first weekday on a circle."""
        day = rng.randint(0, 7, count) * 2 * np.pi / 7
        drawn = [rng.lognormal(3.4, 0.3, count), rng.gamma(3, 2.5, count), rng.gamma(3, 2.5, count)]
        return np.stack([*drawn, rng.normal(0, 4, count), rng.poisson(3, count), np.sin(day), np.cos(day)], 1)

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        gas, first, second, cold, away, sine, cosine = features.T
        weekday = (np.rint(np.arctan2(sine, cosine) * 7 / (2 * np.pi))[:, None] + np.arange(self.DAYS)) % 7
        wind = np.linspace(first, second, self.DAYS, axis=1) * rng.lognormal(0, 0.25, (len(gas), self.DAYS))
        load = 1 + 0.02 * cold[:, None] + 0.04 * away[:, None] - 0.18 * (weekday >= 5)
        price = 1.9 * gas[:, None] * load**3 - 2.2 * wind + rng.normal(0, 5, wind.shape)
        return np.maximum(price, 5) * tail(rng, wind.shape, 0.02, 2)


@dataclass(frozen=True)
class Paper(Fresh):
    """Jumbo reels of 6 suppliers are cut into reels of 5 ordered widths, whole reels and €.

    Known: cutting and the waste of each of 30 patterns, the stock that is left, finished reels bought at a high price. Predicted:
    6 prices of a jumbo reel. Hard because few prices stand beside many known costs, decisions are integers, and a price rises
    steeply only where a supplier's book is full; 150 training rows.
    """

    ROWS = 150
    PATTERNS = 5

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        widths, parents = np.array([37, 52, 68, 81, 105]), rng.randint(210, 340, 6)
        reels = np.zeros((6, self.PATTERNS, 5))
        for (parent, _), pattern in zip(
            itertools.product(parents, range(self.PATTERNS)), reels.reshape(-1, 5), strict=True
        ):
            while (fits := np.flatnonzero(widths <= parent - pattern @ widths)).size:
                pattern[rng.choice(fits)] += 1
        waste = (parents[:, None] - reels @ widths).ravel()
        orders = rng.randint(6, 18, 5)
        limits = rng.randint(3, 6, 6)
        return {"parents": parents, "reels": reels.reshape(-1, 5), "waste": waste, "orders": orders, "limits": limits}

    def _build_program(self, structure: Arrays) -> Program:
        supplier = np.kron(np.eye(6), np.ones(self.PATTERNS))  # patterns, left in stock, bought
        return Program(
            A=np.hstack([structure["reels"].T, -np.eye(5), np.eye(5)]),
            b=structure["orders"].astype(float),
            G=np.hstack([supplier, np.zeros((6, 10))]),
            h=structure["limits"].astype(float),
            S=np.vstack([supplier.T, np.zeros((10, 6))]),
            d=np.concatenate([60 + 2.5 * structure["waste"], np.full(5, 90.0), np.full(5, 900.0)]),
            integer=np.arange(40) < 30,
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (9,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Pulp in €/t, power in €/MWh, dollars for a euro, and the six suppliers' order books, 0 to 1."""
        market = rng.normal([700, 70, 1.1], [80, 20, 0.05], (count, 3))
        return np.hstack([market, rng.beta(3, 2, (count, 6))])

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        pulp, power, dollar = features[:, :3].T
        per_tonne = (0.6 * pulp + 2.2 * power) / dollar
        tight = 1 + 1.2 * np.clip(features[:, 3:] - 0.6, 0, None) ** 2 / 0.16
        tonnes = self.structure["parents"] * 0.0055
        return tonnes * per_tonne[:, None] * tight * rng.lognormal(0, 0.08, tight.shape)


@dataclass(frozen=True)
class Treasury(Fresh):
    """10 million € are moved between 12 funds for a month, thousand €.

    Known: 2.5 thousand € for each million bought or sold, limits of a fund and of three groups. Predicted: 12 returns in thousand €
    a million. Hard because noise is most of a return (Student's t with three degrees of freedom, a common factor): a forecast of
    too large a spread trades for nothing; 250 training rows.
    """

    ROWS = 250

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        held = rng.uniform(0.4, 1.2, 12)
        return {"held": 10 * held / held.sum(), "B": rng.normal(0, 3.5, (12, 5)), "load": rng.uniform(0.5, 1.5, 12)}

    def _build_program(self, structure: Arrays) -> Program:
        one, group = np.eye(12), np.kron(np.eye(3), np.ones(4))  # held, bought, sold
        return Program(
            A=np.vstack([np.hstack([one, -one, one]), np.concatenate([np.ones(12), np.zeros(24)])]),
            b=np.concatenate([structure["held"], [10.0]]),
            G=np.hstack([group, np.zeros((3, 24))]),
            h=np.full(3, 6.0),
            upper=np.concatenate([np.full(12, 2.5), np.full(24, np.inf)]),
            S=-np.vstack([one, np.zeros((24, 12))]),
            d=np.repeat([0.0, 2.5, 2.5], 12),
            sense="maximize",
            name=self.title,
        )

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (5,)

    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        """Slope of the yields in points, spread of credit in points, volatility, dollars for a euro, oil in $ a barrel."""
        drawn = rng.normal(size=(count, 5))
        drawn[:, 1] += 0.6 * drawn[:, 0]
        return drawn * [0.8, 0.5, 6, 0.06, 14] + [1, 1.5, 18, 1.1, 75]

    def _draw_costs(self, rng: np.random.RandomState, features: np.ndarray) -> np.ndarray:
        z = (features - [1, 1.5, 18, 1.1, 75]) / [0.8, 0.58, 6, 0.06, 14]
        mean = 4 + np.tanh(z) @ self.structure["B"].T - 2 * self.structure["load"] * np.clip(z[:, 2:3], 0, None) ** 2
        common = 6 * rng.standard_t(3, (len(z), 1)) * self.structure["load"]
        return mean + common + 5 * rng.standard_t(3, mean.shape)
