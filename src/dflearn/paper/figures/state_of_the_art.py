"""Test regret against training time of the methods of the final comparison, with the front of the best trade-offs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from dflearn.paper.figures.base import Plot
from dflearn.report import style
from dflearn.studies.record import Record
from dflearn.studies.summary import (
    MethodSummary,
    as_row,
    pareto_front,
    problems_of,
    seeds_in_words,
    select,
    summarize,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = (
    "MSE", "SPO+^relax", "SPO+^ILP", "SPO+^p=5%", "PFY", "CaVE", "SCE^DYS", "SCE^smoothed", "SCE^smoothed scaled",
)  # fmt: skip


def make(records: Iterable[Record], metric: str = "published_style") -> Plot:
    summaries = summarize(select(records, METHODS, (), "the figure state-of-the-art"), metric)
    rows = [
        {**as_row(s, metric), "on the front": int(s in front)}
        for problem in problems_of(summaries)
        for front in [pareto_front(s for s in summaries if s.problem == problem)]
        for s in summaries
        if s.problem == problem
    ]
    title = "Test regret against training time, with the best trade-offs"
    return Plot("state-of-the-art", title, scatter(summaries, metric), rows, _findings(summaries))


def _findings(summaries: list[MethodSummary]) -> list[str]:
    problems = problems_of(summaries)
    fronts = {problem: pareto_front(s for s in summaries if s.problem == problem) for problem in problems}
    lines = [f"{problem}: " + " → ".join(s.method for s in front) for problem, front in fronts.items()]
    return [
        f"Best trade-offs, from the fastest to the least regret. {'; '.join(lines)}.",
        f"Means over {seeds_in_words(summaries)}.",
    ]


@style.styled
def scatter(summaries: Sequence[MethodSummary], metric: str, columns: int = 3) -> Figure:
    """A panel per problem."""
    problems = problems_of(summaries)
    columns = min(columns, len(problems))
    rows = -(-len(problems) // columns)
    figure = style.new_figure(3.7 * columns, 3.1 * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, problem in zip(panels.flat, problems, strict=False):
        trade_offs(axes, [s for s in summaries if s.problem == problem])
        axes.set_title(problem)
    for axes in panels.flat[len(problems) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("training seconds per epoch")
    for axes in panels[:, 0]:
        axes.set_ylabel(f"test regret\n({metric.replace('_', ' ')})")
    figure.draw_without_rendering()
    for axes, problem in zip(panels.flat, problems, strict=False):
        name_points(axes, [s for s in summaries if s.problem == problem])
    return figure


def _top(summaries: Sequence[MethodSummary]) -> float:
    """The regret above which a point is shown at the upper edge: one failure must not squeeze the others together."""
    regrets = sorted(s.regret for s in summaries)
    limit = 2 * regrets[len(regrets) // 2]
    return limit if regrets[-1] > limit else regrets[-1]


def trade_offs(axes: Axes, summaries: Sequence[MethodSummary]) -> None:
    """One point per method, ±1 standard deviation between the seeds, and the Pareto front as steps."""
    front, top = pareto_front(summaries), _top(summaries)
    axes.set_xscale("log")
    for s in summaries:
        axes.errorbar(
            s.seconds, min(s.regret, top), s.deviation if s.deviation and s.regret <= top else None,
            fmt=style.marker_of(s.method), color=style.color_of(s.method), markersize=7, capsize=2, elinewidth=1,
        )  # fmt: skip
    axes.margins(x=0.22, y=0.12)
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    x = [front[0].seconds, *(s.seconds for s in front), right]
    y = [high, *(s.regret for s in front), front[-1].regret]
    axes.step(x, y, where="post", color=style.FAINT, linewidth=1, linestyle="--", zorder=0)
    axes.set(xlim=(left, right), ylim=(low, high))
    style.log_ticks(axes.xaxis)


def name_points(axes: Axes, summaries: Sequence[MethodSummary], some: Collection[str] | None = None) -> None:
    """The methods' names beside the points of `trade_offs`, when the layout is final; only of `some` where given."""
    top = _top(summaries)
    labels = []
    for s in summaries:
        if some is None or s.method in some:
            text = s.method if s.regret <= top else f"{s.method}: {s.regret:.2g} ↑"
            labels.append((s.seconds, min(s.regret, top), text, style.color_of(s.method)))
    style.label_points(axes, labels)
