"""Unit commitment of a price taker: which of three gas units run in which hour, before the hourly prices are known.

    max  Σ_t Σ_u (price_t − fuel_u) output_ut − idle_u on_ut − start_u begin_ut
    s.t. least_u on_ut ≤ output_ut ≤ most_u on_ut,   Σ_u output_ut ≤ the connection on that day,
         output_ut ≤ output_u,t−1 + ramp_u + least_u begin_ut,   output_u,t−1 ≤ output_ut + ramp_u + least_u (1 − on_ut),
         on_ut ≤ on_u,t−1 + begin_ut,   Σ_{s = t − 2 … t} begin_us ≤ on_ut (three hours at least),   on, begin ∈ {0, 1}

All units are off before midnight. The connection is an instance: on some days a line is under repair.

The world: two years of days. Load follows the temperature (heating below 15 °C, cooling above 22), the weekday and the hour;
wind is persistent weather, skewed, the sun a bell over noon that follows season and clouds. What is left of the load climbs
the merit order: cheap plants first, then gas, which costs fuel and carbon, and beyond the fleet's capacity scarcity pays
steeply; with little left, prices fall below fuel. Forecasts of weather and load are known the day before with their usual
errors; a large plant's outage is announced. Residuals belong to the day and to the hour, are heavy-tailed and grow with
scarcity, as those of day-ahead prices do. Two columns have gaps, as feeds have.
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
    named,
    season,
    softplus,
    weekday,
    with_gaps,
)  # fmt: skip
from dflearn.program import Program

HOURS, DAYS = 24, 730
LEAST, MOST, RAMP = (60.0, 40.0, 20.0), (200.0, 120.0, 80.0), (90.0, 80.0, 80.0)  # MW
FUEL, IDLE, START = (62.0, 70.0, 82.0), (700.0, 350.0, 120.0), (9000.0, 3500.0, 900.0)  # € per MWh, per hour, per start
UNITS, CONNECTION, REPAIR = len(LEAST), 340.0, 230.0


def program() -> Program:
    """Variables: output, on, begin, each unit by unit and hour by hour."""
    output, on, begin = np.arange(3 * UNITS * HOURS).reshape(3, UNITS, HOURS)
    rows = Rows(3 * UNITS * HOURS)
    for u in range(UNITS):
        for t in range(HOURS):
            now, past = output[u, t], output[u, t - 1]
            rows.add([(now, 1), (on[u, t], -LEAST[u])], at_least=0)
            rows.add([(now, 1), (on[u, t], -MOST[u])], at_most=0)
            rows.add([(begin[u, s], 1.0) for s in range(max(0, t - 2), t + 1)] + [(on[u, t], -1)], at_most=0)
            if t:
                rows.add([(now, 1), (past, -1), (begin[u, t], -LEAST[u])], at_most=RAMP[u])
                rows.add([(past, 1), (now, -1), (on[u, t], LEAST[u])], at_most=RAMP[u] + LEAST[u])
                rows.add([(on[u, t], 1), (on[u, t - 1], -1), (begin[u, t], -1)], at_most=0)
            else:
                rows.add([(now, 1), (begin[u, t], -LEAST[u])], at_most=RAMP[u])
                rows.add([(on[u, t], 1), (begin[u, t], -1)], at_most=0)
    for t in range(HOURS):
        rows.add([(output[u, t], 1) for u in range(UNITS)], at_most=CONNECTION, name=f"connection[{t}]")
    S = np.zeros((3, UNITS, HOURS, HOURS))
    S[0, :, np.arange(HOURS), np.arange(HOURS)] = -1
    return Program(
        **rows.parts(),
        upper=np.repeat([*MOST, *[1.0] * 2 * UNITS], HOURS),
        S=S.reshape(-1, HOURS),
        d=np.repeat([*FUEL, *IDLE, *START], HOURS),
        integer=np.arange(UNITS * HOURS, 3 * UNITS * HOURS),
        sense="maximize",
        cost_names=[f"price[{t}]" for t in range(HOURS)],
        name="unit commitment",
    )


def case(seed: int) -> Case:
    rng = np.random.RandomState([1, seed])
    dates, hour = calendar("2023-01-01", DAYS), np.arange(HOURS)
    day, weekend, holiday = day_of_year(dates), weekday(dates) >= 5, rng.uniform(size=DAYS) < 0.03
    weather = autoregressive(rng, DAYS, 0.75, 3)
    temperature = 11 + 9 * season(day, 200) + 3.5 * weather[:, 0]
    wind = 9 * np.exp(0.55 * weather[:, 1] + 0.15 * season(day, 15) - 0.15)  # GW
    clear = 1 / (1 + np.exp(-0.8 - weather[:, 2]))
    sun = (14 + 8 * season(day, 172)) * clear  # GW at noon
    gas, carbon = (
        32 * np.exp(0.2 * autoregressive(rng, DAYS, 0.985)[:, 0]),
        75 + 8 * autoregressive(rng, DAYS, 0.98)[:, 0],
    )
    outage = np.repeat(rng.choice(3, DAYS // 5 + 1, p=[0.7, 0.2, 0.1]), 5)[:DAYS]

    rhythm = (
        7 * np.exp(-(((hour - 19) / 2.8) ** 2))
        + 5.5 * np.exp(-(((hour - 9.5) / 3.5) ** 2))
        - 4 * np.exp(-(((hour - 3) / 3.5) ** 2))
    )
    heat = 0.55 * softplus(15 - temperature) + 0.5 * softplus(temperature - 22)
    load = 44 + heat[:, None] + rhythm * np.where(weekend, 0.75, 1)[:, None] - 5.0 * (weekend | holiday)[:, None]
    gust = wind[:, None] * np.exp(
        0.12 * rng.normal(size=(DAYS, 1)) + 0.1 * np.cumsum(rng.normal(size=(DAYS, HOURS)), 1) / 3
    )
    shine = sun[:, None] * np.exp(-(((hour - 12.5) / 3) ** 2)) * np.exp(0.08 * rng.normal(size=(DAYS, 1)))
    left = load + 0.8 * rng.normal(size=(DAYS, HOURS)) - gust - shine
    capacity = 52 - np.array([0.0, 2.5, 5.0])[outage][:, None]
    marginal = (gas / 0.52 + 0.37 * carbon)[:, None] * (0.35 + 0.65 / (1 + np.exp(-(left - 30) / 5)))
    scarcity = softplus((left - capacity) / 1.5)
    spread = (3 + 6 * np.minimum(scarcity, 3)) * heavy(rng, (DAYS, HOURS)) + 5 * autoregressive(rng, DAYS, 0.5)
    price = marginal - 9 * softplus((14 - left) / 3) + 22 * scarcity**1.5 + spread

    said = load + 0.9 * autoregressive(rng, DAYS, 0.4)
    features = {
        "date": dates,
        "weekday": chosen(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], weekday(dates)),
        "holiday": holiday,
        "outage": chosen(["none", "coal block", "nuclear block"], outage),
        "temperature": with_gaps(rng, temperature + 0.8 * rng.normal(size=DAYS), 0.03),
        "wind": wind,
        "sun at noon": with_gaps(rng, sun, 0.02),
        "gas": gas,
        "carbon": carbon,
        "price yesterday": np.concatenate([[price[0].mean()], price[:-1].mean(1)]),
        **{f"load {t} h": said[:, t] for t in (3, 7, 9, 12, 16, 19, 22)},
    }
    line = np.where(rng.uniform(size=DAYS) < 0.08, REPAIR, CONNECTION)
    instances = {f"connection[{t}]": line for t in range(HOURS)}
    return Case(program(), features, named("price[{}]", price), instances, ordered=True, seed=seed, money="€ a day")
