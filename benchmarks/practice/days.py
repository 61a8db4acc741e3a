"""Real days of the Irish electricity market as a table of one row per day, for the three problems that buy or sell on them.

The file has eight columns for each of 48 half-hours: 384 columns for some hundreds of days, too many for any table that a
person would keep. A row here has what is worth keeping: the price forecast of each hour, forecasts of load and wind in
blocks of three hours, the mean of the carbon intensity, and the calendar. No feature is made from the prices to predict.

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
    holiday, weekday, week, month, wind, load, price, carbon = np.moveaxis(days.features, -1, 0)
    blocks = lambda values, size: values.reshape(len(days), -1, size).mean(-1)  # noqa: E731
    return {
        "holiday": holiday[:, 0] > 0,
        "weekday": chosen(["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"], weekday[:, 0].astype(int)),
        "month": chosen([str(k) for k in range(13)], month[:, 0].astype(int)),
        "week": week[:, 0],
        "carbon": carbon.mean(1),
        **named("load[{}]", blocks(load, 6)),
        **named("wind[{}]", blocks(wind, 6)),
        **named("forecast[{}]", blocks(price, 2)),
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
