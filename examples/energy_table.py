"""The energy table: both energy examples over several seeds, one line of runs.jsonl per problem, seed and method.

    python examples/energy_table.py --data energy_days.npz --instances schedule_load1.txt --out results/energy

What is in runs.jsonl already is not run again, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dflearn import estimates
from dflearn.data import Split
from dflearn.labels import default_cache
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, load_energy_days
from dflearn.problems.scheduling import Scheduling
from dflearn.solvers.base import Solver
from energy_knapsack import prepare as prepare_knapsack
from energy_methods import GRID, METHODS, SETTINGS, judge
from energy_scheduling import prepare as prepare_scheduling
from rows import append, read

KEY = ("problem", "seed", "method")
Key = tuple[str, int, str]


def digest(days: EnergyDays) -> str:
    """Which days these are, wherever their file lies."""
    arrays = (days.features, days.values, days.weights)
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def name_of(problem: EnergyKnapsack | Scheduling) -> str:
    return f"{problem.program.name}, {problem.predict}" if isinstance(problem, EnergyKnapsack) else problem.name


def prepare(
    days: EnergyDays, problem: EnergyKnapsack | Scheduling, seed: int, cache: Path
) -> tuple[Split, float, Solver]:
    if isinstance(problem, EnergyKnapsack):
        return *prepare_knapsack(days, problem, seed), problem.solver()
    return *prepare_scheduling(days, problem, seed, cache), problem.relaxed_solver()


def summary(found: dict[Key, dict[str, Any]]) -> str:
    """Per problem and method: Σ regret / Σ optimum of each seed and in all, and the difference to two-stage by day.

    The interval pairs the test days of all seeds; a day that several seeds test counts as often.
    """
    text = ""
    for problem in dict.fromkeys(key[0] for key in found):
        seeds = sorted({key[1] for key in found if key[0] == problem})
        text += f"\n## {problem}\n\n| method | Σ regret / Σ optimum | by seed | less than two-stage, 95 % | μ |\n|---|---|---|---|---|\n"
        for method in METHODS:
            runs = [found[problem, seed, method] for seed in seeds if (problem, seed, method) in found]
            if not runs:
                continue
            regret, optimum = (np.concatenate([run[name] for run in runs]) for name in ("regret", "optimum"))
            by_seed = " ".join(f"{sum(run['regret']) / sum(run['optimum']):.2%}" for run in runs)
            pairs = [found.get((problem, run["seed"], METHODS[0])) for run in runs]
            less = ""
            if method != METHODS[0] and all(pairs):
                base = np.concatenate([pair["regret"] for pair in pairs if pair is not None])
                less = "{:.2%} [{:.2%}, {:.2%}]".format(*estimates.ratio_of_sums(base - regret, optimum, 0.95))
            mu = " ".join(str(run["mu"]) for run in runs if run["mu"] is not None)
            text += f"| {method} | {regret.sum() / optimum.sum():.2%} | {by_seed} | {less} | {mu} |\n"
    return text


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--data", type=Path, help="file of real days (default: $DFLEARN_ENERGY, else synthetic ones)"
    )
    arguments.add_argument("--instances", nargs="*", type=Path, default=[], help="scheduling instances")
    arguments.add_argument("--capacities", nargs="*", type=int, default=[60, 120, 180])
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    arguments.add_argument("--epochs", type=int, default=SETTINGS["epochs"])
    arguments.add_argument("--days", type=int, default=789, help="how many, where they are synthetic")
    arguments.add_argument("--out", type=Path, default=Path("results/energy"))
    arguments.add_argument("--cache", type=Path, default=default_cache())
    arguments.add_argument(
        "--quick", action="store_true", help="one capacity, one seed, 60 synthetic days (or the file), 2 epochs"
    )
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.capacities, options.seeds, options.days, options.epochs = [60], [1], 60, 2
    days = load_energy_days(options.data, days=options.days)
    print(days)
    weights = tuple(days.weights.tolist())
    problems: list[EnergyKnapsack | Scheduling] = [
        EnergyKnapsack(weights, capacity, predict) for predict in ("value", "price") for capacity in options.capacities
    ]
    problems += [Scheduling.read(path) for path in options.instances]
    settings = {
        **SETTINGS, "epochs": options.epochs, "grid": list(GRID), "days": len(days), "synthetic": days.is_synthetic,
        "digest": digest(days),
    }  # fmt: skip
    path = options.out / "runs.jsonl"
    for problem in problems:
        for seed in options.seeds:
            name, done = name_of(problem), read(path, settings, *KEY)
            missing = [method for method in METHODS if (name, seed, method) not in done]
            if not missing:
                continue
            split, unit, validator = prepare(days, problem, seed, options.cache)
            for method in missing:
                found = judge(
                    method, problem, split, seed=seed, validator=validator, epochs=options.epochs, cache=options.cache
                )
                row = {
                    "problem": name, "seed": seed, "method": method, "program": repr(problem.program),
                    "settings": settings, "mu": found.mu, "epoch": found.epoch, "seconds": round(found.seconds, 2),
                    "unit": unit, "metrics": found.evaluation.as_dict()["metrics"], "solver": found.evaluation.solver,
                    "ids": found.evaluation.ids.tolist(),
                    "regret": [round(float(value) * unit, 3) for value in found.evaluation.regrets],
                    "optimum": [round(float(value) * unit, 3) for value in np.abs(found.evaluation.optima)],
                }  # fmt: skip
                append(path, row)
                print(f"{name}, seed {seed}, {method}: {found.evaluation.ratio_of_sums:.2%}", flush=True)
    text = summary(read(path, settings, *KEY))
    (options.out / "table.md").write_text(f"# Energy: {len(days)} days, seeds {options.seeds}\n{text}")
    print(text)


if __name__ == "__main__":
    main()
