"""What the practice study found: a table in Markdown and a figure, from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from benchmarks.practice import ON_DAYS
from benchmarks.practice.two_stage import TWO_STAGE
from dflearn.evaluation import estimates

Record = dict[str, Any]
BLOCK, LEVEL = 10, 0.95  # rows in a block, where rows are in order of time
RIVALS = (
    *TWO_STAGE,
    *(f"dflearn {name}" for name in TWO_STAGE),
)  # scikit-learn's, and those that the default fits itself
BLEND = "dflearn blend"  # of ridge and boosting: part of the default, which decision-focused training starts from
SHOWN = ("average costs", *TWO_STAGE, BLEND, "default")
INK, GREY, RED, GREEN = "#1f2933", "#9aa5b1", "#d1495b", "#2f855a"


class Difference(NamedTuple):
    """Mean of the default's regret − another's, in money, with its interval; negative is better."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        return "better" if self.high < 0 else "worse" if self.low > 0 else "no difference beyond chance"


def difference(records: list[Record], others: list[str]) -> Difference:
    """The default − the method named for each record."""
    series = [
        np.subtract(one["regrets"]["default"], one["regrets"][other])
        for one, other in zip(records, others, strict=True)
    ]
    found = estimates.mean(np.concatenate(series), LEVEL, block=BLOCK if records[0]["ordered"] else 1)
    return Difference(*found)


def over_seeds(records: list[Record], others: list[str]) -> Difference:
    """The same, with Student's interval over the means of the seeds: rows of one seed share a model and a history."""
    means = np.array([
        np.mean(np.subtract(one["regrets"]["default"], one["regrets"][other]))
        for one, other in zip(records, others, strict=True)
    ])  # fmt: skip
    half = (
        student.ppf((1 + LEVEL) / 2, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
        if len(means) > 1
        else np.nan
    )
    return Difference(float(means.mean()), float(means.mean() - half), float(means.mean() + half))


def pooled(records: list[Record], method: str) -> float:
    return float(np.mean(np.concatenate([one["regrets"][method] for one in records])))


def by_choosing(record: Record) -> str:
    """The two-stage method of least regret on the rows to choose by."""
    return min(RIVALS, key=record["choosing"].__getitem__)


def in_hindsight(records: list[Record]) -> str:
    """The two-stage method of least regret on the test rows of all seeds."""
    return min(RIVALS, key=lambda method: pooled(records, method))


def by_problem(records: list[Record]) -> dict[str, list[Record]]:
    return {
        name: [one for one in records if one["problem"] == name]
        for name in dict.fromkeys(one["problem"] for one in records)
    }


def summary(records: list[Record]) -> str:
    """One table of regrets, one of differences, and the seconds and choices of every run."""
    regrets = ["| problem | rows tested | optimum | " + " | ".join(SHOWN) + " |", "|---" * (3 + len(SHOWN)) + "|"]
    differences = [
        "| problem | − best two-stage by choosing rows | verdict | over seeds | − best in hindsight | which | verdict | − its own blend | verdict |",
        "|---" * 9 + "|",
    ]
    runs = ["| problem | seed | kept | best two-stage by choosing rows | seconds | of processor |", "|---" * 6 + "|"]
    for name, own in by_problem(records).items():
        optimum = float(np.mean(np.abs(np.concatenate([one["optima"] for one in own]))))
        means = {method: pooled(own, method) for method in SHOWN}
        least = min(means.values())
        cells = [_bold(f"{mean:.4g} ({mean / optimum:.2%})", mean == least) for mean in means.values()]
        rows = sum(len(one["optima"]) for one in own)
        regrets.append(f"| {name}, {own[0]['money']} | {rows} | {optimum:.4g} | {' | '.join(cells)} |")
        hindsight = in_hindsight(own)
        others = ([by_choosing(one) for one in own], [hindsight] * len(own), [BLEND] * len(own))
        found = [difference(own, other) for other in others]
        seeds = over_seeds(own, others[0])
        shown = [f"{one.value:+.3g} [{one.low:+.3g}, {one.high:+.3g}]" for one in found]
        said = [_bold(one.verdict, one.high < 0 or one.low > 0) for one in found]
        differences.append(
            f"| {name} | {shown[0]} | {said[0]} | [{seeds.low:+.3g}, {seeds.high:+.3g}] | {shown[1]} | {hindsight} | {said[1]} | {shown[2]} | {said[2]} |"
        )
        for one in own:
            runs.append(
                f"| {name} | {one['seed']} | {one['chosen']} | {by_choosing(one)} | {one['seconds']['default']:.0f} | {one['seconds']['default, processor']:.0f} |"
            )
    return HEADING.format(**_about(records)) + "\n".join(
        ["## Mean regret on the test rows, and its share of the mean optimum", "", *regrets, "",
         "## The default's regret − that of two-stage, in money", "", *differences, "", "## Runs", "", *runs, ""]
    )  # fmt: skip


HEADING = """# Practice: {problems} problems

Seeds of generated problems: {seeds}. Origins of real days: {origins}.

`make practice` (or `python -m benchmarks.practice.study`; `--no-run` writes this page again from the records)

The default is `dflearn.train` with no option touched. Two-stage forecasts are scikit-learn's least squares, ridge (strength by
leave-one-out) and boosting, on the same columns, fitted to all rows but those tested; "dflearn least squares" and so on are those
that `train` fits itself, and compete with them for the best two-stage. By choosing rows: the least regret on the rows to choose by when
fitted to the others. In hindsight: the least on the test rows of all seeds. The blend of ridge and boosting is the default's own.
Intervals: {level:.0%}, studentized block bootstrap over test rows, pooled over seeds; blocks of {block} rows where rows are in order of
time, of one row elsewhere. "Over seeds": Student's, over the means of the seeds, since rows of one seed share a model. Seconds: one core, everything that `train` does, labels included; by the clock, and of the processor alone.
{days}Commits {commits}; problems, generators and splits are those of `benchmarks/practice`, committed before any run.

"""


def _about(records: list[Record]) -> dict[str, Any]:
    synthetic = any(one["synthetic days"] for one in records)
    return {
        "problems": len(by_problem(records)),
        "seeds": ", ".join(map(str, sorted({one["seed"] for one in records if one["problem"] not in ON_DAYS}))),
        "origins": ", ".join(map(str, sorted({one["seed"] for one in records if one["problem"] in ON_DAYS}))),
        "level": LEVEL,
        "block": BLOCK,
        "days": "**Energy days are SYNTHETIC here: no file of real ones was named.**\n" if synthetic else "",
        "commits": ", ".join(sorted({one["machine"]["commit"] for one in records})),
    }


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text


def draw(path: Path, records: list[Record]) -> None:
    """The share of the best two-stage's regret (by choosing rows) that the default saves, problem by problem."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    groups = by_problem(records)
    figure = Figure(figsize=(8, 1 + 0.5 * len(groups)), layout="constrained")
    axes = figure.subplots()
    for place, own in enumerate(groups.values()):
        for shift, filled, others in (
            (-0.13, True, [by_choosing(one) for one in own]),
            (0.13, False, [in_hindsight(own)] * len(own)),
        ):
            found = difference(own, others)
            whole = float(
                np.mean(np.concatenate([one["regrets"][other] for one, other in zip(own, others, strict=True)]))
            )
            value, low, high = (-part / whole for part in found)
            color = {"better": GREEN, "worse": RED}.get(found.verdict, GREY)
            axes.errorbar(
                value, place + shift, xerr=[[value - high], [low - value]], color=color, fmt="o", capsize=3,
                markerfacecolor=color if filled else "white",
            )  # fmt: skip
    axes.set_yticks(range(len(groups)), list(groups))
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel(
        "regret that the default saves, as a share of the best two-stage's (filled: by choosing rows; open: in hindsight)",
        fontsize=8,
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def write(folder: Path, records: list[Record]) -> str:
    """table.md and saved.png in the folder; the table."""
    if not records:
        return f"{folder} holds no run"
    text = summary(records)
    (folder / "table.md").write_text(text, encoding="utf-8")
    try:
        draw(folder / "saved.png", records)
    except ModuleNotFoundError as error:
        print(f"no figure: {error}")
    return text
