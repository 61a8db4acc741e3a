"""Test regret against training time of the methods of the final comparison, with the front of the best trade-offs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dflearn.paper.figures.base import Plot, as_row, summaries_of
from dflearn.report import style
from dflearn.report.figures import name_points, trade_offs
from dflearn.studies.record import Record
from dflearn.studies.summary import MethodSummary, pareto_front, problems_of, seeds_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = (
    "MSE", "SPO+^relax", "SPO+^ILP", "SPO+^p=5%", "PFY", "CaVE", "SCE^DYS", "SCE^smoothed", "SCE^smoothed scaled",
)  # fmt: skip


def make(records: Iterable[Record], metric: str = "published_style") -> Plot:
    summaries = summaries_of(records, METHODS, (), metric, "state-of-the-art")
    rows = [
        {**as_row(s), "on the front": int(s in front)}
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
