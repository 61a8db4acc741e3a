"""Real days of the Irish electricity market as a table of one row per day, for the three problems that buy or sell on them.

The file has eight columns for each of 48 half-hours: 384 columns for some hundreds of days. The old rule of ten rows for each
column leaves about 25: the price forecast of each two hours, the mean and the evening of forecasts of load and wind, the mean
of the carbon intensity, weekday and holiday, and what prices were two days before, the last that are known when tomorrow is
planned. (Months are left out: the first origins have seen each but once.)

Five rolling origins: origin k trains and chooses on all days before its 80 test days; the blocks of test days follow each
other and do not overlap. Origin 0, for development, tests on the 80 days before the first of the study. Without a file
($DFLEARN_ENERGY), synthetic days of the same shape stand in, and the records say so.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import Case, Columns, chosen, named
from dflearn.problems.energy import EnergyDays, load_energy_days
from dflearn.program import Program

TESTED, ORIGINS = 80, 5


def features_of(days: EnergyDays) -> Columns:
    holiday, weekday, _, _, wind, load, price, carbon = np.moveaxis(days.features, -1, 0)
    evening = slice(34, 40)  # 17 to 20 h
    before = np.vstack([np.full((2, days.prices.shape[1]), np.nan), days.prices[:-2]])
    return {
        "holiday": holiday[:, 0] > 0,
        "weekday": chosen(["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"], weekday[:, 0].astype(int)),
        "carbon": carbon.mean(1),
        "load": load.mean(1),
        "load, evening": load[:, evening].mean(1),
        "wind": wind.mean(1),
        "wind, evening": wind[:, evening].mean(1),
        "price before": before.mean(1),
        "price before, evening": before[:, evening].mean(1),
        **named("forecast[{}]", price.reshape(len(days), 12, 4).mean(-1)),
    }


def case_of(program: Program, origin: int, money: str) -> Case:
    """The days up to the end of an origin's test days, with their prices as costs."""
    days = load_energy_days()
    end = len(days) - TESTED * (ORIGINS - origin)
    features = {name: column[:end] for name, column in features_of(days).items()}
    costs = named("price[{}]", days.prices[:end])
    return Case(program, features, costs, None, ordered=True, seed=origin, money=money, test=TESTED / end)


def price_names(slots: int = 48) -> list[str]:
    return [f"price[{t}]" for t in range(slots)]
