"""How much the MSE baseline depends on what the paper's text leaves open: initial weights, order, reduction, optimizer.

    python benchmarks/studies/mse_sensitivity.py --problems SP-5 SP-10 SP-15 SP-25 --out results/mse_baseline/sensitivity.csv

Every variant trains on the data of seeds 1 to 5; a figure is the mean over these seeds of the test regret in the
published style.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.evaluation import Predictor, evaluate
from dflearn.problems import problem_named
from dflearn.report.render import render

SEEDS = (1, 2, 3, 4, 5)
DEFAULT_OUT = Path(__file__).resolve().parents[2] / "results" / "mse_baseline" / "sensitivity.csv"


def by_adam(
    data: DecisionDataset, seed: int, *, shuffle: bool = True, summed: bool = False, zero: bool = False
) -> Predictor:
    """25 epochs of Adam in batches of 32; `summed`: over the costs, instead of their mean; `zero`: initial weights."""
    costs = data.batch().require("costs")
    torch.manual_seed(seed)
    model = nn.Linear(data.features.shape[1], costs.shape[1])
    if zero:
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(25):
        order = torch.randperm(len(data)) if shuffle else torch.arange(len(data))
        for rows in order.split(32):
            errors = (model(data.features[rows]) - costs[rows]) ** 2
            optimizer.zero_grad()
            (errors.sum(1).mean() if summed else errors.mean()).backward()
            optimizer.step()
    return model


def least_squares(data: DecisionDataset, seed: int) -> Predictor:
    """The exact minimizer of the squared error, to which Adam is on its way."""

    def with_constant(features: Tensor) -> Tensor:
        return torch.cat([features.double(), torch.ones(len(features), 1, dtype=torch.float64)], dim=1)

    costs = data.batch().require("costs").double()
    weights = torch.linalg.lstsq(with_constant(data.features), costs).solution
    return lambda features: with_constant(features) @ weights


VARIANTS: dict[str, Callable[[DecisionDataset, int], Predictor]] = {
    "default": by_adam,
    "other weights and orders, 1": lambda data, seed: by_adam(data, seed + 100),
    "other weights and orders, 2": lambda data, seed: by_adam(data, seed + 200),
    "other weights and orders, 3": lambda data, seed: by_adam(data, seed + 300),
    "no shuffling": lambda data, seed: by_adam(data, seed, shuffle=False),
    "summed over costs": lambda data, seed: by_adam(data, seed, summed=True),
    "initial weights zero": lambda data, seed: by_adam(data, seed, zero=True),
    "exact least squares": least_squares,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--problems", nargs="+", default=["SP-5", "SP-10", "SP-15", "SP-25"], help="default: %(default)s"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="default: %(default)s")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, str | float]] = [{"variant": variant} for variant in VARIANTS]
    for name in arguments.problems:
        found: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for seed in tqdm(SEEDS, desc=name, unit="seed"):
            problem = problem_named(name, seed=seed)
            split, solver = problem.generate(2000).split(seed), problem.solver()
            test = label(split.test, solver)
            for variant, train in VARIANTS.items():
                evaluation = evaluate(train(split.train, seed), problem, test, solver, floor=False)
                found[variant].append(evaluation.published_style)
        for row in rows:
            row[name] = round(float(np.mean(found[str(row["variant"])])), 4)
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(render(list(rows[0]), [[str(value) for value in row.values()] for row in rows], "markdown"))


if __name__ == "__main__":
    main()
