"""A default: the rule by which it is chosen, on validation regret alone, and whether problems that came later confirm it.

The rule, fixed before the runs of `NEW` were made: of `CANDIDATES`, the method with the best mean rank, among all methods, by
*validation* regret on the problems of `KNOWN`, mean of seeds 1 to 5. A selection (`PICKS`) trains several methods and keeps, problem by
problem and seed by seed, the one with the least validation regret; the rows that choose would flatter it, so it is ranked by
crossed halves: chosen on the even validation rows and judged on the odd ones, and the other way round. On test rows it has the
regret of the method that all validation rows choose. Confirmed is a method with the best mean rank of all by *test* regret on `NEW`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dflearn.report.render import render
from field_statistics import TUNED_ON, Field, Record

KNOWN = (
    "SP-5", "KP-100", "matching-8", "energy-60", "TopK-20x4", "TSP-7", "terrain-12", "SP-10", "CFL-10x3", "KP-40x4",
    "scheduling-5x1", "battery",
)  # fmt: skip
CHOSEN = "SCE"  # by the rule: 6.92, before SPO+ and SCE kNN (7.00) and SCE kNN (7.21), of 38 methods on 12 problems
PICKS = {
    "best of 2": ("SCE with MSE", "SPO+ kNN"),
    "best of 3": ("MSE", "SCE with MSE", "SPO+ kNN"),
    "best of 5": ("MSE", "SPO+", "SPO+ kNN", "SCE", "SCE with MSE"),
}
CANDIDATES = (
    "SCE", "SCE with MSE", "sSPO+", "sSPO+ with MSE", "SPO+ kNN", "SCE kNN", "SCE kNN with MSE", "sSPO+ kNN", "SPO+ kNN with MSE",
    "SPO+ and SCE kNN", *PICKS,
)  # fmt: skip


def with_picks(records: Sequence[Record]) -> list[Record]:
    """The records, and one of each selection for each problem and seed whose parts are all there."""
    found = {
        (one["problem"], one["seed"], one["method"]): one
        for one in records
        if one["seed"] != TUNED_ON and "validation_regrets" in one
    }
    blocks = dict.fromkeys((problem, seed) for problem, seed, _ in found)
    made = []
    for (problem, seed), (name, parts) in ((block, pick) for block in blocks for pick in PICKS.items()):
        own = [found[problem, seed, part] for part in parts if (problem, seed, part) in found]
        if len(own) == len(parts):
            made.append(_picked(name, own))
    return [*records, *made]


def _picked(name: str, parts: Sequence[Record]) -> Record:
    best = min(parts, key=lambda one: one["validation"])
    spent = {key: sum(one[key] for one in parts) for key in ("seconds", "set_up", "total")}
    return {**best, **spent, "method": name, "picked": best["method"], "validation": crossed(parts)}


def crossed(parts: Sequence[Record]) -> float:
    """Validation regret of the part that the other half of the rows chooses, mean over both halves."""
    rows = np.array([one["validation_regrets"] for one in parts])
    even, odd = rows[:, ::2], rows[:, 1::2]
    lost = even[odd.mean(1).argmin()].sum() + odd[even.mean(1).argmin()].sum()
    return float(lost / rows.shape[1])


def choice(field: Field) -> dict[str, float]:
    """Mean ranks of the candidates by validation regret on the known problems, the best first."""
    ranks = field.by_problem([name for name in KNOWN if name in field.problems], "validation").mean
    return {name: rank for name, rank in ranks.items() if name in CANDIDATES}
