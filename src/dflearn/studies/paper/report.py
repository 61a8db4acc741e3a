"""The report of the paper's runs: a study's page with the published figures beside ours, and the paper's own figures."""

from __future__ import annotations

from collections.abc import Iterable

from dflearn.errors import DataError
from dflearn.report.page import Page
from dflearn.studies.paper.figures import COMPUTED, FROM_RECORDS, make_figure
from dflearn.studies.paper.tables import STYLE, published_regrets
from dflearn.studies.record import Record
from dflearn.studies.report import study_page


def paper_page(
    records: Iterable[Record],
    title: str,
    metric: str = STYLE,
    *,
    warnings: Iterable[str] = (),
    with_figures: bool = True,
) -> Page:
    """`study_page` with what was published. with_figures: the paper's figures too, as far as the runs allow."""
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

    return study_page(
        some,
        title,
        metric,
        warnings=warnings,
        reference=published_regrets(some, metric),
        further=add_figures if with_figures else None,
    )
