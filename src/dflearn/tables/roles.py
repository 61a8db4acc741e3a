"""Columns of a table of features that are no features, labels of groups and weights of rows; and the order of rows in time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import closest
from dflearn.tables.cells import ISO, missing, numbers, text_of, time_form, times
from dflearn.tables.tables import MixedTable, Table, is_a, objects

AS_IS = "as-is"
UNTOLD = (
    "nothing in the table of features tells the time of a row, so the rows count as in order of time as they stand; pass "
    "ordered='COLUMN' to sort them"
)


class Roles(NamedTuple):
    """A table of features, without the columns `aside` of groups and weights."""

    features: MixedTable
    groups: list[str] | None  # a label for each row: see `parts_of`
    weights: np.ndarray | None  # float64 `(rows,)`, not negative
    aside: tuple[str, ...]

    def take(self, rows: np.ndarray) -> Roles:
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Roles(self.features.take(rows), groups, None if self.weights is None else self.weights[rows], self.aside)

    @classmethod
    def of(
        cls,
        features: MixedTable,
        groups: str | Sequence[Any] | np.ndarray | None = None,
        weights: str | Sequence[float] | np.ndarray | Table | None = None,
    ) -> Roles:
        """Groups and weights: each the name of a column, one entry per row, a Series, or a table of one column, matched by row."""
        given, labels, counts = features, None, None
        aside = tuple(dict.fromkeys(name for name in (groups, weights) if isinstance(name, str)))
        for name in aside:
            features = features.without(name, "groups" if name is groups else "weights")
        if groups is not None:
            source, name, cells = _column(given, groups, "groups")
            _check_full(source, name, cells, "each row needs the label of its group")
            labels = list(map(text_of, cells))
        if weights is not None:
            source, name, _ = _column(given, weights, "weights")
            counts = source.numbers()[name]
            if (bad := np.flatnonzero(counts < 0)).size:
                raise DataError(f"{source.cell(bad[0], name)} holds {counts[bad[0]]:g}, and no weight is negative")
            if not counts.any():
                raise DataError(f"{source.path}, column {name!r}: all weights are zero, so that no row counts")
        return cls(features, labels, counts, aside)


def _column(table: MixedTable, what: Any, called: str) -> tuple[MixedTable, str, np.ndarray]:
    """The table of a column, with its rows in order, its name and its cells."""
    if is_a("pandas", "Series", what):
        what = MixedTable.of(what.to_frame(called), called)
    if isinstance(what, str):
        source = replace(table, columns={what: table.columns[what]})
    elif isinstance(what, MixedTable):
        source = what.aligned_with(table)
    elif np.shape(what) == (len(table),):
        source = replace(table, columns={called: objects(list(what))})
    else:
        rows = f"{table.path} has {len(table)} rows: give one to each row"
        raise DataError(f"{called} has shape {np.shape(what)}, and {rows}")
    if len(source.names) > 1:
        raise DataError(f"{source.path} has the columns {', '.join(source.names)}: {called} are one column")
    ((name, cells),) = source.columns.items()
    return source, name, cells


def _check_full(table: MixedTable, name: str, cells: np.ndarray, why: str, text: bool = True) -> None:
    if (empty := np.flatnonzero(missing(cells, text))).size:
        raise DataError(f"{table.cell(empty[0], name)} is empty: {why}")


def order_in_time(
    features: MixedTable, ordered: bool | str, id_column: str | None = None, costs: MixedTable | None = None
) -> tuple[np.ndarray | None, list[str]]:
    """The order of the rows, int64 `(rows,)`, or `None` if they stay as they are; and remarks for users.

    `ordered` is as of `train`; the ids or index of the costs count if the features have none.
    """
    if ordered is False or ordered == AS_IS:
        return None, []
    if isinstance(ordered, str):
        return np.argsort(_keys(features, ordered, id_column), kind="stable"), []
    remedy = f"; or, if the rows are in order as they stand, pass ordered={AS_IS!r}"
    unordered = "so that the rows are not in order of time{}, and later ones would train the model"
    rows = features if costs is None or features.is_named else costs
    labels: Sequence[Any] = rows.ids or rows.index or ()
    try:
        found = _times(objects(labels), dated=True)
    except ValueError as error:
        raise DataError(f"{rows.path}: the rows are named by times, but a name {error}{remedy}") from error
    if found is not None:
        if (later := _first_back(found)) is None:
            return None, []
        how = "sort the frames by time, with sort_index(), say" if rows.ids is None else f"pass ordered={id_column!r}"
        called = f" (index {labels[later]!s})" if rows.ids is None else ""
        here = f"{rows.where(later)}{called} comes after {labels[later - 1]!s}"
        raise DataError(f"{here}, {unordered.format('')}: {how}{remedy}")
    backward: list[str] = []
    for name, cells in features.columns.items():
        with suppress(ValueError):
            if (moments := _times(cells)) is not None:
                held = np.flatnonzero(~np.isnat(moments))
                if (later := _first_back(moments[held])) is None:
                    return None, []
                before, row = held[later - 1], held[later]
                here = f"{features.cell(row, name)} holds {cells[row]!s} and comes after {cells[before]!s}"
                backward.append(f"{here}, {unordered.format(' by this column')}: pass ordered={name!r}{remedy}")
    if backward:
        raise DataError(backward[0])
    return None, [UNTOLD]


def _first_back(moments: np.ndarray) -> int | None:
    back = np.flatnonzero(moments[1:] < moments[:-1])
    return int(back[0]) + 1 if back.size else None


def _times(cells: np.ndarray, dated: bool = False) -> np.ndarray | None:
    """Cells as datetime64[us] `(rows,)`, NaT where empty; `None` if they hold no times. dated: 20240131 is a date, too."""
    if cells.dtype.kind == "M":
        return times(cells, ISO)[0]
    cells = objects([cell.to_timestamp() if type(cell).__name__ == "Period" else cell for cell in cells])
    held = cells[~missing(cells)]
    if not all(isinstance(cell, str | date | np.datetime64) for cell in held) or not len(held):
        return None
    texts = [cell.strip() for cell in held if isinstance(cell, str)]
    digits = [text for text in texts if text.isdigit()]
    if digits and (not dated or not all(len(text) == 8 and text[:2] in ("19", "20") for text in digits)):
        return None
    form = time_form(texts) if texts else ISO
    return None if form is None else times(cells, form)[0]


def _keys(table: MixedTable, name: str, id_column: str | None) -> np.ndarray:
    """The times or numbers of the column that sorts the rows, `(rows,)`."""
    by_id = name == id_column and table.ids is not None
    if not by_id and name not in table.columns:
        raise DataError(f"{table.path} has no column {name!r} to sort the rows by{closest(name, table.names)}")
    cells = objects(table.ids or ()) if by_id else table.columns[name]
    _check_full(table, name, cells, "the rows are sorted by this column, so each needs its time", text=False)
    with table.reading(name, ", and no time: rows are sorted by times, such as 2026-03-31, or by numbers"):
        found = _times(cells)
        return numbers(cells, table.has_point) if found is None else found
