"""What the frontier study found: a table in Markdown and a figure, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dflearn.report.render import render
from dflearn.report.style import label_ends, log_ticks, new_figure, styled, write_figure

Record = dict[str, Any]
FLOOR = "E[y|x]"
COLORS = {"linear": "#0072B2", "degree 2": "#D55E00", "net": "#009E73", "trees": "#882255"}
HERE, THERE = "mean_of_ratios", "published_style"


def order(records: Sequence[Record], name: str) -> list[Any]:
    """The values of a field, in the order in which they come first; without those of the floor."""
    return list(dict.fromkeys(one[name] for one in records if one["model"] != FLOOR))


def mean(records: Sequence[Record], metric: str = HERE, **wanted: Any) -> float:
    """Over seeds; NaN where there are no such runs."""
    found = [one[metric] for one in records if all(one[name] == value for name, value in wanted.items())]
    return float(np.mean(found)) if found else float("nan")


def chosen(records: Sequence[Record], **wanted: Any) -> float:
    """The mean over seeds of the decision-focused run with the least regret on the validation rows of its seed."""
    runs = [
        one for one in records if all(one[name] == value for name, value in wanted.items()) and one["loss"] != "MSE"
    ]
    best = [
        min((one for one in runs if one["seed"] == seed), key=lambda one: one["validation"])
        for seed in order(runs, "seed")
    ]
    return mean(best)


def page(records: Sequence[Record]) -> str:
    """Every mean, then how much of the way from least squares to the floor each change goes."""
    losses, sizes, models = (order(records, name) for name in ("loss", "size", "model"))
    sizes = sorted(sizes)
    text = "# How low can regret go?\n\n"
    text += "`python benchmarks/studies/frontier.py` (`--no-run` writes this page again from the records)\n\n"
    text += "Mean of regret / optimum on 1000 test instances, over the seeds shown; in brackets the published style. n: training\n"
    text += "instances. Of each column the least is bold. The floor decides with E[y|x], which no predictor can beat.\n"
    for problem in order(records, "problem"):
        own = [one for one in records if one["problem"] == problem]
        seeds = ", ".join(map(str, order(own, "seed")))
        text += f"\n## {problem}, seeds {seeds}\n\n"
        text += f"Floor: {mean(own, model=FLOOR):.4f} ({mean(own, THERE, model=FLOOR):.4f})\n\n"
        least = {
            size: min(_finite(mean(own, model=model, loss=loss, size=size) for model in models for loss in losses))
            for size in sizes
        }
        lines = []
        for model in models:
            for loss in losses:
                cells = [(mean(own, model=model, loss=loss, size=size), size) for size in sizes]
                published = [mean(own, THERE, model=model, loss=loss, size=size) for size in sizes]
                lines.append(
                    [model, loss]
                    + [
                        _cell(value, other, value == least[size])
                        for (value, size), other in zip(cells, published, strict=True)
                    ]
                )
        text += render(("model", "loss", *(f"n = {size}" for size in sizes)), lines, "markdown") + "\n"
    return text + "\n" + gaps(records, sizes, models)


def gaps(records: Sequence[Record], sizes: Sequence[int], models: Sequence[str]) -> str:
    """Least squares with 1000 instances is the start; how much of its distance to the floor each change takes off."""
    base, most = 1000, max(sizes)
    lines = []
    for problem in order(records, "problem"):
        own = [one for one in records if one["problem"] == problem]
        start, floor = mean(own, model="linear", loss="MSE", size=base), mean(own, model=FLOOR)
        reached = {
            "the loss": chosen(own, model="linear", size=base),
            "the model": min(_finite(mean(own, model=model, loss="MSE", size=base) for model in models)),
            "the data": mean(own, model="linear", loss="MSE", size=most),
            "loss and model": min(_finite(chosen(own, model=model, size=base) for model in models)),
            "loss and data": chosen(own, model="linear", size=most),
            "model and data": min(_finite(mean(own, model=model, loss="MSE", size=most) for model in models)),
            "all three": min(_finite(chosen(own, model=model, size=most) for model in models)),
        }
        gap = start - floor
        lines.append(
            [problem, f"{start:.4f}", f"{floor:.4f}", *(f"{(start - value) / gap:.0%}" for value in reached.values())]
        )
    header = ("problem", f"linear by MSE, n = {base}", "floor", *reached)
    return (
        "## What closes the gap\n\n"
        f"From the linear model by squared error with {base} instances to the floor: the share of that way that a change goes. The\n"
        "loss: the best of the decision-focused losses by validation rows. The model: the best of the four in hindsight. The\n"
        f"data: {most} instances. Below zero is a step back.\n\n" + render(header, lines, "markdown") + "\n"
    )


def _finite(values: Any) -> list[float]:
    return [value for value in values if np.isfinite(value)] or [float("nan")]


def _cell(value: float, other: float, least: bool) -> str:
    if not np.isfinite(value):
        return "–"
    return f"**{value:.4f}** ({other:.4f})" if least else f"{value:.4f} ({other:.4f})"


@styled
def figure(records: Sequence[Record]) -> Figure:
    """A panel per problem: dashed for squared error, solid for the decision-focused loss that validation chose."""
    problems, sizes = order(records, "problem"), sorted(order(records, "size"))
    drawn = new_figure(3.1 * len(problems), 3.4)
    for place, problem in enumerate(problems):
        axes = drawn.add_subplot(1, len(problems), place + 1)
        own = [one for one in records if one["problem"] == problem]
        ends = []
        for model in order(own, "model"):
            for dashes, values in (
                ("--", [mean(own, model=model, loss="MSE", size=size) for size in sizes]),
                ("-", [chosen(own, model=model, size=size) for size in sizes]),
            ):
                axes.plot(sizes, values, dashes, color=COLORS[model], marker="o", markersize=3, linewidth=1.4)
            ends.append((sizes[-1], values[-1], model, COLORS[model]))
        floor = mean(own, model=FLOOR)
        axes.axhline(floor, color="#555555", linewidth=1)
        ends.append((sizes[-1], floor, "floor", "#555555"))
        axes.set_xscale("log")
        axes.set_yscale("log")
        log_ticks(axes.yaxis)
        axes.set_title(problem)
        axes.set_xlabel("training instances")
        if place == 0:
            axes.set_ylabel("regret / optimum")
            lines = [Line2D([], [], color="#555555", linestyle=dashes) for dashes in ("--", "-")]
            axes.legend(lines, ["squared error", "decision-focused"], loc="upper right", fontsize=8)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        axes.xaxis.minorticks_off()
        label_ends(axes, ends)
    return drawn


def draw(records: Sequence[Record], path: Path) -> None:
    write_figure(figure(records), path.parent, path.stem, [path.suffix.lstrip(".")])
