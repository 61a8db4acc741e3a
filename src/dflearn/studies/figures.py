"""The figures of pages and reports, one function each: plain data in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dflearn.report import style
from dflearn.studies.summary import MethodSummary, pareto_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = 18  # in a column of a legend
Reference = Mapping[tuple[str, str], float]  # problem and method → a regret known from elsewhere


@style.styled
def learning_curves(curves: Mapping[str, Sequence[float]], ylabel: str) -> Figure:
    """One line per method over the epochs."""
    from matplotlib.ticker import MaxNLocator

    figure = style.new_figure(4.7, 2.7)
    axes = figure.add_subplot()
    ends = []
    for name, curve in curves.items():
        epochs, color = range(1, len(curve) + 1), style.color_of(name)
        axes.plot(epochs, curve, label=name, color=color, linestyle=style.mark_of(name)[1], linewidth=1.8)
        if np.isfinite(curve[-1]):  # diverged training has no end to name
            ends.append((epochs[-1], float(curve[-1]), name, color))
    axes.set(xlabel="epoch", ylabel=ylabel)
    values = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    values = values[np.isfinite(values)]
    if ends:
        lowest = float(values.min())
        # Very bad first epochs would flatten the rest.
        highest = min(float(values.max()), 2 * max(end[1] for end in ends))
        room = max(highest - lowest, 0.1 * abs(highest), 1e-6)
        axes.set_ylim(lowest - 0.06 * room, highest + 0.03 * room)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.label_ends(axes, ends, 0.1)
    return figure


@style.styled
def trade_off(summaries: Sequence[MethodSummary], ylabel: str) -> Figure:
    """Regret against training time on one problem, least regret first, with the Pareto front."""
    methods = [s.method for s in summaries]
    figure = style.new_figure(4.2 + 1.6 * -(-len(methods) // NAMES), 3.7)
    axes = figure.add_subplot()
    trade_offs(axes, methods, summaries)
    axes.set(xlabel="training seconds per epoch", ylabel=ylabel)
    name_points(figure)
    return figure


def trade_offs(axes: Axes, methods: Sequence[str], summaries: Sequence[MethodSummary]) -> None:
    """One point per method, with its number in `methods`, ±1 standard deviation between seeds; the Pareto front as steps."""
    top = _top(summaries)
    axes.set_xscale("log")
    for s in summaries:
        color, number, spot = style.color_of(s.method), methods.index(s.method) + 1, (s.seconds, min(s.regret, top))
        level = 4 - 0.02 * number  # a number is hidden with its point
        axes.errorbar(
            *spot, s.deviation if s.deviation and s.regret <= top else None,
            fmt=style.mark_of(s.method)[0], color=color, ecolor=(color, 0.45), markersize=10, capsize=2, elinewidth=1,
            label=f"{number} {s.method}", zorder=level,
        )  # fmt: skip
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": style.PAPER, "zorder": level}
        axes.annotate(str(number), spot, fontsize=6.5, weight="bold", **look)
        if s.regret > top:
            axes.annotate(f"{s.regret:.2g} ↑", spot, (0, -12), textcoords="offset points", ha="center", fontsize=7)
    axes.margins(x=0.12, y=0.12)
    limits = (*axes.get_xlim(), *axes.get_ylim())
    front = pareto_front(summaries)
    x, y = [s.seconds for s in front], [s.regret for s in front]
    edge: dict[str, Any] = {"color": style.FAINT, "linewidth": 1, "linestyle": "--", "zorder": 0, "where": "post"}
    axes.step([x[0], *x, limits[1]], [limits[3], *y, y[-1]], **edge)
    axes.set(xlim=limits[:2], ylim=limits[2:])
    style.log_ticks(axes.xaxis)


def name_points(figure: Figure) -> None:
    """A legend beside the panels of `trade_offs`: which number is which method."""
    pairs = [zip(*reversed(axes.get_legend_handles_labels()), strict=True) for axes in figure.axes]
    handles = {label: handle for panel in pairs for label, handle in panel}
    names = sorted(handles, key=lambda label: int(label.split()[0]))
    columns = -(-len(names) // NAMES)
    look: dict[str, Any] = {"fontsize": 7.5, "markerscale": 0.6, "ncols": columns}
    figure.legend([handles[name] for name in names], names, loc="outside right upper", **look)


def _top(summaries: Sequence[MethodSummary]) -> float:
    """The regret above which a point is shown at the upper edge: one failure must not squeeze the others together."""
    regrets = sorted(s.regret for s in summaries)
    limit = 2 * regrets[len(regrets) // 2]
    return limit if regrets[-1] > limit else regrets[-1]


@style.styled
def regret_bars(summaries: Sequence[MethodSummary], xlabel: str, *, reference: Reference | None = None) -> Figure:
    """One bar per method, least regret on top, ± one standard deviation; long ones are cut. reference: a dash across the bar."""
    figure = style.new_figure(4.7, 0.75 + 0.24 * len(summaries))
    axes = figure.add_subplot()
    ordered, top = sorted(summaries, key=lambda s: s.regret), _top(summaries)
    for place, s in enumerate(ordered):
        axes.barh(place, min(s.regret, top), 0.72, color=style.color_of(s.method))
        if s.regret > top:
            axes.text(top, place, f"{s.regret:.2g} → ", color=style.PAPER, weight="bold", ha="right", va="center")
        elif len(s.seeds) > 1:
            axes.errorbar(s.regret, place, xerr=s.deviation, color=style.INK, linewidth=1, capsize=2)
        known = (reference or {}).get((s.problem, s.method))
        if known is not None and s.regret <= top:
            axes.plot(2 * [known], [place - 0.42, place + 0.42], color=style.INK, linewidth=1.8)
    axes.set_yticks(range(len(ordered)), [s.method for s in ordered])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.locator_params(axis="x", nbins=5)
    axes.set(xlabel=xlabel, ylim=(len(ordered) - 0.4, -0.6))
    return figure
