"""Decisions for new rows of tables, by a model that `train` made: what `dfl decide` does."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.errors import OptionError
from dflearn.evaluation import regrets_of
from dflearn.evaluation.regret import without_roundoff
from dflearn.solvers.base import Solution, Solver, Status
from dflearn.solvers.task import check_solves
from dflearn.tables.regressor import DecisionFocusedRegressor
from dflearn.tables.table_model import as_frame, beside_decisions, cost_columns, decision_columns
from dflearn.tables.tables import Table, TableLike, write_table


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for the rows of a table.

    Attributes:
        columns: one row per instance: its id if it has one, the status, the objective with the predicted costs, a
            column per variable; with true costs also the true objective and the regret of the decision.
        predicted: the predicted costs by name.
        labels: the name and the labels of the rows in `frame`: the ids, or the index of a DataFrame.
        solution: the solver's answer.
        optima: with true costs, the objective of the best decision in hindsight without its constant, `(rows,)`.
        notes: unusual cells of the features: filled, unknown, or far outside what was seen in training.
        offset: the constant of the objective, which the objectives in `columns` include.

    Examples:
        >>> x, y = data.features.numpy(), data.costs.numpy()
        >>> result = dfl.train(program, x, y, forecasters=["ridge"], losses=["spo+"], epochs=1, progress=False)
        >>> decisions = dfl.decide(result.model, x[:2])
        >>> list(decisions.columns)[:3], decisions.solution.decision.shape
        (['status', 'predicted_objective', 'w[0]'], torch.Size([2, 12]))
    """

    columns: dict[str, list[Any]]
    predicted: dict[str, np.ndarray]
    labels: tuple[str | None, tuple[Any, ...] | None]
    solution: Solution
    optima: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    offset: float = 0.0

    @property
    def frame(self) -> Any:
        """A DataFrame of `columns`, with each predicted cost as `predicted NAME`, and the rows called as in the table."""
        columns = {name: cells for name, cells in self.columns.items() if name != self.labels[0]}
        return as_frame({"status": columns.pop("status"), **beside_decisions(self.predicted), **columns}, *self.labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .csv or .parquet file."""
        write_table(path, self.columns)

    def as_dict(self) -> dict[str, Any]:
        """The number of decisions of each status, and, with true costs, their regret."""
        regret, ratio = None, None
        if self.optima is not None:
            regrets, total = np.array(self.columns["regret"]), float(np.nansum(np.abs(self.optima)))
            regret, ratio = float(np.nanmean(regrets)), float(np.nansum(regrets)) / total if total > 0 else None
        counts = {name.lower(): number for name, number in self.solution.counts().items()}
        return {"decisions": sum(counts.values()), "statuses": counts, "mean_regret": regret, "ratio_of_sums": ratio}

    def __str__(self) -> str:
        found = self.as_dict()
        counts = ", ".join(f"{number} {name}" for name, number in found["statuses"].items())
        said = f"{found['decisions']} decisions, {counts}"
        if self.optima is not None:
            ratio = float("nan") if found["ratio_of_sums"] is None else found["ratio_of_sums"]
            said += f"\nmean regret {found['mean_regret']:.4g}, total regret / total optimum {ratio:.2%}"
            said += f" (the optimum without the constant {self.offset:.4g} of the objective)" if self.offset else ""
        return said + "".join(f"\nnote: {note}" for note in self.notes)


def decide(
    model: DecisionFocusedRegressor | str | os.PathLike[str],
    features: TableLike,
    costs: TableLike | None = None,
    instances: TableLike | None = None,
    *,
    id_column: str | None = None,
    forecast: TableLike | None = None,
    partial: bool = False,
    solver: Solver | None = None,
) -> Decisions:
    """Decide for new rows of features, with a model that `train` made.

    Args:
        model: the `model` of a `TrainResult`, or its file.
        features, instances: columns with their names in training, or one row as a dict of single values; an array in that order;
            the path of a .csv or .parquet file.
        costs: the true costs, if they are known, for the regret.
        forecast: your own forecast of the costs, for a model that uses one.
        id_column: the column that names the rows, by default that of training if a table has it.
        partial: NaN for rows without a decision, instead of an error that names the first.
        solver: an exact solver of the same program in place of the model's, with several workers, say.

    Examples:
        >>> x, y = data.features.numpy(), data.costs.numpy()
        >>> result = dfl.train(program, x, y, forecasters=["ridge"], losses=["spo+"], epochs=1, progress=False)
        >>> dfl.decide(result.model, x[:2]).columns["status"]
        ['optimal', 'optimal']
    """
    if not isinstance(model, DecisionFocusedRegressor | str | os.PathLike):
        raise OptionError(
            f"decide takes a model that train made, or its file, and got a {type(model).__name__}: write decide(result.model, …) "
            "for what train gave, and HiGHS(program).solve(costs) to decide for costs that are known"
        )
    regressor = model if isinstance(model, DecisionFocusedRegressor) else load(model)
    given = {"features": features, "costs": costs, "instances": instances, "forecast": forecast}
    tables, instance = regressor.read(given, id_column)
    record, encoding, program = regressor.record_, regressor.learned_encoding(), regressor.solver_.program
    assert program is not None
    solver = regressor.solver_ if solver is None else solver
    check_solves(solver, program)
    accept = tuple(Status) if partial else (Status.OPTIMAL,)
    x = with_forecast(encoding(tables.features), tables.forecast)
    predicted = regressor.predict(x)
    solution = regressor.decider(solver).solve(torch.tensor(predicted), instance)
    solution.check(accept, name=tables.where, what="decision with the predicted costs")

    def in_own_sense(objective: torch.Tensor) -> np.ndarray:
        """As the program's file states it: its own sense, its constant included."""
        return (-1 if program.sense == "maximize" else 1) * objective.numpy() + record["offset"] + 0.0

    notes, ids = encoding.remarks(tables.features), tables.features.ids
    id_column = None if ids is None else id_column or record["id"]
    columns: dict[str, Any] = {} if id_column is None else {id_column: ids}
    columns["status"] = [Status(code).name.lower() for code in solution.status.tolist()]
    columns["predicted_objective"] = in_own_sense(solution.objective)
    optima = None
    if tables.costs is not None:
        y = torch.tensor(tables.costs.values)
        best = solver.solve(y, instance).check(accept, name=tables.where, what="optimal decision with the true costs")
        regret, optimum = regrets_of(solver, y, solution.decision, best.decision, instance)
        columns["true_objective"] = in_own_sense(optimum + regret)
        optima = optimum.numpy()
        columns["regret"] = without_roundoff(regret.numpy(), optima)
        known, _ = seen(DecisionDataset(torch.tensor(x), y), record.get("trained_on", ""))
        if known.any():
            trained_on = f"{int(known.sum())} of the {len(known)} rows were trained on"
            notes.append(f"{trained_on}: their regret says nothing about new rows")
    columns |= decision_columns(program, solution.decision.numpy(), columns)
    plain = {name: cells.tolist() if isinstance(cells, np.ndarray) else list(cells) for name, cells in columns.items()}
    labels, named = (id_column, ids or tables.features.index), cost_columns(regressor.cost_names, predicted)
    return Decisions(plain, named, labels, solution, optima, tuple(notes), record["offset"])


def load(path: str | os.PathLike[str], *, trust: bool = False) -> DecisionFocusedRegressor:
    """A model from the file at `path`: one that `train` made, or a saved estimator. trust: as of `DecisionFocusedRegressor.load`.

    Examples:
        >>> model = dfl.DecisionFocusedRegressor(problem, loss="mse", epochs=1).fit(data.features, data.costs)
        >>> _ = model.save("paths.dfl")
        >>> dfl.load("paths.dfl").decide(data.features[:2]).shape
        (2, 12)
    """
    return DecisionFocusedRegressor.load(path, trust=trust)


def dataset_for(
    regressor: DecisionFocusedRegressor, features: TableLike, costs: TableLike, instances: TableLike | None = None
) -> DecisionDataset:
    """The data in these tables for a loaded model, without decisions."""
    tables, instance = regressor.read({"features": features, "costs": costs, "instances": instances})
    assert tables.costs is not None
    x = regressor.learned_encoding()(tables.features)
    return DecisionDataset(torch.tensor(x), torch.tensor(tables.costs.values), instance=instance)


def with_forecast(features: np.ndarray, forecast: Table | None) -> np.ndarray:
    """Features as numbers, and behind them a forecast of the costs, if there is one."""
    return features if forecast is None else np.column_stack([features, forecast.values])


SIZE = 8  # bytes of a hash
DIGITS = 6  # of features, whose sines may differ in their last bits between machines


def _hashes(data: DecisionDataset) -> list[bytes]:
    """A hash of the features and costs of each row."""
    x, y = data.features.double().flatten(1).numpy(), data.batch().require("costs").double().numpy()
    rows = np.ascontiguousarray(np.column_stack([x.round(DIGITS), y]) + 0.0)  # no −0
    return [blake2b(row.tobytes(), digest_size=SIZE).digest() for row in rows]


def packed(data: DecisionDataset) -> str:
    """The hashes of all rows in one text, for the model's file, so that later tables tell seen rows from others."""
    return b64encode(b"".join(sorted(_hashes(data)))).decode()


def seen(data: DecisionDataset, known: str) -> tuple[np.ndarray, bool]:
    """Which rows are among those of `packed`, bool `(rows,)`, and whether all of those are here."""
    whole = b64decode(known)
    before = {whole[at : at + SIZE] for at in range(0, len(whole), SIZE)}
    own = _hashes(data)
    return np.array([one in before for one in own], bool), before <= set(own)
