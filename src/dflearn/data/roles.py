"""Columns of a table of features that are no features: labels of groups, and weights of rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dflearn.data.cells import missing, text_of
from dflearn.data.tables import MixedTable, Table
from dflearn.errors import DataError


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
