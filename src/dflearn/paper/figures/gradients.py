"""The best of M items: how large are the gradients of regret and SCE, and how far does smoothing move the solution?

    max over w of yᵀw   s.t.   Σ w ≤ 1,   w ≥ 0;   y and ŷ are two permutations of 1, …, M

With both regularizers, (μ/2)‖w‖², which the paper's text states, and μ‖w‖₂, which gives its table.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from dflearn.data import Batch
from dflearn.layers import Exact, Smoothed
from dflearn.losses import SCE, Regret
from dflearn.paper.figures.base import Plot
from dflearn.problems import Selection
from dflearn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ITEMS = (5, 10, 20, 40, 80, 100)
STRENGTHS = (0.1, 0.5, 0.99, 1.05, 1.5, 2.0, 5.0)
DRAWS = 20
REGULARIZERS: tuple[Literal["squared", "norm"], ...] = ("squared", "norm")
Row = dict[str, str | int | float]


def published_distances() -> dict[tuple[float, int], float]:
    """The paper's table: (μ, M) → Manhattan distance of the smoothed solution from the LP's."""
    text = (files("dflearn.paper") / "manhattan_table.csv").read_text()
    return {
        (float(row["mu"]), int(column.removeprefix("M"))): float(value)
        for row in csv.DictReader(text.splitlines())
        for column, value in row.items()
        if column != "mu"
    }


def simulate(items: int, mu: float, regularizer: Literal["squared", "norm"], draws: int, seed: int) -> Row:
    """Means over the draws: |gradient| per component of regret and of SCE, ‖w_μ(ŷ) − w*(ŷ)‖₁."""
    problem = Selection(items=items, k=1, seed=seed)
    rng = np.random.RandomState(seed)
    y, predicted = (torch.as_tensor(np.stack([rng.permutation(items) + 1.0 for _ in range(draws)])) for _ in range(2))
    exact, smoothed = Exact(problem.solver()), Smoothed(problem.program, mu, regularizer=regularizer)
    batch = Batch(y, y, exact(y))
    row: Row = {"regularizer": regularizer, "mu": mu, "M": items}
    for name, loss in (("regret", Regret(smoothed)), ("SCE", SCE(smoothed))):
        at = predicted.clone().requires_grad_()
        loss(at, batch).sum().backward()
        assert at.grad is not None
        row[f"mean |gradient| of {name}"] = float(at.grad.abs().mean())
    row["distance"] = float((smoothed(predicted) - exact(predicted)).abs().sum(-1).mean())
    return row


def make(quick: bool = False) -> Plot:
    draws = 5 if quick else DRAWS
    published = published_distances()
    rows: list[Row] = [
        {**simulate(items, mu, regularizer, draws, seed=1), "published distance": published[mu, items]}
        for regularizer in REGULARIZERS
        for mu in STRENGTHS
        for items in ITEMS
    ]
    title = "The best of M items: gradients, and how far smoothing moves the solution"
    return Plot("gradients", title, _draw(rows), rows, _findings(rows), manhattan_table(rows))


def manhattan_table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: μ, the published distance, and ours with both regularizers, as means over M."""
    header = ["μ", "published", "μ‖w‖", "(μ/2)‖w‖²"]
    body = []
    for mu in STRENGTHS:
        mean = lambda column, kind, mu=mu: np.mean(  # noqa: E731
            [float(row[column]) for row in rows if row["mu"] == mu and row["regularizer"] == kind]
        )
        values = mean("published distance", "norm"), mean("distance", "norm"), mean("distance", "squared")
        body.append([f"{mu:g}", *(f"{value:.3f}" for value in values)])
    return header, body


def _findings(rows: list[Row]) -> list[str]:
    vanishing = max(float(r["mean |gradient| of regret"]) for r in rows if float(r["mu"]) < 1)
    gap = max(abs(float(r["distance"]) - float(r["published distance"])) for r in rows if r["regularizer"] == "norm")
    smallest = min(float(r["mean |gradient| of SCE"]) * int(r["M"]) for r in rows)
    ours = {kind: next(r for r in rows if r["mu"] == 2.0 and r["regularizer"] == kind) for kind in REGULARIZERS}
    return [
        "Where μ < 1, the gap between the two best items, the regret's gradient is "
        f"{vanishing:.1e} at most; SCE's sum of |components| is at least "
        f"{smallest:.2f} everywhere. Drawn with μ‖w‖; the numbers hold (μ/2)‖w‖² too.",
        f"Distances with μ‖w‖ agree with the published table to {gap:.4f}; with (μ/2)‖w‖² they do not "
        f"(μ = 2: {ours['norm']['distance']:.3f} against {ours['squared']['distance']:.3f}).",
    ]


@style.styled
def _draw(rows: list[Row]) -> Figure:
    figure = style.new_figure(10.2, 3.7)
    left, middle, right = figure.subplots(1, 3)
    places = np.arange(len(STRENGTHS))
    of = lambda kind, items: [r for r in rows if r["regularizer"] == kind and r["M"] == items]  # noqa: E731
    for axes, name in ((left, "regret"), (middle, "SCE")):
        ends = []
        for items, color in zip(ITEMS, style.SEQUENCE, strict=True):
            values = [float(row[f"mean |gradient| of {name}"]) for row in of("norm", items)]
            axes.plot(places, values, "-o", color=color, markersize=3.5)
            ends.append((places[-1], values[-1], f"M = {items}", color))
        axes.set_yscale("symlog", linthresh=0.01, linscale=0.4)
        axes.set(title=f"mean |gradient| of smoothed {name}", ylim=(-0.002, 1.3))
        axes.set_yticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
        if name == "SCE":  # the other panel has the same colours, and curves too close to be named one by one
            style.label_ends(axes, ends, 0.065)
    left.text(1, 0.001, "no gradient", ha="center", va="bottom", color=style.SEQUENCE[-1])
    looks = {"norm": (style.VERMILLION, "μ‖w‖", 5.75, "right"), "squared": (style.BLUE, "(μ/2)‖w‖²", 4.6, "left")}
    for kind, (color, text, place, side) in looks.items():
        values = [float(row["distance"]) for row in of(kind, ITEMS[-1])]
        right.plot(places, values, "-", color=color)
        at = float(np.interp(place, places, values))
        right.text(place, at + (0.06 if side == "right" else -0.06), text, color=color, ha=side, va="center")
    shown = [float(row["published distance"]) for row in of("norm", ITEMS[-1])]
    right.plot(places, shown, "o", color=style.INK, markerfacecolor="none", markersize=7)
    right.text(places[4] - 0.25, shown[4], "published", ha="right", va="center")
    right.set(title="distance from the LP's solution")
    for axes in (left, middle, right):
        axes.axvline(2.5, color=style.FAINT, linewidth=1, linestyle=":")  # μ = 1
        axes.set_xticks(places, [f"{mu:g}" for mu in STRENGTHS])
        axes.set_xlabel("smoothing μ")
    right.text(2.45, 1.17, "μ = 1", ha="right", color=style.FAINT)
    return figure
