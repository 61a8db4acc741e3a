"""One run: draw the data, label them, train, judge; everything that a `RunConfig` asks for and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.evaluation import Evaluation, evaluate
from dflearn.models import Scaled
from dflearn.paper.methods import RunContext, method_named
from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from dflearn.solvers.base import Solver
from dflearn.studies.config import RunConfig
from dflearn.studies.record import PeakMemory, Record, machine
from dflearn.training import Callback, fit
from dflearn.training.run import Run
from dflearn.training.validation import Validation

DIGITS, HISTORY_DIGITS = 7, 4  # significant digits that a record keeps: of its figures, and of each epoch's


def run(config: RunConfig, cache: str | Path | None = None) -> Record:
    """Carry out one run on one thread. Equal configs give equal figures, whatever ran before.

    Args:
        cache: a folder that remembers exact solves of labels and evaluation, as of `dflearn.label`.
    """
    with _one_thread():
        return _run(config, cache)


def _run(config: RunConfig, cache: str | Path | None) -> Record:
    memory, watch, begun = PeakMemory(), _Watch(), time.perf_counter()
    settings = config.settings
    problem = problem_named(
        config.problem, seed=config.seed, features=settings.features, degree=settings.degree, noise=settings.noise
    )
    judge = exact_solver(problem, config)
    data = problem.generate(settings.points)
    split = data.split(config.seed, settings.test, settings.validation)
    train = label(split.train, judge, cache=cache, progress=False)
    test = label(split.test, judge, cache=cache, progress=False)
    validation = label(split.validation, problem.relaxed_solver(), progress=False)
    watch.lap("labels")

    task = RunContext(problem, train, config.seed, dict(config.parameters), lambda: exact_solver(problem, config))
    prepared = method_named(config.method).prepare(task)
    watch.lap("prepare")

    torch.manual_seed(config.seed)
    model: nn.Module = nn.Linear(settings.features, problem.program.p)
    if prepared.scale != 1:
        model = Scaled(model, prepared.scale)
    clock = _Clock(validation, problem)
    history = fit(
        model,
        prepared.loss,
        prepared.train,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        lr=settings.learning_rate,
        seed=config.seed,
        warm_start=prepared.warm_start,
        callbacks=[clock],
        progress=False,
    )
    watch.lap("train")

    evaluation = evaluate(model, problem, test, judge, cache=cache, progress=False)
    watch.lap("evaluate")
    columns = ("loss", "gradient", *clock.columns)
    rows = {name: [_short(row[name], HISTORY_DIGITS) for row in history.rows] for name in columns}
    seconds = {
        "epoch": _short(_typical(rows["cpu_seconds"])),
        "epoch_wall": _short(_typical(rows["wall_seconds"])),
        **watch.seconds,
        "total_wall": round(time.perf_counter() - begun, 3),
    }
    return Record(
        config=config,
        metrics=_metrics(evaluation),
        history=rows,
        seconds=seconds,
        peak_megabytes=memory.megabytes(),
        solver=judge.identity,
        training_solver=prepared.solver,
        machine={**machine(), "ended": datetime.now(UTC).isoformat(timespec="seconds")},
        notes=(*history.notes, *evaluation.notes()),
        regrets=evaluation.regrets.astype(np.float32),
        optima=evaluation.optima.astype(np.float32),
    )


def exact_solver(problem: Problem, config: RunConfig) -> Solver:
    """A new exact solver of the problem's program: its own, or Gurobi where the config says so."""
    if config.solver == "gurobi":
        from dflearn.solvers.gurobi import Gurobi

        return Gurobi(problem.program)
    return problem.solver()


class _Clock(Callback):
    """Times each epoch's training apart from its validation, which is on the relaxation: cheap everywhere."""

    columns = (
        "validation_absolute_regret",
        "validation_ratio_of_sums",
        "cpu_seconds",
        "wall_seconds",
        "validation_seconds",
    )

    def __init__(self, data: DecisionDataset, problem: Problem) -> None:
        self.data, self.solver = data, problem.relaxed_solver()

    def on_start(self, run: Run) -> None:
        self.validation = Validation(self.data, run.loss, self.solver)
        self._mark()

    def _mark(self) -> None:
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        row["cpu_seconds"], row["wall_seconds"] = time.process_time() - self.cpu, time.perf_counter() - self.wall
        begun = time.process_time()
        row.update(self.validation(run.model))
        row["validation_seconds"] = time.process_time() - begun
        self._mark()


class _Watch:
    """CPU seconds from lap to lap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.process_time()

    def lap(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name], self.last = round(now - self.last, 3), now


def _typical(per_epoch: list[float]) -> float:
    """The mean over the epochs after the first: the first may compile, load a library or fill a cache."""
    return float(np.mean(per_epoch[1:] or per_epoch))


def _metrics(evaluation: Evaluation) -> dict[str, tuple[float, float, float]]:
    return {
        name: (_short(estimate.value), _short(estimate.low), _short(estimate.high))
        for name, estimate in evaluation.metrics.items()
    }


def _short(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """CPU time is the time of the work only where nothing waits for other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
