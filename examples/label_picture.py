"""The picture of docs/explanation/label.md: what an exact label does to a smoothed loss where part of the objective is known.

    python examples/label_picture.py

Two products share a capacity of one: min −ŷ w₁ − 2 w₂ over w₁ + w₂ ≤ 1, w ≥ 0. The margin y of the first is predicted, that of
the second is known. On nine days of ten y = 3, on the tenth y = 1.8. The model knows all this, up to one factor: ŷ = a y.
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import dflearn as dfl
from beside import picture
from dflearn.report.style import BLUE, INK, VERMILLION

PICTURE = Path("docs/images/label.png")
PROGRAM = dfl.Program(S=[[-1.0], [0.0]], d=[0.0, -2.0], G=[[1.0, 1.0]], h=[1])
MU = 2.0
MARGINS, DAYS = torch.tensor([[3.0], [1.8]]).double(), torch.tensor([0.9, 0.1]).double()


def draw_decisions(axes: Axes) -> None:
    """The feasible triangle for y = 3, the two labels, and the smoothed decisions on the way to the exact one."""
    smoothed, y = dfl.Smoothed(PROGRAM, MU), MARGINS[:1]
    own, exact = smoothed(y)[0], dfl.Exact(dfl.HiGHS(PROGRAM))(y)[0]
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
    loss = dfl.losses.SmoothedSPOPlus(dfl.Smoothed(PROGRAM, MU), label=label)  # type: ignore[arg-type]
    batch = dfl.Batch(MARGINS, MARGINS, dfl.Exact(dfl.HiGHS(PROGRAM))(MARGINS))
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


def draw(figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    draw_decisions(left)
    draw_factor(right)


if __name__ == "__main__":
    picture(PICTURE, (9.5, 3.9), draw)
