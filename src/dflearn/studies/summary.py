"""Records of a study, aggregated per problem and method: the numbers behind every table, figure and report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dflearn.errors import OptionError
from dflearn.evaluation import estimates
from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.regret import ZERO, ZERO_OPTIMUM
from dflearn.studies.config import RunConfig
from dflearn.studies.record import Record

FAMILIES = ("SP", "KP", "CFL")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class MethodSummary:
    """One method on one problem: its runs, one per seed, and means and standard deviations over them.

    A standard deviation is that between the seeds, and 0 for a single one.

    Attributes:
        metric: which regret `regret` and `deviation` are.
        records: in the order of the seeds.
        rank: 1 for the least regret on the problem; equal regrets share the mean of their places. NaN: not ranked.
        behind: this method's regret less that of the best one, paired; `None`: not ranked.
    """

    problem: str
    method: str
    metric: str
    records: tuple[Record, ...]
    rank: float = float("nan")
    behind: Estimate | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(record.config.seed for record in self.records)

    def values(self, metric: str) -> np.ndarray:
        """A metric on the test set, one value per seed, `(seeds,)`."""
        return np.array([record.metric(metric) for record in self.records])

    def mean_of(self, metric: str) -> float:
        return float(self.values(metric).mean())

    def deviation_of(self, metric: str) -> float:
        return _deviation(self.values(metric))

    @cached_property
    def regret(self) -> float:
        return self.mean_of(self.metric)

    @cached_property
    def deviation(self) -> float:
        return self.deviation_of(self.metric)

    @cached_property
    def seconds(self) -> float:
        """CPU seconds of training per epoch."""
        return float(np.mean([record.seconds["epoch"] for record in self.records]))

    @property
    def seconds_deviation(self) -> float:
        return _deviation([record.seconds["epoch"] for record in self.records])

    @property
    def megabytes(self) -> float:
        """The largest memory of a run."""
        return max(record.peak_megabytes for record in self.records)

    @property
    def above_floor(self) -> float:
        """Σ regret / Σ |optimum| less the same of deciding with E[y | x]; NaN where that is not known."""
        if not all("floor_ratio_of_sums" in record.metrics for record in self.records):
            return float("nan")
        return self.mean_of("ratio_of_sums") - self.mean_of("floor_ratio_of_sums")

    def on(self, seeds: Iterable[int]) -> MethodSummary:
        """The same with the runs of these seeds alone."""
        kept = set(seeds)
        return replace(self, records=tuple(record for record in self.records if record.config.seed in kept))


def summarize(records: Iterable[Record], metric: str = "mean_of_ratios") -> list[MethodSummary]:
    """One summary per problem and method over all its seeds, ordered by problem and then by regret.

    Runs of a method that differ in settings or parameters are kept apart, and named with what differs.
    """
    runs: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    distinct = {record.config.question: record for record in records}  # exact solvers answer the same question alike
    for record, problem, method in named(list(distinct.values())):
        if metric not in record.metrics:
            raise OptionError(f"the run {record.config} has no metric {metric!r}; it has {', '.join(record.metrics)}")
        runs[problem, method].append(record)
    summaries = [
        MethodSummary(problem, method, metric, tuple(sorted(some, key=lambda record: record.config.seed)))
        for (problem, method), some in runs.items()
    ]
    return sorted(summaries, key=lambda s: (problem_order(s.problem), s.regret))


def named(records: Sequence[Record]) -> list[tuple[Record, str, str]]:
    """Each record with the names of its problem and its method, to which is added what differs between runs.

    Runs on other data are runs of another problem; runs in other settings, or with other parameters, of another method.
    """
    problems = _told_apart(records, lambda record: (record.config.problem,), lambda config: config.data_choices)
    methods = _told_apart(
        records,
        lambda record: (record.config.problem, record.config.method),
        lambda config: {name: value for name, value in config.choices.items() if name not in config.data_choices},
    )
    return [
        (record, record.config.problem + problem, record.config.method + method)
        for record, problem, method in zip(records, problems, methods, strict=True)
    ]


def _told_apart(
    records: Sequence[Record],
    group: Callable[[Record], tuple[str, ...]],
    choices: Callable[[RunConfig], Mapping[str, Any]],
) -> list[str]:
    """For each record the choices in which the records of its group differ, " (noise=0)" say; empty where in none."""
    values: defaultdict[tuple[tuple[str, ...], str], set[Any]] = defaultdict(set)
    for record in records:
        for name, value in choices(record.config).items():
            values[group(record), name].add(value)
    words = []
    for record in records:
        differing = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in choices(record.config).items()
            if len(values[group(record), name]) > 1
        ]
        words.append(f" ({', '.join(differing)})" if differing else "")
    return words


def _deviation(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


# -- methods against each other -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranking:
    """The methods of one problem, compared on the same seeds.

    Attributes:
        seeds: those that are compared.
        ranked: the methods that ran with all of these seeds, over these alone, with ranks; least regret first.
        apart: the other methods, over whichever seeds they have, without ranks.
        unused: how many runs of the ranked methods have other seeds.
    """

    problem: str
    seeds: tuple[int, ...]
    ranked: tuple[MethodSummary, ...]
    apart: tuple[MethodSummary, ...]
    unused: int

    @property
    def best(self) -> MethodSummary:
        return self.ranked[0]

    @property
    def all(self) -> tuple[MethodSummary, ...]:
        return *self.ranked, *self.apart


def rankings(summaries: Iterable[MethodSummary]) -> list[Ranking]:
    """One ranking per problem: means over different seeds are means over different data, so seeds are shared."""
    by_problem: defaultdict[str, list[MethodSummary]] = defaultdict(list)
    for summary in summaries:
        by_problem[summary.problem].append(summary)
    return [_ranking(problem, by_problem[problem]) for problem in sorted(by_problem, key=problem_order)]


def _ranking(problem: str, summaries: Sequence[MethodSummary]) -> Ranking:
    from scipy.stats import rankdata

    seeds = common_seeds([s.seeds for s in summaries])
    chosen = [s for s in summaries if seeds <= set(s.seeds)]
    shared = sorted((s.on(seeds) for s in chosen), key=lambda s: s.regret)
    places = rankdata([s.regret for s in shared])
    ranked = [
        replace(s, rank=float(place), behind=paired(s, shared[0])) for s, place in zip(shared, places, strict=True)
    ]
    apart = sorted((s for s in summaries if s not in chosen), key=lambda s: s.regret)
    unused = sum(len(s.records) for s in chosen) - len(chosen) * len(seeds)
    return Ranking(problem, tuple(sorted(seeds)), tuple(ranked), tuple(apart), unused)


def common_seeds(of_methods: Sequence[Iterable[int]]) -> set[int]:
    """The seeds S that allow the most paired differences: |S| · (methods that have all of S − 1) is largest.

    Among equals the larger number of seeds, then the smaller seeds.
    """
    sets = [frozenset(seeds) for seeds in of_methods]
    candidates = set(sets)
    for one in set(sets):
        candidates |= {one & other for other in candidates}

    def worth(seeds: frozenset[int]) -> tuple[int, int, list[int]]:
        methods = sum(seeds <= own for own in sets)
        return len(seeds) * (methods - 1), len(seeds), [-seed for seed in sorted(seeds)]

    best: frozenset[int] = max(candidates - {frozenset()}, key=worth)
    return set(best)


def paired(a: MethodSummary, b: MethodSummary) -> Estimate:
    """The regret of a less that of b, both with the same seeds, with its 95 % interval.

    Over the seeds where there are several. Over the test instances where there is one and the records hold them.
    """
    if len(a.seeds) > 1 or a.method == b.method:
        return estimates.mean(a.values(a.metric) - b.values(b.metric), CONFIDENCE)
    (one,), (other,) = a.records, b.records
    difference = Estimate(a.regret - b.regret)
    if one.regrets is None or other.regrets is None or one.optima is None:
        return difference
    apart, size = one.regrets.astype(float) - other.regrets, np.abs(one.optima.astype(float))
    if a.metric == "mean_of_ratios":
        kept = size > ZERO * size.mean()
        around = estimates.mean(apart[kept] / size[kept], CONFIDENCE)
    elif a.metric == "ratio_of_sums":
        around = estimates.ratio_of_sums(apart, size, CONFIDENCE)
    elif a.metric == "absolute_regret":
        around = estimates.mean(apart, CONFIDENCE)
    else:
        return difference
    return Estimate(difference.value, around.low, around.high)


def left_out_lines(records: Iterable[Record]) -> list[str]:
    """On which problems the ratios of some runs leave instances out, and how many: to be said beside the ratios."""
    notes = {(str(record.config.problem), note) for record in records for note in record.notes if ZERO_OPTIMUM in note}
    return [f"{problem}: {note}" for problem, note in sorted(notes)]


def pareto_front(summaries: Iterable[MethodSummary]) -> list[MethodSummary]:
    """Those that no other beats in both time and regret, fastest first."""
    front: list[MethodSummary] = []
    for summary in sorted(summaries, key=lambda s: (s.seconds, s.regret)):
        if not front or summary.regret < front[-1].regret:
            front.append(summary)
    return front


# -- order and words ------------------------------------------------------------------------------------------------


def problem_order(problem: str) -> tuple[int, str, int]:
    """SP before KP before CFL before others, small before large."""
    family, _, rest = problem.partition("-")
    size = re.match(r"\d+", rest)
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), family, int(size[0]) if size else 0


def problems_of(summaries: Iterable[MethodSummary]) -> list[str]:
    return sorted({summary.problem for summary in summaries}, key=problem_order)


def seeds_in_words(summaries: Iterable[MethodSummary]) -> str:
    """ "5 seeds each", or "2 to 5 seeds each"."""
    counts = sorted({len(summary.seeds) for summary in summaries})
    if counts == [1]:
        return "one seed each"
    return f"{counts[0]} seeds each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds each"
