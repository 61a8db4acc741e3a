"""The figures of pages and reports, one function each: plain data in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dflearn.paper.figures.state_of_the_art import METHODS, name_points, trade_offs
from dflearn.report import style
from dflearn.studies.summary import MethodSummary, pareto_front

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FLOOR = "deciding with E[y | x]"
LABELLED = 9  # points of a scatter that can all be named


@style.styled
def learning_curves(
    curves: Mapping[str, Sequence[float]], ylabel: str, floor: float | None = None, width: float = 6.8
) -> Figure:
    """One line per method over the epochs; a dashed line for the floor."""
    from matplotlib.ticker import MaxNLocator

    figure = style.new_figure(width, 0.58 * width)
    axes = figure.add_subplot()
    ends = []
    for name, curve in curves.items():
        epochs, color = range(1, len(curve) + 1), style.color_of(name)
        axes.plot(epochs, curve, label=name, color=color, linestyle=style.dash_of(name), linewidth=1.8)
        ends.append((epochs[-1], float(curve[-1]), name, color))
    if floor is not None:
        axes.axhline(floor, label=FLOOR, color=style.INK, linestyle="--", linewidth=1)
        ends.append((max((end[0] for end in ends), default=1), floor, FLOOR, style.INK))
    axes.set(xlabel="epoch", ylabel=ylabel)
    ends = [end for end in ends if np.isfinite(end[1])]  # what diverged has no end to name
    values = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    values = values[np.isfinite(values)]
    if len(values) and ends:
        lowest = min(float(values.min()), *(end[1] for end in ends))
        # The first epochs may be so bad that nothing else could be seen.
        highest = min(float(values.max()), 2 * max(end[1] for end in ends))
        room = max(highest - lowest, 0.1 * abs(highest), 1e-6)
        axes.set_ylim(lowest - 0.06 * room, highest + 0.03 * room)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.label_ends(axes, ends, 0.07 if width > 5 else 0.1)
    return figure


@style.styled
def regret_against_time(points: Mapping[str, tuple[float, float, float]], xlabel: str, ylabel: str) -> Figure:
    """One point per method: (seconds, regret, half-width of its interval); time on a logarithmic axis."""
    figure = style.new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    for name, (seconds, regret, error) in points.items():
        axes.errorbar(
            seconds, regret, yerr=error, fmt=style.marker_of(name), color=style.color_of(name), capsize=3, markersize=8
        )
    axes.set(xscale="log", xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    axes.margins(x=0.2)
    style.log_ticks(axes.xaxis)
    figure.draw_without_rendering()
    style.label_points(axes, [(x, y, name, style.color_of(name)) for name, (x, y, _) in points.items()])
    return figure


@style.styled
def trade_off(summaries: Sequence[MethodSummary], ylabel: str) -> Figure:
    """Regret against training time on one problem, with the Pareto front.

    Of many methods only those of the front and of the paper's comparison are named.
    """
    figure = style.new_figure(4.7, 3.5)
    axes = figure.add_subplot()
    trade_offs(axes, summaries)
    axes.set(xlabel="training seconds per epoch", ylabel=ylabel)
    figure.draw_without_rendering()
    some = {*METHODS, *(s.method for s in pareto_front(summaries))}
    name_points(axes, summaries, some if len(summaries) > LABELLED else None)
    return figure


@style.styled
def regret_bars(summaries: Sequence[MethodSummary], xlabel: str, *, published: bool = False) -> Figure:
    """One bar per method of one problem, least regret on top, ± one standard deviation between the seeds.

    published: a dash across the bar where the paper's figure is.
    """
    figure = style.new_figure(4.7, 0.75 + 0.24 * len(summaries))
    axes = figure.add_subplot()
    ordered = sorted(summaries, key=lambda s: s.regret)
    for place, s in enumerate(ordered):
        axes.barh(place, s.regret, 0.72, color=style.color_of(s.method))
        if len(s.seeds) > 1:
            axes.errorbar(s.regret, place, xerr=s.deviation, color=style.INK, linewidth=1, capsize=2)
        if published and s.published is not None:
            axes.plot(2 * [s.published.regret], [place - 0.42, place + 0.42], color=style.INK, linewidth=1.8)
    axes.set_yticks(range(len(ordered)), [s.method for s in ordered])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set(xlabel=xlabel, ylim=(len(ordered) - 0.4, -0.6))
    return figure


@style.styled
def grid_paths(
    edges: np.ndarray, shape: tuple[int, int], costs: np.ndarray, paths: Mapping[str, tuple[np.ndarray, float]]
) -> Figure:
    """A grid whose edges are as thick as they cost, once per method, with the path taken and its true cost.

    The first path is in ink, the others have the colours that their methods have elsewhere.
    edges: (edges, 2) tail and head of each, nodes numbered row by row. paths: name → (chosen edges as 0 or 1, cost).
    """
    figure = style.new_figure(2.6 * len(paths), 2.9)
    for k, (name, (chosen, cost)) in enumerate(paths.items()):
        axes = figure.add_subplot(1, len(paths), k + 1)
        for (tail, head), weight, taken in zip(edges, costs, chosen, strict=True):
            x, y = zip(*(divmod(int(node), shape[1])[::-1] for node in (tail, head)), strict=True)
            axes.plot(x, y, color=style.LINE, linewidth=0.6 + 7 * weight / costs.max(), solid_capstyle="round")
            if taken > 0.5:
                axes.plot(x, y, color=style.color_of(name) if k else style.INK, linewidth=2.5, solid_capstyle="round")
        axes.set_title(f"{name}: {cost:.2f}", loc="center", fontsize=10)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.axis("off")
    return figure
