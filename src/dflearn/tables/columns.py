"""`Encoding`: a mixed table of features as numbers, the same way for the training rows and for all that come later.

    number      itself; a gap is the median
    boolean     0 or 1 (true, false, yes, no)
    category    a column of 0 and 1 for each level; of many levels the frequent ones, and one for all others
    time        the trend in days; a column of 0 and 1 for each weekday; sine and cosine of the day of the year, where rows span
                half a year, and of the hour
    constant    nothing

Where the training rows have gaps, one more column of 0 and 1 flags them. What is learned (kinds, levels, medians, ranges) is
learned from the training rows alone. A table of complete numbers, none of them constant, encodes to itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import closest
from dflearn.tables import cells as read
from dflearn.tables.cells import CODE, ISO, UnreadableError, missing, text_of
from dflearn.tables.tables import MixedTable, and_more

FAR = 1.0  # how far outside the range that was seen is far, in widths of that range
MOST_LEVELS = 30  # columns that a category may become
CYCLES = {"weekday": 6.0, "year": 182.0, "hour": 0.9}  # days that rows must span: of a wave at least half
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Encoded = tuple[np.ndarray, list[str]]  # numbers `(rows, columns)`, and remarks about unusual cells


@dataclass(frozen=True)
class Column:
    """A column of the table and its encoding; a constant has none. `gaps`: a column flags empty cells, as training rows had some."""

    kind: ClassVar[str] = "constant"
    text: ClassVar[bool] = False  # whether "none", "-" and "?" are values
    name: str
    gaps: bool

    @property
    def names(self) -> tuple[str, ...]:
        own = self._names()
        return (*own, *[f"{self.name} missing"] * bool(self.gaps and own))

    def encode(self, table: MixedTable) -> Encoded:
        cells = table.columns[self.name]
        empty = missing(cells, self.text)
        with table.reading(self.name, f", and the column held {self.kind}s in training: correct it, or leave it empty"):
            values, said = self._read(table, cells)
        if (rows := np.flatnonzero(empty)).size:
            word = cells[rows[0]].strip() if isinstance(cells[rows[0]], str) else ""
            holds = f"holds {word!r}, which counts as empty" if word else "is empty"
            flag = "flagged" if self.gaps else "and the column had no gaps in training"
            said = [self._remark(table, rows, holds, f": taken as {self._filled()}, {flag}"), *said]
        return np.column_stack([values, empty]) if self.gaps else values, said

    def notes(self) -> list[str]:
        """Remarks for users about what was learned; each goes on after the name of the feature."""
        return [] if self.names else ["has the same value in all rows trained on, so it tells nothing and is left out"]

    def _remark(self, table: MixedTable, rows: Sequence[int] | np.ndarray, said: str, then: str = "") -> str:
        """A remark about the first of these rows, with their number."""
        return f"{table.cell(rows[0], self.name)} {said}{f' ({len(rows)} such rows)' if len(rows) > 1 else ''}{then}"

    def _names(self) -> Sequence[str]:
        return () if self.kind == "constant" else (self.name,)

    def _read(self, table: MixedTable, cells: np.ndarray) -> Encoded:
        raise NotImplementedError

    def _filled(self) -> str:
        """The value of an empty cell, in words."""
        raise NotImplementedError


@dataclass(frozen=True)
class RangedColumn(Column):
    low: float = 0.0  # of the training rows; times in days since 1970
    high: float = 0.0
    middle: float = 0.0

    def _far(self, table: MixedTable, found: np.ndarray, held: np.ndarray, said: str) -> list[str]:
        """A remark where numbers are far outside the range; `said` shows the cell, of those `held`."""
        far = np.flatnonzero(np.maximum(self.low - found, found - self.high) > FAR * (self.high - self.low))
        return [self._remark(table, far, said.format(held[row])) for row in far[:1]]


@dataclass(frozen=True)
class NumberColumn(RangedColumn):
    kind = "number"
    thousands: bool = False  # whether commas in the training rows were thousands separators

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self:
        found = read.numbers(cells, table.has_point)
        _check_finite(found, ": fill it in, or drop the row", looks_right=True)
        thousands = cells.dtype.kind == "O" and any(isinstance(cell, str) and "," in cell for cell in cells)
        low, high, middle = map(float, np.nanquantile(found, [0, 1, 0.5]))
        return cls(name, gaps, low, high, middle, thousands)

    def _read(self, table: MixedTable, cells: np.ndarray) -> Encoded:
        found = read.numbers(cells, lambda: self.thousands or table.has_point())
        _check_finite(found)
        seen = f"holds {{:g}}, far outside {self.low:g} … {self.high:g} of the rows trained on"
        codes = [row for row, cell in enumerate(cells) if isinstance(cell, str) and CODE.fullmatch(cell.strip())]
        said = self._far(table, found, found, seen)
        for row in codes[:1]:
            taken = f": taken as {found[row]:g}; if it is a code, write a letter before all codes and train again"
            said.append(self._remark(table, codes, f"holds {cells[row].strip()!r} in a column of numbers", taken))
        return np.nan_to_num(found, nan=self.middle)[:, None], said

    def _filled(self) -> str:
        return f"{self.middle:g}, the median"


def _check_finite(found: np.ndarray, remedy: str = "", *, looks_right: bool = False) -> None:
    for row in np.flatnonzero(np.isinf(found)).tolist():
        raise UnreadableError(f"holds {found[row]}, no finite number{remedy}", looks_right, row)


@dataclass(frozen=True)
class BooleanColumn(Column):
    kind = "boolean"
    middle: float = 0.0

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self:
        return cls(name, gaps, float(np.nanmean(read.booleans(cells)) > 0.5))

    def _read(self, table: MixedTable, cells: np.ndarray) -> Encoded:
        return np.nan_to_num(read.booleans(cells), nan=self.middle)[:, None], []

    def _filled(self) -> str:
        return f"{'true' if self.middle == 1 else 'false'}, which most rows hold"


@dataclass(frozen=True)
class CategoryColumn(Column):
    kind, text = "category", True
    levels: tuple[str, ...] = ()  # each becomes a column
    other: bool = False  # whether all others become one more

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray) -> Self:
        empty = missing(cells, text=True)
        gaps, counts = bool(empty.any()), Counter(map(text_of, cells[~empty]))
        other = len(counts) > MOST_LEVELS
        if other and max(counts.values()) == 1 and not gaps:
            zeros = "; if it holds numbers, write them without leading zeros" if read.coded(cells) else ""
            remedy = f"if it names the rows, pass id_column={name!r}; otherwise leave it out{zeros}"
            texts = f"another text in each row ({next(iter(counts))!r}, …)"
            raise ValueError(f"holds {texts}, which tells nothing about others: {remedy}")
        frequent = sorted(counts, key=lambda level: (-counts[level], level))[: MOST_LEVELS - 1 if other else None]
        return cls(name, gaps, tuple(sorted(frequent)), other)

    def _names(self) -> Sequence[str]:
        return [f"{self.name}={level}" for level in self.levels] + ([f"{self.name}=other"] if self.other else [])

    def _codes(self) -> list[str]:
        return [level for level in self.levels if CODE.fullmatch(level)]

    def notes(self) -> list[str]:
        said = [
            f"holds codes with leading zeros, as {code!r}: they are categories, and 01 is another one than 1; if they are "
            "numbers, write them without these zeros"
            for code in self._codes()[: all(map(str.isdigit, self.levels))]
        ]
        many = f"has many categories: the {len(self.levels)} most frequent have a column each, the others share one"
        return [*said, *[many] * self.other]

    def _read(self, table: MixedTable, cells: np.ndarray) -> Encoded:
        place, codes = {level: k for k, level in enumerate(self.levels)}, self._codes()
        found, unknown, numbers = np.zeros((len(table), len(self._names()))), [], []
        for row in read.full(cells, text=True):
            text = text_of(cells[row])
            if codes and not isinstance(cells[row], str):
                numbers.append(row)  # 1 may be 1, 01 or 001
            elif text in place or self.other:
                found[row, place.get(text, -1)] = 1.0
            else:
                unknown.append(row)
        rows, holds, remedy = unknown, "holds {!r}, which no row trained on does", ""
        if numbers:
            rows, holds = numbers, f"holds {{}}, a number, and the rows trained on codes such as {codes[0]!r}"
            remedy = "; read the column as text, by pandas with dtype=str"
        taken = f": taken as {self._filled()}{remedy}"
        return found, [self._remark(table, rows, holds.format(text_of(cells[row])), taken) for row in rows[:1]]

    def _filled(self) -> str:
        return "none of its categories"


@dataclass(frozen=True)
class TimeColumn(RangedColumn):
    kind = "time"
    form: str = ISO  # as of `times`
    parts: tuple[str, ...] = ()  # those of "trend", "weekday", "year", "hour" that enter
    offset: float | None = None  # as of `times`

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self | None:
        """`None` if the texts of the column are no times."""
        texts = [cell for cell in cells[~missing(cells)] if isinstance(cell, str)]
        form = read.time_form(texts) if texts else ISO
        if form is None:
            return None
        moments, offset = read.times(cells, form)
        moments = moments[~np.isnat(moments)]
        low, high, middle = map(float, np.nanquantile(read.days_of(moments), [0, 1, 0.5]))
        moves = {part: len(np.unique(phase.round(9))) > 1 for part, phase in read.phases_of(moments).items()}
        parts = ["trend"] * (high > low) + [part for part in moves if moves[part] and high - low >= CYCLES[part]]
        return cls(name, gaps, low, high, middle, form, tuple(parts), offset)

    def _names(self) -> Sequence[str]:
        waves = [f"{part} {wave}" for part in self.parts if part in ("year", "hour") for wave in ("sine", "cosine")]
        ends = ["trend"] * ("trend" in self.parts) + list(WEEKDAYS) * ("weekday" in self.parts) + waves
        return [f"{self.name} {end}" for end in ends]

    def _moments(self, cells: np.ndarray) -> np.ndarray:
        try:
            return read.times(cells, self.form, self.offset)[0]
        except UnreadableError as error:
            with suppress(ValueError):  # a table may write all its times in another way
                form = read.time_form(cell for cell in cells[~missing(cells)] if isinstance(cell, str))
                if form is not None and not error.looks_right:
                    return read.times(cells, form, self.offset)[0]
            raise

    def _read(self, table: MixedTable, cells: np.ndarray) -> Encoded:
        moments = self._moments(cells)
        days = read.days_of(moments)
        said = self._far(table, days, cells, "holds {}, far from the times of the rows trained on")
        columns = [np.nan_to_num(days, nan=self.middle) - self.low] if "trend" in self.parts else []
        for part, phase in read.phases_of(moments).items():
            if part in self.parts and part == "weekday":
                columns += [np.where(np.isnat(moments), 0.0, np.rint(7 * phase) == day) for day in range(7)]
            elif part in self.parts:
                columns += [np.where(np.isnat(moments), 0.0, wave(2 * np.pi * phase)) for wave in (np.sin, np.cos)]
        return np.column_stack(columns), said

    def _filled(self) -> str:
        return "the median time"


KINDS: dict[str, Any] = {one.kind: one for one in (Column, NumberColumn, BooleanColumn, CategoryColumn, TimeColumn)}


@dataclass(frozen=True)
class Encoding:
    """The map from a mixed table to numbers: `Encoding.of(table, rows)` learns it, `encoding(table)` applies it.

    No remark is made about the columns `aside`, those of groups and weights.
    """

    columns: tuple[Column, ...]
    aside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, table: MixedTable, rows: Sequence[int] | np.ndarray | None = None, aside: Iterable[str] = ()
    ) -> Encoding:
        chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
        columns = tuple(_learn(table, name, chosen) for name in table.names)
        if not any(column.names for column in columns):
            constant = "every column holds one value in all rows to train on, so that there is nothing to learn from"
            raise DataError(f"{table.path}: {constant}")
        return cls(columns, tuple(aside))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.names)

    @property
    def notes(self) -> list[str]:
        """Remarks for users about what was learned."""
        return [f"the feature {column.name!r} {note}" for column in self.columns for note in column.notes()]

    def __call__(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`; unknown columns are ignored, and a missing one is an error."""
        return np.ascontiguousarray(np.column_stack([numbers for numbers, _ in self._encoded(table)]))

    def remarks(self, table: MixedTable) -> list[str]:
        """What is unusual in a table: cells that are filled, unknown or far outside what was seen, and other columns."""
        said = [remark for _, remarks in self._encoded(table) for remark in remarks]
        extra = [name for name in table.names if name not in (*self.inputs, *self.aside)]
        unused = f"which is no feature of the model{and_more(extra)}: ignored"
        return said + [f"{table.path} has the column {name!r}, {unused}" for name in extra[:1]]

    def _encoded(self, table: MixedTable) -> list[Encoded]:
        used = [column for column in self.columns if column.names]
        lacking = [column.name for column in used if column.name not in table.columns]
        if lacking:
            hint = closest(lacking[0], [name for name in table.names if name not in self.inputs])
            of = f"of the features in training{and_more(lacking)}{hint}"
            raise DataError(f"{table.path} lacks the column {lacking[0]!r} {of}")
        return [column.encode(table) for column in used]

    def as_dict(self) -> dict[str, Any]:
        columns = [{"kind": column.kind} | asdict(column) for column in self.columns]
        return json.loads(json.dumps({"columns": columns, "aside": self.aside}))

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Encoding:
        columns: list[Column] = []
        try:
            for column in held["columns"]:
                parts: dict[str, Any] = {
                    name: tuple(one) if isinstance(one, list) else one for name, one in column.items()
                }
                columns.append(KINDS[parts.pop("kind")](**parts))
            return cls(tuple(columns), tuple(held["aside"]))
        except (KeyError, TypeError, AttributeError) as error:
            unread = f"the encoding of the features cannot be read: {error!r}; it is damaged, or newer"
            raise DataError(unread) from error


def _learn(table: MixedTable, name: str, rows: np.ndarray) -> Column:
    """The kind of a column in these rows."""
    cells = table.columns[name][rows]
    if missing(cells, text=True).all():
        return Column(name, gaps=True)
    with table.reading(name, rows=rows):
        column = _kind(table, name, cells)
    own = MixedTable(table.path, {name: cells}, ("",) * len(cells))
    constant = not column.names or (not column.gaps and len(np.unique(column.encode(own)[0], axis=0)) == 1)
    return Column(name, column.gaps) if constant else column


def _kind(table: MixedTable, name: str, cells: np.ndarray) -> Column:
    empty = missing(cells)
    held, kind = cells[~empty], cells.dtype.kind
    if name in table.categories or not held.size or (kind == "O" and read.coded(held)):
        return CategoryColumn.learn(table, name, cells)
    kinds: list[Any] = [TimeColumn] if kind == "M" else [NumberColumn, BooleanColumn, TimeColumn]
    if kind == "b" or (kind == "O" and all(isinstance(cell, bool | np.bool_) for cell in held)):
        kinds = [BooleanColumn]
    for one in kinds:
        try:
            if (column := one.learn(table, name, cells, bool(empty.any()))) is not None:
                return column
        except UnreadableError as error:
            if error.looks_right:
                raise
    read.check_mistakes(cells, len(held), table.has_point)
    return CategoryColumn.learn(table, name, cells)
