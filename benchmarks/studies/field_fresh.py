"""One hypothesis, and its test on problems that are fresh: written down, with them, before anything was run on them.

Hypothesis: *best of 3* (`field_default.PICKS`: MSE, SCE with MSE and SPO+ kNN are trained, and the least validation regret chooses, by
problem and seed) has the best mean rank by test regret. It comes from the test rows of `field_default.NEW`, where it was first of
21, so that those cannot test it.

Test: on the six problems of `FRESH`, the 18 methods of `METHODS` and the three selections are ranked, 21 in all, the other two selections
included. Each method is tuned on seed 0, five trials, as everywhere; the regret on a problem is the mean over those of the seeds 1 to 5
that all of them have there (where a part failed there is no selection); a problem without one is left out. Equal regrets share ranks; a
run that failed shares the last ones.

- **confirmed**: best of 3 has the best mean rank of all 21, and the 95 % interval (bootstrap over problems, `field_default.interval`) of its
  mean rank less that of the best single method lies below zero. That method is found on the same problems, which is
  to the disadvantage of the hypothesis.
- **not confirmed, first within chance**: it has the best mean rank and the interval reaches zero.
- **refuted**: another, a method or a selection, has the best mean rank, or shares it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dflearn.report.render import render
from field_default import KNOWN, NEW, PICKS, interval, ranks, with_picks
from field_statistics import Field, Record

FRESH = ("blending", "roster", "auction", "tree", "options", "ordering")
SUPPOSED = "best of 3"
METHODS = (
    "MSE", "cost-sensitive", "SPO+", "sSPO+", "RFY", "SCE", "QPTL", "PEAR", "NID", "LTR listwise", "SPO+ kNN", "sSPO+ with MSE",
    "SCE with MSE", "SCE kNN", "SCE kNN with MSE", "sSPO+ kNN", "SPO+ kNN with MSE", "SPO+ and SCE kNN",
)  # fmt: skip


def all_of(records: Sequence[Record], problems: Sequence[str] = FRESH) -> Field:
    """The methods and selections on those of the problems where all of them have a seed in common."""
    names = (*METHODS, *PICKS)
    every = Field(with_picks([one for one in records if one["problem"] in problems and one["method"] in METHODS]))
    there = [name for name in problems if every.common(name, names)]
    return Field([one for one in every.records if one["problem"] in there])


def outcome(means: dict[str, float], single: str, high: float) -> str:
    """What the docstring above says, of the mean ranks, the best single method, and the upper end of the interval."""
    if any(rank <= means[SUPPOSED] for name, rank in means.items() if name != SUPPOSED):
        return "refuted"
    return "confirmed" if high < 0 else f"not confirmed, first within chance of {single}"


def verdict(records: Sequence[Record]) -> str:
    """The mean ranks of all on the fresh problems, and what they say of the hypothesis."""
    field = all_of(records)
    problems = [name for name in FRESH if name in field.problems]
    if not problems:
        return "No fresh problem has been run yet.\n"
    found = ranks(field, problems)
    column = dict(zip(found.methods, found.ranks.T, strict=True))
    everywhere = all_of(records, (*KNOWN, *NEW, *FRESH))
    whole, number = ranks(everywhere, everywhere.problems).mean, len(everywhere.problems)
    single = next(name for name in found.mean if name not in PICKS)
    lines = []
    for place, (name, rank) in enumerate(found.mean.items(), 1):
        low, high = interval(column[SUPPOSED] - column[name])
        apart = "" if name == SUPPOSED else f"{np.mean(column[SUPPOSED] - column[name]):+.1f} [{low:+.1f}, {high:+.1f}]"
        shown = [f"{one:g}" for one in column[name]]
        shown += [f"{whole[name]:.1f}"]
        lines.append([f"**{name}**" if name == SUPPOSED else name, f"{rank:.2f}", str(place), apart, *shown])
    low, high = interval(column[SUPPOSED] - column[single])
    seeds = ", ".join(f"{name}: {', '.join(map(str, field.common(name, field.methods)))}" for name in problems)
    picked = [
        field.tested[name, SUPPOSED, seed]["picked"] for name in problems for seed in field.common(name, field.methods)
    ]
    counts = ", ".join(f"{part} {picked.count(part)} times" for part in PICKS[SUPPOSED])
    return (
        f"Hypothesis and test are in `benchmarks/studies/field_fresh.py`, committed before anything was run on {', '.join(problems)}: "
        f"{SUPPOSED} has the best mean rank by test regret. It has {found.mean[SUPPOSED]:.2f}, place {list(found.mean).index(SUPPOSED) + 1} of "
        f"{len(found.methods)}; less that of the best single method, {single}: {np.mean(column[SUPPOSED] - column[single]):+.2f} [{low:+.2f}, {high:+.2f}], "
        f"by the bootstrap over {len(problems)} problems. **{outcome(found.mean, single, high).capitalize()}.** It took {counts}. Seeds: {seeds}. "
        f"The last column is over all {number} problems that the {len(found.methods)} ran on, and no part of the test.\n\n"
        + render(("method", "mean rank", "place", f"{SUPPOSED} less it", *problems, f"mean rank on all {number}"), lines, "markdown")
        + "\n"
    )  # fmt: skip
