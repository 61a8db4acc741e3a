"""The paper's tables made anew: our figures beside the published ones, with ranks and how far the rankings agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau, rankdata, spearmanr

from dflearn.paper.published import PublishedRow, published_rows
from dflearn.studies.record import Record


@dataclass(frozen=True)
class Row:
    """One method on one problem: means and standard deviations over seeds (of one seed: 0).

    Attributes:
        style, style_deviation: the published style, mean(regret) · mean(1/|optimum|) per test batch of 32.
        ratios, ratios_deviation: the mean of ratios, by the formula of the text.
        seconds: CPU seconds of training per epoch.
        rank, published_rank: among the methods with a published row on this problem, by the published style; ties share
            the mean of their places. `None` for methods without one.
    """

    problem: str
    method: str
    seeds: tuple[int, ...]
    style: float
    style_deviation: float
    ratios: float
    ratios_deviation: float
    seconds: float
    megabytes: float
    solver: str
    published: PublishedRow | None
    rank: float | None = None
    published_rank: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours less the published value, in the published style."""
        return None if self.published is None else self.style - self.published.regret


@dataclass(frozen=True)
class Agreement:
    """How far two rankings of the same methods agree; `None` where there are fewer than two, or all are tied.

    Attributes:
        ordered_alike, ordered: pairs of methods that both order the same way, among those that the published table,
            with its two digits, orders at all.
    """

    methods: int
    spearman: float | None
    kendall: float | None
    ordered_alike: int
    ordered: int
    reversed_pairs: tuple[tuple[str, str], ...]


def rows_of(problem: str, methods: Sequence[str], records: Iterable[Record]) -> list[Row]:
    """One row for each of the methods that has a record of this problem, in the given order, with ranks."""
    by_method: dict[str, list[Record]] = {}
    for record in records:
        if record.config.problem == problem:
            by_method.setdefault(record.config.method, []).append(record)
    rows = [_row(problem, method, by_method[method]) for method in methods if method in by_method]
    compared = [row for row in rows if row.published is not None]
    ours = _ranks([row.style for row in compared])
    theirs = _ranks([row.published.regret for row in compared if row.published is not None])
    ranks = {row.method: pair for row, pair in zip(compared, zip(ours, theirs, strict=True), strict=True)}
    return [
        replace(row, rank=ranks[row.method][0], published_rank=ranks[row.method][1]) if row.method in ranks else row
        for row in rows
    ]


def _row(problem: str, method: str, records: list[Record]) -> Row:
    style = np.array([record.metric("published_style") for record in records])
    ratios = np.array([record.metric("mean_of_ratios") for record in records])
    return Row(
        problem=problem,
        method=method,
        seeds=tuple(sorted(record.config.seed for record in records)),
        style=float(style.mean()),
        style_deviation=_deviation(style),
        ratios=float(ratios.mean()),
        ratios_deviation=_deviation(ratios),
        seconds=float(np.mean([record.seconds["epoch"] for record in records])),
        megabytes=float(np.max([record.peak_megabytes for record in records])),
        solver=", ".join(sorted({" ".join(record.solver.split()[:2]) for record in records})),
        published=published_rows().get((problem, method)),
    )


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    return [float(rank) for rank in rankdata(values)] if values else []


def agreement(rows: Iterable[Row]) -> Agreement:
    """How far our ranking and the published one agree on the methods that have both."""
    compared = [row for row in rows if row.published is not None]
    ours = [row.style for row in compared]
    theirs = [row.published.regret for row in compared if row.published is not None]
    alike, ordered, reversed_pairs = 0, 0, []
    for i, j in combinations(range(len(compared)), 2):
        if theirs[i] == theirs[j]:
            continue
        ordered += 1
        if (ours[i] - ours[j]) * (theirs[i] - theirs[j]) > 0:
            alike += 1
        else:
            better, worse = (i, j) if theirs[i] < theirs[j] else (j, i)
            reversed_pairs.append((compared[better].method, compared[worse].method))
    tied = len(set(ours)) < 2 or len(set(theirs)) < 2
    spearman = None if tied else float(spearmanr(ours, theirs).statistic)
    kendall = None if tied else float(kendalltau(ours, theirs).statistic)
    return Agreement(len(compared), spearman, kendall, alike, ordered, tuple(reversed_pairs))
