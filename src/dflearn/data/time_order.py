"""`order_in_time`: the rows of a table in order of time, by a column, or as they stand unless something tells otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import numpy as np

from dflearn.data.cells import ISO, UnreadableError, missing, numbers, time_form, times, usual_offset
from dflearn.data.tables import MixedTable, Rows
from dflearn.errors import DataError
from dflearn.program.names import closest

AS_IS = "as-is"
UNTOLD = (
    "nothing in the table of features tells the time of a row, so the rows count as in order of time as they stand; pass "
    "ordered='COLUMN' to sort them"
)


def order_in_time(
    features: MixedTable, ordered: bool | str, id_column: str | None = None, costs: Rows | None = None
) -> tuple[np.ndarray | None, list[str]]:
    """The order of the rows, int64 `(rows,)`, or `None` where they stay as they are; and what a user should know.

    Args:
        ordered: the name of a column of times or numbers, which sorts the rows; or `True`, if the rows are in order of time: an
            error where ids, an index or columns that hold times say otherwise. "as-is" is the same without a look at them.
        id_column: what the column of ids is called.
        costs: the table of costs, whose ids or index count where the features have none.
    """
    if ordered is False or ordered == AS_IS:
        return None, []
    if isinstance(ordered, str):
        return np.argsort(_keys(features, ordered, id_column), kind="stable"), []
    remedy = f"; or, if the rows are in order as they stand, pass ordered={AS_IS!r}"
    rows: Rows = features if costs is None or features.is_named else costs
    labels: Sequence[Any] = rows.ids or rows.index or ()
    try:
        found = _times(_as_cells(labels), dated=True)
    except ValueError as error:
        raise DataError(f"{rows.path}: the rows are named by times, but a name {error}{remedy}") from error
    if found is not None:
        later = _first_back(found)
        if later is not None:
            how = (
                "sort the frames by time, with sort_index(), say" if rows.ids is None else f"pass ordered={id_column!r}"
            )
            called = f" (index {labels[later]!s})" if rows.ids is None else ""
            raise DataError(
                f"{rows.where(later)}{called} comes after {labels[later - 1]!s}, so that the rows are not in order of time, and "
                f"later ones would train the model: {how}{remedy}"
            )
        return None, []
    backward = []
    for name, cells in features.columns.items():
        try:
            moments = _times(cells)
        except ValueError:
            continue
        if moments is None:
            continue
        held = np.flatnonzero(~np.isnat(moments))
        later = _first_back(moments[held])
        if later is None:
            return None, []
        backward.append((name, int(held[later]), int(held[later - 1])))
    if not backward:
        return None, [UNTOLD]
    name, row, before = backward[0]
    cells = features.columns[name]
    raise DataError(
        f"{features.cell(row, name)} holds {cells[row]!s} and comes after {cells[before]!s}, so that the rows are not in order of "
        f"time by this column, and later ones would train the model: pass ordered={name!r}{remedy}"
    )


def _as_cells(labels: Iterable[Any]) -> np.ndarray:
    held = list(labels)
    cells = np.empty(len(held), object)
    cells[:] = held
    return cells


def _first_back(moments: np.ndarray) -> int | None:
    """The first of these times that is earlier than the one before it."""
    back = np.flatnonzero(moments[1:] < moments[:-1])
    return int(back[0]) + 1 if back.size else None


def _times(cells: np.ndarray, dated: bool = False) -> np.ndarray | None:
    """Cells as datetime64[us] `(rows,)`, NaT where they are empty; `None` where they hold no times.

    dated: whether digits alone, 20240131, are a date too. A `ValueError` where times can be read in two ways.
    """
    if cells.dtype.kind == "M":
        return times(cells, ISO)
    if any(type(cell).__name__ == "Period" for cell in cells):  # those of pandas begin at a time
        cells = _as_cells(cell.to_timestamp() if type(cell).__name__ == "Period" else cell for cell in cells)
    held = cells[~missing(cells)] if cells.dtype.kind == "O" else cells[:0]
    if not all(isinstance(cell, str | date | np.datetime64) for cell in held) or not len(held):
        return None
    texts = [cell.strip() for cell in held if isinstance(cell, str)]
    digits = [text for text in texts if text.isdigit()]
    if digits and (not dated or not all(len(text) == 8 and text[:2] in ("19", "20") for text in digits)):
        return None
    form = time_form(texts) if texts else ISO
    return None if form is None else times(cells, form, usual_offset(cells, form))


def _keys(table: MixedTable, name: str, id_column: str | None) -> np.ndarray:
    """What sorts the rows: the times or numbers of a column, `(rows,)`."""
    if name == id_column and table.ids is not None:
        cells = _as_cells(table.ids)
    elif name in table.columns:
        cells = table.columns[name]
    else:
        raise DataError(f"{table.path} has no column {name!r} to sort the rows by{closest(name, table.names)}")
    empty = np.flatnonzero(missing(cells))
    if empty.size:
        raise DataError(
            f"{table.cell(empty[0], name)} is empty: the rows are sorted by this column, so each needs its time"
        )
    try:
        found = _times(cells)
        return numbers(cells, table.has_point) if found is None else found
    except UnreadableError as error:
        why = "" if error.looks_right else ", and no time: rows are sorted by times, such as 2026-03-31, or by numbers"
        raise DataError(f"{table.cell(error.row, name)} {error}{why}") from error
    except ValueError as error:
        raise DataError(f"{table.path}, column {name!r} {error}") from error
