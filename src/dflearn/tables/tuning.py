"""Decision-focused training of a linear forecast: short, from ridge, with snapshots on the way.

A run has four phases, each twice as long as the one before. The mean of the weights over a phase is a snapshot, which is steadier
than the last of them. Which snapshot is kept, rows decide that the run did not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dflearn.errors import DivergenceError
from dflearn.losses.base import Loss
from dflearn.tables.linear import Start
from dflearn.training import Callback, Run, fit

LENGTHS = (1, 2, 4, 8)  # of the phases, relative to each other
EPOCHS, STEPS, BATCH = 4, 160, 32  # epochs at least; steps of a run; rows in a step
SIZE = 300  # of a program beyond which there are fewer steps
RATE = 0.03  # how far a step moves forecasts, in units of their error


class Report(Callback):
    """A line per epoch of `fit`, printed."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        monitored = run.history.monitored
        judged = "" if monitored is None else f", {monitored.replace('_', ' ')} {row[monitored]:.4g}"
        print(f"epoch {row['epoch']}: loss {row['loss']:.4g}{judged}, {row['seconds']:.2f} s")


def shortened(size: int) -> float:
    """The share of all steps that a program of so many variables and constraints gets."""
    return min(1.0, (SIZE / max(1, size)) ** 2)


def epochs_for(rows: int, size: int = 0) -> int:
    """As many as make for `STEPS` steps, or for fewer where the program is large. Counted, not timed, so that a busy machine
    trains the same model."""
    return max(EPOCHS, math.ceil(STEPS * shortened(size) * BATCH / rows))


def phases_of(epochs: int) -> list[int]:
    """The epochs after which the phases end."""
    ends = np.cumsum(LENGTHS) * epochs / sum(LENGTHS)
    return sorted({max(1, round(end)) for end in ends} & set(range(1, epochs + 1)))


def snapshots(
    start: Start, loss: Loss, epochs: int, rate: float, *, seed: int, device: str | None, tell: Callable[[str], None]
) -> list[Tensor]:
    """The weights after each phase of a run; fewer where it diverges. The start's module is left at the last of them."""
    phases = Phases(phases_of(epochs), tell)
    options: dict[str, Any] = {"epochs": epochs, "batch_size": BATCH, "lr": rate * start.reach, "seed": seed}
    try:
        fit(start.module, loss, start.train, callbacks=[phases], device=device, progress=False, **options)
    except DivergenceError as error:
        tell(f"ended early, {error}")
    start.module.cpu()
    if phases.found:
        with_weights(start.module, phases.found[-1])
    return phases.found


def weights_of(module: nn.Module) -> Tensor:
    """All weights in one vector."""
    return parameters_to_vector(module.parameters()).detach().cpu()


def with_weights(module: nn.Module, weights: Tensor) -> None:
    """Give a module these weights."""
    vector_to_parameters(weights.clone(), module.parameters())


class Phases(Callback):
    """Averages weights over each phase."""

    def __init__(self, ends: Sequence[int], tell: Callable[[str], None]) -> None:
        self.ends, self.tell = list(ends), tell
        self.seen: list[Tensor] = []  # after each epoch of this phase
        self.found: list[Tensor] = []

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        self.seen.append(weights_of(run.model))
        self.tell(f"epoch {run.epoch} of {self.ends[-1]}, loss {row['loss']:.4g}")
        if run.epoch in self.ends:
            self.found.append(torch.stack(self.seen).mean(0))
            self.seen = []
