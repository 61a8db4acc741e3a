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
from dflearn.errors import DataError
from dflearn.evaluation import regrets_of
from dflearn.program import Program
from dflearn.solvers.base import Solution, Solver, Status
from dflearn.solvers.task import check_solves
from dflearn.tables.encoding import Encoding
from dflearn.tables.regressor import DecisionFocusedRegressor
from dflearn.tables.tables import TableLike, Tables, has_columns, write_table


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions for the rows of a table.

    Attributes:
        columns: one row per instance: its id where it has one, the status, the objective with the predicted costs, a
            column per variable; with true costs also the objective and the regret that the decision turned out to have.
            `pandas.DataFrame(decisions.columns)` is a frame.
        solution: the solver's answer.
        optima: with true costs, the objective of the best decision in hindsight, its constant left out, `(rows,)`.
        notes: what is unusual in the features: cells that were filled, unknown, or far outside what was seen in training.
        offset: the constant of the objective, which the objectives in `columns` include.
    """

    columns: dict[str, list[Any]]
    solution: Solution
    optima: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    offset: float = 0.0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .csv or .parquet file."""
        write_table(path, self.columns)

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {name.lower()}" for name, number in self.solution.counts().items())
        said = f"{len(self.solution.status)} decisions, {counts}"
        if self.optima is not None:
            regret = np.array(self.columns["regret"])
            share = np.nansum(regret) / np.nansum(np.abs(self.optima))
            said += f"\nmean regret {np.nanmean(regret):.4g}, total regret / total optimum {share:.2%}"
            said += f" (the optimum without the constant {self.offset:.4g} of the objective)" if self.offset else ""
        return said + "".join(f"\nnote: {note}" for note in self.notes)


def decide(
    model: DecisionFocusedRegressor | str | os.PathLike[str],
    features: TableLike,
    costs: TableLike | None = None,
    instances: TableLike | None = None,
    *,
    id_column: str | None = None,
    partial: bool = False,
    solver: Solver | None = None,
) -> Decisions:
    """Decide for new rows of features, with a model that `train` made.

    Args:
        model: the `model` of what `train` gives, or the file that it was saved to.
        features, instances: columns by the names that they had in training, or one row as a dict of single values; an array has
            them in that order; the path of a .csv or .parquet file.
        costs: the true costs, where they are known by now, to tell the regret.
        id_column: the column that names the rows, by default that of training if a table has it.
        partial: let rows without a decision be, with NaN, instead of an error that names the first.
        solver: an exact solver of the same program to take in place of the model's: one that is spread over several workers, say.
    """
    regressor = _trained(model, "the model") if isinstance(model, DecisionFocusedRegressor) else load(model)
    program, record = named_program(regressor), regressor.record_
    tables = _tables_for(regressor, features, costs, instances, id_column)
    encoding = encoding_of(regressor)
    solver = regressor.solver_ if solver is None else solver
    check_solves(solver, program)
    instance = tables.instance(program)
    accept = tuple(Status) if partial else (Status.OPTIMAL,)
    solution = solver.solve(torch.tensor(regressor.predict(encoding(tables.features))), instance)
    solution.check(accept, name=tables.where, what="decision with the predicted costs")

    def in_own_sense(objective: torch.Tensor) -> np.ndarray:
        """As the program's file states it: its own sense, its constant included."""
        return (-1 if program.sense == "maximize" else 1) * objective.numpy() + record["offset"] + 0.0

    columns: dict[str, Any] = {}
    if tables.features.ids is not None:
        columns[id_column or record["id"]] = tables.features.ids
    columns["status"] = [Status(code).name.lower() for code in solution.status.tolist()]
    columns["predicted_objective"] = in_own_sense(solution.objective)
    optima = None
    if tables.costs is not None:
        y = torch.tensor(tables.costs.values)
        best = solver.solve(y, instance).check(accept, name=tables.where, what="optimal decision with the true costs")
        regret, optimum = regrets_of(solver, y, solution.decision, best.decision, instance)
        columns["true_objective"] = in_own_sense(optimum + regret)
        columns["regret"], optima = regret.numpy(), optimum.numpy()
    taken = {*columns}
    names = program.variable_names or tuple(f"w[{k}]" for k in range(program.n))
    for name, values, whole in zip(names, solution.decision.numpy().T, program.integer, strict=True):
        decided = np.rint(values).astype(np.int64) if whole and np.isfinite(values).all() else values + 0.0
        columns[f"{name} (variable)" if name in taken else name] = decided
    plain = {name: cells.tolist() if isinstance(cells, np.ndarray) else list(cells) for name, cells in columns.items()}
    return Decisions(plain, solution, optima, tuple(encoding.remarks(tables.features)), record["offset"])


def load(path: str | os.PathLike[str], *, trust: bool = False) -> DecisionFocusedRegressor:
    """A model that `train` made, from its file. trust: as of `DecisionFocusedRegressor.load`."""
    return _trained(DecisionFocusedRegressor.load(path, trust=trust), str(path))


def _trained(regressor: DecisionFocusedRegressor, called: str) -> DecisionFocusedRegressor:
    """The model; an error where its record does not tell what `decide` needs."""
    if "features" not in vars(regressor).get("record_", {}):
        raise DataError(
            f"{called} was not made by dfl train, so nothing tells the names of its features: use it in Python"
        )
    return regressor


def dataset_for(
    regressor: DecisionFocusedRegressor, features: TableLike, costs: TableLike, instances: TableLike | None = None
) -> DecisionDataset:
    """The data that these tables hold for a model that `load` gave, without decisions."""
    tables = _tables_for(regressor, features, costs, instances, None)
    assert tables.costs is not None
    x, y = torch.tensor(encoding_of(regressor)(tables.features)), torch.tensor(tables.costs.values)
    return DecisionDataset(x, y, instance=tables.instance(named_program(regressor)))


def encoding_of(regressor: DecisionFocusedRegressor) -> Encoding:
    """How a model that `train` made reads its features."""
    return Encoding.from_dict(regressor.record_["encoding"])


def named_program(regressor: DecisionFocusedRegressor) -> Program:
    """The program of a model that `train` made."""
    program = regressor.solver_.program
    assert program is not None
    return program


def _tables_for(
    regressor: DecisionFocusedRegressor,
    features: TableLike,
    costs: TableLike | None,
    instances: TableLike | None,
    id_column: str | None,
) -> Tables:
    """The tables with their columns in the order of training; an error where they do not suit the model."""
    record = regressor.record_
    if record["instances"] and instances is None:
        names = ", ".join(record["instances"])
        raise DataError(f"the model was trained with instances (columns {names}): add such a table")
    if not record["instances"] and instances is not None:
        raise DataError("the model was trained without instances: leave it out, or train with it")
    wanted = {
        "features": encoding_of(regressor).inputs,
        "costs": named_program(regressor).cost_names,
        "instances": list(record["instances"]),
    }
    given = {"features": features, "costs": costs, "instances": instances}
    named = [record["id"] in map(str, table.keys()) for table in given.values() if has_columns(table)]
    if not named or any(named):
        id_column = id_column or record["id"]
    return Tables.of(given, id_column, wanted, "the {} in training")


# -- which rows a model was trained on ---------------------------------------------------------------------------------


SIZE = 8  # bytes of a hash
DIGITS = 6  # of features, whose sines may differ in their last bits between machines


def _hashes(data: DecisionDataset) -> list[bytes]:
    """A hash of the features and costs of each row."""
    x, y = data.features.double().flatten(1).numpy(), data.batch().require("costs").double().numpy()
    rows = np.ascontiguousarray(np.column_stack([x.round(DIGITS), y]) + 0.0)  # no −0
    return [blake2b(row.tobytes(), digest_size=SIZE).digest() for row in rows]


def packed(data: DecisionDataset) -> str:
    """The hashes of all rows, in one text, which a model's file keeps, so that later tables tell seen rows from others."""
    return b64encode(b"".join(sorted(_hashes(data)))).decode()


def seen(data: DecisionDataset, known: str) -> tuple[np.ndarray, bool]:
    """Which rows are among those that `packed` was given, bool `(rows,)`, and whether all of those are here."""
    whole = b64decode(known)
    before = {whole[at : at + SIZE] for at in range(0, len(whole), SIZE)}
    own = _hashes(data)
    return np.array([one in before for one in own], bool), before <= set(own)
