"""One look for every plot: a colour per loss, a marker and a dash per solver, labels beside what they name."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import numpy as np

from dflearn.errors import MissingExtraError

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
OTHERS = (WINE, SKY, GREEN, ORANGE, PINK, BLUE)
SOLVER_MARKS = {  # marker of points, dash of lines
    "": ("o", "-"),
    "DYS": ("D", "--"),
    "CVX": ("s", "-."),
    "relax": ("^", "-"),
    "ILP": ("v", ":"),
    "p=5%": ("P", (0, (4, 1, 1, 1, 1, 1))),
    "smoothed": ("o", "-"),
}
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
    """A method's colour, by its loss; the same in every figure."""
    loss = parts(method)[0]
    return LOSS_COLORS.get(loss) or OTHERS[sum(loss.encode()) % len(OTHERS)]


def marker_of(method: str) -> str:
    return SOLVER_MARKS.get(parts(method)[1], ("o", "-"))[0]


def dash_of(method: str) -> Any:
    return SOLVER_MARKS.get(parts(method)[1], ("o", "-"))[1]


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
    """Names at the right ends of lines, (x, y, text, colour) each, moved apart where they would overlap.

    Call it when the limits of the axes are final. gap: least distance, as a share of the axes' height.
    """
    figure = cast("Figure", axes.get_figure())
    figure.draw_without_rendering()  # so that the transforms are final
    if not ends:
        return
    to_axes = axes.transAxes.inverted()
    heights = [to_axes.transform(axes.transData.transform((x, y)))[1] for x, y, _, _ in ends]
    for (x, y, text, color), height in zip(ends, spread(heights, gap), strict=True):
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
    """Plain numbers on a logarithmic axis whose limits are final: powers of ten, and 2 and 5 between if there is room."""
    low, high = axis.get_view_interval()
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1, 2, 5) if high / low < 150 else (1,)
    ticks = [step * 10.0**k for k in exponents for step in steps if low <= step * 10.0**k <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


OFFSETS = (  # where a label may stand beside its point, in points, best first
    (6, 4, "left", "bottom"),
    (6, -4, "left", "top"),
    (-6, 4, "right", "bottom"),
    (-6, -4, "right", "top"),
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 8, "center", "bottom"),
    (0, -8, "center", "top"),
    (12, 18, "left", "bottom"),
    (12, -18, "left", "top"),
    (-12, 18, "right", "bottom"),
    (-12, -18, "right", "top"),
)


def label_points(axes: Axes, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Names beside points, (x, y, text, colour) each, where they overlap neither points nor each other if possible.

    Call it when limits and layout are final, after `figure.draw_without_rendering()`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    renderer = FigureCanvasAgg(cast("Figure", axes.get_figure())).get_renderer()
    marks = [axes.transData.transform((x, y)) for x, y, _, _ in points]
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in marks]
    frame = axes.get_window_extent(renderer)
    for x, y, text, color in points:
        best, least = None, np.inf
        label = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", color=color, fontsize=8.5)
        label.set_in_layout(False)  # labels must not move the panels that they were placed in
        for penalty, (dx, dy, ha, va) in enumerate(OFFSETS):
            label.set(position=(dx, dy), ha=ha, va=va)
            box = label.get_window_extent(renderer)
            overlap = sum(_area(Bbox.intersection(box, other)) for other in taken)
            outside = box.width * box.height - _area(Bbox.intersection(box, frame))
            cost = overlap + outside + 0.5 * penalty
            if cost < least:
                best, least = (dx, dy, ha, va, box), cost
        assert best is not None
        dx, dy, ha, va, box = best
        label.set(position=(dx, dy), ha=ha, va=va)
        taken.append(box)


def _area(box: Any) -> float:
    return 0.0 if box is None else box.width * box.height


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with _rc_context():
        figure.savefig(buffer, format="png", dpi=200, facecolor=PAPER, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure, *, text: bool = False) -> bytes:
    """text: letters stay letters, for a page that has fonts of its own; otherwise they become curves."""
    buffer = io.BytesIO()
    with _rc_context({"svg.fonttype": "none" if text else "path"}):
        figure.savefig(
            buffer, format="svg", facecolor="none" if text else PAPER, metadata={"Date": None, "Creator": None}
        )
    return buffer.getvalue()
