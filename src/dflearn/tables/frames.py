"""Predicted costs and decisions as columns under the user's names, and as DataFrames."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dflearn.program import Program


def cost_columns(names: Sequence[str] | None, costs: np.ndarray) -> dict[str, np.ndarray]:
    """Costs `(rows, p)` by name; y[0], y[1], … where they have none."""
    return dict(zip(names or [f"y[{k}]" for k in range(costs.shape[1])], costs.T, strict=True))


def beside_decisions(costs: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of predicted costs, called otherwise than variables: a cost often has the name of its variable."""
    return {f"predicted {name}": values for name, values in costs.items()}


def decision_columns(program: Program, decisions: np.ndarray, taken: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Decisions `(rows, n)` by the names of variables; w[0], w[1], … where they have none. Integers are whole.

    taken: names of other columns; a variable that is called like one of them is `name (variable)`.
    """
    names, columns = program.variable_names or tuple(f"w[{k}]" for k in range(program.n)), {}
    for name, values, whole in zip(names, decisions.T, program.integer, strict=True):
        decided = np.rint(values).astype(np.int64) if whole and np.isfinite(values).all() else values + 0.0
        columns[f"{name} (variable)" if name in taken else name] = decided
    return columns


def as_frame(columns: Mapping[str, Any], name: str | None = None, labels: Sequence[Any] | None = None) -> Any:
    """Columns by name as a DataFrame, rows called by `labels` (by default 0, 1, …), which are a `name`; a dict without pandas."""
    try:
        import pandas
    except ModuleNotFoundError:
        return dict(columns)
    return pandas.DataFrame(dict(columns), index=None if labels is None else pandas.Index(labels, name=name))
