"""One self-contained HTML page: text, sortable tables and figures; light and dark, readable on a phone, no network."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #667; --line: #d9dde3; --accent: #0b66c3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #14171b; --faint: #99a; --line: #333a42; --accent: #6bb1ff; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.lead { font-size: 1.1rem; } .faint, figcaption { color: var(--faint); font-size: .9rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { cursor: pointer; color: var(--accent); }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; background: #fff; border-radius: 6px; }
"""

SORT = """
for (const table of document.querySelectorAll('table')) {
  const body = table.tBodies[0];
  table.querySelectorAll('th').forEach((head, column) => head.addEventListener('click', () => {
    const down = head.dataset.down = head.dataset.down === 'yes' ? 'no' : 'yes';
    const value = row => { const text = row.cells[column].textContent; const number = parseFloat(text); return isNaN(number) ? text : number; };
    const rows = [...body.rows].sort((a, b) => { const x = value(a), y = value(b); return (x > y) - (x < y); });
    if (down === 'no') rows.reverse();
    rows.forEach(row => body.append(row));
  }));
}
"""


class Page:
    """A page that grows from top to bottom and is written whole."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{html.escape(title)}</h1>", f'<p class="lead">{html.escape(lead)}</p>']

    def section(self, heading: str) -> None:
        self._parts.append(f"<h2>{html.escape(heading)}</h2>")

    def text(self, paragraph: str, *, faint: bool = False) -> None:
        self._parts.append(f"<p{' class=faint' if faint else ''}>{html.escape(paragraph)}</p>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A click on a column's head sorts by it."""
        cells = lambda tag, row: "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)  # noqa: E731
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        self._parts.append(
            f'<div class="wide"><table><thead><tr>{cells("th", header)}</tr></thead><tbody>{body}</tbody></table></div>'
        )

    def figure(self, figure: Figure, caption: str) -> None:
        """A matplotlib figure, inside the page."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=160)
        data = base64.b64encode(buffer.getvalue()).decode()
        text = html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
        )

    def html(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{html.escape(self.title)}</title><style>{STYLE}</style></head>\n<body>"
            + "\n".join(self._parts)
            + f"\n<script>{SORT}</script></body></html>\n"
        )

    def write(self, path: Path) -> Path:
        """The file appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(self.html(), encoding="utf-8")
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path
