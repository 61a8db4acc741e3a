"""What estimators of decisions share: tags, costs by name, the score; and columns and frames by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.errors import DataError, MissingExtraError
from dflearn.evaluation.regret import check_linear, regrets_of
from dflearn.problems import Problem
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables.tables import Table, is_a

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import check_random_state as check_random_state
    from sklearn.utils.validation import (
        _check_sample_weight as _check_sample_weight,
        _get_feature_names,
        check_array as check_array,
        check_consistent_length as check_consistent_length,
        check_is_fitted as check_is_fitted,
        validate_data as validate_data,
    )
except ModuleNotFoundError as error:
    missing = "estimators of decisions follow scikit-learn, which is not installed: pip install 'dflearn[sklearn]'"
    raise MissingExtraError(missing) from error


class Decider(RegressorMixin, BaseEstimator):
    """The base of estimators of decisions: tags, costs by name, and the score."""

    problem: Decided | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is minus a regret, so never above zero
        return tags

    def _only_decides(self) -> bool:
        """Whether a function decides, for which costs and variables are one."""
        return not isinstance(self.problem, Problem | Program | Solver | DecisionTask)

    def _in_order(self, y: Any) -> Any:
        """Costs with names, as of a DataFrame, in the order of the program's; an error about an unknown name."""
        if _get_feature_names(y) is None or self.problem is None or self._only_decides():
            return y
        program = DecisionTask.of(self.problem, None).program
        names = None if program is None else program.cost_names or vars(self).get("record_", {}).get("costs")
        return y if names is None else Table.of(y, "y").in_order(names, "the program").values


def minus_regret(solver: Solver, data: DecisionDataset, decided: Tensor, weights: Tensor | float) -> float:
    """−Σ regret / Σ |optimum| of these decisions on labelled data, both sums weighted."""
    batch = data.batch()
    true, optimal = batch.require("costs"), batch.require("decisions")
    found = regrets_of(solver, true, decided, optimal, data.instance)
    check_linear(solver, found, true, optimal, data.instance)
    regret, optimum = (weights * found.regret).sum().item(), (weights * found.optimum.abs()).sum().item()
    return -regret / optimum if optimum > 0 else 0.0 if regret == 0 else -np.inf


def cost_columns(names: Sequence[str] | None, costs: np.ndarray) -> dict[str, np.ndarray]:
    """Costs `(rows, p)` by name; y[0], y[1], … where they have none."""
    return dict(zip(names or [f"y[{k}]" for k in range(costs.shape[1])], costs.T, strict=True))


def beside_decisions(costs: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of predicted costs, with other names than variables: a cost often has the name of its variable."""
    return {f"predicted {name}": values for name, values in costs.items()}


def decision_columns(program: Program, decisions: np.ndarray, taken: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Decisions `(rows, n)` by the names of variables, w[0], w[1], … where they have none; `name (variable)` where it is `taken`."""
    names, columns = program.variable_names or tuple(f"w[{k}]" for k in range(program.n)), {}
    for name, values, whole in zip(names, decisions.T, program.integer, strict=True):
        decided = np.rint(values).astype(np.int64) if whole and np.isfinite(values).all() else values + 0.0
        columns[f"{name} (variable)" if name in taken else name] = decided
    return columns


def as_frame(columns: Mapping[str, Any], name: str | None = None, labels: Sequence[Any] | None = None) -> Any:
    """Columns by name as a DataFrame with these labels of rows (by default 0, 1, …) and their name; a dict without pandas."""
    try:
        import pandas
    except ModuleNotFoundError:
        return dict(columns)
    return pandas.DataFrame(dict(columns), index=None if labels is None else pandas.Index(labels, name=name))


def check_same_index(X: Any, y: Any) -> None:
    """An error if both are frames of pandas with different labels of rows."""
    if not all(is_a("pandas", "DataFrame", one) or is_a("pandas", "Series", one) for one in (X, y)):
        return
    if len(X) == len(y) and not X.index.equals(y.index):
        row = int(np.argmax(X.index.to_numpy() != y.index.to_numpy()))
        names = f"row {row} is {X.index.tolist()[row]!r} in the index of X and {y.index.tolist()[row]!r} in that of y"
        loc, to_numpy = "if the same rows stand in another order", "if they belong together as they stand"
        raise DataError(f"{names}: write y.loc[X.index] {loc}, or y.to_numpy() {to_numpy}")
