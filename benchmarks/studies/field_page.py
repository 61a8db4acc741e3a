"""What the field study found: a page in Markdown and its figures, from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.report.render import render
from dflearn.report.style import write_figure
from field_default import KNOWN, verdict
from field_figures import ranks_figure, relative, seconds, spent, time_figure, timed
from field_fresh import verdict as fresh_verdict
from field_methods import METHODS
from field_statistics import Field, Ranking, Record

BASELINE = "SPO+"
SOLVES = {method.name: method.solves for method in METHODS}
TUNED = {method.name: method.tuned for method in METHODS}

HEADING = """# Every method of the field on the same problems

`python benchmarks/studies/field.py` goes on with what is lacking; `--no-run` writes this page again from the records, and with
`--methods` or `--problems` shows some of them. [What it means](../../docs/field.md), for people. Beside it: [levels of misspecification and
noise, and of training rows](levels.md), and [trees](trees.md).

{runs} runs: {methods} methods{apart}, {problems} problems for all of them and {others} for those that are defined there, seeds {seeds} in
common; {failed} runs failed. Every method had five trials per problem on seed 0, judged on that seed's validation rows: five values of
its own parameter at learning rate {rate}, or five learning rates where it has none; then its choice was fixed. All took the same steps on the
same rows with the same first weights, in units of the costs, and kept the weights with the least validation regret out of eight looks. Regret is
Σ regret / Σ |optimum| on test rows, decided exactly. One core, CPU seconds.
"""


def brief(records: Sequence[Record]) -> str:
    """As text: mean regrets and ranks among these methods."""
    field, _ = ranked(records)
    return page_table(field, "text") if field.seeds else f"{len(records)} runs; no seed is complete yet"


def ranked(records: Sequence[Record]) -> tuple[Field, list[str]]:
    """The methods that were tested on every problem that most were, and the names of the others, which have no mean rank."""
    every = Field(records)
    most = [
        name
        for name in dict.fromkeys(one["problem"] for one in records)
        if len(every.methods_on(name)) > 0.75 * len(every.methods)
    ]
    apart = [name for name in every.methods if any(not every.seeds_of(problem, name) for problem in most)]
    return Field([one for one in records if one["method"] not in apart]), apart


def page_table(field: Field, form: Any = "markdown") -> str:
    mean = field.by_problem().mean
    least = {
        problem: np.nanmin([field.mean(problem, method) for method in field.methods]) for problem in field.problems
    }
    lines = []
    for method, rank in mean.items():
        cells = [field.mean(problem, method) for problem in field.problems]
        marked = [
            f"**{value:.2%}**" if value == least[problem] and form == "markdown" else f"{value:.2%}"
            for problem, value in zip(field.problems, cells, strict=True)
        ]
        lines.append([method, f"{rank:.1f}", *marked])
    return render(("method", "mean rank", *field.problems), lines, form)


def page(records: Sequence[Record]) -> str:
    from field import RATE

    field, apart = ranked(records)
    by_problem, by_run = field.by_problem(), field.by_run()
    failed = sum("error" in one for one in records)
    text = HEADING.format(
        runs=len(records), apart=f" (and {', '.join(apart)} on some of the problems)" if apart else "", methods=len(field.methods), problems=len(field.problems), others=len(field.others),
        seeds=", ".join(map(str, field.seeds)), failed=failed, rate=RATE,
    )  # fmt: skip
    text += "\n## Regret and mean ranks\n\n![Mean ranks](ranks.svg)\n\n" + page_table(field) + "\n\n"
    text += _tests(field, by_problem, by_run)
    text += "\n## In short\n\n" + summary(field)
    text += "\n## Beside SPO+, paired\n\n" + _differences(field)
    text += "\n## Time, solves and sensitivity\n\n![Regret against time](time.svg)\n\n" + _costs(field)
    text += "\n## A default\n\n" + verdict(records) + f"\n\n{fixed_default(field)}\n"
    text += "\n## A hypothesis on fresh problems\n\n" + fresh_verdict(records)
    for problem in field.others:
        text += f"\n## {problem}, for the methods that ran there\n\n" + _alone(Field(records), problem)
    for method in apart:
        text += f"\n## {method}, on the problems that it was run on\n\n" + _beside(Field(records), field, method)
    text += "\n## What was run\n\n" + _settings(records)
    return text + _failures(records)


def _tests(field: Field, by_problem: Ranking, by_run: Ranking) -> str:
    best, *rest = by_problem.mean.items()
    near = [name for name, rank in rest if rank - best[1] <= by_problem.distance]
    runs_best = next(iter(by_run.mean.items()))
    near_runs = [name for name, rank in by_run.mean.items() if rank - runs_best[1] <= by_run.distance]
    return (
        f"Friedman over {len(field.problems)} problems: p = {by_problem.p_value:.1e}; Nemenyi's critical difference at 5 % is "
        f"{by_problem.distance:.1f} ranks, so that {best[0]} (mean rank {best[1]:.1f}) is not told apart from {len(near)} others: "
        f"{', '.join(near)}.\nOver {len(by_run.ranks)} pairs of problem and seed, which share tuning within a problem and so are no "
        f"independent blocks: p = {by_run.p_value:.1e}, {by_run.distance:.1f} ranks; then the first group is {', '.join(near_runs)}.\n"
    )


def summary(field: Field, form: Any = "markdown") -> str:
    """A line per method: ranks, regret beside MSE's, and on how many problems it has less or more than two others."""
    lines, found = [], field.by_problem()
    for method, rank in found.mean.items():
        counts = [
            f"{count}" if method != other else ""
            for other in ("MSE", BASELINE)
            for count in (field.beats(method, other) if method != other else ("", ""))
        ]
        own = [field.mean(problem, method) for problem in field.problems]
        least = [min(field.mean(problem, other) for other in field.methods) for problem in field.problems]
        first = sum(one == best for one, best in zip(own, least, strict=True))
        ranks = found.ranks[:, field.methods.index(method)]
        lines.append(
            [method, f"{rank:.1f}", f"{ranks.min():.0f} to {ranks.max():.0f}", str(first), f"{relative(field, method):.2f}", *counts, f"{seconds(field, method):.1f}"]
        )  # fmt: skip
    number = len(field.problems)
    header = (
        "method", f"mean rank of {len(field.methods)}", "ranks", "first on", "regret / MSE's", f"less than MSE, of {number}", "more",
        f"less than {BASELINE}, of {number}", "more", "CPU s / MSE's",
    )  # fmt: skip
    return (
        "*Less* and *more*: on how many problems the paired difference is beyond chance, as below. Geometric means: regret over all "
        "problems, seconds over three of them.\n\n" + render(header, lines, form) + "\n"
    )


def _differences(field: Field) -> str:
    lines = []
    for method in field.by_problem().mean:
        if method != BASELINE:
            found = [field.difference(problem, method, BASELINE) for problem in field.problems]
            cells = [
                f"{'**' if one.high < 0 or one.low > 0 else ''}{100 * one.value:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
                f"{'**' if one.high < 0 or one.low > 0 else ''}"
                for one in found
            ]
            better, worse = sum(one.high < 0 for one in found), sum(one.low > 0 for one in found)
            lines.append([method, f"{better} / {worse}", *cells])
    return (
        f"Regret less that of {BASELINE} in points of the optimum, with 95 % intervals by the hierarchical bootstrap (seeds, then test "
        "instances; no narrower than Student's over seeds). Bold: beyond chance. Second column: on how many problems less / more.\n\n"
        + render(("method", "less / more", *field.problems), lines, "markdown")
        + "\n"
    )


def _costs(field: Field) -> str:
    lines = []
    beside = "MSE" in field.methods
    for method in field.by_problem().mean:
        middle, worst = field.sensitivity(method)
        absolute = np.median([spent(field, problem, method) for problem in timed(field)])
        lines.append(
            [
                method,
                f"{relative(field, method):.2f}" if beside else "",
                f"{absolute:.2f}",
                f"{seconds(field, method):.1f}" if beside else "",
                f"{400 * SOLVES[method]:.0f}",
                TUNED[method],
                f"{middle:.2f}",
                f"{worst:.2f}",
                str(field.at_the_edge(method)),
            ]
        )
    header = (
        "method", "regret / MSE's", "CPU s a run", "× MSE", "solves an epoch of 400", "tuned", "middle / best", "worst / best", "at the edge",
    )  # fmt: skip
    return (
        "Regret and seconds relative to MSE: geometric means over problems. CPU seconds of a whole run, with what is prepared before "
        f"training, on {', '.join(timed(field))}, where all methods ran on one day (median): solves are by HiGHS on the last two. Solves "
        "inside the loss, smoothed ones included (pools: on average; LODL: 50 per instance before). Then validation regret on seed 0 with the middle "
        "and with the worst of the five values, over that with the best, medians over problems; and on how many problems the best value was the "
        "first or the last of the five, so that a wider grid might find better ones.\n\n"
        + render(header, lines, "markdown")
        + "\n"
    )


def fixed_default(field: Field) -> str:
    """One method with one value for all problems, chosen on the first nine by the tuning seed's validation regret."""
    chosen_on = [name for name in field.problems if name in KNOWN[:9]]
    confirmed_on = [name for name in field.problems if name not in KNOWN[:9]]
    if not chosen_on or not confirmed_on:
        return ""

    def ranks(problems: list[str]) -> dict[tuple[str, float], float]:
        names = [(method, value) for method in field.methods for value, _ in field.trials(problems[0], method)]
        from scipy.stats import rankdata

        rows = [
            rankdata([regret for method in field.methods for _, regret in field.trials(problem, method)])
            for problem in problems
        ]
        means = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
        return dict(sorted(means.items(), key=lambda pair: pair[1]))

    chosen, confirmed = ranks(chosen_on), ranks(confirmed_on)
    (method, value), rank = next(iter(chosen.items()))
    place = list(confirmed).index((method, value)) + 1
    return (
        f"Without any tuning: of all {len(chosen)} pairs of a method and one value, on seed 0's validation rows, {method} with "
        f"{TUNED[method]} = {value:g} has the best mean rank on the first {len(chosen_on)} problems, {rank:.1f}; on the {len(confirmed_on)} others it has "
        f"{confirmed[method, value]:.1f}, place {place} of {len(confirmed)}, where {_named(next(iter(confirmed)))} is first."
    )


def _named(pair: tuple[str, float]) -> str:
    return f"{pair[0]} with {TUNED[pair[0]]} = {pair[1]:g}"


def _alone(field: Field, problem: str) -> str:
    methods = field.methods_on(problem)
    seeds = field.common(problem, methods)
    lines = []
    for method in sorted(methods, key=lambda name: field.mean(problem, name)):
        one = field.difference(problem, method, "MSE")
        paired = "" if method == "MSE" else f"{100 * one.value:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
        lines.append([method, f"{field.mean(problem, method):.2%}", paired])
    return f"Seeds {', '.join(map(str, seeds))}; points less than MSE, paired.\n\n" + (
        render(("method", "regret", "less MSE"), lines, "markdown") + "\n"
    )


def _beside(every: Field, field: Field, method: str) -> str:
    """A method that has not all problems, and so no mean rank: its regret, the rank that it would have, and MSE's."""
    lines = []
    for problem in (name for name in field.problems if every.seeds_of(name, method) >= set(field.seeds)):
        mean = float(np.mean([every.value(problem, method, seed) for seed in field.seeds]))
        rank = 1 + sum(field.mean(problem, other) < mean for other in field.methods)
        one = every.difference(problem, method, "MSE")
        paired = f"{100 * one.value:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
        lines.append([problem, f"{mean:.2%}", f"{rank} of {len(field.methods) + 1}", paired])
    return render(("problem", "regret", "rank there", "less MSE, points"), lines, "markdown") + "\n"


def _settings(records: Sequence[Record]) -> str:
    lines = []
    for problem in dict.fromkeys(one["problem"] for one in records):
        own = [one for one in records if one["problem"] == problem]
        settings, spent = own[0]["settings"], sum(one.get("total", one["seconds"]) for one in own)
        seeds = sorted({one["seed"] for one in own})
        lines.append(
            [problem, *map(str, settings.values()), ", ".join(map(str, seeds)), str(len(own)), f"{spent / 60:.1f}"]
        )
    header = ("problem", *records[0]["settings"], "seeds", "runs", "CPU minutes")
    machine = records[0]["machine"]
    commits = dict.fromkeys(str(one["machine"].get("commit")) for one in records)
    return (
        render(header, lines, "markdown")
        + f"\n\n{machine.get('processor', '')}; commits {', '.join(commits)}; versions in the records. Samples of noisy methods: 5.\n"
    )


def _failures(records: Sequence[Record]) -> str:
    found: dict[tuple[str, str, str], int] = {}
    for one in records:
        if "error" in one:
            key = one["problem"], one["method"], one["error"][:160]
            found[key] = found.get(key, 0) + 1
    if not found:
        return ""
    lines = [[*key, str(count)] for key, count in found.items()]
    return "\n### Runs that failed\n\n" + render(("problem", "method", "why", "runs"), lines, "markdown") + "\n"


def write(records: Sequence[Record], out: Path) -> None:
    field, _ = ranked(records)
    if not field.seeds:
        return
    (out / "README.md").write_text(page(records), encoding="utf-8")
    write_figure(ranks_figure(field), out, "ranks", ["svg"])
    if "MSE" in field.methods:
        write_figure(time_figure(field), out, "time", ["svg"])
