"""dfl paper figure: the paper's figures as PNG and SVG, with the numbers behind them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dflearn.cli.arguments import add_command, table
from dflearn.cli.studies import store_of
from dflearn.errors import DataError

STUDY = Path("paper.sqlite")  # where `dfl paper table` keeps its runs


def add_figure_command(commands: Any) -> None:
    from dflearn.paper.figures import COMPUTED, FROM_RECORDS

    names = [f"  {name:18}{about}" for name, about in {**COMPUTED, **FROM_RECORDS}.items()]
    parser = add_command(
        commands,
        "figure",
        figure,
        "draw figures of the paper, as PNG and SVG, with their numbers as CSV",
        "  dfl paper figure one-dimension\n  dfl paper figure all --out figures\n"
        "  dfl paper figure state-of-the-art --study results/paper/runs.jsonl\n\nfigures:\n" + "\n".join(names),
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="see below; `all` for every one that the study allows")
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR", help="default: figures")
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


def figure(options: argparse.Namespace) -> None:
    from dflearn.paper.figures import FROM_RECORDS, figure_names, make_figure
    from dflearn.studies.store import read_records

    everything = options.names == ["all"]
    names = figure_names() if everything else options.names
    records = None
    for name in names:
        try:
            if name in FROM_RECORDS and records is None:
                records = read_records(store_of(options.study))
            made = make_figure(name, quick=options.quick, records=records or (), metric=options.metric)
        except DataError as error:
            if not (everything and name in FROM_RECORDS):
                raise
            print(f"{name} is left out: {error}")
            continue
        files = made.write(options.out)
        print(made.title)
        print("\n".join(f"  {line}" for line in made.findings))
        if made.table is not None:
            print("\n".join(f"  {line}" for line in table(*made.table).splitlines()))
        print(f"  {files[0].with_suffix('')}" + "".join(f" {file.suffix}" for file in files))
