"""Two pictures in the plane: what smoothing does to an LP, and why CaVE fails on knapsacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import CaVE, Regret
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS
from dflearn.studies.paper.figures import Plot, by_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- geometry -----------------------------------------------------------------------------------------------------
#
# What smoothing does to the geometry: an LP's solution jumps between vertices, the smoothed one slides along the edges.
#
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
    points = {"LP w1": exact[:, 0], "LP w2": exact[:, 1], "smoothed w1": smoothed[:, 0], "smoothed w2": smoothed[:, 1]}
    rows = by_row({"angle of −c": angles, **points})
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
# Why CaVE fails on knapsacks: the constraint that matters does not bind at the integer optimum.
#
#     max over w of yᵀw   s.t.   3w₁ + 3w₂ ≤ 5,   w ∈ {0, 1}²
#
# (1, 0) is optimal for every y with y₁ ≥ 0 and y₂ ≤ y₁. The constraints that bind there are w₁ ≤ 1 and w₂ ≥ 0, and their
# cone {y₁ ≥ 0, y₂ ≤ 0} is all that CaVE aims for.


TRUE = (0.8, 0.4)
ANGLES = np.arange(-134.5, 135.0, 1.0)  # degrees of the predicted values; between whole ones, where two decisions tie


def knapsack_of_two() -> Program:
    return Program(
        G=[[3.0, 3.0]], h=[5.0], upper=1, integer=True, S=-np.eye(2), sense="maximize", name="two-item knapsack"
    )


def around(angles: np.ndarray) -> dict[str, np.ndarray]:
    """At ŷ = (cos, sin): CaVE loss at the label, regret of the integer knapsack_of_two's decision, solution of the relaxation."""
    knapsack = knapsack_of_two()
    exact = Exact(HiGHS(knapsack))
    radians = np.deg2rad(angles)
    predicted = torch.as_tensor(np.column_stack([np.cos(radians), np.sin(radians)]))
    y = torch.tensor(TRUE, dtype=torch.float64).expand(len(angles), 2)
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
    at_truth = around(np.array([np.rad2deg(np.arctan2(TRUE[1], TRUE[0]))]))
    between = lambda some: f"{some.min():g}° and {some.max():g}°".replace("-", "−")  # noqa: E731
    findings = [
        f"The decision is right for predictions between {between(angles[right])}; CaVE's loss is zero between "
        f"{between(angles[aimed])} only.",
        f"At the true values {TRUE} themselves the regret is {abs(at_truth['regret'][0]):g} and CaVE's loss "
        f"{at_truth['CaVE loss'][0]:.3f}: it pulls a perfect prediction away. The relaxation's solution there is "
        f"({at_truth['relaxed'][0, 0]:.2g}, {at_truth['relaxed'][0, 1]:.2g}).",
    ]
    seen = {"CaVE loss": values["CaVE loss"], "regret": values["regret"]}
    relaxed = {"relaxed w1": values["relaxed"][:, 0], "relaxed w2": values["relaxed"][:, 1]}
    rows = by_row({"angle": angles, **seen, **relaxed})
    title = "Why CaVE fails on knapsacks: its cone misses the row that does not bind"
    return Plot("cave", title, _draw_cone(angles, values), rows, findings)


@style.styled
def _draw_cone(angles: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(10.6, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
    right_ones, aimed = angles[values["regret"] <= 1e-9], angles[values["CaVE loss"] <= 1e-9]
    cones = (
        (aimed.min(), aimed.max(), style.ORANGE, "CaVE's cone"),
        (aimed.max(), right_ones.max(), style.VERMILLION, "missed"),
    )
    corner = values["label"][0]
    left.fill([0, 1, 1, 2 / 3, 0], [0, 0, 2 / 3, 1, 1], facecolor=style.LINE, alpha=0.6, linewidth=0)
    left.plot([0.25, 1.3], [5 / 3 - 0.25, 5 / 3 - 1.3], color=style.INK, linewidth=1.3, label="3w₁ + 3w₂ = 5")
    for first, last, color, text in cones:
        arc = np.deg2rad(np.linspace(first, last, 50))
        fan = corner + 0.72 * np.column_stack([np.cos(arc), np.sin(arc)])
        left.fill(*np.vstack([corner, fan]).T, facecolor=color, alpha=0.55, linewidth=0, label=text)
        right.axvspan(first, last, color=color, alpha=0.25, linewidth=0)
    left.plot([0, 0, 1], [0, 1, 0], "o", color=style.INK, markersize=6, label="feasible")
    left.plot(1, 1, "o", color=style.INK, markersize=6, markerfacecolor=style.PAPER, label="infeasible")
    left.set(
        xlabel="w₁", ylabel="w₂", xlim=(-0.2, 1.85), ylim=(-0.8, 1.7), title="predictions for which (1, 0) is best"
    )
    left.set(xticks=[0, 1], yticks=[0, 1], box_aspect=2.5 / 2.05)
    right.plot(angles, values["CaVE loss"], color=style.color_of("CaVE"), label="CaVE loss")
    right.step(angles, values["regret"], where="mid", color=style.color_of("Regret"), label="regret")
    right.axvline(
        np.rad2deg(np.arctan2(TRUE[1], TRUE[0])), color=style.INK, linewidth=1, linestyle=":", label="true values"
    )
    right.set(xlabel="angle of the predicted values, degrees", title="what the loss sees", ylim=(-0.03, 1.05))
    right.set(xlim=(angles[0], angles[-1]), xticks=range(-135, 136, 45))
    figure.legend(loc="outside right upper")
    return figure
