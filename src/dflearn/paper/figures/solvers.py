"""SPO+ and SCE with differentiable and with other solvers inside: test regret, and training time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dflearn.paper.figures.base import Plot, as_row, summaries_of
from dflearn.report import style
from dflearn.studies.record import Record
from dflearn.studies.summary import MethodSummary, problems_of, seeds_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = ("SPO+", "SCE")
SOLVERS = {"ILP": "ILP", "relax": "LP", "CVX": "QP", "DYS": "DYS"}  # the first two have no gradient
PROBLEMS = ("SP-5", "SP-10", "KP-100", "KP-200", "CFL-50", "CFL-100")


def make(records: Iterable[Record], metric: str = "published_style") -> Plot:
    methods = [f"{loss}^{solver}" for loss in LOSSES for solver in SOLVERS]
    summaries = summaries_of(records, methods, PROBLEMS, metric, "solvers")
    rows = [as_row(s) for s in summaries]
    title = "SPO+ and SCE with differentiable solvers (QP, DYS) and with others (ILP, LP)"
    return Plot("solvers", title, _draw(summaries, metric), rows, _findings(summaries))


def _findings(summaries: list[MethodSummary]) -> list[str]:
    regrets = {(s.problem, s.method): s.regret for s in summaries}
    lines = []
    for loss in LOSSES:
        changes = {}
        for problem in problems_of(summaries):
            plain = [regrets[key] for solver in ("relax", "ILP") if (key := (problem, f"{loss}^{solver}")) in regrets]
            smooth = [regrets[key] for solver in ("CVX", "DYS") if (key := (problem, f"{loss}^{solver}")) in regrets]
            if plain and smooth:
                changes[problem] = min(smooth) / min(plain) - 1
        if changes:
            told = ", ".join(
                f"{problem} {100 * change:+.0f} %".replace(" -", " −") for problem, change in changes.items()
            )
            lines.append(f"{loss}: best regret with a differentiable solver against the best without: {told}.")
    return [*lines, f"Means over {seeds_in_words(summaries)}."]


@style.styled
def _draw(summaries: list[MethodSummary], metric: str) -> Figure:
    problems = problems_of(summaries)
    figure = style.new_figure(max(1.75 * len(problems), 4.5), 4.6)
    panels = figure.subplots(2, len(problems), sharex="col", squeeze=False)
    places = {solver: x for x, solver in enumerate(SOLVERS)}
    for column, problem in enumerate(problems):
        above, below = panels[:, column]
        for shift, loss in zip((-0.14, 0.14), LOSSES, strict=True):
            some = [s for s in summaries if s.problem == problem and style.parts(s.method)[0] == loss]
            x = [places[style.parts(s.method)[1]] + shift for s in some]
            look = {"fmt": "o" if loss == "SCE" else "s", "color": style.color_of(loss), "capsize": 2, "markersize": 6}
            above.errorbar(x, [s.regret for s in some], [s.deviation for s in some], **look)
            below.errorbar(x, [s.seconds for s in some], [s.seconds_deviation for s in some], **look)
        above.set_title(problem)
        above.set_ylim(0, 1.15 * above.get_ylim()[1])
        below.set_yscale("log")
        below.set_xticks(list(places.values()), list(SOLVERS.values()), fontsize=8.5)
        for axes in (above, below):
            axes.axvspan(1.5, 3.5, color=style.LINE, alpha=0.45, linewidth=0)
            axes.set_xlim(-0.5, 3.5)
            axes.grid(visible=False, axis="x")
        low, high = below.get_ylim()
        below.set_ylim(low / 1.3, high * 1.3)
        style.log_ticks(below.yaxis)
    panels[0, 0].set_ylabel(f"test regret\n({metric.replace('_', ' ')})")
    panels[1, 0].set_ylabel("seconds per epoch")
    panels[0, 0].text(0.04, 0.06, "SPO+", color=style.color_of("SPO+"), weight="bold", transform=panels[0, 0].transAxes)
    panels[0, 0].text(0.04, 0.17, "SCE", color=style.color_of("SCE"), weight="bold", transform=panels[0, 0].transAxes)
    panels[0, -1].text(2.5, 0.03, "differentiable", color=style.FAINT, fontsize=7.5, ha="center", va="bottom",
                       transform=panels[0, -1].get_xaxis_transform())  # fmt: skip
    return figure
