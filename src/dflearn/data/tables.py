"""Tables of numbers with named columns: from CSV and Parquet files by their ending, or from frames and arrays."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from dflearn.errors import DataError, MissingExtraError
from dflearn.files import check_target, replacing
from dflearn.program.names import Columns, check_unique, closest, read_instance

if TYPE_CHECKING:  # tables are read and checked before torch is loaded
    from torch import Tensor

    from dflearn.program import Instance, Program


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers with named columns, one row per instance.

    Attributes:
        path: the file, or what else messages call the table.
        names: the columns, each name once.
        values: float64 `(rows, columns)`.
        places: what each row is called: "line 7" of a CSV file, "row 6" elsewhere.
        ids: the text of the id column in each row, each once; `None` where there is no such column.
    """

    path: Path | str
    names: tuple[str, ...]
    values: np.ndarray
    places: tuple[str, ...]
    ids: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        what: TableLike,
        called: str,
        *,
        id_column: str | None = None,
        names: Sequence[str] | None = None,
        infinite: bool = False,
    ) -> Table:
        """A table as it is; or one of columns by name (a DataFrame, a dict); or one of an array `(rows, columns)`.

        Args:
            called: what messages call it.
            id_column, infinite: as of `read_table`.
            names: what the columns of an array are called; by default 0, 1, ….
        """
        if isinstance(what, Table):
            return what
        torch = sys.modules.get("torch")  # who passes a tensor has loaded it
        if isinstance(what, np.ndarray | list) or (torch is not None and isinstance(what, torch.Tensor)):
            array = np.asarray(what)
            if array.ndim != 2 or (names is not None and array.shape[1] != len(names)):
                width = "" if names is None else f" of {len(names)}: {', '.join(names[:5])}"
                raise DataError(f"{called} needs one row per instance and one column each{width}; got {array.shape}")
            columns: Mapping[str, Any] = dict(zip(names or map(str, range(array.shape[1])), array.T, strict=True))
            return _table(called, list(columns), list(columns.values()), None, infinite)
        keys = list(what.keys())
        known = list(map(str, keys))
        check_unique(known, f"{called} ")  # pandas gives a frame for a name that stands twice
        return _table(called, known, [np.asarray(what[key]) for key in keys], id_column, infinite)

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> tuple[str, ...]:
        return self.names

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[:, self.names.index(name)]

    def instance(self, program: Program) -> Instance:
        """`program.instance` of this table, with messages that name its rows."""
        return read_instance(program, self, str(self.path), self.where)

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
                f"if it names the rows, pass id_column={extra[0]!r}"
            )
        return self.values[:, [self.names.index(name) for name in names]]

    def aligned_with(self, other: Table) -> Table:
        """The table with its rows in the order of another's: by id where both have ids, otherwise as they are."""
        if self.ids is None or other.ids is None:
            if len(self) != len(other):
                raise DataError(
                    f"{other.path} has {len(other)} rows and {self.path} has {len(self)}: each row is one instance, in "
                    "the same order in both; or let a column that both have name the rows, with id_column"
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
    return _table(path, names, columns, id_column, infinite, places)


def _table(
    path: Path | str,
    names: Sequence[str],
    columns: Sequence[Sequence[Any] | np.ndarray],
    id_column: str | None,
    infinite: bool,
    places: Sequence[str] | None = None,
) -> Table:
    """The table of these columns, once names, ids and every cell are checked."""
    nameless = [k for k, name in enumerate(names, start=1) if not name]
    if nameless:
        raise DataError(
            f"{path}: column {nameless[0]} has no name; name it or drop it (pandas writes such a column for the index: "
            "to_csv(…, index=False) does not)"
        )
    check_unique(names, f"{path} ")
    if places is None:
        places = [f"row {i}" for i in range(max(map(len, columns), default=0))]
    if not places:
        raise DataError(f"{path} has no rows")
    held = dict(zip(names, columns, strict=True))
    ids = None
    if id_column is not None:
        if id_column not in held:
            raise DataError(
                f"{path} has no column {id_column!r} to name the rows (id_column){closest(id_column, names)}"
            )
        ids = tuple(str(cell).strip() for cell in held.pop(id_column))
        _check_ids(path, id_column, ids, places)
    if not held:
        raise DataError(f"{path} has no column of numbers")
    short = [name for name, cells in held.items() if len(cells) != len(places)]
    if short:
        raise DataError(
            f"{path}: the column {short[0]!r} has {len(held[short[0]])} rows, and others have {len(places)}"
        )
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
    check_target(path)
    if _ending(path) == ".parquet":
        _arrow()


TableLike: TypeAlias = "Table | Columns | np.ndarray | Tensor | list[Any]"  # what `Table.of` reads


class Tables(NamedTuple):
    """Features, and what else was given, row by row about the same instances."""

    features: Table
    costs: Table | None
    instances: Table | None

    @classmethod
    def of(
        cls,
        given: Mapping[str, TableLike | None],
        id_column: str | None,
        wanted: Mapping[str, Sequence[str] | None],
        known_from: str,
    ) -> Tables:
        """The tables, rows in the order of the features.

        `wanted` says, for each table whose columns are known from somewhere, which they are, in this order.
        """
        held: dict[str, Table | None] = dict.fromkeys(cls._fields)
        for what, rows in given.items():
            if rows is not None:
                names = wanted.get(what)
                table = Table.of(
                    rows, f"the table of {what}", id_column=id_column, names=names, infinite=what == "instances"
                )
                table = table.aligned_with(held["features"] or table)
                if names is not None:
                    values = table.columns(names, known_from.format(what))
                    table = replace(table, names=tuple(names), values=values)
                held[what] = table
        return cls(**held)  # type: ignore[arg-type]  # there are always features

    def instance(self, program: Program) -> Instance | None:
        """The `Instance` of all rows, where there is a table of instances."""
        return None if self.instances is None else self.instances.instance(program)

    def where(self, row: int) -> str:
        """A row's place in the table that tells most about it."""
        return (self.instances or self.costs or self.features).where(row)


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


def _numbers(path: Path | str, name: str, cells: Any, places: Sequence[str], infinite: bool) -> np.ndarray:
    """A column as float64; the first cell that is no number is an error."""
    where = lambda row: f"{path}, {places[row]}, column {name!r}"  # noqa: E731
    plain = isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub"
    numbers = cells.astype(np.float64) if plain else np.empty(len(cells))
    for row, cell in enumerate(() if plain else cells):
        if cell is None or str(cell).strip() == "":
            raise DataError(f"{where(row)} is empty: fill it in, or drop the row")
        try:
            numbers[row] = float(cell)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where(row)} holds {str(cell)!r}, which is no number: if the column names the rows, pass "
                f"id_column={name!r}; write a category as columns of 0 and 1"
            ) from error
    bad = np.flatnonzero(np.isnan(numbers) if infinite else ~np.isfinite(numbers))
    if bad.size:
        raise DataError(f"{where(bad[0])} holds {cells[bad[0]]}, no finite number: fill it in, or drop the row")
    return numbers


def _check_ids(path: Path | str, name: str, ids: Sequence[str], places: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for text, place in zip(ids, places, strict=True):
        if text in ("", "None"):
            raise DataError(f"{path}, {place}: the id column {name!r} is empty")
        if text in seen:
            raise DataError(f"{path}: id {text!r} stands in {seen[text]} and in {place}; each row needs its own")
        seen[text] = place


def _and_more(names: Sequence[str]) -> str:
    return f" ({len(names)} such)" if len(names) > 1 else ""
