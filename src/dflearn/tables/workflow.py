"""From a program and tables to a trained model: what `dfl train` does, once, or in each fold of rolling origins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.data.split import Parts, parts_of, rolling_origins
from dflearn.errors import DataError, OptionError
from dflearn.evaluation import Evaluation, compare, evaluate
from dflearn.problems import Problem
from dflearn.program import Program
from dflearn.program.columns import places_of
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.task import DecisionTask, check_solves
from dflearn.tables.decisions import packed
from dflearn.tables.encoding import Encoding
from dflearn.tables.fine_tuning import Clock, Progress
from dflearn.tables.methods import check_choices, losses_for
from dflearn.tables.pipeline import Pipeline, Settings, Trained, forget
from dflearn.tables.regressor import DecisionFocusedRegressor
from dflearn.tables.result import AVERAGE, BASELINE, CHOSEN, RollingResult, TrainResult
from dflearn.tables.roles import AS_IS, Roles, order_in_time
from dflearn.tables.tables import Table, TableLike, Tables
from dflearn.training import History
from dflearn.training.arguments import as_device

LEAST_ROWS = 10  # below it, a test says nothing
MINUTES = 10.0  # for all decision-focused runs, which are counted in steps: a limit that few problems meet
JOINED = ("ids", "regrets", "optima", "squared_errors")  # of the evaluations of folds
HELD_OUT = 0.2  # share of the rows, those to test on apart, to choose by


def train(
    problem: Problem | Program | Solver,
    features: TableLike,
    costs: TableLike,
    instances: TableLike | None = None,
    *,
    losses: Sequence[str] | None = None,
    layer: str = "auto",
    positive: bool = False,
    epochs: int | None = None,
    lr: float | None = None,
    test: float = 0.25,
    ordered: bool | str = False,
    gap: int = 0,
    groups: str | Sequence[Any] | None = None,
    weights: str | Sequence[float] | np.ndarray | Table | None = None,
    seed: int = 0,
    id_column: str | None = None,
    offset: float = 0.0,
    minutes: float | None = MINUTES,
    steps: Mapping[str, int] | None = None,
    refit: bool = False,
    checkpoint: str | Path | None = None,
    keep_checkpoint: bool = False,
    solver: Solver | None = None,
    cache: str | Path | None = None,
    device: str | None = None,
    progress: bool = True,
) -> TrainResult:
    """Fit two-stage models, train decision-focused ones from them, keep the best, and test on rows set aside.

    The rows are cut into three parts: to train on, to choose by, and to test on. Two-stage models are least squares, ridge,
    boosting and a blend of the last two. Decision-focused ones, one for each loss, start at ridge and at the blend. The blend
    is kept unless one of these is better beyond chance on the validation rows (see `dflearn.tables.fine_tuning.choose`). Then every
    model is fitted again, with the same settings, to the rows to train on and to choose by. Each table is a DataFrame, a dict
    of columns, an array or a `Table`, with one row per instance.

    Args:
        problem: what is decided. Where its program has `cost_names`, columns of the costs are matched by name.
        features: any columns: numbers, categories, booleans, dates, with gaps. An `Encoding`, learned from the rows to train
            on, makes them numbers, which the models standardize.
        costs: the true costs y.
        instances: what else differs from row to row: columns named after constraints, or `lower:x`, `upper:x`, `d:x`:
            see `Program.instance`.
        losses: decision-focused models are trained with each: see `DecisionFocusedRegressor`. Default: "smoothed-spo+" and
            "sce"; where right-hand sides are predicted or something is decided once the truth is known, "task" and "quantile",
            which is no decision-focused model but two-stage at the quantiles that cost least.
        layer: as of `DecisionFocusedRegressor`.
        positive: whether costs are known to be positive: no others are predicted then.
        epochs: of a run; by default as many as make for 160 steps, fewer where the program is large, and at least 4.
        lr: how far a step moves forecasts, in units of their error; by default further from ridge than from the blend.
        test: the share of rows to test on.
        ordered: train on the first rows, choose by later ones, test on the last: in order of time. The name of a column, or
            `id_column`, sorts the rows by its times or numbers. `True`: the rows are in order as they stand, and an error says
            so where times in ids, index or columns are not; "as-is": the same unchecked.
        gap: how many rows are left out between the parts, in order of time.
        groups: a column of the features (which is none then), or a label for each row: rows of one label never lie in two
            parts. See `dflearn.data.parts_of`.
        weights: how much each row counts, in training and in all means: a column of the features (which is none then), one
            number for each row, or a `Table` of one column.
        seed: of the parts and of training.
        id_column: the column that names the rows, in every table; rows are then matched by it.
        offset: the constant of the objective, which `decide` adds to objectives.
        minutes: how long the decision-focused runs may take together; `record["steps"]` tells how many epochs each took. Their
            number is counted, so that this is a limit which only programs that take long to solve meet.
        steps: these numbers, to make the same model again, on any machine.
        refit: train the chosen model again on all rows, those to choose by and to test on included, with the chosen settings
            and number of steps; `result.model` is this one then, and no row is left to test it.
        checkpoint: a folder for what is done so far; a call that was interrupted goes on from there, and ends with the same
            model as if it had not been. What the call left there is removed at the end; what calls with other data or options
            left stays.
        keep_checkpoint: remove nothing at the end, as `train_rolling` needs it between its folds.
        solver: an exact solver of the program; default: the fastest that suits it.
        cache: a folder that remembers solves, as of `label`.
        device: where decision-focused models are trained, "cuda", say; see docs/how-to/gpu.md. The result lies on the CPU.
        progress: say on stderr how far it is.
    """
    begun = time.perf_counter()
    check_choices(losses or (), layer)
    if device is not None:
        as_device(device)
    task = DecisionTask.of(problem)
    program, solver = task.program, solver or task.solver
    if program is None:
        raise OptionError(f"train works on a program, and {task.solver!r} knows none: use DecisionFocusedRegressor")
    check_solves(solver, program)
    losses = losses_for(program, losses)
    given = {"features": features, "costs": costs, "instances": instances}
    tables, roles, remarks = _read(program, given, ordered, groups, weights, id_column)
    if positive:
        _check_positive(tables.costs)
    true = tables.costs
    assert true is not None
    if (rows := len(tables.features)) < LEAST_ROWS:
        raise DataError(
            f"{tables.features.path} has {rows} rows; to train, choose and test, {LEAST_ROWS} is the least, and some "
            "hundreds are better"
        )
    parts = parts_of(rows, test=test, choose=HELD_OUT, ordered=bool(ordered), gap=gap, groups=roles.groups, seed=seed)
    encoding = Encoding.of(roles.features, parts.train, roles.aside)
    places = {} if tables.instances is None else places_of(program, tables.instances.names, str(tables.instances.path))
    x, y = torch.tensor(encoding(tables.features)), torch.tensor(true.values)
    instance = tables.instance(program)
    best = solve_cached(solver, y, instance, cache=cache, progress=progress)
    best.check((Status.OPTIMAL,), name=tables.where, what="optimal decision with the true costs")
    counts = None if roles.weights is None else torch.tensor(roles.weights)
    data = DecisionDataset(x, y, best.decision, instance, weights=counts)
    settings = Settings(tuple(losses), layer, positive, epochs, lr, bool(ordered), gap, seed)
    clock, said = Clock(minutes, dict(steps or {})), Progress(progress)
    folder = None if checkpoint is None else Path(checkpoint)
    labels = None if roles.groups is None else np.asarray(roles.groups)
    pipeline = Pipeline(task, solver, data, parts, settings, clock, said, folder, cache, labels, device)
    choice = pipeline.run()

    models = {name: _regressor(problem, one, pipeline) for name, one in pipeline.finished.items()}
    known = data.subset(np.concatenate(parts[:2])).batch()
    average = np.average(known.require("costs").numpy(), axis=0, weights=known.weights)

    def judge(name: str, predict: Callable[[np.ndarray], np.ndarray], rows: np.ndarray) -> Evaluation:
        said.pass_by(f"deciding with {name}")
        part = data.subset(rows)
        return evaluate(predict(part.features.numpy()), program, part, solver, cache=cache, progress=False)

    first = judge(choice.baseline, pipeline.models[choice.baseline].predict, parts.choose)
    validation = {name: _judged_before(first, one, pipeline.held) for name, one in pipeline.models.items()}
    tested = {AVERAGE: judge(AVERAGE, lambda x: np.tile(average, (len(x), 1)), parts.test)}
    tested |= {name: judge(name, one.predict, parts.test) for name, one in models.items()}
    said.done()
    compared = choice.focused if choice.chosen == choice.baseline and choice.focused else choice.chosen
    difference = compare(tested[compared], tested[choice.baseline])
    names = {"baseline": choice.baseline, "chosen": choice.chosen, "compared": compared}
    record = {
        "features": list(encoding.inputs),
        "encoding": encoding.as_dict(),
        "run": pipeline.key,
        "trained_on": packed(data.subset(np.concatenate(parts[:2]))),
        "id": id_column,
        "instances": places,
        "offset": offset,
        **names,
        "options": {**asdict(settings), "losses": list(losses), "ordered": ordered, "test": test, "minutes": minutes},
        "steps": dict(clock.taken),
        "gain": choice.gain._asdict(),
        "runs": {name: [one.as_dict() for one in found.candidates] for name, found in pipeline.models.items()},
        "validation": {name: judged.as_dict() for name, judged in validation.items()},
        "test": {name: judged.as_dict() for name, judged in tested.items()},
        "difference": difference.as_dict(),
    }
    for name, regressor in models.items():
        regressor.record_ = record | {"chosen": name}
    final = None
    if refit:
        final = _regressor(problem, pipeline.refit(choice.chosen), pipeline)
        final.record_ = record | {"refit": len(data), "trained_on": packed(data)}
        said.done()
    if folder is not None and not keep_checkpoint:
        forget(folder, [pipeline.key], said)
    return TrainResult(
        models=models,
        **names,
        validation=validation,
        tested=tested,
        difference=difference,
        parts=parts,
        data=data,
        row_names=tuple(map(str, tables.features.ids or tables.features.places)),
        encoding=encoding,
        notes=remarks
        + encoding.notes
        + encoding.remarks(tables.features)
        + _notes_on_models(models, tested, data, parts),
        record=record,
        seconds=time.perf_counter() - begun,
        final=final,
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
        groups, weights, id_column, checkpoint, options: as of `train`.
    """
    program = DecisionTask.of(problem).program
    given = {"features": features, "costs": costs, "instances": instances}
    tables, roles, said = _read(program, given, ordered or True, groups, weights, id_column)
    results = []
    origins = rolling_origins(len(tables.features), folds, test=test, gap=options.get("gap", 0), groups=roles.groups)
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
    if checkpoint is not None:
        forget(Path(checkpoint), [one.record["run"] for one in results], Progress(options.get("progress", True)))
    names = {AVERAGE: lambda _: AVERAGE, BASELINE: lambda fold: fold.baseline, CHOSEN: lambda fold: fold.chosen}
    tested = {said: _together([fold.tested[name(fold)] for fold in results]) for said, name in names.items()}
    return RollingResult(results, tested, compare(tested[CHOSEN], tested[BASELINE]))


def _together(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the rows of several."""
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in JOINED}
    if parts[0].weights is not None:
        joined["weights"] = np.concatenate([part.weights for part in parts])
    return replace(parts[0], **joined, decisions=None, pessimistic_regrets=None, floor_regrets=None)


# -- steps ---------------------------------------------------------------------------------------------------------


def _read(
    program: Program | None,
    given: dict[str, Any],
    ordered: bool | str,
    groups: Any,
    weights: Any,
    id_column: str | None,
) -> tuple[Tables, Roles, list[str]]:
    """The tables with their rows in order, what was set aside from the features, and remarks about the order."""
    wanted = {"costs": None if program is None else program.cost_names}
    tables = Tables.of(given, id_column, wanted, "the program")
    roles = Roles.of(tables.features, groups, weights)
    order, remarks = order_in_time(tables.features, ordered, id_column, tables.costs)
    return (tables, roles, remarks) if order is None else (tables.take(order), roles.take(order), remarks)


def _regressor(problem: Problem | Program | Solver, one: Trained, pipeline: Pipeline) -> DecisionFocusedRegressor:
    """The model as an estimator: it predicts, decides and saves itself."""
    settings = pipeline.settings
    options: dict[str, Any] = {"layer": settings.layer, "positive": settings.positive, "random_state": settings.seed}
    regressor = DecisionFocusedRegressor(problem, loss=one.loss, start=one.start, standardize=True, **options)
    history = History([candidate.as_dict() for candidate in one.candidates], None, "epochs")
    return regressor.adopt(one.module, pipeline.train, pipeline.scale, history)


def _judged_before(like: Evaluation, one: Trained, held: DecisionDataset) -> Evaluation:
    """How a model did on the validation rows, where it was judged while it was trained, as the evaluation of another."""
    errors = (torch.tensor(one.predict(held.features.numpy())) - held.batch().require("costs")).square().mean(-1)
    regrets = one.regrets
    if held.weights is not None:
        weigh = (held.weights / held.weights.mean()).numpy()
        regrets = np.divide(regrets, weigh, out=np.zeros_like(regrets), where=weigh > 0)
    return replace(like, regrets=regrets, squared_errors=errors.numpy(), decisions=None, floor_regrets=None)


def _check_positive(costs: Table | None) -> None:
    assert costs is not None
    negative = np.argwhere(costs.values < 0)
    if len(negative):
        row, column = negative[0]
        raise DataError(
            f"{costs.where(row)}, column {costs.names[column]!r} holds {costs.values[row, column]:g}, and positive=True "
            "says that no cost is negative: leave it out"
        )


def _notes_on_models(
    models: Mapping[str, DecisionFocusedRegressor],
    tested: Mapping[str, Evaluation],
    data: DecisionDataset,
    parts: Parts,
) -> list[str]:
    notes = []
    zero = int(tested[AVERAGE].zero_optima.sum())
    if zero:
        notes.append(
            f"{zero} of the {len(parts.test)} test rows have an optimum of zero: the mean of regret / optimum leaves them out"
        )
    below = [name for name, model in models.items() if model.predict(data.features.numpy()).min() < 0]
    if below and data.batch().require("costs").min() > 0:
        notes.append(f"all costs are positive, and predictions of {', '.join(below)} are not: see positive=True")
    return notes
