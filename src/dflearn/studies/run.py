"""One run: draw the data, label them, train, evaluate."""

from __future__ import annotations

import itertools
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import DivergenceError
from dflearn.evaluation import Evaluation, evaluate
from dflearn.files import replacing
from dflearn.models import Scaled
from dflearn.problems.base import Problem
from dflearn.solvers.base import Solver
from dflearn.studies.config import RunConfig, problem_of
from dflearn.studies.methods import Judge, Prepared, RunContext, load_plugins, method_named
from dflearn.studies.models import make_model
from dflearn.studies.modules import import_modules
from dflearn.studies.record import ARRAYS, PeakMemory, Record, machine, made_with
from dflearn.tables.linear import Start, ridge_start
from dflearn.training import Callback, fit
from dflearn.training.run import Run
from dflearn.training.validation import History, Validation

EPOCH = {"": "cpu", "_wall": "wall"}  # how a record calls the seconds of an epoch, by the clock that they are of
DIGITS, HISTORY_DIGITS = 7, 4  # significant digits that a record keeps: of its figures, and of each epoch's


def run(config: RunConfig, cache: str | Path | None = None, raw: str | Path | None = None) -> Record:
    """Carry out one run on one thread. Equal configs give equal figures.

    Args:
        cache: a folder for exact solves of labels and evaluation, as of `dflearn.label`.
        raw: a folder for ids, predictions, decisions and regrets of the test set, in KEY.npz with the key of the config.
    """
    load_plugins()
    import_modules(config.imports)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # otherwise CPU time would include waiting for other threads
    try:
        return _run(config, cache, raw)
    finally:
        torch.set_num_threads(threads)


def _run(config: RunConfig, cache: str | Path | None, raw: str | Path | None) -> Record:
    memory, watch, begun = PeakMemory(), _Watch(), time.perf_counter()
    settings = config.settings
    problem = problem_of(config)
    judge = exact_solver(problem, config)
    split = problem.split(settings.points, config.seed, settings.test, settings.validation)
    train = label(split.train, judge, cache=cache, progress=False)
    test = label(split.test, judge, cache=cache, progress=False)
    relaxed = problem.relaxed_solver()
    watched = chosen_on = label(split.validation, relaxed, progress=False), relaxed
    if settings.validation_solver == "exact":
        chosen_on = label(split.validation, judge, cache=cache, progress=False), judge
        if settings.keep == "best":
            watched = chosen_on
    watch.lap("labels")

    best, tried = None, []
    for chosen in itertools.product(*(values for _, values in config.tuning)):
        values = {name: value for (name, _), value in zip(config.tuning, chosen, strict=True)}  # empty without tuning
        parameters = {**dict(config.parameters), **values}
        context = RunContext(problem, train, config.seed, parameters, lambda: exact_solver(problem, config))
        prepared = method_named(config.method).prepare(context)
        watch.lap("prepare")
        try:
            trained = _train(config, problem, prepared, values, watched)
        except DivergenceError as error:
            if not config.tuning:
                raise
            tried.append({**values, "validation_absolute_regret": math.nan, "error": str(error)})
            continue
        if config.tuning:
            data, solver = chosen_on
            trained.regret = Validation(data, prepared.last, solver)(trained.model)["validation_absolute_regret"]
            seconds = _short(_typical(trained.history.column("cpu_seconds")))
            tried.append({**values, "validation_absolute_regret": _short(trained.regret), "seconds_per_epoch": seconds})
        best = trained if best is None or trained.regret < best.regret else best
        watch.lap("train")
    if best is None:
        raise DivergenceError(f"training diverged for every value of the grid: {tried[0]['error']}")

    evaluation = evaluate(best.model, problem, test, judge, cache=cache, progress=False)
    watch.lap("evaluate")
    if raw is not None:
        _write_raw(Path(raw) / f"{config.key}.npz", evaluation)
    columns = ("loss", "gradient", *best.clock.columns)
    rows = {name: [_short(row[name], HISTORY_DIGITS) for row in best.history.rows] for name in columns}
    times = {f"epoch{kind}": _short(_typical(rows[f"{clock}_seconds"])) for kind, clock in EPOCH.items()}
    watch.seconds["total_wall"] = time.perf_counter() - begun
    times |= {name: round(spent, 3) for name, spent in watch.seconds.items()}
    metrics = {name: (_short(one.value), _short(one.low), _short(one.high)) for name, one in evaluation.metrics.items()}
    return Record(
        config=config,
        metrics=metrics,
        history=rows,
        seconds=times,
        peak_megabytes=memory.megabytes(),
        solver=judge.identity,
        training_solver=best.prepared.solver,
        machine={**machine(), **made_with(config), "ended": datetime.now(UTC).isoformat(timespec="seconds")},
        notes=(*best.history.notes, *evaluation.notes()),
        chosen=best.chosen,
        tried=tuple(tried),
        **{name: getattr(evaluation, name).astype(kind) for name, kind in ARRAYS.items()},
    )


def _write_raw(path: Path, evaluation: Evaluation) -> None:
    arrays = {name: np.asarray(getattr(evaluation, name)) for name in ("ids", "regrets", "predictions", "decisions")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def exact_solver(problem: Problem, config: RunConfig) -> Solver:
    """A new exact solver of the problem's program: its own, or Gurobi if the config says so."""
    if config.solver == "gurobi":
        from dflearn.solvers.gurobi import Gurobi

        return Gurobi(problem.program)
    return problem.solver()


@dataclass
class _Trained:
    model: nn.Module
    prepared: Prepared
    history: History
    clock: _Clock
    chosen: dict[str, Any]
    regret: float = math.inf  # on the validation set, if parameters are tuned


def _train(
    config: RunConfig, problem: Problem, prepared: Prepared, values: dict[str, Any], watched: tuple[DecisionDataset, Solver]
) -> _Trained:  # fmt: skip
    settings, features = config.settings, tuple(prepared.train.features.shape[1:])
    if config.model == "ridge":
        start = ridge_start(prepared.train)
    else:
        model = make_model(config.model, features, problem.program.p, config.seed, **dict(config.model_options))
        model = model if prepared.scale == 1 else Scaled(model, prepared.scale)
        start = Start("given", model, prepared.train, model)
    clock = _Clock(start.on(watched[0]), watched[1], prepared.judged_by if settings.keep == "best" else None)
    how: dict[str, Any] = {"epochs": settings.epochs, "batch_size": settings.batch_size, "seed": config.seed}
    how |= {"lr": settings.learning_rate * start.reach, "warm_start": prepared.warm_start, "progress": False}
    history = fit(start.module, prepared.loss, start.train, callbacks=[clock], **how)
    chosen = dict(values)
    if settings.keep == "best":
        chosen["epoch"] = clock.best_epoch
        start.module.load_state_dict(clock.best_weights)
    return _Trained(start.model, prepared, history, clock, chosen)


class _Clock(Callback):
    """Times training and validation of each epoch separately, and keeps the weights of the best epoch.

    judged_by: the criterion of the best epoch, or "start" to keep the weights before training; `None` keeps the last ones.
    """

    def __init__(self, data: DecisionDataset, solver: Solver, judged_by: Judge | None) -> None:
        self.data, self.solver, self.judged_by = data, solver, judged_by
        self.columns = ["validation_absolute_regret", "validation_ratio_of_sums"]
        self.columns += ["validation_loss"] if judged_by == "loss" else []
        self.columns += ["cpu_seconds", "wall_seconds", "validation_seconds"]
        self.best, self.best_epoch, self.best_weights = math.inf, 0, dict[str, Any]()

    def on_start(self, run: Run) -> None:
        self.validations = [Validation(self.data, run.loss, self.solver)]
        if self.judged_by == "loss":
            self.validations.append(Validation(self.data, run.loss, None))
        if self.judged_by is not None:
            self._keep(run, 0, {name: value for one in self.validations for name, value in one(run.model).items()})
        self._mark()

    def _keep(self, run: Run, epoch: int, metrics: Mapping[str, Any]) -> None:
        """Keep the weights if they are the best so far; epoch 0 is before training."""
        value = metrics["validation_loss" if self.judged_by == "loss" else "validation_absolute_regret"]
        if not self.best_weights or (value < self.best and self.judged_by != "start"):
            self.best, self.best_epoch = value, epoch
            self.best_weights = deepcopy(run.model.state_dict())

    def _mark(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        row["cpu_seconds"], row["wall_seconds"] = time.process_time() - self.cpu, time.perf_counter() - self.wall
        begun = time.process_time()
        for validation in self.validations:
            row.update(validation(run.model))
        if self.judged_by is not None:
            self._keep(run, row["epoch"], row)
        row["validation_seconds"] = time.process_time() - begun
        self._mark()


class _Watch:
    """CPU seconds by name, from lap to lap."""

    def __init__(self) -> None:
        self.seconds, self.last = defaultdict[str, float](float), time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name] += now - self.last
        self.last = now


def _typical(per_epoch: list[float]) -> float:
    """The mean over the epochs after the first: the first may compile, load a library or fill a cache."""
    return float(np.mean(per_epoch[1:] or per_epoch))


def _short(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")
