"""Tables with named columns, of numbers or mixed: from CSV and Parquet files by their ending, or from frames and arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeGuard

import numpy as np

from dflearn.errors import DataError
from dflearn.program.columns import read_instance
from dflearn.program.names import Columns, check_unique, closest, matched
from dflearn.tables.cells import UnreadableError, has_point, numbers as read_numbers
from dflearn.tables.table_files import check_writable as check_writable, read_columns, write_table as write_table

if TYPE_CHECKING:  # tables are read and checked before torch is loaded
    from torch import Tensor

    from dflearn.program import Instance, Program


@dataclass(frozen=True, eq=False)
class MixedTable:
    """Columns as they come, one row per instance: numbers, text, booleans, times, with gaps. An `Encoding` reads them."""

    path: Path | str  # the file, or another name for messages
    columns: dict[str, np.ndarray]  # each `(rows,)`: numbers, booleans, times, or text and other objects
    places: tuple[str, ...]  # of the rows: "line 7" of a CSV file, "row 6" elsewhere
    ids: tuple[str, ...] | None = None  # unique texts of the id column, if there is one
    index: tuple[Any, ...] | None = None  # the labels of a DataFrame's rows
    categories: frozenset[str] = frozenset()  # columns that are declared as categories

    @classmethod
    def of(
        cls, what: TableLike, called: str, *, id_column: str | None = None, names: Sequence[str] | None = None
    ) -> MixedTable:
        """A table of columns by name (a DataFrame, a dict), of one row by name, a list of such rows, an array, or a file.

        `called` is its name in messages, `id_column` names the rows, and `names` the columns of an array, by default 0, 1, ….
        """
        if isinstance(what, MixedTable):
            return what
        if isinstance(what, str | os.PathLike):
            return read_mixed(what, id_column)
        if _is_rows(what):
            what = {name: [row.get(name) for row in what] for name in dict.fromkeys(key for row in what for key in row)}
        if isinstance(what, np.ndarray | list) or is_a("torch", "Tensor", what):
            array = np.asarray(what)
            if array.ndim != 2 or (names is not None and array.shape[1] != len(names)):
                width = "" if names is None else f" of {len(names)}: {', '.join(names[:5])}"
                came = f"got {array.shape}{'; write one row as [[…]]' if array.ndim == 1 else ''}"
                raise DataError(f"{called} needs one row per instance and one column each{width}; {came}")
            return _mixed(called, names or list(map(str, range(array.shape[1]))), list(array.T), None)
        if not has_columns(what):
            remedy = "pass a pandas DataFrame, a dict of columns, an array, or the path of a .csv or .parquet file"
            raise DataError(f"{called} is a {type(what).__name__}: {remedy}")
        keys = list(what.keys())
        known = list(map(str, keys))
        check_unique(known, f"{called} ")  # pandas gives a frame for a name that stands twice
        held = _columns(called, known, [what[key] for key in keys])
        kinds = {name: str(getattr(column, "dtype", None)) for name, column in zip(known, held, strict=True)}
        plain = [kind not in ("None", "object", "category") for kind in kinds.values()]
        cells = [np.asarray(one) if is_plain else objects(list(one)) for one, is_plain in zip(held, plain, strict=True)]
        declared = frozenset(name for name, kind in kinds.items() if kind == "category")
        frame: Any = what if is_a("pandas", "DataFrame", what) else None
        labels = None if frame is None else tuple(frame.index)
        return replace(_mixed(called, known, cells, id_column), categories=declared, index=labels)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def is_named(self) -> bool:
        """Whether ids or an index tell more of a row than its position."""
        return self.ids is not None or self.index not in (None, tuple(range(len(self))))

    def where(self, row: int) -> str:
        """File, place and id of a row, for messages."""
        return f"{self.path}, {self.places[row]}" + ("" if self.ids is None else f" (id {self.ids[row]!r})")

    def cell(self, row: int, column: str) -> str:
        return f"{self.path}, {self.places[row]}, column {column!r}"

    @contextmanager
    def reading(self, column: str, remedy: str = "", rows: np.ndarray | None = None) -> Iterator[None]:
        """Name the cell, or the column, in errors about it. rows: those that are read, by default all."""
        try:
            yield
        except UnreadableError as error:
            row = error.row if rows is None else rows[error.row]
            raise DataError(f"{self.cell(row, column)} {error}{'' if error.looks_right else remedy}") from error
        except ValueError as error:
            raise DataError(f"{self.path}, column {column!r} {error}") from error

    # -- rows ---------------------------------------------------------------------------------------------------

    def order_like(self, other: MixedTable) -> list[int]:
        """The row that belongs to each row of another table: by id, by the index of DataFrames, or by position."""
        if self.ids is not None and other.ids is not None:
            return self._by_label(other, self.ids, other.ids, "id", "both need the same ids")
        if len(self) != len(other):
            remedy = "each row is one instance, in the same order in both; or let a column that both have name the rows, with id_column"
            raise DataError(f"{other.path} has {len(other)} rows and {self.path} has {len(self)}: {remedy}")
        mine, theirs = (self.index, other.index) if self.ids is None and other.ids is None else (None, None)
        positions = tuple(range(len(self)))
        remedy = "give both frames one index, or call reset_index(drop=True) on both to match rows by position"
        if mine is None or theirs is None:
            labels = mine or theirs or positions
            if labels != positions and set(labels) == set(positions):
                one, another = (self, other) if mine else (other, self)
                shuffled = f"the index of {one.path} is 0, 1, … in another order"
                raise DataError(f"{shuffled}, and {another.path} has none: {remedy}")
            return list(positions)
        if mine == theirs or (positions in (mine, theirs) and set(mine).isdisjoint(theirs)):
            return list(positions)
        return self._by_label(other, mine, theirs, "index", remedy)

    def _by_label(
        self, other: MixedTable, mine: Sequence[Any], theirs: Sequence[Any], kind: str, why: str
    ) -> list[int]:
        for one, labels, another, others in ((self, mine, other, theirs), (other, theirs, self, mine)):
            if len(have := set(labels)) < len(labels):
                twice = f"the {kind} of {one.path} names some rows twice"
                raise DataError(f"{twice} and differs from that of {another.path}: {why}")
            if lacking := [label for label in others if label not in have]:
                without = f"{one.path} has no row with {kind} {min(lacking) if kind == 'id' else lacking[0]!r}"
                raise DataError(f"{without}, and {another.path} has{and_more(lacking)}: {why}")
        row_of = {label: row for row, label in enumerate(mine)}
        return [row_of[label] for label in theirs]

    def aligned_with(self, other: MixedTable) -> Self:
        return self.take(self.order_like(other))

    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        columns = {name: cells[rows] for name, cells in self.columns.items()}
        labels: dict[str, Any] = {"places": self.places, "ids": self.ids, "index": self.index}
        kept: dict[str, Any] = {name: tuple(one[i] for i in rows) for name, one in labels.items() if one is not None}
        return replace(self, columns=columns, **kept)

    # -- columns ------------------------------------------------------------------------------------------------

    def without(self, name: str, why: str) -> MixedTable:
        """The table without a column, which holds `why`, in words."""
        if name not in self.columns:
            raise DataError(f"{self.path} has no column {name!r} for {why}{closest(name, self.names)}")
        if len(self.columns) == 1:
            raise DataError(f"{self.path} has no column but {name!r}, which holds {why}")
        return replace(self, columns={other: cells for other, cells in self.columns.items() if other != name})

    def has_point(self) -> bool:
        """Whether some cell is written with a decimal point, so that "1,234" is 1234."""
        return any(cells.dtype.kind == "f" or has_point(cells) for cells in self.columns.values())

    def numbers(self, *, infinite: bool = False) -> Table:
        """The table as numbers; the first other cell is an error. infinite: whether cells may be, as bounds may."""
        if isinstance(self, Table):
            return self
        columns = {name: _numbers(self, name, cells, infinite) for name, cells in self.columns.items()}
        return Table(self.path, columns, self.places, self.ids, self.index)


class Table(MixedTable):
    """A table of numbers: every column is float64."""

    @classmethod
    def of(cls, what: TableLike, called: str, *, infinite: bool = False, **options: Any) -> Table:
        """As `MixedTable.of` and `MixedTable.numbers`."""
        return MixedTable.of(what, called, **options).numbers(infinite=infinite)

    @property
    def values(self) -> np.ndarray:
        """float64 `(rows, columns)`."""
        return np.column_stack(list(self.columns.values()))

    @property
    def is_counted(self) -> bool:
        """Whether columns are named 0, 1, …, as those of arrays, so that their names say no more than their places."""
        return self.names == tuple(map(str, range(len(self.names))))

    def keys(self) -> tuple[str, ...]:
        return self.names

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def instance(self, program: Program) -> Instance:
        """`program.instance` of this table, with messages that name its rows."""
        return read_instance(program, self, str(self.path), self.where)

    def in_order(self, names: Sequence[str], known_from: str) -> Table:
        """The table with the columns of these names in this order; an error if it has others.

        Names that differ only as tools write them, `x[1]` and `x_1`, are the same.
        """
        columns = self.columns
        if set(names) != set(columns):
            means = {name: matched(name, names, f"{self.path}: the column") or name for name in columns}
            if len(set(means.values())) == len(means):
                columns = {means[name]: cells for name, cells in columns.items()}
        lacking, extra = [n for n in names if n not in columns], [n for n in columns if n not in names]
        if lacking:
            of = f"of {known_from}{and_more(lacking)}{closest(lacking[0], extra)}"
            raise DataError(f"{self.path} lacks the column {lacking[0]!r} {of}")
        if extra:
            remedy = f"drop it, or, if it names the rows, pass id_column={extra[0]!r}"
            none = f"which is none of {known_from}{and_more(extra)}: {remedy}"
            raise DataError(f"{self.path} has the column {extra[0]!r}, {none}")
        return replace(self, columns={name: columns[name] for name in names})


TableLike: TypeAlias = "Table | MixedTable | Columns | np.ndarray | Tensor | list[Any] | str | os.PathLike[str]"


def and_more(names: Sequence[str]) -> str:
    return f" ({len(names)} such)" if len(names) > 1 else ""


def has_columns(what: Any) -> TypeGuard[Columns]:
    """Whether something has columns by name, as a DataFrame, a dict or a `Table` has."""
    return callable(getattr(what, "keys", None))


def is_table(what: Any) -> bool:
    """Whether something is a table by name: `Table.of` reads it, and it is no array."""
    return isinstance(what, MixedTable | str | os.PathLike) or has_columns(what) or _is_rows(what)


def id_column_in(tables: Iterable[Any], name: str | None) -> str | None:
    """The name of the id column if one of the tables has it, or if all are files or arrays."""
    rows = [what[0] if _is_rows(what) else what for what in tables]
    named = [name in set(map(str, row.keys())) for row in rows if has_columns(row)]
    return name if not named or any(named) else None


def _is_rows(what: Any) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(what, list) and len(what) > 0 and all(isinstance(row, Mapping) for row in what)


def is_a(module: str, name: str, what: Any) -> bool:
    """Whether something is an instance of a class of a module that may not be loaded yet: then it is none."""
    return module in sys.modules and isinstance(what, getattr(sys.modules[module], name))


def _columns(called: str, names: Sequence[str], held: list[Any]) -> list[Any]:
    """The columns of a mapping; single values are those of one row."""
    single = [
        name
        for name, one in zip(names, held, strict=True)
        if isinstance(one, str | bytes) or not isinstance(one, Sized) or getattr(one, "ndim", 1) == 0
    ]
    if len(single) == len(names):
        return [[one] for one in held]
    if single:
        name, cells = next(pair for pair in zip(names, held, strict=True) if pair[0] not in single)
        column = f"{name!r} is a column of {len(cells)}: give each one entry per row"
        raise DataError(f"{called}: {single[0]!r} is a single value, and {column}")
    return held


def objects(cells: Sequence[Any]) -> np.ndarray:
    held = np.empty(len(cells), object)
    held[:] = cells
    return held


def read_table(path: str | os.PathLike[str], id_column: str | None = None, *, infinite: bool = False) -> Table:
    """`read_mixed` of numbers; another cell is an error. infinite: whether cells may be, as bounds may."""
    return read_mixed(path, id_column).numbers(infinite=infinite)


def read_mixed(path: str | os.PathLike[str], id_column: str | None = None) -> MixedTable:
    """Read a .csv file, with names in its first line, or a .parquet file; `id_column` names the rows."""
    names, columns, places, categories = read_columns(Path(path))
    held = [objects(cells) for cells in columns]  # text stays text: "01" and "1" are two codes
    return replace(_mixed(Path(path), names, held, id_column, places), categories=categories - {id_column})


def _mixed(
    path: Path | str,
    names: Sequence[str],
    columns: list[np.ndarray],
    id_column: str | None,
    places: list[str] | None = None,
) -> MixedTable:
    """The table of these columns, with names, ids and lengths checked."""
    if not all(names):
        remedy = "name it or drop it (pandas writes such a column for the index: to_csv(…, index=False) does not)"
        raise DataError(f"{path}: column {[*map(bool, names)].index(False) + 1} has no name; {remedy}")
    check_unique(names, f"{path} ")
    if places is None:
        places = [f"row {i}" for i in range(max(map(len, columns), default=0))]
    if not places:
        raise DataError(f"{path} has no rows")
    held, ids = dict(zip(names, map(_text, columns), strict=True)), None
    if id_column is not None:
        if id_column not in held:
            hint = closest(id_column, names)
            raise DataError(f"{path} has no column {id_column!r} to name the rows (id_column){hint}")
        ids = tuple("" if cell is None or cell != cell else str(cell).strip() for cell in held.pop(id_column))
        first: dict[str, str] = {}
        for text, place in zip(ids, places, strict=True):
            if not text:
                raise DataError(f"{path}, {place}: the id column {id_column!r} is empty")
            if (other := first.setdefault(text, place)) != place:
                raise DataError(f"{path}: id {text!r} stands in {other} and in {place}; each row needs its own")
    if not held:
        raise DataError(f"{path} has no column of numbers")
    for name, cells in held.items():
        if len(cells) != len(places):
            raise DataError(f"{path}: the column {name!r} has {len(cells)} rows, and others have {len(places)}")
    return MixedTable(path, held, tuple(places), ids)


def _text(cells: np.ndarray) -> np.ndarray:
    """The cells with text as `str`, not bytes or numpy's."""
    if cells.dtype.kind not in "SU" and not (cells.dtype.kind == "O" and any(isinstance(one, bytes) for one in cells)):
        return cells
    return objects([one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in cells.tolist()])


class Tables(NamedTuple):
    """Features, and what else was given, row by row about the same instances."""

    features: MixedTable
    costs: Table | None
    instances: Table | None
    forecast: Table | None = None

    @classmethod
    def of(
        cls,
        given: Mapping[str, TableLike | None],
        id_column: str | None,
        wanted: Mapping[str, Sequence[str] | None],
        known_from: str,
    ) -> Tables:
        """The tables, rows in the order of the features; instances in that of the costs if only these name their rows.

        wanted: the columns of a table in their order, where they are known; of the features, an `Encoding` picks them.
        """
        if given["features"] is None:
            raise DataError("there is no table of features: pass a DataFrame, a dict of columns, an array or a file")
        names = wanted.get("features")
        features = like = MixedTable.of(given["features"], "the table of features", id_column=id_column, names=names)
        held: dict[str, Table | None] = {}
        for what in ("costs", "instances", "forecast"):
            rows, names = given.get(what), wanted.get(what)
            if rows is not None:
                infinite, called = what == "instances", f"the table of {what}"
                table = Table.of(rows, called, infinite=infinite, id_column=id_column, names=names).aligned_with(like)
                like = table if table.is_named and not like.is_named else like
                rows = table if names is None else table.in_order(names, known_from.format(what))
            held[what] = rows
        return cls(features, **held)

    def take(self, rows: Sequence[int] | np.ndarray) -> Tables:
        return Tables(*(None if table is None else table.take(rows) for table in self))  # type: ignore[arg-type]

    def instance(self, program: Program) -> Instance | None:
        return None if self.instances is None else self.instances.instance(program)

    def where(self, row: int) -> str:
        """A row's place in the table that tells most about it."""
        return (self.instances or self.costs or self.features).where(row)


def _numbers(table: MixedTable, name: str, cells: np.ndarray, infinite: bool) -> np.ndarray:
    """A column as float64; the first cell that is no finite number is an error."""
    remedy = "fill it in, or drop the row"
    for row, cell in enumerate(cells if cells.dtype.kind == "O" else ()):
        if cell is None or str(cell).strip() in ("", "<NA>"):
            raise DataError(f"{table.cell(row, name)} is empty: {remedy}")
    with table.reading(
        name, f": if the column names the rows, pass id_column={name!r}; write a category as columns of 0 and 1"
    ):
        if cells.dtype.kind == "M":
            raise UnreadableError(f"holds {str(cells[0])!r}, a time")
        numbers = read_numbers(cells, table.has_point)
    for bad in np.flatnonzero(np.isnan(numbers) if infinite else ~np.isfinite(numbers)).tolist():
        cell = cells[bad]
        shown = repr(cell) if isinstance(cell, str) and not cell.strip(" +-").isalpha() else cell  # 'n/a', nan, inf
        raise DataError(f"{table.cell(bad, name)} holds {shown}, no finite number: {remedy}")
    return numbers
