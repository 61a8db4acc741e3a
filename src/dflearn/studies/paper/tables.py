"""The paper's tables: our figures beside the published ones, with ranks and the agreement of the rankings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from scipy.stats import kendalltau, rankdata, spearmanr

from dflearn.report.render import with_deviation
from dflearn.studies.config import Settings
from dflearn.studies.paper.published import PublishedRow, published_rows
from dflearn.studies.record import Record
from dflearn.studies.summary import MethodSummary, deviation_of, summarize

STYLE = "published_style"  # the regret that the published tables print
HEADER = (
    "method", "seeds", "published", "ours, published style", "difference", "mean of ratios", "s/epoch", "published s",
    "rank", "published rank",
)  # fmt: skip
LEGEND = (
    "published and ours: normalized regret in the published style, mean(regret) × mean(1/optimum) per test batch of "
    "32; mean of ratios: the formula of the text. ± is the standard deviation over seeds. s/epoch: CPU seconds of "
    "training per epoch on one core, without validation; published s: as printed, on the authors' machine, with "
    "validation. Ranks are among the methods with a published row; ties share the mean of their places."
)

NEAR = 0.01  # the published figures have two digits
SUMMARY_HEADER = ("problem", "published rows run", "seeds", f"within {NEAR:g}", "further apart", "pairs ordered alike")
SUMMARY_LEGEND = (
    f"Within {NEAR:g}: rows whose mean over the seeds is that near to the published figure, in the published style. "
    "Further apart: our figure, in brackets the published one. Pairs ordered alike: of the pairs of methods that the "
    "published figures order, those that ours order the same way."
)


def published_of(summary: MethodSummary) -> PublishedRow | None:
    """The published row of this method and problem, if all runs had the paper's settings."""
    as_in_paper = all(record.config.settings == Settings() for record in summary.records)
    return published_rows().get((summary.problem, summary.method)) if as_in_paper else None


def published_regrets(records: Iterable[Record], metric: str) -> dict[tuple[str, str], float]:
    """Problem and method → published regret of the methods among these runs; empty in another metric."""
    found = ((s, published_of(s)) for s in summarize(records, metric)) if metric == STYLE else ()
    return {(s.problem, s.method): row.regret for s, row in found if row is not None}


@dataclass(frozen=True)
class Row:
    """One method on one problem, in the published style, beside its published row, if it has one."""

    summary: MethodSummary
    published: PublishedRow | None
    rank: float | None = None  # of the methods with a published row; ties share the mean of their places
    published_rank: float | None = None

    def as_dict(self) -> dict[str, Any]:
        summary, published = self.summary, self.published
        return {
            "method": summary.method,
            "seeds": list(summary.seeds),
            "published_style": summary.regret,
            "mean_of_ratios": summary.mean_of("mean_of_ratios"),
            "seconds_per_epoch": summary.seconds,
            "rank": self.rank,
            "published": None if published is None else published.regret,
            "published_seconds_per_epoch": None if published is None else published.seconds,
            "published_rank": self.published_rank,
        }

    @property
    def difference(self) -> float | None:
        return None if self.published is None else self.summary.regret - self.published.regret


def rows_of(problem: str, methods: Sequence[str], records: Iterable[Record]) -> list[Row]:
    """One row for each of these methods with a record of this problem, in the given order, with ranks."""
    found = {s.method: s for s in summarize((r for r in records if r.config.problem == problem), STYLE)}
    rows = [Row(found[method], published_of(found[method])) for method in methods if method in found]
    compared = [row for row in rows if row.published is not None]
    ours = rankdata([row.summary.regret for row in compared])
    theirs = rankdata([row.published.regret for row in compared if row.published is not None])
    ranks = {row.summary.method: (float(a), float(b)) for row, a, b in zip(compared, ours, theirs, strict=True)}
    return [Row(row.summary, row.published, *ranks.get(row.summary.method, (None, None))) for row in rows]


def cells(row: Row) -> list[str]:
    """The row under HEADER."""
    published, summary, count = row.published, row.summary, len(row.summary.seeds)
    return [
        summary.method,
        str(count),
        "" if published is None else f"{published.regret:.2f}",
        with_deviation(summary.regret, summary.deviation, count),
        "" if row.difference is None else f"{row.difference:+.3f}",
        with_deviation(summary.mean_of("mean_of_ratios"), deviation_of(summary.values("mean_of_ratios")), count),
        f"{summary.seconds:.3g}",
        "" if published is None else f"{published.seconds:.2f}",
        "" if row.rank is None else f"{row.rank:g}",
        "" if row.published_rank is None else f"{row.published_rank:g}",
    ]


def summary_cells(problem: str, rows: Sequence[Row], published: int) -> list[str]:
    """One problem under SUMMARY_HEADER. published: how many rows its published table has."""
    compared = [(row, row.published, row.difference) for row in rows if row.published and row.difference is not None]
    far = [(row.summary, theirs) for row, theirs, difference in compared if abs(difference) > NEAR]
    found = agreement(rows)
    return [
        problem,
        f"{len(compared)} of {published}",
        seed_counts([row for row, _, _ in compared]),
        f"{len(compared) - len(far)} of {len(compared)}",
        ", ".join(f"{ours.method} {ours.regret:.3f} ({theirs.regret:.2f})" for ours, theirs in far),
        f"{found.ordered_alike} of {found.ordered}",
    ]


def judges(rows: Sequence[Row]) -> str:
    return ", ".join(sorted({" ".join(r.solver.split()[:2]) for row in rows for r in row.summary.records}))


def seed_counts(rows: Sequence[Row]) -> str:
    """How many seeds the rows have: "5", or "2 to 5"."""
    counts = {len(row.summary.seeds) for row in rows}
    return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


@dataclass(frozen=True)
class Agreement:
    """The agreement of two rankings; the coefficients are `None` for fewer than two methods, or if all are tied.

    ordered_alike, reversed_pairs: of the pairs that the published table orders.
    """

    methods: int
    spearman: float | None
    kendall: float | None
    ordered_alike: int
    ordered: int
    reversed_pairs: tuple[tuple[str, str], ...]


def agreement(rows: Iterable[Row]) -> Agreement:
    """The agreement of our ranking with the published one on the methods that have both."""
    compared = [row for row in rows if row.published is not None]
    ours = [row.summary.regret for row in compared]
    theirs = [row.published.regret for row in compared if row.published is not None]
    pairs = [(i, j) for i, j in permutations(range(len(compared)), 2) if theirs[i] < theirs[j]]
    turned = [(compared[i].summary.method, compared[j].summary.method) for i, j in pairs if ours[i] >= ours[j]]
    tied = len(set(ours)) < 2 or len(set(theirs)) < 2
    spearman = None if tied else float(spearmanr(ours, theirs).statistic)
    kendall = None if tied else float(kendalltau(ours, theirs).statistic)
    return Agreement(len(compared), spearman, kendall, len(pairs) - len(turned), len(pairs), tuple(turned))


def agreement_line(found: Agreement) -> str:
    """The agreement in a sentence or two."""
    if found.spearman is None or found.kendall is None:
        return f"Ranking: {found.methods} methods with a published row, too few to compare."
    pairs = ", ".join(f"{better} < {worse}" for better, worse in found.reversed_pairs)
    return (
        f"Ranking: of {found.ordered} pairs of methods that the published figures order, ours order "
        f"{found.ordered_alike} the same way (Spearman {found.spearman:.2f}, Kendall {found.kendall:.2f}, "
        f"{found.methods} methods)." + (f" Published the other way round: {pairs}." if pairs else "")
    )
