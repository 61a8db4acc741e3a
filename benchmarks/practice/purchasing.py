"""Purchasing with storage: how much of a raw material to buy from which of two suppliers on each of the next twelve days.

    min Σ_st (price_st) buy_st + 0.35 Σ_t stock_t + 60 Σ_t short_t
    s.t. stock_t = stock_{t−1} + Σ_s buy_st + short_t − demand_t,   stock_t ≤ 90,   stock_11 ≥ 20,
         buy_st ≤ 25 (the first), 18 (the second),   all ≥ 0

Demand of the twelve days and the stock at hand are known: instances (the stock stands in the first day's balance). Missing
material is fetched at a known, dear price.

The world: four depots, plans made every Monday for 192 weeks, in order of time: 768 rows. Prices of the first supplier are
a commodity: a persistent level, a weekly rhythm, a premium that grows steeply when the harbour's stocks are low, and a
forward curve that says, with errors, where it goes. The second sells what is left: the commodity plus transport, a discount
when its silo is full (threshold), double effect of the river's low water on the depots beyond it. Weather makes the days
to come less certain than tomorrow: the scatter grows with the horizon and in scarce weeks, heavy-tailed. Some gaps.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import (
    Case,
    Rows,
    autoregressive,
    chosen,
    day_of_year,
    heavy,
    season,
    softplus,
    with_gaps,
)  # fmt: skip
from dflearn.program import Program

DAYS, WEEKS, DEPOTS, SUPPLIERS = 12, 192, 4, 2
ROOM, AT_END, HOLDING, DEAR, MOST = 90.0, 20.0, 0.35, 60.0, (25.0, 18.0)  # tonnes, € per tonne
BEYOND = np.array([False, False, True, True])  # depots that are reached by the river


def program() -> Program:
    """Variables: buy from the first and the second supplier, stock, short, day by day."""
    buy, stock, short = np.arange(2 * DAYS).reshape(2, DAYS), 2 * DAYS + np.arange(DAYS), 3 * DAYS + np.arange(DAYS)
    rows = Rows(4 * DAYS)
    for t in range(DAYS):
        before = [(stock[t - 1], 1.0)] if t else []
        terms = [*before, (buy[0, t], 1.0), (buy[1, t], 1.0), (short[t], 1.0), (stock[t], -1.0)]
        rows.add(terms, equal=15.0, name=f"demand[{t}]")
    lower = np.zeros(4 * DAYS)
    lower[stock[-1]] = AT_END
    return Program(
        **rows.parts(),
        lower=lower,
        upper=np.repeat([*MOST, ROOM, np.inf], DAYS),
        S=np.vstack([np.eye(2 * DAYS), np.zeros((2 * DAYS, 2 * DAYS))]),
        d=np.repeat([0.0, 0.0, HOLDING, DEAR], DAYS),
        cost_names=[f"price[{s},{t}]" for s in range(SUPPLIERS) for t in range(DAYS)],
        name="purchasing",
    )


def case(seed: int) -> Case:
    rng = np.random.RandomState([8, seed])
    total = 7 * WEEKS + DAYS
    dates = np.datetime64("2021-01-04") + np.arange(total)
    day = day_of_year(dates)
    level = 34 * np.exp(0.16 * autoregressive(rng, total, 0.97)[:, 0])
    harbour = np.clip(0.55 + 0.18 * autoregressive(rng, total, 0.95)[:, 0] + 0.1 * season(day, 260), 0.03, 1)
    silo = np.clip(0.5 + 0.22 * autoregressive(rng, total, 0.9)[:, 0], 0, 1)
    water = np.clip(2.2 + 0.5 * season(day, 110) + 0.45 * autoregressive(rng, total, 0.97)[:, 0], 0.4, 4)
    rhythm = np.array([1.5, 0.6, 0.0, -0.6, -1.2, 0.4, 1.0])[np.arange(total) % 7]
    first = level + rhythm + 9 * softplus((0.3 - harbour) / 0.08) * 0.25
    low = softplus((1.5 - water) / 0.25) * 0.25

    ahead = 7 * np.arange(WEEKS)[:, None] + np.arange(DAYS)  # (weeks, days)
    week, depot = np.repeat(np.arange(WEEKS), DEPOTS), np.tile(np.arange(DEPOTS), WEEKS)
    rows, when = len(week), ahead[week]
    monday = 7 * week
    discount = 5.0 * (silo[when] > 0.62) - 1.2
    second = 0.97 * first[when] + 2.5 - discount + 4 * low[when] * (1 + BEYOND[depot])[:, None]
    near = first[when] + np.array([0.0, 0.8, 1.6, 1.1])[depot][:, None]
    scarce = 1 + 1.5 * (harbour[when] < 0.3)
    size = (0.5 + 0.12 * np.arange(DAYS)) * scarce
    prices = np.hstack([near + size * heavy(rng, (rows, DAYS)), second + 1.1 * size * heavy(rng, (rows, DAYS))])

    forward = first[ahead] + (0.4 + 0.16 * np.arange(DAYS)) * rng.normal(
        size=ahead.shape
    )  # the market's view, every Monday
    said_silo = silo[ahead[:, [0, 3, 6, 9]]] + 0.06 * rng.normal(size=(WEEKS, 4))
    features = {
        "monday": dates[monday],
        "depot": chosen(["Mill", "Quay", "Upstream", "Bridge"], depot),
        "level": level[monday],
        "harbour stocks": with_gaps(rng, harbour[monday], 0.03),
        "harbour in a week": harbour[monday + 7] + 0.05 * rng.normal(size=WEEKS)[week],
        "water": with_gaps(rng, water[monday], 0.05),
        "silo full": silo[monday] > 0.62,
        **{f"silo in {k} days": said_silo[week, i] for i, k in enumerate((0, 3, 6, 9))},
        **{f"forward[{t}]": forward[week, t] for t in range(DAYS)},
    }
    demand = np.round(15 * np.exp(0.25 * rng.normal(size=(rows, DAYS)) + 0.12 * rng.normal(size=(rows, 1))), 1)
    at_hand = np.round(rng.uniform(5, 45, rows), 1)
    instances = {f"demand[{t}]": demand[:, t] - (at_hand if t == 0 else 0) for t in range(DAYS)}
    costs = {f"price[{s},{t}]": prices[:, s * DAYS + t] for s in range(SUPPLIERS) for t in range(DAYS)}
    return Case(program(), features, costs, instances, ordered=True, seed=seed, money="€ a plan")
