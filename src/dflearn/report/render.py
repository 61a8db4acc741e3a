"""Tables as text for a terminal, as Markdown, and as LaTeX (booktabs)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from tabulate import tabulate

Format = Literal["text", "markdown", "latex"]
_LAYOUTS = {"text": "simple", "markdown": "pipe", "latex": "latex_booktabs"}
_SYMBOLS = {"±": r"$\pm$", "μ": r"$\mu$", "×": r"$\times$", "−": "$-$", "≤": r"$\le$"}


def render(header: Sequence[str], rows: Sequence[Sequence[str]], form: Format = "text") -> str:
    """Columns of text, the first to the left, the others to the right."""
    if form == "markdown":
        header, rows = _escaped(header), [_escaped(row) for row in rows]
    align = ["left", *["right"] * (len(header) - 1)] if rows else None
    text = tabulate(rows, header, _LAYOUTS[form], colalign=align, disable_numparse=True)
    if form == "latex":
        text = re.sub(r"\\\^\{\}(\S+)", r"\\textsuperscript{\1}", text)  # SCE^DYS
        for symbol, command in _SYMBOLS.items():
            text = text.replace(symbol, command)
    return text


def _escaped(line: Sequence[str]) -> list[str]:
    return [cell.replace("|", r"\|") for cell in line]


def titled(title: str, form: Format) -> str:
    """A title above a table; a comment in LaTeX."""
    return {"text": title, "markdown": f"### {title}", "latex": f"% {title}"}[form]


def seed_list(seeds: Iterable[int]) -> str:
    """(1, 2, 3, 5) → "1-3, 5"."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def with_deviation(mean: float, deviation: float, count: int) -> str:
    """ "0.1234 ± 0.0056"; the mean alone where there is one value only."""
    return f"{mean:.4f} ± {deviation:.4f}" if count > 1 else f"{mean:.4f}"
