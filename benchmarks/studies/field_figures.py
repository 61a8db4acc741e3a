"""The field study's figures: mean ranks, and regret against time."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from dflearn.report.style import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    LINE,
    ORANGE,
    VERMILLION,
    label_points,
    log_ticks,
    new_figure,
    styled,
)
from field_methods import METHODS
from field_statistics import Field

SHOWN = ("MSE", "SPO+", "SCE", "PFY", "DBB", "LTR listwise")  # in the figure of regret against time
TIMED = ("KP-40x4", "scheduling-5x1", "battery")
FAMILIES = {"prediction": GREY, "ours": VERMILLION, "convex": BLUE, "direct": ORANGE, "pool": GREEN}
FAMILY = {method.name: method.family for method in METHODS}


def spent(field: Field, problem: str, method: str) -> float:
    """CPU seconds per run: what is prepared before training, and the training."""
    return field.mean(problem, method, "set_up") + field.mean(problem, method, "seconds")


def timed(field: Field) -> list[str]:
    """Problems on which all methods ran one after another, so that seconds can be compared."""
    return [name for name in TIMED if name in field.problems] or field.problems


def seconds(field: Field, method: str) -> float:
    """CPU seconds per run over those of MSE, geometric mean over `timed`."""
    ratios = [spent(field, problem, method) / spent(field, problem, "MSE") for problem in timed(field)]
    return float(np.exp(np.mean(np.log(ratios))))


def relative(field: Field, method: str) -> float:
    """Regret over that of MSE, geometric mean over problems."""
    ratios = [field.mean(problem, method) / field.mean(problem, "MSE") for problem in field.problems]
    return float(np.exp(np.mean(np.log(ratios))))


@styled
def ranks_figure(field: Field) -> Figure:
    """Mean ranks, best above, each problem's rank faint beside it; bars join those that Nemenyi does not tell apart."""
    found = field.by_problem()
    mean, count = found.mean, len(found.methods)
    figure = new_figure(8.2, 0.235 * count + 1.3)
    axes = figure.add_subplot()
    for y, (method, rank) in enumerate(mean.items()):
        colour = FAMILIES[FAMILY[method]]
        axes.plot(found.ranks[:, found.methods.index(method)], [y] * len(found.ranks), "o", color=LINE, markersize=4)
        axes.plot([rank], [y], "o", color=colour, markersize=7)
        axes.annotate(f"{rank:.1f}", (rank, y), (6, 0), textcoords="offset points", va="center", fontsize=8, color=INK)
    ordered = list(mean.values())
    groups = []
    for first, rank in enumerate(ordered):
        last = max(i for i, other in enumerate(ordered) if other - rank <= found.distance)
        if last > first and not any(low <= first and last <= high for low, high in groups):
            groups.append((first, last))
    for place, (first, last) in enumerate(groups):
        axes.plot([count + 1.2 + 0.5 * place] * 2, [first - 0.2, last + 0.2], color=INK, linewidth=2)
    axes.plot([1, 1 + found.distance], [-1.2, -1.2], color=INK, linewidth=2)
    axes.annotate(f"critical difference {found.distance:.1f}", (1 + found.distance, -1.2), (6, 0), textcoords="offset points", va="center", fontsize=8)  # fmt: skip
    axes.set_yticks(range(count), list(mean), color=INK)
    axes.set_ylim(count - 0.4, -2)
    axes.set_xlim(0.5, count + 2 + 0.5 * len(groups))
    axes.set_xlabel(
        f"rank over {len(field.problems)} problems, mean of seeds {', '.join(map(str, field.seeds))}; grey: one problem each"
    )
    for name, colour in FAMILIES.items():
        axes.plot(
            [], [], "o", color=colour, label={"ours": "SCE and sSPO+", "direct": "through the decision"}.get(name, name)
        )
    axes.legend(loc="lower left", fontsize=8)
    return figure


@styled
def time_figure(field: Field) -> Figure:
    """Left: what a whole run costs and brings, beside MSE. Right: validation regret as training goes on, relative to MSE's end."""
    figure = new_figure(10.4, 4.6)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    points = []
    for method in field.methods:
        x, y = seconds(field, method), relative(field, method)
        left.plot([x], [y], "o", color=FAMILIES[FAMILY[method]], markersize=5)
        points.append((x, y, method, FAINT))
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_yticks([0.7, 0.8, 1, 1.5, 2, 3], ["0.7", "0.8", "1", "1.5", "2", "3"])
    left.minorticks_off()
    left.axhline(1, color=GREY, linewidth=0.8)
    left.set_xlabel("CPU seconds of a run / those of MSE, three problems")
    left.set_ylabel("test regret / that of MSE")
    left.set_title(f"{len(field.problems)} problems, geometric means")
    log_ticks(left.xaxis)
    colours = dict(zip(SHOWN, (GREY, BLUE, VERMILLION, GREEN, ORANGE, INK), strict=True))
    for method in (name for name in SHOWN if name in field.methods):
        times, values = [], []
        for problem in field.problems:
            ends = [field.tested[problem, "MSE", seed]["path"][-1] for seed in field.seeds]
            unit_time, unit = np.mean([end[0] for end in ends]), np.mean([end[1] for end in ends])
            path = np.mean([field.tested[problem, method, seed]["path"] for seed in field.seeds], axis=0)
            times.append(path[:, 0] / unit_time)
            values.append(path[:, 1] / unit)
        right.plot(np.exp(np.mean(np.log(times), 0)), np.exp(np.mean(np.log(values), 0)), "-o", markersize=3, linewidth=1.4, color=colours[method], label=method)  # fmt: skip
    right.set_xscale("log")
    right.set_xlabel("CPU seconds / those of a whole run of MSE")
    right.set_ylabel("validation regret / MSE's at the end")
    right.set_title("As training goes on")
    right.legend(fontsize=8)
    log_ticks(right.xaxis)
    figure.draw_without_rendering()
    label_points(left, points)
    return figure
