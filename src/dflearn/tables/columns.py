"""What each kind of column becomes, learned from the training rows: `Column` and its classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from dflearn.errors import DataError
from dflearn.tables.cells import (
    CODE,
    ISO,
    UnreadableError,
    booleans,
    coded,
    is_missing,
    missing,
    numbers,
    text_of,
    time_form,
    times,
    usual_offset,
)
from dflearn.tables.tables import MixedTable

FAR = 1.0  # how far outside the range that was seen is far, in widths of that range
MOST_LEVELS = 30  # columns that a category may become
CYCLES = {"weekday": 6.0, "year": 364.0, "hour": 0.9}  # days that rows must span
DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Column:
    """A column of the table, and what it becomes: nothing (a constant), unless a kind says more.

    Attributes:
        name: of the column.
        gaps: whether the training rows had empty cells, so that a column flags them.
    """

    kind: ClassVar[str] = "constant"
    text: ClassVar[bool] = False  # whether "none", "-" and "?" are values
    name: str
    gaps: bool

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns that it becomes are called."""
        own = self._names()
        return (*own, *([f"{self.name} missing"] if self.gaps and own else []))

    def encode(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`."""
        if not self.names:
            return np.empty((len(table), 0))
        values, _ = self._checked(table)
        return np.column_stack([values, missing(table.columns[self.name], self.text)]) if self.gaps else values

    def _checked(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        try:
            return self._read(table)
        except UnreadableError as error:
            remedy = f", and the column held {self.kind}s in training: correct it, or leave it empty"
            raise DataError(
                f"{table.cell(error.row, self.name)} {error}{'' if error.looks_right else remedy}"
            ) from error

    def notes(self) -> list[str]:
        """What was learned that a user should know; each goes on after the name of the feature."""
        return [] if self.names else ["has the same value in all rows trained on, so it tells nothing and is left out"]

    def remarks(self, table: MixedTable) -> list[str]:
        """What a user should know about the cells of a table."""
        cells, (_, said) = table.columns[self.name], self._checked(table)
        empty = np.flatnonzero(missing(cells, self.text))
        if not empty.size:
            return said
        word = cells[empty[0]].strip() if isinstance(cells[empty[0]], str) else ""
        holds = f"holds {word!r}, which counts as empty" if word else "is empty"
        flag = "flagged" if self.gaps else "and the column had no gaps in training"
        return [self._remark(table, empty, holds, f": taken as {self._filled()}, {flag}"), *said]

    def _remark(self, table: MixedTable, rows: Sequence[int] | np.ndarray, said: str, then: str = "") -> str:
        """A remark about the first of these rows, with their number."""
        return f"{table.cell(rows[0], self.name)} {said}{f' ({len(rows)} such rows)' if len(rows) > 1 else ''}{then}"

    def _names(self) -> Sequence[str]:
        """The same without the flag."""
        return () if self.kind == "constant" else (self.name,)

    def _read(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        """The columns without the flag, and remarks about unusual cells."""
        raise NotImplementedError

    def _filled(self) -> str:
        """What an empty cell is taken as, in words."""
        raise NotImplementedError


@dataclass(frozen=True)
class RangedColumn(Column):
    """Attributes:
    low, high, middle: of the training rows; times in days since 1970.
    """

    low: float = 0.0
    high: float = 0.0
    middle: float = 0.0

    @staticmethod
    def range_of(found: np.ndarray) -> dict[str, float]:
        return {name: float(np.nanquantile(found, q)) for name, q in (("low", 0), ("high", 1), ("middle", 0.5))}

    def _far(self, found: np.ndarray) -> np.ndarray:
        """The rows with numbers far outside the range."""
        return np.flatnonzero(np.maximum(self.low - found, found - self.high) > FAR * (self.high - self.low))


@dataclass(frozen=True)
class NumberColumn(RangedColumn):
    """Attributes:
    thousands: whether commas in the training rows were thousands separators.
    """

    kind = "number"
    thousands: bool = False

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self:
        found = numbers(cells, table.has_point)
        _check_finite(found, ": fill it in, or drop the row", looks_right=True)
        thousands = cells.dtype.kind == "O" and any(isinstance(cell, str) and "," in cell for cell in cells)
        return cls(name, gaps, **cls.range_of(found), thousands=thousands)

    def _read(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        cells = table.columns[self.name]
        found = numbers(cells, lambda: self.thousands or table.has_point())
        _check_finite(found)
        far, said = self._far(found), []
        if far.size:
            seen = f"far outside {self.low:g} … {self.high:g} of the rows trained on"
            said.append(self._remark(table, far, f"holds {found[far[0]]:g}, {seen}"))
        codes = [row for row, cell in enumerate(cells) if isinstance(cell, str) and CODE.fullmatch(cell.strip())]
        if codes:
            holds = f"holds {cells[codes[0]].strip()!r} in a column of numbers"
            remedy = "if it is a code, write a letter before all codes and train again"
            said.append(self._remark(table, codes, holds, f": taken as {found[codes[0]]:g}; {remedy}"))
        return np.nan_to_num(found, nan=self.middle)[:, None], said

    def _filled(self) -> str:
        return f"{self.middle:g}, the median"


@dataclass(frozen=True)
class BooleanColumn(Column):
    kind = "boolean"
    middle: float = 0.0

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self:
        return cls(name, gaps, float(np.nanmean(booleans(cells)) > 0.5))

    def _read(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        return np.nan_to_num(booleans(table.columns[self.name]), nan=self.middle)[:, None], []

    def _filled(self) -> str:
        return f"{'true' if self.middle == 1 else 'false'}, which most rows hold"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Attributes:
    levels: each becomes a column.
    other: whether all others become one more.
    """

    kind, text = "category", True
    levels: tuple[str, ...] = ()
    other: bool = False

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray) -> Self:
        empty = missing(cells, text=True)
        gaps, counts = bool(empty.any()), Counter(map(text_of, cells[~empty]))
        other = len(counts) > MOST_LEVELS
        if other and max(counts.values()) == 1 and not gaps:
            zeros = "; if it holds numbers, write them without leading zeros" if coded(cells) else ""
            raise ValueError(
                f"holds another text in each row ({next(iter(counts))!r}, …), which tells nothing about others: if it names "
                f"the rows, pass id_column={name!r}; otherwise leave it out{zeros}"
            )
        frequent = sorted(counts, key=lambda level: (-counts[level], level))[: MOST_LEVELS - 1 if other else None]
        return cls(name, gaps, tuple(sorted(frequent)), other)

    def _names(self) -> Sequence[str]:
        return [f"{self.name}={level}" for level in self.levels] + ([f"{self.name}=other"] if self.other else [])

    def notes(self) -> list[str]:
        said = []
        codes = [level for level in self.levels if CODE.fullmatch(level)]  # which a number would lose, as 01 its zero
        if codes and all(map(str.isdigit, self.levels)):
            said.append(
                f"holds codes with leading zeros, as {codes[0]!r}: they are categories, and 01 is another "
                "one than 1; if they are numbers, write them without these zeros"
            )
        if self.other:
            most = f"the {len(self.levels)} most frequent have a column each, the others share one"
            said.append(f"has many categories: {most}")
        return said

    def _read(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        place = {level: k for k, level in enumerate(self.levels)}
        found, unknown = np.zeros((len(table), len(self._names()))), {}
        for row, cell in enumerate(table.columns[self.name]):
            if is_missing(cell, text=True):
                continue
            if (text := text_of(cell)) not in place:
                unknown[row] = text
            if text in place or self.other:
                found[row, place.get(text, -1)] = 1.0
        codes = [level for level in self.levels if CODE.fullmatch(level)]
        cells = table.columns[self.name] if codes else ()
        lost = [row for row, cell in enumerate(cells) if not isinstance(cell, str) and not is_missing(cell, text=True)]
        if lost:
            holds = f"holds {text_of(cells[lost[0]])}, a number, and the rows trained on codes such as {codes[0]!r}"
            return found, [self._remark(table, lost, holds, ": read the column as text, by pandas with dtype=str")]
        if not unknown or self.other:
            return found, []
        rows = list(unknown)
        holds = f"holds {unknown[rows[0]]!r}, which no row trained on does"
        return found, [self._remark(table, rows, holds, ": taken as none of its categories")]

    def _filled(self) -> str:
        return "none of its categories"


@dataclass(frozen=True)
class TimeColumn(RangedColumn):
    """Attributes:
    form: "ISO", or a format of `strptime`.
    parts: those of "trend", "weekday", "year", "hour" that enter.
    offset: how many seconds the clock is ahead of UTC by which times are read; `None` where they tell no offset.
    """

    kind = "time"
    form: str = ISO
    parts: tuple[str, ...] = ()
    offset: float | None = None

    @classmethod
    def learn(cls, table: MixedTable, name: str, cells: np.ndarray, gaps: bool) -> Self | None:
        """`None` where the texts of the column are no times."""
        texts = [cell for cell in cells[~missing(cells)] if isinstance(cell, str)]
        form = time_form(texts) if texts else ISO
        if form is None:
            return None
        offset = usual_offset(cells, form)
        moments = times(cells, form, offset)
        moments = moments[~np.isnat(moments)]
        seen = cls.range_of(_days(moments))
        span = seen["high"] - seen["low"]
        parts = ["trend"] if span > 0 else []
        for part, phase in _phases(moments).items():
            if span >= CYCLES[part] and len(np.unique(phase.round(9))) > 1:
                parts.append(part)
        return cls(name, gaps, **seen, form=form, parts=tuple(parts), offset=offset)

    def _names(self) -> Sequence[str]:
        cycles = [part for part in self.parts if part != "trend"]
        trend = [f"{self.name} trend"] if "trend" in self.parts else []
        return trend + [f"{self.name} {part} {wave}" for part in cycles for wave in ("sine", "cosine")]

    def _moments(self, table: MixedTable) -> np.ndarray:
        """The times; a table that writes all of them in another way is read in that way."""
        cells = table.columns[self.name]
        try:
            return times(cells, self.form, self.offset)
        except UnreadableError as error:
            if error.looks_right:
                raise
            with suppress(ValueError):
                form = time_form(cell for cell in cells if isinstance(cell, str) and not is_missing(cell))
                if form is not None:
                    return times(cells, form, self.offset)
            raise

    def _read(self, table: MixedTable) -> tuple[np.ndarray, list[str]]:
        moments = self._moments(table)
        days, said = _days(moments), []
        if (far := self._far(days)).size:
            holds = f"holds {table.columns[self.name][far[0]]}, far from the times of the rows trained on"
            said.append(self._remark(table, far, holds))
        columns = [np.nan_to_num(days, nan=self.middle) - self.low] if "trend" in self.parts else []
        for part, phase in _phases(moments).items():
            if part in self.parts:
                columns += [np.where(np.isnat(moments), 0.0, wave(2 * np.pi * phase)) for wave in (np.sin, np.cos)]
        return np.column_stack(columns), said

    def _filled(self) -> str:
        return "the median time"


KINDS: dict[str, Callable[..., Column]] = {
    one.kind: one for one in (Column, NumberColumn, BooleanColumn, CategoryColumn, TimeColumn)
}


def _check_finite(found: np.ndarray, remedy: str = "", *, looks_right: bool = False) -> None:
    infinite = np.flatnonzero(np.isinf(found))
    if infinite.size:
        raise UnreadableError(int(infinite[0]), f"holds {found[infinite[0]]}, no finite number{remedy}", looks_right)


def _days(moments: np.ndarray) -> np.ndarray:
    """Days since 1970, NaN where there is no time."""
    return np.where(np.isnat(moments), np.nan, (moments - np.datetime64(0, "us")) / DAY)


def _phases(moments: np.ndarray) -> dict[str, np.ndarray]:
    """Where in the week, the year and the day a time lies, from 0 to 1."""
    day, year = moments.astype("datetime64[D]"), moments.astype("datetime64[Y]")
    number = np.where(np.isnat(day), 0, day.astype(np.int64))
    first, following = (one.astype("datetime64[D]") for one in (year, year + 1))
    return {
        "weekday": (number + 3) % 7 / 7,  # 1970 began on a Thursday
        "year": (day - first) / (following - first),
        "hour": (moments - day) / DAY,
    }
