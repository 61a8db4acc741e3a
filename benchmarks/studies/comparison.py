"""Surrogate losses compared on equal terms: one grid, one budget, the smoothing chosen on validation regret.

    python benchmarks/studies/comparison.py --problems SP-5 SP-10 KP-100 CFL-50 --seeds 1 2 3 4 5 --out results/comparison

Every method trains the same linear model on the same 800 instances in the paper's setting (Adam, learning rate 0.005,
batches of 32, 25 epochs, last weights). A method with a parameter (μ, σ or a step) trains once for each value of the grid,
relative to the mean size of the costs, and keeps the value with the least regret on the 200 validation instances; the
1000 test instances are looked at once. Each finished (problem, seed, method) is a line of runs.jsonl and is not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from dflearn.data import DecisionDataset
from dflearn.data.cache import default_cache
from dflearn.data.labels import label
from dflearn.evaluation import evaluate
from dflearn.layers import DavisYin, Exact, Perturbed, Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, SmoothedSPOPlus, SPOPlus
from dflearn.losses.base import Loss
from dflearn.paper.as_published import AsPublished
from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from dflearn.solvers.base import Solver
from dflearn.training import fit
from harness import parser, provenance, table

PROBLEMS = ["SP-5", "SP-10", "KP-100", "CFL-50"]
GRID = (0.03, 0.1, 0.3, 1.0, 3.0)  # times the mean size of the costs c = S y + d
SETTINGS = {"points": 2000, "test": 1000, "validation": 0.2, "epochs": 25, "batch": 32, "lr": 0.005, "grid": GRID}
# τ as printed in the paper's table of hyperparameters; the step is 0.01, the iterations are 100.
PUBLISHED_TAU = {"SP-5": 0.0, "SP-10": 1.0, "KP-100": 1.0, "CFL-50": 0.1}


@dataclass(frozen=True)
class Method:
    """A loss of the problem, the value from the grid, the mean size of the costs, and the seed.

    Attributes:
        tuned: whether there is a parameter to choose.
        relaxed_labels: the paper's code trains its DYS layers for the knapsack on decisions of the LP relaxation.
    """

    make: Callable[[Problem, float, float, int], Loss]
    tuned: bool = True
    relaxed_labels: bool = False


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


METHODS = {
    "MSE": Method(lambda problem, value, scale, seed: MSE(), tuned=False),
    "SPO+": Method(lambda problem, value, scale, seed: SPOPlus(Exact(problem.relaxed_solver())), tuned=False),
    # σ = value · scale
    "PFY": Method(
        lambda problem, value, scale, seed: FenchelYoung(
            Perturbed(problem.relaxed_solver(), value * scale, 1, generator(seed))
        )
    ),
    "SCE^DYS as published": Method(
        lambda problem, value, scale, seed: SCE(
            AsPublished(problem, PUBLISHED_TAU[problem.name], generator=generator(seed))
        ),
        tuned=False,
        relaxed_labels=True,
    ),
    # 100 iterations from zero without smoothing: all the smoothing is early stopping, step = 0.1 · value / scale
    "SCE^DYS": Method(
        lambda problem, value, scale, seed: SCE(
            DavisYin(problem.program, mu=0.0, step=0.1 * value / scale, gradient="unrolled")
        )
    ),
    # μ = value · scale
    "SCE^smoothed": Method(lambda problem, value, scale, seed: SCE(Smoothed(problem.program, value * scale))),
    "sSPO+": Method(lambda problem, value, scale, seed: SmoothedSPOPlus(Smoothed(problem.program, value * scale))),
}


def judge(problem: Problem, gurobi: bool) -> Solver:
    """What labels and judges: the problem's own exact solver, or Gurobi where asked and needed."""
    if gurobi and problem.program.is_integer:
        from dflearn.solvers.gurobi import Gurobi

        return Gurobi(problem.program)
    return problem.solver()


def trained(problem: Problem, loss: Loss, train: DecisionDataset, seed: int) -> tuple[nn.Module, float]:
    """The model of the last epoch, and the seconds it took."""
    torch.manual_seed(seed)
    model = nn.Linear(train.features.shape[1], problem.program.p)
    begun = time.process_time()
    fit(
        model, loss, train, epochs=SETTINGS["epochs"], batch_size=SETTINGS["batch"], lr=SETTINGS["lr"], seed=seed,
        progress=False,
    )  # fmt: skip
    return model, time.process_time() - begun


def run(name: str, seed: int, method: str, cache: Path, gurobi: bool) -> dict[str, Any]:
    """One line of runs.jsonl."""
    problem = problem_named(name, seed=seed)
    solver = judge(problem, gurobi)
    data = problem.generate(SETTINGS["points"])
    split = label(data, solver, cache=cache).split(seed, SETTINGS["test"], SETTINGS["validation"])
    train = split.train
    if METHODS[method].relaxed_labels and name.startswith("KP"):
        train = label(train, problem.relaxed_solver())
    assert train.costs is not None
    scale = float(problem.program.objective.vector(train.costs).abs().mean())
    chosen, tried = None, []
    for value in GRID if METHODS[method].tuned else (0.0,):
        loss = METHODS[method].make(problem, value, scale, seed)
        model, seconds = trained(problem, loss, train, seed)
        regret = float("nan")
        if METHODS[method].tuned:
            regret = evaluate(
                model, problem, split.validation, solver, cache=cache, progress=False, floor=False
            ).absolute_regret
        tried.append({"value": value, "validation_regret": regret, "seconds_per_epoch": seconds / SETTINGS["epochs"]})
        if chosen is None or regret < chosen[0]:
            chosen = (regret, value, model, seconds)
    assert chosen is not None
    evaluation = evaluate(chosen[2], problem, split.test, solver, cache=cache, progress=False)
    return {
        "problem": name,
        "seed": seed,
        "method": method,
        "settings": {**SETTINGS, "grid": list(GRID)},
        "solver": solver.identity,
        "scale": scale,
        "value": chosen[1] if METHODS[method].tuned else None,
        "at_edge": METHODS[method].tuned and chosen[1] in (GRID[0], GRID[-1]),
        "seconds_per_epoch": chosen[3] / SETTINGS["epochs"],
        "tried": tried,
        "evaluation": evaluation.as_dict(),
        "regret": [round(float(r), 7) for r in evaluation.regrets],
        "optimum": [round(float(r), 7) for r in np.abs(evaluation.optima)],
        **provenance(),
    }


def read(path: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Finished runs in these settings; a last line that an interruption cut short is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["settings"] == {**SETTINGS, "grid": list(GRID)}:
            found[row["problem"], row["seed"], row["method"]] = row
    return found


def summary(found: dict[tuple[str, int, str], dict[str, Any]], baseline: str = "SPO+") -> str:
    """Per problem and method: mean of ratios over seeds, and the paired difference to the baseline with its interval.

    The interval is of the mean over all test instances of all seeds, paired by instance: 1.96 standard errors.
    """
    text = ""
    for problem in dict.fromkeys(key[0] for key in found):
        rows = []
        for method in METHODS:
            runs = [row for (name, _, other), row in sorted(found.items()) if (name, other) == (problem, method)]
            if not runs:
                continue
            ratios = {run["seed"]: np.array(run["regret"]) / np.array(run["optimum"]) for run in runs}
            row: dict[str, Any] = {
                "method": method,
                "seeds": len(runs),
                "mean of ratios": f"{np.mean([r.mean() for r in ratios.values()]):.4f} ± "
                f"{np.std([r.mean() for r in ratios.values()]):.4f}",
                "published style": float(
                    np.mean([run["evaluation"]["metrics"]["published_style"]["value"] for run in runs])
                ),
                "seconds per epoch": float(np.mean([run["seconds_per_epoch"] for run in runs])),
                "chosen": " ".join(str(run["value"]) for run in runs if run["value"] is not None),
            }
            pairs = [
                ratios[seed] - np.array(other["regret"]) / np.array(other["optimum"])
                for seed in ratios
                if (other := found.get((problem, seed, baseline))) is not None
            ]
            if pairs and method != baseline:
                difference = np.concatenate(pairs)
                error = 1.96 * difference.std(ddof=1) / np.sqrt(difference.size)
                row[f"less {baseline}"] = f"{difference.mean():+.4f} ± {error:.4f}"
            rows.append(row)
        text += f"\n## {problem}\n\n{table(rows)}\n"
    return text


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--problems", nargs="+", default=PROBLEMS)
    arguments.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    arguments.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    arguments.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "results" / "comparison")
    arguments.add_argument("--gurobi", action="store_true", help="label and judge integer programs by Gurobi (faster)")
    arguments.add_argument("--cache", type=Path, default=default_cache())
    options = arguments.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.jsonl"
    wanted = [(name, seed, method) for name in options.problems for seed in options.seeds for method in options.methods]
    for key in (bar := tqdm([key for key in wanted if key not in read(path)], unit="run")):
        bar.set_description(" ".join(map(str, key)))
        line = json.dumps(run(*key, options.cache, options.gurobi))
        with open(path, "a") as file:
            file.write(line + "\n")
    text = summary(read(path))
    (options.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
