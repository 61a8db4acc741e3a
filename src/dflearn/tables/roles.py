"""Columns of a table of features that are no features: labels of groups, and weights of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from dflearn.errors import DataError
from dflearn.program.names import closest
from dflearn.tables.cells import ISO, UnreadableError, missing, numbers, text_of, time_form, times, usual_offset
from dflearn.tables.tables import MixedTable, Rows, Table


class Roles(NamedTuple):
    """A table of features, and what was set aside from it.

    Attributes:
        features: the table without those columns.
        groups: a label for each row, or `None`: see `parts_of`.
        weights: float64 `(rows,)`, not negative, or `None`.
        aside: the columns that were taken out.
    """

    features: MixedTable
    groups: list[str] | None
    weights: np.ndarray | None
    aside: tuple[str, ...]

    def take(self, rows: np.ndarray) -> Roles:
        """The same of these rows."""
        groups = None if self.groups is None else [self.groups[row] for row in rows]
        return Roles(self.features.take(rows), groups, None if self.weights is None else self.weights[rows], self.aside)

    @classmethod
    def of(
        cls,
        features: MixedTable,
        groups: str | Sequence[Any] | np.ndarray | None = None,
        weights: str | Sequence[float] | np.ndarray | Table | None = None,
    ) -> Roles:
        """Groups and weights are each the name of a column of the features, or one entry per row.

        Weights may also be a table of one column. Its rows, and those of a Series of pandas, are matched as those of other
        tables are.
        """
        given = features
        groups, weights = (
            _in_order(what, called, given) for what, called in ((groups, "groups"), (weights, "weights"))
        )
        aside = tuple(dict.fromkeys(name for name in (groups, weights) if isinstance(name, str)))
        for name in aside:
            features, _ = features.without(name, "groups" if name == groups else "weights")
        labels = None
        if groups is not None:
            cells = given.columns[groups] if isinstance(groups, str) else np.asarray(groups, object)
            labels = _labels(given, cells, groups if isinstance(groups, str) else "groups")
        return cls(features, labels, None if weights is None else _weights(given, weights), aside)


def _in_order(what: Any, called: str, table: MixedTable) -> Any:
    """The cells of a Series of pandas in the order of a table's rows; anything else as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(what, pandas.Series):
        return what
    return MixedTable.of(what.to_frame(called), called).aligned_with(table).columns[called]


def _labels(table: MixedTable, cells: np.ndarray, name: str) -> list[str]:
    if len(cells) != len(table):
        raise DataError(f"groups has {len(cells)} labels, and {table.path} has {len(table)} rows: give one to each row")
    empty = np.flatnonzero(missing(cells, text=True))
    if empty.size:
        raise DataError(f"{table.cell(empty[0], name)} is empty: each row needs the label of its group")
    return [text_of(cell) for cell in cells]


def _weights(table: MixedTable, weights: str | Sequence[float] | np.ndarray | Table) -> np.ndarray:
    source: MixedTable | Table = table
    if isinstance(weights, Table):
        source = weights.aligned_with(table)
        if len(weights.names) > 1:
            raise DataError(f"{weights.path} has the columns {', '.join(weights.names)}: weights are one column")
        name, found = source.names[0], source.values[:, 0]
    elif isinstance(weights, str):
        name = weights
        column = MixedTable(table.path, {name: table.columns[name]}, table.places, table.ids)
        found = column.numbers().values[:, 0]
    else:
        name, found = "weights", np.asarray(weights, np.float64)
        if found.shape != (len(table),):
            raise DataError(
                f"weights has shape {found.shape}, and {table.path} has {len(table)} rows: give one to each row"
            )
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if bad.size:
        raise DataError(f"{source.cell(bad[0], name)} holds {found[bad[0]]:g}, and no weight is negative or infinite")
    if not found.any():
        raise DataError(f"{source.path}, column {name!r}: all weights are zero, so that no row counts")
    return found


# -- order in time -----------------------------------------------------------------------------------------------------


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
