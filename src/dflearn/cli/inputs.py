"""The tables of `dfl train`, `decide` and `doctor --model`: one row per instance, columns known by name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dflearn.data.tables import Table, closest, read_table
from dflearn.errors import DataError, SolverError

if TYPE_CHECKING:
    from dflearn.estimator import DecisionFocusedRegressor
    from dflearn.frontends.linear_model import LinearModel
    from dflearn.program import Instance, Program
    from dflearn.solvers.base import Solution

Place = tuple[str, int, float]  # field of an Instance, position there, sign


class Tables(NamedTuple):
    """Features, and what else was given, row by row about the same instances."""

    features: Table
    costs: Table | None
    instances: Table | None


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


def check_output(options: argparse.Namespace, *inputs: str) -> None:
    """`--out` has a folder, and is none of the files that are read."""
    from dflearn.cli.arguments import check_folder

    check_folder(options.out)
    for name in inputs:
        path = getattr(options, name)
        if path is not None and path.absolute() == options.out.absolute():
            raise DataError(f"--out and --{name} are both {path}: write to another file")


def read_tables(options: argparse.Namespace, id_column: str | None) -> Tables:
    """The tables that the options name, rows in the order of the features."""
    features = read_table(options.features, id_column)
    costs, instances = (
        None if path is None else read_table(path, id_column, infinite=bounds).aligned_with(features)
        for path, bounds in ((options.costs, False), (options.instances, True))
    )
    return Tables(features, costs, instances)


def load_model(path: Path) -> tuple[DecisionFocusedRegressor, Program]:
    """A model that `dfl train` saved, and its program."""
    from dflearn.estimator import DecisionFocusedRegressor
    from dflearn.program import Program

    regressor = DecisionFocusedRegressor.load(path)
    if "features" not in regressor.record_ or not isinstance(regressor.problem, Program):
        raise DataError(
            f"{path} was not made by dfl train, so nothing tells the names of its features: use it in Python"
        )
    return regressor, regressor.problem


def tables_for(record: Mapping[str, Any], options: argparse.Namespace) -> Tables:
    """The tables for a model that `dfl train` saved with this record; an error where they do not suit it."""
    if record["instances"] and options.instances is None:
        names = ", ".join(record["instances"])
        raise DataError(f"{options.model} was trained with --instances (columns {names}): add such a table")
    if not record["instances"] and options.instances is not None:
        raise DataError(f"{options.model} was trained without --instances: leave it out, or train with it")
    return read_tables(options, options.id or record["id"])


# -- what differs from row to row -----------------------------------------------------------------------------------


def places_of(table: Table, model: LinearModel) -> dict[str, Place]:
    """Where each column of a table of instances belongs."""
    sides, variables = model.rows.right_hand_sides(), list(model.variable_names or ())
    rows = list(model.rows.names or ())
    bounds = {
        rows[i]: variables[k] for i, k in zip(model.rows.single.tolist(), model.rows.column.tolist(), strict=True)
    }
    sign = -1.0 if model.sense == "maximize" else 1.0
    found: dict[str, Place] = {}
    for name in table.names:
        field, _, variable = name.partition(":")
        if name in sides:
            found[name] = sides[name]
        elif field in ("lower", "upper", "d") and variable in variables:
            found[name] = (field, variables.index(variable), sign if field == "d" else 1.0)
        elif name in bounds:
            raise DataError(
                f"{table.path}: the constraint {name!r} holds {bounds[name]!r} alone, so it is a bound: "
                f"call the column lower:{bounds[name]} or upper:{bounds[name]}"
            )
        elif name in rows:
            raise DataError(
                f"{table.path}: the constraint {name!r} has two limits or none: write it as two constraints"
            )
        else:
            known = variables if field in ("lower", "upper", "d") and variable else sides
            raise DataError(
                f"{table.path}: the column {name!r} is neither a constraint of {model.name} nor lower:x, upper:x or d:x "
                f"of a variable x{closest(variable if known is variables else name, known)}"
            )
    return found


def instance_of(table: Table | None, places: Mapping[str, Sequence[Any]], program: Program) -> Instance | None:
    """The `Instance` `(rows, …)` that a table describes: the program's own values but for its columns."""
    import torch

    from dflearn.program import Instance
    from dflearn.program.sides import integer_bounds

    if table is None:
        return None
    values = table.columns(list(places), "the table of instances in training")
    fields: dict[str, np.ndarray] = {}
    for name, column, (field, position, sign) in zip(places, values.T, places.values(), strict=True):
        if field not in ("lower", "upper") and not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0])
            raise DataError(f"{table.where(row)}, column {name!r}: only bounds may be infinite")
        own = np.tile(getattr(program, field), (len(table), 1))
        fields.setdefault(field, own)[:, position] = sign * column
    lower, upper = (fields.get(side, getattr(program, side)) for side in ("lower", "upper"))
    low, high = integer_bounds(lower, upper, program.integer)
    fields |= {side: value for side, value in (("lower", low), ("upper", high)) if side in fields}
    crossed = np.argwhere(low > high)
    if crossed.size:
        row, k = map(int, crossed[0])
        name = (program.variable_names or ())[k]
        raise DataError(
            f"{table.where(row)}: the bounds of {name!r} leave nothing: check lower:{name} and upper:{name}"
        )
    return Instance(**{field: torch.tensor(value) for field, value in fields.items()})


def check_solved(solution: Solution, tables: Tables, what: str) -> None:
    """Every instance has an optimal decision; otherwise an error that names the first row without."""
    from dflearn.solvers.base import Status

    bad = (solution.status != int(Status.OPTIMAL)).nonzero().reshape(-1).tolist()
    if bad:
        status = Status(int(solution.status[bad[0]]))
        table = tables.instances or tables.costs or tables.features
        others = f" ({len(bad)} of {len(table)} rows have none)" if len(bad) > 1 else ""
        raise SolverError(f"{table.where(bad[0])}: no {what}, {status.name.lower()}: {status.message}{others}")
