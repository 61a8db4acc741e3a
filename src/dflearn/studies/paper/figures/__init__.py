"""The paper's figures, computed by our layers and losses or drawn from a study's records; and the page with them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dflearn.errors import DataError, OptionError
from dflearn.files import write_whole
from dflearn.program.names import closest
from dflearn.report import style
from dflearn.report.page import Page
from dflearn.studies.paper.tables import STYLE, published_regrets
from dflearn.studies.record import Record
from dflearn.studies.report import study_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, str | int | float]

# Name → the file that makes it, and what it shows; those computed by the package, then those drawn from runs.
COMPUTED = {
    "one-dimension": ("small", "regret and SCE of one variable, with and without smoothing"),
    "gradients": ("sampled", "best of M items: gradients of regret and SCE, and the table of Manhattan distances"),
    "two-items": ("small", "two items and room for one: regret training stands still, SCE moves"),
    "geometry": ("small", "solutions of an LP and of the smoothed LP as the costs turn"),
    "cave": ("small", "why CaVE fails on knapsacks"),
    "generalization": ("sampled", "the generalization bound of SCE on 50 linear maps"),
}
FROM_RECORDS = {
    "surrogates": ("records", "surrogate losses against decision losses through differentiable layers"),
    "solvers": ("records", "SPO+ and SCE with differentiable and other solvers: regret and time"),
    "state-of-the-art": ("records", "regret against time, with the best trade-offs"),
}
FIGURES = COMPUTED | FROM_RECORDS


@dataclass(frozen=True)
class Plot:
    """A figure, the numbers behind it (rows with the same keys), and the sentences (findings) and the table that state them."""

    name: str
    title: str
    figure: Figure
    rows: Sequence[Row]
    findings: Sequence[str]
    table: tuple[list[str], list[list[str]]] | None = None

    def write(self, folder: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
        """NAME.png and so on, and the numbers as NAME.csv, each whole or not at all."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in self.rows)
        files = style.write_figure(self.figure, folder, self.name, formats)
        return [*files, write_whole(folder / f"{self.name}.csv", text.getvalue().encode())]


def _short(value: str | int | float) -> str | int | float:
    """Ten digits: more would differ between machines."""
    return float(f"{value:.10g}") + 0.0 if isinstance(value, float) else value


def by_row(columns: Mapping[str, np.ndarray]) -> list[dict[str, str | int | float]]:
    """Arrays of equal length by column → one mapping per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]


def make_figure(name: str, *, quick: bool = False, records: Iterable[Record] = (), metric: str = STYLE) -> Plot:
    """The figure of that name. quick: fewer draws and points. records, metric: for the figures of FROM_RECORDS."""
    if name not in FIGURES:
        raise OptionError(f"no figure is named {name!r}{closest(name, FIGURES)}")
    file, _ = FIGURES[name]
    make = getattr(import_module(f"{__name__}.{file}"), name.replace("-", "_"))
    plot: Plot = make(quick=quick) if name in COMPUTED else make(list(records), metric)
    return plot


def paper_page(records: Iterable[Record], title: str, metric: str = STYLE, *, warnings: Iterable[str] = ()) -> Page:
    """`study_page` with the published values, and with the paper's figures as far as the runs allow."""
    some = list(records)

    def add_figures(page: Page) -> None:
        page.section("The paper's figures")
        for name in (*FROM_RECORDS, *COMPUTED):
            if name == "state-of-the-art":
                continue  # the section on regret against time shows it, problem by problem
            try:
                made = make_figure(name, records=some)
            except DataError:
                if name in COMPUTED:
                    raise
                continue  # the study holds none of the runs that this figure shows
            page.figure(made.figure, " ".join(made.findings), f"{made.title}.", name)
            if made.table is not None:
                page.table(*made.table)

    reference = published_regrets(some, metric)
    return study_page(some, title, metric, warnings=warnings, reference=reference, further=add_figures)
