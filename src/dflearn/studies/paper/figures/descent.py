"""Where regret has no gradient and SCE has one: a problem with one variable, and two items with room for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, Loss, Regret, SPOPlus
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS
from dflearn.studies.paper.figures import Plot, by_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# -- one dimension ------------------------------------------------------------------------------------------------
#
# Regret and SCE of a problem with one variable, with and without smoothing.
#
# min over w of y w   s.t.   0 ≤ w ≤ 1,   y = 4,   Ω(w) = (μ/2) w²,   μ = 6


TRUE, MU = 4.0, 6.0
LOSSES = ("regret", "smoothed regret", "SCE", "smoothed SCE", "SPO+")
PREDICTIONS = np.linspace(-10, 6, 321)  # a step of 0.05
TRIPLE = np.array([-8.0, -6.0, -4.0])  # where smoothed SCE is seen not to be convex


def on(program: Program, mu: float, y: Tensor) -> tuple[dict[str, Loss], Batch]:
    """Every loss of LOSSES, and the true costs y `(count, p)` with their optimal decisions."""
    exact, smoothed = Exact(HiGHS(program)), Smoothed(program, mu)
    made = (Regret(exact), Regret(smoothed), SCE(exact), SCE(smoothed), SPOPlus(exact))
    return dict(zip(LOSSES, made, strict=True)), Batch(y, y, exact(y))


def losses(predictions: np.ndarray, true: float = TRUE, mu: float = MU) -> dict[str, np.ndarray]:
    """Every loss of LOSSES at each prediction; `(count,)` each."""
    made, batch = on(Program(n=1, upper=1), mu, torch.full((len(predictions), 1), true, dtype=torch.float64))
    predicted = torch.as_tensor(predictions)[:, None]
    return {name: loss(predicted, batch).numpy() for name, loss in made.items()}


def one_dimension(quick: bool = False) -> Plot:
    predictions = PREDICTIONS[:: 4 if quick else 1]
    values = losses(predictions)
    left, middle, right = losses(TRIPLE)["smoothed SCE"]
    negative = float(losses(np.array([-5.0]), true=-4.0)["smoothed SCE"][0])
    findings = [
        f"Below ŷ = −μ = −{MU:g} the smoothed regret stays at {values['smoothed regret'][0]:g}: its gradient is zero "
        "where the decision is wrong. SCE falls towards the right decision there, smoothed or not.",
        f"Smoothed SCE is not convex: f(−8) = {left:.4g}, f(−6) = {middle:.4g}, f(−4) = {right:.4g}, and "
        f"{middle:.4g} lies above the mean {(left + right) / 2:.4g} of its neighbours.",
        f"With an exact label smoothed SCE can be negative: −{-negative:.4f} at y = −4, ŷ = −5, μ = {MU:g}.",
    ]
    rows = by_row({"prediction": predictions, **values})
    title = "One variable: where regret has no gradient, and SCE has one"
    return Plot("one-dimension", title, _draw_losses(predictions, values), rows, findings)


def _line(name: str) -> dict[str, Any]:
    """A loss has its colour; smoothed it is dashed."""
    return {"color": style.color_of(name.removeprefix("smoothed ")), "linestyle": "--" if "smoothed" in name else "-"}


@style.styled
def _draw_losses(predictions: np.ndarray, values: dict[str, np.ndarray]) -> Figure:
    figure = style.new_figure(8.6, 3.9)
    axes = figure.add_subplot()
    axes.axvspan(predictions[0], -MU, color=style.LINE, alpha=0.5, linewidth=0, label="smoothed regret: no gradient")
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
# Two items and room for one: regret training stands still, SCE moves.
#
#     max over w of yᵀw   s.t.   w₁ + w₂ ≤ 1,   w ≥ 0;   true values y = (0.8, 0.4)
#
# The paper prints the first prediction as (0.1, 0.01), which already ranks the items rightly and has no regret. This
# demonstration starts from its mirror image (0.01, 0.1), on the wrong side.


VALUES, PRINTED_START, START = (0.8, 0.4), (0.1, 0.01), (0.01, 0.1)
WEAK, STEP, STEPS = 0.05, 0.004, 60
NAMES = ("smoothed regret", "smoothed SCE", "SCE")


def one_of_two() -> Program:
    return Program(G=[[1.0, 1.0]], h=[1.0], S=-np.eye(2), sense="maximize", name="two items")


def trajectories(steps: int = STEPS) -> dict[str, dict[str, np.ndarray]]:
    """Plain gradient descent on the prediction itself: of each loss the predictions `(steps + 1, 2)` and regrets."""
    made, batch = on(one_of_two(), WEAK, torch.tensor([VALUES], dtype=torch.float64))
    paths = {}
    for name in NAMES:
        at = torch.tensor([START], dtype=torch.float64, requires_grad=True)
        predictions, regrets = [], []
        for _ in range(steps + 1):
            predictions.append(at.detach().numpy()[0].copy())
            regrets.append(float(made["regret"](at.detach(), batch)))
            (gradient,) = torch.autograd.grad(made[name](at, batch).sum(), at)
            at = (at - STEP * gradient).detach().requires_grad_()
        paths[name] = {"predictions": np.array(predictions), "regrets": np.array(regrets)}
    return paths


def regret_of(prediction: tuple[float, float]) -> float:
    y, predicted = (torch.tensor([values], dtype=torch.float64) for values in (VALUES, prediction))
    made, batch = on(one_of_two(), WEAK, y)
    return float(made["regret"](predicted, batch))


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
        + ": without smoothing SCE stops right behind the boundary, where a small error costs the right decision; "
        "smoothed, it goes on until the decision is clear.",
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
