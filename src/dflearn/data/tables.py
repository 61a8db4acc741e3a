"""Tables of numbers with named columns, read from and written to CSV and Parquet files by their ending."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.errors import DataError, MissingExtraError
from dflearn.files import replacing


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds.

    Attributes:
        path: the file, for messages.
        names: the columns, each name once.
        values: float64 `(rows, columns)`.
        places: what each row is called in the file: "line 7" of a CSV file, "row 6" of a Parquet file.
        ids: the text of the id column in each row, each once; `None` where there is no such column.
    """

    path: Path
    names: tuple[str, ...]
    values: np.ndarray
    places: tuple[str, ...]
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def where(self, row: int) -> str:
        """File, place and id of a row, for messages."""
        return f"{self.path}, {self.places[row]}" + ("" if self.ids is None else f" (id {self.ids[row]!r})")

    def columns(self, names: Sequence[str], known_from: str) -> np.ndarray:
        """The columns of these names in this order, `(rows, len(names))`; an error where the table has others."""
        missing, extra = [n for n in names if n not in self.names], [n for n in self.names if n not in names]
        if missing:
            raise DataError(
                f"{self.path} lacks the column {missing[0]!r} of {known_from}{_and_more(missing)}{closest(missing[0], extra)}"
            )
        if extra:
            raise DataError(
                f"{self.path} has the column {extra[0]!r}, which is none of {known_from}{_and_more(extra)}: drop it, or, "
                f"if it names the rows, add --id {extra[0]}"
            )
        return self.values[:, [self.names.index(name) for name in names]]

    def aligned_with(self, other: Table) -> Table:
        """The table with its rows in the order of another's: by id where both have ids, otherwise as they are."""
        if self.ids is None or other.ids is None:
            if len(self) != len(other):
                raise DataError(
                    f"{other.path} has {len(other)} rows and {self.path} has {len(self)}: each row is one instance, in "
                    "the same order in both; or let a column that both have name the rows, with --id COLUMN"
                )
            return self
        row_of = {name: row for row, name in enumerate(self.ids)}
        for one, another in ((self, other), (other, self)):
            lacking = sorted(set(another.ids or ()) - set(one.ids or ()))
            if lacking:
                raise DataError(
                    f"{one.path} has no row with id {lacking[0]!r}, and {another.path} has{_and_more(lacking)}: "
                    "both need the same ids"
                )
        order = [row_of[name] for name in other.ids]
        return replace(self, values=self.values[order], places=tuple(self.places[i] for i in order), ids=other.ids)


def read_table(path: str | os.PathLike[str], id_column: str | None = None, *, infinite: bool = False) -> Table:
    """Read a .csv file, with names in its first line, or a .parquet file. Every cell is a number, or else an error.

    Args:
        id_column: the column that names the rows; the only one that may hold text.
        infinite: whether cells may be infinite, as bounds may.
    """
    path = Path(path)
    names, columns, places = (_read_parquet if _ending(path) == ".parquet" else _read_csv)(path)
    nameless = [k for k, name in enumerate(names, start=1) if not name]
    if nameless:
        raise DataError(
            f"{path}: column {nameless[0]} has no name; name it or drop it (pandas writes such a column for the index: "
            "to_csv(…, index=False) does not)"
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path} has {names.count(twice[0])} columns named {twice[0]!r}: name each once")
    if not places:
        raise DataError(f"{path} has no rows")
    held = dict(zip(names, columns, strict=True))
    ids = None
    if id_column is not None:
        if id_column not in held:
            raise DataError(f"{path} has no column {id_column!r} to name the rows (--id){closest(id_column, names)}")
        ids = tuple(str(cell).strip() for cell in held.pop(id_column))
        _check_ids(path, id_column, ids, places)
    if not held:
        raise DataError(f"{path} has no column of numbers")
    values = np.column_stack([_numbers(path, name, cells, places, infinite) for name, cells in held.items()])
    return Table(path, tuple(held), values, tuple(places), ids)


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
    if _ending(path) == ".parquet":
        _arrow()


def closest(name: str, others: Iterable[str]) -> str:
    """The end of a message about an unknown name."""
    others = list(others)
    near = get_close_matches(name, others, n=3)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(map(repr, others[:5])) + (", …" if len(others) > 5 else "")
    return f"; there is {shown}" if others else ""


# -- reading --------------------------------------------------------------------------------------------------------


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


def _numbers(path: Path, name: str, cells: Sequence[Any], places: Sequence[str], infinite: bool) -> np.ndarray:
    """A column as float64; the first cell that is no number is an error."""
    where = lambda row: f"{path}, {places[row]}, column {name!r}"  # noqa: E731
    numbers = np.empty(len(cells))
    for row, cell in enumerate(cells):
        if cell is None or str(cell).strip() == "":
            raise DataError(f"{where(row)} is empty: fill it in, or drop the row")
        try:
            numbers[row] = float(cell)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where(row)} holds {str(cell)!r}, which is no number: if the column names the rows, add --id {name}; "
                "write a category as columns of 0 and 1"
            ) from error
    bad = np.flatnonzero(np.isnan(numbers) if infinite else ~np.isfinite(numbers))
    if bad.size:
        raise DataError(f"{where(bad[0])} holds {cells[bad[0]]}, no finite number: fill it in, or drop the row")
    return numbers


def _check_ids(path: Path, name: str, ids: Sequence[str], places: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for text, place in zip(ids, places, strict=True):
        if text in ("", "None"):
            raise DataError(f"{path}, {place}: the id column {name!r} is empty")
        if text in seen:
            raise DataError(f"{path}: id {text!r} stands in {seen[text]} and in {place}; each row needs its own")
        seen[text] = place


def _and_more(names: Sequence[str]) -> str:
    return f" ({len(names)} such)" if len(names) > 1 else ""
