"""Eight problems as practitioners bring them: a program and tables. `PROBLEMS` makes each by its name and a seed.

Generators, parameters and splits were written once, by what such data look like, before any method was run on them.
"""

from collections.abc import Callable

from benchmarks.practice import (
    battery,
    energy_knapsack,
    energy_scheduling,
    purchasing,
    selection,
    shifts,
    transport,
    unit_commitment,
)
from benchmarks.practice.case import Case

PROBLEMS: dict[str, Callable[[int], Case]] = {
    "unit commitment": unit_commitment.case,
    "energy knapsack": energy_knapsack.case,
    "energy scheduling": energy_scheduling.case,
    "battery": battery.case,
    "transport": transport.case,
    "shifts": shifts.case,
    "selection": selection.case,
    "purchasing": purchasing.case,
}
ON_DAYS = ("energy knapsack", "energy scheduling", "battery")  # real days, whose seeds are origins
DEVELOPMENT, ORIGINS, FRESH = 0, (1, 2, 3, 4, 5), tuple(range(21, 41))
SEEDS = {
    name: ORIGINS if name in ON_DAYS else FRESH for name in PROBLEMS
}  # those of the study, of FRESH the first of them

__all__ = ["DEVELOPMENT", "ON_DAYS", "PROBLEMS", "SEEDS", "Case"]
