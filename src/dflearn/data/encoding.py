"""`Encoding`: a mixed table of features as numbers, the same way for the rows trained on and for all that come later.

    number      itself; a gap is the median
    boolean     0 or 1 (true, false, yes, no)
    category    a column of 0 and 1 for each level; of many levels the frequent ones, and one for all others
    time        the trend in days; sine and cosine of weekday, day of the year and hour, where rows span the whole cycle
    constant    nothing

Where the rows trained on have gaps, one more column of 0 and 1 flags them. What is learned (kinds, levels, medians,
ranges) is learned from the rows trained on alone. A table of complete numbers, none of them constant, encodes to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dflearn.data.encoded_columns import KINDS, CategoryColumn, Column, ConstantColumn
from dflearn.data.learned_columns import learn
from dflearn.data.tables import MixedTable, and_more
from dflearn.errors import DataError
from dflearn.program.names import closest


@dataclass(frozen=True)
class Encoding:
    """How a mixed table becomes numbers: `Encoding.of(table, rows)` learns it, `encoding(table)` does it.

    Attributes:
        columns: what each column of the table becomes.
        aside: columns that are no features, so that none need tell of them: groups and weights.
    """

    columns: tuple[Column, ...]
    aside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, table: MixedTable, rows: Sequence[int] | np.ndarray | None = None, aside: Iterable[str] = ()
    ) -> Encoding:
        """What the rows to train on, by default all, tell about the columns of a table."""
        chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
        columns = tuple(learn(table, name, chosen) for name in table.names)
        if not any(column.names for column in columns):
            raise DataError(
                f"{table.path}: every column holds one value in all rows to train on, so that there is nothing to learn from"
            )
        return cls(columns, tuple(aside))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the table."""
        return tuple(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns of the numbers are called."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def notes(self) -> list[str]:
        """What was learned that a user should know."""
        said = [
            f"the feature {column.name!r} has the same value in all rows trained on, so it tells nothing and is left out"
            for column in self.columns
            if isinstance(column, ConstantColumn)
        ]
        said += [
            f"the feature {column.name!r} holds codes with leading zeros, as {column.codes[0]!r}: they are categories, and "
            "01 is another one than 1; if they are numbers, write them without these zeros"
            for column in self.columns
            if isinstance(column, CategoryColumn) and column.codes
        ]
        return said + [
            f"the feature {column.name!r} has many categories: the {len(column.levels)} most frequent have a column each, "
            "the others share one"
            for column in self.columns
            if isinstance(column, CategoryColumn) and column.other
        ]

    def __call__(self, table: MixedTable) -> np.ndarray:
        """float64 `(rows, len(names))`; columns that are not known are ignored, and one that is missing is an error."""
        self._check(table)
        return np.ascontiguousarray(np.column_stack([column.encode(table) for column in self.columns]))

    def remarks(self, table: MixedTable) -> list[str]:
        """What is unusual in a table: cells that are filled, unknown or far outside what was seen, and other columns."""
        self._check(table)
        said = [remark for column in self.columns for remark in column.remarks(table)]
        known = {*self.inputs, *self.aside}
        extra = [name for name in table.names if name not in known]
        if extra:
            said.append(
                f"{table.path} has the column {extra[0]!r}, which is no feature of the model{and_more(extra)}: ignored"
            )
        return said

    def _check(self, table: MixedTable) -> None:
        missing = [c.name for c in self.columns if c.name not in table.columns and not isinstance(c, ConstantColumn)]
        if missing:
            extra = [name for name in table.names if name not in self.inputs]
            raise DataError(
                f"{table.path} lacks the column {missing[0]!r} of the features in training{and_more(missing)}"
                f"{closest(missing[0], extra)}"
            )

    # -- files --------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = lambda value: list(value) if isinstance(value, tuple) else value  # noqa: E731
        columns = [
            {"kind": column.kind} | {name: plain(value) for name, value in asdict(column).items()}
            for column in self.columns
        ]
        return {"columns": columns, "aside": list(self.aside)}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Encoding:
        """What `as_dict` wrote."""
        columns = []
        try:
            for parts in held["columns"]:
                values = {name: tuple(v) if isinstance(v, list) else v for name, v in parts.items() if name != "kind"}
                columns.append(KINDS[parts["kind"]](**values))
            return cls(tuple(columns), tuple(held["aside"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"the encoding of the features cannot be read: {error!r}; it is damaged, or newer"
            ) from error
