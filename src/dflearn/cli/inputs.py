"""The tables of `dfl train`, `decide` and `doctor --model`: their options and files, and errors in words of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dflearn.cli.arguments import positive
from dflearn.errors import DflearnError

if TYPE_CHECKING:
    from dflearn.program import Program
    from dflearn.tables.tables import MixedTable, Table

# What the library says of its arguments, and how an option is said instead.
OPTIONS = {
    r"pass id_column='([^']*)'": r"add --id \1",
    r"with id_column$": "with --id COLUMN",
    r"\(id_column\)": "(--id)",
    r"^(loss|layer) is one of": r"--\1 is one of",
    r"^test=": "--test ",
    r"^(gap|folds|groups|weights)(?:=| )": r"--\1 ",
    r"^groups:": "--groups:",
    r"pass ordered=True": "add --ordered",
    r"pass ordered='([^']*)'": r"add --ordered \1",
    r"leave out ordered or groups": "leave out --ordered or --groups",
    r"positive=True": "--positive",
    r"trained (with|without) instances": r"trained \1 --instances",
    r"trust=True": "--trust-code",
    r"program\.elastic\(rows, price\)": "--elastic PRICE",
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


def add_mapping_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--map",
        type=Path,
        metavar="FILE",
        help="costs that enter several variables: a table with the columns cost, variable, factor, or .json "
        "{cost: {variable: factor}}; price_{t},gen_*_{t},1 maps an hourly price to all units",
    )


def add_recourse_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recourse",
        nargs="+",
        default=[],
        metavar="NAME",
        help="variables that are decided once the truth is known: names, or beginnings and *",
    )
    parser.add_argument(
        "--elastic",
        nargs="+",
        default=[],
        metavar="[ROW=]PRICE",
        help="rows that may be broken at a price once the truth is known: 4, or 0.5,4 (exceeding, lacking), for all rows whose "
        "right-hand side is predicted, or ROW=4 for one",
    )


def with_slack(program: Program, options: argparse.Namespace) -> Program:
    """The program with the slack that `--elastic` asks for."""
    from dflearn.errors import OptionError

    for text in options.elastic:
        row, _, price = text.rpartition("=")
        try:
            amounts = tuple(float(part) for part in price.split(","))
        except ValueError as error:
            raise OptionError(f"--elastic is PRICE, EXCEEDING,LACKING or ROW=PRICE; got {text!r}") from error
        program = program.elastic(row or "predicted", amounts[0] if len(amounts) == 1 else amounts)
    return program


def add_part_options(parser: argparse.ArgumentParser) -> None:
    """How rows are divided, and what they weigh."""
    parser.add_argument(
        "--test", type=float, metavar="SHARE", help="of rows to test on (default: 0.25; 0.5 with --folds)"
    )
    parser.add_argument(
        "--ordered",
        nargs="?",
        const=True,
        default=False,
        metavar="COLUMN",
        help="choose by later rows and test on the last, in order of time: by this column, which may be that of --id, or, without "
        "a name, as the rows stand, unless times in the tables say otherwise (as-is: unchecked)",
    )
    parser.add_argument(
        "--gap",
        type=int,
        default=0,
        metavar="ROWS",
        help="rows left out between the parts, with --ordered (default: 0)",
    )
    parser.add_argument(
        "--groups",
        metavar="COLUMN",
        help="a column of the features whose rows of one value stay in one part; it is no feature then",
    )
    parser.add_argument(
        "--folds",
        type=positive,
        metavar="N",
        help="rolling origins: train N times, each time on the rows before the next part of the last rows; in order of time",
    )
    parser.add_argument(
        "--weights",
        metavar="COLUMN",
        help="how much each row counts: a column of the features, which is no feature then, or a table of one column",
    )


def cost_map(options: argparse.Namespace, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Which variables each column of the costs enters: those that `--map` says, otherwise the variable of its name."""
    if options.map is None:
        return {name: {name: 1.0} for name in names}
    from dflearn.frontends.costs import may_be
    from dflearn.tables.table_files import read_cost_map

    held = read_cost_map(options.map)
    return held | {name: {name: 1.0} for name in names if not any(may_be(cost, name) for cost in held)}


def read_weights(options: argparse.Namespace, id_column: str | None) -> str | Table | None:
    """What `--weights` names: a column of the features, or the one column of a file."""
    from dflearn.tables.tables import read_table

    if options.weights is None or not options.weights.endswith((".csv", ".parquet")):
        return options.weights
    return read_table(options.weights, id_column)


def read_tables(options: argparse.Namespace, id_column: str | None) -> tuple[MixedTable, Table | None, Table | None]:
    """The tables of features, costs and instances that the options name."""
    from dflearn.tables.tables import read_mixed, read_table

    costs, instances = (
        None if path is None else read_table(path, id_column, infinite=bounds)
        for path, bounds in ((options.costs, False), (options.instances, True))
    )
    return read_mixed(options.features, id_column), costs, instances


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
