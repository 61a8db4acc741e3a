"""The picture of docs/get-started/tutorial.md: hours on two roads, as they are and as two trainings see them.

python examples/tutorial_picture.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import dflearn as dfl
from beside import picture
from dflearn.data import DecisionDataset
from dflearn.report.style import INK, LINE, SILVER, color_of

PICTURE = Path("docs/images/tutorial.png")


def expected_hours(x: np.ndarray) -> np.ndarray:
    """On the motorway and in the city."""
    return np.hstack([np.full_like(x, 2.0), 1 + 0.02 * np.exp(2 * x)])


def mornings(count: int, seed: int) -> DecisionDataset:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 3, (count, 1))
    hours = expected_hours(x) * rng.uniform(0.8, 1.2, (count, 2))
    return DecisionDataset(torch.tensor(x).float(), torch.tensor(hours).float())


def draw(figure: Figure, train: DecisionDataset, models: dict[str, torch.nn.Module]) -> None:
    """Predictions for the city, less those for the motorway, plus two: where they cross two hours, the decision changes."""
    axes: Axes = figure.subplots()
    x, hours = train.features.numpy(), train.costs[:, 1].numpy()
    axes.plot(x, hours, ".", color=SILVER, markersize=4, label="mornings in the city")
    x = np.linspace(0, 3, 1000)[:, None]
    motorway, city = expected_hours(x).T
    axes.plot(x, motorway, color=INK, label="motorway, expected")
    axes.plot(x, city, "--", color=INK, label="city, expected")
    for name, model in models.items():
        seen = model(torch.tensor(x).float()).detach().numpy()
        level = seen[:, 1] - seen[:, 0] + 2
        axes.plot(x, level, color=color_of(name), linewidth=2.2, label=f"city, as {name} sees it")
        if name == "two-stage":
            wrong = x[(level > 2) != (city > 2)]
            axes.axvspan(wrong.min(), wrong.max(), color=LINE, alpha=0.7, label="two-stage decides wrongly")
    axes.set(xlabel="traffic forecast x", ylabel="hours", xlim=(0, 3), ylim=(0, 8))
    axes.legend(frameon=False, loc="upper left")


if __name__ == "__main__":
    solver = dfl.HiGHS(dfl.Program(A=[[1, 1]], b=[1], upper=1, name="two roads"))
    train = dfl.label(mornings(400, 0), solver)
    models: dict[str, torch.nn.Module] = {}
    for name, loss in {"two-stage": dfl.losses.MSE(), "SPO+": dfl.losses.SPOPlus(dfl.Exact(solver))}.items():
        models[name] = dfl.models.Linear(1, 2)
        dfl.fit(models[name], loss, train, epochs=30, lr=0.05, progress=False)
    picture(PICTURE, (7.2, 3.4), draw, train, models)
