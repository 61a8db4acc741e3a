"""Cells of tables as people write them: numbers with thousands separators, words for yes and no, dates, nothing at all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import product
from numbers import Real
from typing import Any

import numpy as np

EMPTY = frozenset(  # in columns of text: what pandas takes as missing, but for "None", which may be a value
    ("", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "NaT")
)  # fmt: skip
MISSING = frozenset(word.lower() for word in EMPTY) | {"none", "-", "?"}  # in other columns, in any case
CODE = re.compile(r"0[0-9]+")
WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?[\d,]*\d\.\d+")
COMMA = re.compile(r"[+-]?[\d.]*\d,\d+([eE][+-]?\d+)?|[+-]?,\d+")
_DATES = (
    ("%Y/%m/%d", "%Y-%m", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d, %Y", "%B %d, %Y")
)  # fmt: skip
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
ISO = "ISO"


class UnreadableError(ValueError):
    """A cell that is not what its column holds.

    Attributes:
        row: where it stands.
        looks_right: whether it is meant as what it was read as, so that the column should not be read as something else.
    """

    def __init__(self, row: int, why: str, looks_right: bool = False) -> None:
        super().__init__(why)
        self.row, self.looks_right = row, looks_right


def is_missing(cell: Any, text: bool = False) -> bool:
    """Whether a cell holds nothing: `None`, NaN, NaT, an empty text or a word for it.

    text: whether the column is one of text, in which "none", "-" and "?" are values.
    """
    if isinstance(cell, str):
        return cell.strip() in EMPTY if text else cell.strip().lower() in MISSING
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, Real) and cell != cell)


def missing(cells: Sequence[Any] | np.ndarray, text: bool = False) -> np.ndarray:
    """Which cells hold nothing, bool `(rows,)`. text: as of `is_missing`."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiubmM":
        return np.isnat(cells) if cells.dtype.kind in "mM" else np.isnan(cells.astype(np.float64))
    return np.fromiter((is_missing(cell, text) for cell in cells), bool, len(cells))


def coded(cells: Iterable[Any]) -> bool:
    """Whether cells are codes: some begin with a zero, as 01 does, and none is written as only a number is, -1 or 1.5."""
    texts = {str(cell).strip() for cell in cells if not isinstance(cell, float) or not cell.is_integer()}
    return any(map(CODE.fullmatch, texts)) and not any(map(_is_measured, texts))


def _is_measured(text: str) -> bool:
    """Whether a text is a number with a sign, a decimal point or thousands separators, as no code has."""
    if text[:1] not in ("+", "-", "−") and "." not in text and "," not in text:
        return False
    try:
        number_of(text, lambda: True)
    except CommaError:
        return True
    except ValueError:
        return False
    return True


def text_of(cell: Any) -> str:
    """A category's text: the numbers 3.0 and 3 and the text " 3" are the same; the texts "3" and "03" are not."""
    if isinstance(cell, Real) and not isinstance(cell, bool) and float(cell).is_integer():
        return str(int(float(cell)))
    return str(cell).strip()


def has_point(cells: Iterable[Any]) -> bool:
    """Whether some cell is written with a decimal point, which tells what a comma is."""
    return any(isinstance(cell, float) or (isinstance(cell, str) and WITH_POINT.match(cell.strip())) for cell in cells)


def number_of(cell: Any, point: Callable[[], bool]) -> float:
    """A cell as a number; a `ValueError` that begins with "holds" where it is none.

    `point` tells whether the table is known to have decimal points, so that "1,234" is 1234.
    """
    text = str(cell).strip().replace("−", "-")  # the minus sign that some locales write
    try:
        if underscored([cell]):
            raise ValueError(text)
        return float(text if isinstance(cell, str) else cell)
    except TypeError as error:
        raise ValueError(f"holds {text!r}, which is no number") from error
    except ValueError as error:
        if THOUSANDS.fullmatch(text):
            if "." in text or text.count(",") > 1 or point():
                return float(text.replace(",", ""))
            plain = text.replace(",", ""), text.replace(",", ".")
            raise CommaError(
                f"holds {text!r}, which is {plain[0]} with a thousands separator, or {plain[1]} with a decimal comma: "
                f"write {plain[0]} or {plain[1]}"
            ) from error
        if COMMA.fullmatch(text):
            point_for_comma = text.replace(".", "").replace(",", ".")
            raise CommaError(
                f"holds {text!r}, with a decimal comma: write {point_for_comma}, with a decimal point"
            ) from error
        raise ValueError(f"holds {text!r}, which is no number") from error


def underscored(cells: Iterable[Any]) -> bool:
    """Whether some cell is a text with an underscore: Python reads 1_5 as 15, and a table means a code or a mistake by it."""
    return any(isinstance(cell, str | bytes) and "_" in str(cell) for cell in cells)


class CommaError(ValueError):
    """A number whose comma may be read in two ways, or in the wrong one."""


def numbers(cells: Sequence[Any] | np.ndarray, point: Callable[[], bool]) -> np.ndarray:
    """Cells as float64 `(rows,)`, NaN where there is nothing; an `UnreadableError` about the first that is no number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
        return cells.astype(np.float64)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "m":
        return np.where(np.isnat(cells), np.nan, cells / np.timedelta64(1, "s"))
    if not underscored(cells):
        try:
            return np.array(cells, np.float64)  # at once, where all are plain
        except (TypeError, ValueError):
            pass
    found = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if not is_missing(cell):
            try:
                found[row] = number_of(cell, point)
            except ValueError as error:
                raise UnreadableError(row, str(error), isinstance(error, CommaError)) from error
    return found


def booleans(cells: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Cells as 0 and 1, float64 `(rows,)`, NaN where there is nothing; an `UnreadableError` about another word."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "b":
        return cells.astype(np.float64)
    found = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if not is_missing(cell):
            value = WORDS.get(str(cell).strip().lower())
            if value is None and cell in (0, 1):
                value = float(cell)
            if value is None and str(cell).strip() in ("0", "1"):
                value = float(str(cell))
            if value is None:
                raise UnreadableError(row, f"holds {str(cell)!r}, which is none of true, false, yes, no, 1, 0")
            found[row] = value
    return found


def times(cells: Sequence[Any] | np.ndarray, form: str, offset: float | None = None) -> np.ndarray:
    """Cells as datetime64[us] `(rows,)`, NaT where there is nothing; an `UnreadableError` about another.

    Args:
        form: "ISO", or a format of `strptime`.
        offset: on which clock, in seconds that it is ahead of UTC; `None`: on that of the cells, which name none.
    """
    if offset is None and isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        return cells.astype("datetime64[us]")
    found = np.full(len(cells), "NaT", "datetime64[us]")
    for row, time in enumerate(_times(cells, form)):
        if time is None:
            continue
        own = _offset(time)
        if (own is None) != (offset is None):
            text = str(cells[row]).strip()
            how = (
                "without an offset from UTC, where other times of the column have one: write it, as in 2026-03-31T14:05+02:00"
                if own is None
                else "with an offset from UTC, where other times of the column have none: write it in all rows, or in none"
            )
            raise UnreadableError(row, f"holds {text!r}, {how}", True)
        found[row] = time.replace(tzinfo=None) if isinstance(time, datetime) else time
        if own is not None and offset is not None:
            found[row] += np.timedelta64(round(1e6 * (offset - own)), "us")
    return found


def usual_offset(cells: Sequence[Any] | np.ndarray, form: str) -> float | None:
    """By how many seconds most clocks are ahead of UTC, the least of equals; `None` where no cell tells."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        return None
    counts = Counter(own for time in _times(cells, form) if time is not None and (own := _offset(time)) is not None)
    return min(counts, key=lambda own: (-counts[own], own), default=None)


def _offset(time: date | np.datetime64) -> float | None:
    own = time.utcoffset() if isinstance(time, datetime) else None
    return None if own is None else own.total_seconds()


def _times(cells: Sequence[Any] | np.ndarray, form: str) -> Iterator[date | np.datetime64 | None]:
    """The times that cells hold; `None` for nothing."""
    known: dict[str, datetime] = {}
    for row, cell in enumerate(cells):
        if is_missing(cell) or (isinstance(cell, np.datetime64) and np.isnat(cell)):
            yield None
        elif isinstance(cell, date | np.datetime64):
            yield cell
        else:
            text = str(cell).strip()
            if text not in known:
                read = _time(text, form) or _time(text, ISO)
                if read is None:
                    example = datetime(2026, 3, 31, 14, 5).strftime("%Y-%m-%d" if form == ISO else form)
                    raise UnreadableError(row, f"holds {text!r}, which is no date or time such as {example}")
                known[text] = read
            yield known[text]


def time_form(texts: Iterable[str]) -> str | None:
    """How all these texts are written, "ISO" or a format of `strptime`; `None` where they are no dates.

    A `ValueError` where day and month could each be the other.
    """
    distinct = list(dict.fromkeys(text.strip() for text in texts))
    if not distinct:
        return None
    if all(_time(text, ISO) for text in distinct):
        return ISO
    forms = [day + clock for day, clock in product(_DATES, _CLOCKS)]
    for text in distinct:
        forms = [form for form in forms if _time(text, form)]
        if not forms:
            return None
    readings = {tuple(_time(text, form) for text in distinct): form for form in forms}
    if len(readings) > 1:
        example = next(text for text in distinct if len({_time(text, form) for form in forms}) > 1)
        ways = " or ".join(sorted({str(_time(example, form)) for form in forms}))
        raise ValueError(f"holds {example!r}, which may be {ways}: write dates as YYYY-MM-DD")
    return forms[0]


def _time(text: str, form: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form)
    except ValueError:
        return None
