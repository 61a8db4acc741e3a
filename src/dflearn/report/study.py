"""The report of a study: one page that says in words, tables and pictures what its finished runs show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.evaluation import METRICS
from dflearn.paper.figures import COMPUTED, FROM_RECORDS, make_figure
from dflearn.paper.render import Format, render
from dflearn.report import figures
from dflearn.report.page import Page
from dflearn.studies.record import Record
from dflearn.studies.summary import (
    MethodSummary,
    named,
    pareto_front,
    problem_order,
    problems_of,
    seeds_in_words,
    summarize,
)

CURVE = "validation_ratio_of_sums"
CURVES = 8  # methods whose learning curves fit into one picture
BASELINE = "MSE"


def results_table(records: Sequence[Record], metric: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows: every method on every problem, least regret first; empty where something is not known."""
    header = ["method", "problem", "seeds", metric.replace("_", " "), "rank", "above the floor", "s/epoch", "published"]
    rows = []
    for s in summarize(records, metric):
        published = s.published if metric == "published_style" else None
        rows.append(
            [
                s.method,
                s.problem,
                str(len(s.seeds)),
                with_deviation(s.regret, s.deviation, len(s.seeds)),
                f"{s.rank:g}",
                "" if np.isnan(s.above_floor) else f"{s.above_floor:.4f}",
                f"{s.seconds:.3g}",
                "" if published is None else f"{published.regret:.2f}",
            ]
        )
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return header, rows


def with_deviation(mean: float, deviation: float, seeds: int) -> str:
    return f"{mean:.4f} ± {deviation:.4f}" if seeds > 1 else f"{mean:.4f}"


def tables(records: Sequence[Record], metric: str, form: Format) -> str:
    """One table per problem, for a document in Markdown or LaTeX."""
    header, rows = results_table(_checked(records), metric)
    place = header.index("problem")
    without = lambda row: [cell for k, cell in enumerate(row) if k != place]  # noqa: E731
    parts = []
    for problem in dict.fromkeys(row[place] for row in rows):
        title = f"% {problem}" if form == "latex" else f"### {problem}" if form == "markdown" else problem
        own = [without(row) for row in rows if row[place] == problem]
        parts.append(f"{title}\n\n{render(without(header), own, form)}\n")
    return "\n".join(parts)


def study_page(
    records: Iterable[Record],
    title: str,
    metric: str = "mean_of_ratios",
    *,
    warnings: Iterable[str] = (),
    with_figures: bool = True,
) -> Page:
    """The page of these runs.

    warnings: what the reader must know first. with_figures: the paper's figures too, as far as the runs allow.
    """
    some = _checked(records)
    summaries = summarize(some, metric)
    problems = problems_of(summaries)
    of = {problem: [s for s in summaries if s.problem == problem] for problem in problems}
    page = Page(title, _lead(some, summaries), contents=True)

    for warning in warnings:
        page.text(warning)
    page.section("In short")
    page.items((problem, _in_words(own)) for problem, own in of.items())
    if len({s.seeds for s in summaries}) > 1:
        page.text("Not every method has run with the same seeds yet, so some of these means are over other data.")
    header, rows = _overall(summaries, problems)
    if len(problems) > 1 and rows:
        page.text("Over all problems, the methods that ran on every one of them:")
        page.table(header, rows)

    page.section("All results")
    page.table(*results_table(some, metric), choose=1)
    page.text(_legend(metric), faint=True)
    page.folded("The same as Markdown", tables(some, metric, "markdown"))
    page.folded("The same as LaTeX (booktabs)", tables(some, metric, "latex"))

    page.section("Regret against time")
    page.text("Further down is better, further left is faster; nothing beats the dashed line in both.", faint=True)
    label = f"test regret ({metric.replace('_', ' ')})"
    page.gallery((figures.trade_off(own, label), problem) for problem, own in of.items())

    page.section("Problem by problem")
    published = metric == "published_style"
    page.text(
        f"Means over {seeds_in_words(summaries)}; whiskers: one standard deviation between the seeds."
        + (" Dashes: as published." if published and any(s.published for s in summaries) else ""),
        faint=True,
    )
    page.gallery((figures.regret_bars(own, label, published=published), problem) for problem, own in of.items())

    curves = {problem: _curves(some, own) for problem, own in of.items()}
    if any(curves.values()):
        page.section("While training")
        page.text(
            "Regret on the validation set after every epoch (ratio of sums, on the LP relaxation), means over the seeds. "
            f"Where there are many methods, {BASELINE} and the {CURVES - 1} with the least test regret.",
            faint=True,
        )
        page.gallery(
            (figures.learning_curves(own, "validation regret", width=4.7), problem)
            for problem, own in curves.items()
            if own
        )
    if with_figures:
        _add_figures(page, some)
    page.section("Where the numbers come from")
    page.facts(_provenance(some))
    return page


def _checked(records: Iterable[Record]) -> list[Record]:
    some = list(records)
    if not some:
        raise DataError(
            "this study holds no finished run yet: `dfl run` carries them out, `dfl status` says how far it is"
        )
    return some


# -- in words -------------------------------------------------------------------------------------------------------


def _lead(records: Sequence[Record], summaries: Sequence[MethodSummary]) -> str:
    problems, methods = problems_of(summaries), {s.method for s in summaries}
    wins: defaultdict[str, list[str]] = defaultdict(list)
    for s in summaries:
        if s.rank == 1:
            wins[s.method].append(s.problem)
    best = sorted(wins, key=lambda method: -len(wins[method]))
    told = "; ".join(f"{method} on {_listed(wins[method])}" for method in best)
    return (
        f"{_count(len(records), 'run')}: {_count(len(methods), 'method')} on {_count(len(problems), 'problem')}, "
        f"{seeds_in_words(summaries)}. Least test regret: {told}."
    )


def _in_words(own: Sequence[MethodSummary]) -> str:
    """What one problem's runs say: the best, what it gains, and what comes close in less time."""
    best = min(own, key=lambda s: s.regret)
    text = f"{best.method} has the least regret, {with_deviation(best.regret, best.deviation, len(best.seeds))}"
    baseline = next((s for s in own if s.method == BASELINE), None)
    if baseline is not None and baseline is not best and baseline.regret > 0:
        text += f", {100 * (1 - best.regret / baseline.regret):.0f} % below {BASELINE}"
    if not np.isnan(best.above_floor):
        text += f"; {best.above_floor:.4f} above the floor"
    near = [s for s in pareto_front(own) if s is not best and s.regret <= best.regret + best.deviation]
    if near and near[0].seconds < 0.8 * best.seconds:
        quick = best.seconds / near[0].seconds
        text += f". {near[0].method} is within one standard deviation of it and {quick:.1f} times as fast"
    return text + "."


def _overall(summaries: Sequence[MethodSummary], problems: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: mean rank and times best of the methods that have run on every problem."""
    by_method: defaultdict[str, list[MethodSummary]] = defaultdict(list)
    for s in summaries:
        by_method[s.method].append(s)
    everywhere = {method: own for method, own in by_method.items() if len(own) == len(problems)}
    fastest = {problem: min(s.seconds for s in summaries if s.problem == problem) for problem in problems}
    rows = []
    for method, own in sorted(everywhere.items(), key=lambda item: float(np.mean([s.rank for s in item[1]]))):
        slower = float(np.exp(np.mean([np.log(s.seconds / fastest[s.problem]) for s in own])))
        wins = sum(s.rank == 1 for s in own)
        rows.append([method, f"{np.mean([s.rank for s in own]):.2f}", str(wins), f"{slower:.3g}"])
    return ["method", "mean rank", "times best", "time relative to the fastest"], rows


def _legend(metric: str) -> str:
    return (
        f"{metric.replace('_', ' ')}: {METRICS[metric]}; ± is the standard deviation between the seeds. "
        f"Above the floor: Σ regret / Σ |optimum| less the same of {figures.FLOOR}, the best any predictor can do. "
        "s/epoch: CPU seconds of training per epoch, validation apart. Click on a head to sort."
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# -- pictures -------------------------------------------------------------------------------------------------------


def _curves(records: Sequence[Record], own: Sequence[MethodSummary]) -> dict[str, list[float]]:
    """Method → mean validation regret after each epoch, of the methods to show."""
    shown = [s.method for s in own] if len(own) <= CURVES else [s.method for s in own[: CURVES - 1]]
    if len(own) > CURVES and BASELINE in (s.method for s in own) and BASELINE not in shown:
        shown.append(BASELINE)
    histories: defaultdict[str, list[Sequence[float]]] = defaultdict(list)
    for record, method in named(records):
        if record.config.problem == own[0].problem and method in shown and record.history.get(CURVE):
            histories[method].append(record.history[CURVE])
    return {
        method: np.mean([curve[: min(map(len, curves))] for curve in curves], axis=0).tolist()
        for method in shown
        if (curves := histories.get(method))
    }


def _add_figures(page: Page, records: Sequence[Record]) -> None:
    page.section("The paper's figures")
    for name in (*FROM_RECORDS, *COMPUTED):
        if name == "state-of-the-art":
            continue  # the section on regret against time shows it, problem by problem
        try:
            made = make_figure(name, records=records)
        except DataError:
            if name in COMPUTED:
                raise
            continue  # the study holds none of the runs that this figure shows
        page.figure(made.figure, " ".join(made.findings), f"{made.title}.")
        if made.table is not None:
            page.table(*made.table)


# -- provenance -----------------------------------------------------------------------------------------------------


def _provenance(records: Sequence[Record]) -> list[tuple[str, str]]:
    machines = [record.machine for record in records]
    versions: defaultdict[str, set[str]] = defaultdict(set)
    for machine in machines:
        for package, version in machine.get("versions", {}).items():
            versions[package].add(version)
    settings: defaultdict[str, set[Any]] = defaultdict(set)
    for record in records:
        for name, value in record.config.as_dict()["settings"].items():
            settings[name].add(value)
    problems = sorted({record.config.problem for record in records}, key=problem_order)
    hours = sum(record.seconds.get("total_wall", 0.0) for record in records) / 3600
    facts = {
        "runs": str(len(records)),
        "problems": ", ".join(problems),
        "seeds": _values({record.config.seed for record in records}),
        "exact solver": _values({record.solver for record in records}),
        "commit": _of(machines, "commit"),
        "processor": _of(machines, "processor"),
        "system": _of(machines, "system"),
        "python": _of(machines, "python"),
        "packages": ", ".join(f"{package} {_values(found)}" for package, found in versions.items()),
        **{name.replace("_", " "): _values(found) for name, found in settings.items()},
        "time of all runs": f"{hours:.2f} hours",
        "largest memory of a run": f"{max(record.peak_megabytes for record in records):.0f} MB",
    }
    notes = {note for record in records for note in record.notes}
    return [*facts.items(), *(("note", note) for note in sorted(notes))]


def _of(machines: Sequence[Mapping[str, Any]], key: str) -> str:
    return _values({machine[key] for machine in machines if key in machine})


def _values(found: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(found)))
