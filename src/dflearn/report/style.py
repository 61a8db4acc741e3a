"""One look for every plot: a colour per loss, a marker and a dash per solver, labels beside what they name."""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import numpy as np

from dflearn.errors import MissingExtraError, OptionError
from dflearn.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arguments = ParamSpec("Arguments")

INK, FAINT, LINE, PAPER = "#1b1f24", "#667085", "#d9dde3", "#ffffff"
GREY, BLUE, SKY, VERMILLION, ORANGE = "#7a7f87", "#0072b2", "#56b4e9", "#d55e00", "#e69f00"
GREEN, PINK, WINE = "#009e73", "#cc79a7", "#882255"
LOSS_COLORS = {  # Okabe and Ito's palette, which people with any colour vision can tell apart, and a wine red of Tol's
    "MSE": GREY,
    "SPO+": BLUE,
    "sSPO+": SKY,
    "SCE": VERMILLION,
    "Regret": PINK,
    "SqDE": ORANGE,
    "PFY": GREEN,
    "FY": GREEN,
    "CaVE": WINE,
}
OTHERS = (WINE, SKY, GREEN, ORANGE, PINK, BLUE)  # of losses that have no colour above
SOLVER_MARKS = {  # marker of points, dash of lines
    "": ("o", "-"),
    "DYS": ("D", "--"),
    "CVX": ("s", "-."),
    "relax": ("^", "-"),
    "ILP": ("v", ":"),
    "p=5%": ("P", (0, (4, 1, 1, 1, 1, 1))),
    "smoothed": ("o", "-"),
}
OTHER_MARKS = (("X", "--"), ("h", "-."), ("p", ":"), ("<", "--"), (">", "-."), ("*", ":"))  # of other solvers
SEQUENCE = ("#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")  # one hue, light to dark

SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "figure.dpi": 100,
    "font.size": 9.5,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "dflearn",  # the same plot gives the same file
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def _rc_context(more: dict[Any, Any] | None = None) -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'dflearn[plot]'") from error
    return matplotlib.rc_context(SETTINGS | (more or {}))


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Run a function that draws with the settings of this file; matplotlib's own are as before afterwards."""

    @functools.wraps(draw)
    def wrapped(*arguments: Arguments.args, **options: Arguments.kwargs) -> Figure:
        with _rc_context():
            return draw(*arguments, **options)

    return wrapped


def new_figure(width: float, height: float) -> Figure:
    with _rc_context():
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        # Room around the panels: accents on rotated letters reach beyond what matplotlib measures.
        return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def parts(method: str) -> tuple[str, str, str]:
    """`SCE^DYS clean` → (SCE, DYS, clean): the loss, what solves inside it, and which version."""
    name, _, version = method.partition(" ")
    loss, _, solver = name.partition("^")
    return loss, solver, version


def color_of(method: str) -> str:
    """A method's colour, by its loss; the same in every figure and process, for losses of users too."""
    loss = parts(method)[0]
    return LOSS_COLORS.get(loss) or OTHERS[zlib.crc32(loss.encode()) % len(OTHERS)]


def marker_of(method: str) -> str:
    return _mark(method)[0]


def dash_of(method: str) -> Any:
    return _mark(method)[1]


def _mark(method: str) -> tuple[str, Any]:
    solver = parts(method)[1]
    return SOLVER_MARKS.get(solver) or OTHER_MARKS[zlib.crc32(solver.encode()) % len(OTHER_MARKS)]


def spread(values: Sequence[float], gap: float) -> np.ndarray:
    """The nearest positions to `values` that lie at least `gap` apart, in the same order.

    p_(k) = k·gap + q_k, where q is the non-decreasing sequence nearest to values_(k) − k·gap: an isotonic regression.
    """
    order = np.argsort(values, kind="stable")
    blocks: list[list[float]] = []  # sum and count of values that share one q
    for k, i in enumerate(order):
        blocks.append([values[i] - k * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    q = np.concatenate([np.full(int(count), total / count) for total, count in blocks]) if blocks else np.empty(0)
    positions = np.empty(len(order))
    positions[order] = q + gap * np.arange(len(order))
    return positions


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 0.055) -> None:
    """Names at the right ends of lines, (x, y, text, colour) each, moved apart and into the axes' height.

    Call it when the limits of the axes are final. gap: least distance, as a share of the axes' height.
    """
    figure = cast("Figure", axes.get_figure())
    figure.draw_without_rendering()  # so that the transforms are final
    if not ends:
        return
    to_axes = axes.transAxes.inverted()
    heights = [to_axes.transform(axes.transData.transform((x, y)))[1] for x, y, _, _ in ends]
    order = np.argsort(np.argsort(heights, kind="stable"))
    low, high = gap * order, 1 - gap * (len(ends) - 1 - order)
    for (x, y, text, color), height in zip(ends, np.clip(spread(heights, gap), low, high), strict=True):
        axes.annotate(
            text,
            xy=(x, y),
            xytext=(1.015, height),
            textcoords="axes fraction",
            color=color,
            va="center",
            fontsize=9,
            annotation_clip=False,
        )


def log_ticks(axis: Any) -> None:
    """Plain numbers on a logarithmic axis whose limits are final: powers of ten, and others between if there is room."""
    low, high = axis.get_view_interval()
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1,) if high / low >= 150 else (1, 2, 5) if high / low >= 10 else (1, 1.5, 2, 3, 5, 7)
    ticks = [step * 10.0**k for k in exponents for step in steps if low <= step * 10.0**k <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


# Where a label may stand beside its point: distances in points, and directions, the best first.
DISTANCES = (7, 11, 16, 23, 32, 43, 56, 71, 88)
ANGLES = np.pi / 8 * np.array([1, 15, 7, 9, 2, 14, 6, 10, 0, 8, 4, 12, 3, 13, 5, 11])
LEADER = 16  # from this distance on a thin line leads from the point to its label
MARK = 5  # half the side of the square, in points, that a marker fills
ROUNDS = 6


def label_points(
    axes: Axes,
    points: Sequence[tuple[float, float, str, str]],
    others: Sequence[tuple[float, float]] = (),
    lines: Sequence[tuple[float, float, float, float]] = (),
) -> None:
    """Names beside points, (x, y, text, colour) each, that overlap neither each other nor any point.

    Each label takes the cheapest place around its point, given where the others are, in a few rounds. Where only a far
    one is free, a thin line leads to it. Call it when limits and layout are final, after
    `figure.draw_without_rendering()`.

    others: points without a name, to be kept free too. lines: (x0, y0, x1, y1) of upright and level ones, better not
        crossed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if not points:
        return
    figure = cast("Figure", axes.get_figure())
    renderer, pixels = FigureCanvasAgg(figure).get_renderer(), figure.dpi / 72
    at = axes.transData.transform([*((x, y) for x, y, _, _ in points), *others]) / pixels
    directions = np.column_stack([np.cos(ANGLES), np.sin(ANGLES)])
    steps = np.concatenate([distance * directions for distance in DISTANCES])
    sides = np.clip(1.5 * np.tile(directions, (len(DISTANCES), 1)), -1, 1) / 2  # which side of a label is nearest
    labels, boxes = [], []
    for (x, y, text, color), spot in zip(points, at, strict=False):
        label = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", color=color, fontsize=8.5,
                              ha="center", va="center", zorder=4,
                              bbox={"boxstyle": "square,pad=0.05", "facecolor": PAPER, "alpha": 0.75, "linewidth": 0}
                              )  # fmt: skip
        label.set_in_layout(False)  # labels must not move the panels that they were placed in
        extent = label.get_window_extent(renderer)
        size = np.array([extent.width, extent.height]) / pixels + 1
        middles = spot + steps + sides * size
        labels.append(label)
        boxes.append(np.hstack([middles - size / 2, middles + size / 2]))
    frame = np.array(axes.get_window_extent(renderer).extents) / pixels
    ends = axes.transData.transform(np.reshape(lines, (-1, 2))).reshape(-1, 4) / pixels
    crossed = np.hstack([np.minimum(ends[:, :2], ends[:, 2:]) - 1, np.maximum(ends[:, :2], ends[:, 2:]) + 1])
    chosen = _places(np.array(boxes), at, crossed, frame, np.hypot(*steps.T))
    for label, spot, box, k in zip(labels, at, boxes, chosen, strict=False):
        label.set_position(tuple((box[k, :2] + box[k, 2:]) / 2 - spot))
        if np.hypot(*steps[k]) >= LEADER:
            line = axes.annotate("", label.xy, tuple(np.clip(spot, box[k, :2], box[k, 2:]) - spot),
                                 textcoords="offset points", arrowprops={"arrowstyle": "-", "color": label.get_color(),
                                 "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
            line.set_in_layout(False)


def _places(
    boxes: np.ndarray, at: np.ndarray, lines: np.ndarray, frame: np.ndarray, distances: np.ndarray
) -> np.ndarray:
    """For each label the number of its place, out of `boxes` (labels, places, 4) of x0, y0, x1, y1.

    at: (points, 2), the labels' points first. lines: (lines, 4), frame: (4,). distances: (places,) from point to label.
    """
    marks = np.hstack([at - MARK, at + MARK])
    spots = at[: len(boxes), None]
    ends = np.clip(spots, boxes[..., :2], boxes[..., 2:])
    shares = np.linspace(0.1, 1, 8)[:, None]
    ways = spots[..., None, :] + shares * (ends - spots)[..., None, :]  # (labels, places, 8, 2) points of the leaders
    # A long way and a late direction cost a little, overlaps and what sticks out a lot.
    cost = distances + 0.3 * (np.arange(len(distances)) % len(ANGLES))
    cost = cost + 20 * ((boxes[..., 2:] - boxes[..., :2]).prod(-1) - _overlap(boxes, frame))
    for line in lines:
        cost += _overlap(boxes, line)
    for k, mark in enumerate(marks):
        cost += 5 * _overlap(boxes, mark)
        strange = 20 * _inside(ways, mark).sum(-1) + 0.5 * _overlap(boxes, mark + MARK * np.array([-1, -1, 1, 1]))
        if k < len(boxes):
            strange[k] = 0  # a leader begins at its own point, and a label may be near to it
        cost += strange
    chosen = cost.argmin(1)
    for _ in range(ROUNDS):
        for i in range(len(boxes)):
            moving = cost[i].copy()
            for j in range(len(boxes)):
                if i != j:
                    other = boxes[j, chosen[j]]
                    moving += 5 * _overlap(boxes[i], other) + 50 * _inside(ways[i], other).sum(-1)
                    moving += 50 * _inside(ways[j, chosen[j]], boxes[i][:, None]).sum(-1)
            chosen[i] = moving.argmin()
    return chosen


def _overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The area that two boxes share."""
    return np.clip(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0, None).prod(-1)


def _inside(points: np.ndarray, box: np.ndarray) -> np.ndarray:
    return np.all((points > box[..., :2]) & (points < box[..., 2:]), -1)


# -- files ----------------------------------------------------------------------------------------------------------

FILE_FORMATS: dict[str, dict[str, None]] = {  # without dates: the same plot gives the same file
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def encoded(figure: Figure, form: str, *, letters: bool = False) -> bytes:
    """The content of a file. letters: those of an SVG stay letters, for a page that has fonts of its own."""
    buffer = io.BytesIO()
    with _rc_context({"svg.fonttype": "none" if letters else "path", "pdf.fonttype": 42}):
        figure.savefig(
            buffer, format=form, dpi=200 if form == "png" else None, facecolor="none" if letters else PAPER,
            metadata=FILE_FORMATS[form],
        )  # fmt: skip
    return buffer.getvalue()


def write_figure(figure: Figure, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """NAME.pdf and so on, each whole or not at all."""
    unknown = [form for form in formats if form not in FILE_FORMATS]
    if unknown or not formats:
        raise OptionError(f"figures are written as {', '.join(FILE_FORMATS)}, got {', '.join(unknown) or 'none'}")
    return [write_whole(folder / f"{name}.{form}", encoded(figure, form)) for form in formats]
