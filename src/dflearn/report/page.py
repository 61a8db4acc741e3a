"""One self-contained HTML page: text, sortable tables and figures; light and dark, readable on a phone, no network."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from dflearn.files import write_whole
from dflearn.report.inline import inline_svg, variables
from dflearn.report.style import write_figure

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
        self._parts.append(f'<h2 id="{anchor}">{html.escape(heading)}</h2>')

    def text(self, paragraph: str, *, faint: bool = False) -> None:
        self._parts.append(f"<p{' class=faint' if faint else ''}>{html.escape(paragraph)}</p>")

    def items(self, lines: Iterable[tuple[str, str]]) -> None:
        """A list of lines that begin with a word in bold."""
        body = "".join(f"<li><b>{html.escape(word)}</b> {html.escape(line)}</li>" for word, line in lines)
        self._parts.append(f"<ul>{body}</ul>")

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        """Names and what they stand for, in two columns."""
        body = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in rows)
        self._parts.append(f"<dl>{body}</dl>")

    def cards(self, some: Iterable[tuple[str, str, str]]) -> None:
        """The few numbers that matter, large and side by side: what it is, the number, and how surely."""
        body = "".join(
            f"<div><span>{html.escape(name)}</span><b>{html.escape(number)}</b><span>{html.escape(more)}</span></div>"
            for name, number, more in some
        )
        self._parts.append(f'<div class="cards">{body}</div>')

    def commands(self, lines: Iterable[tuple[str, str]]) -> None:
        """What to type, each under what it does."""
        for what, command in lines:
            self._parts.append(f"<p>{html.escape(what)}</p><pre><code>{html.escape(command)}</code></pre>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, choose: int | None = None) -> None:
        """A click on a column's head sorts by it. choose: the column whose values become buttons that pick rows."""
        heads = "".join(f'<th scope="col"><button type="button">{html.escape(cell)}</button></th>' for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        table = (
            f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        )
        if choose is not None:
            values = dict.fromkeys(row[choose] for row in rows)
            buttons = "".join(
                f'<button type="button" aria-pressed="{str(not value).lower()}" value="{html.escape(value)}">'
                f"{html.escape(value or 'all')}</button>"
                for value in ("", *values)
            )
            table = f'<div class="choice" data-column="{choose}">{buttons}</div>{table}'
        self._parts.append(f"<section>{table}</section>")

    def figure(self, figure: Figure, caption: str, title: str = "", name: str = "") -> None:
        """A matplotlib figure, inside the page. name: of its file (default: from the section and the title)."""
        text = f"<b>{html.escape(title)}</b> {html.escape(caption)}" if title else html.escape(caption)
        self._parts.append(
            f'<figure><div class="scroll" tabindex="0">{self._svg(figure, title or caption, name or self._name(title))}</div><figcaption>{text}</figcaption></figure>'
        )

    def gallery(self, figures: Iterable[tuple[Figure, str]]) -> None:
        """Figures under their titles, side by side where there is room, below each other on a phone."""
        body = "".join(
            f"<figure><figcaption>{html.escape(title)}</figcaption>{self._svg(figure, title, self._name(title))}</figure>"
            for figure, title in figures
        )
        self._parts.append(f'<div class="gallery">{body}</div>')

    def _name(self, title: str) -> str:
        return "-".join(filter(None, [next(reversed(self._sections), ""), _slug(title)])) or "figure"

    def _svg(self, figure: Figure, description: str, name: str) -> str:
        if name in self.figures:
            name = f"{name}-{len(self.figures) + 1}"
        self.figures[name] = figure
        return inline_svg(figure, f"f{len(self.figures)}", description)

    def folded(self, summary: str, text: str) -> None:
        """Text in typewriter letters behind a line that opens it."""
        self._parts.append(
            f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(text)}</pre></details>"
        )

    def html(self) -> str:
        head = [f"<h1>{html.escape(self.title)}</h1>", f'<p class="lead">{html.escape(self.lead)}</p>']
        if self.contents:
            links = "".join(f'<a href="#{anchor}">{html.escape(name)}</a>' for anchor, name in self._sections.items())
            head.append(f"<nav>{links}</nav>")
        colors = (
            f":root {{ {variables(dark=False)} }}\n"
            f"@media (prefers-color-scheme: dark) {{ :root {{ {variables(dark=True)} }} }}\n"
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f"<title>{html.escape(self.title)}</title><style>\n{colors}{_asset('page.css')}</style></head>\n<body><main>"
            + "\n".join([*head, *self._parts])
            + f"\n</main><script>\n{_asset('page.js')}</script></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        """The file appears whole or not at all."""
        return write_whole(path, self.html().encode())

    def write_figures(self, folder: Path, formats: Sequence[str]) -> list[Path]:
        """Every figure of the page as files of its own: pdf, svg, png."""
        return [path for name, figure in self.figures.items() for path in write_figure(figure, folder, name, formats)]


def _slug(words: str) -> str:
    return re.sub(r"\W+", "-", words.lower()).strip("-")


def _asset(name: str) -> str:
    return (files("dflearn.report") / name).read_text(encoding="utf-8")
