"""Why CaVE fails on knapsacks: the constraint that matters does not bind at the integer optimum.

    max over w of yᵀw   s.t.   3w₁ + 3w₂ ≤ 5,   w ∈ {0, 1}²

(1, 0) is optimal for every y with y₁ ≥ 0 and y₂ ≤ y₁. The constraints that bind there are w₁ ≤ 1 and w₂ ≥ 0, and their
cone {y₁ ≥ 0, y₂ ≤ 0} is all that CaVE aims for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact
from dflearn.losses import CaVE, Regret
from dflearn.paper.figures.base import Plot
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUE = (0.8, 0.4)
ANGLES = np.arange(-134.5, 135.0, 1.0)  # degrees of the predicted values; between whole ones, where two decisions tie


def program() -> Program:
    return Program(
        G=[[3.0, 3.0]], h=[5.0], upper=1, integer=True, S=-np.eye(2), sense="maximize", name="two-item knapsack"
    )


def turn(angles: np.ndarray) -> dict[str, np.ndarray]:
    """At ŷ = (cos, sin): CaVE loss at the label, regret of the integer program's decision, solution of the relaxation."""
    knapsack = program()
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


def make(quick: bool = False) -> Plot:
    angles = ANGLES[:: 5 if quick else 1]
    values = turn(angles)
    right, aimed = values["regret"] <= 1e-9, values["CaVE loss"] <= 1e-9
    at_truth = turn(np.array([np.rad2deg(np.arctan2(TRUE[1], TRUE[0]))]))
    between = lambda some: f"{some.min():g}° and {some.max():g}°".replace("-", "−")  # noqa: E731
    findings = [
        f"The decision is right for predictions between {between(angles[right])}; CaVE's loss is zero between "
        f"{between(angles[aimed])} only.",
        f"At the true values {TRUE} themselves the regret is {abs(at_truth['regret'][0]):g} and CaVE's loss "
        f"{at_truth['CaVE loss'][0]:.3f}: it pulls a perfect prediction away. The relaxation's solution there is "
        f"({at_truth['relaxed'][0, 0]:.2g}, {at_truth['relaxed'][0, 1]:.2g}).",
    ]
    rows = [
        {
            "angle": float(angle),
            "CaVE loss": float(values["CaVE loss"][i]),
            "regret": float(values["regret"][i]),
            "relaxed w1": float(values["relaxed"][i, 0]),
            "relaxed w2": float(values["relaxed"][i, 1]),
        }
        for i, angle in enumerate(angles)
    ]
    title = "Why CaVE fails on knapsacks: its cone misses the row that does not bind"
    return Plot("cave", title, _draw(angles, values), rows, findings)


@style.styled
def _draw(angles: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(9.2, 3.9)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
    right_ones, aimed = angles[values["regret"] <= 1e-9], angles[values["CaVE loss"] <= 1e-9]
    cones = (
        (aimed.min(), aimed.max(), style.ORANGE, "CaVE's\ncone"),
        (aimed.max(), right_ones.max(), style.VERMILLION, "missed"),
    )
    corner = values["label"][0]
    left.fill([0, 1, 1, 2 / 3, 0], [0, 0, 2 / 3, 1, 1], facecolor=style.LINE, alpha=0.6, linewidth=0)
    left.plot([0.25, 1.3], [5 / 3 - 0.25, 5 / 3 - 1.3], color=style.INK, linewidth=1.3)
    left.text(0.3, 1.42, "3w₁ + 3w₂ = 5", va="bottom")
    for first, last, color, text in cones:
        arc = np.deg2rad(np.linspace(first, last, 50))
        fan = corner + 0.72 * np.column_stack([np.cos(arc), np.sin(arc)])
        left.fill(*np.vstack([corner, fan]).T, facecolor=color, alpha=0.55, linewidth=0)
        middle = np.deg2rad((first + last) / 2)
        left.text(*(corner + 0.47 * np.array([np.cos(middle), np.sin(middle)])), text, ha="center", va="center",
                  fontsize=8.5)  # fmt: skip
    for x in (0, 1):
        for y in (0, 1):
            feasible = 3 * x + 3 * y <= 5
            left.plot(x, y, "o", color=style.INK, markersize=6, markerfacecolor=style.INK if feasible else style.PAPER)
    left.text(0.94, -0.06, "w* = (1, 0)", ha="right", va="top")
    left.text(1.06, 1.04, "infeasible", fontsize=8.5, color=style.FAINT)
    left.set(xlabel="w₁", ylabel="w₂", xlim=(-0.2, 1.85), ylim=(-0.8, 1.7), title="predictions for which w* is best")
    left.set_xticks([0, 1])
    left.set_yticks([0, 1])
    left.set_box_aspect(2.5 / 2.05)
    for first, last, color, _ in cones:
        right.axvspan(first, last, color=color, alpha=0.25, linewidth=0)
    right.plot(angles, values["CaVE loss"], color=style.color_of("CaVE"))
    right.step(angles, values["regret"], where="mid", color=style.color_of("Regret"))
    truth = float(np.rad2deg(np.arctan2(TRUE[1], TRUE[0])))
    right.axvline(truth, color=style.INK, linewidth=1, linestyle=":")
    right.text(truth + 2, 0.58, "true\nvalues", fontsize=8.5)
    right.text(64, 0.72, "CaVE loss", color=style.color_of("CaVE"), ha="right")
    right.text(70, 0.34, "regret", color=style.color_of("Regret"))
    right.set(xlabel="angle of the predicted values, degrees", title="what the loss sees", ylim=(-0.03, 1.05))
    right.set_xlim(angles[0], angles[-1])
    right.set_xticks(range(-135, 136, 45))
    return figure
