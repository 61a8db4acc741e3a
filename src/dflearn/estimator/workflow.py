"""From a program and tables to a trained model: what `dfl train` does.

In Python:

    result = dflearn.train(program, features, costs)      # split, label, train several, choose, compare
    print(result)
    result.save("model.dfl")
    dflearn.decide("model.dfl", new_features).columns
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.data.split import Parts, split_rows
from dflearn.data.tables import Table, TableLike, Tables
from dflearn.errors import DataError, OptionError
from dflearn.estimator.offered import check_choices
from dflearn.estimator.regressor import DecisionFocusedRegressor
from dflearn.evaluation import Comparison, Evaluation, compare, evaluate
from dflearn.problems import Problem
from dflearn.program import Program
from dflearn.program.names import places_of
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.task import DecisionTask

LEAST_ROWS = 10  # below it, a test says nothing
EPOCHS, STEPS = 100, 1000  # of training, at least
BATCH, HELD_OUT = 32, 0.2  # rows in a step; share of the rows, those to test on apart, to choose by
AVERAGE, TWO_STAGE = "average costs", "two-stage"  # the other models are called by their losses
WORDS = {
    "mean_of_ratios": ("mean of regret / optimum", ".2%"),
    "ratio_of_sums": ("total regret / total optimum", ".2%"),
    "published_style": ("as in published tables, by 32 rows", ".2%"),
    "absolute_regret": ("mean regret", ".4g"),
    "exact_share": ("decisions without regret", ".1%"),
    "mse": ("mean squared error of costs", ".4g"),
}


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The models that `train` made, and how they did. Printed, it is the table that compares them.

    Attributes:
        models: the trained models: "two-stage", then one for each loss, by its name.
        chosen: the model with the least mean regret on the rows to choose by; `save` keeps it.
        compared: the loss whose model is compared with two-stage: the best of them on the rows to choose by.
        validation: how each model did on the rows to choose by.
        tested: how each did on the rows to test on, after "average costs", which ignores the features.
        difference: `compared` − two-stage on the rows to test on, row by row.
        rows: how many rows there were to train on, to choose by, and to test on.
        notes: what else is worth knowing about the data and the models.
        data: all rows, with their optimal decisions.
        parts: which of them were trained on, chosen by and tested on.
        row_names: what each row is called: its id, or its place in the table.
        baseline: the two-stage model that the others are compared with.
    """

    models: dict[str, DecisionFocusedRegressor]
    chosen: str
    compared: str
    validation: dict[str, Evaluation]
    tested: dict[str, Evaluation]
    difference: Comparison
    rows: tuple[int, int, int]
    notes: list[str]
    data: DecisionDataset
    parts: Parts
    row_names: tuple[str, ...]
    baseline: str = TWO_STAGE

    @property
    def model(self) -> DecisionFocusedRegressor:
        """The chosen model."""
        return self.models[self.chosen]

    def save(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        """Write the chosen model to one file, which `decide` reads; `options` are kept in its record."""
        self.model.save(path, self.model.record_ | ({} if options is None else {"options": dict(options)}))

    def __str__(self) -> str:
        """How the models did on the rows to test on, what the comparison says and how surely, and the notes."""
        trained_on, chosen_by, tested_on = self.rows
        rows = []
        for metric, (words, form) in WORDS.items():
            cells = [_cell(judged.metrics[metric].value, form) for judged in self.tested.values()]
            between = vars(self.difference).get(metric)
            if between is not None:
                cells.append("{} [{}, {}]".format(*(_cell(number, f"+{form}") for number in between)))
            rows.append([words, *cells])
        last = f"{self.compared} − {TWO_STAGE} [{self.difference.confidence:.0%} interval]"
        header = ["on the test rows", *self.tested, last]
        value, low, high = self.difference.absolute_regret
        if low <= 0 <= high:
            verdict = "The difference may be chance: its interval holds zero. More rows would tell."
        else:
            verdict = f"Decision-focused training {'lowers' if value < 0 else 'raises'} the regret, beyond chance."
        return (
            f"{sum(self.rows)} rows: {trained_on} to train on, {chosen_by} to choose by, {tested_on} to test on\n\n"
            + tabulate(rows, header, colalign=["left", *["right"] * (len(header) - 1)], disable_numparse=True)
            + f"\n\n{self.compared} against {TWO_STAGE}: less regret on {self.difference.wins} rows, the same on "
            f"{self.difference.ties}, more on {self.difference.losses}.\n{verdict}"
            + "".join(f"\nnote: {note}" for note in self.notes)
        )


def train(
    problem: Problem | Program | Solver,
    features: TableLike,
    costs: TableLike,
    instances: TableLike | None = None,
    *,
    losses: Sequence[str] = ("spo+", "sce"),
    layer: str = "auto",
    model: str = "linear",
    positive: bool = False,
    epochs: int | None = None,
    lr: float = 0.02,
    test: float = 0.25,
    ordered: bool = False,
    seed: int = 0,
    id_column: str | None = None,
    offset: float = 0.0,
    solver: Solver | None = None,
    cache: str | Path | None = None,
    progress: bool = True,
) -> TrainResult:
    """Train a model for least squares and one with each loss, choose the best, and compare them on rows set aside.

    The rows are cut into three parts: to train on, to choose by (the epoch, the model to keep, the loss to compare), and
    to test on. Each table is a DataFrame, a dict of columns, an array or a `Table`, with one row per instance.

    Args:
        problem: what is decided. Where its program has `cost_names`, columns of the costs are matched by name.
        features: any columns of numbers; the models standardize them.
        costs: the true costs y.
        instances: what else differs from row to row: columns named after constraints, or `lower:x`, `upper:x`, `d:x`:
            see `Program.instance`.
        losses: one model is trained with each: see `DecisionFocusedRegressor`.
        layer, model, lr: as of `DecisionFocusedRegressor`.
        positive: whether costs are known to be positive: no others are predicted then.
        epochs: by default 100, or more where few rows make for less than 1000 steps.
        test: the share of rows to test on.
        ordered: test on the last rows, for rows in order of time, instead of random ones.
        seed: of the parts and of training.
        id_column: the column that names the rows, in every table; rows are then matched by it.
        offset: the constant of the objective, which `decide` adds to objectives.
        solver: an exact solver of the program; default: the fastest that suits it.
        cache: a folder that remembers solves, as of `label`.
    """
    check_choices(losses, layer)
    task = DecisionTask.of(problem)
    program, solver = task.program, solver or task.solver
    if program is None:
        raise OptionError(f"train works on a program, and {task.solver!r} knows none: use DecisionFocusedRegressor")
    given = {"features": features, "costs": costs, "instances": instances}
    tables = Tables.of(given, id_column, {"costs": program.cost_names}, "the program")
    assert tables.costs is not None
    if positive:
        _check_positive(tables.costs)
    rest_rows, test_rows = _parts(tables.features, test, ordered, seed)
    places = {} if tables.instances is None else places_of(program, tables.instances.names, str(tables.instances.path))
    data = _labelled(program, tables, solver, cache, progress)
    rest, tested_on = data.subset(rest_rows), data.subset(test_rows)

    models = {}
    for name, loss in {TWO_STAGE: "mse", **{loss: loss for loss in losses}}.items():
        regressor = DecisionFocusedRegressor(
            problem,
            loss=loss,
            layer=layer,
            model=model,
            standardize=True,
            positive=positive,
            epochs=epochs or max(EPOCHS, math.ceil(STEPS * BATCH / ((1 - HELD_OUT) * len(rest)))),
            batch_size=BATCH,
            validation_fraction=HELD_OUT,
            lr=lr,
            early_stopping=None,
            random_state=seed,
        )
        with _working(f"training the {name} model", progress):
            X, y, decisions = (part.numpy() for part in (rest.features, rest.costs, rest.decisions) if part is not None)
            models[name] = regressor.fit(X, y, decisions=decisions, instance=rest.instance)
    chosen_by = rest.subset(models[TWO_STAGE].held_out_)
    average = rest.batch().require("costs").mean(0).numpy()

    def judge(predict: Callable[[np.ndarray], np.ndarray], part: DecisionDataset) -> Evaluation:
        return evaluate(predict(part.features.numpy()), program, part, solver, cache=cache, progress=False)

    with _working("deciding with each model", progress):
        validation = {name: judge(one.predict, chosen_by) for name, one in models.items()}
        tested = {AVERAGE: judge(lambda x: np.tile(average, (len(x), 1)), tested_on)}
        tested |= {name: judge(one.predict, tested_on) for name, one in models.items()}
    regrets = {name: judged.absolute_regret for name, judged in validation.items()}
    chosen = min(regrets, key=regrets.__getitem__)  # the first of equals, so two-stage where nothing is better
    compared = min(losses, key=regrets.__getitem__)
    difference = compare(tested[compared], tested[TWO_STAGE])
    options = {"losses": list(losses), "layer": layer, "model": model, "positive": positive, "epochs": epochs, "lr": lr}
    record = {
        "features": list(tables.features.names),
        "id": id_column,
        "instances": places,
        "offset": offset,
        "chosen": chosen,
        "compared": compared,
        "options": {**options, "test": test, "ordered": ordered, "seed": seed},
        "validation": {name: judged.as_dict() for name, judged in validation.items()},
        "test": {name: judged.as_dict() for name, judged in tested.items()},
        "difference": difference.as_dict(),
    }
    for name, regressor in models.items():
        regressor.record_ = record | {"chosen": name}
    held_out = models[TWO_STAGE].held_out_
    parts = Parts(np.delete(rest_rows.numpy(), held_out), rest_rows.numpy()[held_out], test_rows.numpy())
    rows = (len(parts.train), len(parts.choose), len(parts.test))
    notes = [*_notes_on_features(tables.features), *_notes_on_models(models, tested, rest, chosen_by)]
    called = tables.features.ids or tables.features.places
    return TrainResult(models, chosen, compared, validation, tested, difference, rows, notes, data, parts, called)


# -- steps ---------------------------------------------------------------------------------------------------------


def _check_positive(costs: Table) -> None:
    negative = np.argwhere(costs.values < 0)
    if len(negative):
        row, column = negative[0]
        raise DataError(
            f"{costs.where(row)}, column {costs.names[column]!r} holds {costs.values[row, column]:g}, and positive=True "
            "says that no cost is negative: leave it out"
        )


def _parts(features: Table, test: float, ordered: bool, seed: int) -> tuple[Tensor, Tensor]:
    """The rows to train on and choose by, and those to test on."""
    rows = len(features)
    if rows < LEAST_ROWS:
        raise DataError(
            f"{features.path} has {rows} rows; to train, choose and test, {LEAST_ROWS} is the least, and some hundreds "
            "are better"
        )
    count = round(test * rows)
    if not 2 <= count <= rows // 2:
        raise OptionError(f"test={test} of {rows} rows is {count}: at least 2, and at most half of them, can test")
    rest, last = split_rows(rows, {"train": rows - count}, None if ordered else seed)
    return rest, last


def _labelled(
    program: Program, tables: Tables, solver: Solver, cache: str | Path | None, progress: bool
) -> DecisionDataset:
    """The instances with their optimal decisions."""
    assert tables.costs is not None
    instance = tables.instance(program)
    costs = torch.tensor(tables.costs.values)
    solution = solve_cached(solver, costs, instance, cache=cache, progress=progress)
    solution.check((Status.OPTIMAL,), name=tables.where, what="optimal decision with the true costs")
    return DecisionDataset(torch.tensor(tables.features.values), costs, solution.decision, instance)


def _notes_on_features(table: Table) -> list[str]:
    constant = [name for name, column in zip(table.names, table.values.T, strict=True) if (column == column[0]).all()]
    return [f"the feature {name!r} has the same value in all rows, so it tells nothing" for name in constant]


def _notes_on_models(
    models: Mapping[str, DecisionFocusedRegressor],
    tested: Mapping[str, Evaluation],
    rest: DecisionDataset,
    chosen_by: DecisionDataset,
) -> list[str]:
    notes = []
    if tested[AVERAGE].absolute_regret <= min(tested[name].absolute_regret for name in models):
        notes.append("none beats average costs: the features tell too little, or are too many for so few rows")
    below = [name for name, model in models.items() if model.predict(chosen_by.features.numpy()).min() < 0]
    if below and rest.batch().require("costs").min() > 0:
        notes.append(f"all costs are positive, and predictions of {', '.join(below)} are not: see positive=True")
    return notes


def _cell(number: float, form: str) -> str:
    return format(number, form) if np.isfinite(number) else "unknown"


def _working(what: str, progress: bool) -> Any:
    """While it lasts, a line on stderr, where that is a terminal."""
    from tqdm import tqdm

    return tqdm(desc=what, bar_format="{desc} …", leave=False, disable=None if progress else True)
