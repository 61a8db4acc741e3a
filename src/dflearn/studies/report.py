"""The report of a study: one page of its finished runs, in words, tables and figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.evaluation import METRICS
from dflearn.report.page import Page
from dflearn.report.render import Format, render, seed_list, titled, with_deviation
from dflearn.studies import figures
from dflearn.studies.record import Record
from dflearn.studies.summary import (
    MethodSummary,
    Ranking,
    pareto_front,
    problem_order,
    rankings,
    seeds_in_words,
    summarize,
)

CURVE = "validation_ratio_of_sums"
CURVES = 8  # learning curves in one figure
NAMED = 3  # methods that a sentence names
BASELINE = "MSE"
SECONDS = "s/epoch"


def results_table(
    found: Iterable[Ranking], metric: str, reference: figures.Reference | None = None
) -> tuple[list[str], list[list[str]]]:
    """Header and rows: every method on every problem, least regret first. reference: for a last column, "published"."""
    known = {} if reference is None else {key: f"{value:.2f}" for key, value in reference.items()}
    header = ["method", "problem", "seeds", metric.replace("_", " "), "rank", "behind the best", "above floor", SECONDS]
    shown = [(ranking, s) for ranking in found for s in ranking.all]
    rows = [
        [
            s.method,
            s.problem,
            seed_list(s.seeds),
            with_deviation(s.regret, s.deviation, len(s.seeds)),
            "" if np.isnan(s.rank) else f"{s.rank:g}",
            "" if s.behind is None or s is ranking.best else _behind(*s.behind),
            "" if np.isnan(s.above_floor) else f"{s.above_floor:.4f}",
            f"{s.seconds:.3g}",
        ]
        for ranking, s in shown
    ]
    published = [known.get((s.problem, s.method), "") for _, s in shown]
    if any(published):
        return [*header, "published"], [[*row, cell] for row, cell in zip(rows, published, strict=True)]
    return header, rows


def _behind(value: float, low: float, high: float) -> str:
    """0.0120 [0.0100, 0.0140]"""
    return f"{value:.4f}" + ("" if np.isnan(low) else f" [{low:.4f}, {high:.4f}]").replace("-", "−")


def tables(records: Iterable[Record], metric: str, form: Format, reference: figures.Reference | None = None) -> str:
    """One table per problem, for a document in Markdown or LaTeX."""
    parts = []
    for ranking in rankings(summarize(_checked(records), metric)):
        lines = results_table([ranking], metric, reference)
        header, *rows = ([line[0], *line[2:]] for line in (lines[0], *lines[1]))
        parts.append(f"{titled(ranking.problem, form)}\n\n{render(header, rows, form)}\n")
    return "\n".join(parts)


def study_page(
    records: Iterable[Record],
    title: str,
    metric: str = "mean_of_ratios",
    *,
    warnings: Iterable[str] = (),
    reference: figures.Reference | None = None,
    further: Callable[[Page], None] | None = None,
) -> Page:
    """The page of these runs, `warnings` first. reference: published regrets. further: adds sections before the last one."""
    some = _checked(records)
    summaries = summarize(some, metric)
    found = rankings(summaries)
    page = Page(title, _lead(some, summaries, found), contents=True)

    for warning in warnings:
        page.text(warning)
    page.section("In short")
    page.items((ranking.problem, _in_words(ranking)) for ranking in found)
    header, rows = _overall(found)
    if len(found) > 1 and rows:
        page.text(f"The {len(rows)} methods that are ranked on every problem, compared over all problems:")
        page.table(header, rows)
    if left_out := _left_out(found):
        page.text(
            "Means over different seeds are means over different data. So the methods of a problem are compared on seeds that "
            "they share, chosen for the most pairs. Other methods are in the table without a rank:"
        )
        page.items(left_out)

    page.section("All results")
    page.table(*results_table(found, metric, reference), choose=1 if len(found) > 1 else None)
    page.text(legend(metric), faint=True)

    page.section("Regret against time")
    page.text("Lower is better, further left is faster. No method beats the dashed line in both.", faint=True)
    label = f"test regret ({metric.replace('_', ' ')})"
    page.gallery((figures.trade_off(ranking.ranked, label), ranking.problem) for ranking in found)

    page.section("Problem by problem")
    known = any((s.problem, s.method) in (reference or {}) for s in summaries)
    dashes = " Dashes: as published." if known else ""
    page.text(f"Means over the seeds; whiskers: one standard deviation between them.{dashes}", faint=True)
    bars = ((figures.regret_bars(ranking.ranked, label, reference=reference), ranking.problem) for ranking in found)
    page.gallery(bars)

    curves = {ranking.problem: own for ranking in found if (own := _curves(ranking))}
    if curves:
        page.section("While training")
        page.text(
            "Regret on the validation set after every epoch (ratio of sums, on the LP relaxation), means over the seeds. "
            f"Of many methods: {BASELINE} and the {CURVES - 1} with the least test regret.",
            faint=True,
        )
        page.gallery((figures.learning_curves(own, "validation regret"), problem) for problem, own in curves.items())
    if further is not None:
        further(page)
    page.section("Where the numbers come from")
    page.facts(_provenance(some))
    return page


def _checked(records: Iterable[Record]) -> list[Record]:
    if some := list(records):
        return some
    raise DataError("this study holds no finished run yet: run it first")


def _lead(records: Sequence[Record], summaries: Sequence[MethodSummary], found: Sequence[Ranking]) -> str:
    wins = defaultdict[str, list[str]](list)
    for winner in (s for ranking in found for s in ranking.ranked if s.rank == 1):
        wins[winner.method].append(winner.problem)
    best = sorted(wins, key=lambda method: -len(wins[method]))
    least = "; ".join(f"{method} on {_listed(wins[method])}" for method in best)
    methods = _count(len({s.method for s in summaries}), "method")
    return (
        f"{_count(len(records), 'run')}: {methods} on {_count(len(found), 'problem')}, {seeds_in_words(summaries)}."
        + (f" Least test regret on the same seeds: {least}." if least else "")
    )


def _in_words(ranking: Ranking) -> str:
    """One problem in a sentence or two: the best method, its gain, the methods that may be as good, the fastest of these."""
    best, own = ranking.best, ranking.ranked
    text = f"{best.method} has the least regret, {with_deviation(best.regret, best.deviation, len(best.seeds))}"
    if len(own) > 1:
        text += f", of {len(own)} methods on {_seeds(ranking.seeds)}"
    baseline = next((s for s in own if s.method == BASELINE), None)
    if baseline is not None and baseline is not best and baseline.regret > 0:
        text += f", {100 * (1 - best.regret / baseline.regret):.0f} % below {BASELINE}"
    if not np.isnan(best.above_floor):
        text += f"; {best.above_floor:.4f} above the floor"
    close = [s for s in own if s is not best and s.behind is not None and s.behind.low <= 0]
    if close:
        more = [_count(len(close) - NAMED, "other")] if len(close) > NAMED else []
        text += f". Within chance of it: {_listed([s.method for s in close[:NAMED]] + more)}"
    fast = pareto_front(close)
    if fast and fast[0].seconds < 0.8 * best.seconds:
        text += f"; {fast[0].method} is {best.seconds / fast[0].seconds:.1f} times as fast"
    return text + "."


def _overall(found: Sequence[Ranking]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: mean rank and times best of the methods that are ranked on every problem."""
    from scipy.stats import rankdata

    own = [{s.method: s for s in ranking.ranked} for ranking in found]
    everywhere = [method for method in own[0] if all(method in methods for methods in own)]
    if not everywhere:
        return [], []
    regrets = np.array([[methods[method].regret for method in everywhere] for methods in own])
    seconds = np.array([[methods[method].seconds for method in everywhere] for methods in own])
    ranks = rankdata(regrets, axis=1)
    mean, wins = ranks.mean(0), (ranks == 1).sum(0)
    slower = np.exp(np.log(seconds / seconds.min(1, keepdims=True)).mean(0))
    rows = [[everywhere[k], f"{mean[k]:.2f}", str(wins[k]), f"{slower[k]:.3g}"] for k in mean.argsort(kind="stable")]
    return ["method", "mean rank", "times best", "time relative to the fastest"], rows


def _left_out(found: Iterable[Ranking]) -> list[tuple[str, str]]:
    """Problem and sentence, for each problem with runs that are not compared."""
    lines = []
    for ranking in found:
        parts = [f"{s.method} ({_seeds(s.seeds)})" for s in ranking.apart]
        parts += [f"{_count(ranking.unused, 'run')} of ranked methods with other seeds"] if ranking.unused else []
        if parts:
            lines.append((ranking.problem, f"compared on {_seeds(ranking.seeds)}; left out: {', '.join(parts)}."))
    return lines


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {seed_list(seeds)}"


def legend(metric: str) -> str:
    """The meaning of the columns of `results_table`."""
    return (
        f"{metric.replace('_', ' ')}: {METRICS[metric]}; ± is the standard deviation between the seeds. "
        "Behind the best: the mean difference to the best method, seed by seed (or for one seed instance by instance), with "
        "its 95 % interval. "
        "Above floor: Σ regret / Σ |optimum| less the same of deciding with E[y | x], which no predictor can beat. "
        f"{SECONDS}: CPU seconds of training per epoch, validation apart."
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _curves(ranking: Ranking) -> dict[str, list[float]]:
    """Method → mean validation regret after each epoch, of the methods to show."""
    own = ranking.all
    shown = own if len(own) <= CURVES else own[: CURVES - 1]
    curves = {}
    for s in (*shown, *(s for s in own if s.method == BASELINE and s not in shown)):
        if some := [curve for record in s.records if (curve := record.history.get(CURVE))]:
            curves[s.method] = np.mean([curve[: min(map(len, some))] for curve in some], axis=0).tolist()
    return curves


def _provenance(records: Sequence[Record]) -> list[tuple[str, str]]:
    seen, versions = defaultdict[str, set[Any]](set), defaultdict[str, set[str]](set)
    for name in ("commit", "processor", "system", "python"):
        seen[name] = {record.machine[name] for record in records if name in record.machine}
    for record in records:
        for package, version in record.machine.get("versions", {}).items():
            versions[package].add(version)
        for name, value in asdict(record.config.settings).items():
            seen[name.replace("_", " ")].add(value)
    packages = ", ".join(f"{package} {_values(found)}" for package, found in versions.items())
    hours = sum(record.seconds.get("total_wall", 0.0) for record in records) / 3600
    facts = {
        "runs": str(len(records)),
        "problems": ", ".join(sorted({record.config.problem for record in records}, key=problem_order)),
        "seeds": seed_list({record.config.seed for record in records}),
        "exact solver": _values({record.solver for record in records}),
        "packages": packages,
        **{name: _values(found) for name, found in seen.items()},
        "time of all runs": f"{hours:.2f} hours",
        "largest memory of a run": f"{max(record.peak_megabytes for record in records):.0f} MB",
    }
    notes = {note for record in records for note in record.notes}
    return [*facts.items(), *(("note", note) for note in sorted(notes))]


def _values(found: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(found)))
