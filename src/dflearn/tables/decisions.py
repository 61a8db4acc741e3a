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
from dflearn.program import Instance, Program
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

    def as_dict(self) -> dict[str, Any]:
        """How many decisions there are of each status, and, with true costs, what they turned out to be worth."""
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
    given = {"features": features, "costs": costs, "instances": instances}
    tables, instance, encoding, program = _read(regressor, given, id_column)
    record = regressor.record_
    solver = regressor.solver_ if solver is None else solver
    check_solves(solver, program)
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
    tables, instance, encoding, _ = _read(
        regressor, {"features": features, "costs": costs, "instances": instances}, None
    )
    assert tables.costs is not None
    return DecisionDataset(
        torch.tensor(encoding(tables.features)), torch.tensor(tables.costs.values), instance=instance
    )


def _read(
    regressor: DecisionFocusedRegressor, given: dict[str, TableLike | None], id_column: str | None
) -> tuple[Tables, Instance | None, Encoding, Program]:
    """The tables with their columns in the order of training, their instances, and the model's encoding and program; an error
    where the tables do not suit the model."""
    record, encoding, program = regressor.record_, regressor.encoding, regressor.solver_.program
    assert encoding is not None
    assert program is not None
    if record["instances"] and given["instances"] is None:
        names = ", ".join(record["instances"])
        raise DataError(f"the model was trained with instances (columns {names}): add such a table")
    if not record["instances"] and given["instances"] is not None:
        raise DataError("the model was trained without instances: leave it out, or train with it")
    wanted = {"features": encoding.inputs, "costs": program.cost_names, "instances": list(record["instances"])}
    named = [record["id"] in map(str, table.keys()) for table in given.values() if has_columns(table)]
    if not named or any(named):
        id_column = id_column or record["id"]
    tables = Tables.of(given, id_column, wanted, "the {} in training")
    return tables, tables.instance(program), encoding, program


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
