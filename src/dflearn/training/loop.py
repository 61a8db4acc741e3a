"""`fit`: the training loop; `tune`: choose μ, σ or a step size on validation regret, with one grid and one budget for every method."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from dflearn.data import Data
from dflearn.errors import DivergenceError, OptionError
from dflearn.solvers.task import Decided
from dflearn.training.callbacks import Callback, check_callbacks, end_epoch, restore, states_of
from dflearn.training.run import FitOptions, Run
from dflearn.training.step import AnyLoss, MakeOptimizer, MakeScheduler
from dflearn.training.validation import History


def fit(
    model: nn.Module,
    loss: AnyLoss | Sequence[AnyLoss],
    train: Data,
    *,
    validation: Data | None = None,
    problem: Decided | None = None,
    epochs: int = 25,
    batch_size: int = 32,
    optimizer: str | MakeOptimizer = "adam",
    lr: float = 0.005,
    scheduler: MakeScheduler | None = None,
    early_stopping: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    warm_start: bool = True,
    warm_start_bytes: int = 2**30,
    keep: Literal["last", "best"] = "last",
    progress: bool = True,
) -> History:
    """Train `model` in place: features → costs ŷ, so that the mean of loss(ŷ, batch) falls.

    Data with weights have weighted means: a step follows the gradient of Σ weight · loss / Σ weight over its batch.

    Args:
        model: any module, `(*batch, k)` or `(*batch, p, k)` → `(*batch, p)`.
        loss: a `Loss`, a sum of losses such as `MSE() + 0.1 * SPOPlus(layer)`, or a function of predicted costs and `Batch`
            with one value per instance, `(*batch,)`. A list of losses is trained with in turn, such as a convex loss and then a
            sharper one: each has an equal part of the epochs, or as many as `early_stopping` leaves it, and begins where the one
            before ended, with an optimizer, a scheduler and warm starts of its own.
        train: a `DecisionDataset`; a `TensorDataset` of features and costs, or of features, costs and decisions; a `Subset`.
        validation: held-out data. With `problem` the run is judged by its regret on them, otherwise by its loss.
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision.
        epochs, batch_size, lr: how often all rows are seen, rows per step, and the learning rate.
        optimizer: "adam", "adamw", "sgd", or a callable such as an optimizer class: `optimizer(parameters, lr=lr)`.
        scheduler: optimizer → learning-rate scheduler, stepped after each epoch.
        early_stopping: how many epochs without improvement on the validation data end the run, or the turn of a loss.
        seed: of the order of instances, and of torch's own generator (dropout) during the run, which is restored afterwards.
        device: where model and data are moved; default: where the model is.
        callbacks: see docs/how-to/callbacks.md. Their states are part of checkpoints, by their places in this list.
        checkpoint: a file, written after each epoch. If it exists the run goes on from it, bit for bit as if it had
            never stopped; a file of another run is an error. `epochs` may grow from one call to the next.
        warm_start: begin each solve where the same instance's last one ended, for layers that take a start.
        warm_start_bytes: above this size of all starts together, warm starts are off and a note says so.
        keep: which weights the model has in the end: the last epoch's, or those best on the validation data, of all epochs
            and of the start.
        progress: show a progress bar (on a terminal only).

    Examples:
        >>> model = dfl.models.Linear(10, 12)
        >>> history = dfl.fit(model, dfl.losses.SPOPlus(dfl.Exact(problem.solver())), data, epochs=3)
        >>> len(history.rows), history.stopped
        (3, 'epochs')
    """
    from tqdm import tqdm

    settings = FitOptions(epochs, batch_size, lr, seed, early_stopping, warm_start, warm_start_bytes, keep)
    check_callbacks(callbacks)
    run = Run(model, loss, train, validation, problem, settings, optimizer, scheduler, device)
    with torch.random.fork_rng(devices=run.cuda_devices):
        run.prepare()
        torch.manual_seed(seed)
        if checkpoint is not None:
            scheduled = {name for callback in callbacks for name in callback.scheduled}
            restore(callbacks, run, run.resume(checkpoint, scheduled))
        try:
            run.judge_start()
            for callback in callbacks:
                callback.on_start(run)
            steps = math.ceil(len(run.rows) / batch_size)
            how = {"desc": "training", "disable": None if progress else True, "leave": False}
            with tqdm(total=epochs * steps, initial=run.epoch * steps, **how) as bar:
                while not run.history.stopped and run.epoch < epochs:
                    row = run.train_epoch(bar.update)
                    run.judge(row)
                    run.end_epoch(row, stop=end_epoch(callbacks, run, row))
                    if checkpoint is not None:
                        run.save(checkpoint, states_of(callbacks))
                    bar.set_postfix_str(_summary(run), refresh=False)
            run.finish()
            for callback in callbacks:
                callback.on_end(run)
        except BaseException as error:
            for callback in callbacks:
                callback.on_error(run, error)
            raise
    return run.history


def _summary(run: Run) -> str:
    row = run.history.rows[-1]
    parts = [f"epoch {row['epoch']}", f"loss {row['loss']:.4g}"]
    if run.history.monitored is not None:
        parts.append(f"{run.history.monitored.replace('_', ' ')} {row[run.history.monitored]:.4g}")
    shares = {
        name: row[f"seconds_{name}"] / (row["seconds"] or 1.0)
        for name in ("predict", "solve", "backward", "validation")
    }
    return ", ".join([*parts, *(f"{name} {share:.0%}" for name, share in shares.items())])


@dataclass(frozen=True)
class Tuning:
    """The outcome of `tune`.

    Attributes:
        best: the value of the grid with the least mean validation regret; the first of equals.
        rows: one dict per value and seed: `value`, `seed`, `epoch` (the one judged), `validation_absolute_regret` (inf
            where training diverged), `validation_ratio_of_sums`, `seconds`, `error` ("" where there was none).
        at_edge: the best value is the first or the last of several: a wider grid may hold a better one.

    Examples:
        >>> make = lambda sigma: dfl.losses.FenchelYoung(dfl.Perturbed(problem.solver(), sigma))
        >>> halves = {"train": data[:30], "validation": data[30:], "problem": problem}
        >>> tuning = dfl.tune(make, [0.5, 2.0], make_model=lambda seed: dfl.models.Linear(10, 12), epochs=2, **halves)
        >>> len(tuning.rows), tuning.rows[0]["value"], tuning.at_edge
        (2, 0.5, True)
    """

    best: Any
    rows: list[dict[str, Any]]
    at_edge: bool


def tune(
    make_loss: Callable[[Any], AnyLoss],
    grid: Sequence[Any],
    *,
    make_model: Callable[[int], nn.Module],
    train: Data,
    validation: Data,
    problem: Decided,
    seeds: Sequence[int] = (0,),
    keep: Literal["last", "best"] = "best",
    **options: Any,
) -> Tuning:
    """Train once for each value of the grid and each seed, and compare mean regret on the validation data.

    Args:
        make_loss: value → loss; a fresh one for each run.
        make_model: seed → model; a fresh one for each run.
        problem: what is decided, as of `fit`.
        seeds: one run per value and seed; the seed is passed to `make_model` and `fit`.
        keep: judge each run by its "best" or by its "last" epoch.
        options: passed on to `fit`: `epochs`, `lr`, `batch_size` and so on, the same for every value.

    Examples:
        >>> tuning = dfl.tune(
        ...     lambda mu: dfl.losses.SCE(dfl.Smoothed(program, mu=mu)), [0.1, 1.0],
        ...     make_model=lambda seed: dfl.models.Linear(10, 12, seed=seed),
        ...     train=data[:30], validation=data[30:], problem=problem, epochs=2,
        ... )
        >>> tuning.best in (0.1, 1.0)
        True
    """
    if not grid or not seeds:
        raise OptionError("tune needs at least one value and one seed")
    if options.get("checkpoint") is not None:
        raise OptionError("tune trains many runs, and a checkpoint belongs to one: leave `checkpoint` out")
    options |= {"train": train, "validation": validation, "problem": problem, "keep": keep}
    rows = [_one(make_loss(value), make_model(seed), value, seed, options) for value in grid for seed in seeds]
    regrets = np.array([row["validation_absolute_regret"] for row in rows]).reshape(len(grid), len(seeds))
    means = regrets.mean(1).tolist()
    if min(means) == math.inf:
        raise DivergenceError(f"training diverged for every value of the grid: {rows[0]['error']}")
    place = means.index(min(means))
    return Tuning(grid[place], rows, at_edge=len(grid) > 1 and place in (0, len(grid) - 1))


def _one(loss: AnyLoss, model: nn.Module, value: Any, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    named = {"value": value, "seed": seed}
    try:
        history = fit(model, loss, seed=seed, **options)
    except DivergenceError as error:
        worst = {"validation_absolute_regret": math.inf, "validation_ratio_of_sums": math.inf}
        return {**named, "epoch": None, **worst, "seconds": None, "error": str(error)}
    judged = history.best if options["keep"] == "best" else history.rows[-1]
    assert judged is not None
    metrics = {name: judged[name] for name in ("epoch", "validation_absolute_regret", "validation_ratio_of_sums")}
    return {**named, **metrics, "seconds": sum(history.column("seconds")), "error": ""}
