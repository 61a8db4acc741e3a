"""Regret against misspecification, noise and training rows: thirteen methods of the field study, with the parameters it chose.

    python benchmarks/studies/field_levels.py             # what results/field/levels.ndjson.xz lacks, then its page and figures
    python benchmarks/studies/field_levels.py --no-run    # write page and figures again

Levels: polynomials of degree 1 to 8 under a linear model, noise of half-width 0, 0.5 and 1; all else as in the comparison, whose
level is degree 6 and noise 0.5. Rows: 100 to 5,000 to train on, and about 624 steps for each size, four times those of the
comparison, so that sizes differ in data and not in computation; the weights of the best look at 200 validation rows are kept.
Parameters are those that the comparison chose on seed 0, at its level and its 400 rows: what is seen is how a choice carries over.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import torch

from field import OUT, RECORDS, SEEDS, Job, Record, Task, best_trial, complete, keep, read
from field_methods import METHODS

LEVELS, FLOOR = "levels.ndjson.xz", "E[y | x]"
PROBLEMS = ("SP-5", "matching-8")
DEGREES, NOISES, ROWS = (1, 2, 4, 6, 8), (0.0, 0.5, 1.0), (100, 300, 1000, 5000)
BATCH, STEPS = 32, 624
CHOSEN = (
    "MSE", "SCE", "SCE with MSE", "sSPO+", "SPO+", "SPO+ kNN", "PEAR", "NID", "PFY", "QPTL", "LTR listwise", "LODL", "cost-sensitive",
)  # fmt: skip


def level_of(degree: int, noise: float) -> str:
    return f"degree {degree}, noise {noise:g}"


def size_of(rows: int) -> str:
    return f"{rows} rows"


def levels() -> list[Task]:
    return [
        Task(problem, options=(("degree", degree), ("noise", noise)), level=level_of(degree, noise))
        for problem, degree, noise in itertools.product(PROBLEMS, DEGREES, NOISES)
    ]


def sizes() -> list[Task]:
    return [
        Task(problem, train=rows, epochs=round(STEPS / math.ceil(rows / BATCH)), batch=BATCH, level=size_of(rows))
        for problem, rows in itertools.product(PROBLEMS, ROWS)
    ]


def wanted(compared: list[Record], seeds: list[int]) -> Iterator[Job]:
    """Seed by seed, so that what is there is always complete for fewer seeds."""
    methods = [method for method in METHODS if method.name in CHOSEN]
    for seed, task in itertools.product(seeds, [*levels(), *sizes()]):
        for method in methods:
            trial = best_trial(compared, task.name, method.name)
            assert trial is not None, f"{method.name} has no tuned value on {task.name}: run field.py first"
            yield task, method, trial, seed


def floor(task: Task, seed: int) -> float:
    """Σ regret / Σ |optimum| of E[y | x] itself on the test rows: no predictor has less on average."""
    problem = task.problem(seed)
    batch = problem.split(task.train + task.validation + task.test, seed, task.test, task.validation).test.batch()
    solver, objective, y = problem.solver(), problem.program.objective, batch.require("costs").double()
    found, best = (
        solver.solve(costs).check().decision for costs in (problem.expected_costs(batch.features).double(), y)
    )
    return float((objective(y, found) - objective(y, best)).sum() / objective(y, best).abs().sum())


def with_floors(records: list[Record], seeds: list[int]) -> list[Record]:
    """The records, and one of E[y | x] for each level and seed that has none."""
    have = {(one["problem"], one["level"], one["seed"]) for one in records if one["method"] == FLOOR}
    lacking = [
        (task, seed)
        for seed, task in itertools.product(seeds, [*levels(), *sizes()])
        if (task.name, task.level, seed) not in have
    ]
    same = {"method": FLOOR, "trial": 0.0}
    return records + [
        {"problem": task.name, "level": task.level, "seed": seed, "regret": floor(task, seed)} | same
        for task, seed in lacking
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments.add_argument("--out", type=Path, default=OUT)
    arguments.add_argument("--until", type=float, help="minutes after which no run is begun")
    arguments.add_argument("--no-run", action="store_true", help="show what is there")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    path, compared = options.out / LEVELS, read(options.out / RECORDS)
    records = read(path)
    if not options.no_run:
        records = with_floors(complete(path, lambda _: wanted(compared, options.seeds), options.until), options.seeds)
        keep(path, records)
    from field_levels_page import write

    write(records, options.out)


if __name__ == "__main__":
    main()
