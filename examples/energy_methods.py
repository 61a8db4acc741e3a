"""What both energy examples compare: one linear model of the half-hourly prices, trained in four ways.

    two-stage                          squared error; the epoch with the least squared error on the validation days
    two-stage, stopped by regret       squared error; the epoch with the least regret on the validation days
    SPO+                               through the relaxation
    SCE                                through the smoothed relaxation, μ chosen on the validation days

Everything else is the same for all. `NAMES` has their names in studies; the last method is registered here, as are the
schedules of CSPLib, read from the folder that DFLEARN_SCHEDULES names.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import dflearn as dfl
from beside import options_of
from dflearn.data.cache import default_cache
from dflearn.data.scale import Scale
from dflearn.problems import Scheduling
from dflearn.problems.energy import VARIABLE
from dflearn.studies import Method, Prepared, RunContext, register, register_problem
from dflearn.studies.config import read_study
from dflearn.studies.record import Record
from dflearn.studies.run import run

HERE, SCHEDULES = Path(__file__).resolve().parent, "DFLEARN_SCHEDULES"
NAMES = {"two-stage scaled": "two-stage", "MSE scaled": "two-stage, stopped by regret", "SPO+^relax scaled": "SPO+"}
NAMES["SCE^smoothed scaled tuned"] = "SCE"
METHODS = tuple(NAMES.values())


def smoothed(context: RunContext) -> Prepared:
    """SCE through the smoothed relaxation, μ = share · mean |S y|; the model works in units of the costs."""
    objective, train = context.problem.program.objective, context.train
    mu = context.parameters["share"] * float(objective.vector(train.batch().require("costs")).abs().mean())
    loss = dfl.losses.SCE(dfl.Smoothed(context.problem.program, mu))
    return Prepared(loss, train, scale=Scale.of(objective, train).costs)


def schedule(number: int, seed: int = 0, path: str | None = None, digest: str = "") -> Scheduling:
    """The days come from a file, the tasks from another; the seed is for the split."""
    folder = Path(os.environ.get(SCHEDULES, "."))
    return replace(Scheduling.read(folder / f"schedule_load{number}.txt"), seed=seed, path=path, digest=digest)


_about = "smoothed, μ = share · mean |S y|"
register(Method("SCE^smoothed scaled tuned", _about, smoothed, lambda problem: {"share": 1.0}))
register_problem("schedule_load{number}", schedule, "a schedule of CSPLib 059", example="schedule_load1")


class Judged(NamedTuple):
    """A run, and its decisions on the test days."""

    record: Record
    decisions: np.ndarray


def options_for(description: str | None, quick: str, plot: str) -> argparse.ArgumentParser:
    """The options of both examples."""
    arguments = options_of(description, quick, plot=plot)
    arguments.add_argument("--data", type=Path, help=f"file of real days (default: ${VARIABLE}, else synthetic ones)")
    return arguments


def one_seed(
    study: str, problems: Sequence[str], options: argparse.Namespace, **quick: int
) -> dict[str, dict[str, Judged]]:
    """Problem → method → run, of one seed of the study in a TOML file. quick: settings of --quick."""
    if options.data is not None:
        os.environ[VARIABLE] = str(options.data)
    whole = read_study(HERE / study)
    settings = replace(whole.settings, epochs=options.epochs, **(quick if options.quick else {}))
    found: dict[str, dict[str, Judged]] = {problem: {} for problem in problems}
    with TemporaryDirectory() as folder:
        for config in replace(whole, problems=tuple(problems), seeds=(options.seed,), settings=settings).runs():
            record = run(config, default_cache(), folder)
            with np.load(Path(folder) / f"{config.key}.npz") as kept:
                found[config.problem][NAMES[config.method]] = Judged(record, kept["decisions"])
    return found
