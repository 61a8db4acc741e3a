"""Regret and SCE of a problem with one variable, with and without smoothing.

min over w of y w   s.t.   0 ≤ w ≤ 1,   y = 4,   Ω(w) = (μ/2) w²,   μ = 6
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, Loss, Regret, SPOPlus
from dflearn.paper.figures.base import Plot
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUE, MU = 4.0, 6.0
LOSSES = ("regret", "smoothed regret", "SCE", "smoothed SCE", "SPO+")
PREDICTIONS = np.linspace(-10, 6, 321)  # a step of 0.05


def losses(predictions: np.ndarray, true: float = TRUE, mu: float = MU) -> dict[str, np.ndarray]:
    """Every loss of LOSSES at each prediction; `(count,)` each."""
    program = Program(n=1, upper=1)
    exact, smoothed = Exact(HiGHS(program)), Smoothed(program, mu)
    y = torch.full((len(predictions), 1), true, dtype=torch.float64)
    batch = Batch(y, y, exact(y))
    made: dict[str, Loss] = {
        "regret": Regret(exact),
        "smoothed regret": Regret(smoothed),
        "SCE": SCE(exact),
        "smoothed SCE": SCE(smoothed),
        "SPO+": SPOPlus(exact),
    }
    predicted = torch.as_tensor(predictions)[:, None]
    return {name: made[name](predicted, batch).numpy() for name in LOSSES}


def make(quick: bool = False) -> Plot:
    predictions = PREDICTIONS[:: 4 if quick else 1]
    values = losses(predictions)
    left, middle, right = losses(np.array([-8.0, -6.0, -4.0]))["smoothed SCE"]
    negative = float(losses(np.array([-5.0]), true=-4.0)["smoothed SCE"][0])
    findings = [
        f"Below ŷ = −μ = −{MU:g} the smoothed regret stays at {values['smoothed regret'][0]:g}: its gradient is zero "
        "where the decision is wrong. SCE falls towards the right decision there, smoothed or not.",
        f"Smoothed SCE is not convex: f(−8) = {left:.4g}, f(−6) = {middle:.4g}, f(−4) = {right:.4g}, and "
        f"{middle:.4g} lies above the mean {(left + right) / 2:.4g} of its neighbours.",
        f"With an exact label smoothed SCE can be negative: −{-negative:.4f} at y = −4, ŷ = −5, μ = {MU:g}.",
    ]
    rows = [
        {"prediction": float(prediction), **{name: float(values[name][i]) for name in LOSSES}}
        for i, prediction in enumerate(predictions)
    ]
    title = "One variable: where regret has no gradient, and SCE has one"
    return Plot("one-dimension", title, _draw(predictions, values), rows, findings)


@style.styled
def _draw(predictions: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(7.2, 3.9)
    axes = figure.add_subplot()
    axes.axvspan(predictions[0], -MU, color=style.LINE, alpha=0.5, linewidth=0)
    axes.axvline(TRUE, color=style.FAINT, linewidth=1, linestyle=":")
    looks = {
        "regret": (style.PINK, "-"),
        "smoothed regret": (style.WINE, "--"),
        "SCE": (style.ORANGE, "-"),
        "smoothed SCE": (style.VERMILLION, "--"),
        "SPO+": (style.BLUE, ":"),
    }
    for name, (color, dash) in looks.items():
        # The exact decision jumps at zero, so its regret and SCE do too: two pieces, not a steep line.
        jumps = name in ("regret", "SCE")
        for piece in (predictions < 0, predictions >= 0) if jumps else (np.ones(len(predictions), bool),):
            axes.plot(predictions[piece], values[name][piece], color=color, linestyle=dash)
    points = np.array([-8.0, -6.0, -4.0])
    marked = losses(points)["smoothed SCE"]
    axes.plot(points[[0, 2]], marked[[0, 2]], color=style.FAINT, linewidth=0.8)
    axes.plot(points, marked, "o", color=style.VERMILLION, markersize=4)
    at = lambda name, x: float(losses(np.array([x]))[name][0])  # noqa: E731
    labels = [("regret", -2.9, 0.3), ("smoothed regret", -4.6, -0.55), ("SCE", -3.6, 0.4), ("SPO+", -1.2, 0.5)]
    for name, x, lift in [*labels, ("smoothed SCE", -5.45, -1.5)]:
        side = "right" if name.startswith("smoothed") else "left"
        axes.text(x, at(name, x) + lift, name, color=looks[name][0], ha=side)
    axes.text(-9.9, 0.25, "no gradient of\nsmoothed regret", color=style.FAINT, fontsize=8.5, va="bottom")
    axes.text(TRUE + 0.12, 14.3, "true y", color=style.FAINT, fontsize=8.5, va="top")
    axes.set(xlabel="prediction ŷ", ylabel="loss", ylim=(-0.4, 14.6), xlim=(predictions[0], predictions[-1]))
    return figure
