"""Two items and room for one: regret training stands still, SCE moves.

    max over w of yᵀw   s.t.   w₁ + w₂ ≤ 1,   w ≥ 0;   true values y = (0.8, 0.4)

The paper prints the first prediction as (0.1, 0.01), which already ranks the items rightly and has no regret. This
demonstration starts from its mirror image (0.01, 0.1), on the wrong side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, Loss, Regret
from dflearn.paper.figures.base import Plot, Row
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUE, PRINTED_START, START = (0.8, 0.4), (0.1, 0.01), (0.01, 0.1)
MU, STEP, STEPS = 0.05, 0.004, 60
NAMES = ("smoothed regret", "smoothed SCE", "SCE")


def program() -> Program:
    return Program(G=[[1.0, 1.0]], h=[1.0], S=-np.eye(2), sense="maximize", name="two items")


def trajectories(steps: int = STEPS) -> dict[str, dict[str, np.ndarray]]:
    """Plain gradient descent on the prediction itself: of each loss the predictions `(steps + 1, 2)` and regrets."""
    exact, smoothed = Exact(HiGHS(program())), Smoothed(program(), MU)
    y = torch.tensor([TRUE], dtype=torch.float64)
    batch = Batch(y, y, exact(y))
    judge = Regret(exact)
    losses: dict[str, Loss] = {
        "smoothed regret": Regret(smoothed),
        "smoothed SCE": SCE(smoothed),
        "SCE": SCE(exact),
    }
    paths = {}
    for name in NAMES:
        at = torch.tensor([START], dtype=torch.float64, requires_grad=True)
        predictions, regrets = [], []
        for _ in range(steps + 1):
            predictions.append(at.detach().numpy()[0].copy())
            regrets.append(float(judge(at.detach(), batch)))
            (gradient,) = torch.autograd.grad(losses[name](at, batch).sum(), at)
            at = (at - STEP * gradient).detach().requires_grad_()
        paths[name] = {"predictions": np.array(predictions), "regrets": np.array(regrets)}
    return paths


def regret_of(prediction: tuple[float, float]) -> float:
    exact = Exact(HiGHS(program()))
    y, predicted = (torch.tensor([values], dtype=torch.float64) for values in (TRUE, prediction))
    return float(Regret(exact)(predicted, Batch(y, y, exact(y))))


def make(quick: bool = False) -> Plot:
    paths = trajectories(30 if quick else STEPS)
    moved = {name: float(np.ptp(path["predictions"], axis=0).max()) for name, path in paths.items()}
    first = {name: int(np.argmax(path["regrets"] <= 0)) for name, path in paths.items() if path["regrets"][-1] <= 0}
    ends = {name: path["predictions"][-1] for name, path in paths.items()}
    findings = [
        f"The start printed in the paper, {PRINTED_START}, has regret {regret_of(PRINTED_START):g}; this one, {START}, has "
        f"{regret_of(START):g}.",
        f"Through the smoothed layer (μ = {MU:g}) regret training moves the prediction by {moved['smoothed regret']:g}: its "
        f"gradient is zero. SCE's first prediction without regret is that of step {first['smoothed SCE']}.",
        "After the last step ŷ₁ − ŷ₂ is "
        + " and ".join(f"{ends[name][0] - ends[name][1]:.3f} ({name})" for name in NAMES[1:])
        + ": without smoothing SCE stops right behind the boundary, where a small error costs the right decision; "
        "smoothed, it goes on until the decision is clear.",
    ]
    rows: list[Row] = [
        {
            "loss": name,
            "step": step,
            "prediction 1": float(path["predictions"][step, 0]),
            "prediction 2": float(path["predictions"][step, 1]),
            "regret": float(path["regrets"][step]),
        }
        for name, path in paths.items()
        for step in range(len(path["regrets"]))
    ]
    title = "Two items and room for one: regret training stands still, SCE moves"
    return Plot("two-items", title, _draw(paths), rows, findings)


@style.styled
def _draw(paths: dict[str, dict[str, np.ndarray]]) -> Figure:
    figure = style.new_figure(8.6, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
    low, high = -0.02, 0.17
    left.fill_between([low, high], [low, high], low, color=style.LINE, alpha=0.6, linewidth=0)
    left.plot([low, high], [low, high], color=style.FAINT, linewidth=1)
    colors = dict(zip(NAMES, (style.WINE, style.VERMILLION, style.ORANGE), strict=True))
    shapes = dict(zip(NAMES, ("s", "o", "^"), strict=True))
    for name in reversed(NAMES):
        x, y = paths[name]["predictions"].T
        left.plot(x, y, color=colors[name], linewidth=1.4)
        left.plot(x[::4], y[::4], shapes[name], color=colors[name], markersize=3.5)
        left.plot(x[-1], y[-1], shapes[name], color=colors[name], markersize=8)
    left.plot(*PRINTED_START, "o", color=style.INK, markerfacecolor="none", markersize=8)
    left.annotate("start as printed,\nno regret", PRINTED_START, (10, 0), textcoords="offset points", va="center",
                  fontsize=8.5)  # fmt: skip
    left.annotate("start, and all of\nregret training", START, (9, 1), textcoords="offset points", fontsize=8.5,
                  color=colors["smoothed regret"])  # fmt: skip
    for name, offset in (("SCE", (-8, -4)), ("smoothed SCE", (-8, -6))):
        left.annotate(
            name, paths[name]["predictions"][-1], offset, textcoords="offset points", ha="right", color=colors[name]
        )
    left.text(0.166, -0.015, "ŷ₁ > ŷ₂: the right item", ha="right", color=style.FAINT)
    left.set(xlabel="ŷ₁", ylabel="ŷ₂", xlim=(low, high), ylim=(low, high), title="the prediction")
    left.set_box_aspect(1)
    ends = []
    for k, name in enumerate(NAMES):
        regrets = paths[name]["regrets"]
        # A hair apart, so that no line hides another.
        right.step(range(len(regrets)), regrets + 0.004 * k, where="post", color=colors[name])
        ends.append((len(regrets) - 1, float(regrets[-1]) + 0.004 * k, name, colors[name]))
    right.set(xlabel="step of gradient descent", title="its regret", ylim=(-0.02, 0.46))
    style.label_ends(right, ends)
    return figure
