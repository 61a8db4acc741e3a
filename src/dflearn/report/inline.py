"""A matplotlib figure as SVG inside a page: its letters are the page's, its colours follow light and dark."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from dflearn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK_SEQUENCE = ("#3f7fbf", "#5595cf", "#6eabdd", "#8cc0ec", "#b0d6f6", "#d9ecfc")
# What a colour of the plots is called in the page's style sheet, and what it becomes on a dark page.
PALETTE = {
    style.INK: ("ink", "#e6e8eb"),
    style.FAINT: ("faint", "#9aa3b2"),
    style.LINE: ("line", "#333a42"),
    style.PAPER: ("paper", "#14171b"),
    style.GREY: ("grey", "#a3a9b2"),
    style.BLUE: ("blue", "#4aa8e8"),
    style.SKY: ("sky", "#7cc8f5"),
    style.VERMILLION: ("vermillion", "#ff8b42"),
    style.ORANGE: ("orange", "#f0b429"),
    style.GREEN: ("green", "#2fc79b"),
    style.PINK: ("pink", "#dd93bd"),
    style.WINE: ("wine", "#d46a9f"),
    # On a dark page the strongest of one hue is the lightest.
    **{color: (f"step{k}", dark) for k, (color, dark) in enumerate(zip(style.SEQUENCE, DARK_SEQUENCE, strict=True))},
}
_COLOR = re.compile("|".join(PALETTE))
_IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)')


def variables(*, dark: bool) -> str:
    """The palette as custom properties of a style sheet."""
    return " ".join(f"--{name}: {other if dark else color};" for color, (name, other) in PALETTE.items())


def inline_svg(figure: Figure, prefix: str, caption: str) -> str:
    """The figure as an <svg> element. prefix: what its identifiers begin with, different for each figure of a page."""
    text = style.encoded(figure, "svg", letters=True).decode()
    text = text[text.index("<svg") :]
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    rest = re.sub(r"\s*\n\s*", "\n", rest)
    rest = _COLOR.sub(lambda match: f"var(--{PALETTE[match[0]][0]})", rest)
    rest = _IDENTIFIER.sub(rf"\g<1>{prefix}-", rest)
    width = float(box[0].split()[2])
    return (
        f'<svg {box[0]} style="--natural: {width:.0f}pt" role="img" aria-label="{html.escape(caption)}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{rest.strip()}'
    )
