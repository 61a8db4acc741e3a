"""A figure of the paper: a plot, the numbers behind it, and the sentences that state them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dflearn.files import write_whole
from dflearn.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Plot:
    """One figure.

    Attributes:
        name: as on the command line, and of the files.
        title: one line.
        figure: matplotlib's.
        rows: the numbers behind it, one mapping per row, all with the same keys.
        findings: sentences that state what the numbers say.
        table: header and rows of a short table beside the figure, where there is one.
    """

    name: str
    title: str
    figure: Figure
    rows: Sequence[Row]
    findings: Sequence[str]
    table: tuple[list[str], list[list[str]]] | None = None

    def csv(self) -> str:
        text = io.StringIO()
        if self.rows:
            writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: _short(value) for key, value in row.items()} for row in self.rows)
        return text.getvalue()

    def write(self, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
        """NAME.png and so on, and the numbers as NAME.csv, each whole or not at all."""
        files = style.write_figure(self.figure, folder, self.name, formats)
        return [*files, write_whole(folder / f"{self.name}.csv", self.csv().encode())]


def _short(value: str | int | float) -> str | int | float:
    """Ten digits: more would be noise of the arithmetic, and differ between machines."""
    return float(f"{value:.10g}") + 0.0 if isinstance(value, float) else value


def by_row(columns: Mapping[str, np.ndarray]) -> list[dict[str, str | int | float]]:
    """Arrays of equal length by column → one mapping per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
