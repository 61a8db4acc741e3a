"""`fit`: the training loop."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from dflearn.data import Data
from dflearn.solvers.task import Decided
from dflearn.training.arguments import AnyLoss, MakeOptimizer, MakeScheduler
from dflearn.training.callbacks import Callback
from dflearn.training.history import History
from dflearn.training.run import FitOptions, Run


def fit(
    model: nn.Module,
    loss: AnyLoss,
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
            with one value per instance, `(*batch,)`.
        train: a `DecisionDataset`; a `TensorDataset` of features and costs, or of features, costs and decisions; a `Subset`.
        validation: held-out data. With `problem` the run is judged by its regret on them, otherwise by its loss.
        problem: what is decided: a `Problem`, a `Program`, an exact `Solver`, or a function from costs to a decision.
        optimizer: "adam", "adamw", "sgd", or a callable such as an optimizer class: `optimizer(parameters, lr=lr)`.
        scheduler: optimizer → learning-rate scheduler, stepped after each epoch.
        early_stopping: how many epochs without improvement on the validation data end the run.
        seed: of the order of instances, and of torch's own generator (dropout) during the run. Torch's global
            generator is not used otherwise, and is afterwards what it was before.
        device: where model and data are moved; default: where the model is.
        callbacks: see docs/callbacks.md. Their states are part of checkpoints, by their places in this list.
        checkpoint: a file, written after each epoch. If it exists the run goes on from it, bit for bit as if it had
            never stopped; a file of another run is an error. `epochs` may grow from one call to the next.
        warm_start: begin each solve where the same instance's last one ended, for layers that take a start.
        warm_start_bytes: above this size of all starts together, warm starts are off and a note says so.
        keep: which weights the model has in the end: the last epoch's, or those best on the validation data.
        progress: show a progress bar (on a terminal only).
    """
    settings = FitOptions(epochs, batch_size, lr, seed, early_stopping, warm_start, warm_start_bytes, keep)
    run = Run(model, loss, train, validation, problem, settings, optimizer, scheduler, device, callbacks)
    with torch.random.fork_rng(devices=run.cuda_devices):
        run.prepare()
        torch.manual_seed(seed)
        run.resume(checkpoint)
        try:
            for callback in callbacks:
                callback.on_start(run)
            with _progress_bar(run, progress) as bar:
                while not run.history.stopped and run.epoch < epochs:
                    row = run.train_epoch(bar.update)
                    run.judge(row)
                    run.end_epoch(row, stop=run.tell(row))
                    run.save(checkpoint)
                    bar.set_postfix_str(_summary(run), refresh=False)
            run.finish()
            for callback in callbacks:
                callback.on_end(run)
        except BaseException as error:
            for callback in callbacks:
                callback.on_error(run, error)
            raise
    return run.history


def _progress_bar(run: Run, show: bool) -> Any:
    from tqdm import tqdm

    steps = math.ceil(len(run.rows) / run.settings.batch_size)
    total, done = run.settings.epochs * steps, run.epoch * steps
    return tqdm(total=total, initial=done, desc="training", disable=None if show else True, leave=False)


def _summary(run: Run) -> str:
    row = run.history.rows[-1]
    parts = [f"epoch {row['epoch']}", f"loss {row['loss']:.4g}"]
    if run.history.monitored is not None:
        parts.append(f"{run.history.monitored.replace('_', ' ')} {row[run.history.monitored]:.4g}")
    shares = {
        name: row[f"seconds_{name}"] / (row["seconds"] or 1.0)
        for name in ("predict", "solve", "backward", "validation")
    }
    return ", ".join(parts + [f"{name} {share:.0%}" for name, share in shares.items()])
