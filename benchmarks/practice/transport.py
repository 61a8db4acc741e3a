"""Production and transport: which of three plants serves which of seven regions today, before today's unit costs are known.

    min Σ_ij (make_i + freight_ij) ship_ij + 210 Σ_j bought_j
    s.t. Σ_j ship_ij ≤ capacity_i,   Σ_i ship_ij + bought_j = demand_j of the day,   ship, bought ≥ 0

A plant has one unit cost, and every lane one freight rate: 3 + 21 predicted costs. Demand is known from orders: an
instance. What no plant can serve is bought from a competitor at a known price.

The world: 800 working days. Making costs follow material and power, which are persistent markets: the plants lie in three
countries, each with its own price of power, half of whose movement they share. The first plant has old
furnaces (power counts twice when it is dear), the third pays a fifth of what power costs beyond a ceiling (saturation), the
second pays overtime when orders of the day are many (threshold). Freight is distance times diesel, times what weather and traffic
make of it: snow hurts mountain lanes, rain hardly any, a port strike the lanes of plant 1, and rates rise when a plant's
carriers are busy, steeply above 90 %. Spot rates scatter by 6 %, heavy-tailed, more on busy days. Traffic and diesel have gaps.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import (
    Case,
    Rows,
    autoregressive,
    calendar,
    chosen,
    day_of_year,
    heavy,
    season,
    softplus,
    weekday,
    with_gaps,
)  # fmt: skip
from dflearn.program import Program

PLANTS, REGIONS, DAYS = 3, 7, 800
CAPACITY, ELSEWHERE = (420.0, 360.0, 300.0), 210.0  # tonnes a day; € per tonne
BASE = np.array([62.0, 60.0, 70.0])  # € per tonne at usual prices
DEMAND = np.array([150.0, 120.0, 110.0, 95.0, 130.0, 80.0, 140.0])  # tonnes a day
DISTANCE = np.array(
    [[120, 260, 340, 480, 410, 560, 300], [390, 180, 150, 290, 330, 420, 240], [520, 430, 330, 160, 210, 130, 280]]
)  # km
MOUNTAINS = np.array([[0, 0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 1, 0], [1, 1, 1, 0, 0, 0, 0]])  # lanes across them


def program() -> Program:
    """Variables: ship, plant by plant, then bought."""
    ship = np.arange(PLANTS * REGIONS).reshape(PLANTS, REGIONS)
    bought = PLANTS * REGIONS + np.arange(REGIONS)
    rows = Rows(len(bought) + ship.size)
    for i in range(PLANTS):
        rows.add([(one, 1.0) for one in ship[i]], at_most=CAPACITY[i])
    for j in range(REGIONS):
        rows.add([*((one, 1.0) for one in ship[:, j]), (bought[j], 1.0)], equal=DEMAND[j], name=f"demand[{j}]")
    makes = np.repeat(np.eye(PLANTS), REGIONS, axis=0)
    S = np.hstack([makes, np.eye(ship.size)])
    return Program(
        **rows.parts(),
        S=np.vstack([S, np.zeros((REGIONS, S.shape[1]))]),
        d=np.concatenate([np.zeros(ship.size), np.full(REGIONS, ELSEWHERE)]),
        cost_names=cost_names(),
        name="production and transport",
    )


def cost_names() -> list[str]:
    return [f"make[{i}]" for i in range(PLANTS)] + [f"freight[{i},{j}]" for i in range(PLANTS) for j in range(REGIONS)]


def case(seed: int) -> Case:
    rng = np.random.RandomState([5, seed])
    days = calendar("2022-01-03", 2 * DAYS)
    dates = days[weekday(days) < 5][:DAYS]
    day, friday = day_of_year(dates), weekday(dates) == 4
    market = autoregressive(rng, DAYS, 0.96, 3)
    material, diesel = 1 + 0.12 * market[:, 0], 1.6 + 0.15 * market[:, 2]
    power = np.exp(0.35 * (market[:, 1:2] + autoregressive(rng, DAYS, 0.9, PLANTS)) / np.sqrt(2))
    weather = autoregressive(rng, DAYS, 0.6)[:, 0]
    sky = np.where(weather > 0.9, np.where(season(day, 20) > 0.4, 2, 1), np.where(weather > 0.2, 1, 0))
    strike = np.repeat(rng.uniform(size=DAYS // 8 + 1) < 0.08, 8)[:DAYS]
    orders = np.exp(0.18 * autoregressive(rng, DAYS, 0.5, REGIONS) + 0.1 * season(day, 320)[:, None])
    demand = np.round(DEMAND * orders, 1)
    busy = 0.78 + 0.09 * autoregressive(rng, DAYS, 0.8, PLANTS) + 0.05 * (friday + season(day, 330))[:, None]
    busy = np.clip(busy, 0.4, 1.05)
    traffic = np.exp(0.15 * autoregressive(rng, DAYS, 0.5, REGIONS) + 0.1 * (sky == 2)[:, None])

    load = demand.sum(1) / sum(CAPACITY)
    make = BASE * (0.55 * material[:, None] + 0.2 + 0.25 * power)
    make[:, 0] += 0.25 * BASE[0] * np.maximum(power[:, 0] - 1.3, 0)
    make[:, 1] += 45 * np.maximum(load - 0.72, 0)
    make[:, 2] -= 0.8 * 0.25 * BASE[2] * np.maximum(power[:, 2] - 1.4, 0)
    make *= 1 + 0.025 * heavy(rng, make.shape)
    snow, rain, pressed = (sky == 2)[:, None, None], (sky == 1)[:, None, None], softplus((busy - 0.9) / 0.03) * 0.03
    factor = 1 + 0.3 * snow * MOUNTAINS + 0.03 * rain + 0.25 * strike[:, None, None] * (np.arange(PLANTS) == 0)[:, None]
    rate = DISTANCE * (0.05 + 0.085 * (diesel / 1.6 - 0.4)[:, None, None]) * factor * traffic[:, None, :]
    freight = 6 + rate * (1 + 4 * pressed[:, :, None])
    freight *= 1 + 0.06 * (1 + 1.5 * (busy > 0.9))[:, :, None] * heavy(rng, freight.shape)

    features = {
        "date": dates,
        "weekday": chosen(["Mon", "Tue", "Wed", "Thu", "Fri"], weekday(dates)),
        "sky": chosen(["dry", "rain", "snow"], sky),
        "strike": strike,
        "material": material,
        **{f"power[{i}]": power[:, i] for i in range(PLANTS)},
        "diesel": with_gaps(rng, diesel, 0.04),
        **{f"carriers[{i}]": busy[:, i] + 0.02 * rng.normal(size=DAYS) for i in range(PLANTS)},
        "load": load,
        **{f"traffic[{j}]": with_gaps(rng, traffic[:, j], 0.02) for j in range(REGIONS)},
    }
    costs = dict(zip(cost_names(), np.hstack([make, freight.reshape(DAYS, -1)]).T, strict=True))
    instances = {f"demand[{j}]": demand[:, j] for j in range(REGIONS)}
    return Case(program(), features, costs, instances, ordered=True, seed=seed, money="€ a day")
