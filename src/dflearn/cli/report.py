"""dfl report: what a study shows, as one page or as tables for a document."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.arguments import add_command, check_folder
from dflearn.cli.studies import store_of
from dflearn.errors import DataError

TABLES = {".md": "markdown", ".tex": "latex", ".txt": "text"}


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        report,
        "write what a study shows: an HTML page, or its tables",
        "  dfl report experiment.toml -o report.html\n  dfl report paper.sqlite -o report.html --metric published_style\n"
        "  dfl report results/paper/runs.jsonl -o tables.tex\n\n"
        "The page is one file that loads nothing. A name that ends in .md, .tex (booktabs) or .txt gets tables only.",
    )
    parser.add_argument("study", type=Path, help="the study's TOML file, its store, or a .jsonl export")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html"
    )
    parser.add_argument("--metric", default="mean_of_ratios", help="which regret to show (default: mean_of_ratios)")
    parser.add_argument("--title", help="default: the study's name")
    parser.add_argument("--no-figures", action="store_true", help="leave the paper's figures out")


def report(options: argparse.Namespace) -> None:
    from dflearn.files import write_whole
    from dflearn.report.study import study_page, tables
    from dflearn.studies.store import read_records

    kind = options.out.suffix.lower()
    if kind not in (".html", *TABLES):
        raise DataError(f"the name of a report ends in .html, {', '.join(TABLES)}; got {options.out.name!r}")
    check_folder(options.out)
    study = store_of(options.study)
    records = read_records(study)
    if kind in TABLES:
        form: Any = TABLES[kind]
        write_whole(options.out, tables(records, options.metric, form).encode())
    else:
        title = options.title or f"Study {options.study.stem}"
        page = study_page(
            records, title, options.metric, warnings=_gaps(study), with_figures=not options.no_figures
        )  # fmt: skip
        page.write(options.out)
    print(f"{len(records)} runs in {options.out}")


def _gaps(study: Path) -> list[str]:
    """What the study was asked for and does not hold, in words."""
    from dflearn.studies.store import Store

    if study.suffix == ".jsonl":
        return []
    with Store(study, must_exist=True) as store:
        progress = store.progress()
    absent = len(progress.missing) + len(progress.running)
    lines = [f"Not finished: {absent} of the study's runs are not there yet."] if absent else []
    for failure in progress.failed:
        lines.append(f"Failed: {failure.config}: {failure.error.strip().splitlines()[-1]}")
    return lines
