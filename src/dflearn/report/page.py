"""One self-contained HTML page: text, sortable tables and figures; light and dark, readable on a phone, no network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from dflearn.files import write_whole
from dflearn.report.style import encoded, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The browser itself keeps the page from loading anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class Page:
    """A page that grows from top to bottom and is written whole.

    contents: a line of links to the sections, under the lead.
    """

    def __init__(self, title: str, lead: str, *, contents: bool = False) -> None:
        self.title, self.lead, self.contents = title, lead, contents
        self._parts: list[str] = []
        self._sections: dict[str, str] = {}  # anchor → heading
        self.figures: dict[str, Figure] = {}  # by the name of their files

    def section(self, heading: str) -> None:
        anchor = _slug(heading)
        self._sections[anchor] = heading
        self._parts.append(f'<h2 id="{anchor}">{escape(heading)}</h2>')

    def text(self, paragraph: str, *, faint: bool = False) -> None:
        self._parts.append(f"<p{' class=faint' if faint else ''}>{escape(paragraph)}</p>")

    def items(self, lines: Iterable[tuple[str, str]]) -> None:
        """A list of lines that begin with a word in bold."""
        self._each("<li><b>{}</b> {}</li>", lines, "<ul>{}</ul>")

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and what they stand for, in two columns."""
        self._each("<dt>{}</dt><dd>{}</dd>", rows, "<dl>{}</dl>")

    def cards(self, some: Iterable[tuple[str, str, str]]) -> None:
        """The few numbers that matter, large and side by side: what it is, the number, and how surely."""
        card = "<div><span>{}</span><b>{}</b><span>{}</span></div>"
        self._each(card, some, '<div class="cards">{}</div>')

    def commands(self, lines: Iterable[tuple[str, str]]) -> None:
        """Commands, each under its purpose."""
        self._each("<p>{}</p><pre><code>{}</code></pre>", lines)

    def folded(self, summary: str, text: str) -> None:
        """Text in typewriter letters behind a line that opens it."""
        self._each("<details><summary>{}</summary><pre>{}</pre></details>", [(summary, text)])

    def _each(self, shape: str, rows: Iterable[Sequence[str]], around: str = "{}") -> None:
        self._parts.append(around.format("".join(shape.format(*map(escape, row)) for row in rows)))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, choose: int | None = None) -> None:
        """A click on a column's head sorts by it. choose: the column whose values become buttons that pick rows."""
        heads = "".join(f'<th scope="col"><button type="button">{escape(cell)}</button></th>' for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        buttons = ""
        if choose is not None:
            button = '<button type="button" aria-pressed="{}" value="{}">{}</button>'
            values = map(escape, ("", *dict.fromkeys(row[choose] for row in rows)))
            found = "".join(button.format(str(not value).lower(), value, value or "all") for value in values)
            buttons = f'<div class="choice" data-column="{choose}">{found}</div>'
        self._parts.append(f'<section>{buttons}<div class="wide" tabindex="0">{table}</div></section>')

    def figure(self, figure: Figure, caption: str, title: str = "", name: str = "") -> None:
        """A matplotlib figure, inside the page. name: of its file (default: from the section and the title)."""
        text = (f"<b>{escape(title)}</b> " if title else "") + escape(caption)
        svg = self._svg(figure, title or caption, title, name)
        scroll = f'<div class="scroll" tabindex="0">{svg}</div>'
        self._parts.append(f"<figure>{scroll}<figcaption>{text}</figcaption></figure>")

    def gallery(self, figures: Iterable[tuple[Figure, str]]) -> None:
        """Figures under their titles, side by side where there is room, below each other on a phone."""
        shown = [(escape(title), self._svg(figure, title, title)) for figure, title in figures]
        body = "".join(f"<figure><figcaption>{title}</figcaption>{svg}</figure>" for title, svg in shown)
        self._parts.append(f'<div class="gallery">{body}</div>')

    def _svg(self, figure: Figure, description: str, title: str, name: str = "") -> str:
        name = name or "-".join(filter(None, [next(reversed(self._sections), ""), _slug(title)])) or "figure"
        if name in self.figures:
            name = f"{name}-{len(self.figures) + 1}"
        self.figures[name] = figure
        return inline_svg(figure, f"f{len(self.figures)}", description)

    def html(self) -> str:
        links = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in self._sections.items())
        head = [f"<h1>{escape(self.title)}</h1>", f'<p class="lead">{escape(self.lead)}</p>']
        head += [f"<nav>{links}</nav>"] * self.contents
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f"<title>{escape(self.title)}</title><style>\n{_asset('page.css')}</style></head>\n<body><main>"
            + "\n".join([*head, *self._parts])
            + f"\n</main><script>\n{_asset('page.js')}</script></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        """The file appears whole or not at all."""
        return write_whole(path, self.html().encode())

    def write_figures(self, folder: Path, formats: Sequence[str]) -> list[Path]:
        """Every figure of the page as files of its own: pdf, svg, png."""
        return [path for name, figure in self.figures.items() for path in write_figure(figure, folder, name, formats)]


def inline_svg(figure: Figure, prefix: str, caption: str) -> str:
    """The figure as an <svg> element with the page's letters. prefix: of its identifiers, different for each figure of a page."""
    text = encoded(figure, "svg", letters=True).decode()
    opening, rest = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    assert box is not None
    rest = re.sub(r"<metadata>.*?</metadata>", "", rest, flags=re.DOTALL)
    rest = re.sub(r"\s*\n\s*", "\n", rest)
    rest = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", rest)
    width = float(box[0].split()[2])
    return (
        f'<svg {box[0]} style="--natural: {width:.0f}pt" role="img" aria-label="{escape(caption)}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{rest.strip()}'
    )


def _slug(words: str) -> str:
    return re.sub(r"\W+", "-", words.lower()).strip("-")


def _asset(name: str) -> str:
    return (files("dflearn.report") / name).read_text(encoding="utf-8")
