"""What smoothing does to the geometry: an LP's solution jumps between vertices, the smoothed one slides along the edges.

w_μ(c) = argmin over w in a polygon of cᵀw + (μ/2)‖w‖² = the point of the polygon nearest to −c/μ
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from dflearn.layers import Exact, Smoothed
from dflearn.paper.figures.base import Plot
from dflearn.program import Program
from dflearn.report import style
from dflearn.solvers import HiGHS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERTICES = np.array([[-1.0, -0.9], [0.9, -1.0], [1.3, 0.2], [0.2, 1.1], [-1.2, 0.5]])  # counter-clockwise
MU = 0.6
TURN = np.arange(0.0, 360.0, 1.0)  # directions of −c in degrees: where the objective pulls
SHOWN = (50.0, 70.0, 90.0, 115.0)


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


def make(quick: bool = False) -> Plot:
    angles = TURN[:: 4 if quick else 1]
    exact, smoothed = solutions(angles)
    step = np.linalg.norm(np.roll(smoothed, -1, axis=0) - smoothed, axis=1)
    jumps = np.linalg.norm(np.roll(exact, -1, axis=0) - exact, axis=1)
    resting = float((step < 1e-9).mean())
    rows = [
        {
            "angle of −c": float(angle),
            "LP w1": float(exact[i, 0]),
            "LP w2": float(exact[i, 1]),
            "smoothed w1": float(smoothed[i, 0]),
            "smoothed w2": float(smoothed[i, 1]),
        }
        for i, angle in enumerate(angles)
    ]
    findings = [
        f"Over a full turn of the costs the LP's solution jumps {int((jumps > 0.1).sum())} times, once per edge.",
        f"The smoothed solution (μ = {MU:g}) moves continuously, and still rests at a vertex for {100 * resting:.0f} % of the "
        "turn: there its gradient is zero, and so is the gradient of any decision loss.",
    ]
    title = "An LP's solution jumps, the smoothed one slides, and both rest at vertices"
    return Plot("geometry", title, _draw(angles, exact, smoothed), rows, findings)


def along(points: np.ndarray) -> np.ndarray:
    """Position on the boundary, counted in vertices: 2.5 is the middle of the edge from vertex 2; `(count,)`.

    For points of the boundary; one inside counts as the boundary's nearest.
    """
    starts, edges = VERTICES, np.roll(VERTICES, -1, axis=0) - VERTICES
    share = ((points[:, None] - starts) * edges).sum(-1) / (edges**2).sum(-1)
    share = np.clip(share, 0, 1)
    distance = np.linalg.norm(points[:, None] - starts - share[..., None] * edges, axis=-1)
    nearest = distance.argmin(1)
    return nearest + share[np.arange(len(points)), nearest]


@style.styled
def _draw(angles: np.ndarray, exact: np.ndarray, smoothed: np.ndarray) -> Figure:
    figure = style.new_figure(10.4, 3.8)
    panels = figure.subplots(1, 3, width_ratios=[1, 1, 1.15])
    colors = (style.BLUE, style.SKY, style.GREEN, style.VERMILLION)
    shown = np.array(SHOWN)
    marks = solutions(shown)
    for axes, points, title in zip(panels[:2], marks, ("LP", f"smoothed LP, μ = {MU:g}"), strict=True):
        axes.fill(*VERTICES.T, facecolor=style.LINE, alpha=0.5, edgecolor=style.FAINT, linewidth=1.2)
        seen: dict[tuple[float, float], int] = {}
        for angle, point, color in zip(shown, points, colors, strict=True):
            pull = np.array([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))])
            axes.annotate("", 0.62 * pull, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.8})
            spot = (round(float(point[0]), 6), round(float(point[1]), 6))
            seen[spot] = seen.get(spot, 0) + 1
            # Solutions that coincide are shown as rings around each other.
            axes.plot(*point, "o", markersize=5 + 6 * (seen[spot] - 1), color=color, markeredgewidth=2,
                      markerfacecolor=color if seen[spot] == 1 else "none")  # fmt: skip
            if title == "LP":
                across = np.array([-pull[1], pull[0]])
                line = np.array([point - 0.55 * across, point + 0.55 * across])
                axes.plot(*line.T, color=color, linewidth=1, linestyle="--")
            else:
                center = pull / MU
                turn = np.linspace(0, 2 * np.pi, 400)
                circle = center + np.linalg.norm(point - center) * np.column_stack([np.cos(turn), np.sin(turn)])
                near = np.linalg.norm(circle - point, axis=1) < 0.5
                axes.plot(*np.where(near[:, None], circle, np.nan).T, color=color, linewidth=1, linestyle="--")
        axes.set(aspect="equal", xlim=(-1.5, 1.65), ylim=(-1.3, 1.75), title=title)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    last = panels[2]
    # The turn begins in the middle of the last edge; places are counted on beyond the last vertex, so both curves rise.
    places = [along(points) for points in (exact, smoothed)]
    start = int(np.argmin(np.abs(places[1] - (len(VERTICES) - 0.5))))
    turned = np.arange(len(angles)) * (angles[1] - angles[0])
    for place, color, width in zip(places, (style.INK, style.VERMILLION), (1.2, 2), strict=True):
        rising = np.unwrap(np.roll(place, -start), period=len(VERTICES))
        rising -= len(VERTICES) * np.round((rising[0] + 0.5) / len(VERTICES))  # vertex 5 and vertex 0 are the same
        last.plot(turned, rising, color=color, linewidth=width)
    last.set(xlabel="degrees by which the costs have turned", title="where on the boundary the solution lies")
    last.set_xticks(range(0, 361, 60))
    last.set_yticks(range(len(VERTICES)), [f"vertex {k + 1}" for k in range(len(VERTICES))])
    last.text(0.04, 0.93, "LP", transform=last.transAxes, color=style.INK)
    last.text(0.04, 0.86, "smoothed LP", transform=last.transAxes, color=style.VERMILLION)
    return figure
