"""Worlds of the practice benchmark that buy or sell energy, and what all its worlds share. A seed is another history of a world."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dflearn.problems.energy import EnergyKnapsack, load_energy_days
from dflearn.problems.scheduling import Job, Scheduling
from dflearn.program import Program

Columns = dict[str, np.ndarray]
WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, eq=False)
class Case:
    """A program and its tables, as people keep them: features (numbers with gaps, categories, booleans and dates, a row for each
    decision), true costs and what else differs from row to row, by the names of the program. If rows are in order of time, the last
    are tested. money: the unit of the objective; test: the share of rows that are tested; quantiles: the level at which each cost would
    be forecast by itself, where right-hand sides are predicted."""

    program: Program
    features: Columns
    costs: Columns
    instances: Columns | None
    ordered: bool
    money: str
    test: float = 0.25
    quantiles: np.ndarray | None = None

    @property
    def digest(self) -> str:
        """Which data these are."""
        columns = [pair for table in (self.features, self.costs, self.instances or {}) for pair in table.items()]
        text = b"".join(name.encode() + str(column.tolist()).encode() for name, column in columns)
        return hashlib.sha256(self.program.fingerprint.encode() + text).hexdigest()[:16]


def named(pattern: str, values: np.ndarray) -> Columns:
    """The columns of a matrix by name: `named("price[{}]", values)`."""
    return {pattern.format(k): column for k, column in enumerate(values.T)}


def persistent(rng: np.random.RandomState, count: int, persistence: float, columns: int = 1) -> np.ndarray:
    """x_t = persistence · x_{t−1} + noise, of mean 0 and standard deviation 1; `(count, columns)`."""
    x = rng.normal(size=(count, columns))
    for t in range(1, count):
        x[t] = persistence * x[t - 1] + np.sqrt(1 - persistence**2) * x[t]
    return x


def heavy(rng: np.random.RandomState, shape: tuple[int, ...], freedom: float = 5) -> np.ndarray:
    """Student's t of standard deviation 1."""
    return rng.standard_t(freedom, shape) / np.sqrt(freedom / (freedom - 2))


def season(dates: np.ndarray, peak: float) -> np.ndarray:
    """A cosine over the year, 1 on the day of the year `peak`."""
    day = (dates - dates.astype("datetime64[Y]").astype(dates.dtype)).astype(int)
    return np.cos(2 * np.pi * (day - peak) / 365.25)


def weekday(dates: np.ndarray) -> np.ndarray:
    """0 is Monday."""
    return (dates.astype("datetime64[D]").astype(int) + 3) % 7


def text(options: Sequence[str], index: np.ndarray) -> np.ndarray:
    return np.array(options, dtype=object)[index]


def gaps(rng: np.random.RandomState, column: np.ndarray, share: float = 0.03) -> np.ndarray:
    """The column with this share of its cells missing."""
    return np.where(rng.uniform(size=len(column)) < share, np.nan, column)


def bend(x: np.ndarray) -> np.ndarray:
    """A threshold with a rounded corner: 0 far below, x far above."""
    return np.logaddexp(0, x)


ORIGINS, TESTED = 5, 80  # seeds 1 to 5 are origins in order of time; 80 days are tested from each


def real_days(program: Program, origin: int) -> Case:
    """The days up to the end of an origin's test days, with half-hourly prices as costs."""
    days = load_energy_days()
    holiday, day, _, _, wind, load, price, carbon = np.moveaxis(days.features, -1, 0)
    before = np.vstack([np.full((2, days.prices.shape[1]), np.nan), days.prices[:-2]])  # known when a day is planned
    evening = slice(34, 40)
    features = {
        "holiday": holiday[:, 0] > 0, "weekday": text([WEEK[-1], *WEEK[:-1]], day[:, 0].astype(int)),
        "carbon": carbon.mean(1), "load": load.mean(1), "load, evening": load[:, evening].mean(1), "wind": wind.mean(1),
        "wind, evening": wind[:, evening].mean(1), "price before": before.mean(1),
        "price before, evening": before[:, evening].mean(1),
        **named("forecast[{}]", price.reshape(len(days), 12, 4).mean(-1)),
    }  # fmt: skip
    end = len(days) - TESTED * (ORIGINS - origin)
    known = {name: part[:end] for name, part in features.items()}
    costs = named("price[{}]", days.prices[:end])
    return Case(replace(program, cost_names=list(costs)), known, costs, None, True, "€ a day", TESTED / end)


def half_hours(seed: int) -> Case:
    """Half-hours of a real day to sell in, within a capacity of 60 (a knapsack)."""
    return real_days(EnergyKnapsack(capacity=60, predict="price").program, seed)


def schedule(seed: int) -> Case:
    """Nine jobs of a plant on real days, each in its window; those that run together share 140 units of steam."""
    rows = [(12, 0, 48, 0.40, 60), (8, 0, 30, 0.25, 50), (6, 12, 40, 0.30, 40), (4, 12, 48, 0.15, 40)]
    rows += [(10, 10, 48, 0.18, 30), (5, 24, 48, 0.35, 60), (2, 14, 40, 0.22, 50), (3, 0, 20, 0.12, 30)]
    rows += [(6, 20, 48, 0.06, 20)]
    jobs = tuple(Job(*row[:4], (row[4],)) for row in rows)
    return real_days(Scheduling(jobs, ((140,),), name="schedule").program, seed)


def battery(seed: int) -> Case:
    """1 MW and 2 MWh on real days, 88 % there and back, 4 € of wear a MWh and 3 MWh a day at most (known costs)."""
    one, none, before = np.eye(48) / 2, np.zeros((48, 48)), np.eye(48, k=-1)
    last = np.eye(48)[-1:]
    program = Program(
        A=np.block([[-0.94 * one, one / 0.94, 2 * one - before], [0 * last, 0 * last, last]]),
        b=np.append(np.eye(48)[0], 1.0), G=np.hstack([np.zeros((1, 48)), np.full((1, 48), 0.5), np.zeros((1, 48))]),
        h=[3.0], upper=np.repeat([1.0, 1.0, 2.0], 48), S=np.vstack([one, -one, none]), d=np.repeat([0.0, 2.0, 0.0], 48),
        sense="maximize", name="battery",
    )  # fmt: skip
    return real_days(program, seed)


def commitment(seed: int) -> Case:
    """Which of two gas units run in which hour, before 24 prices are known; 300 days (few rows), known fuel, starts and idling.
    Prices climb a merit order with what load leaves after wind and sun, and pay steeply where it is scarce."""
    one, before, hours, units = np.eye(24), np.eye(24, k=-1), 24, 2
    least, most, ramp = np.array([60.0, 30.0]), np.array([200.0, 100.0]), np.array([90.0, 80.0])
    each = lambda values: np.kron(np.diag(values), one)  # noqa: E731
    I, past, none = np.eye(48), np.kron(np.eye(units), before), np.zeros((48, 48))  # noqa: E741
    begun = I + past + np.kron(np.eye(units), np.eye(24, k=-2))
    rows = [[I, -each(most), none], [-I, each(least), none], [none, I - past, -I], [I - past, none, -each(least)]]
    rows += [[none, -I, begun]]  # three hours at least
    program = Program(
        G=np.vstack([np.block(rows), np.hstack([one, one, np.zeros((24, 96))])]),
        h=np.concatenate([np.zeros(144), np.repeat(ramp, hours), np.zeros(48), np.full(24, 260.0)]),
        upper=np.concatenate([np.repeat(most, hours), np.ones(96)]),
        S=np.vstack([-np.tile(one, (units, 1)), np.zeros((96, hours))]),
        d=np.repeat([62.0, 76.0, 600.0, 250.0, 8000.0, 1500.0], hours), integer=np.arange(144) >= 48, sense="maximize",
        cost_names=[f"price[{t}]" for t in range(hours)],
        constraint_names={f"connection[{t}]": ("h", 240 + t) for t in range(hours)}, name="commitment",
    )  # fmt: skip
    rng, count = np.random.RandomState([1, seed]), 300
    dates, hour = np.datetime64("2023-01-01") + np.arange(count), np.arange(hours)
    weather, idle = persistent(rng, count, 0.75, 3), weekday(dates) >= 5
    warm = 11 + 9 * season(dates, 200) + 3.5 * weather[:, 0]
    wind, sun = 9 * np.exp(0.55 * weather[:, 1]), (14 + 8 * season(dates, 172)) / (1 + np.exp(-0.8 - weather[:, 2]))
    gas = 32 * np.exp(0.2 * persistent(rng, count, 0.985)[:, 0])
    outage = np.repeat(rng.choice(3, count // 5, p=[0.7, 0.2, 0.1]), 5)
    rhythm = 7 * np.exp(-(((hour - 19) / 2.8) ** 2)) + 5.5 * np.exp(-(((hour - 9.5) / 3.5) ** 2)) - 3 * (hour < 6)
    heat = 0.55 * bend(15 - warm) + 0.5 * bend(warm - 22) - 5 * idle
    load = 44 + heat[:, None] + rhythm * np.where(idle, 0.75, 1)[:, None]
    gust = wind[:, None] * np.exp(0.15 * rng.normal(size=(count, 1)) + 0.1 * rng.normal(size=(count, hours)))
    left = load + rng.normal(size=load.shape) - gust - sun[:, None] * np.exp(-(((hour - 12.5) / 3) ** 2))
    scarce = bend((left - 52 + np.array([0, 2.5, 5])[outage][:, None]) / 1.5)
    merit = 0.35 + 0.65 / (1 + np.exp(-(left - 30) / 5))
    price = 2.8 * gas[:, None] * merit - 9 * bend((14 - left) / 3) + 22 * scarce**1.5
    price += (3 + 6 * np.minimum(scarce, 3)) * heavy(rng, price.shape) + 5 * persistent(rng, count, 0.5)
    features = {
        "date": dates, "weekday": text(WEEK, weekday(dates)),
        "outage": text(["none", "coal block", "nuclear block"], outage),
        "temperature": gaps(rng, warm + 0.8 * rng.normal(size=count)), "wind": wind,
        "sun at noon": gaps(rng, sun, 0.02), "gas": gas,
        "price yesterday": np.append(price[0].mean(), price[:-1].mean(1)),
        **{f"load {t} h": load[:, t] + 0.9 * rng.normal(size=count) for t in (3, 9, 12, 16, 19, 22)},
    }  # fmt: skip
    line = np.where(rng.uniform(size=count) < 0.08, 180.0, 260.0)
    instances = {f"connection[{t}]": line for t in range(hours)}
    return Case(program, features, named("price[{}]", price), instances, True, "€ a day")


def heating(seed: int) -> Case:
    """A town's heat from an engine that sells its current, a heat pump and a boiler with a store, two-hourly; 500 days. Twelve
    prices of current are predicted; what gas costs today is known (instances). Gas drifts upwards and moves the prices of current
    with it, so that the days that are tested lie beyond the days that train. A linear model is nearly right."""
    n, one, before = 12, np.eye(12), np.eye(12, k=-1)
    none, parts = np.zeros((n, n)), ("engine", "pump", "boiler", "level", "on", "start")
    program = Program(
        A=np.hstack([one, one, one, before - one, none, none]), b=np.full(n, 12.0),
        G=np.block([
            [one, none, none, none, -8 * one, none],
            [-one, none, none, none, 4 * one, none],
            [none, none, none, none, one - before, -one],
        ]),
        h=np.zeros(3 * n), upper=np.repeat([8.0, 6.0, np.inf, 20.0, 1.0, 1.0], n),
        S=np.vstack([-1.6 * one, 0.65 * one, *[none] * 4]),  # MWh of current in two hours, for a MW of heat
        d=np.repeat([0.0, 0.0, 0.0, 0.0, 10.0, 90.0], n), integer=np.arange(6 * n) // n == 4,
        cost_names=[f"price[{t}]" for t in range(n)],
        variable_names=[f"{part}[{t}]" for part in parts for t in range(n)],
        constraint_names={f"heat[{t}]": ("b", t) for t in range(n)}, name="heating",
    )  # fmt: skip
    rng, count = np.random.RandomState([9, seed]), 500
    dates, hour = np.datetime64("2021-03-01") + np.arange(count), 2 * np.arange(n)
    gas = 22 * np.exp(0.0022 * np.arange(count) + 0.12 * persistent(rng, count, 0.97)[:, 0])
    warm = 9 + 8 * season(dates, 200) + 3 * persistent(rng, count, 0.8)[:, 0]
    wind, idle = np.exp(0.5 * persistent(rng, count, 0.6)[:, 0]), weekday(dates) >= 5
    need = np.clip(3 + 0.75 * (20 - warm), 3, None)[:, None] * (1 + 0.3 * np.exp(-(((hour - 7) / 3) ** 2)))
    rhythm = 1 + 0.3 * np.exp(-(((hour - 19) / 3) ** 2)) + 0.2 * np.exp(-(((hour - 8) / 3) ** 2)) - 0.25 * (hour < 5)
    blown = 9 * (wind[:, None] - 1) * (1 + 0.2 * rng.normal(size=(count, n)))
    price = 2.1 * gas[:, None] * rhythm * (1 - 0.12 * idle)[:, None] - blown
    price += 0.12 * gas[:, None] * heavy(rng, price.shape) + 4 * persistent(rng, count, 0.5)
    features = {
        "date": dates,
        "weekday": text(WEEK, weekday(dates)),
        "gas": gas,
        "temperature": gaps(rng, warm + 0.7 * rng.normal(size=count)),
        "wind": gaps(rng, wind * np.exp(0.1 * rng.normal(size=count)), 0.02),
        "price yesterday": np.append(price[0].mean(), price[:-1].mean(1)),
        "price yesterday, evening": np.append(price[0, 9], price[:-1, 9]),
    }
    instances = named("heat[{}]", np.round(need, 2))
    for part, share in (("engine", 4.4), ("boiler", 2.2)):  # MWh of gas in two hours, for a MW of heat
        instances |= {f"d:{part}[{t}]": share * gas for t in range(n)}
    return Case(program, features, named("price[{}]", price), instances, True, "€ a day")
