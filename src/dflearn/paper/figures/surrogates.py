"""Surrogate losses against decision losses, all through a differentiable layer: the exact one, and DYS-Net."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dflearn.paper.figures.base import Plot, as_row, summaries_of
from dflearn.paper.tables import STYLE, published_of
from dflearn.report import style
from dflearn.studies.record import Record
from dflearn.studies.summary import MethodSummary, problems_of, seeds_in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSSES = ("Regret", "SqDE", "SPO+", "SCE")
LAYERS = {"CVX": "through the exactly smoothed problem", "DYS": "through DYS-Net"}
PROBLEMS = ("SP-5", "SP-10", "KP-100", "KP-200", "CFL-50", "CFL-100")


def make(records: Iterable[Record], metric: str = "published_style") -> Plot:
    methods = [f"{loss}^{layer}" for layer in LAYERS for loss in LOSSES]
    summaries = summaries_of(records, methods, PROBLEMS, metric, "surrogates")
    rows = [as_row(s) for s in summaries]
    title = "Surrogate losses (SPO+, SCE) against decision losses (regret, SqDE), through differentiable layers"
    return Plot("surrogates", title, _draw(summaries, metric), rows, _findings(summaries))


def _findings(summaries: list[MethodSummary]) -> list[str]:
    lines = []
    regrets = {(s.problem, s.method): s.regret for s in summaries}
    for layer in LAYERS:
        wins, exceptions = 0, []
        for problem in problems_of(summaries):
            here = {
                loss: regrets[problem, f"{loss}^{layer}"] for loss in LOSSES if (problem, f"{loss}^{layer}") in regrets
            }
            surrogates = [here[loss] for loss in ("SPO+", "SCE") if loss in here]
            decisions = [here[loss] for loss in ("Regret", "SqDE") if loss in here]
            if not surrogates or not decisions:
                continue
            if max(surrogates) < min(decisions):
                wins += 1
            else:
                exceptions.append(problem)
        if wins or exceptions:
            but = f"; not on {', '.join(exceptions)}" if exceptions else ""
            lines.append(
                f"{layer}: both surrogates beat both decision losses on {wins} of {wins + len(exceptions)} problems{but}."
            )
    return [*lines, f"Means over {seeds_in_words(summaries)}."]


@style.styled
def _draw(summaries: list[MethodSummary], metric: str) -> Figure:
    layers = [layer for layer in LAYERS if any(s.method.endswith(f"^{layer}") for s in summaries)]
    figure = style.new_figure(5.3 * len(layers), 3.8)
    panels = figure.subplots(1, len(layers), sharey=True, squeeze=False)[0]
    for axes, layer in zip(panels, layers, strict=True):
        grouped_bars(axes, summaries, [f"{loss}^{layer}" for loss in LOSSES], published=metric == STYLE)
        axes.set_title(LAYERS[layer])
    panels[0].set_ylabel(f"test regret ({metric.replace('_', ' ')})")
    return figure


def _top(summaries: Iterable[MethodSummary]) -> float:
    """Where the axis ends at the latest: bars far beyond their published figure are cut off, not the others flattened."""
    usual = [s.regret for s in summaries if not (row := published_of(s)) or s.regret <= 1.5 * row.regret]
    return 1.5 * max(usual, default=math.inf)


def grouped_bars(axes: Axes, summaries: list[MethodSummary], methods: list[str], *, published: bool) -> None:
    """A group of bars per problem, one bar per method in its colour, ±1 standard deviation between the seeds.

    published: a dash where the paper's figure is.
    """
    problems = problems_of(s for s in summaries if s.method in methods)
    found = {(s.problem, s.method): s for s in summaries}
    width = 0.8 / len(methods)
    dashes, top = False, _top(summaries) if published else math.inf
    for k, method in enumerate(methods):
        color = style.color_of(method)
        for x, problem in enumerate(problems):
            at = x + (k - (len(methods) - 1) / 2) * width
            summary = found.get((problem, method))
            if summary is None:
                continue
            axes.bar(at, min(summary.regret, 0.88 * top), 0.9 * width, color=color)
            if summary.regret > top:
                number = f"{summary.regret:.2g} ↑"
                axes.text(at, 0.02 * top, number, color="white", weight="bold", rotation=90, ha="center", va="bottom")
            elif len(summary.seeds) > 1:
                axes.errorbar(at, summary.regret, summary.deviation, color=style.INK, linewidth=1, capsize=2)
            if published and (row := published_of(summary)):
                ends = [at - 0.45 * width, at + 0.45 * width]
                axes.plot(ends, 2 * [row.regret], color=style.INK, linewidth=1.6)
                dashes = True
    axes.set_xticks(range(len(problems)), problems)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, min(1.12 * axes.get_ylim()[1], top))
    place = 0.99
    for method in reversed(methods):
        text = axes.text(place, 0.985, style.parts(method)[0], color=style.color_of(method), weight="bold", ha="right",
                         va="top", transform=axes.transAxes)  # fmt: skip
        place = axes.transAxes.inverted().transform((text.get_window_extent().x0, 0))[0] - 0.02
    if dashes:
        axes.text(place, 0.985, "▬ published", color=style.INK, fontsize=8.5, ha="right", va="top",
                  transform=axes.transAxes)  # fmt: skip
