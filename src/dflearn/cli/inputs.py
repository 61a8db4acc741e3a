"""The tables of `dfl train`, `decide` and `doctor --model`: their options and files, and errors in words of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dflearn.errors import DflearnError

if TYPE_CHECKING:
    from dflearn.data.tables import Table

# What the library says of its arguments, and how an option is said instead.
OPTIONS = {
    r"pass id_column='([^']*)'": r"add --id \1",
    r"with id_column$": "with --id COLUMN",
    r"\(id_column\)": "(--id)",
    r"^(loss|layer) is one of": r"--\1 is one of",
    r"^test=": "--test ",
    r"positive=True": "--positive",
    r"trained (with|without) instances": r"trained \1 --instances",
    r"trust=True": "--trust-code",
}


def add_table_options(parser: argparse.ArgumentParser, *, costs: str, required: bool) -> None:
    parser.add_argument(
        "--features", type=Path, required=True, metavar="FILE", help="table of features, .csv or .parquet"
    )
    parser.add_argument("--costs", type=Path, required=required, metavar="FILE", help=costs)
    add_row_options(parser)


def add_row_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--id", metavar="COLUMN", help="the column that names the rows, in every table")
    parser.add_argument(
        "--instances",
        type=Path,
        metavar="FILE",
        help="table of what else differs from row to row: columns named after constraints (their right-hand sides), or "
        "lower:x, upper:x, d:x of a variable x (bounds, known cost)",
    )


def read_tables(options: argparse.Namespace, id_column: str | None) -> tuple[Table, Table | None, Table | None]:
    """The tables of features, costs and instances that the options name."""
    from dflearn.data.tables import read_table

    costs, instances = (
        None if path is None else read_table(path, id_column, infinite=bounds)
        for path, bounds in ((options.costs, False), (options.instances, True))
    )
    return read_table(options.features, id_column), costs, instances


def as_options(text: str) -> str:
    """A text of the library, which names arguments, with the options of the command instead."""
    for argument, option in OPTIONS.items():
        text = re.sub(argument, option, text)
    return text


@contextmanager
def in_options(model: Path | None = None) -> Iterator[None]:
    """Errors of the library speak of arguments and of "the model"; out of here they speak of options and its file."""
    try:
        yield
    except DflearnError as error:
        text = as_options(str(error))
        raise type(error)(text if model is None else text.replace("the model was", f"{model} was")) from error
