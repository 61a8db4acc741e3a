"""One look for every figure: a colour per loss, a marker and a dash per solver, labels at the ends of lines."""

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
GREEN, PINK, WINE, SILVER = "#009e73", "#cc79a7", "#882255", "#b3b8c0"
LOSS_COLORS = {  # Okabe and Ito's palette, for people with any colour vision, and a wine red of Tol's
    "MSE": GREY, "two-stage": GREY, "two-stage, stopped by regret": SILVER, "knowing the mean": INK,
    "SPO+": BLUE, "sSPO+": SKY, "smoothed SPO+": SKY, "SCE": VERMILLION,
    "Regret": PINK, "regret": PINK, "SqDE": ORANGE, "PFY": GREEN, "FY": GREEN, "CaVE": WINE,
}  # fmt: skip
OTHERS = (WINE, SKY, GREEN, ORANGE, PINK, BLUE)  # of other losses
SOLVER_MARKS = {  # marker of points, dash of lines
    "": ("o", "-"), "DYS": ("D", "--"), "CVX": ("s", "-."), "relax": ("^", "-"), "ILP": ("v", ":"),
    "p=5%": ("P", (0, (4, 1, 1, 1, 1, 1))), "smoothed": ("o", "-"),
}  # fmt: skip
OTHER_MARKS = (("X", "--"), ("h", "-."), ("p", ":"), ("<", "--"), (">", "-."), ("*", ":"))  # of other solvers
SEQUENCE = ("#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")  # one hue, light to dark

SETTINGS: dict[Any, Any] = {
    "axes.axisbelow": True, "axes.grid": True, "axes.spines.right": False, "axes.spines.top": False,
    "axes.titlelocation": "left", "axes.titlesize": 10.5, "axes.titleweight": "bold",
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "text.color": INK, "font.size": 9.5, "figure.dpi": 100,
    "grid.color": LINE, "grid.linewidth": 0.7, "legend.frameon": False,
    "lines.linewidth": 2.0, "lines.solid_capstyle": "round",
    "svg.hashsalt": "dflearn",  # the same plot gives the same file
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
}  # fmt: skip


def _rc_context(more: dict[Any, Any] | None = None) -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'dflearn[plot]'") from error
    return matplotlib.rc_context(SETTINGS | (more or {}))


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draw with the settings of this file, without a change of matplotlib's own."""

    @functools.wraps(draw)
    def wrapped(*arguments: Arguments.args, **options: Arguments.kwargs) -> Figure:
        with _rc_context():
            return draw(*arguments, **options)

    return wrapped


def new_figure(width: float, height: float) -> Figure:
    with _rc_context():
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        # Room around the panels: matplotlib does not measure accents on rotated letters.
        return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def parts(method: str) -> tuple[str, str, str]:
    """`SCE^DYS clean` → (SCE, DYS, clean): the loss, the solver inside it, and the version."""
    name, _, version = method.partition(" ")
    loss, _, solver = name.partition("^")
    return loss, solver, version


def color_of(method: str) -> str:
    """A method's colour, by its name or loss; the same in every figure and process, also for losses of users."""
    loss = method if method in LOSS_COLORS else parts(method)[0]
    return LOSS_COLORS.get(loss) or OTHERS[zlib.crc32(loss.encode()) % len(OTHERS)]


def mark_of(method: str) -> tuple[str, Any]:
    """The marker of its points, and the dash of its lines."""
    solver = parts(method)[1]
    return SOLVER_MARKS.get(solver) or OTHER_MARKS[zlib.crc32(solver.encode()) % len(OTHER_MARKS)]


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap: float = 0.055) -> None:
    """Names at the right ends of lines, (x, y, text, colour) each, moved apart and into the axes' height.

    Call it when the limits of the axes are final. gap: least distance, as a share of the axes' height.
    """
    cast("Figure", axes.get_figure()).draw_without_rendering()  # so that the transforms are final
    to_axes = axes.transAxes.inverted()
    heights = [to_axes.transform(axes.transData.transform((x, y)))[1] for x, y, _, _ in ends]
    free = 0.0  # the lowest height that is free
    for place, k in enumerate(np.argsort(heights, kind="stable")):
        x, y, text, color = ends[k]
        height = min(max(heights[k], free), 1 - gap * (len(ends) - 1 - place))
        free = height + gap
        axes.annotate(text, (x, y), (1.015, height), textcoords="axes fraction", color=color, va="center", fontsize=9,
                      annotation_clip=False)  # fmt: skip


def log_ticks(axis: Any) -> None:
    """Plain numbers on a logarithmic axis with final limits: powers of ten, and others between if there is room."""
    low, high = axis.get_view_interval()
    exponents = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    steps = (1,) if high / low >= 150 else (1, 2, 5) if high / low >= 10 else (1, 1.5, 2, 3, 5, 7)
    ticks = [step * 10.0**k for k in exponents for step in steps if low <= step * 10.0**k <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


FILE_FORMATS: dict[str, dict[str, None]] = {  # without dates: the same figure gives the same file
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def encoded(figure: Figure, form: str, *, letters: bool = False) -> bytes:
    """The content of a file. letters: text of an SVG stays text, for a page with fonts of its own."""
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
