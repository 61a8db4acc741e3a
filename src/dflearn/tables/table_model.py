"""What estimators of decisions share: costs by name, and tables of people on the way in and out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.errors import DataError, MissingExtraError
from dflearn.evaluation.regret import check_linear, regrets_of
from dflearn.problems import Problem
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solver
from dflearn.solvers.task import Decided, DecisionTask
from dflearn.tables.columns import Encoding
from dflearn.tables.demand import Scenarios
from dflearn.tables.forecasters import Combination
from dflearn.tables.tables import MixedTable, Table, TableLike, Tables, id_column_in, is_table

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
    raise MissingExtraError(
        "estimators of decisions follow scikit-learn, which is not installed: pip install 'dflearn[sklearn]'"
    ) from error


class Decider(RegressorMixin, BaseEstimator):
    """What the estimators of decisions share: tags, costs by name, and the score."""

    problem: Decided | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # the score is minus a regret, so never above zero
        return tags

    def _only_decides(self) -> bool:
        """Whether what is decided is a function, for which costs and variables are one."""
        return not isinstance(self.problem, Problem | Program | Solver | DecisionTask)

    def _in_order(self, y: Any) -> Any:
        """Costs with names, as a DataFrame has them, in the order of the program's; an error where a name is not known."""
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


class TableModel(Decider):
    """A fitted model of costs that knows the tables it was trained on, where `train` made it.

    Attributes:
        model_, solver_: the trained module, and the exact solver of the program.
        record_: what `train` keeps with it: the encoding of the features, names of costs and instances.
    """

    model_: nn.Module
    solver_: Solver
    record_: dict[str, Any]
    _shape: tuple[int, ...]

    def decider(self, solver: Solver | None = None) -> Solver:
        """What decides for predictions of this model: the exact solver, in several scenarios at once where it has any."""
        solver = self.solver_ if solver is None else solver
        model = self.model_
        return Scenarios(solver, model.errors) if isinstance(model, Combination) and len(model.errors) else solver

    @property
    def cost_names(self) -> Sequence[str] | None:
        """What the costs are called: by the program, or else by the table that the model was trained on."""
        program = self.solver_.program
        return None if program is None else program.cost_names or vars(self).get("record_", {}).get("costs")

    @property
    def encoding(self) -> Encoding | None:
        """How tables of features become numbers; `None` where the model was not made of tables."""
        held = vars(self).get("record_", {}).get("encoding")
        return None if held is None else Encoding.from_dict(held)

    def learned_encoding(self) -> Encoding:
        """The same; an error where there is none."""
        if (encoding := self.encoding) is None:
            raise DataError(
                "the model was not made by dfl train, so nothing tells the names of its features: use it in Python, with arrays"
            )
        return encoding

    def _encoded(self, X: Any) -> Any:
        """The features as numbers, if this model was made of tables and X is one, with warnings of unusual cells; X itself otherwise."""
        encoding = self.encoding
        if encoding is None:
            return X
        width = None if is_table(X) else np.shape(X)[1:]
        if width is None or (width != self._shape and width == (len(encoding.inputs),)):
            table = MixedTable.of(X, "X", names=encoding.inputs)
            for remark in encoding.remarks(table):
                warnings.warn(remark, stacklevel=4)
            return encoding(table)
        return X

    def _framed(self, columns: dict[str, np.ndarray], features: MixedTable) -> Any:
        """A DataFrame with the rows of a table."""
        return as_frame(columns, None if features.ids is None else self.record_["id"], features.ids or features.index)

    def read(
        self, given: Mapping[str, TableLike | None], id_column: str | None = None
    ) -> tuple[Tables, Instance | None]:
        """Tables for a model that `train` made, with their columns in the order of training, and their instances; an error where
        they do not suit the model."""
        encoding, program = self.learned_encoding(), self.solver_.program
        record = self.record_
        assert program is not None
        if "instances" in given and record["instances"] and given["instances"] is None:
            names = ", ".join(record["instances"])
            raise DataError(f"the model was trained with instances (columns {names}): add such a table")
        if not record["instances"] and given.get("instances") is not None:
            raise DataError("the model was trained without instances: leave it out, or train with it")
        if record["forecast"] and given.get("forecast") is None:
            raise DataError(
                "the model builds on your own forecast of the costs: add such a table, decide(…, forecast=…)"
            )
        if not record["forecast"]:
            given = {**given, "forecast": None}
        wanted = {"features": encoding.inputs, "costs": self.cost_names, "instances": list(record["instances"])}
        wanted["forecast"] = record["forecast"] or None
        id_column = id_column or id_column_in(given.values(), record["id"])
        tables = Tables.of(given, id_column, wanted, "the {} in training")
        return tables, tables.instance(program)


# -- columns and frames ------------------------------------------------------------------------------------------------


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


def check_same_index(X: Any, y: Any) -> None:
    """An error where both are frames of pandas and their rows are called otherwise."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not all(isinstance(one, pandas.DataFrame | pandas.Series) for one in (X, y)):
        return
    if len(X) == len(y) and not X.index.equals(y.index):
        pairs = enumerate(zip(X.index.tolist(), y.index.tolist(), strict=True))
        row, (mine, other) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
        raise DataError(
            f"row {row} is {mine!r} in the index of X and {other!r} in that of y: write y.loc[X.index] if the same "
            "rows stand in another order, or y.to_numpy() if they belong together as they stand"
        )
