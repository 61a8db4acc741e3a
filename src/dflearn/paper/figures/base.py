"""What every figure is: a plot, the numbers behind it, and what they say in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

    def write(self, folder: Path) -> list[Path]:
        """NAME.png, NAME.svg and NAME.csv, each whole or not at all."""
        return [
            write_whole(folder / f"{self.name}.png", style.png(self.figure)),
            write_whole(folder / f"{self.name}.svg", style.svg(self.figure)),
            write_whole(folder / f"{self.name}.csv", self.csv().encode()),
        ]


def _short(value: str | int | float) -> str | int | float:
    """Ten digits: more would be noise of the arithmetic, and differ between machines."""
    return float(f"{value:.10g}") + 0.0 if isinstance(value, float) else value
