"""From a program and tables to a trained model: what `dfl train` does, once, or in each fold of rolling origins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import solve_cached
from dflearn.data.split import Parts, parts_of, rolling_origins
from dflearn.errors import DataError, OptionError
from dflearn.evaluation import Evaluation, compare, evaluate
from dflearn.problems import Problem
from dflearn.program import Instance, Program
from dflearn.program.columns import places_of
from dflearn.solvers.base import Solution, Solver, Status
from dflearn.solvers.task import DecisionTask, check_solves
from dflearn.solvers.wrappers import Wrapper
from dflearn.tables.candidates import QUANTILE, STACK, TREES, Candidates, judged_often
from dflearn.tables.choice import Choice, best_ordinary, choose, drifting
from dflearn.tables.columns import Encoding
from dflearn.tables.cross_fitting import Candidate, CrossFit, Progress, Settings, forget
from dflearn.tables.decisions import packed, with_forecast
from dflearn.tables.forecasters import Combination, forecasters_of
from dflearn.tables.methods import check_choices, losses_for
from dflearn.tables.regressor import DecisionFocusedRegressor
from dflearn.tables.result import AVERAGE, BASELINE, CHOSEN, YOURS, RollingResult, TrainResult, together
from dflearn.tables.roles import AS_IS, Roles, order_in_time
from dflearn.tables.tables import Table, TableLike, Tables
from dflearn.training import History
from dflearn.training.step import as_device

LEAST_ROWS = 10  # below it, a test says nothing
SOLVES = 8000  # exact ones, to choose by
LARGE = 400  # variables and rows of an integer program beyond which there are fewer
MINUTES = 10.0  # for all decision-focused runs, which are counted in steps: a limit that few problems meet
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
    solves: int | None = None,
    forecasters: Sequence[Any] | None = None,
    forecast: TableLike | None = None,
    refit: bool = False,
    checkpoint: str | Path | None = None,
    keep_checkpoint: bool = False,
    solver: Solver | None = None,
    accept: Sequence[Status] = (Status.OPTIMAL,),
    cache: str | Path | None = None,
    device: str | None = None,
    progress: bool = True,
) -> TrainResult:
    """Forecast the costs in several ways, learn from the decisions, keep what decides best, and test on rows set aside.

    All choices are made on forecasts of rows left out: in order of time, four windows, each forecast from the rows before it. Ordinary
    candidates are `forecasters` and blends of them; the best of them is the baseline. Decision-focused candidates are a stack of
    these forecasts, a linear model for each loss, and boosting on the gradient of the loss. The baseline is kept unless one of
    these is better beyond chance (see `dflearn.tables.choice.choose`). Then all are fitted to all rows but the test rows. Each
    table is a DataFrame, a dict of columns, an array or a `Table`, with one row per instance.

    Args:
        problem: what is decided. If its program has `cost_names`, columns of the costs are matched by name.
        features: any columns: numbers, categories, booleans, dates, with gaps. An `Encoding`, learned from the training rows, makes
            them numbers, which the models standardize.
        costs: the true costs y.
        instances: what else differs from row to row: columns named after constraints, or `lower:x`, `upper:x`, `d:x`:
            see `Program.instance`.
        losses: of the linear models: see `DecisionFocusedRegressor`. Default: "smoothed-spo+" and "sce"; where right-hand sides are
            predicted or there is recourse, "task" and "quantile" (forecasts of the level that costs least, and several scenarios).
        layer: as of `DecisionFocusedRegressor`.
        positive: whether costs are known to be positive: no others are predicted then.
        epochs: of a linear model; default: 160 steps, fewer if the program is large, and at least 4 epochs.
        lr: how far a step moves its forecasts, in units of their error.
        test: the share of the test rows.
        ordered: the rows are in order of time: the first train, the last test. The name of a column sorts them by its times or numbers.
            `True`: they are in order as they stand, and times in ids, index or columns that are not are an error; "as-is": unchecked.
        gap: the number of rows left out between the parts, in order of time.
        groups: a column of the features (then not used as one), or a label for each row: rows of one label never lie in two
            parts. See `dflearn.data.parts_of`.
        weights: the weight of each row, in training and in all means: a column of the features (then not used as one), one
            number for each row, or a `Table` of one column.
        seed: of the parts and of training.
        id_column: the column that names the rows, in every table; rows are then matched by it.
        offset: the constant of the objective, which `decide` adds to objectives.
        minutes: of processor time, after which no other decision-focused candidate is begun; a note says which were left out.
        solves: about how many exact solves the choice may take; if that binds, fewer rows are left out for it, and a note says so.
            By default 8,000, fewer if a program with integers is large; its relaxation compares variants of one model.
        forecasters: of the costs: "ridge", "huber", "boosting" (the default), any estimator or pipeline of scikit-learn's
            kind, or pairs (name, estimator). A file keeps an estimator by skops.
        forecast: your present forecast of the costs, a column for each cost; it is a candidate, and kept unless another is
            better beyond chance.
        refit: train the chosen model again on all rows, with the chosen settings and number of steps; `result.model` is this one
            then, and no row is left to test it.
        checkpoint: a folder for finished stages, from which an interrupted call goes on; removed at the end, unless `keep_checkpoint`.
        solver: an exact solver of the program; default: the fastest that suits it.
        accept: the statuses of decisions that may count: `FEASIBLE` too, if the solver has a time limit.
        cache: a folder that remembers solves, as of `label`.
        device: where decision-focused models are trained, "cuda", say; see docs/how-to/gpu.md. The result lies on the CPU.
        progress: show the progress on stderr.

    Examples:
        >>> x, y = data.features.numpy(), data.costs.numpy()
        >>> result = dfl.train(program, x, y, forecasters=["ridge"], losses=["spo+"], epochs=1, progress=False)
        >>> result.chosen in result.models, len(result.parts.test)
        (True, 10)
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
    given = {"features": features, "costs": costs, "instances": instances, "forecast": forecast}
    tables, roles, remarks = _read(program, given, ordered, groups, weights, id_column)
    true, rows = tables.costs, len(tables.features)
    assert true is not None
    for row, column in np.argwhere(true.values < 0)[: int(positive)]:
        cell = f"{true.where(row)}, column {true.names[column]!r} holds {true.values[row, column]:g}"
        raise DataError(f"{cell}, and positive=True says that no cost is negative: leave it out")
    if rows < LEAST_ROWS:
        least = f"to train, choose and test, {LEAST_ROWS} is the least, and some hundreds are better"
        raise DataError(f"{tables.features.path} has {rows} rows; {least}")
    divided = parts_of(rows, test=test, choose=HELD_OUT, ordered=bool(ordered), gap=gap, groups=roles.groups, seed=seed)
    known = np.arange(divided.test[0] - gap) if ordered else np.setdiff1d(np.arange(rows), divided.test)
    encoding = Encoding.of(roles.features, known, roles.aside)
    ours = forecasters_of(forecasters, len(encoding.names), program.p, seed)
    places = {} if tables.instances is None else places_of(program, tables.instances.names, str(tables.instances.path))
    x, y = torch.tensor(with_forecast(encoding(tables.features), tables.forecast)), torch.tensor(true.values)
    instance = tables.instance(program)
    best = solve_cached(solver, y, instance, cache=cache, progress=progress)
    best.check(accept, name=tables.where, what="optimal decision with the true costs")
    counts = None if roles.weights is None else torch.tensor(roles.weights)
    data = DecisionDataset(x, y, best.decision, instance, weights=counts)
    if counts is not None:
        known = known[counts[known].numpy() > 0]  # rows without weight tell nothing
    settings = Settings(tuple(losses), layer, positive, epochs, lr, bool(ordered), gap, seed)
    said, folder = Progress(progress), None if checkpoint is None else Path(checkpoint)
    if solves is None:
        size = program.n + len(program.b) + len(program.h) if program.is_integer else 0
        solves = round(SOLVES * min(1.0, LARGE / max(1, size)))
    most = solves // judged_often(program, losses, len(ours))
    labels = None if roles.groups is None else np.asarray(roles.groups)
    k = len(encoding.names)
    fit = CrossFit(task, solver, data, known, k, ours, settings, said, folder, cache, labels, device, most)
    found, choice, skipped = _search(fit, Candidates(fit, program), minutes)
    if len(fit.left_out) < fit.all_left_out:
        some = f"{len(fit.left_out)} of {fit.all_left_out} rows left out"
        skipped.append(f"choices were made on {some}, for some {solves} exact solves: see solves=")
    parts = Parts(known, np.sort(fit.left_out), divided.test)

    built = {name: one.build(known) for name, one in found.items()}
    models = {name: _regressor(problem, module, found[name], fit) for name, module in built.items()}
    part, testing = data.subset(known).batch(), data.subset(parts.test)
    average = np.average(part.require("costs").numpy(), axis=0, weights=part.weights)

    def judge(name: str, predicted: np.ndarray, solver: Solver) -> Evaluation:
        said.pass_by(f"deciding with {name}")
        return evaluate(predicted, program, testing, solver, cache=cache, progress=False, accept=accept)

    tested = {AVERAGE: judge(AVERAGE, np.tile(average, (len(testing), 1)), solver)}
    forecasts: dict[nn.Module, Tensor] = {}  # of parts that models share
    for name, one in models.items():
        with torch.no_grad():
            predicted = built[name](testing.features, forecasts).numpy()
        tested[name] = judge(name, predicted, one.decider(solver))
    validation = {name: _judged_before(tested[AVERAGE], one, fit) for name, one in found.items()}
    said.done()
    compared = choice.focused if choice.chosen == choice.baseline and choice.focused else choice.chosen
    difference = compare(tested[compared], tested[choice.baseline])
    names = {"baseline": choice.baseline, "chosen": choice.chosen, "compared": compared}
    record = {
        "features": list(encoding.inputs),
        "encoding": encoding.as_dict(),
        "forecast": list(true.names) if tables.forecast is not None else [],
        "run": fit.key,
        "trained_on": packed(data.subset(known)),
        "id": id_column,
        "costs": None if true.is_counted else list(true.names),
        "instances": places,
        "offset": offset,
        **names,
        "options": {**asdict(settings), "losses": list(losses), "ordered": ordered, "test": test, "minutes": minutes},
        "gain": choice.gain._asdict(),
        "settings": {name: dict(one.detail) for name, one in found.items()},
        "validation": {name: judged.as_dict() for name, judged in validation.items()},
        "test": {name: judged.as_dict() for name, judged in tested.items()},
        "difference": difference.as_dict(),
    }
    for name, regressor in models.items():
        forecast_of = record["forecast"] if YOURS in built[name].names else []
        regressor.record_ = record | {"chosen": name, "forecast": forecast_of}
    final, chosen = None, found[choice.chosen]
    if refit:
        final = _regressor(problem, chosen.build(np.arange(rows)), chosen, fit)
        final.record_ = models[choice.chosen].record_ | {"refit": rows, "trained_on": packed(data)}
    if folder is not None and not keep_checkpoint:
        forget(folder, [fit.key], said)
    notes = [*remarks, *encoding.notes, *encoding.remarks(tables.features), *skipped]
    notes += _notes(program, instance, best, solver) + _notes_on_models(found, tested, y)
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
        notes=notes,
        record=record,
        seconds=time.perf_counter() - begun,
        final=final,
    )


def _search(fit: CrossFit, of: Candidates, minutes: float | None) -> tuple[dict[str, Candidate], Choice, list[str]]:
    """The best candidate of each name, the ordinary ones first; the choice; and notes on those left out for lack of time."""
    settings, begun, skipped = fit.settings, time.process_time(), []
    ordinary = of.ordinary()
    if QUANTILE in settings.losses:
        ordinary += [*of.quantiles(ordinary), *of.scenarios(ordinary)]
    last = fit.folds[-1]
    drifts = settings.ordered and drifting(fit.rows.x[last.fit].numpy(), fit.rows.x[last.own].numpy())
    base = best_ordinary(ordinary, drifts=drifts)
    blends = [one for one in ordinary if "weights" in one.detail]
    stacked = base if base in blends else best_ordinary(blends, drifts=drifts)
    kinds: dict[str, Callable[[], list[Candidate]]] = {STACK: partial(of.stacks, stacked)}
    kinds |= {loss: partial(of.linear, loss, stacked) for loss in settings.losses if loss != QUANTILE}
    kinds |= {} if of.settled else {TREES: partial(of.boosted, stacked)}
    focused = {}
    for name, make in kinds.items():
        if minutes is not None and time.process_time() - begun > 60 * minutes:
            skipped.append(f"{name} was left out after {minutes:g} minutes: see minutes=")
        else:
            focused[name] = make()
    choice = choose(base, focused, fit.windows, ordered=settings.ordered, seed=settings.seed)
    found: dict[str, Candidate] = {}
    for one in (*ordinary, *chain(*focused.values())):
        found[one.name] = min(found.get(one.name, one), one, key=lambda one: one.mean)
    return found, choice, skipped


def train_rolling(
    problem: Problem | Program | Solver,
    features: TableLike,
    costs: TableLike,
    instances: TableLike | None = None,
    *,
    folds: int,
    test: float = 0.5,
    ordered: bool | str = True,
    id_column: str | None = None,
    checkpoint: str | Path | None = None,
    minutes: float | None = None,
    forecast: TableLike | None = None,
    **options: Any,
) -> RollingResult:
    """`train` in each of so many folds of `rolling_origins`; a fold knows nothing of rows after its test rows.

    Args:
        test: the share of rows, the last ones, that all folds test on together.
        minutes: of all folds together.
        ordered, id_column, checkpoint, forecast, options: as of `train`; `ordered` is never `False`.
    """
    program = DecisionTask.of(problem).program
    given = {"features": features, "costs": costs, "instances": instances, "forecast": forecast}
    groups, weights = options.get("groups"), options.get("weights")
    tables, roles, said = _read(program, given, ordered or True, groups, weights, id_column)
    options |= {"id_column": id_column, "checkpoint": checkpoint, "keep_checkpoint": True, "ordered": AS_IS}
    options["minutes"] = None if minutes is None else minutes / folds
    results, rows, gap = [], len(tables.features), options.get("gap", 0)
    for parts in rolling_origins(rows, folds, test=test, gap=gap, groups=roles.groups):
        known = np.arange(parts.test[-1] + 1)
        some, own = tables.take(known), roles.take(known)
        assert some.costs is not None
        options |= {"test": len(parts.test), "groups": own.groups, "weights": own.weights, "forecast": some.forecast}
        results.append(train(problem, own.features, some.costs, some.instances, **options))
    results[0].notes[:0] = said
    if checkpoint is not None:
        forget(Path(checkpoint), [one.record["run"] for one in results], Progress(options.get("progress", True)))
    names = {AVERAGE: lambda _: AVERAGE, BASELINE: lambda fold: fold.baseline, CHOSEN: lambda fold: fold.chosen}
    tested = {said: together([fold.tested[name(fold)] for fold in results]) for said, name in names.items()}
    return RollingResult(results, tested, compare(tested[CHOSEN], tested[BASELINE]))


def _read(
    program: Program | None,
    given: dict[str, Any],
    ordered: bool | str,
    groups: Any,
    weights: Any,
    id_column: str | None,
) -> tuple[Tables, Roles, list[str]]:
    """The tables with their rows in order, the features with their groups and weights, and remarks about the order."""
    names = None if program is None else program.cost_names
    tables = Tables.of(given, id_column, {"costs": names, "forecast": names}, "the program")
    costs, forecast = tables.costs, tables.forecast
    if names is None and costs is not None and forecast is not None and not (costs.is_counted or forecast.is_counted):
        tables = tables._replace(forecast=forecast.in_order(costs.names, str(costs.path)))
    roles = Roles.of(tables.features, groups, weights)
    order, remarks = order_in_time(tables.features, ordered, id_column, tables.costs)
    return (tables, roles, remarks) if order is None else (tables.take(order), roles.take(order), remarks)


def _regressor(
    problem: Problem | Program | Solver, module: Combination, one: Candidate, fit: CrossFit
) -> DecisionFocusedRegressor:
    loss = {"SmoothedSPOPlus": "smoothed-spo+", "TaskLoss": "task"}.get(one.loss, one.loss)
    options: dict[str, Any] = {"layer": fit.settings.layer, "random_state": fit.settings.seed}
    regressor = DecisionFocusedRegressor(problem, loss=loss, model=module, **options)
    history, data = History([dict(one.detail)], None, "epochs"), fit.data.subset(fit.known)
    if YOURS not in module.names:
        data = data.with_features(data.features[:, : fit.features])
    return regressor.adopt(module, data, fit.scale, history)


def _judged_before(like: Evaluation, one: Candidate, fit: CrossFit) -> Evaluation:
    """A candidate on the rows left out, as an evaluation like another one."""
    regrets, weights, objective = one.regrets, None, fit.task.objective
    if fit.held.weights is not None:
        weights = fit.held.weights.numpy()
        weigh = weights / weights.mean()
        regrets = np.divide(regrets, weigh, out=np.zeros_like(regrets), where=weigh > 0)
    optima = objective.true_cost(fit.truth, fit.judge.best, fit.held.instance).numpy()
    measured: dict[str, Any] = {
        "ids": fit.held.ids.numpy(),
        "regrets": regrets,
        "optima": -optima if objective.sense == "maximize" else optima,
        "squared_errors": (one.forecasts - fit.truth).square().mean(-1).numpy(),
    }
    return replace(like, **measured, weights=weights, decisions=None, predictions=one.forecasts, floor_regrets=None)


def _notes(program: Program, instance: Instance | None, best: Solution, solver: Solver) -> list[str]:
    """About predictions that replace costs of the model, and about labels and decisions that are not proven optimal."""
    notes, known = [], None if instance is None else instance.d
    own = [cost for k, cost in (program.replaced or {}).items() if known is None or not known[:, k].any()]
    if own:
        span = " … ".join(f"{cost:g}" for cost in sorted({min(own), max(own)}))
        replaced = f"the model's own cost of {len(own)} predicted variable{'s' * (len(own) > 1)}, {span}, is replaced"
        remedy = "to keep it beside the prediction, give instances with a column d:NAME"
        notes.append(f"{replaced} by the predicted cost; {remedy}")
    if count := int((best.status != int(Status.OPTIMAL)).sum()):
        notes.append(f"{count} of {len(best.status)} optimal decisions are the best found within the solver's limit")
    while isinstance(solver, Wrapper):
        solver = solver.solver
    gap, limit = getattr(solver, "gap", 0.0), getattr(solver, "time_limit", np.inf)
    allowed = [f"a gap of {gap:.3g}"] * (program.is_integer and gap > 0) + [f"{limit:g} seconds"] * bool(limit < np.inf)
    if allowed:
        such = "regrets are against such decisions, and may be negative"
        notes.append(f"decisions are those that the solver finds within {' and '.join(allowed)}: {such}")
    return notes


def _notes_on_models(found: Mapping[str, Candidate], tested: Mapping[str, Evaluation], costs: Tensor) -> list[str]:
    notes, average = [], tested[AVERAGE]
    if zero := int(average.zero_optima.sum()):
        rows = f"{zero} of the {len(average.ids)} test rows"
        notes.append(f"{rows} have an optimum of zero: the mean of regret / optimum leaves them out")
    forecasts = {name: (one.forecasts, tested[name].predictions) for name, one in found.items()}
    below = [name for name, some in forecasts.items() if any(one is not None and one.min() < 0 for one in some)]
    if below and costs.min() > 0:
        notes.append(f"all costs are positive, and predictions of {', '.join(below)} are not: see positive=True")
    return notes
