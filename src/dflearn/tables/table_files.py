"""Columns by name in .csv and .parquet files: read as they are written, and written whole or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dflearn.errors import DataError, MissingExtraError
from dflearn.files import check_target, replacing
from dflearn.program.names import closest
from dflearn.reading import UNREADABLE, check_dense, read_npz
from dflearn.tables.cells import is_missing, number_of


class Read(NamedTuple):
    """The columns of a file: text, if it is .csv."""

    names: list[str]
    columns: list[list[Any]]
    places: list[str]  # of the rows
    categories: frozenset[str] = frozenset()  # columns that a .parquet file declares as such


def read_columns(path: Path) -> Read:
    return (_read_parquet if _ending(path) == ".parquet" else _read_csv)(path)


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
    """Write columns by name to a .csv or .parquet file, whole or not at all; in a .csv file a NaN is an empty cell."""
    path = Path(path)
    check_writable(path)
    with replacing(path) as temporary:
        if _ending(path) == ".parquet":
            arrow = _arrow()
            arrow.parquet.write_table(arrow.table({name: list(cells) for name, cells in columns.items()}), temporary)
        else:
            with open(temporary, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                for row in zip(*columns.values(), strict=True):
                    writer.writerow("" if cell != cell else cell for cell in row)


def check_writable(path: Path) -> None:
    """An error now, where `write_table` would have to refuse later."""
    check_target(path)
    if _ending(path) == ".parquet":
        _arrow()


def _ending(path: Path) -> str:
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"{path} should end in .csv or .parquet, which says how it is read and written")
    return path.suffix


def _read_csv(path: Path) -> Read:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:  # Excel begins a file with a byte order mark
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, cells) for cells in reader if cells]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}; save it as comma-separated text in UTF-8") from error
    if not numbered:
        raise DataError(f"{path} is empty: its first line names the columns")
    names = [name.strip() for name in numbered.pop(0)[1]]
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise DataError(f"{path} separates columns otherwise than by commas: save it with commas and decimal points")
    for line, cells in numbered:
        if len(cells) != len(names):
            wanted = f"the first line names {len(names)} columns"
            raise DataError(f"{path}, line {line} has {len(cells)} cells, and {wanted}")
    columns = [[cells[k] for _, cells in numbered] for k in range(len(names))]
    return Read(names, columns, [f"line {line}" for line, _ in numbered])


def _read_parquet(path: Path) -> Read:
    arrow = _arrow()
    path.open("rb").close()  # a missing file is an error of its own
    try:
        table = arrow.parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    known = (table.schema.pandas_metadata or {}).get("columns", [])
    told = {column["name"] for column in known if column["pandas_type"] == "categorical"}
    told |= {field.name for field in table.schema if arrow.types.is_dictionary(field.type)}
    columns, places = [column.to_pylist() for column in table.columns], [f"row {i}" for i in range(table.num_rows)]
    return Read(table.column_names, columns, places, frozenset(told) & {*table.column_names})


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        remedy = "pip install 'dflearn[parquet]', or use a .csv file"
        raise MissingExtraError(f"Parquet files need pyarrow: {remedy}") from error
    return pyarrow


COLUMNS = ("cost", "variable", "factor")


def read_cost_map(path: str | os.PathLike[str]) -> dict[str, dict[str, float]]:
    """{cost: {variable: factor}}, as `costs` of the front ends takes it, from a .csv, .parquet or .json file:

    cost,variable,factor            {"price_{t}": {"gen_*_{t}": 1.0}, "toll": {"ship_a": 2}}
    price_{t},gen_*_{t},1.0
    toll,ship_a,2
    """
    path = Path(path)
    found: dict[str, dict[str, float]] = {}
    for place, cost, variable, factor in _mapped(path):
        where = f"{path}, {place}"
        for name, cell in (("cost", cost), ("variable", variable)):
            if is_missing(cell):
                raise DataError(f"{where}, column {name!r} is empty: each row names a cost, a variable, and a factor")
        try:
            number = 1.0 if is_missing(factor) else number_of(factor, lambda: True)
        except ValueError as error:
            raise DataError(f"{where}, column 'factor' {error}: the factor of {variable!r} is a number") from error
        factors = found.setdefault(str(cost).strip(), {})
        if variable in factors:
            raise DataError(f"{where}: {variable!r} stands twice for {cost!r}; name it once, with one factor")
        factors[str(variable).strip()] = number
    return found


def _mapped(path: Path) -> Iterable[tuple[str, Any, Any, Any]]:
    """Place, cost, variable and factor of each row."""
    if path.suffix == ".json":
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as JSON: {error}") from error
        if not isinstance(held, Mapping) or not all(isinstance(factors, Mapping) for factors in held.values()):
            raise DataError(f'{path} should hold {{"cost": {{"variable": factor, …}}, …}}')
        return [(repr(cost), cost, one, factor) for cost, factors in held.items() for one, factor in factors.items()]
    names, columns, places, _ = read_columns(path)
    of = dict(zip(names, columns, strict=True))
    unknown, lacking = [name for name in names if name not in COLUMNS], [one for one in COLUMNS[:2] if one not in of]
    if unknown or lacking:
        wrong = f"lacks {lacking[0]!r}" if lacking else f"has {unknown[0]!r}"
        hint = closest(lacking[0], unknown) if lacking and unknown else ""
        raise DataError(f"{path} {wrong}: its columns are cost, variable and, if it is not 1, factor{hint}")
    return zip(places, of["cost"], of["variable"], of.get("factor", [None] * len(places)), strict=True)


def read_predictions(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Predicted costs, float64 `(count, p)`, and instance ids, int64 `(count,)`, where the file has them."""
    ids = None
    try:
        if path.suffix == ".npz":
            arrays = read_npz(path)
            costs = check_dense(arrays, "costs", "numbers of any kind", (None, None)).astype(np.float64)
            if "ids" in arrays:
                ids = check_dense(arrays, "ids", "whole numbers", (len(costs),))
        elif path.suffix == ".csv":
            lines = path.read_text().splitlines()
            names = [cell.strip().lower() for cell in lines[0].split(",")] if lines else []
            try:
                rows = lines[not list(map(float, names)) :]
            except ValueError:  # names of columns
                rows = lines[1:]
            if not rows:
                raise DataError("it has no rows")
            costs = np.loadtxt(rows, delimiter=",", ndmin=2)
            if names[0] == "id":
                ids, costs = costs[:, 0], costs[:, 1:]
        else:
            raise DataError("its name must end in .csv or .npz")
        return costs, None if ids is None else ids.astype(np.int64)
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{path} holds no predictions that can be read: {error}") from error
