"""The figures of the page of `dfl train`, one function each: plain data in, a matplotlib figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dflearn.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEPT, OTHER, GAIN, LOSS = style.BLUE, style.GREY, style.GREEN, style.VERMILLION
NUMBERED = 14  # columns of a heat map that have room for their numbers


@style.styled
def intervals(found: Mapping[str, tuple[float, float, float]], kept: str, xlabel: str) -> Figure:
    """One point per model with its interval, (value, low, high) each; the kept model stands out."""
    figure = style.new_figure(6.4, 0.75 + 0.32 * len(found))
    axes = figure.add_subplot()
    for place, (name, (value, low, high)) in enumerate(found.items()):
        color = KEPT if name == kept else OTHER
        if np.isfinite([low, high]).all():
            axes.plot([max(low, 0.0), high], 2 * [place], color=color, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot([value], [place], "o", color=color, markersize=7)
    axes.set_yticks(range(len(found)), [f"{name}  (kept)" if name == kept else name for name in found])
    _bare(axes, "y")
    _money(axes.xaxis)
    axes.set(xlabel=xlabel, xlim=(0, None), ylim=(len(found) - 0.5, -0.5))
    return figure


def running(count: int) -> int:
    """The number of rows in a running mean."""
    return max(count // 10, 1)


@style.styled
def over_time(labels: Sequence[str], regrets: Mapping[str, np.ndarray], unit: str) -> Figure:
    """Above, the regret of two models, a running mean over a tenth of the rows; below, the savings of the first so far.

    labels: the names of the rows, in order. regrets: a value per row and model.
    """
    from matplotlib.ticker import MaxNLocator

    count, width = len(labels), running(len(labels))
    figure = style.new_figure(7.4, 4.6)
    above, below = figure.subplots(2, 1, sharex=True)
    ends = []
    for (name, values), color in zip(regrets.items(), (KEPT, OTHER), strict=True):
        smooth = np.convolve(values, np.full(width, 1 / width), "valid")
        above.plot(np.arange(len(smooth)) + (width - 1) / 2, smooth, color=color, linewidth=1.8)
        ends.append((count - 1, float(smooth[-1]), name, color))
    mine, other = regrets.values()
    total = np.cumsum(other - mine)
    below.plot(range(count), total, color=GAIN, linewidth=2)
    below.fill_between(range(count), total, color=GAIN, alpha=0.12, linewidth=0)
    below.axhline(0, color=style.FAINT, linewidth=1)
    above.set(ylabel=with_unit("regret", unit), ylim=(0, None))
    below.set(ylabel=with_unit("saved so far", unit), xlabel="test rows, in their order")
    for axes in (above, below):
        _money(axes.yaxis)
    locator = MaxNLocator(6, integer=True)
    shown = [int(tick) for tick in locator.tick_values(0, count - 1) if 0 <= tick < count]
    below.set_xticks(shown, [labels[tick] for tick in shown])
    style.label_ends(above, ends, 0.12)
    return figure


@style.styled
def gains_and_losses(saved: np.ndarray, unit: str) -> Figure:
    """The savings of each row, the largest gain first: gains in one colour, losses in another."""
    ordered = np.sort(saved)[::-1]
    figure = style.new_figure(7.4, 2.9)
    axes = figure.add_subplot()
    place = np.arange(len(ordered))
    wide = 0.85 if len(ordered) <= 250 else 1.0
    for some, color in ((ordered > 0, GAIN), (ordered < 0, LOSS)):
        axes.bar(place[some], ordered[some], wide, color=color, linewidth=0)
    axes.axhline(0, color=style.FAINT, linewidth=1)
    axes.set(xlabel="test rows, the largest gain first", ylabel=with_unit("saved", unit), xlim=(-1, len(ordered)))
    axes.grid(visible=False, axis="x")
    _money(axes.yaxis)
    return figure


@style.styled
def heat_map(values: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """A cell per row and column: the larger the value, the stronger the colour."""
    from matplotlib.patches import Rectangle

    height, width = values.shape
    figure = style.new_figure(min(1.6 + 0.58 * width, 11), 1.1 + 0.3 * height)
    axes = figure.add_subplot()
    strength = np.abs(values) / max(np.abs(values).max(initial=0), 1e-300)
    for (i, k), value in np.ndenumerate(values):
        corner = (k - 0.47, i - 0.45)
        axes.add_patch(Rectangle(corner, 0.94, 0.9, facecolor=style.LINE, alpha=0.35, linewidth=0))
        if strength[i, k] > 0:
            alpha = 0.08 + 0.72 * float(strength[i, k])
            axes.add_patch(Rectangle(corner, 0.94, 0.9, facecolor=KEPT, alpha=alpha, linewidth=0))
        if width <= NUMBERED:
            bright = style.PAPER if strength[i, k] > 0.72 else style.INK
            axes.text(k, i, short_number(value), ha="center", va="center", fontsize=8, color=bright)
    axes.set_yticks(range(height), rows)
    axes.set_xticks(range(width), columns)
    if max(map(len, columns), default=0) > (14 if width <= 4 else 8) or width > NUMBERED:  # the names would touch
        for label in axes.get_xticklabels():
            label.set(rotation=50, ha="right", rotation_mode="anchor")
    _bare(axes, "both")
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    return figure


def _bare(axes: Axes, which: Any) -> None:
    """No ticks, lines and spines along an axis of names."""
    axes.grid(visible=False, axis=which)
    axes.tick_params(axis=which, length=0)
    for side in {"y": ("left",), "both": ("bottom", "left")}[which]:
        axes.spines[side].set_visible(False)


def _money(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))


def with_unit(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit else words


def short_number(value: float) -> str:
    """Three digits, or all digits of a number between 100 and a million: 0.0123, 12.3, 12,346, 12.3 M."""
    if not np.isfinite(value):
        return "unknown"
    size = abs(value)
    if 1e6 <= size < 1e12:
        text = f"{value / 1e9:.3g} bn" if size >= 1e9 else f"{value / 1e6:.3g} M"
    elif size < 1e12 and (size >= 100 or value == round(value)):
        text = f"{value + 0.0:,.0f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")
