"""`Encoding`: a mixed table of features as numbers, the same way for the rows trained on and for all that come later.

    number      itself; a gap is the median
    boolean     0 or 1 (true, false, yes, no)
    category    a column of 0 and 1 for each level; of many levels the frequent ones, and one for all others
    time        the trend in days; sine and cosine of weekday, day of the year and hour, where rows span the whole cycle
    constant    nothing

Where the rows trained on have gaps, one more column of 0 and 1 flags them. What is learned (kinds, levels, medians,
ranges) is learned from the rows trained on alone. A table of complete numbers, none of them constant, encodes to itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import closest
from dflearn.tables.cells import (
    ISO,
    UnreadableError,
    booleans,
    coded,
    is_missing,
    missing,
    number_of,
    numbers,
    text_of,
    time_form,
    times,
    usual_offset,
)
from dflearn.tables.encoded_columns import (
    KINDS,
    BooleanColumn,
    CategoryColumn,
    Column,
    ConstantColumn,
    NumberColumn,
    TimeColumn,
    days_of,
    phases_of,
)
from dflearn.tables.tables import MixedTable, and_more


@dataclass(frozen=True)
class Encoding:
    """How a mixed table becomes numbers: `Encoding.of(table, rows)` learns it, `encoding(table)` does it.

    Attributes:
        columns: what each column of the table becomes.
        aside: columns that are no features, so that none need tell of them: groups and weights.
    """

    columns: tuple[Column, ...]
    aside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, table: MixedTable, rows: Sequence[int] | np.ndarray | None = None, aside: Iterable[str] = ()
    ) -> Encoding:
        """What the rows to train on, by default all, tell about the columns of a table."""
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
        said = [
            f"the feature {column.name!r} has the same value in all rows trained on, so it tells nothing and is left out"
            for column in self.columns
            if isinstance(column, ConstantColumn)
        ]
        said += [
            f"the feature {column.name!r} holds codes with leading zeros, as {column.codes[0]!r}: they are categories, and "
            "01 is another one than 1; if they are numbers, write them without these zeros"
            for column in self.columns
            if isinstance(column, CategoryColumn) and column.codes
        ]
        return said + [
            f"the feature {column.name!r} has many categories: the {len(column.levels)} most frequent have a column each, "
            "the others share one"
            for column in self.columns
            if isinstance(column, CategoryColumn) and column.other
        ]

    def __call__(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`; columns that are not known are ignored, and one that is missing is an error."""
        self._check(table)
        return np.ascontiguousarray(np.column_stack([column.encode(table) for column in self.columns]))

    def remarks(self, table: MixedTable) -> list[str]:
        """What is unusual in a table: cells that are filled, unknown or far outside what was seen, and other columns."""
        self._check(table)
        said = [remark for column in self.columns for remark in column.remarks(table)]
        known = {*self.inputs, *self.aside}
        extra = [name for name in table.names if name not in known]
        if extra:
            said.append(
                f"{table.path} has the column {extra[0]!r}, which is no feature of the model{and_more(extra)}: ignored"
            )
        return said

    def _check(self, table: MixedTable) -> None:
        missing = [c.name for c in self.columns if c.name not in table.columns and not isinstance(c, ConstantColumn)]
        if missing:
            extra = [name for name in table.names if name not in self.inputs]
            raise DataError(
                f"{table.path} lacks the column {missing[0]!r} of the features in training{and_more(missing)}"
                f"{closest(missing[0], extra)}"
            )

    # -- files --------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = lambda value: list(value) if isinstance(value, tuple) else value  # noqa: E731
        columns = [
            {"kind": column.kind} | {name: plain(value) for name, value in asdict(column).items()}
            for column in self.columns
        ]
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


MOST_LEVELS = 30  # columns that a category may become
MOST = 0.9  # a share of cells of one kind from which on the others are mistakes
CYCLES = {"weekday": 6.0, "year": 364.0, "hour": 0.9}  # days that rows must span


def learn(table: MixedTable, name: str, rows: np.ndarray) -> Column:
    """What a column holds in these rows."""
    cells = table.columns[name][rows]
    if missing(cells, text=True).all():
        return ConstantColumn(name, gaps=True)
    try:
        column = _kind(table, name, cells)
    except UnreadableError as error:
        raise DataError(f"{table.cell(int(rows[error.row]), name)} {error}") from error
    except ValueError as error:
        raise DataError(f"{table.path}, column {name!r} {error}") from error
    constant = not column.gaps and len(np.unique(column.encode(_of_rows(table, name, cells)), axis=0)) == 1
    return ConstantColumn(name, gaps=False) if constant else column


def _of_rows(table: MixedTable, name: str, cells: np.ndarray) -> MixedTable:
    return MixedTable(table.path, {name: cells}, tuple(map(str, range(len(cells)))))


def _kind(table: MixedTable, name: str, cells: np.ndarray) -> Column:
    empty = missing(cells)
    held, gaps = cells[~empty], bool(empty.any())
    if name in table.categories or not held.size or (cells.dtype.kind == "O" and coded(held)):
        return _category(table, name, cells)
    if cells.dtype.kind == "b" or (cells.dtype.kind == "O" and all(isinstance(cell, bool | np.bool_) for cell in held)):
        return _boolean(name, cells, gaps)
    if cells.dtype.kind == "M":
        return _time(name, cells, ISO, gaps)
    if cells.dtype.kind in "fium":
        return _number(table, name, cells, gaps)
    try:
        return _number(table, name, cells, gaps)
    except UnreadableError as error:
        if error.looks_right:
            raise
    texts = [cell for cell in held if isinstance(cell, str)]
    readers: tuple[Callable[[], Column | None], ...] = (
        lambda: _boolean(name, cells, gaps),
        lambda: None if (form := _form(held, texts)) is None else _time(name, cells, form, gaps),
    )
    for read in readers:
        try:
            column = read()
        except UnreadableError as error:
            if error.looks_right:
                raise
            continue
        if column is not None:
            return column
    _check_mistakes(table, cells, len(held))
    return _category(table, name, cells)


def _form(held: np.ndarray, texts: list[str]) -> str | None:
    """How times are written; a column may hold objects of Python that are times."""
    return time_form(texts) if texts or not len(held) else ISO


def _check_mistakes(table: MixedTable, cells: np.ndarray, held: int) -> None:
    """An error where nearly all of so many cells that are not empty are numbers: the others are no categories but mistakes."""
    wrong = []
    for row, cell in enumerate(cells):
        if not is_missing(cell):
            try:
                number_of(cell, table.has_point)
            except ValueError:
                wrong.append(row)
    if len(wrong) <= (1 - MOST) * held:
        raise UnreadableError(
            wrong[0],
            f"holds {str(cells[wrong[0]])!r}, and nearly all other cells of the column hold numbers: write a number, leave "
            "it empty if it is not known, or, for a column of categories, write letters before the numbers",
        )


def _number(table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> NumberColumn:
    found = numbers(cells, table.has_point)
    infinite = np.flatnonzero(np.isinf(found))
    if infinite.size:
        raise UnreadableError(
            int(infinite[0]), f"holds {found[infinite[0]]}, no finite number: fill it in, or drop the row", True
        )
    low, middle, high = (float(np.nanquantile(found, share)) for share in (0, 0.5, 1))
    thousands = cells.dtype.kind == "O" and any(isinstance(cell, str) and "," in cell for cell in cells)
    return NumberColumn(name, gaps, low, high, middle, thousands)


def _boolean(name: str, cells: np.ndarray, gaps: bool) -> BooleanColumn:
    return BooleanColumn(name, gaps, float(np.nanmean(booleans(cells)) > 0.5))


def _category(table: MixedTable, name: str, cells: np.ndarray) -> CategoryColumn:
    empty = missing(cells, text=True)
    gaps, counts = bool(empty.any()), Counter(map(text_of, cells[~empty]))
    if len(counts) > MOST_LEVELS and max(counts.values()) == 1 and not gaps:
        zeros = "; if it holds numbers, write them without leading zeros" if coded(cells) else ""
        raise ValueError(
            f"holds another text in each row ({next(iter(counts))!r}, …), which tells nothing about others: if it names the "
            f"rows, pass id_column={name!r}; otherwise leave it out{zeros}"
        )
    other = len(counts) > MOST_LEVELS
    frequent = sorted(counts, key=lambda level: (-counts[level], level))[: MOST_LEVELS - 1 if other else None]
    return CategoryColumn(name, gaps, tuple(sorted(frequent)), other)


def _time(name: str, cells: np.ndarray, form: str, gaps: bool) -> TimeColumn:
    offset = usual_offset(cells, form)
    moments = times(cells, form, offset)
    moments = moments[~np.isnat(moments)]
    days = days_of(moments)
    low, middle, high = (float(np.quantile(days, share)) for share in (0, 0.5, 1))
    parts = ["trend"] if high > low else []
    for part, phase in phases_of(moments).items():
        if high - low >= CYCLES[part] and len(np.unique(phase.round(9))) > 1:
            parts.append(part)
    return TimeColumn(name, gaps, form, low, high, middle, tuple(parts), offset)
