"""`DecisionFocusedRegressor`, with no option touched, beside ridge on the fresh problems with known costs: results/default/estimator.json.

    python benchmarks/studies/default_estimator.py

Each run is written when it is done, and not repeated. The rows are those of default.toml: training and validation rows are one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fresh_problems  # noqa: F401  (registers the problems)
from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.evaluation import evaluate
from dflearn.problems import problem_named
from dflearn.tables import DecisionFocusedRegressor

OUT = Path(__file__).resolve().parents[2] / "results" / "default" / "estimator.json"
SEEDS = (1, 2, 3, 4, 5)
PROBLEMS = [f"fresh-{name}" for name in ("freight", "treasury", "reservoir", "paper", "coldstore", "pumping")]


def ridge(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Of the strength with the least leave-one-out error; one map for all costs, where they have features each."""
    flat = [part.reshape(-1, part.shape[-1]) for part in (x, new)]
    targets = y.reshape(len(flat[0]), -1)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-4, 4, 25))).fit(flat[0], targets)
    return np.reshape(model.predict(flat[1]), (len(new), -1))


def run(name: str, seed: int) -> dict[str, float]:
    problem = problem_named(name, seed=seed)
    parts = problem.split(380, seed, 80, 60)
    x, y = (
        np.concatenate([getattr(part, kind).double().numpy() for part in parts[:2]]) for kind in ("features", "costs")
    )
    test = DecisionDataset(parts.test.features.double(), parts.test.batch().require("costs").double())
    test = label(test, problem.solver(), progress=False)
    regressor = DecisionFocusedRegressor(problem).fit(x, y)
    forecasts = {"estimator": regressor.predict(test.features.numpy()), "ridge": ridge(x, y, test.features.numpy())}
    found = {
        who: evaluate(torch.tensor(forecast), problem, test, progress=False).ratio_of_sums
        for who, forecast in forecasts.items()
    }
    return found | {"epoch": regressor.epoch_}


if __name__ == "__main__":
    torch.set_num_threads(1)
    done = json.loads(OUT.read_text()) if OUT.exists() else {}
    for seed in SEEDS:
        for name in PROBLEMS:
            if f"{name} {seed}" not in done:
                done[f"{name} {seed}"] = run(name, seed)
                OUT.write_text(json.dumps(done, indent=1) + "\n")
                print(name, seed, done[f"{name} {seed}"], flush=True)
