"""Two pictures of the documents.

    python examples/pictures.py

README: why regret is hard to descend, and what a surrogate loss buys. Left: the smallest problem there is, min over 0 ≤ w ≤ 1 of y w
with true cost y = 4, and four losses of a prediction ŷ. Middle and right: one linear model of the edge costs of a grid, trained on
the squared error (MSE) and on a loss that knows the decision (SCE through the smoothed program); one test instance, then all of them.

docs/explanation/label.md: what an exact label does to a smoothed loss if part of the objective is known. Two products share a
capacity of one: min −ŷ w₁ − 2 w₂ over w₁ + w₂ ≤ 1, w ≥ 0. The margin y of the first is predicted, that of the second is known. On
nine days of ten y = 3, on the tenth y = 1.8. The model knows all this, up to one factor: ŷ = a y.
"""

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

import dflearn as dfl
from beside import draw_route, draw_shares, picture
from dflearn.problems import ShortestPath
from dflearn.report.style import BLUE, INK, VERMILLION, color_of

TRUE_COST, MU = 4.0, 6.0
PRODUCTS = dfl.Program(S=[[-1.0], [0.0]], d=[0.0, -2.0], G=[[1.0, 1.0]], h=[1])
LABEL_MU = 2.0
MARGINS, DAYS = torch.tensor([[3.0], [1.8]]).double(), torch.tensor([0.9, 0.1]).double()


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


def draw_readme(figure: Figure, problem: ShortestPath) -> None:
    test, found = train_twice(problem)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 0.9, 1))
    draw_losses(left)
    draw_paths(middle, problem, test, found)
    draw_all(right, found)
    figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr]


def draw_decisions(axes: Axes) -> None:
    """The feasible triangle for y = 3, the two labels, and the smoothed decisions on the way to the exact one."""
    smoothed, y = dfl.Smoothed(PRODUCTS, LABEL_MU), MARGINS[:1]
    own, exact = smoothed(y)[0], dfl.Exact(dfl.HiGHS(PRODUCTS))(y)[0]
    axes.fill([0, 1, 0], [0, 0, 1], color="0.93")
    axes.plot([0, 1, 0, 0], [0, 0, 1, 0], color=INK, linewidth=1)
    way = smoothed(torch.linspace(3, 4, 21).double()[:, None])
    axes.plot(way[:, 0], way[:, 1], color=VERMILLION, linewidth=4, alpha=0.4)
    for point, name, color, place in (
        (own, "$w_\\mu(y)$: own label,\nreached at $\\hat y = 3$", BLUE, (0.42, 0.66)),
        (exact, "$w^*(y)$: exact label,\nreached from $\\hat y = 3.5$ on", VERMILLION, (0.84, 0.38)),
    ):
        axes.plot(*point, "o", color=color, markersize=9, zorder=5, clip_on=False)
        axes.annotate(name, point, place, color=color, arrowprops={"arrowstyle": "-", "color": color})
    axes.set(xlabel="$w_1$, margin $y = 3$, predicted", ylabel="$w_2$, margin 2, known", xlim=(0, 1.45), ylim=(0, 1.05))
    axes.set_title("Two labels for one day")


def mean_loss(label: str, factors: Tensor) -> Tensor:
    """Over the days, for each factor a."""
    loss = dfl.losses.SmoothedSPOPlus(dfl.Smoothed(PRODUCTS, LABEL_MU), label=label)  # type: ignore[arg-type]
    batch = dfl.Batch(MARGINS, MARGINS, dfl.Exact(dfl.HiGHS(PRODUCTS))(MARGINS))
    return torch.stack([DAYS @ loss(a * MARGINS, batch) for a in factors])


def draw_factor(axes: Axes) -> None:
    factors = torch.linspace(0.7, 1.4, 701).double()
    axes.axvspan(2 / 1.8, 1.4, color="0.93")
    axes.text(1.2, 0.085, "wrong product\non the tenth day", color=INK)
    for label, color in (("smoothed", BLUE), ("exact", VERMILLION)):
        value = mean_loss(label, factors)
        value, best = value - value.min(), float(factors[value.argmin()])
        axes.plot(factors, value, color=color, linewidth=2, label=f"{label} label: least at a = {best:.2f}")
        axes.plot(best, 0, "o", color=color, clip_on=False, zorder=5)
        print(f"{label} label: the mean loss is least at a = {best:.3f}")
    axes.set(xlabel="factor $a$ of the model, $\\hat y = a y$", ylabel="mean loss above its least")
    axes.set(xlim=(0.7, 1.4), ylim=(0, 0.6))
    axes.legend(frameon=False, loc="upper center")
    axes.set_title("What training makes of it")


def draw_label(figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    draw_decisions(left)
    draw_factor(right)


if __name__ == "__main__":
    picture(Path("docs/images/label.png"), (9.5, 3.9), draw_label)
    picture(Path("docs/images/readme.png"), (13, 4.2), draw_readme, ShortestPath(5, 5, seed=1))
