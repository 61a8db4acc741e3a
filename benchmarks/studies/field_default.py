"""A default: the rule by which it is chosen, on validation regret alone, and whether problems that came later confirm it.

The rule, fixed before the runs of `NEW` were made: of `CANDIDATES`, the method with the best mean rank, among all methods, by
*validation* regret on the problems of `KNOWN`, mean of seeds 1 to 5. A selection (`PICKS`) trains several methods and keeps, problem by
problem and seed by seed, the one with the least validation regret; the rows that choose would flatter it, so it is ranked by
crossed halves: chosen on the even validation rows and judged on the odd ones, and the other way round. On test rows it has the
regret of the method that all validation rows choose. Confirmed is a method with the best mean rank of all by *test* regret on `NEW`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dflearn.report.render import render
from field_statistics import TUNED_ON, Field, Ranking, Record, ranking

KNOWN = (
    "SP-5", "KP-100", "matching-8", "energy-60", "TopK-20x4", "TSP-7", "terrain-12", "SP-10", "CFL-10x3", "KP-40x4",
    "scheduling-5x1", "battery",
)  # fmt: skip
NEW = ("production", "charging", "projects", "cover", "jobs", "flow", "CFL-50")
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
    means = field.by_problem([name for name in KNOWN if name in field.problems], "validation").mean
    return {name: rank for name, rank in means.items() if name in CANDIDATES}


def compared(records: Sequence[Record]) -> Field:
    """The methods and selections that were tested on the known problems and on all new ones that every candidate has."""
    every = Field(with_picks(records))
    new = [name for name in NEW if all(every.seeds_of(name, method) for method in CANDIDATES)]
    on = [*(name for name in KNOWN if name in {one["problem"] for one in records}), *new]
    methods = [name for name in every.methods if all(every.seeds_of(problem, name) for problem in on)]
    return Field([one for one in every.records if one["problem"] in on and one["method"] in methods])


def ranks(field: Field, problems: Sequence[str]) -> Ranking:
    """By test regret, on each problem the mean of the seeds that all methods have there."""
    table = [
        [np.mean([field.value(problem, method, seed) for seed in field.common(problem, field.methods)]) for method in field.methods]
        for problem in problems
    ]  # fmt: skip
    return ranking(field.methods, np.array(table))


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 %, of the mean over problems: the bootstrap that draws problems."""
    drawn = np.random.default_rng(0).integers(len(values), size=(10_000, len(values)))
    low, high = np.quantile(values[drawn].mean(1), [0.025, 0.975])
    return float(low), float(high)


def verdict(records: Sequence[Record]) -> str:
    """Candidates and the best others: rank where chosen, by validation; then by test regret on the new problems and on all."""
    field = compared(records)
    known, new = [[name for name in field.problems if name in some] for some in (KNOWN, NEW)]
    if not known or not new:
        return "No new problem is there yet, or no known one.\n"
    before = Field([one for one in with_picks(records) if one["problem"] in known])
    before = Field([one for one in before.records if all(before.seeds_of(name, one["method"]) for name in known)])
    validated = before.by_problem(known, "validation").mean
    confirmed, every = ranks(field, new), ranks(field, field.problems)
    places, best = list(confirmed.mean), next(iter(confirmed.mean))
    column = {name: confirmed.ranks[:, i] for i, name in enumerate(confirmed.methods)}
    shown = [name for name in places if name in CANDIDATES or places.index(name) < 10 or name in ("MSE", "SPO+")]
    lines = []
    for name in shown:
        low, high = interval(column[name])
        apart = interval(column[name] - column[CHOSEN])
        lines.append(
            [
                f"**{name}**" if name == CHOSEN else name, f"{validated[name]:.1f}", f"{confirmed.mean[name]:.1f} [{low:.1f}, {high:.1f}]",
                str(places.index(name) + 1), "" if name == CHOSEN else f"{np.mean(column[name] - column[CHOSEN]):+.1f} [{apart[0]:+.1f}, {apart[1]:+.1f}]",
                f"{every.mean[name]:.1f}",
            ]
        )  # fmt: skip
    header = (
        "method", "rank where chosen, by validation", "rank on the new ones, by test", "place", f"less that of {CHOSEN}", "rank on all, by test",
    )  # fmt: skip
    place = places.index(CHOSEN) + 1
    low, high = interval(column[CHOSEN] - column[best])
    said = (
        f"{CHOSEN} has the best mean rank on the new problems: confirmed."
        if place == 1
        else f"{CHOSEN} is place {place} on the new problems and {best} is first; their mean ranks differ by "
        f"{np.mean(column[CHOSEN] - column[best]):.1f} [{low:.1f}, {high:.1f}]: not confirmed as the best"
        + (", and within chance of it." if low <= 0 else ", and beyond chance.")
    )
    counts = {name: len(field.common(name, field.methods)) for name in new}
    seeds = ", ".join(f"{count} ({name})" for name, count in counts.items())
    if len(set(counts.values())) == 1:
        seeds = str(counts[new[0]])
    first = list(choice(before).items())[:3]
    return (
        f"The rule is in `benchmarks/studies/field_default.py`: the candidate with the best mean rank, of {len(before.methods)} methods and selections, "
        f"by *validation* regret on {len(known)} known problems, mean of seeds {', '.join(map(str, before.seeds))}. It says "
        f"{', then '.join(f'{name} ({rank:.2f})' for name, rank in first)}. The choice was committed before anything was run on "
        f"{', '.join(new)}, where {len(field.methods)} of them are compared on {seeds} seeds. **{said}** In brackets: 95 % intervals by the bootstrap over problems. *best of*: several methods are trained, "
        f"and the least validation regret chooses, by problem and seed: {'; '.join(f'{name}: {chr(44).join(of)}' for name, of in PICKS.items())}; "
        "at the cost of all of them, and of their tuning.\n\n" + render(header, lines, "markdown") + "\n"
    )
