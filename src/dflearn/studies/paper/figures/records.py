"""The figures of a study's runs: losses, the solvers inside them, and regret against time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dflearn.errors import DataError
from dflearn.report import style
from dflearn.studies.builtin import THROUGH_LAYERS
from dflearn.studies.figures import name_points, trade_offs
from dflearn.studies.paper.figures import Plot
from dflearn.studies.paper.tables import STYLE, published_of
from dflearn.studies.record import Record
from dflearn.studies.summary import MethodSummary, pareto_front, problems_of, seeds_in_words, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = ("SP-5", "SP-10", "KP-100", "KP-200", "CFL-50", "CFL-100")
LOSSES = tuple(THROUGH_LAYERS)  # decision losses, then surrogates
LAYERS = {"CVX": "through the exactly smoothed problem", "DYS": "through DYS-Net"}
SOLVERS = {"ILP": "ILP", "relax": "LP", "CVX": "QP", "DYS": "DYS"}  # the first two have no gradient
SOLVED = ("SPO+", "SCE")  # the losses that all of SOLVERS may solve in
FINAL = (
    "MSE", "SPO+^relax", "SPO+^ILP", "SPO+^p=5%", "PFY", "CaVE", "SCE^DYS", "SCE^smoothed", "SCE^smoothed scaled",
)  # fmt: skip


def summaries_of(
    records: Iterable[Record], methods: Sequence[str], problems: Sequence[str], metric: str, what: str
) -> list[MethodSummary]:
    """Summaries of the runs that a figure shows."""
    chosen = [r for r in records if r.config.method in methods and (not problems or r.config.problem in problems)]
    if not chosen:
        where = f" on {', '.join(problems)}" if problems else ""
        raise DataError(f"the study holds no runs that the figure {what} shows: run {' or '.join(methods)}{where}")
    return summarize(chosen, metric)


def as_row(summary: MethodSummary) -> dict[str, str | int | float]:
    """A row of a figure's CSV, with the published figures, or empty cells."""
    published = published_of(summary)
    known = ("", "") if published is None else (published.regret, published.seconds)
    return {
        "problem": summary.problem,
        "method": summary.method,
        "seeds": len(summary.seeds),
        summary.metric: summary.regret,
        "deviation": summary.deviation,
        "seconds per epoch": summary.seconds,
        **dict(zip(("published regret", "published seconds"), known, strict=True)),
    }


def _axis(metric: str, gap: str = " ") -> str:
    return f"test regret{gap}({metric.replace('_', ' ')})"


def _compared(summaries: Sequence[MethodSummary], *groups: Sequence[str]) -> dict[str, list[list[float]]]:
    """Problem → regrets of each group of methods, least first, of the problems where methods of all groups ran."""
    found = {
        problem: [sorted(s.regret for s in summaries if s.problem == problem and s.method in some) for some in groups]
        for problem in problems_of(summaries)
    }
    return {problem: regrets for problem, regrets in found.items() if all(regrets)}


def surrogates(records: Iterable[Record], metric: str = STYLE) -> Plot:
    """Surrogate losses against decision losses, through the exactly smoothed problem and through DYS-Net."""
    methods = [f"{loss}^{layer}" for layer in LAYERS for loss in LOSSES]
    summaries = summaries_of(records, methods, SMALL, metric, "surrogates")
    findings = []
    for layer in LAYERS:
        pairs = _compared(summaries, *([f"{loss}^{layer}" for loss in some] for some in (LOSSES[:2], LOSSES[2:])))
        lost = [problem for problem, (decisions, surrogates) in pairs.items() if surrogates[-1] >= decisions[0]]
        but = f"; not on {', '.join(lost)}" if lost else ""
        if pairs:
            count = f"{len(pairs) - len(lost)} of {len(pairs)} problems{but}"
            findings.append(f"{layer}: both surrogates beat both decision losses on {count}.")
    findings.append(f"Means over {seeds_in_words(summaries)}.")
    title = "Surrogate losses (SPO+, SCE) against decision losses (regret, SqDE), through differentiable layers"
    return Plot("surrogates", title, _draw_losses(summaries, metric), list(map(as_row, summaries)), findings)


@style.styled
def _draw_losses(summaries: list[MethodSummary], metric: str) -> Figure:
    layers = [layer for layer in LAYERS if any(s.method.endswith(f"^{layer}") for s in summaries)]
    figure = style.new_figure(5.3 * len(layers), 3.8)
    panels = figure.subplots(1, len(layers), sharey=True, squeeze=False)[0]
    for axes, layer in zip(panels, layers, strict=True):
        _grouped_bars(axes, summaries, [f"{loss}^{layer}" for loss in LOSSES], published=metric == STYLE)
        axes.set_title(LAYERS[layer])
    panels[0].set_ylabel(_axis(metric))
    return figure


def _top(summaries: Iterable[MethodSummary]) -> float:
    """The end of the axis: bars far beyond their published figure are cut off."""
    usual = [s.regret for s in summaries if not (row := published_of(s)) or s.regret <= 1.5 * row.regret]
    return 1.5 * max(usual, default=math.inf)


def _grouped_bars(axes: Axes, summaries: list[MethodSummary], methods: list[str], *, published: bool) -> None:
    """A group of bars per problem, ±1 standard deviation between the seeds. published: a dash at the paper's figure."""
    shown = [s for s in summaries if s.method in methods]
    problems, width = problems_of(shown), 0.8 / len(methods)
    top, dash = _top(summaries) if published else math.inf, None
    bars = {}
    for s in shown:
        at = problems.index(s.problem) + (methods.index(s.method) - (len(methods) - 1) / 2) * width
        bars[s.method] = axes.bar(at, min(s.regret, 0.88 * top), 0.9 * width, color=style.color_of(s.method))
        if s.regret > top:
            number = f"{s.regret:.2g} ↑"
            axes.text(at, 0.02 * top, number, color="white", weight="bold", rotation=90, ha="center", va="bottom")
        elif len(s.seeds) > 1:
            axes.errorbar(at, s.regret, s.deviation, color=style.INK, linewidth=1, capsize=2)
        if published and (row := published_of(s)):
            dash = axes.hlines(row.regret, at - 0.45 * width, at + 0.45 * width, color=style.INK, linewidth=1.6)
    axes.set_xticks(range(len(problems)), problems)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(0, min(1.12 * axes.get_ylim()[1], top))
    names = {style.parts(method)[0]: bars[method] for method in methods if method in bars}
    axes.legend([*names.values(), *([dash] if dash else [])], [*names, *(["published"] if dash else [])], fontsize=8)


def solvers(records: Iterable[Record], metric: str = STYLE) -> Plot:
    """SPO+ and SCE with differentiable and with other solvers: test regret and training time."""
    methods = [f"{loss}^{solver}" for loss in SOLVED for solver in SOLVERS]
    summaries = summaries_of(records, methods, SMALL, metric, "solvers")
    findings = []
    for loss in SOLVED:
        some = (("ILP", "relax"), ("CVX", "DYS"))
        pairs = _compared(summaries, *([f"{loss}^{solver}" for solver in kind] for kind in some))
        changes = [f"{name} {100 * (smooth[0] / plain[0] - 1):+.0f} %" for name, (plain, smooth) in pairs.items()]
        if changes:
            listed = ", ".join(changes).replace(" -", " −")
            findings.append(f"{loss}: best regret with a differentiable solver against the best without: {listed}.")
    findings.append(f"Means over {seeds_in_words(summaries)}.")
    title = "SPO+ and SCE with differentiable solvers (QP, DYS) and with others (ILP, LP)"
    return Plot("solvers", title, _draw_solvers(summaries, metric), list(map(as_row, summaries)), findings)


@style.styled
def _draw_solvers(summaries: list[MethodSummary], metric: str) -> Figure:
    problems = problems_of(summaries)
    figure = style.new_figure(max(1.75 * len(problems), 4.5), 4.6)
    panels = figure.subplots(2, len(problems), sharex="col", squeeze=False)
    places = {solver: x for x, solver in enumerate(SOLVERS)}
    for column, problem in enumerate(problems):
        above, below = panels[:, column]
        for shift, loss in zip((-0.14, 0.14), SOLVED, strict=True):
            some = [s for s in summaries if s.problem == problem and style.parts(s.method)[0] == loss]
            x = [places[style.parts(s.method)[1]] + shift for s in some]
            shape, color = "so"[loss == "SCE"], style.color_of(loss)
            look: dict[str, Any] = {"fmt": shape, "color": color, "capsize": 2, "label": loss}
            above.errorbar(x, [s.regret for s in some], [s.deviation for s in some], **look)
            below.errorbar(x, [s.seconds for s in some], [s.seconds_deviation for s in some], **look)
        above.set_title(problem)
        above.set_ylim(0, 1.15 * above.get_ylim()[1])
        below.set_yscale("log")
        below.set_xticks(list(places.values()), list(SOLVERS.values()), fontsize=8.5)
        for axes in (above, below):
            axes.axvspan(1.5, 3.5, color=style.LINE, alpha=0.45, linewidth=0)  # the solvers with a gradient
            axes.set_xlim(-0.5, 3.5)
            axes.grid(visible=False, axis="x")
        low, high = below.get_ylim()
        below.set_ylim(low / 1.3, high * 1.3)
        style.log_ticks(below.yaxis)
    panels[0, 0].set_ylabel(_axis(metric, "\n"))
    panels[1, 0].set_ylabel("seconds per epoch")
    panels[0, 0].legend(loc="lower left")
    return figure


def state_of_the_art(records: Iterable[Record], metric: str = STYLE) -> Plot:
    """Test regret against training time of the methods of the final comparison, with the front of the best trade-offs."""
    summaries = summaries_of(records, FINAL, (), metric, "state-of-the-art")
    fronts = {name: pareto_front(s for s in summaries if s.problem == name) for name in problems_of(summaries)}
    rows = [{**as_row(s), "on the front": int(s in fronts[s.problem])} for s in summaries]
    lines = [f"{problem}: " + " → ".join(s.method for s in front) for problem, front in fronts.items()]
    findings = [
        f"Best trade-offs, from the fastest to the least regret. {'; '.join(lines)}.",
        f"Means over {seeds_in_words(summaries)}.",
    ]
    title = "Test regret against training time, with the best trade-offs"
    return Plot("state-of-the-art", title, _draw_trade_offs(summaries, metric), rows, findings)


@style.styled
def _draw_trade_offs(summaries: Sequence[MethodSummary], metric: str) -> Figure:
    """A panel per problem."""
    problems = problems_of(summaries)
    rows, columns = -(-len(problems) // 3), min(3, len(problems))
    figure = style.new_figure(3.7 * columns, 3.1 * rows)
    panels = figure.subplots(rows, columns, squeeze=False)
    methods = [method for method in FINAL if any(s.method == method for s in summaries)]
    for axes, problem in zip(panels.flat, problems, strict=False):
        trade_offs(axes, methods, [s for s in summaries if s.problem == problem])
        axes.set_title(problem)
    for axes in panels.flat[len(problems) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("training seconds per epoch")
    for axes in panels[:, 0]:
        axes.set_ylabel(_axis(metric, "\n"))
    name_points(figure)
    return figure
