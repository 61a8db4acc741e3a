"""The MSE baseline in the paper's setting: its test regret by every definition, beside the published figure.

    python benchmarks/studies/mse_baseline.py --problems SP-5 KP-100 --seeds 1 2 3 4 5 --out results/mse_baseline

Every finished (problem, seed) is one line of runs.jsonl in the output folder and is not run again. At the end
comparison.csv, and the table in README.md where there is one, are written from those lines.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from dflearn.data import DecisionDataset, collate
from dflearn.data.cache import default_cache
from dflearn.evaluation import evaluate
from dflearn.problems import problem_named
from dflearn.solvers.gurobi import Gurobi
from harness import provenance, table

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = ["SP-5", "SP-10", "SP-15", "SP-25", "KP-100", "KP-200", "CFL-50", "CFL-100"]
SETTINGS = {"points": 2000, "test": 1000, "validation": 0.2, "epochs": 25, "batch": 32, "learning_rate": 0.005}
METRICS = ["published_style", "mean_of_ratios", "ratio_of_sums", "mse", "floor_ratio_of_sums"]


def train(data: DecisionDataset, costs: int, seed: int) -> nn.Linear:
    """Linear(k, p) by Adam on the squared error, averaged over instances and costs; the weights of the last epoch."""
    torch.manual_seed(seed)
    model = nn.Linear(data.features.shape[1], costs)
    optimizer = torch.optim.Adam(model.parameters(), lr=SETTINGS["learning_rate"])
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(data, SETTINGS["batch"], shuffle=True, generator=order, collate_fn=collate)
    for _ in range(SETTINGS["epochs"]):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(batch.features), batch.require("costs")).backward()
            optimizer.step()
    return model


def run(name: str, seed: int, cache: Path, gurobi: bool) -> dict[str, Any]:
    """One line of runs.jsonl."""
    problem = problem_named(name, seed=seed)
    split = problem.generate(SETTINGS["points"]).split(seed, SETTINGS["test"], SETTINGS["validation"])
    begun = time.perf_counter()
    model = train(split.train, problem.program.p, seed)
    trained = time.perf_counter()
    solver = Gurobi(problem.program) if gurobi else problem.solver()
    evaluation = evaluate(model, problem, split.test, solver, cache=cache)
    return {
        "problem": name,
        "seed": seed,
        "settings": SETTINGS,
        "configuration": asdict(problem),
        "program": problem.program.fingerprint,
        "train_seconds": round(trained - begun, 3),
        "evaluate_seconds": round(time.perf_counter() - trained, 3),
        "evaluation": evaluation.as_dict(),
        **provenance(),
    }


def read(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The finished runs in these settings; a last line that an interruption cut short is left out."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["settings"] == SETTINGS:
            found[row["problem"], row["seed"]] = row
    return found


def compare(rows: list[dict[str, Any]], published: dict[str, float]) -> list[dict[str, Any]]:
    """One row per problem: the mean over seeds of each metric, and how far the published figure is."""
    compared = []
    for name in dict.fromkeys(row["problem"] for row in rows):
        runs = [row["evaluation"]["metrics"] for row in rows if row["problem"] == name]
        solvers = {row["evaluation"]["solver"].split(" time_limit")[0] for row in rows if row["problem"] == name}
        means = {metric: float(np.mean([run[metric]["value"] for run in runs])) for metric in METRICS}
        styles = [run["published_style"]["value"] for run in runs]
        compared.append(
            {
                "problem": name,
                "seeds": len(runs),
                "solver": ", ".join(sorted(solvers)),
                "published": published.get(name, float("nan")),
                **{metric: round(value, 4) for metric, value in means.items()},
                "least_seed": round(min(styles), 4),
                "largest_seed": round(max(styles), 4),
                "difference": round(means["published_style"] - published.get(name, float("nan")), 4),
            }
        )
    return compared


def write(rows: list[dict[str, Any]], folder: Path) -> str:
    """comparison.csv, and the same as Markdown, which also replaces the table of README.md."""
    with open(folder / "comparison.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = table(rows)
    readme = folder / "README.md"
    if readme.exists():
        block = f"<!-- table -->\n{text}\n<!-- end -->"
        readme.write_text(re.sub(r"<!-- table -->.*<!-- end -->", lambda _: block, readme.read_text(), flags=re.S))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, help="names such as SP-5 (default: %(default)s)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mse_baseline", help="default: %(default)s")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where solves are kept: %(default)s")
    parser.add_argument("--gurobi", action="store_true", help="judge with Gurobi, not with the problem's own solver")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "runs.jsonl"
    wanted = [(name, seed) for name in arguments.problems for seed in arguments.seeds]
    missing = [key for key in wanted if key not in read(path)]
    for name, seed in (bar := tqdm(missing, unit="run", disable=not missing)):
        bar.set_description(f"{name} seed {seed}")
        line = json.dumps(run(name, seed, arguments.cache, arguments.gurobi), sort_keys=True)
        cut_short = path.exists() and not path.read_bytes().endswith(b"\n")
        with open(path, "a") as file:
            file.write("\n" * cut_short + line + "\n")
    found = read(path)
    with open(ROOT / "results" / "mse_baseline" / "published.csv") as file:
        published = {row["problem"]: float(row["published"]) for row in csv.DictReader(file)}
    print(write(compare([found[key] for key in wanted], published), arguments.out))


if __name__ == "__main__":
    main()
