"""`tune`: choose μ, σ or a step size on validation regret, with one grid and one budget for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from torch import nn

from dflearn.data import Data
from dflearn.errors import DivergenceError, OptionError
from dflearn.solvers.task import Decided
from dflearn.training.arguments import AnyLoss
from dflearn.training.loop import fit


@dataclass(frozen=True)
class Tuning:
    """The outcome of `tune`.

    Attributes:
        best: the value of the grid with the least mean validation regret; the first of equals.
        rows: one dict per value and seed: `value`, `seed`, `epoch` (the one judged), `validation_absolute_regret` (inf
            where training diverged), `validation_ratio_of_sums`, `seconds`, `error` ("" where there was none).
        at_edge: the best value is the first or the last of several: a wider grid may hold a better one.
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
        keep: judge each run by its "best" or by its "last" epoch.
        options: passed on to `fit`: `epochs`, `lr`, `batch_size` and so on, the same for every value.
    """
    if not grid or not seeds:
        raise OptionError("tune needs at least one value and one seed")
    if options.get("checkpoint") is not None:
        raise OptionError("tune trains many runs, and a checkpoint belongs to one: leave `checkpoint` out")
    rows = [
        _one(
            make_loss(value),
            make_model(seed),
            value,
            seed,
            keep,
            options | {"train": train, "validation": validation, "problem": problem},
        )
        for value in grid
        for seed in seeds
    ]
    count = len(seeds)
    means = [
        fmean(row["validation_absolute_regret"] for row in rows[i * count : (i + 1) * count]) for i in range(len(grid))
    ]
    lowest = min(means)
    if lowest == float("inf"):
        raise DivergenceError(f"training diverged for every value of the grid: {rows[0]['error']}")
    place = means.index(lowest)
    return Tuning(grid[place], rows, at_edge=len(grid) > 1 and place in (0, len(grid) - 1))


def _one(
    loss: AnyLoss, model: nn.Module, value: Any, seed: int, keep: Literal["last", "best"], options: dict[str, Any]
) -> dict[str, Any]:
    named = {"value": value, "seed": seed}
    try:
        history = fit(model, loss, seed=seed, keep=keep, **options)
    except DivergenceError as error:
        unknown = {"epoch": None, "validation_absolute_regret": float("inf"), "validation_ratio_of_sums": float("inf")}
        return {**named, **unknown, "seconds": None, "error": str(error)}
    judged = history.best if keep == "best" else history.rows[-1]
    assert judged is not None
    metrics = {name: judged[name] for name in ("epoch", "validation_absolute_regret", "validation_ratio_of_sums")}
    return {**named, **metrics, "seconds": sum(history.column("seconds")), "error": ""}
