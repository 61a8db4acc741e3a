"""Energy knapsack on real days: the half-hours to sell in, within a capacity. The literature's problem, by price.

    max Σ_t weight_t price_t w_t   s.t.   Σ_t weight_t w_t ≤ 60,   w ∈ {0, 1}⁴⁸

The weights (3, 5 or 7) are known and stand in the program; capacity 60 is the literature's smallest, where mistakes cost
most. Data, features and origins: `days`.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.practice.case import Case
from benchmarks.practice.days import case_of, price_names
from dflearn.problems.energy import EnergyKnapsack


def case(seed: int) -> Case:
    program = replace(EnergyKnapsack(capacity=60, predict="price").program, cost_names=price_names())
    return case_of(program, seed, "€ per MW of a day")
