"""Shift planning: how many people work which shift in a ward, before it is known what shifts will cost.

    min Σ_s cost_s staff_s + 600 Σ_t missing_t
    s.t. Σ_{s covers t} staff_s + missing_t ≥ need_t of the day for each two hours t,
         Σ_{own s} staff_s ≤ own staff present,   staff ∈ {0 … 15},   missing ≥ 0

Eight shifts of four to ten hours by own staff, who are on the payroll and cost allowances and overtime, and the same eight by
an agency, which bids a rate for the day: sixteen predicted costs. What is needed, and who is present, is known: instances.

The world: 900 days of wards at six hospitals, each its own row (no order of time). Allowances depend on night hours, Sundays
and the hospital's agreement; overtime begins when few of the own staff are present for what is needed (threshold), and grows
with it, first in the hours in which most is needed. The agency's rate follows scarcity in its market, hour by hour: flu and short notice make all hours scarce, school holidays
the mornings, weekends and fairs the evenings and nights; they multiply each other, and rates are capped by law (saturation). Bids scatter by 8 %, heavy-tailed, more where scarce; a part of
the scatter is common to all shifts of a day. Flu and notice have gaps.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import Case, Rows, chosen, heavy, season, softplus, with_gaps
from dflearn.program import Program

ROWS, PERIODS, MOST, MISSING = (
    900,
    12,
    15.0,
    600.0,
)  # periods of two hours; people in a shift; € for two hours uncovered
SPANS = (
    (3, 7),
    (4, 8),
    (7, 11),
    (8, 11),
    (11, 15),
    (0, 4),
    (5, 7),
    (9, 12),
)  # begin and end, in periods; 15 is 6 in the morning
COVER = np.array([[any(t == s % PERIODS for s in range(*span)) for t in range(PERIODS)] for span in SPANS], float)
KINDS = ("own", "agency")


def program() -> Program:
    """Variables: own staff by shift, agency staff by shift, missing by period."""
    count = len(SPANS)
    rows = Rows(2 * count + PERIODS)
    for t in range(PERIODS):
        covering = [(k * count + s, 1.0) for k in range(2) for s in range(count) if COVER[s, t]]
        rows.add([*covering, (2 * count + t, 1.0)], at_least=4.0, name=f"need[{t}]")
    rows.add([(s, 1.0) for s in range(count)], at_most=12.0, name="present")
    return Program(
        **rows.parts(),
        upper=np.concatenate([np.full(2 * count, MOST), np.full(PERIODS, np.inf)]),
        S=np.vstack([np.eye(2 * count), np.zeros((PERIODS, 2 * count))]),
        d=np.concatenate([np.zeros(2 * count), np.full(PERIODS, MISSING)]),
        integer=np.arange(2 * count),
        cost_names=cost_names(),
        name="shifts",
    )


def cost_names() -> list[str]:
    return [f"{kind}[{2 * first:02d}-{2 * last % 24:02d}]" for kind in KINDS for first, last in SPANS]


def case(seed: int) -> Case:
    rng = np.random.RandomState([6, seed])
    day, weekday = rng.randint(0, 1096, ROWS), rng.randint(0, 7, ROWS)
    hospital = rng.choice(6, ROWS, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.1])
    ward = rng.randint(0, 3, ROWS)  # surgery, medicine, intensive care
    school = rng.uniform(size=ROWS) < 0.22
    fair = rng.uniform(size=ROWS) < 0.08
    flu = np.clip(1.2 * np.exp(0.9 * season(day, 35) + 0.5 * rng.normal(size=ROWS)), 0, 9)
    notice = np.ceil(rng.gamma(1.5, 3, ROWS))  # days before
    beds = np.clip(0.78 + 0.03 * flu + 0.07 * rng.normal(size=ROWS), 0.4, 1.1)
    shape = np.array([2, 2, 3, 5, 6, 6, 5, 5, 5, 4, 3, 2]) + np.array([0, 0, 1])[ward][:, None]
    need = np.round(shape * (0.55 + 0.6 * beds)[:, None] + 0.35 * rng.normal(size=(ROWS, PERIODS))).clip(1)
    present = np.round(np.array([9, 10, 11])[ward] * (1 - 0.02 * flu) + 1.2 * rng.normal(size=ROWS)).clip(3)

    hours = 2 * COVER.sum(1)
    night = 2 * COVER[:, [11, 0, 1, 2]].sum(1)
    agreement = np.array([1.0, 1.06, 0.95, 1.1, 1.0, 1.15])[hospital]
    overtime = softplus((need.sum(1) / 5.5 - present) / 1.2) * 1.2
    peak = need / need.mean(1, keepdims=True)
    own = agreement[:, None] * (
        11 * hours + (5.5 + 2.5 * (weekday >= 5))[:, None] * night + 6 * (weekday == 6)[:, None] * hours
    )
    own = own + 2.2 * overtime[:, None] * (peak**2 @ (2 * COVER.T)) + 4 * (ward == 2)[:, None] * hours
    morning, evening = np.zeros(PERIODS), np.zeros(PERIODS)
    morning[3:7], evening[[9, 10, 11, 0, 1, 2]] = 1, 1
    scarce = ((1 + 0.16 * np.maximum(flu - 1.5, 0)) * (1 + 0.5 * np.exp(-notice / 2)))[:, None]
    scarce = scarce * (1 + 0.35 * school[:, None] * morning) * (1 + 0.25 * (weekday >= 5)[:, None] * evening)
    scarce = scarce * (1 + 0.5 * (fair & np.isin(hospital, [0, 1, 4]))[:, None] * evening)
    rate = 21 * np.array([1.0, 1.0, 1.2])[ward][:, None] * (1 + 1.1 * np.tanh((scarce - 1) / 1.1))  # (rows, periods)
    agency = (rate @ (2 * COVER.T) + 6 * night) * np.where(hours < 6, 1.15, 1.0)
    common, single = heavy(rng, (ROWS, 2)), heavy(rng, (ROWS, 2 * len(SPANS)))
    size = 0.04 + 0.03 * np.minimum(scarce.mean(1) - 1, 1.5)
    costs = np.hstack([own, agency]) * (1 + size[:, None] * (np.repeat(common, len(SPANS), axis=1) + single))

    features = {
        "date": np.datetime64("2022-01-01") + day,
        "weekday": chosen(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], weekday),
        "hospital": chosen(["North", "Harbour", "Hill", "Central", "Park", "South"], hospital),
        "ward": chosen(["surgery", "medicine", "intensive care"], ward),
        "school holidays": school,
        "fair": fair,
        "flu": with_gaps(rng, np.round(flu, 2), 0.05),
        "notice": with_gaps(rng, notice, 0.03),
        "beds taken": np.round(beds, 3),
        "present": present,
        "needed": need.sum(1),
    }
    instances = {**{f"need[{t}]": need[:, t] for t in range(PERIODS)}, "present": present}
    money = "€ a day"
    return Case(
        program(),
        features,
        dict(zip(cost_names(), costs.T, strict=True)),
        instances,
        ordered=False,
        seed=seed,
        money=money,
    )
