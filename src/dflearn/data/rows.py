"""What the rows of tables are called, and which row of one table belongs to which of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dflearn.errors import DataError


class Rows:
    """What the rows of a table are called.

    Attributes:
        path: the file, or what else messages call the table.
        places: what each row is called: "line 7" of a CSV file, "row 6" elsewhere.
        ids: the text of the id column in each row, each once; `None` where there is no such column.
        index: the labels of a DataFrame's rows; `None` of other tables.
    """

    path: Path | str
    places: tuple[str, ...]
    ids: tuple[str, ...] | None
    index: tuple[Any, ...] | None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def is_named(self) -> bool:
        """Whether ids or an index tell more of a row than its position."""
        return self.ids is not None or self.index not in (None, tuple(range(len(self))))

    def where(self, row: int) -> str:
        """File, place and id of a row, for messages."""
        return f"{self.path}, {self.places[row]}" + ("" if self.ids is None else f" (id {self.ids[row]!r})")

    def cell(self, row: int, column: str) -> str:
        """What messages call a cell."""
        return f"{self.path}, {self.places[row]}, column {column!r}"

    def order_like(self, other: Rows) -> list[int]:
        """Which row belongs to each row of another table: by id, by the index of DataFrames, or as they are."""
        if self.ids is not None and other.ids is not None:
            return self._by_label(other, self.ids, other.ids, "id", "both need the same ids")
        if len(self) != len(other):
            raise DataError(
                f"{other.path} has {len(other)} rows and {self.path} has {len(self)}: each row is one instance, in "
                "the same order in both; or let a column that both have name the rows, with id_column"
            )
        mine, theirs = (self.index, other.index) if self.ids is None and other.ids is None else (None, None)
        by_position = list(range(len(self)))
        positions = tuple(by_position)
        remedy = "give both frames one index, or call reset_index(drop=True) on both to match rows by position"
        if mine is None or theirs is None:
            labels = mine or theirs or positions
            if labels != positions and set(labels) == set(positions):
                shuffled, plain = (self, other) if mine else (other, self)
                raise DataError(
                    f"the index of {shuffled.path} is 0, 1, … in another order, and {plain.path} has none: {remedy}"
                )
            return by_position
        if mine == theirs or (positions in (mine, theirs) and set(mine).isdisjoint(theirs)):
            return by_position
        for rows, labels in ((self, mine), (other, theirs)):
            if len(set(labels)) < len(labels):
                raise DataError(
                    f"the index of {rows.path} names some rows twice and differs from that of "
                    f"{(other if rows is self else self).path}: {remedy}"
                )
        return self._by_label(other, mine, theirs, "index", remedy)

    def _by_label(self, other: Rows, mine: Sequence[Any], theirs: Sequence[Any], kind: str, remedy: str) -> list[int]:
        row_of = {label: row for row, label in enumerate(mine)}
        for one, its, another, others in ((self, mine, other, theirs), (other, theirs, self, mine)):
            have = set(its)
            lacking = [label for label in others if label not in have]
            if lacking:
                first = min(lacking) if kind == "id" else lacking[0]
                raise DataError(
                    f"{one.path} has no row with {kind} {first!r}, and {another.path} has{and_more(lacking)}: {remedy}"
                )
        return [row_of[label] for label in theirs]

    def _picked(self, order: Sequence[int] | np.ndarray) -> dict[str, Any]:
        """What rows are called, in another order."""
        pick = lambda labels: None if labels is None else tuple(labels[i] for i in order)  # noqa: E731
        return {"places": pick(self.places), "ids": pick(self.ids), "index": pick(self.index)}


def and_more(names: Sequence[str]) -> str:
    return f" ({len(names)} such)" if len(names) > 1 else ""
