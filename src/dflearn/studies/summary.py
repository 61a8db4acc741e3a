"""Records of a study, summarized per problem and method: what the figures and the report show."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.paper.published import PublishedRow, published_rows
from dflearn.studies.config import Settings
from dflearn.studies.record import Record

FAMILIES = ("SP", "KP", "CFL")


@dataclass(frozen=True)
class MethodSummary:
    """One method on one problem: means over the seeds, and standard deviations between them (0 for a single seed).

    Attributes:
        regret, deviation: of the chosen metric on the test set.
        seconds: of training per epoch.
        above_floor: Σ regret / Σ |optimum| minus the same of deciding with E[y | x]; NaN where that is not known.
        as_in_paper: whether all runs had the paper's settings, so that its figures compare.
        rank: 1 for the method with the least regret on this problem; equal regrets share the mean of their ranks.
    """

    problem: str
    method: str
    seeds: tuple[int, ...]
    regret: float
    deviation: float
    seconds: float
    seconds_deviation: float
    above_floor: float
    as_in_paper: bool
    rank: float = float("nan")

    @property
    def published(self) -> PublishedRow | None:
        """What the paper prints for this method and problem, if that compares."""
        return published_rows().get((self.problem, self.method)) if self.as_in_paper else None


def summarize(records: Iterable[Record], metric: str = "mean_of_ratios") -> list[MethodSummary]:
    """One summary per problem and method, ordered by problem and then by regret.

    Runs of a method that differ in settings or parameters are kept apart, and named with what differs.
    """
    runs: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    distinct = {record.config.question: record for record in records}  # exact solvers answer the same question alike
    for record, method in named(list(distinct.values())):
        runs[record.config.problem, method].append(record)
    summaries = []
    for (problem, method), some in runs.items():
        missing = [record for record in some if metric not in record.metrics]
        if missing:
            known = ", ".join(missing[0].metrics)
            raise DataError(f"the run {missing[0].config} has no metric {metric!r}; it has {known}")
        regrets, seconds = [[f(r) for r in some] for f in (lambda r: r.metric(metric), lambda r: r.seconds["epoch"])]
        summaries.append(
            MethodSummary(
                problem,
                method,
                tuple(sorted(record.config.seed for record in some)),
                float(np.mean(regrets)),
                _deviation(regrets),
                float(np.mean(seconds)),
                _deviation(seconds),
                float(np.mean([_above_floor(record) for record in some])),
                all(record.config.settings == Settings() for record in some),
            )
        )
    return sorted(_ranked(summaries), key=lambda s: (problem_order(s.problem), s.regret))


def named(records: Sequence[Record]) -> list[tuple[Record, str]]:
    """Each record with its method's name, to which settings and parameters are added where they differ between runs."""
    choices = [dict(r.config.parameters) | r.config.as_dict()["settings"] for r in records]
    values: defaultdict[tuple[str, str, str], set[Any]] = defaultdict(set)
    for record, own in zip(records, choices, strict=True):
        for name, value in own.items():
            values[record.config.problem, record.config.method, name].add(value)
    named = []
    for record, own in zip(records, choices, strict=True):
        at = record.config.problem, record.config.method
        differing = [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                     for name, value in own.items() if len(values[*at, name]) > 1]  # fmt: skip
        named.append((record, at[1] + (f" ({', '.join(differing)})" if differing else "")))
    return named


def _above_floor(record: Record) -> float:
    if "floor_ratio_of_sums" not in record.metrics:
        return float("nan")
    return record.metric("ratio_of_sums") - record.metric("floor_ratio_of_sums")


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _ranked(summaries: Sequence[MethodSummary]) -> list[MethodSummary]:
    from scipy.stats import rankdata

    by_problem: defaultdict[str, list[MethodSummary]] = defaultdict(list)
    for summary in summaries:
        by_problem[summary.problem].append(summary)
    return [
        replace(summary, rank=float(rank))
        for some in by_problem.values()
        for summary, rank in zip(some, rankdata([s.regret for s in some]), strict=True)
    ]


def problem_order(problem: str) -> tuple[int, str, int]:
    """SP before KP before CFL before others, small before large."""
    family, _, rest = problem.partition("-")
    size = re.match(r"\d+", rest)
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), family, int(size[0]) if size else 0


def problems_of(summaries: Iterable[MethodSummary]) -> list[str]:
    return sorted({summary.problem for summary in summaries}, key=problem_order)


def pareto_front(summaries: Iterable[MethodSummary]) -> list[MethodSummary]:
    """Those that no other beats in both time and regret, fastest first."""
    front: list[MethodSummary] = []
    for summary in sorted(summaries, key=lambda s: (s.seconds, s.regret)):
        if not front or summary.regret < front[-1].regret:
            front.append(summary)
    return front


def select(records: Iterable[Record], methods: Sequence[str], problems: Sequence[str], what: str) -> list[Record]:
    """The records that a figure shows; an error with the remedy where there are none."""
    chosen = [r for r in records if r.config.method in methods and (not problems or r.config.problem in problems)]
    if not chosen:
        raise DataError(
            f"the study holds no runs that {what} shows: run some of the methods {', '.join(methods)}"
            + (f" on {', '.join(problems)}" if problems else "")
        )
    return chosen


def seeds_in_words(summaries: Iterable[MethodSummary]) -> str:
    counts = sorted({len(summary.seeds) for summary in summaries})
    if counts == [1]:
        return "one seed each"
    return f"{counts[0]} seeds each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds each"


def as_row(summary: MethodSummary, metric: str) -> dict[str, Any]:
    """A row of a figure's CSV; what the paper published beside it, empty where it has no such row."""
    published = summary.published
    return {
        "problem": summary.problem,
        "method": summary.method,
        "seeds": len(summary.seeds),
        metric: summary.regret,
        "deviation": summary.deviation,
        "seconds per epoch": summary.seconds,
        "published regret": "" if published is None else published.regret,
        "published seconds": "" if published is None else published.seconds,
    }
