"""Rolling origins: `train` again and again as time goes on, each time tested on the rows that come next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from dflearn.data.split import rolling_origins
from dflearn.evaluation import Comparison, Evaluation, compare
from dflearn.problems import Problem
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.task import DecisionTask
from dflearn.tables.fine_tuning import Progress
from dflearn.tables.pipeline import forget
from dflearn.tables.regressor import DecisionFocusedRegressor
from dflearn.tables.result import AVERAGE, TrainResult
from dflearn.tables.roles import AS_IS, Roles, order_in_time
from dflearn.tables.tables import Table, TableLike, Tables
from dflearn.tables.workflow import left_in, train

BASELINE, CHOSEN = "the baseline", "the kept model"


@dataclass(frozen=True, eq=False)
class RollingResult:
    """What `train_rolling` found. Printed, it is a line for each fold, one for all together, and a verdict.

    Attributes:
        folds: what `train` found in each fold, in order of time.
        tested: "average costs", "the baseline" and "the kept model", those of each fold, on the rows of all folds together.
        difference: the kept model − the baseline on these rows.
    """

    folds: list[TrainResult]
    tested: dict[str, Evaluation]
    difference: Comparison

    @property
    def last(self) -> TrainResult:
        """The fold that was trained on the most rows, and the latest."""
        return self.folds[-1]

    @property
    def model(self) -> DecisionFocusedRegressor:
        """The kept model of the last fold."""
        return self.last.model

    @property
    def notes(self) -> list[str]:
        """Those of all folds, each once."""
        return list(dict.fromkeys(note for fold in self.folds for note in fold.notes))

    def save(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        """Write the model of the last fold, as `TrainResult.save` does."""
        self.last.save(path, options)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: the mean regrets of each fold, and of all together."""
        rows = [
            [
                f"{fold.row_names[fold.parts.test[0]]} … {fold.row_names[fold.parts.test[-1]]}",
                f"{len(fold.parts.train) + len(fold.parts.choose)}",
                fold.baseline,
                fold.chosen,
                *(f"{fold.tested[name].absolute_regret:.4g}" for name in (AVERAGE, fold.baseline, fold.chosen)),
            ]
            for fold in self.folds
        ]
        rows.append(["together", "", "", "", *(f"{judged.absolute_regret:.4g}" for judged in self.tested.values())])
        return ["rows tested", "trained on", "baseline", "kept", AVERAGE, BASELINE, CHOSEN], rows

    @property
    def verdict(self) -> str:
        """The kept models − the baselines on the rows of all folds, and whether that is beyond chance."""
        value, low, high = self.difference.absolute_regret
        told = f"{value:+.4g} [{low:+.4g}, {high:+.4g}], {self.difference.confidence:.0%} interval"
        if not self.difference.wins and not self.difference.losses:
            said = "The kept models decide as the baselines do."
        elif low <= 0 <= high or not np.isfinite(low):
            said = "The difference may be chance: its interval holds zero."
        else:
            said = f"The kept models have {'less' if value < 0 else 'more'} regret than the baselines, beyond chance."
        return f"{CHOSEN} − {BASELINE}: {told}. {said}"

    def __str__(self) -> str:
        header, rows = self.table()
        return (
            f"{len(self.folds)} folds in order of time, each trained on the rows before those that it tests; mean regret\n\n"
            + tabulate(rows, header, disable_numparse=True, colalign=["left", "right", "left", "left", *["right"] * 3])
            + f"\n\n{self.verdict}"
            + "".join(f"\nnote: {note}" for note in self.notes)
        )


def train_rolling(
    problem: Problem | Program | Solver,
    features: TableLike,
    costs: TableLike,
    instances: TableLike | None = None,
    *,
    folds: int,
    test: float = 0.5,
    ordered: bool | str = True,
    gap: int = 0,
    groups: str | Sequence[Any] | None = None,
    weights: str | Sequence[float] | np.ndarray | Table | None = None,
    id_column: str | None = None,
    checkpoint: str | Path | None = None,
    minutes: float | None = None,
    **options: Any,
) -> RollingResult:
    """`train` in each fold of `rolling_origins`; a fold knows nothing of rows after those that it is tested on.

    Args:
        folds: how many.
        test: the share of rows, the last ones, that all folds test on together.
        minutes: as of `train`, of all folds together.
        ordered: as of `train`, but never `False`.
        gap, groups, weights, id_column, checkpoint, options: as of `train`.
    """
    program = DecisionTask.of(problem).program
    wanted = {"costs": None if program is None else program.cost_names}
    tables = Tables.of({"features": features, "costs": costs, "instances": instances}, id_column, wanted, "the program")
    roles = Roles.of(tables.features, groups, weights)
    order, said = order_in_time(tables.features, ordered or True, id_column, tables.costs)
    if order is not None:
        tables, roles = tables.take(order), roles.take(order)
    results = []
    origins = rolling_origins(len(tables.features), folds, test=test, gap=gap, groups=roles.groups)
    for parts in origins:
        known = np.arange(parts.test[-1] + 1)
        some = tables.take(known)
        results.append(
            train(
                problem,
                roles.features.take(known),
                some.costs,  # type: ignore[arg-type]  # there are costs
                some.instances,
                test=len(parts.test),
                ordered=AS_IS,
                gap=gap,
                groups=None if roles.groups is None else roles.groups[: len(known)],
                weights=None if roles.weights is None else roles.weights[: len(known)],
                id_column=id_column,
                checkpoint=checkpoint,
                keep_checkpoint=True,
                minutes=None if minutes is None else minutes / folds,
                **options,
            )
        )
    results[0].notes[:0] = said
    if checkpoint is not None and forget(Path(checkpoint), [one.record["run"] for one in results]):
        Progress(bool(options.get("progress", True))).tell(left_in(Path(checkpoint)))
    names = {AVERAGE: lambda _: AVERAGE, BASELINE: lambda fold: fold.baseline, CHOSEN: lambda fold: fold.chosen}
    tested = {said: _together([fold.tested[name(fold)] for fold in results]) for said, name in names.items()}
    return RollingResult(results, tested, compare(tested[CHOSEN], tested[BASELINE]))


def _together(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the rows of several."""
    weights = [part.weights for part in parts if part.weights is not None]
    return replace(
        parts[0],
        ids=np.concatenate([part.ids for part in parts]),
        regrets=np.concatenate([part.regrets for part in parts]),
        optima=np.concatenate([part.optima for part in parts]),
        squared_errors=np.concatenate([part.squared_errors for part in parts]),
        weights=np.concatenate(weights) if weights else None,
        decisions=None,
        pessimistic_regrets=None,
        floor_regrets=None,
    )
