"""What the levels of the field study show: a page in Markdown and two figures, from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dflearn.report.render import render
from dflearn.report.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE, VERMILLION, new_figure, styled, write_figure
from field_levels import DEGREES, FLOOR, NOISES, PROBLEMS, ROWS, level_of, size_of
from field_statistics import Field, Record

SHOWN = {"MSE": GREY, "SPO+": BLUE, "SPO+ kNN": INK, "SCE": VERMILLION, "PFY": GREEN, "QPTL": ORANGE}
BASELINE = "MSE"

HEADING = """# Misspecification, noise and training rows

`python benchmarks/studies/field_levels.py` goes on with what is lacking; `--no-run` writes this page again from the records.
[What it means](../../docs/field.md), for people.

{runs} runs of {methods} methods, seeds {seeds}, {failed} failed; regret as in [the comparison](README.md), and so are steps (levels), data, models
and judgement. **Parameters are those that the comparison chose** on its level (degree 6, noise 0.5) and 400 rows, on seed 0: nothing was
tuned again. *E[y | x]* decides with the true conditional mean: what noise costs, and no predictor avoids. Bold: the least regret of a
column. `*`: the paired difference to MSE is beyond chance, by the intervals of the comparison.
"""


def named(problem: str, level: str) -> str:
    return f"{problem}, {level}"


def fields(records: Sequence[Record]) -> tuple[Field, Field]:
    """All methods by level; and the floors, likewise."""
    each = [{**one, "problem": named(one["problem"], one["level"])} for one in records]
    return Field([one for one in each if one["method"] != FLOOR]), Field(
        [one for one in each if one["method"] == FLOOR]
    )


def table(field: Field, floors: Field, columns: dict[str, str]) -> str:
    """Regret by method; columns: heading → level."""
    columns = {heading: level for heading, level in columns.items() if level in field.problems}
    least = {level: min(field.mean(level, method) for method in field.methods) for level in columns.values()}
    order = field.by_problem(list(columns.values())).mean
    lines = [
        [method, f"{rank:.1f}", *(_cell(field, level, method, least[level]) for level in columns.values())]
        for method, rank in order.items()
    ]
    bottom = [f"{floors.mean(level, FLOOR):.2%}" if level in floors.problems else "" for level in columns.values()]
    return render(("method", "mean rank", *columns), [*lines, [FLOOR, "", *bottom]], "markdown") + "\n"


def _cell(field: Field, level: str, method: str, least: float) -> str:
    value = field.mean(level, method)
    one = field.difference(level, method, BASELINE) if method != BASELINE else None
    sure = "*" if one is not None and (one.high < 0 or one.low > 0) else ""
    return f"**{value:.2%}**{sure}" if value == least else f"{value:.2%}{sure}"


def ratio(field: Field, method: str, levels: Sequence[str]) -> float:
    """Regret over that of MSE, geometric mean."""
    known = [level for level in levels if level in field.problems]
    return float(np.exp(np.mean([np.log(field.mean(level, method) / field.mean(level, BASELINE)) for level in known])))


def beside_mse(field: Field) -> str:
    """Regret over that of MSE, one thing changed at a time from the level of the comparison; and counts over all levels."""
    by_degree = {f"degree {d}": [named(p, level_of(d, 0.5)) for p in PROBLEMS] for d in DEGREES}
    by_noise = {f"noise {n:g}": [named(p, level_of(6, n)) for p in PROBLEMS] for n in NOISES}
    groups = by_degree | by_noise
    levels = [named(p, level_of(d, n)) for p in PROBLEMS for d in DEGREES for n in NOISES]
    every = [level for level in levels if level in field.problems]
    lines = []
    for method, rank in field.by_problem(every).mean.items():
        if method == BASELINE:
            continue
        found = [field.difference(level, method, BASELINE) for level in every]
        counts = f"{sum(one.high < 0 for one in found)} / {sum(one.low > 0 for one in found)}"
        lines.append(
            [method, f"{rank:.1f}", counts, *(f"{ratio(field, method, levels):.2f}" for levels in groups.values())]
        )
    header = ("method", f"mean rank over {len(every)}", "less / more", *groups)
    return render(header, lines, "markdown") + "\n"


def page(records: Sequence[Record]) -> str:
    field, floors = fields(records)
    runs = [one for one in records if one["method"] != FLOOR]
    text = HEADING.format(
        runs=len(runs), methods=len(field.methods), seeds=", ".join(map(str, field.seeds)),
        failed=sum("error" in one for one in runs),
    )  # fmt: skip
    text += "\n## Misspecification and noise\n\n![Regret against degree](levels.svg)\n\n"
    text += (
        "Regret over MSE's, geometric means over both problems: by degree at noise 0.5, and by noise at degree 6. *Less / more*: on how "
        "many of all levels it is less or more than MSE's beyond chance.\n\n" + beside_mse(field)
    )
    for problem in PROBLEMS:
        for noise in NOISES:
            columns = {f"degree {degree}": named(problem, level_of(degree, noise)) for degree in DEGREES}
            if any(level in field.problems for level in columns.values()):
                text += f"\n### {problem}, noise {noise:g}\n\n" + table(field, floors, columns)
    text += (
        "\n## Training rows\n\n![Regret against rows](rows.svg)\n\nAbout 624 steps of 32 rows for every size, so that sizes differ in data and "
        "not in computation (100 rows: 156 epochs; 5,000: 4, with four looks at the validation rows in place of eight).\n"
    )
    for problem in PROBLEMS:
        columns = {f"{rows:,} rows": named(problem, size_of(rows)) for rows in ROWS}
        if any(level in field.problems for level in columns.values()):
            text += f"\n### {problem}\n\n" + table(field, floors, columns)
    commits = dict.fromkeys(str(one["machine"].get("commit")) for one in runs)
    minutes = sum(one.get("total", one["seconds"]) for one in runs) / 60
    return (
        text
        + f"\n{minutes:.0f} CPU minutes; {runs[0]['machine'].get('processor', '')}; commits {', '.join(commits)}.\n"
    )


# -- figures --------------------------------------------------------------------------------------------------------------


def _lines(axes: Axes, field: Field, floors: Field, x: Sequence[float], levels: Sequence[str]) -> None:
    there = [i for i, level in enumerate(levels) if level in field.problems]
    for method, colour in SHOWN.items():
        values = [100 * field.mean(levels[i], method) for i in there]
        axes.plot([x[i] for i in there], values, "-o", color=colour, markersize=3.5, linewidth=1.4, label=method)
    known = [i for i in there if levels[i] in floors.problems]
    axes.plot(
        [x[i] for i in known], [100 * floors.mean(levels[i], FLOOR) for i in known], ":", color=FAINT, label=FLOOR
    )
    axes.set_xticks(list(x))
    axes.set_ylim(bottom=0)


@styled
def levels_figure(field: Field, floors: Field) -> Figure:
    figure = new_figure(9.6, 5.6)
    for i, problem in enumerate(PROBLEMS):
        for j, noise in enumerate(NOISES):
            axes = figure.add_subplot(len(PROBLEMS), len(NOISES), i * len(NOISES) + j + 1)
            _lines(axes, field, floors, DEGREES, [named(problem, level_of(degree, noise)) for degree in DEGREES])
            axes.set_title(f"{problem}, noise {noise:g}")
            if i + 1 == len(PROBLEMS):
                axes.set_xlabel("degree of the true costs")
            if j == 0:
                axes.set_ylabel("regret, %")
            if (i, j) == (0, 0):
                axes.legend(fontsize=7)
    return figure


@styled
def rows_figure(field: Field, floors: Field) -> Figure:
    figure = new_figure(8.4, 3.6)
    for i, problem in enumerate(PROBLEMS):
        axes = figure.add_subplot(1, len(PROBLEMS), i + 1)
        axes.set_xscale("log")
        _lines(axes, field, floors, ROWS, [named(problem, size_of(rows)) for rows in ROWS])
        axes.set_xticks(ROWS, [f"{rows:,}" for rows in ROWS])
        axes.minorticks_off()
        axes.set_title(problem)
        axes.set_xlabel("training rows")
        if i == 0:
            axes.set_ylabel("regret, %")
            axes.legend(fontsize=7)
    return figure


def write(records: Sequence[Record], out: Path) -> None:
    field, floors = fields(records)
    if not field.seeds:
        print(f"{len(records)} runs; no seed is complete yet")
        return
    (out / "levels.md").write_text(page(records), encoding="utf-8")
    write_figure(levels_figure(field, floors), out, "levels", ["svg"])
    write_figure(rows_figure(field, floors), out, "rows", ["svg"])
