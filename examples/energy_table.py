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

from dflearn.data import Split
from dflearn.data.cache import default_cache
from dflearn.evaluation import estimates
from dflearn.problems.energy import EnergyDays, EnergyKnapsack, load_energy_days
from dflearn.problems.scheduling import Scheduling
from dflearn.solvers.base import Solver
from energy_knapsack import COLORS, INK, prepare as prepare_knapsack
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


Found = dict[Key, dict[str, Any]]


def difference(found: Found, problem: str, seeds: list[int], method: str) -> estimates.Estimate:
    """Σ (regret of two-stage − regret of `method`) / Σ optimum over the test days of all seeds, with its 95 % interval.

    The interval is over days. One that several seeds test counts as one day, with all its regrets and optima.
    """
    base, own = ([found[problem, seed, name] for seed in seeds] for name in (METHODS[0], method))
    for one, other in zip(base, own, strict=True):
        assert one["ids"] == other["ids"], f"{problem}: methods were tested on different days"
    days = np.unique(np.concatenate([run["ids"] for run in own]), return_inverse=True)[1]
    saved = np.concatenate([run["regret"] for run in base]) - np.concatenate([run["regret"] for run in own])
    optimum = np.concatenate([run["optimum"] for run in own])
    return estimates.ratio_of_sums(np.bincount(days, saved), np.bincount(days, optimum), 0.95)


def complete(found: Found) -> dict[str, list[int]]:
    """The problems whose seeds are all done, and these seeds; the rest comes with the next call."""
    problems = dict.fromkeys(key[0] for key in found)
    seeds = {problem: sorted({key[1] for key in found if key[0] == problem}) for problem in problems}
    return {
        problem: own for problem, own in seeds.items() if all((problem, seed, m) in found for seed in own for m in METHODS)
    }  # fmt: skip


def summary(found: Found) -> str:
    """A table of all problems and methods, then for each problem the regret by seed and the μ that was chosen."""
    overview = ["| | " + " | ".join(METHODS) + " |", "|---" * (1 + len(METHODS)) + "|"]
    details = ""
    for problem, seeds in complete(found).items():
        cells = []
        details += f"\n## {problem}\n\n| method | by seed | μ | epoch |\n|---|---|---|---|\n"
        for method in METHODS:
            runs = [found[problem, seed, method] for seed in seeds]
            regret, optimum = (sum(sum(run[name]) for run in runs) for name in ("regret", "optimum"))
            less, low, _ = difference(found, problem, seeds, method)
            cells.append(f"{regret / optimum:.2%}" + f" ({less:.2%} ± {less - low:.2%})" * (method != METHODS[0]))
            by_seed = " ".join(f"{sum(run['regret']) / sum(run['optimum']):.2%}" for run in runs)
            mu = " ".join(str(run["mu"]) for run in runs if run["mu"] is not None)
            details += f"| {method} | {by_seed} | {mu} | {' '.join(str(run['epoch']) for run in runs)} |\n"
        overview.append(f"| {problem} | {' | '.join(cells)} |")
    return "\n".join(overview) + "\n" + details


def draw(path: Path, found: Found) -> None:
    """How much less regret than two-stage, as a share of two-stage's own regret, for each problem and method."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    problems = complete(found)
    figure = Figure(figsize=(8, 0.8 + 0.6 * len(problems)), layout="constrained")
    axes = figure.subplots()
    for shift, method in enumerate(METHODS[1:]):
        for place, (problem, seeds) in enumerate(problems.items()):
            runs = [found[problem, seed, METHODS[0]] for seed in seeds]
            whole = sum(sum(run["regret"]) for run in runs) / sum(sum(run["optimum"]) for run in runs)
            value, low, high = (part / whole for part in difference(found, problem, seeds, method))
            axes.errorbar(
                value, place + 0.2 * (shift - 1), xerr=[[value - low], [high - value]], color=COLORS[method], fmt="o",
                capsize=3, label=method if place == 0 else None,
            )  # fmt: skip
    axes.set_yticks(range(len(problems)), problems)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xlabel("share of two-stage's regret that is saved, with its 95 % interval over test days")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    print(f"plot: {path}")


HEADING = """# Energy: {days} {kind} days, seeds {seeds}

`python examples/energy_table.py --data energy_days.npz --instances schedule_load1.txt --out results/energy`

Σ regret / Σ optimum on the test days of all seeds; in brackets, how much less that is than two-stage, with its 95 %
interval over days. Days are paired. The seeds draw their test days from the same {days} days, so that a day may be tested
more than once; it counts as one.

"""


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
    heading = HEADING.format(
        days=len(days), kind="synthetic" if days.is_synthetic else "real", seeds=", ".join(map(str, options.seeds))
    )
    (options.out / "table.md").write_text(heading + text)
    try:
        draw(options.out / "saved.png", read(path, settings, *KEY))
    except ModuleNotFoundError as error:
        print(f"no plot: {error}")
    print(text)


if __name__ == "__main__":
    main()
