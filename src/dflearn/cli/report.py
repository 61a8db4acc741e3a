"""dfl report: what a study shows, as one page, as tables for a document, or as figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command
from dflearn.cli.studies import stale_lines, store_of
from dflearn.errors import OptionError
from dflearn.files import check_writable

if TYPE_CHECKING:
    from dflearn.report.page import Page
    from dflearn.studies.record import Record

TABLES = {".md": "markdown", ".tex": "latex", ".txt": "text"}
FORMATS = ("pdf", "svg", "png")
KINDS = (
    "The page is one file that loads nothing. A name that ends in .md, .tex (booktabs) or .txt gets tables only; a name "
    "without an ending is a folder that gets all figures of the page as files."
)


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        report,
        "write what a study shows: an HTML page, its tables, or its figures",
        "  dfl report experiment.toml -o report.html\n  dfl report experiment.sqlite -o tables.tex\n"
        f"  dfl report runs.jsonl -o figures --format pdf svg png\n\n{KINDS}",
    )
    parser.add_argument("study", type=Path, help="the study's TOML file, its store, or a .jsonl export")
    add_report_options(parser, "mean_of_ratios")


def add_report_options(parser: argparse.ArgumentParser, metric: str) -> None:
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), metavar="PATH", help="default: report.html"
    )
    parser.add_argument(
        "--format", nargs="+", choices=FORMATS, default=["pdf"], help="of the figures in a folder (default: pdf)"
    )
    parser.add_argument("--metric", default=metric, help=f"which regret to show (default: {metric})")
    parser.add_argument("--title", help="default: the study's name")


def report(options: argparse.Namespace) -> Answer:
    from dflearn.report.study import study_page

    def page(records: list[Record], warnings: Iterable[str]) -> Page:
        return study_page(records, _title(options), options.metric, warnings=warnings)

    return write_report(options, page, lambda records: {})


def _title(options: argparse.Namespace) -> str:
    return options.title or f"Study {options.study.stem}"


def write_report(
    options: argparse.Namespace,
    make_page: Callable[[list[Record], Iterable[str]], Page],
    reference: Callable[[list[Record]], Mapping[tuple[str, str], float]],
) -> Answer:
    """Write the page, tables or figures that the options of `add_report_options` ask for. reference: known regrets, for the tables."""
    from dflearn.files import write_whole
    from dflearn.report.study import tables
    from dflearn.studies.store import read_records

    kind = options.out.suffix.lower()
    if kind not in ("", ".html", *TABLES):
        raise OptionError(f"a report ends in .html, {', '.join(TABLES)}, or is a folder; got {options.out.name!r}")
    check_writable(options.out)
    study = store_of(options.study)
    records, further = _of_the_study(options.study, read_records(study))
    if kind in TABLES:
        form: Any = TABLES[kind]
        write_whole(options.out, tables(records, options.metric, form, reference(records)).encode())
    elif kind:
        make_page(records, [*further, *_gaps(study)]).write(options.out)
    else:
        files = make_page(records, ()).write_figures(options.out, options.format)
        return Answer(
            f"{len(files)} files in {options.out}", {"out": options.out, "runs": len(records), "files": files}
        )
    return Answer(
        f"{len(records)} runs in {options.out}", {"out": options.out, "runs": len(records), "files": [options.out]}
    )


def _of_the_study(study: Path, records: list[Record]) -> tuple[list[Record], list[str]]:
    """The runs that a TOML file asks for, and what to say of the others in its store; all runs of a store or an export."""
    if study.suffix != ".toml" or not study.exists():
        return records, []
    from dflearn.studies.config import read_study
    from dflearn.studies.summary import left_out_lines

    wanted = {config.question for config in read_study(study).runs()}
    kept = [record for record in records if record.config.question in wanted]
    others = len(records) - len(kept)
    notes = (
        [f"{others} runs of the store are not of this study, as its file is now, and are left out."] if others else []
    )
    return kept, [*notes, *left_out_lines(kept), *stale_lines(kept)]


def _gaps(study: Path) -> list[str]:
    """Runs that the study was asked for and does not hold, in words."""
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
