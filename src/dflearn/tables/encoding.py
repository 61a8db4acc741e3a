"""`Encoding`: a mixed table of features as numbers, the same way for the training rows and for all that come later.

    number      itself; a gap is the median
    boolean     0 or 1 (true, false, yes, no)
    category    a column of 0 and 1 for each level; of many levels the frequent ones, and one for all others
    time        the trend in days; sine and cosine of weekday, day of the year and hour, where rows span the whole cycle
    constant    nothing

Where the training rows have gaps, one more column of 0 and 1 flags them. What is learned (kinds, levels, medians, ranges) is
learned from the training rows alone. A table of complete numbers, none of them constant, encodes to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import closest
from dflearn.tables.cells import UnreadableError, coded, is_missing, missing, number_of
from dflearn.tables.columns import KINDS, BooleanColumn, CategoryColumn, Column, NumberColumn, TimeColumn
from dflearn.tables.tables import MixedTable, and_more

MOST = 0.9  # a share of cells of one kind from which on the others are mistakes


@dataclass(frozen=True)
class Encoding:
    """How a mixed table becomes numbers: `Encoding.of(table, rows)` learns it, `encoding(table)` does it.

    Attributes:
        columns: what each column of the table becomes.
        aside: columns that are no features, groups and weights: no remark is made about them.
    """

    columns: tuple[Column, ...]
    aside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, table: MixedTable, rows: Sequence[int] | np.ndarray | None = None, aside: Iterable[str] = ()
    ) -> Encoding:
        """What the training rows, by default all, tell about the columns of a table."""
        chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
        columns = tuple(learn(table, name, chosen) for name in table.names)
        if not any(column.names for column in columns):
            raise DataError(
                f"{table.path}: every column holds one value in all rows to train on, so that there is nothing to learn from"
            )
        return cls(columns, tuple(aside))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the table."""
        return tuple(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns of the numbers are called."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def notes(self) -> list[str]:
        """What was learned that a user should know."""
        return [f"the feature {column.name!r} {note}" for column in self.columns for note in column.notes()]

    def __call__(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`; columns that are not known are ignored, and one that is missing is an error."""
        self._check(table)
        return np.ascontiguousarray(np.column_stack([column.encode(table) for column in self.columns]))

    def remarks(self, table: MixedTable) -> list[str]:
        """What is unusual in a table: cells that are filled, unknown or far outside what was seen, and other columns."""
        self._check(table)
        said = [remark for column in self.columns if column.names for remark in column.remarks(table)]
        extra = [name for name in table.names if name not in (*self.inputs, *self.aside)]
        if extra:
            said.append(
                f"{table.path} has the column {extra[0]!r}, which is no feature of the model{and_more(extra)}: ignored"
            )
        return said

    def _check(self, table: MixedTable) -> None:
        lacking = [column.name for column in self.columns if column.names and column.name not in table.columns]
        if lacking:
            extra = [name for name in table.names if name not in self.inputs]
            raise DataError(
                f"{table.path} lacks the column {lacking[0]!r} of the features in training{and_more(lacking)}"
                f"{closest(lacking[0], extra)}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = lambda held: {name: list(v) if isinstance(v, tuple) else v for name, v in held.items()}  # noqa: E731
        columns = [{"kind": column.kind} | plain(asdict(column)) for column in self.columns]
        return {"columns": columns, "aside": list(self.aside)}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Encoding:
        """What `as_dict` wrote."""
        columns = []
        try:
            for parts in held["columns"]:
                values = {name: tuple(v) if isinstance(v, list) else v for name, v in parts.items() if name != "kind"}
                columns.append(KINDS[parts["kind"]](**values))
            return cls(tuple(columns), tuple(held["aside"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"the encoding of the features cannot be read: {error!r}; it is damaged, or newer"
            ) from error


# -- what a column holds -----------------------------------------------------------------------------------------------


def learn(table: MixedTable, name: str, rows: np.ndarray) -> Column:
    """What a column holds in these rows."""
    cells = table.columns[name][rows]
    if missing(cells, text=True).all():
        return Column(name, gaps=True)
    try:
        column = _kind(table, name, cells)
    except UnreadableError as error:
        raise DataError(f"{table.cell(int(rows[error.row]), name)} {error}") from error
    except ValueError as error:
        raise DataError(f"{table.path}, column {name!r} {error}") from error
    own = MixedTable(table.path, {name: cells}, ("",) * len(cells))
    constant = not column.names or (not column.gaps and len(np.unique(column.encode(own), axis=0)) == 1)
    return Column(name, column.gaps) if constant else column


def _kind(table: MixedTable, name: str, cells: np.ndarray) -> Column:
    empty = missing(cells)
    held, gaps = cells[~empty], bool(empty.any())
    if name in table.categories or not held.size or (cells.dtype.kind == "O" and coded(held)):
        return CategoryColumn.learn(table, name, cells)
    kinds: tuple[Any, ...] = (NumberColumn, BooleanColumn, TimeColumn)
    if cells.dtype.kind == "b" or (cells.dtype.kind == "O" and all(isinstance(cell, bool | np.bool_) for cell in held)):
        kinds = (BooleanColumn,)
    elif cells.dtype.kind == "M":
        kinds = (TimeColumn,)
    for kind in kinds:
        try:
            column: Column | None = kind.learn(table, name, cells, gaps)
        except UnreadableError as error:
            if error.looks_right:
                raise
            continue
        if column is not None:
            return column
    _check_mistakes(table, cells, len(held))
    return CategoryColumn.learn(table, name, cells)


def _is_number(cell: Any, table: MixedTable) -> bool:
    with suppress(ValueError):
        number_of(cell, table.has_point)
        return True
    return False


def _check_mistakes(table: MixedTable, cells: np.ndarray, held: int) -> None:
    """An error where nearly all of so many cells that are not empty are numbers: the others are no categories but mistakes."""
    wrong = [row for row, cell in enumerate(cells) if not is_missing(cell) and not _is_number(cell, table)]
    if len(wrong) <= (1 - MOST) * held:
        raise UnreadableError(
            wrong[0],
            f"holds {str(cells[wrong[0]])!r}, and nearly all other cells of the column hold numbers: write a number, leave "
            "it empty if it is not known, or, for a column of categories, write letters before the numbers",
        )
