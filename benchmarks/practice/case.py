"""What every problem of the practice study gives, and the drivers that their worlds share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.data.split import Parts, parts_of
from dflearn.program import Program

Columns = dict[str, np.ndarray]

TEST = 0.25  # the share of rows to test on, where a problem does not say otherwise


@dataclass(frozen=True, eq=False)
class Case:
    """A program and its tables, as a practitioner would bring them to `dflearn.train`.

    Attributes:
        program: what is decided; its `cost_names` are columns of `costs`.
        features: numbers (NaN where a cell is missing), categories and booleans (object arrays; None where missing), dates
            (datetime64), one row per decision.
        costs: the true costs by name.
        instances: right-hand sides by the names of constraints, where they differ from row to row.
        ordered: rows are in order of time, so that training < choosing < testing; otherwise parts are drawn by the seed.
        test: the share of rows to test on, at the end where rows are ordered.
        seed: what the data, or the origin, and the parts come from. 0 is for development; `SEEDS` has those of the study.
        money: what a unit of the objective is.
    """

    program: Program
    features: Columns
    costs: Columns
    instances: Columns | None
    ordered: bool
    seed: int
    money: str
    test: float = TEST

    def __len__(self) -> int:
        return len(next(iter(self.costs.values())))

    @property
    def parts(self) -> Parts:
        """The rows to train on, to choose by and to test on: those of `dflearn.train` with this order, share and seed."""
        return parts_of(len(self), test=self.test, ordered=self.ordered, seed=self.seed)


def autoregressive(rng: np.random.RandomState, count: int, persistence: float, columns: int = 1) -> np.ndarray:
    """x_t = persistence · x_{t−1} + noise, of mean 0 and standard deviation 1; `(count, columns)`."""
    noise = rng.normal(size=(count, columns))
    x = np.empty((count, columns))
    x[0] = noise[0]
    for t in range(1, count):
        x[t] = persistence * x[t - 1] + np.sqrt(1 - persistence**2) * noise[t]
    return x


def season(day: np.ndarray, peak: float) -> np.ndarray:
    """A cosine over the year, 1 on the day of the year `peak`."""
    return np.cos(2 * np.pi * (day - peak) / 365.25)


def heavy(rng: np.random.RandomState, shape: tuple[int, ...], freedom: float = 5) -> np.ndarray:
    """Student's t, scaled to standard deviation 1: what residuals of prices and rates look like."""
    return rng.standard_t(freedom, shape) / np.sqrt(freedom / (freedom - 2))


def softplus(x: np.ndarray) -> np.ndarray:
    """A threshold with a rounded corner: 0 far below, x far above."""
    return np.logaddexp(0, x)


def with_gaps(rng: np.random.RandomState, column: np.ndarray, share: float) -> np.ndarray:
    """The column with this share of its cells missing, at random."""
    missing = rng.uniform(size=len(column)) < share
    if column.dtype == object:
        held = column.copy()
        held[missing] = None
        return held
    return np.where(missing, np.nan, column)


def calendar(start: str, days: int) -> np.ndarray:
    """Consecutive dates."""
    return np.datetime64(start) + np.arange(days)


def weekday(dates: np.ndarray) -> np.ndarray:
    """0 is Monday."""
    return (dates.astype("datetime64[D]").astype(int) + 3) % 7


def day_of_year(dates: np.ndarray) -> np.ndarray:
    return (dates - dates.astype("datetime64[Y]").astype("datetime64[D]")).astype(int)


def chosen(options: list[str], index: np.ndarray) -> np.ndarray:
    """Categories as text."""
    return np.array(options, dtype=object)[index]


def named(pattern: str, values: np.ndarray) -> Columns:
    """The columns of a matrix by name: `named("price[{}]", values)`."""
    return {pattern.format(k): values[:, k] for k in range(values.shape[1])}


class Rows:
    """The rows of a program, written one by one: `add([(variable, coefficient), …], at_most=…)`, or `equal=`, `at_least=`."""

    def __init__(self, variables: int) -> None:
        self.variables = variables
        self._rows: dict[str, list[tuple[list[tuple[int, float]], float]]] = {"G": [], "A": []}
        self.names: dict[str, tuple[str, int, float]] = {}

    def add(
        self,
        terms: list[tuple[int, float]],
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        equal: float | None = None,
        name: str = "",
    ) -> None:
        """One constraint; with a name, its right-hand side may be a column of the instances."""
        matrix, sign = ("A" if equal is not None else "G"), (-1.0 if at_least is not None else 1.0)
        side = next(value for value in (at_most, at_least, equal) if value is not None)
        if name:
            self.names[name] = ("b" if matrix == "A" else "h", len(self._rows[matrix]), sign)
        self._rows[matrix].append(([(i, sign * v) for i, v in terms], sign * side))

    def parts(self) -> dict[str, Any]:
        """A, b, G, h and constraint_names of `Program`."""
        parts: dict[str, Any] = {"constraint_names": self.names or None}
        for matrix, side in (("A", "b"), ("G", "h")):
            rows = self._rows[matrix]
            entries = [(value, row, column) for row, (terms, _) in enumerate(rows) for column, value in terms]
            if entries:
                value, row, column = (list(part) for part in zip(*entries, strict=True))
                parts[matrix] = sp.csr_array((value, (row, column)), shape=(len(rows), self.variables))
                parts[side] = [held for _, held in rows]
        return parts
