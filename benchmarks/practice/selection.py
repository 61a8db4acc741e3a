"""Selection under a budget: which of 28 promotions a store runs next week, before it is known what they will earn.

    max Σ_k margin_k chosen_k
    s.t. Σ_k price_k chosen_k ≤ the store's budget,   at most 3 of each category,   at most 10 in all,
         at least 2 of fresh food,   Σ_k space_k chosen_k ≤ 14,   chosen ∈ {0, 1}

A portfolio in all but name: assets (promotions) with known prices, sectors (categories), an uncertain gain each. The budget
differs from store to store and week to week: an instance.

The world: 1000 weeks of stores, each its own row. A promotion's uplift is its size times what the store's customers and the
week make of it: categories respond to temperature (drinks and ice above 18 °C, soups below 8), to pay day, to school
holidays, to the store's format, to a competitor's action in the same category (which halves it), and saturate when the
category was promoted last week. Margins are uplift minus what is given away, so some promotions lose money. Sales scatter
by 25 %, heavy-tailed, proportionally: those of a week and store share a third of it. Temperature and footfall have gaps.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import Case, Rows, chosen, heavy, season, softplus, with_gaps
from dflearn.program import Program

ROWS, ITEMS, BUDGET = 1000, 28, 30.0
CATEGORIES = ("fresh", "drinks", "soups", "sweets", "household", "beauty", "ice")
FORMATS = ("city", "suburb", "hypermarket")
_fixed = np.random.RandomState(28)  # the catalogue: the same for every seed
CATEGORY = np.arange(ITEMS) % len(CATEGORIES)
PRICE = np.round(_fixed.uniform(1.5, 6.5, ITEMS), 1)  # thousand €
SPACE = _fixed.choice([1.0, 1.5, 2.0], ITEMS)
SIZE = PRICE * _fixed.uniform(1.2, 2.4, ITEMS)  # what it earns in a usual week
TASTE = np.exp(0.25 * _fixed.normal(size=(len(FORMATS), ITEMS)))


def program() -> Program:
    rows = Rows(ITEMS)
    rows.add(list(enumerate(PRICE)), at_most=BUDGET, name="budget")
    rows.add(list(enumerate(SPACE)), at_most=14.0)
    rows.add([(k, 1.0) for k in range(ITEMS)], at_most=10.0)
    for number in range(len(CATEGORIES)):
        rows.add([(k, 1.0) for k in np.flatnonzero(number == CATEGORY)], at_most=3.0)
    rows.add([(k, 1.0) for k in np.flatnonzero(CATEGORY == 0)], at_least=2.0)
    names = [f"margin[{k}]" for k in range(ITEMS)]
    return Program(
        **rows.parts(), upper=1, S=-np.eye(ITEMS), integer=True, sense="maximize", cost_names=names, name="selection"
    )


def case(seed: int) -> Case:
    rng = np.random.RandomState([7, seed])
    week = rng.randint(0, 156, ROWS)
    store = rng.choice(3, ROWS, p=[0.45, 0.35, 0.2])
    region = rng.randint(0, 4, ROWS)
    temperature = 10.5 + 8.5 * season(7 * week, 200) + 3.5 * rng.normal(size=ROWS) + np.array([-1.5, 0, 0, 1.5])[region]
    payday = week % 4 == 3
    school = rng.uniform(size=ROWS) < 0.22
    footfall = np.exp(0.3 * rng.normal(size=ROWS)) * np.array([0.8, 1.0, 1.7])[store]
    rival = rng.choice(len(CATEGORIES) + 1, ROWS, p=[0.09] * 7 + [0.37])  # the last: none
    last_week = rng.uniform(size=(ROWS, len(CATEGORIES))) < 0.3
    income = np.round(100 + np.array([12, -4, -10, 6])[region] + 6 * rng.normal(size=ROWS), 1)

    warm, cold = softplus((temperature - 18) / 3), softplus((8 - temperature) / 3)
    response = np.ones((ROWS, len(CATEGORIES)))
    response[:, 0] += 0.1 * warm + 0.15 * (store == 0)
    response[:, 1] += 0.35 * warm + 0.2 * payday - 0.15 * np.minimum(cold, 2)
    response[:, 2] += 0.4 * np.minimum(cold, 2.5) - 0.2 * np.minimum(warm, 2)
    response[:, 3] += 0.35 * school + 0.15 * payday
    response[:, 4] += 0.45 * payday * (store == 2)
    response[:, 5] += 0.03 * np.maximum(income - 100, 0) + 0.25 * payday
    response[:, 6] += 0.6 * np.minimum(warm, 3) * (1 + 0.3 * school) - 0.35
    response *= np.where(np.arange(len(CATEGORIES)) == rival[:, None], 0.5, 1.0) * np.where(last_week, 0.65, 1.0)
    visitors = (footfall / (1 + 0.25 * footfall) * 1.25)[:, None]  # queues: more visitors buy less each
    uplift = SIZE * TASTE[store] * response[:, CATEGORY] * visitors
    scatter = 0.25 * (np.sqrt(1 / 3) * heavy(rng, (ROWS, 1)) + np.sqrt(2 / 3) * heavy(rng, (ROWS, ITEMS)))
    margin = uplift * (1 + scatter) - 0.55 * PRICE

    features = {
        "week of": np.datetime64("2022-01-03") + 7 * week,
        "format": chosen(list(FORMATS), store),
        "region": chosen(["north", "east", "west", "south"], region),
        "temperature": with_gaps(rng, temperature + rng.normal(size=ROWS), 0.03),
        "pay day": payday,
        "school holidays": school,
        "footfall": with_gaps(rng, footfall, 0.04),
        "income": income,
        "rival promotes": chosen([*CATEGORIES, "nothing"], rival),
        **{f"{name} last week": last_week[:, k] for k, name in enumerate(CATEGORIES)},
    }
    instances = {"budget": np.round(BUDGET * np.exp(0.2 * rng.normal(size=ROWS)), 1)}
    costs = {f"margin[{k}]": margin[:, k] for k in range(ITEMS)}
    return Case(program(), features, costs, instances, ordered=False, seed=seed, money="thousand € a week")
