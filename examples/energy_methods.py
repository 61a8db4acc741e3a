"""What both energy examples compare: one linear model of the half-hourly prices, trained in four ways.

    two-stage                          squared error; the epoch with the least squared error on the validation days
    two-stage, stopped by regret       squared error; the epoch with the least regret on the validation days
    SPO+                               through the relaxation
    SCE                                through the smoothed relaxation, μ chosen on the validation days

Everything else is the same for all: 30 epochs of Adam on the same days in the same order. In a study these are "two-stage
scaled", "MSE scaled", "SPO+^relax scaled" and "SCE^smoothed scaled tuned", which is registered here, as are the
schedules of CSPLib, read from the folder that DFLEARN_SCHEDULES names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dflearn as dfl
from beside import BLUE, GOLD, GREEN, RED, comparison, saved
from dflearn.data import Split
from dflearn.data.scale import Scale
from dflearn.evaluation import Evaluation
from dflearn.losses import MSE, SCE, SPOPlus
from dflearn.problems import Scheduling
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, split_days
from dflearn.solvers.base import Solver
from dflearn.studies import Method, Prepared, RunContext, register, register_problem

METHODS = ("two-stage", "two-stage, stopped by regret", "SPO+", "SCE")
SETTINGS: dict[str, Any] = {"epochs": 30, "lr": 0.02, "batch_size": 32}
GRID = (0.03, 0.1, 0.3, 1.0)  # of μ, times the mean size of the objective's coefficients


COLORS = dict(zip(METHODS, (RED, GOLD, GREEN, BLUE), strict=True))


@dataclass(frozen=True)
class Judged:
    """A method's result on the test days, and how it came about."""

    evaluation: Evaluation
    mu: float | None
    epoch: int
    seconds: float


def judge(
    method: str,
    problem: EnergyKnapsack | Scheduling,
    split: Split,
    *,
    seed: int,
    validator: Solver,
    epochs: int = SETTINGS["epochs"],
    cache: Path | None = None,
) -> Judged:
    """Train by `method` and decide on the test days. `validator` solves what the regret on the validation days is of."""
    train, validation, test = split
    options = {"train": train, "validation": validation, "progress": False, **SETTINGS, "epochs": epochs}
    mu, by_regret = None, {"problem": validator}
    if method == "two-stage":
        loss, by_regret = MSE(), {}
    elif method == "two-stage, stopped by regret":
        loss = MSE()
    elif method == "SPO+":
        loss = SPOPlus(dfl.Exact(problem.relaxed_solver()))
    else:
        scale = float(problem.program.objective.vector(train.batch().require("costs")).abs().mean())
        tuning = dfl.tune(
            lambda mu: SCE(dfl.Smoothed(problem.program, mu * scale)),
            GRID,
            make_model=lambda seed: dfl.models.SharedLinear(train.features.shape[-1], seed=seed),
            problem=validator,
            seeds=[seed],
            **options,
        )
        mu = tuning.best
        loss = SCE(dfl.Smoothed(problem.program, mu * scale))
    model = dfl.models.SharedLinear(train.features.shape[-1], seed=seed)
    history = dfl.fit(model, loss, seed=seed, keep="best", **options, **by_regret)
    assert history.best is not None
    evaluation = dfl.evaluate(model, problem.program, test, problem.solver(), cache=cache, progress=False)
    return Judged(evaluation, mu, history.best["epoch"], sum(history.column("seconds")))


def prepare(
    days: EnergyDays, costs: np.ndarray, problem: EnergyKnapsack | Scheduling, seed: int, cache: Path | None = None
) -> tuple[Split, float]:
    """Labelled days in the literature's proportions of 550, 100 and 139; and the unit in which costs are counted."""
    data = dfl.label(days.dataset(costs), problem.solver(), cache=cache)
    train, validation = (round(len(days) * part / 789) for part in (550, 100))
    return split_days(data, seed, train=train, validation=validation)


def table(found: dict[str, Judged], unit: float, lost: str) -> str:
    """Regret of each method, what it loses a day, what that is less than two-stage, and what validation chose."""
    evaluations = {name: judged.evaluation for name, judged in found.items()}
    columns = {
        lost: lambda name: f"{unit * evaluations[name].absolute_regret:,.0f}",
        "saved a day against two-stage": saved(evaluations, "absolute_regret", ",.0f", unit),
        "μ": lambda name: "" if found[name].mu is None else f"{found[name].mu:g}",
        "epoch": lambda name: str(found[name].epoch),
    }
    return comparison(evaluations, columns, width=30)


# -- for studies ------------------------------------------------------------------------------------------------------


def smoothed(context: RunContext) -> Prepared:
    """SCE through the smoothed relaxation, μ = share · mean |S y|; the model works in units of the costs."""
    objective, train = context.problem.program.objective, context.train
    mu = context.parameters["share"] * float(objective.vector(train.batch().require("costs")).abs().mean())
    loss = SCE(dfl.Smoothed(context.problem.program, mu))
    return Prepared(loss, train, scale=Scale.of(objective, train).costs)


def schedule(number: int, seed: int = 0, path: str | None = None, digest: str = "") -> Scheduling:
    """The days come from a file, the tasks from another; the seed is for the split."""
    folder = Path(os.environ.get("DFLEARN_SCHEDULES", "."))
    return replace(Scheduling.read(folder / f"schedule_load{number}.txt"), seed=seed, path=path, digest=digest)


register(
    Method("SCE^smoothed scaled tuned", "smoothed, μ = share · mean |S y|", smoothed, lambda problem: {"share": 1.0})
)
register_problem("schedule_load{number}", schedule, "a schedule of CSPLib 059", example="schedule_load1")
