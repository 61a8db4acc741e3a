"""Worlds of the practice benchmark about goods and people. A seed is another history of a world."""

import numpy as np

from dflearn.program import Program
from practice_markets import WEEK, Case, bend, gaps, heavy, named, persistent, season, text, weekday


def transport(seed: int) -> Case:
    """Three plants serve five regions, and what they cannot is bought at 210 €/t (known); 500 working days. 18 costs a tonne: of
    each plant, with energy, and of each lane, with diesel, snow in the mountains and carriers that are full."""
    plants, regions, demand = 3, 5, np.array([150.0, 120, 110, 95, 130])
    far = np.array([[120, 260, 340, 480, 410], [390, 180, 150, 290, 330], [520, 430, 330, 160, 210]])
    mountains, lanes = far > 320, plants * regions
    names = [f"make[{i}]" for i in range(plants)] + [f"freight[{i},{j}]" for i in range(plants) for j in range(regions)]
    program = Program(
        A=np.hstack([np.tile(np.eye(regions), plants), np.eye(regions)]), b=demand,
        G=np.hstack([np.kron(np.eye(plants), np.ones(regions)), np.zeros((plants, regions))]), h=[300.0, 260.0, 220.0],
        S=np.eye(lanes + regions, lanes) @ np.hstack([np.repeat(np.eye(plants), regions, 0), np.eye(lanes)]),
        d=np.append(np.zeros(lanes), np.full(regions, 210.0)), cost_names=names,
        constraint_names={f"demand[{j}]": ("b", j) for j in range(regions)}, name="transport",
    )  # fmt: skip
    rng, count = np.random.RandomState([5, seed]), 500
    dates = np.arange("2022-01-03", "2024-12-31", dtype="datetime64[D]")
    dates = dates[weekday(dates) < 5][:count]
    diesel, power = 1.6 + 0.15 * persistent(rng, count, 0.96)[:, 0], np.exp(0.35 * persistent(rng, count, 0.93, plants))
    weather = persistent(rng, count, 0.6)[:, 0]
    sky = np.where(weather > 0.9, np.where(season(dates, 20) > 0.3, 2, 1), (weather > 0.2).astype(int))
    orders = np.round(demand * np.exp(0.2 * persistent(rng, count, 0.5, regions)), 1)
    busy = np.clip(0.78 + 0.09 * persistent(rng, count, 0.8, plants) + 0.05 * (weekday(dates) == 4)[:, None], 0.4, 1.05)
    load = orders.sum(1) / 780
    crowded = 60 * bend((load - 0.75) * 20) / 20
    make = np.array([62.0, 60, 70]) * (0.7 + 0.3 * power) + np.stack([0 * load, crowded, 0 * load], 1)
    make *= 1 + 0.025 * heavy(rng, make.shape)
    factor = 1 + 0.3 * (sky == 2)[:, None, None] * mountains + 4 * bend((busy - 0.9) / 0.03)[:, :, None] * 0.03
    freight = 6 + far * (0.05 + 0.085 * (diesel / 1.6 - 0.4)[:, None, None]) * factor
    freight *= 1 + 0.06 * (1 + 1.5 * (busy > 0.9))[:, :, None] * heavy(rng, freight.shape)
    features = {
        "date": dates, "sky": text(["dry", "rain", "snow"], sky), **named("power[{}]", power),
        "diesel": gaps(rng, diesel, 0.04), **named("carriers[{}]", busy + 0.02 * rng.normal(size=busy.shape)),
        "load": load,
    }  # fmt: skip
    costs = dict(zip(names, np.hstack([make, freight.reshape(count, -1)]).T, strict=True))
    return Case(program, features, costs, named("demand[{}]", orders), True, "€ a day")


def shifts(seed: int) -> Case:
    """How many people of one's own and of an agency work which of six shifts, 600 ward-days of several hospitals, no order. 12
    costs of a person and shift: overtime begins where few of one's own are there, the agency's rate follows flu, notice, school
    holidays and fairs, and is capped. 600 € for two hours that nobody covers (known, lopsided)."""
    spans, periods = ((3, 7), (4, 8), (7, 11), (11, 15), (5, 7), (9, 12)), 12
    cover = np.array([[any(t == s % periods for s in range(*span)) for span in spans] for t in range(periods)], float)
    names = [f"{kind}[{2 * first:02d}-{2 * last % 24:02d}]" for kind in ("own", "agency") for first, last in spans]
    program = Program(
        G=np.vstack([np.hstack([-cover, -cover, -np.eye(periods)]), np.arange(24) < 6]),
        h=np.append(np.full(periods, -4.0), 12.0), upper=np.append(np.full(12, 15.0), np.full(periods, np.inf)),
        S=np.vstack([np.eye(12), np.zeros((periods, 12))]), d=np.append(np.zeros(12), np.full(periods, 600.0)),
        integer=np.arange(24) < 12, cost_names=names,
        constraint_names={**{f"need[{t}]": ("h", t, -1.0) for t in range(periods)}, "present": ("h", periods)},
        name="shifts",
    )  # fmt: skip
    rng, count = np.random.RandomState([6, seed]), 600
    dates = np.datetime64("2022-01-01") + rng.randint(0, 1096, count)
    hospital, ward = rng.choice(6, count, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.1]), rng.randint(0, 3, count)
    school, fair, late = rng.uniform(size=count) < 0.22, rng.uniform(size=count) < 0.08, weekday(dates) >= 5
    flu = np.clip(1.2 * np.exp(0.9 * season(dates, 35) + 0.5 * rng.normal(size=count)), 0, 9)
    notice = np.ceil(rng.gamma(1.5, 3, count))
    shape = np.array([2, 2, 3, 5, 6, 6, 5, 5, 5, 4, 3, 2]) + (ward == 2)[:, None]
    need = np.round(shape * (1 + 0.03 * flu + 0.05 * rng.normal(size=count))[:, None]).clip(1)
    present = np.round(np.array([9, 10, 11])[ward] * (1 - 0.02 * flu) + 1.2 * rng.normal(size=count)).clip(3)
    hours, evening, morning = 2 * cover.sum(0), cover[[9, 10, 11, 0]].sum(0) > 0, cover[3:7].sum(0) > 0
    agreement = np.array([1.0, 1.06, 0.95, 1.1, 1.0, 1.15])[hospital][:, None]
    own = agreement * (11 * hours + (5.5 + 2.5 * late)[:, None] * 2 * cover[[11, 0, 1, 2]].sum(0))
    own = own + 2.5 * bend((need.sum(1) / 5.5 - present) / 1.2)[:, None] * hours
    scarce = (1 + 0.16 * np.maximum(flu - 1.5, 0))[:, None] * (1 + 0.5 * np.exp(-notice / 2))[:, None]
    scarce = scarce * (1 + 0.35 * school[:, None] * morning) * (1 + (0.25 * late + 0.5 * fair)[:, None] * evening)
    agency = 21 * (1 + 1.1 * np.tanh((scarce - 1) / 1.1)) * hours
    noise = np.repeat(heavy(rng, (count, 2)), 6, axis=1) + heavy(rng, (count, 12))
    costs = np.hstack([own, agency]) * (1 + (0.04 + 0.03 * np.minimum(scarce.mean(1) - 1, 1.5))[:, None] * noise)
    features = {
        "date": dates, "weekday": text(WEEK, weekday(dates)),
        "hospital": text(["North", "Harbour", "Hill", "Central", "Park", "South"], hospital),
        "ward": text(["surgery", "medicine", "intensive care"], ward), "school holidays": school, "fair": fair,
        "flu": gaps(rng, flu, 0.05), "notice": gaps(rng, notice), "present": present, "needed": need.sum(1),
    }  # fmt: skip
    instances = {**named("need[{}]", need), "present": present}
    return Case(program, features, dict(zip(names, costs.T, strict=True)), instances, False, "€ a day")


def selection(seed: int) -> Case:
    """Which of 21 promotions a store runs next week within a budget, at most 3 of each of 7 categories; 700 store-weeks, no
    order. What a promotion earns follows temperature, pay day, holidays, the store's format and a rival, and scatters by 25 %."""
    fixed, items = np.random.RandomState(28), 21
    kinds = ("fresh", "drinks", "soups", "sweets", "household", "beauty", "ice")
    kind, price = np.arange(items) % 7, np.round(fixed.uniform(1.5, 6.5, items), 1)
    size, taste = price * fixed.uniform(1.2, 2.4, items), np.exp(0.25 * fixed.normal(size=(3, items)))
    program = Program(
        G=np.vstack([price, np.ones(items), -(kind == 0.0).astype(float), fixed.choice([1.0, 1.5, 2.0], items)]),
        h=[26.0, 9.0, -1.0, 11.0], upper=1, S=-np.eye(items), integer=True, sense="maximize",
        cost_names=[f"margin[{k}]" for k in range(items)], constraint_names={"budget": ("h", 0)}, name="selection",
    )  # fmt: skip
    rng, count = np.random.RandomState([7, seed]), 700
    dates = np.datetime64("2022-01-03") + 7 * rng.randint(0, 156, count)
    store, region = rng.choice(3, count, p=[0.45, 0.35, 0.2]), rng.randint(0, 4, count)
    warm = 10.5 + 8.5 * season(dates, 200) + 3.5 * rng.normal(size=count) + np.array([-1.5, 0, 0, 1.5])[region]
    payday, school = rng.uniform(size=count) < 0.25, rng.uniform(size=count) < 0.22
    visitors = np.exp(0.3 * rng.normal(size=count)) * np.array([0.8, 1.0, 1.7])[store]
    rival, income = rng.choice(8, count, p=[0.09] * 7 + [0.37]), np.round(100 + 6 * rng.normal(size=count), 1)
    hot, cold = bend((warm - 18) / 3), np.minimum(bend((8 - warm) / 3), 2.5)
    answer = 1 + np.stack([
        0.1 * hot + 0.15 * (store == 0), 0.35 * hot + 0.2 * payday - 0.15 * cold, 0.4 * cold - 0.2 * np.minimum(hot, 2),
        0.35 * school + 0.15 * payday, 0.45 * payday * (store == 2), 0.03 * np.maximum(income - 100, 0) + 0.25 * payday,
        0.6 * np.minimum(hot, 3) * (1 + 0.3 * school) - 0.35,
    ], 1)  # fmt: skip
    answer *= np.where(np.arange(7) == rival[:, None], 0.5, 1.0)
    uplift = size * taste[store] * answer[:, kind] * (1.25 * visitors / (1 + 0.25 * visitors))[:, None]
    margin = uplift * (1 + 0.14 * heavy(rng, (count, 1)) + 0.2 * heavy(rng, (count, items))) - 0.55 * price
    features = {
        "week of": dates, "format": text(["city", "suburb", "hypermarket"], store),
        "region": text(["north", "east", "west", "south"], region),
        "temperature": gaps(rng, warm + rng.normal(size=count)), "pay day": payday, "school holidays": school,
        "footfall": gaps(rng, visitors, 0.04), "income": income, "rival promotes": text([*kinds, "nothing"], rival),
    }  # fmt: skip
    instances = {"budget": np.round(26 * np.exp(0.2 * rng.normal(size=count)), 1)}
    return Case(program, features, named("margin[{}]", margin), instances, False, "thousand € a week")


def purchasing(seed: int) -> Case:
    """What to buy from two suppliers on each of ten days, with a store; 240 plans of two depots (few rows). Prices of the first
    are a commodity with a premium where its harbour is empty; the second sells what is left. 0.35 € a day for a tonne in store
    and 60 € for one that is fetched are known (lopsided); demand and what is at hand are instances."""
    n, one, before = 10, np.eye(10), np.eye(10, k=-1)
    lower = np.zeros(4 * n)
    lower[3 * n - 1] = 20
    program = Program(
        A=np.hstack([one, one, before - one, one]), b=np.full(n, 15.0), lower=lower,
        upper=np.repeat([25.0, 18.0, 90.0, np.inf], n), S=np.vstack([np.eye(2 * n), np.zeros((2 * n, 2 * n))]),
        d=np.repeat([0.0, 0.0, 0.35, 60.0], n), cost_names=[f"price[{k}]" for k in range(2 * n)],
        constraint_names={f"demand[{t}]": ("b", t) for t in range(n)}, name="purchasing",
    )  # fmt: skip
    rng, weeks = np.random.RandomState([8, seed]), 120
    total, week, depot = 7 * weeks + n, np.repeat(np.arange(weeks), 2), np.tile([0, 1], weeks)
    dates, count = np.datetime64("2021-01-04") + np.arange(total), 2 * weeks
    level = 34 * np.exp(0.16 * persistent(rng, total, 0.97)[:, 0])
    harbour = np.clip(0.55 + 0.18 * persistent(rng, total, 0.95)[:, 0] + 0.1 * season(dates, 260), 0.03, 1)
    silo = np.clip(0.5 + 0.22 * persistent(rng, total, 0.9)[:, 0], 0, 1)
    rhythm = np.array([1.5, 0.6, 0, -0.6, -1.2, 0.4, 1.0])[np.arange(total) % 7]
    first = level + rhythm + 2.2 * bend((0.3 - harbour) / 0.08)
    when = 7 * week[:, None] + np.arange(n)
    second = 0.97 * first[when] + 3.7 - 5 * (silo[when] > 0.62) + depot[:, None]
    size = (0.5 + 0.12 * np.arange(n)) * (1 + 1.5 * (harbour[when] < 0.3))
    prices = np.hstack([first[when], second]) + np.hstack([size, 1.1 * size]) * heavy(rng, (count, 2 * n))
    forward = first[when] + (0.4 + 0.16 * np.arange(n)) * np.repeat(rng.normal(size=(weeks, n)), 2, axis=0)
    features = {
        "monday": dates[7 * week], "depot": text(["Mill", "Upstream"], depot), "level": level[7 * week],
        "harbour stocks": gaps(rng, harbour[7 * week]), "silo full": silo[7 * week] > 0.62,
        "silo in 5 days": silo[7 * week + 5] + 0.06 * rng.normal(size=count), **named("forward[{}]", forward[:, ::3]),
    }  # fmt: skip
    demand = np.round(15 * np.exp(0.25 * rng.normal(size=(count, n))), 1)
    demand[:, 0] -= np.round(rng.uniform(5, 45, count), 1)
    return Case(program, features, named("price[{}]", prices), named("demand[{}]", demand), True, "€ a plan")


def couriers(seed: int) -> Case:
    """Seven couriers take seven parcels, one each, 320 rounds in no order (few rows); 49 costs of minutes and fines, heavy tails.
    A ride takes its way times the traffic of two districts; one in thirty meets a jam of Pareto length, more often in rain."""
    size, one = 7, np.eye(7)
    names = [f"ride[{i},{j}]" for i in range(size) for j in range(size)]
    program = Program(
        A=np.vstack([np.kron(one, np.ones(size)), np.kron(np.ones(size), one)]), b=np.ones(14), upper=1, cost_names=names,
        name="couriers",
    )  # fmt: skip
    fixed, rng, count = np.random.RandomState(41), np.random.RandomState([10, seed]), 320
    places, district = fixed.uniform(0, 6, (2, size, 2)), fixed.randint(0, 3, (2, size))
    way = 4 + 5 * np.linalg.norm(places[0][:, None] - places[1], axis=-1)
    hour, rain, match = rng.randint(7, 20, count), rng.gamma(0.5, 4, count), rng.uniform(size=count) < 0.15
    traffic = np.exp(0.5 * rng.normal(size=(count, 3)) + 0.4 * np.isin(hour, [8, 17, 18])[:, None] * [1.0, 0.3, 0.6])
    traffic[:, 2] *= 1 + match
    pace = (traffic[:, district[0]][:, :, None] + traffic[:, district[1]][:, None]) / 2
    jam = rng.uniform(size=(count, size, size)) < 0.02 + 0.005 * np.minimum(rain, 10)[:, None, None]
    minutes = way * pace * rng.lognormal(0, 0.15, jam.shape)
    minutes = minutes * np.where(jam, 1 + np.minimum(rng.pareto(1.6, jam.shape), 20), 1)
    features = {
        "hour": hour, "weekday": text(WEEK, rng.randint(0, 7, count)), "rain": gaps(rng, rain), "match": match,
        **named("traffic[{}]", traffic * np.exp(0.1 * rng.normal(size=traffic.shape))),
    }  # fmt: skip
    costs = 0.5 * minutes + 0.8 * np.maximum(minutes - 40, 0)  # a fine after forty minutes
    return Case(program, features, dict(zip(names, costs.reshape(count, -1).T, strict=True)), None, False, "€ a round")


def bakery(seed: int) -> Case:
    """What two shops bake of four goods before demand is known (predicted right-hand sides), within an oven; 420 days. What is
    left loses its cost but for a little, what is missing loses its margin and a customer (lopsided). Counts, Gamma and Poisson,
    of which the spread grows on holidays."""
    goods, cost = 8, np.tile([0.6, 0.4, 1.1, 1.6], 2)
    missed, left = np.tile([2.2, 1.8, 3.5, 7.0], 2), np.tile([0.05, 0.02, 0.2, 0.5], 2)
    program = Program(
        A=np.eye(goods), b=np.zeros(goods), B=np.eye(goods), S=np.zeros((goods, goods)), d=cost,
        G=np.tile([1.0, 0.5, 2.0, 3.0], 2)[None], h=[900.0], cost_names=[f"demand[{j}]" for j in range(goods)],
        constraint_names={"oven": ("h", 0)}, name="bakery",
    ).elastic("predicted", list(zip(left, missed, strict=True)))  # fmt: skip
    rng, count = np.random.RandomState([11, seed]), 420
    dates = np.datetime64("2022-06-01") + np.arange(count)
    warm = 11 + 9 * season(dates, 200) + 4 * persistent(rng, count, 0.7)[:, 0]
    rain, holiday = rng.gamma(0.6, 4, count), rng.uniform(size=count) < 0.05
    offer = rng.randint(0, 5, count)  # the last: none
    day = np.array([0.9, 0.85, 0.9, 1.0, 1.15, 1.5, 0.7])[weekday(dates)]
    base = np.array([120.0, 180, 45, 18, 90, 140, 60, 12])
    slope = np.tile([0.0, 0.01, -0.02, -0.015], 2)
    weather = slope * (warm[:, None] - 11) - 0.02 * np.minimum(rain, 12)[:, None]
    mean = base * day[:, None] * np.exp(weather + 0.4 * holiday[:, None])
    mean = mean * np.where(np.tile(np.arange(4), 2) == offer[:, None], 1.5, 1.0)
    together = rng.gamma(np.where(holiday, 8, 40), np.where(holiday, 1 / 8, 1 / 40))[:, None]
    demand = rng.poisson(mean * together * rng.gamma(25, 1 / 25, mean.shape)).astype(float)
    features = {
        "date": dates,
        "weekday": text(WEEK, weekday(dates)),
        "holiday": holiday,
        "offer": text(["bread", "rolls", "cake", "tart", "none"], offer),
        "temperature": gaps(rng, warm + rng.normal(size=count)),
        "rain": gaps(rng, rain * np.exp(0.4 * rng.normal(size=count)), 0.05),
        "sold a week ago": np.append(np.full(7, np.nan), demand[:-7].sum(1)),
    }
    instances = {"oven": np.where(rng.uniform(size=count) < 0.1, 450.0, 900.0)}
    levels = (missed - cost) / (missed + left)
    return Case(program, features, named("demand[{}]", demand), instances, True, "€ a day", quantiles=levels)


def feed(seed: int) -> Case:
    """A mill blends feed of eight ingredients for three weeks, with stocks; 220 plans in order of time (few rows). 24 prices are
    predicted. Known: 4 € a tonne and week in store, 9 € for handling, 950 € for a tonne of nutrients bought ready, at any time.
    Ingredients follow four markets; a harvest's failure multiplies a market beyond a threshold."""
    kinds, weeks, n = 8, 3, 24
    fixed, one, none = np.random.RandomState(12), np.eye(24), np.zeros((24, 24))
    holds = fixed.uniform(0.05, 0.5, (3, kinds))  # energy, protein, fibre
    later = np.kron(np.eye(weeks, k=-1), np.eye(kinds))
    by_week, rows = np.kron(np.eye(weeks), np.ones(kinds)), np.kron(np.eye(weeks), holds)
    program = Program(  # bought, in store at the end of a week, used, nutrients bought ready
        A=np.vstack([
            np.hstack([one, later - one, -one, np.zeros((n, 9))]), np.hstack([np.zeros((3, 48)), by_week, np.zeros((3, 9))]),
        ]),
        b=np.append(np.zeros(n), np.full(weeks, 100.0)), G=np.hstack([none[:9], none[:9], -rows, -np.eye(9)]),
        h=-np.tile(100 * np.quantile(holds, 0.6, axis=1), weeks),
        upper=np.concatenate([np.full(n, 60.0), np.full(n, 80.0), np.full(n, 45.0), np.full(9, np.inf)]),
        S=np.vstack([one, none, none, np.zeros((9, n))]),
        d=np.concatenate([np.full(n, 9.0), np.full(n, 4.0), np.zeros(n), np.full(9, 950.0)]),
        cost_names=[f"price[{k}]" for k in range(n)],
        constraint_names={f"tonnes[{t}]": ("b", n + t) for t in range(weeks)}, name="feed",
    )  # fmt: skip
    rng, count = np.random.RandomState([12, seed]), 220
    dates, total = np.datetime64("2020-01-06") + 7 * np.arange(count), count + weeks
    market, dollar = persistent(rng, total, 0.95, 4), 1.1 + 0.06 * persistent(rng, total, 0.98)[:, 0]
    dry = persistent(rng, total, 0.85, 4)
    dear = np.exp(0.15 * market + 0.2 * bend((dry - 0.8) / 0.2) * 0.2)
    level = np.array([210.0, 380, 170, 260]) * dear / dollar[:, None]
    share = fixed.uniform(0.75, 1.2, kinds)
    ahead = np.stack([level[t : count + t][:, np.arange(kinds) % 4] * share for t in range(weeks)], 1)
    prices = ahead * (1 + np.array([0.02, 0.04, 0.06])[:, None] * heavy(rng, ahead.shape))
    month = dates.astype("datetime64[M]").astype(int) % 12
    features = {
        "monday": dates,
        "dollar": dollar[:count],
        **named("market[{}]", level[:count] * (1 + 0.01 * rng.normal(size=(count, 4)))),
        **named("future[{}]", level[2 : count + 2] * (1 + 0.04 * rng.normal(size=(count, 4)))),
        **named("drought[{}]", np.column_stack([gaps(rng, column) for column in dry[:count].T])),
        "quarter": text(["spring", "summer", "autumn", "winter"], (month // 3 + 3) % 4),
    }
    tonnes = np.round(100 * np.exp(0.15 * rng.normal(size=(count, weeks))), 1)
    costs = named("price[{}]", prices.reshape(count, n))
    return Case(program, features, costs, named("tonnes[{}]", tonnes), True, "€ a plan")
