"""Every method of the field on the same problems: tuned on seed 0, then fixed, then run on seeds of its own.

    python benchmarks/studies/field.py --plan                       # one run of each method on each problem: what all would cost
    python benchmarks/studies/field.py                              # what results/field lacks, then its page and figures
    python benchmarks/studies/field.py --problems SP-5 --seeds 1 --methods MSE SPO+ --out build/field
    python benchmarks/studies/field.py --no-run                     # write page and figures again
    python benchmarks/studies/field.py --no-run --methods SPO+ PG   # only these, ranked among themselves, as text

Each method gets five trials per problem on seed 0: five values of its own parameter at one learning rate, or, where it has none,
five learning rates. The one with the least regret on the validation rows of seed 0 is fixed. Every run takes the same
number of steps on the same rows, keeps the weights of the check with the least validation regret, and is judged exactly on test
rows. The model works in units of the costs. Runs go seed by seed across all problems, so that what is there is always a
complete comparison of fewer seeds. Finished runs are kept. The days of `energy-60`, `scheduling-5x1` and `battery` are real
where DFLEARN_ENERGY names them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.cache import default_cache
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.errors import DflearnError
from dflearn.evaluation import evaluate
from dflearn.files import replacing
from dflearn.layers import Smoothed
from dflearn.losses import LAVA
from dflearn.models import Scaled, predict
from dflearn.problems.base import Problem
from dflearn.studies.builtin import scaled
from dflearn.studies.methods import Prepared, RunContext, method_named
from dflearn.studies.models import make_model
from dflearn.studies.record import machine
from dflearn.training import Callback, fit
from dflearn.training.run import Run
from field_methods import METHODS, FieldMethod
from field_problems import make_problem

HERE = Path(__file__).resolve()
OUT = HERE.parents[2] / "results" / "field"
RECORDS = "field.ndjson.xz"  # one record a line, of a schema of its own; while runs go on, new ones are beside it
TUNED_ON, SEEDS = 0, (1, 2, 3, 4, 5)
RATE, CHECKS, MOST_SECONDS = 0.02, 8, 120.0
MANY = 500  # variables, above which LAVA looks at one basis of each vertex, and along 20 directions

Record = dict[str, Any]
Job = tuple["Task", FieldMethod, float, int]  # with the value of its parameter, and the seed


@dataclass(frozen=True)
class Task:
    """A problem, the model for it, and how many rows: to train on, to choose by, to test on."""

    name: str
    model: str = "linear"
    train: int = 400
    validation: int = 200
    test: int = 400
    epochs: int = 12
    batch: int = 32
    methods: str = "all"  # or "quadratic": those that are defined where the objective is
    options: tuple[tuple[str, Any], ...] = ()  # of the problem
    level: str = ""  # what differs from the problem of that name in the comparison

    def problem(self, seed: int) -> Problem:
        return make_problem(self.name, seed, **dict(self.options))

    def as_dict(self) -> dict[str, Any]:
        names = ("model", "train", "validation", "test", "epochs", "batch")
        return {name: getattr(self, name) for name in names}


SMALL = {"train": 200, "batch": 16}
TASKS = (
    Task("SP-5"),
    Task("KP-100"),
    Task("matching-8"),
    Task("energy-60", "shared", validation=100, test=289),
    Task("TopK-20x4"),
    Task("TSP-7", **SMALL),
    Task("terrain-12", "tiles", test=200, validation=100, epochs=8, **SMALL),
    Task("SP-10"),
    Task("CFL-10x3", **SMALL),
    Task("KP-40x4"),
    Task("scheduling-5x1", "shared", validation=100, test=200, **SMALL),
    Task("battery", "shared", validation=100, test=289, **SMALL),
    Task("production"),
    Task("charging", "shared", validation=100, test=289, **SMALL),
    Task("projects", train=60, validation=60, batch=5),
    Task("cover", **SMALL),
    Task("jobs", **SMALL),
    Task("flow", **SMALL),
    Task("CFL-50", train=100, batch=8),
    Task("blending", train=100, validation=100, batch=8),
    Task("roster", train=300, batch=24),
    Task("auction", **SMALL),
    Task("tree", train=80, validation=80, batch=7),
    Task("options"),
    Task("ordering", train=150, validation=150, batch=12),
    Task("portfolio-20", methods="quadratic", test=200, validation=100, **SMALL),
)


# -- data -----------------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """What one seed of a problem gives: labelled rows, and the optimum of each validation row."""

    problem: Problem
    train: DecisionDataset
    validation: DecisionDataset
    test: DecisionDataset
    neighbours: dict[int, dict[bytes, np.ndarray]]  # of labels, by `directions`: LAVA finds them once for all trials


@cache
def rows_of(task: Task, seed: int) -> Rows:
    problem = task.problem(seed)
    split = problem.split(task.train + task.validation + task.test, seed, task.test, task.validation)
    train, test = (
        label(part, problem.solver(), cache=default_cache(), progress=False) for part in (split.train, split.test)
    )
    return Rows(problem, train, label(split.validation, problem.relaxed_solver(), progress=False), test, {})


# -- one run --------------------------------------------------------------------------------------------------------------


class Check(Callback):
    """Looks at the regret on the validation rows `CHECKS` times, keeps the best weights, and times what lies between."""

    def __init__(self, rows: Rows, epochs: int) -> None:
        batch = rows.validation.batch()
        self.features, self.costs, self.best = batch.features, batch.require("costs").double(), math.inf
        program = rows.problem.program
        self.solver = (
            rows.problem.relaxed_solver() if program.Q is None else Smoothed(program, 0.0)
        )  # exact, and quicker
        self.objective = program.objective
        self.optimum = self.objective(self.costs, batch.require("decisions").double())
        self.epochs = {round(epochs * (i + 1) / CHECKS) for i in range(CHECKS)}
        self.path: list[tuple[float, float]] = []
        self.spent, self.weights, self.lost = 0.0, dict[str, Any](), self.optimum

    def on_start(self, run: Run) -> None:
        self.begun = time.process_time()

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool:
        self.spent += time.process_time() - self.begun
        if row["epoch"] in self.epochs:
            lost = self.regrets(run.model)
            regret = float(lost.mean())
            self.path.append((self.spent, regret))
            if regret < self.best or not self.weights:
                self.best, self.weights, self.lost = regret, deepcopy(run.model.state_dict()), lost
        self.begun = time.process_time()
        return self.spent > MOST_SECONDS

    def regrets(self, model: nn.Module) -> Tensor:
        """Of each validation row, over the mean |optimum|: their mean is Σ regret / Σ |optimum|.  `(rows,)`"""
        found = self.solver.solve(predict(model, self.features).double()).check().decision
        return (self.objective(self.costs, found) - self.optimum) / self.optimum.abs().mean()


def prepared(method: FieldMethod, trial: float, rows: Rows, seed: int) -> tuple[Prepared, float]:
    """The loss with this value of the parameter, and the learning rate."""
    parameters = dict(method.fixed)
    if method.tuned != "learning rate":
        parameters[method.tuned] = trial
    if "mu" in parameters:  # relative to what the data suggest
        parameters["mu"] *= Scale.of(rows.problem.program.objective, rows.train).mu
    if "bases" in parameters and rows.problem.program.n > MANY:
        parameters |= {"bases": 1, "directions": min(parameters["directions"], 20)}
    own = method.prepare or method_named(method.study).prepare
    if method.prepare is None:
        parameters = {**method_named(method.study).parameters(rows.problem.name), **parameters}
    context = RunContext(rows.problem, rows.train, seed, parameters, rows.problem.solver)
    made = scaled(own)(context)
    if isinstance(made.loss, LAVA):
        made.loss._known = rows.neighbours.setdefault(made.loss.directions, {})
    return made, trial if method.tuned == "learning rate" else RATE


def run(task: Task, method: FieldMethod, trial: float, seed: int, judge: bool) -> Record:
    rows = rows_of(task, seed)
    record: Record = {
        "problem": task.name,
        "method": method.name,
        "seed": seed,
        "trial": trial,
        "settings": task.as_dict(),
        **({"level": task.level} if task.level else {}),
    }
    begun = time.process_time()
    try:
        made, rate = prepared(method, trial, rows, seed)
        features, costs = tuple(made.train.features.shape[1:]), rows.problem.program.p
        model = Scaled(make_model(task.model, features, costs, seed), made.scale)
        check, set_up = Check(rows, task.epochs), time.process_time() - begun
        fit(
            model, made.loss, made.train, epochs=task.epochs, batch_size=task.batch, lr=rate, seed=seed, callbacks=[check],
            warm_start=made.warm_start, progress=False,
        )  # fmt: skip
    except DflearnError as error:
        return record | {"error": f"{type(error).__name__}: {error}"[:300], "seconds": time.process_time() - begun}
    if not check.weights:
        return record | {"error": f"no check within {MOST_SECONDS:g} s", "seconds": check.spent}
    record |= {
        "validation": _short(check.best),
        "seconds": _short(check.spent),
        "set_up": _short(set_up),
        "path": [[_short(second, 3), _short(regret, 4)] for second, regret in check.path],
    }
    if judge:
        model.load_state_dict(check.weights)
        judged = evaluate(model, rows.problem, rows.test, cache=default_cache(), floor=False, progress=False)
        size = float(np.abs(judged.optima).mean())
        record |= {
            "regret": _short(judged.ratio_of_sums),
            "mean_of_ratios": _short(judged.mean_of_ratios),
            "mse": _short(judged.mse / made.scale**2),
            "regrets": [_short(regret / size, 3) for regret in judged.regrets],  # over the mean |optimum|
            "validation_regrets": [_short(regret, 3) for regret in check.lost.tolist()],
        }
    return record | {"total": _short(time.process_time() - begun, 3)}


def _short(value: float, digits: int = 5) -> float:
    return float(f"{value:.{digits}g}")


# -- all runs -------------------------------------------------------------------------------------------------------------


def methods_of(task: Task, methods: Sequence[FieldMethod]) -> list[FieldMethod]:
    return [method for method in methods if task.methods == "all" or method.quadratic]


def best_trial(records: Sequence[Record], problem: str, method: str) -> float | None:
    """What the tuning seed chose; nothing where all trials failed or some are lacking."""
    tried = [one for one in records if (one["problem"], one["method"], one["seed"]) == (problem, method, TUNED_ON)]
    worked = [one for one in tried if "validation" in one and math.isfinite(one["validation"])]
    return min(worked, key=lambda one: one["validation"])["trial"] if worked else None


def wanted(options: argparse.Namespace, records: Sequence[Record]) -> Iterator[Job]:
    """First the tuning, problem by problem; then the seeds, each across all problems."""
    tasks = [task for task in TASKS if task.name in options.problems]
    methods = [method for method in METHODS if method.name in options.methods]
    for task in tasks if not options.again else ():
        for method, i in itertools.product(methods_of(task, methods), range(5)):
            yield task, method, method.trials[i], TUNED_ON
    for seed, task in itertools.product(options.seeds, tasks):
        for method in methods_of(task, methods):
            chosen = best_trial(records, task.name, method.name)
            if chosen is not None:
                yield task, method, chosen, seed


def complete(
    path: Path, jobs: Callable[[list[Record]], Iterator[Job]], minutes: float | None = None, again: bool = False
) -> list[Record]:
    """The records there, and those of the jobs that are lacking, each kept as soon as it is there; `again`: of all jobs."""
    records, until = read(path), minutes and time.time() + 60 * minutes
    have = set() if again else {key_of(one) for one in records}
    path.parent.mkdir(parents=True, exist_ok=True)
    same, last = {"machine": machine()}, None
    with path.with_suffix("").open("a", encoding="utf-8") as file:
        for task, method, trial, seed in jobs(records):
            if (task.name, task.level, method.name, trial, seed) in have:
                continue
            if until and time.time() > until:
                break
            if last != (task, seed):
                rows_of.cache_clear()
                last = (task, seed)
            record = run(task, method, trial, seed, judge=seed != TUNED_ON) | same
            records.append(record)
            file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            file.flush()
            shown = (record.get("regret", record.get("validation")), record["seconds"], record.get("error", ""))
            print(task.name, task.level, seed, method.name, trial, *shown, sep="\t", flush=True)
    if path.with_suffix("").exists():
        records = read(path)
        keep(path, records)
    return records


def plan(options: argparse.Namespace) -> None:
    """One run of each method on each problem, and what all would cost."""
    total = 0.0
    for task in (task for task in TASKS if task.name in options.problems):
        begun = time.process_time()
        rows_of(task, TUNED_ON)
        labels = time.process_time() - begun
        spent = {}
        for method in methods_of(task, [method for method in METHODS if method.name in options.methods]):
            begun = time.process_time()
            found = run(task, method, method.trials[2], TUNED_ON, judge=True)
            spent[method.name] = time.process_time() - begun
            print(task.name, method.name, f"{spent[method.name]:.2f} s", found.get("regret"), found.get("error", ""), sep="\t", flush=True)  # fmt: skip
        runs = 5 + len(options.seeds)
        total += runs * sum(spent.values()) + (1 + len(options.seeds)) * labels
        print(f"{task.name}: {runs * sum(spent.values()) / 60:.1f} min for {runs * len(spent)} runs, labels {labels:.1f} s", flush=True)  # fmt: skip
    print(f"all: {total / 60:.1f} min of CPU")


def key_of(record: Record) -> tuple[str, str, str, float, int]:
    return record["problem"], record.get("level", ""), record["method"], record["trial"], record["seed"]


def read(path: Path) -> list[Record]:
    """The records of both files, of equal keys the last one; a line that was cut off is left out."""
    found: list[Record] = []
    for part, opened in ((path, lzma.open), (path.with_suffix(""), open)):
        if part.exists():
            with opened(part, "rt", encoding="utf-8") as file:  # type: ignore[operator]
                found.extend(json.loads(line) for line in file if line.endswith("}\n"))
    return list({key_of(one): one for one in found}.values())


def keep(path: Path, records: list[Record]) -> None:
    """All in one file, written whole or not at all; the one beside it goes."""
    with replacing(path) as temporary, lzma.open(temporary, "wt", encoding="utf-8", preset=9) as file:
        file.writelines(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n" for one in records)
    path.with_suffix("").unlink(missing_ok=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, problems = [method.name for method in METHODS], [task.name for task in TASKS]
    arguments.add_argument("--problems", nargs="+", choices=problems, default=problems)
    arguments.add_argument("--methods", nargs="+", choices=names, default=names)
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments.add_argument("--out", type=Path, default=OUT)
    arguments.add_argument("--until", type=float, help="minutes after which no run is begun")
    arguments.add_argument(
        "--again", action="store_true", help="run seeds 1 to 5 of what is there too: the later record counts"
    )
    arguments.add_argument("--plan", action="store_true", help="one run of each, and what all would cost")
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.plan:
        plan(options)
        return
    path = options.out / RECORDS
    records = read(path)
    if not options.no_run:
        records = complete(path, lambda known: wanted(options, known), options.until, options.again)
    from field_page import brief, write

    everything = (options.methods, options.problems, options.seeds) == (names, problems, list(SEEDS))
    if everything:
        write(records, options.out)
    print(brief([one for one in records if one["method"] in options.methods and one["problem"] in options.problems]))


if __name__ == "__main__":
    main()
