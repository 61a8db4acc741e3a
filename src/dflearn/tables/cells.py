"""Cells of tables as people write them: numbers with thousands separators, words for yes and no, dates, nothing at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import lru_cache
from itertools import product
from numbers import Real
from typing import Any

import numpy as np

EMPTY = frozenset(  # in columns of text: what pandas takes as missing, but for "None", which may be a value
    ("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "NaT")
)  # fmt: skip
MISSING = frozenset(word.lower() for word in EMPTY) | {"none", "-", "?"}  # in other columns, in any case
CODE = re.compile(r"0[0-9]+")
WORDS = dict.fromkeys(("true", "yes", "1", "1.0"), 1.0) | dict.fromkeys(("false", "no", "0", "0.0"), 0.0)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?[\d,]*\d\.\d+")
COMMA = re.compile(r"[+-]?[\d.]*\d,\d+([eE][+-]?\d+)?|[+-]?,\d+")
_DATES = (
    ("%Y/%m/%d", "%Y-%m", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y")
)  # fmt: skip
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
ISO = "ISO"
DAY = np.timedelta64(1, "D")
MOST = 0.9  # a share of cells of one kind from which on the others are mistakes

Cells = Sequence[Any] | np.ndarray


class UnreadableError(ValueError):
    """The cell of a row is not what its column holds. looks_right: it is of that kind, but unclear, so no other kind is tried."""

    def __init__(self, why: str, looks_right: bool = False, row: int = 0) -> None:
        super().__init__(why)
        self.row, self.looks_right = row, looks_right


def is_missing(cell: Any, text: bool = False) -> bool:
    """Whether a cell is empty: `None`, NaN, NaT, an empty text or a word for it; in a column of `text`, "none" is a value."""
    if isinstance(cell, str):
        return cell.strip() in EMPTY if text else cell.strip().lower() in MISSING
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, Real) and cell != cell)


def missing(cells: Cells, text: bool = False) -> np.ndarray:
    """Which cells are empty, bool `(rows,)`. text: as of `is_missing`."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiubmM":
        return np.isnat(cells) if cells.dtype.kind in "mM" else np.isnan(cells.astype(np.float64))
    return np.fromiter((is_missing(cell, text) for cell in cells), bool, len(cells))


def full(cells: Cells, text: bool = False) -> list[int]:
    """The rows that are not empty. text: as of `is_missing`."""
    return np.flatnonzero(~missing(cells, text)).tolist()


def text_of(cell: Any) -> str:
    """A category's text: the numbers 3.0 and 3 and the text " 3" are the same; the texts "3" and "03" are not."""
    if isinstance(cell, Real) and not isinstance(cell, bool) and float(cell).is_integer():
        return str(int(float(cell)))
    return str(cell).strip()


def coded(cells: Iterable[Any]) -> bool:
    """Whether cells are codes: some begin with a zero, as 01 does, and none is written as only a number is, -1 or 1.5."""
    texts = {str(cell).strip() for cell in cells if not isinstance(cell, float) or not cell.is_integer()}
    if not any(map(CODE.fullmatch, texts)):
        return False
    for text in texts:
        if text.startswith(("+", "-", "−")) or "." in text or "," in text:
            try:
                number_of(text, lambda: True)
            except UnreadableError as error:
                if not error.looks_right:
                    continue
            return False
    return True


def has_point(cells: Iterable[Any]) -> bool:
    """Whether some cell is written with a decimal point, which tells what a comma is."""
    return any(isinstance(cell, float) or (isinstance(cell, str) and WITH_POINT.match(cell.strip())) for cell in cells)


def number_of(cell: Any, point: Callable[[], bool]) -> float:
    """A cell as a number; an `UnreadableError` that begins with "holds" otherwise.

    point: whether the table has decimal points, so that "1,234" is 1234.
    """
    text = str(cell).strip().replace("−", "-")  # the minus sign that some locales write
    if not _underscored(cell):
        with suppress(TypeError, ValueError):
            return float(text if isinstance(cell, str) else cell)
    if THOUSANDS.fullmatch(text):
        whole, fraction = text.replace(",", ""), text.replace(",", ".")
        if "." in text or text.count(",") > 1 or point():
            return float(whole)
        how = f"{whole} with a thousands separator, or {fraction} with a decimal comma: write {whole} or {fraction}"
        raise UnreadableError(f"holds {text!r}, which is {how}", True)
    if COMMA.fullmatch(text):
        with_point = text.replace(".", "").replace(",", ".")
        raise UnreadableError(f"holds {text!r}, with a decimal comma: write {with_point}, with a decimal point", True)
    raise UnreadableError(f"holds {text!r}, which is no number")


def _underscored(cell: Any) -> bool:
    """Whether a text has an underscore: Python reads 1_5 as 15, and in a table it is a code or a mistake."""
    return isinstance(cell, str | bytes) and "_" in str(cell)


def numbers(cells: Cells, point: Callable[[], bool]) -> np.ndarray:
    """Cells as float64 `(rows,)`, NaN where empty; an `UnreadableError` about the first that is no number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "m":
        return np.where(np.isnat(cells), np.nan, cells / np.timedelta64(1, "s"))
    if not any(map(_underscored, cells)):
        with suppress(TypeError, ValueError):
            return np.array(cells, np.float64)  # at once, where all are plain
    return _each(cells, lambda cell: number_of(cell, point))


def booleans(cells: Cells) -> np.ndarray:
    """Cells as 0 and 1, float64 `(rows,)`, NaN where empty; an `UnreadableError` about another word."""

    def read(cell: Any) -> float:
        if (word := str(cell).strip().lower()) not in WORDS:
            raise UnreadableError(f"holds {str(cell)!r}, which is none of true, false, yes, no, 1, 0")
        return WORDS[word]

    return _each(cells, read)


def _each(cells: Cells, read: Callable[[Any], float]) -> np.ndarray:
    found = np.full(len(cells), np.nan)
    for row in full(cells):
        try:
            found[row] = read(cells[row])
        except UnreadableError as error:
            error.row = row
            raise
    return found


def check_mistakes(cells: np.ndarray, held: int, point: Callable[[], bool]) -> None:
    """An error if nearly all of so many cells that are not empty are numbers: the others are no categories but mistakes."""
    wrong = []
    for row in full(cells):
        try:
            number_of(cells[row], point)
        except UnreadableError:
            wrong.append(row)
    if len(wrong) <= (1 - MOST) * held:
        remedy = "write a number, leave it empty if it is not known, or, for a column of categories, write letters before the numbers"
        others = f"and nearly all other cells of the column hold numbers: {remedy}"
        raise UnreadableError(f"holds {str(cells[wrong[0]])!r}, {others}", row=wrong[0])


def times(cells: Cells, form: str, offset: float | str | None = "usual") -> tuple[np.ndarray, float | None]:
    """Cells as datetime64[us] `(rows,)`, NaT where empty, and their clock; an `UnreadableError` about another cell.

    Args:
        form: "ISO", or a format of `strptime`.
        offset: the clock, in seconds ahead of UTC; `None`: cells name none; "usual": the offset of most cells.
    """
    is_time = isinstance(cells, np.ndarray) and cells.dtype.kind == "M"
    found = np.array(cells if is_time else np.full(len(cells), "NaT"), "datetime64[us]")
    offsets = np.full(len(cells), np.nan)
    for row in () if is_time else full(cells):
        time = cells[row]
        if not isinstance(time, date | np.datetime64):
            text = str(time).strip()
            time = _time(text, form) or _time(text, ISO)
            if time is None:
                example = datetime(2026, 3, 31, 14, 5).strftime("%Y-%m-%d" if form == ISO else form)
                raise UnreadableError(f"holds {text!r}, which is no date or time such as {example}", row=row)
        if isinstance(time, datetime):
            ahead = time.utcoffset()
            offsets[row] = np.nan if ahead is None else ahead.total_seconds()
            time = time.replace(tzinfo=None)
        found[row] = time
    if isinstance(offset, str):
        known, counts = np.unique(offsets[~np.isnan(offsets)], return_counts=True)
        offset = float(known[counts.argmax()]) if known.size else None
    wrong = np.flatnonzero(~np.isnat(found) & (np.isnan(offsets) != (offset is None)))
    if wrong.size:
        why = "without an offset from UTC, where other times of the column have one: write it, as in 2026-03-31T14:05+02:00"
        if offset is None:
            why = "with an offset from UTC, where other times of the column have none: write it in all rows, or in none"
        raise UnreadableError(f"holds {str(cells[wrong[0]]).strip()!r}, {why}", True, int(wrong[0]))
    if offset is not None:
        found = found + np.round(1e6 * np.nan_to_num(offset - offsets)).astype("timedelta64[us]")
    return found, offset


def time_form(texts: Iterable[str]) -> str | None:
    """How all these texts are written, as `form` of `times`; `None` if they are no dates. An error where days may be months."""
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    if distinct and all(_time(text, ISO) for text in distinct):
        return ISO
    forms = [day + clock for day, clock in product(_DATES, _CLOCKS)] if distinct else []
    for text in distinct:
        forms = [form for form in forms if _time(text, form)]
    for text in distinct:
        if len(ways := {str(_time(text, form)) for form in forms}) > 1:
            raise ValueError(f"holds {text!r}, which may be {' or '.join(sorted(ways))}: write dates as YYYY-MM-DD")
    return forms[0] if forms else None


@lru_cache(10_000)
def _time(text: str, form: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form)
    return None


def days_of(moments: np.ndarray) -> np.ndarray:
    """Days since 1970, NaN where there is no time."""
    return np.where(np.isnat(moments), np.nan, (moments - np.datetime64(0, "us")) / DAY)


def phases_of(moments: np.ndarray) -> dict[str, np.ndarray]:
    """The place of a time in the week, the year and the day, from 0 to 1."""
    day, year = moments.astype("datetime64[D]"), moments.astype("datetime64[Y]")
    number = np.where(np.isnat(day), 0, day.astype(np.int64))
    first, following = (one.astype("datetime64[D]") for one in (year, year + 1))
    return {
        "weekday": (number + 3) % 7 / 7,  # 1970 began on a Thursday
        "year": (day - first) / (following - first),
        "hour": (moments - day) / DAY,
    }
