"""Battery arbitrage on real prices: when to charge and when to discharge, before the half-hourly prices are known.

    max Σ_t price_t (out_t − in_t) / 2 − wear Σ_t out_t / 2
    s.t. level_t = level_{t−1} + (0.94 in_t − out_t / 0.94) / 2,   0 ≤ level_t ≤ 2 MWh,   level_47 = level_before = 1 MWh,
         in_t, out_t ≤ 1 MW,   Σ_t out_t / 2 ≤ 3 MWh a day (the warranty)

A battery of 1 MW and two hours, 88 % there and back; wear of 4 € per MWh is what owners reckon with. Data, features and
origins: `days`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.practice.case import Case, Rows
from benchmarks.practice.days import case_of, price_names
from dflearn.program import Program

SLOTS, POWER, ENERGY, EFFICIENCY, WEAR, WARRANTY = 48, 1.0, 2.0, 0.94, 4.0, 3.0


def program() -> Program:
    """Variables: in, out, level."""
    charge, discharge, level = np.arange(3 * SLOTS).reshape(3, SLOTS)
    rows = Rows(3 * SLOTS)
    for t in range(SLOTS):
        before = [(level[t - 1], -1.0)] if t else []
        flows = [(charge[t], -EFFICIENCY / 2), (discharge[t], 1 / EFFICIENCY / 2)]
        rows.add([(level[t], 1.0), *flows, *before], equal=0.0 if t else ENERGY / 2)
    rows.add([(level[-1], 1.0)], equal=ENERGY / 2)
    rows.add([(one, 0.5) for one in discharge], at_most=WARRANTY)
    one = np.eye(SLOTS) / 2
    return Program(
        **rows.parts(),
        upper=np.repeat([POWER, POWER, ENERGY], SLOTS),
        S=np.vstack([one, -one, 0 * one]),
        d=np.repeat([0.0, WEAR / 2, 0.0], SLOTS),
        sense="maximize",
        cost_names=price_names(),
        name="battery",
    )


def case(seed: int) -> Case:
    return case_of(program(), seed, "€ a day")
