"""The picture of the README: why regret is hard to descend, and what a surrogate loss buys.

    python examples/readme_picture.py

Left: the smallest problem there is, min over 0 ≤ w ≤ 1 of y w with true cost y = 4, and four losses of a prediction ŷ.
Middle and right: one linear model of the edge costs of a grid, trained on the squared error (MSE) and on a loss that
knows the decision (SCE through the smoothed program); one test instance, then all of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import dflearn as dfl
from beside import draw_route, draw_shares, picture
from dflearn.problems import ShortestPath
from dflearn.report.style import INK, color_of

PICTURE = Path("docs/images/readme.png")
TRUE_COST, MU = 4.0, 6.0


def draw_losses(axes: Axes) -> None:
    program = dfl.Program(n=1, upper=1)
    exact, smoothed = dfl.Exact(dfl.HiGHS(program)), dfl.Smoothed(program, MU)
    predicted = torch.cat([torch.linspace(-10, -1e-6, 401), torch.linspace(1e-6, 6, 201)]).double().unsqueeze(-1)
    costs = torch.full_like(predicted, TRUE_COST)
    batch = dfl.Batch(predicted, costs, exact(costs))
    for loss, name, style in (
        (dfl.losses.SCE(exact), "SCE", "--"),
        (dfl.losses.SCE(smoothed), "SCE, smoothed", "-"),
        (dfl.losses.Regret(exact), "regret", "--"),
        (dfl.losses.Regret(smoothed), "regret, smoothed", "-"),
    ):
        color = color_of(name.partition(",")[0])
        axes.plot(predicted.squeeze(-1), loss(predicted, batch).detach(), style, color=color, label=name, linewidth=2)
    axes.annotate("flat: no gradient,\neven when smoothed", (-9.7, 1.1), color=color_of("regret"))
    axes.plot(TRUE_COST, 0, "o", color=INK, clip_on=False, zorder=5)
    axes.annotate("true cost", (TRUE_COST, 0.5), color=INK, ha="center")
    axes.set(xlabel="predicted cost $\\hat y$", ylabel="loss", xlim=(-10, 6), ylim=(0, 14))
    axes.legend(frameon=False, loc="upper right")
    axes.set_title("Regret stands still where it should teach")


def train_twice(problem: ShortestPath) -> tuple[dfl.DecisionDataset, dict[str, dfl.Evaluation]]:
    """The test data, and how each trained model does on them."""
    train, _, test = dfl.label(problem.generate(2000), problem.solver()).split(seed=1)
    found = {}
    for name, loss in (("MSE", dfl.losses.MSE()), ("SCE", dfl.losses.SCE(dfl.Smoothed(problem.program, mu=1.0)))):
        model = dfl.models.Linear(10, problem.program.p)
        dfl.fit(model, loss, train)
        found[name] = dfl.evaluate(model, problem, test)
        print(f"{name}: Σ regret / Σ optimum over {len(test)} test instances: {found[name].ratio_of_sums:.4f}")
    return test, found


def draw_paths(axes: Axes, problem: ShortestPath, test: dfl.DecisionDataset, found: dict[str, dfl.Evaluation]) -> None:
    # Of the instances that the second model gets right and the first does not: the one with the median regret.
    excess = {name: evaluation.regrets / evaluation.optima for name, evaluation in found.items()}
    candidates = np.flatnonzero((excess["SCE"] == 0) & (excess["MSE"] > 0))
    which = int(candidates[np.argsort(excess["MSE"][candidates])[len(candidates) // 2]])

    row, column = np.divmod(problem.edges(), problem.columns)
    segments = np.stack([column, -row], axis=-1)
    batch = test.batch(which)
    edges = LineCollection(list(segments), array=batch.require("costs").numpy(), cmap="Greys", linewidths=3)
    edges.set_clim(0, 1.6 * float(batch.require("costs").max()))
    axes.add_collection(edges)
    for name, width in (("SCE", 9), ("MSE", 4)):
        cost = f"{excess[name][which]:.0%} too expensive" if excess[name][which] else "optimal"
        draw_route(axes, segments, found[name].decisions[which], name, cost, width)
    rows, columns = np.divmod(np.arange(problem.rows * problem.columns), problem.columns)
    axes.scatter(columns, -rows, s=36, color="white", edgecolors=INK, zorder=3)
    axes.set(aspect="equal", xlim=(-0.3, problem.columns - 0.7), ylim=(-problem.rows - 0.35, 0.3))
    axes.set_axis_off()
    axes.legend(frameon=False, loc="lower center", title="darker: truly more expensive")
    axes.set_title("One test instance of a shortest path")


def draw_all(axes: Axes, found: dict[str, dfl.Evaluation]) -> None:
    regrets = {name: evaluation.regrets for name, evaluation in found.items()}
    regrets["knowing the mean"] = found["SCE"].floor_regrets
    optima = found["MSE"].optima
    totals = {name: f"{lost.sum() / optima.sum():.1%}" for name, lost in regrets.items()}
    labels = {"xlabel": "regret / optimum, at least", "ylabel": "share of test instances"}
    draw_shares(axes, {name: lost / optima for name, lost in regrets.items()}, totals, **labels, xlim=(0, 0.6))
    axes.set_ylim(0, 0.6)
    axes.legend(frameon=False, loc="upper right", title="regret in all, trained on")
    axes.set_title(f"All {len(optima)} of them")


def draw(figure: Figure, problem: ShortestPath) -> None:
    test, found = train_twice(problem)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 0.9, 1))
    draw_losses(left)
    draw_paths(middle, problem, test, found)
    draw_all(right, found)
    figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr]


if __name__ == "__main__":
    picture(PICTURE, (13, 4.2), draw, ShortestPath(5, 5, seed=1))
