"""Columns by name in .csv and .parquet files: read as they are written, and written whole or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.errors import DataError, MissingExtraError
from dflearn.files import check_target, replacing


def read_columns(path: Path) -> tuple[list[str], list[list[Any]], list[str]]:
    """Names, columns (of text, where the file is .csv), and what each row is called."""
    return (_read_parquet if _ending(path) == ".parquet" else _read_csv)(path)


def categories_of(path: Path) -> frozenset[str]:
    """The columns that a .parquet file declares to be categories: dictionaries, or what pandas says of them."""
    if _ending(path) != ".parquet":
        return frozenset()
    arrow = _arrow()
    schema = arrow.parquet.read_schema(path)
    known = (schema.pandas_metadata or {}).get("columns", [])
    told = {column["name"] for column in known if column["pandas_type"] == "categorical"}
    return frozenset(field.name for field in schema if field.name in told or arrow.types.is_dictionary(field.type))


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


def _read_csv(path: Path) -> tuple[list[str], list[list[Any]], list[str]]:
    """Names, columns of text, and places."""
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
            raise DataError(
                f"{path}, line {line} has {len(cells)} cells, and the first line names {len(names)} columns"
            )
    columns = [[cells[k] for _, cells in numbered] for k in range(len(names))]
    return names, columns, [f"line {line}" for line, _ in numbered]


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]], list[str]]:
    arrow = _arrow()
    with open(path, "rb"):  # a missing file is an error of its own
        pass
    try:
        table = arrow.parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    return list(table.column_names), [c.to_pylist() for c in table.columns], [f"row {i}" for i in range(table.num_rows)]


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "Parquet files need pyarrow: pip install 'dflearn[parquet]', or use a .csv file"
        ) from error
    return pyarrow
