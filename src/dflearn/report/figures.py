"""The figures of pages and reports, one function each: plain data in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dflearn.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#7f7f7f", "#0b66c3", "#d9730d", "#1a8f5a", "#8a4fbe", "#c0392b", "#00838f", "#6d4c41")


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'dflearn[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _plain(axes: Any) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    return axes


def learning_curves(curves: Mapping[str, Sequence[float]], ylabel: str, floor: float | None = None) -> Figure:
    """One line per method over the epochs; a dashed line for the floor."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(6.4, 3.8)
    axes = _plain(figure.add_subplot())
    for (name, curve), color in zip(curves.items(), COLORS, strict=False):
        axes.plot(range(1, len(curve) + 1), curve, label=name, color=color, linewidth=2)
    if floor is not None:
        axes.axhline(floor, color="black", linestyle="--", linewidth=1, label="deciding with E[y | x]")
    axes.set(xlabel="epoch", ylabel=ylabel, ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    return figure


def regret_against_time(points: Mapping[str, tuple[float, float, float]], xlabel: str, ylabel: str) -> Figure:
    """One point per method: (seconds, regret, half-width of its interval); time on a logarithmic axis."""
    figure = new_figure(6.4, 3.8)
    axes = _plain(figure.add_subplot())
    for (name, (seconds, regret, error)), color in zip(points.items(), COLORS, strict=False):
        axes.errorbar(seconds, regret, yerr=error, fmt="o", color=color, capsize=3, markersize=8, label=name)
    axes.set(xscale="log", xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    axes.margins(x=0.15)
    axes.legend(frameon=False)
    return figure


def grid_paths(
    edges: np.ndarray, shape: tuple[int, int], costs: np.ndarray, paths: Mapping[str, tuple[np.ndarray, float]]
) -> Figure:
    """A grid whose edges are as thick as they cost, once per method, with the path taken and its true cost.

    The first path is black, the others have the colours that their methods have elsewhere.
    edges: (edges, 2) tail and head of each, nodes numbered row by row. paths: name → (chosen edges as 0 or 1, cost).
    """
    figure = new_figure(2.6 * len(paths), 2.9)
    for k, (name, (chosen, cost)) in enumerate(paths.items()):
        axes = figure.add_subplot(1, len(paths), k + 1)
        for (tail, head), weight, taken in zip(edges, costs, chosen, strict=True):
            x, y = zip(*(divmod(int(node), shape[1])[::-1] for node in (tail, head)), strict=True)
            axes.plot(x, y, color="#c9ced6", linewidth=0.6 + 7 * weight / costs.max(), solid_capstyle="round")
            if taken > 0.5:
                axes.plot(
                    x, y, color=COLORS[(k - 1) % len(COLORS)] if k else "black", linewidth=2.5, solid_capstyle="round"
                )
        axes.set_title(f"{name}: {cost:.2f}", fontsize=10)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        axes.axis("off")
    return figure
