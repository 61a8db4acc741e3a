"""Records of a study, aggregated per problem and method: the numbers behind every table, figure and report."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.errors import OptionError
from dflearn.evaluation import estimates
from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.regret import ZERO, ZERO_OPTIMUM
from dflearn.studies.config import RunConfig, read_study
from dflearn.studies.record import Record, outdated
from dflearn.studies.store import Store, ending_of, read_records, store_of

FAMILIES = ("SP", "KP", "CFL")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class MethodSummary:
    """One method on one problem: its runs, one per seed, with means and standard deviations over the seeds (0 for one seed).

    Attributes:
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
        return np.array([record.metric(metric) for record in self.records])

    def mean_of(self, metric: str) -> float:
        return float(self.values(metric).mean())

    @cached_property
    def regret(self) -> float:
        return self.mean_of(self.metric)

    @cached_property
    def deviation(self) -> float:
        return deviation_of(self.values(self.metric))

    @cached_property
    def seconds(self) -> float:
        """CPU seconds of training per epoch."""
        return float(np.mean([record.seconds["epoch"] for record in self.records]))

    @property
    def seconds_deviation(self) -> float:
        return deviation_of([record.seconds["epoch"] for record in self.records])

    @property
    def above_floor(self) -> float:
        """Σ regret / Σ |optimum| less the same of deciding with E[y | x]; NaN if that is unknown."""
        if not all("floor_ratio_of_sums" in record.metrics for record in self.records):
            return float("nan")
        return self.mean_of("ratio_of_sums") - self.mean_of("floor_ratio_of_sums")

    def on(self, seeds: Iterable[int]) -> MethodSummary:
        return replace(self, records=tuple(record for record in self.records if record.config.seed in set(seeds)))


def summarize(records: Iterable[Record], metric: str = "mean_of_ratios") -> list[MethodSummary]:
    """One summary per problem and method, by problem and regret. Runs in other settings get one of their own, and its name."""
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
    """Each record with the names of its problem and method; in brackets the data, or settings, in which runs differ."""
    values = defaultdict[tuple[str, str, str], set[Any]](set)  # problem, method or nothing, and choice → its values
    for record in records:
        config = record.config
        for name, value in config.choices.items():
            values[config.problem, "" if name in config.data_choices else config.method, name].add(value)

    def differing(config: RunConfig, method: str) -> str:
        """For example " (noise=0)"; empty if the runs do not differ."""
        words = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in config.choices.items()
            if (name in config.data_choices) == (not method) and len(values[config.problem, method, name]) > 1
        ]
        return f" ({', '.join(words)})" if words else ""

    configs = [record.config for record in records]
    names = [(one.problem + differing(one, ""), one.method + differing(one, one.method)) for one in configs]
    return [(record, *both) for record, both in zip(records, names, strict=True)]


def deviation_of(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Ranking:
    """The methods of one problem, compared on the same seeds.

    Attributes:
        ranked: the methods that ran with all of these seeds, over these alone, with ranks; least regret first.
        apart: the other methods, over the seeds that they have, without ranks.
        unused: the number of runs of the ranked methods with other seeds.
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
    """One ranking per problem, on shared seeds, since means over different seeds are means over different data."""
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
    ranked = tuple(replace(s, rank=float(k), behind=paired(s, shared[0])) for s, k in zip(shared, places, strict=True))
    apart = tuple(sorted((s for s in summaries if s not in chosen), key=lambda s: s.regret))
    unused = sum(len(s.records) for s in chosen) - len(chosen) * len(seeds)
    return Ranking(problem, tuple(sorted(seeds)), ranked, apart, unused)


def common_seeds(of_methods: Sequence[Iterable[int]]) -> set[int]:
    """The seeds S of most paired differences, |S| · (methods that have all of S − 1); of equals the most, then the smallest."""
    sets = [frozenset(seeds) for seeds in of_methods]
    candidates = set(sets)
    for one in sets:
        candidates |= {one & other for other in candidates}

    def worth(seeds: frozenset[int]) -> tuple[int, int, list[int]]:
        methods = sum(seeds <= own for own in sets)
        return len(seeds) * (methods - 1), len(seeds), [-seed for seed in sorted(seeds)]

    best: frozenset[int] = max(candidates - {frozenset()}, key=worth)
    return set(best)


def paired(a: MethodSummary, b: MethodSummary) -> Estimate:
    """The regret of a less that of b on the same seeds, with its 95 % interval: over several seeds, or over one seed's instances."""
    if len(a.seeds) > 1 or a.method == b.method:
        return estimates.mean(a.values(a.metric) - b.values(b.metric), CONFIDENCE)
    (one,), (other,) = a.records, b.records
    difference = Estimate(a.regret - b.regret)
    if one.regrets is None or other.regrets is None or one.optima is None:
        return difference
    apart, size = one.regrets.astype(float) - other.regrets, np.abs(one.optima.astype(float))
    kept = size > ZERO * size.mean()
    if a.metric == "mean_of_ratios":
        around = estimates.mean(apart[kept] / size[kept], CONFIDENCE)
    elif a.metric == "ratio_of_sums":
        around = estimates.ratio_of_sums(apart, size, CONFIDENCE)
    else:
        around = estimates.mean(apart, CONFIDENCE) if a.metric == "absolute_regret" else difference
    return difference._replace(low=around.low, high=around.high)


def runs_of(study: Path) -> tuple[list[Record], list[str]]:
    """The finished runs of a study (a TOML file, store or export), with notes on missing, old and left-out runs."""
    path = store_of(study)
    records, notes = read_records(path), []
    if study.suffix == ".toml" and study.exists():
        wanted = {config.question for config in read_study(study).runs()}
        kept = [record for record in records if record.config.question in wanted]
        if others := len(records) - len(kept):
            notes = [f"{others} runs of the store are left out, because {study} does not ask for them (any more)."]
        records, notes = kept, [*notes, *notes_on(kept)]
    if ending_of(path) is None:
        with Store(path, must_exist=True) as store:
            progress = store.progress()
        if absent := len(progress.missing) + len(progress.running):
            notes.append(f"{absent} runs of the study have not finished yet.")
        notes += ["Failed: {run}: {error}".format(**one.as_dict()) for one in progress.failed]
    return records, notes


def notes_on(records: Sequence[Record]) -> list[str]:
    """Per problem, how many instances the ratios leave out; and a warning if modules of the study have changed since a run."""
    left_out = {(record.config.problem, note) for record in records for note in record.notes if ZERO_OPTIMUM in note}
    notes = [f"{problem}: {note}" for problem, note in sorted(left_out)]
    if old := outdated(records):
        modules = ", ".join(dict.fromkeys(name for record in old for name in record.config.imports))
        notes.append(
            f"warning: {len(old)} of these runs are older than the present {modules}, the first is {old[0].config}. To run "
            "them again, name another store: --store NEW.sqlite"
        )
    return notes


def pareto_front(summaries: Iterable[MethodSummary]) -> list[MethodSummary]:
    """The methods that no other beats in both time and regret, fastest first."""
    front: list[MethodSummary] = []
    for summary in sorted(summaries, key=lambda s: (s.seconds, s.regret)):
        if not front or summary.regret < front[-1].regret:
            front.append(summary)
    return front


def problem_order(problem: str) -> tuple[int, str, int]:
    """SP before KP before CFL before others, small before large."""
    family, _, rest = problem.partition("-")
    size = re.match(r"\d+", rest)
    return FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), family, int(size[0]) if size else 0


def problems_of(summaries: Iterable[MethodSummary]) -> list[str]:
    return sorted({summary.problem for summary in summaries}, key=problem_order)


def seeds_in_words(summaries: Iterable[MethodSummary]) -> str:
    """ "5 seeds each", or "2 to 5 seeds each"."""
    counts = {len(summary.seeds) for summary in summaries}
    return (
        "one seed each" if counts == {1} else " to ".join(map(str, sorted({min(counts), max(counts)}))) + " seeds each"
    )
