"""A run of `fit` whose curves are kept by MLflow, in a plain folder.

python examples/tracked_run.py [runs]
"""

import sys
from pathlib import Path

import torch

import dflearn as dfl
from dflearn.integrations.mlflow import MLflowCallback
from dflearn.layers import Smoothed
from dflearn.losses import SCE
from dflearn.models import Linear
from dflearn.problems import ShortestPath


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
    problem = ShortestPath(5, 5, seed=1)
    data = dfl.label(problem.generate(300), problem.solver())
    split = data.split(seed=1, test=100, validation=0.2)
    torch.manual_seed(1)
    model = Linear(data.features.shape[-1], problem.program.p)
    loss = SCE(Smoothed(problem.program, mu=1.0))
    tracker = MLflowCallback(folder, experiment="shortest path", name="SCE")
    dfl.fit(
        model, loss, split.train, validation=split.validation, problem=problem, epochs=10, seed=1, callbacks=[tracker]
    )
    for curve in sorted(folder.glob("*/*/metrics/validation_*")):
        points = [line.split() for line in curve.read_text().splitlines()]  # time, value, epoch
        print(f"{curve}: " + ", ".join(f"{float(value):.3g}" for _, value, _ in points))


if __name__ == "__main__":
    main()
