"""Figures of problems with one or two variables: where regret has no gradient, what smoothing does, and why CaVE fails on knapsacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, CaVE, Loss, Regret, SPOPlus
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS
from dflearn.studies.paper.figures import Plot, by_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- one dimension ------------------------------------------------------------------------------------------------
#
# Regret and SCE with and without smoothing: min over w of y w   s.t.   0 ≤ w ≤ 1,   y = 4,   Ω(w) = (μ/2) w²,   μ = 6

TRUE, STRENGTH = 4.0, 6.0
LOSSES = ("regret", "smoothed regret", "SCE", "smoothed SCE", "SPO+")
PREDICTIONS = np.linspace(-10, 6, 321)  # a step of 0.05
TRIPLE = np.array([-8.0, -6.0, -4.0])  # where smoothed SCE is seen not to be convex


def on(program: Program, mu: float, y: Tensor) -> tuple[dict[str, Loss], Batch]:
    exact, smoothed = Exact(HiGHS(program)), Smoothed(program, mu)
    made = (Regret(exact), Regret(smoothed), SCE(exact), SCE(smoothed), SPOPlus(exact))
    return dict(zip(LOSSES, made, strict=True)), Batch(y, y, exact(y))


def losses(predictions: np.ndarray, true: float = TRUE) -> dict[str, np.ndarray]:
    made, batch = on(Program(n=1, upper=1), STRENGTH, torch.full((len(predictions), 1), true, dtype=torch.float64))
    predicted = torch.as_tensor(predictions)[:, None]
    return {name: loss(predicted, batch).numpy() for name, loss in made.items()}


def one_dimension(quick: bool = False) -> Plot:
    predictions = PREDICTIONS[:: 4 if quick else 1]
    values = losses(predictions)
    left, middle, right = losses(TRIPLE)["smoothed SCE"]
    negative = float(losses(np.array([-5.0]), true=-4.0)["smoothed SCE"][0])
    findings = [
        f"Below ŷ = −μ = −{STRENGTH:g} the smoothed regret stays at {values['smoothed regret'][0]:g}: its gradient is zero "
        "where the decision is wrong. SCE falls towards the right decision there, smoothed or not.",
        f"Smoothed SCE is not convex: f(−8) = {left:.4g}, f(−6) = {middle:.4g}, f(−4) = {right:.4g}, and "
        f"{middle:.4g} lies above the mean {(left + right) / 2:.4g} of its neighbours.",
        f"With an exact label smoothed SCE can be negative: −{-negative:.4f} at y = −4, ŷ = −5, μ = {STRENGTH:g}.",
    ]
    rows = by_row({"prediction": predictions, **values})
    title = "One variable: where regret has no gradient, and SCE has one"
    return Plot("one-dimension", title, _draw_losses(predictions, values), rows, findings)


def _line(name: str) -> dict[str, Any]:
    return {"color": style.color_of(name.removeprefix("smoothed ")), "linestyle": "--" if "smoothed" in name else "-"}


@style.styled
def _draw_losses(predictions: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(8.6, 3.9)
    axes = figure.add_subplot()
    look: dict[str, Any] = {"color": style.LINE, "alpha": 0.5, "linewidth": 0}
    axes.axvspan(predictions[0], -STRENGTH, label="smoothed regret: no gradient", **look)
    axes.axvline(TRUE, color=style.FAINT, linewidth=1, linestyle=":", label="true y")
    for name in LOSSES:
        # The exact decision jumps at zero, so its regret and SCE do too: two pieces, not a steep line.
        jumps = (np.abs(predictions) < 1e-9) & (name in ("regret", "SCE"))
        axes.plot(predictions, np.where(jumps, np.nan, values[name]), label=name, **_line(name))
    axes.plot(TRIPLE, losses(TRIPLE)["smoothed SCE"], "o", color=style.VERMILLION, markersize=4)
    axes.set(xlabel="prediction ŷ", ylabel="loss", ylim=(-0.4, 14.6), xlim=(predictions[0], predictions[-1]))
    figure.legend(loc="outside right upper")
    return figure


# -- two items ----------------------------------------------------------------------------------------------------
#
# Room for one: max over w of yᵀw   s.t.   w₁ + w₂ ≤ 1,   w ≥ 0;   true values y = (0.8, 0.4)
#
# The paper prints the first prediction as (0.1, 0.01), which ranks the items correctly and has no regret. This demonstration
# starts from its mirror image (0.01, 0.1), on the wrong side.

VALUES, PRINTED_START, START = (0.8, 0.4), (0.1, 0.01), (0.01, 0.1)
WEAK, STEP, STEPS = 0.05, 0.004, 60
NAMES = ("smoothed regret", "smoothed SCE", "SCE")


def one_of_two() -> Program:
    return Program(G=[[1.0, 1.0]], h=[1.0], S=-np.eye(2), sense="maximize", name="two items")


def trajectories(steps: int = STEPS) -> dict[str, dict[str, np.ndarray]]:
    """Plain gradient descent on the prediction itself: for each loss the predictions `(steps + 1, 2)` and regrets."""
    made, batch = on(one_of_two(), WEAK, torch.tensor([VALUES], dtype=torch.float64))
    paths = {}
    for name in NAMES:
        at = [torch.tensor([START], dtype=torch.float64)]
        for _ in range(steps):
            leaf = at[-1].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(made[name](leaf, batch).sum(), leaf)
            at.append(at[-1] - STEP * gradient)
        predictions = torch.cat(at)
        regrets = [float(made["regret"](one, batch)) for one in at]
        paths[name] = {"predictions": predictions.numpy(), "regrets": np.array(regrets)}
    return paths


def regret_of(prediction: tuple[float, float]) -> float:
    made, batch = on(one_of_two(), WEAK, torch.tensor([VALUES], dtype=torch.float64))
    return float(made["regret"](torch.tensor([prediction], dtype=torch.float64), batch))


def two_items(quick: bool = False) -> Plot:
    paths = trajectories(30 if quick else STEPS)
    moved = {name: float(np.ptp(path["predictions"], axis=0).max()) for name, path in paths.items()}
    first = {name: int(np.argmax(path["regrets"] <= 0)) for name, path in paths.items() if path["regrets"][-1] <= 0}
    ends = {name: path["predictions"][-1] for name, path in paths.items()}
    findings = [
        f"The start printed in the paper, {PRINTED_START}, has regret {regret_of(PRINTED_START):g}; this one, {START}, has "
        f"{regret_of(START):g}.",
        f"Through the smoothed layer (μ = {WEAK:g}) regret training moves the prediction by {moved['smoothed regret']:g}: its "
        f"gradient is zero. SCE's first prediction without regret is that of step {first['smoothed SCE']}.",
        "After the last step ŷ₁ − ŷ₂ is "
        + " and ".join(f"{ends[name][0] - ends[name][1]:.3f} ({name})" for name in NAMES[1:])
        + ". Without smoothing SCE stops right behind the boundary, where a small error costs the right decision. "
        "Smoothed, it goes on until the decision is clear.",
    ]
    rows = []
    for name, path in paths.items():
        one, two = path["predictions"].T
        columns = {"step": np.arange(len(one)), "prediction 1": one, "prediction 2": two, "regret": path["regrets"]}
        rows += [{"loss": name, **row} for row in by_row(columns)]
    title = "Two items and room for one: regret training stands still, SCE moves"
    return Plot("two-items", title, _draw_items(paths), rows, findings)


@style.styled
def _draw_items(paths: dict[str, dict[str, np.ndarray]]) -> Figure:
    figure = style.new_figure(10.2, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    low, high = -0.02, 0.17
    left.fill_between([low, high], [low, high], low, color=style.LINE, alpha=0.6, linewidth=0, label="the right item")
    for k, (name, shape) in enumerate(zip(NAMES, "so^", strict=True)):
        look: dict[str, Any] = {"marker": shape, "markevery": 4, "markersize": 4, "linewidth": 1.4}
        left.plot(*paths[name]["predictions"].T, label=name, zorder=2 + k, **_line(name), **look)
        regrets = paths[name]["regrets"] + 0.004 * k  # a hair apart, so that no line hides another
        right.step(range(len(regrets)), regrets, where="post", **_line(name))
    left.plot(*START, "*", color=style.INK, markersize=9, zorder=6, label="start")
    left.plot(*PRINTED_START, "o", color=style.INK, markerfacecolor="none", markersize=8, label="start as printed")
    left.set(xlabel="ŷ₁", ylabel="ŷ₂", xlim=(low, high), ylim=(low, high), title="the prediction")
    left.set_box_aspect(1)
    right.set(xlabel="step of gradient descent", title="its regret", ylim=(-0.02, 0.46))
    figure.legend(loc="outside right upper")
    return figure


# -- geometry -----------------------------------------------------------------------------------------------------
#
# An LP's solution jumps between vertices, the smoothed one slides along the edges:
# w_μ(c) = argmin over w in a polygon of cᵀw + (μ/2)‖w‖² = the point of the polygon nearest to −c/μ

VERTICES = np.array([[-1.0, -0.9], [0.9, -1.0], [1.3, 0.2], [0.2, 1.1], [-1.2, 0.5]])  # counter-clockwise
MU = 0.6
TURN = np.arange(0.0, 360.0, 1.0)  # directions of −c in degrees: where the objective pulls
SHOWN = (50.0, 70.0, 90.0, 115.0)
COLORS = (style.BLUE, style.SKY, style.GREEN, style.VERMILLION)


def polygon() -> Program:
    """The polygon as rows nᵀw ≤ nᵀv, one for each edge that starts at vertex v with outer normal n."""
    edges = np.roll(VERTICES, -1, axis=0) - VERTICES
    normals = np.column_stack([edges[:, 1], -edges[:, 0]])
    return Program(G=normals, h=(normals * VERTICES).sum(1), lower=-np.inf, name="polygon")


def solutions(angles: np.ndarray, mu: float = MU) -> tuple[np.ndarray, np.ndarray]:
    """Of the LP and of the smoothed LP, as the costs −(cos, sin) turn; `(count, 2)` each."""
    radians = np.deg2rad(angles)
    costs = torch.as_tensor(-np.column_stack([np.cos(radians), np.sin(radians)]))
    return Exact(HiGHS(polygon()))(costs).numpy(), Smoothed(polygon(), mu)(costs).numpy()


def geometry(quick: bool = False) -> Plot:
    angles = TURN[:: 4 if quick else 1]
    exact, smoothed = solutions(angles)
    step = np.linalg.norm(np.roll(smoothed, -1, axis=0) - smoothed, axis=1)
    jumps = np.linalg.norm(np.roll(exact, -1, axis=0) - exact, axis=1)
    resting = float((step < 1e-9).mean())
    columns = ("angle of −c", "LP w1", "LP w2", "smoothed w1", "smoothed w2")
    rows = by_row(dict(zip(columns, (angles, *exact.T, *smoothed.T), strict=True)))
    findings = [
        f"Over a full turn of the costs the LP's solution jumps {int((jumps > 0.1).sum())} times, once per edge.",
        f"The smoothed solution (μ = {MU:g}) moves continuously, and still rests at a vertex for {100 * resting:.0f} % of the "
        "turn: there its gradient is zero, and so is the gradient of any decision loss.",
    ]
    title = "An LP's solution jumps, the smoothed one slides, and both rest at vertices"
    return Plot("geometry", title, _draw_polygons(angles, exact, smoothed), rows, findings)


@style.styled
def _draw_polygons(angles: np.ndarray, exact: np.ndarray, smoothed: np.ndarray) -> Figure:
    figure = style.new_figure(10.4, 3.8)
    *planes, last = figure.subplots(1, 3, width_ratios=[1, 1, 1.15])
    pulls = np.deg2rad(SHOWN)
    for axes, points, title in zip(planes, solutions(np.array(SHOWN)), ("LP", f"smoothed LP, μ = {MU:g}"), strict=True):
        axes.fill(*VERTICES.T, facecolor=style.LINE, alpha=0.5, edgecolor=style.FAINT, linewidth=1.2)
        for pull, point, color, size in zip(pulls, points, COLORS, (17, 13, 9, 5), strict=True):
            arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": color, "linewidth": 1.8}
            axes.annotate("", (0.62 * np.cos(pull), 0.62 * np.sin(pull)), (0, 0), arrowprops=arrow)
            axes.plot(*point, "o", markersize=size, color=color)  # those that coincide lie on each other
        axes.set(aspect="equal", xlim=(-1.5, 1.65), ylim=(-1.3, 1.4), title=title)
        axes.axis("off")
    for points, color, name in ((exact, style.INK, "LP"), (smoothed, style.VERMILLION, "smoothed LP")):
        last.plot(angles, points[:, 0], color=color, label=name)
    last.set(xlabel="direction of the pull, degrees", title="w₁ of the solution", xticks=range(0, 361, 60))
    last.legend()
    return figure


# -- cave ---------------------------------------------------------------------------------------------------------
#
# The constraint that matters does not bind at the integer optimum: max over w of yᵀw   s.t.   3w₁ + 3w₂ ≤ 5,   w ∈ {0, 1}²
#
# (1, 0) is optimal for every y with y₁ ≥ 0 and y₂ ≤ y₁. The constraints that bind there are w₁ ≤ 1 and w₂ ≥ 0, and CaVE aims
# for their cone {y₁ ≥ 0, y₂ ≤ 0} only.

ANGLES = np.arange(-134.5, 135.0, 1.0)  # degrees of the predicted values; between whole ones, where two decisions tie


def around(angles: np.ndarray) -> dict[str, np.ndarray]:
    """At ŷ = (cos, sin): CaVE loss at the label, regret of the integer knapsack's decision, solution of the relaxation."""
    knapsack = Program(G=[[3.0, 3.0]], h=[5.0], upper=1, integer=True, S=-np.eye(2), sense="maximize", name="knapsack")
    exact = Exact(HiGHS(knapsack))
    radians = np.deg2rad(angles)
    predicted = torch.as_tensor(np.column_stack([np.cos(radians), np.sin(radians)]))
    y = torch.tensor(VALUES, dtype=torch.float64).expand(len(angles), 2)
    batch = Batch(y, y, exact(y))
    return {
        "label": exact(y).numpy(),
        "CaVE loss": CaVE(knapsack)(predicted, batch).numpy(),
        "regret": Regret(exact)(predicted, batch).numpy(),
        "relaxed": Exact(HiGHS(knapsack.relax()))(predicted).numpy(),
    }


def cave(quick: bool = False) -> Plot:
    angles = ANGLES[:: 5 if quick else 1]
    values = around(angles)
    right, aimed = values["regret"] <= 1e-9, values["CaVE loss"] <= 1e-9
    at_truth = around(np.array([np.rad2deg(np.arctan2(VALUES[1], VALUES[0]))]))
    between = lambda some: f"{some.min():g}° and {some.max():g}°".replace("-", "−")  # noqa: E731
    findings = [
        f"The decision is right for predictions between {between(angles[right])}; CaVE's loss is zero between "
        f"{between(angles[aimed])} only.",
        f"At the true values {VALUES} themselves the regret is {abs(at_truth['regret'][0]):g} and CaVE's loss "
        f"{at_truth['CaVE loss'][0]:.3f}: it pulls a perfect prediction away. The relaxation's solution there is "
        f"({at_truth['relaxed'][0, 0]:.2g}, {at_truth['relaxed'][0, 1]:.2g}).",
    ]
    one, two = values["relaxed"].T
    seen = {name: values[name] for name in ("CaVE loss", "regret")}
    rows = by_row({"angle": angles, **seen, "relaxed w1": one, "relaxed w2": two})
    title = "Why CaVE fails on knapsacks: its cone misses the row that does not bind"
    return Plot("cave", title, _draw_cone(angles, values), rows, findings)


@style.styled
def _draw_cone(angles: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(10.6, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
    right_ones, aimed = angles[values["regret"] <= 1e-9], angles[values["CaVE loss"] <= 1e-9]
    cone, missed = (aimed.min(), aimed.max()), (aimed.max(), right_ones.max())
    corner = values["label"][0]
    left.fill([0, 1, 1, 2 / 3, 0], [0, 0, 2 / 3, 1, 1], facecolor=style.LINE, alpha=0.6, linewidth=0)
    left.plot([0.25, 1.3], [5 / 3 - 0.25, 5 / 3 - 1.3], color=style.INK, linewidth=1.3, label="3w₁ + 3w₂ = 5")
    for (first, last), color, text in ((cone, style.ORANGE, "CaVE's cone"), (missed, style.VERMILLION, "missed")):
        arc = np.deg2rad(np.linspace(first, last, 50))
        fan = corner + 0.72 * np.column_stack([np.cos(arc), np.sin(arc)])
        left.fill(*np.vstack([corner, fan]).T, facecolor=color, alpha=0.55, linewidth=0, label=text)
        right.axvspan(first, last, color=color, alpha=0.25, linewidth=0)
    left.plot([0, 0, 1], [0, 1, 0], "o", color=style.INK, markersize=6, label="feasible")
    left.plot(1, 1, "o", color=style.INK, markersize=6, markerfacecolor=style.PAPER, label="infeasible")
    left.set(xlabel="w₁", ylabel="w₂", xlim=(-0.2, 1.85), ylim=(-0.8, 1.7), xticks=[0, 1], yticks=[0, 1])
    left.set(title="predictions for which (1, 0) is best", box_aspect=2.5 / 2.05)
    right.plot(angles, values["CaVE loss"], color=style.color_of("CaVE"), label="CaVE loss")
    right.step(angles, values["regret"], where="mid", color=style.color_of("Regret"), label="regret")
    truth = np.rad2deg(np.arctan2(*VALUES[::-1]))
    right.axvline(truth, color=style.INK, linewidth=1, linestyle=":", label="true values")
    right.set(xlabel="angle of the predicted values, degrees", title="what the loss sees", ylim=(-0.03, 1.05))
    right.set(xlim=(angles[0], angles[-1]), xticks=range(-135, 136, 45))
    figure.legend(loc="outside right upper")
    return figure
