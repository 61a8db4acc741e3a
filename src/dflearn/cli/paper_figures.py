"""dfl paper figure and dfl paper report: the paper's figures with the numbers behind them, and the page of its runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command
from dflearn.cli.report import FORMATS, KINDS, add_report_options, write_report
from dflearn.cli.studies import store_of
from dflearn.errors import DataError

if TYPE_CHECKING:
    from dflearn.report.page import Page
    from dflearn.studies.record import Record

STUDY = Path("paper.sqlite")  # where `dfl paper table` keeps its runs


def add_figure_command(commands: Any) -> None:
    from dflearn.paper.figures import COMPUTED, FROM_RECORDS

    names = [f"  {name:18}{about}" for name, about in {**COMPUTED, **FROM_RECORDS}.items()]
    parser = add_command(
        commands,
        "figure",
        figure,
        "draw figures of the paper, with their numbers as CSV",
        "  dfl paper figure one-dimension\n  dfl paper figure all --out figures\n"
        "  dfl paper figure state-of-the-art --study results/paper/runs.jsonl.xz\n\nfigures:\n" + "\n".join(names),
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="see below; `all` for every one that the study allows")
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="default: figures")
    parser.add_argument("--format", nargs="+", choices=FORMATS, default=["png", "svg"], help="default: png svg")
    parser.add_argument("--quick", action="store_true", help="fewer draws and points, for a first look")
    parser.add_argument(
        "--study",
        type=Path,
        default=STUDY,
        help=f"a study's TOML file, store or .jsonl export, whose runs {', '.join(FROM_RECORDS)} show (default: {STUDY})",
    )
    parser.add_argument(
        "--metric", default="published_style", help="regret of those three (default: published_style, as in the paper)"
    )


def figure(options: argparse.Namespace) -> Answer:
    from dflearn.paper.figures import FROM_RECORDS, figure_names, make_figure
    from dflearn.report.render import render
    from dflearn.studies.store import read_records

    everything = options.names == ["all"]
    names = figure_names() if everything else options.names
    records, found = None, {}
    lines: list[str] = []
    for name in names:
        try:
            if name in FROM_RECORDS and records is None:
                records = read_records(store_of(options.study))
            made = make_figure(name, quick=options.quick, records=records or (), metric=options.metric)
        except DataError as error:
            if not (everything and name in FROM_RECORDS):
                raise
            lines.append(f"{name} is left out: {error}")
            continue
        files = made.write(options.out, options.format)
        found[name] = {"title": made.title, "findings": list(made.findings), "files": files}
        lines += [made.title, *(f"  {line}" for line in made.findings)]
        if made.table is not None:
            lines += [f"  {line}" for line in render(*made.table).splitlines()]
        lines.append(f"  {files[0].with_suffix('')}" + "".join(f" {file.suffix}" for file in files))
    return Answer("\n".join(lines), {"figures": found})


def add_report_command(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        report,
        "write the page of a study with the published figures beside ours, and the paper's figures",
        "  dfl paper report --study results/paper/runs.jsonl.xz -o report.html\n"
        f"  dfl paper report -o figures --format pdf svg\n\n{KINDS}",
    )
    parser.add_argument(
        "--study", type=Path, default=STUDY, help=f"a study's TOML file, store or .jsonl export (default: {STUDY})"
    )
    add_report_options(parser, "published_style")
    parser.add_argument("--no-figures", action="store_true", help="leave the paper's figures out")


def report(options: argparse.Namespace) -> Answer:
    from dflearn.paper.report import paper_page
    from dflearn.paper.tables import published_regrets

    def page(records: list[Record], warnings: Iterable[str]) -> Page:
        title, shown = options.title or "The paper's runs", not options.no_figures
        return paper_page(records, title, options.metric, warnings=warnings, with_figures=shown)

    return write_report(options, page, lambda records: published_regrets(records, options.metric))
