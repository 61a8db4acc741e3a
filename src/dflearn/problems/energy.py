"""Days of an electricity market: 48 half-hours, eight features each, and decisions whose costs are their prices.

The real days are a file that this package does not ship. Without it a synthetic stand-in of the same shape is drawn.
"""

from __future__ import annotations

import hashlib
import math
import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from dflearn.data import DecisionDataset, Split, split_rows
from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.problems.base import Problem
from dflearn.program import Program
from dflearn.reading import UNREADABLE, check_dense, read_npz
from dflearn.solvers.base import Solver
from dflearn.solvers.callable import from_callable
from dflearn.solvers.structured import FewRowLP

SLOTS, FEATURES = 48, 8
VARIABLE = "DFLEARN_ENERGY"  # the environment variable that names the file of real days


@dataclass(frozen=True, eq=False)
class EnergyDays:
    """Features of each half-hour of each day, and its true value.

    Attributes:
        features: calendar (holiday, weekday, week, month) and forecasts (wind, load, price, CO₂ intensity),
            float64 `(days, 48, 8)`.
        values: worth of each half-hour as an item of the knapsack, about weight × price, float64 `(days, 48)`.
        weights: 3, 5 or 7, the same every day, int64 `(48,)`.
        source: the file, or "synthetic".

    Examples:
        >>> days = dfl.problems.load_energy_days(days=5)
        >>> days.features.shape, days.source
        ((5, 48, 8), 'synthetic')
    """

    features: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    source: str

    def __post_init__(self) -> None:
        days = len(self.features)
        wanted = {"features": (days, SLOTS, FEATURES), "values": (days, SLOTS), "weights": (SLOTS,)}
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise DataError(f"{self.source}: {name} must be finite numbers of shape {shape}; got {array.shape}")

    def __len__(self) -> int:
        return len(self.features)

    def __str__(self) -> str:
        if self.source == "synthetic":
            return f"{len(self)} SYNTHETIC days (no file of real ones was named: see load_energy_days)"
        return f"{len(self)} real days from {self.source}"

    @property
    def digest(self) -> str:
        """Which days these are, wherever their file lies."""
        arrays = (self.features, self.values, self.weights)
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]

    @property
    def prices(self) -> np.ndarray:
        """Values per unit of weight, `(days, 48)`."""
        return self.values / self.weights

    def dataset(self, costs: np.ndarray) -> DecisionDataset:
        """Features `(days, 48, 8)` with these costs `(days, 48)`, one to one."""
        return DecisionDataset(torch.as_tensor(self.features).float(), torch.as_tensor(costs).float())


def load_energy_days(path: str | os.PathLike[str] | None = None, *, days: int = 789, seed: int = 0) -> EnergyDays:
    """The days in the .npz file at `path`, or in that which the environment variable DFLEARN_ENERGY names.

    Where neither is given, `days` synthetic ones, drawn by `seed`; `str()` of the answer says which they are.

    Examples:
        >>> dfl.problems.load_energy_days(days=5).values.shape
        (5, 48)
    """
    named = path if path is not None else os.environ.get(VARIABLE)
    if not named:
        return synthetic_energy_days(days, seed)
    try:
        arrays, kind = read_npz(named), "numbers of any kind"
        sizes = {"features": (None,) * 3, "values": (None,) * 2, "weights": (None,)}
        features, values, weights = (check_dense(arrays, name, kind, shape) for name, shape in sizes.items())
    except UNREADABLE as error:
        wanted = "an .npz archive with features (days, 48, 8), values (days, 48) and weights (48,)"
        raise DataError(f"{named} is not a file of energy days ({error}): it must be {wanted}") from error
    return EnergyDays(features.astype(float), values.astype(float), weights.astype(np.int64), str(named))


def synthetic_energy_days(days: int = 789, seed: int = 0) -> EnergyDays:
    """Invented days with the columns, the scale and the daily rhythm of the real ones, and their two difficulties:
    prices that rise steeply with load net of wind, and rare spikes that no forecast tells."""
    rng = np.random.RandomState(seed)
    day, slot = np.arange(days)[:, None], np.arange(SLOTS)[None, :]
    season = np.cos(2 * math.pi * (day - 15) / 365)
    rhythm = np.exp(-(((slot - 36) / 5) ** 2)) + 0.6 * np.exp(-(((slot - 18) / 8) ** 2))
    weekend = (day % 7 >= 5).astype(float)
    drift = 400 * np.cumsum(rng.normal(0, 0.15, (days, SLOTS)), axis=1)
    wind = np.clip(540 + drift + rng.normal(0, 300, (days, 1)), 0, 1700)
    load = 3000 + 400 * season + 1500 * rhythm - 350 * weekend + rng.normal(0, 100, (days, SLOTS))
    tight = np.clip((load - wind - 1500) / 3000, 0, None)
    expected = 30 + 60 * tight**2
    forecast = expected * rng.lognormal(0, 0.15, (days, 1)) * rng.lognormal(0, 0.1, (days, SLOTS))
    spike = (rng.uniform(size=(days, SLOTS)) < 0.03 * np.clip(tight, 0, 2)) * rng.exponential(150, (days, SLOTS))
    price = expected * rng.lognormal(0, 0.2, (days, 1)) * rng.lognormal(0, 0.2, (days, SLOTS)) + spike
    carbon = 600 - 0.25 * wind + rng.normal(0, 30, (days, SLOTS))
    everywhere = np.zeros((days, SLOTS))
    calendar = (day % 91 == 0, day % 7, day // 7 % 52 + 1, day % 365 // 31 + 1)
    columns = [*(everywhere + one for one in calendar), wind, load, forecast, carbon]
    weights = rng.permutation(np.repeat([3, 5, 7], SLOTS // 3))
    values = np.clip(weights * price + rng.normal(0, 25, (days, SLOTS)), 0, None)
    return EnergyDays(np.stack(columns, axis=-1), values, weights, "synthetic")


def split_days(
    data: DecisionDataset, seed: int, *, train: int | float = 550, validation: int | float = 100
) -> tuple[Split, float]:
    """The days shuffled by `seed` and split, features standardized, costs divided by their mean: (split, that mean).

    Both use the training days only. Sizes are numbers of days, or shares of all; the rest is for testing.
    """
    assert data.costs is not None
    parts = split_rows(len(data), {"train": train, "validation": validation}, seed)
    known = data.features[parts[0]].double().flatten(0, -2)
    spread = known.std(0)
    features = (data.features - known.mean(0)) / torch.where(spread > 0, spread, 1.0)
    unit = float(data.costs[parts[0]].abs().double().mean())
    scaled = DecisionDataset(
        features.to(data.features), data.costs / unit, data.decisions, data.instance, data.ids, weights=data.weights
    )
    return Split(*(scaled.subset(rows) for rows in parts)), unit


@dataclass(frozen=True)
class EnergyProblem(Problem):
    """A decision about each day, made before its prices are known. Its data are days, so it has no floor.

    `generate(count)` gives the first `count` days in their order, or, with a seed, the first after shuffling. Features are
    as they were recorded: standardize them by the days that train, as `split_days` and `models.Standardize` do.

    Args:
        path: a file of real days; default: the one that DFLEARN_ENERGY names, else synthetic days, drawn by `seed`.
        digest: of the days that are meant (`EnergyDays.digest`); others are refused. Default: any.
    """

    path: str | None = field(default=None, kw_only=True)
    digest: str = field(default="", kw_only=True)

    @cached_property
    def days(self) -> EnergyDays:
        """The days that `generate` takes the data from."""
        days = load_energy_days(self.path, seed=self.seed)
        if self.digest and days.digest != self.digest:
            raise DataError(f"the days with digest {self.digest} are wanted, and here are {days}, with {days.digest}")
        return days

    @property
    def recorded(self) -> dict[str, Any]:
        return {"digest": self.days.digest}

    def split(self, count: int, seed: int, test: int | float, validation: int | float) -> Split:
        """As of `split_days`: features are standardized by the days that train. Costs keep their unit."""
        held_out = math.ceil(test * count) if isinstance(test, float) else test
        checked = math.ceil(validation * (count - held_out)) if isinstance(validation, float) else validation
        parts, unit = split_days(self.generate(count), seed, train=count - held_out - checked, validation=checked)
        return Split(*(DecisionDataset(p.features, p.batch().require("costs") * unit, ids=p.ids) for p in parts))

    @abstractmethod
    def costs(self, days: EnergyDays) -> np.ndarray:
        """The true y, `(days, 48)`."""

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return (SLOTS, FEATURES)

    def _instances(self, count: int, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
        if count > len(self.days):
            raise OptionError(f"{count} days were asked for, and there are {self.days}")
        order = np.arange(len(self.days))
        rows = (order if seed is None else np.random.RandomState([self.seed, seed]).permutation(order))[:count]
        return self.days.features[rows], self.costs(self.days)[rows]


@dataclass(frozen=True)
class EnergyKnapsack(EnergyProblem):
    """max over w of Σ value_t w_t   s.t.   Σ weight_t w_t ≤ capacity,   w ∈ {0, 1}⁴⁸.

    Args:
        weights: of the half-hours; default: those of the days.
        capacity: 60, 120 or 180 in the literature.
        predict: what the costs y are. "value": the values themselves (S = −I), as the literature has it. "price": what a
            unit of weight is worth; the weights are known and stand in the program (S = −diag(weights)).
        seed, path, digest: as of `EnergyProblem`.

    Examples:
        >>> dfl.problems.EnergyKnapsack(capacity=60).program.n
        48
    """

    weights: tuple[int, ...] = ()
    capacity: int = 60
    predict: Literal["value", "price"] = "value"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predict not in ("value", "price"):
            raise OptionError(f"predict is 'value' or 'price', got {self.predict!r}")

    @property
    def name(self) -> str:
        return f"energy-{self.capacity}" + ("" if self.predict == "value" else f"-{self.predict}")

    def costs(self, days: EnergyDays) -> np.ndarray:
        return days.values if self.predict == "value" else days.prices

    def _draw_structure(self, rng: np.random.RandomState) -> dict[str, np.ndarray]:
        return {"weights": np.array(self.weights or self.days.weights)}

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        weights, h = structure["weights"].astype(float), [float(self.capacity)]
        S = -np.diag(np.ones_like(weights) if self.predict == "value" else weights)
        return Program(G=weights[None, :], h=h, upper=1, S=S, integer=True, sense="maximize", name=self.name)

    def solver(self) -> Solver:
        """Dynamic programming over the capacity: exact, and far quicker than branch and bound on weights this small."""
        function = KnapsackByCapacity(tuple(self.structure["weights"].tolist()), self.capacity)
        how: dict[str, Any] = {"S": self.program.S, "sense": "maximize", "batched": True, "name": repr(function)}
        return from_callable(function, self.program.n, **how)

    def relaxed_solver(self) -> Solver:
        return FewRowLP(self.relaxation)


@dataclass(frozen=True)
class KnapsackByCapacity:
    """c `(count, n)` → the w ∈ {0, 1}ⁿ of least cᵀw with Σ weight_i w_i ≤ capacity, for integer weights.

    best_i(r) = max(best_{i−1}(r), best_{i−1}(r − weight_i) − c_i): the most that the first i items give in room r.
    """

    weights: tuple[int, ...]
    capacity: int

    def __post_init__(self) -> None:
        if any(weight != int(weight) or weight < 0 for weight in (*self.weights, self.capacity)):
            raise ProgramError("dynamic programming over the capacity needs weights and a capacity in integers")

    def __call__(self, c: np.ndarray) -> np.ndarray:
        count, n = c.shape
        best = np.zeros((count, self.capacity + 1))
        taken = np.zeros((n, count, self.capacity + 1), bool)
        for i, weight in enumerate(self.weights):
            if weight <= self.capacity:
                with_item = best[:, : self.capacity + 1 - weight] - c[:, i, None]
                taken[i, :, weight:] = with_item > best[:, weight:]
                best[:, weight:] = np.maximum(best[:, weight:], with_item)
        w, room, row = np.zeros_like(c), np.full(count, self.capacity), np.arange(count)
        for i in reversed(range(n)):
            w[:, i] = taken[i, row, room]
            room -= taken[i, row, room] * self.weights[i]
        return w
