"""What each kind of column becomes: `Column` and its classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dflearn.errors import DataError
from dflearn.tables.cells import (
    CODE,
    ISO,
    UnreadableError,
    booleans,
    is_missing,
    missing,
    numbers,
    text_of,
    time_form,
    times,
)
from dflearn.tables.tables import MixedTable

FAR = 1.0  # how far outside the range that was seen is far, in widths of that range
DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Column(ABC):
    """A column of the table, and what it becomes.

    Attributes:
        name: of the column.
        gaps: whether the rows trained on had empty cells, so that a column flags them.
    """

    kind: ClassVar[str]
    name: str
    gaps: bool

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns that it becomes are called."""
        return (*self._names(), *([f"{self.name} missing"] if self.gaps else []))

    def encode(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`."""
        cells = table.columns[self.name]
        try:
            values = self._encode(cells, table)
        except UnreadableError as error:
            remedy = f", and the column held {self.kind}s in training: correct it, or leave it empty"
            raise DataError(
                f"{table.cell(error.row, self.name)} {error}{'' if error.looks_right else remedy}"
            ) from error
        return np.column_stack([values, self._missing(cells)]) if self.gaps else values

    def remarks(self, table: MixedTable) -> list[str]:
        """What a user should know about the cells of a table."""
        cells = table.columns[self.name]
        empty = np.flatnonzero(self._missing(cells))
        if not empty.size:
            return []
        word = cells[empty[0]].strip() if isinstance(cells[empty[0]], str) else ""
        holds = f"holds {word!r}, which counts as empty" if word else "is empty"
        flag = "flagged" if self.gaps else "and the column had no gaps in training"
        filled = self._filled()
        return [f"{table.cell(empty[0], self.name)} {holds}{_such(empty)}: taken as {filled}, {flag}"]

    def _missing(self, cells: np.ndarray) -> np.ndarray:
        """Which cells are empty, bool `(rows,)`."""
        return missing(cells)

    @abstractmethod
    def _names(self) -> Sequence[str]: ...

    @abstractmethod
    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray: ...

    @abstractmethod
    def _filled(self) -> str:
        """What an empty cell is taken as, in words."""


@dataclass(frozen=True)
class NumberColumn(Column):
    """Attributes:
    low, high, middle: of the rows trained on.
    thousands: whether commas there were thousands separators.
    """

    kind = "number"
    low: float = 0.0
    high: float = 0.0
    middle: float = 0.0
    thousands: bool = False

    def _names(self) -> Sequence[str]:
        return (self.name,)

    def _numbers(self, table: MixedTable) -> np.ndarray:
        found = numbers(table.columns[self.name], lambda: self.thousands or table.has_point())
        infinite = np.flatnonzero(np.isinf(found))
        if infinite.size:
            raise UnreadableError(int(infinite[0]), f"holds {found[infinite[0]]}, no finite number")
        return found

    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray:
        found = self._numbers(table)
        return np.nan_to_num(found, nan=self.middle)[:, None]

    def remarks(self, table: MixedTable) -> list[str]:
        found = self._numbers(table)
        far = _far(found, self.low, self.high)
        said = super().remarks(table)
        if far.size:
            said.append(
                f"{table.cell(far[0], self.name)} holds {found[far[0]]:g}, far outside {self.low:g} … {self.high:g} "
                f"of the rows trained on{_such(far)}"
            )
        cells = table.columns[self.name]
        codes = [row for row, cell in enumerate(cells) if isinstance(cell, str) and CODE.fullmatch(cell.strip())]
        if codes:
            said.append(
                f"{table.cell(codes[0], self.name)} holds {cells[codes[0]].strip()!r} in a column of numbers{_such(codes)}: "
                f"taken as {found[codes[0]]:g}; if it is a code, write a letter before all codes and train again"
            )
        return said

    def _filled(self) -> str:
        return f"{self.middle:g}, the median"


@dataclass(frozen=True)
class BooleanColumn(Column):
    kind = "boolean"
    middle: float = 0.0

    def _names(self) -> Sequence[str]:
        return (self.name,)

    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray:
        found = booleans(cells)
        return np.where(np.isnan(found), self.middle, found)[:, None]

    def _filled(self) -> str:
        return f"{'true' if self.middle == 1 else 'false'}, which most rows hold"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Attributes:
    levels: each becomes a column.
    other: whether all others become one more.
    """

    kind = "category"
    levels: tuple[str, ...] = ()
    other: bool = False

    def _names(self) -> Sequence[str]:
        return [f"{self.name}={level}" for level in self.levels] + ([f"{self.name}=other"] if self.other else [])

    @property
    def codes(self) -> list[str]:
        """Levels that a number would lose, as 01 its zero, where all levels are digits."""
        return [level for level in self.levels if CODE.fullmatch(level)] if all(map(str.isdigit, self.levels)) else []

    def _missing(self, cells: np.ndarray) -> np.ndarray:
        return missing(cells, text=True)

    def _texts(self, cells: Iterable[Any]) -> list[str | None]:
        return [None if is_missing(cell, text=True) else text_of(cell) for cell in cells]

    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray:
        place = {level: k for k, level in enumerate(self.levels)}
        found = np.zeros((len(cells), len(self._names())))
        for row, text in enumerate(self._texts(cells)):
            if text is not None and (text in place or self.other):
                found[row, place.get(text, -1)] = 1.0
        return found

    def remarks(self, table: MixedTable) -> list[str]:
        said = super().remarks(table)
        texts = self._texts(table.columns[self.name])
        unknown = [row for row, text in enumerate(texts) if text is not None and text not in self.levels]
        if unknown and not self.other:
            said.append(
                f"{table.cell(unknown[0], self.name)} holds {texts[unknown[0]]!r}, which no row trained on does"
                f"{_such(unknown)}: taken as none of its categories"
            )
        return said

    def _filled(self) -> str:
        return "none of its categories"


@dataclass(frozen=True)
class TimeColumn(Column):
    """Attributes:
    form: "ISO", or a format of `strptime`.
    low, high, middle: of the rows trained on, in days since 1970.
    parts: those of "trend", "weekday", "year", "hour" that enter.
    offset: how many seconds the clock is ahead of UTC by which times are read; `None` where they tell no offset.
    """

    kind = "time"
    form: str = ISO
    low: float = 0.0
    high: float = 0.0
    middle: float = 0.0
    parts: tuple[str, ...] = ()
    offset: float | None = None

    def _names(self) -> Sequence[str]:
        cycles = [part for part in self.parts if part != "trend"]
        trend = [f"{self.name} trend"] if "trend" in self.parts else []
        return trend + [f"{self.name} {part} {wave}" for part in cycles for wave in ("sine", "cosine")]

    def _moments(self, cells: np.ndarray) -> np.ndarray:
        """The times; a table that writes all of them in another way is read in that way."""
        try:
            return times(cells, self.form, self.offset)
        except UnreadableError as error:
            if error.looks_right:
                raise
            try:
                form = time_form(cell for cell in cells if isinstance(cell, str) and not is_missing(cell))
            except ValueError:
                form = None
            if form is None:
                raise
            return times(cells, form, self.offset)

    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray:
        moments = self._moments(cells)
        empty = np.isnat(moments)
        columns = []
        if "trend" in self.parts:
            columns.append(np.where(empty, self.middle, days_of(moments)) - self.low)
        for part, phase in phases_of(moments).items():
            if part in self.parts:
                turn = 2 * np.pi * phase
                columns += [np.where(empty, 0.0, wave(turn)) for wave in (np.sin, np.cos)]
        return np.column_stack(columns)

    def remarks(self, table: MixedTable) -> list[str]:
        found = days_of(self._moments(table.columns[self.name]))
        far = _far(found, self.low, self.high)
        said = super().remarks(table)
        if far.size:
            said.append(
                f"{table.cell(far[0], self.name)} holds {table.columns[self.name][far[0]]}, far from the times of the rows "
                f"trained on{_such(far)}"
            )
        return said

    def _filled(self) -> str:
        return "the median time"


@dataclass(frozen=True)
class ConstantColumn(Column):
    """A column that holds one value, or none, in all rows trained on: it becomes nothing."""

    kind = "constant"

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def _names(self) -> Sequence[str]:
        return ()

    def encode(self, table: MixedTable) -> np.ndarray:
        return np.empty((len(table), 0))

    def _encode(self, cells: np.ndarray, table: MixedTable) -> np.ndarray:
        return np.empty((len(cells), 0))

    def remarks(self, table: MixedTable) -> list[str]:
        return []

    def _filled(self) -> str:
        return "nothing"


KINDS: dict[str, Callable[..., Column]] = {
    one.kind: one for one in (NumberColumn, BooleanColumn, CategoryColumn, TimeColumn, ConstantColumn)
}


# -- steps ---------------------------------------------------------------------------------------------------------


def days_of(moments: np.ndarray) -> np.ndarray:
    """Days since 1970, NaN where there is no time."""
    return np.where(np.isnat(moments), np.nan, (moments - np.datetime64(0, "us")) / DAY)


def phases_of(moments: np.ndarray) -> dict[str, np.ndarray]:
    """Where in the week, the year and the day a time lies, from 0 to 1."""
    day, year = moments.astype("datetime64[D]"), moments.astype("datetime64[Y]")
    number = np.where(np.isnat(day), 0, day.astype(np.int64))
    first = lambda years: years.astype("datetime64[D]")  # noqa: E731
    return {
        "weekday": (number + 3) % 7 / 7,  # 1970 began on a Thursday
        "year": (day - first(year)) / (first(year + 1) - first(year)),
        "hour": (moments - day) / DAY,
    }


def _far(found: np.ndarray, low: float, high: float) -> np.ndarray:
    """The rows with numbers far outside a range."""
    beyond = np.maximum(low - found, found - high)
    return np.flatnonzero(beyond > FAR * (high - low))


def _such(rows: Sequence[int] | np.ndarray) -> str:
    return f" ({len(rows)} such rows)" if len(rows) > 1 else ""
