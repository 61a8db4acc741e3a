"""PyEPO as a contender, on Gurobi, on OR-Tools or on MPAX.

    run_pyepo.py epochs DATA "SPO+, Gurobi"     one epoch of the plain training loop a turn
    run_pyepo.py labels DATA Gurobi             `optDataset` of all instances

Knapsacks are relaxed (`.relax()`) in training; MPAX has relaxations alone, in float32, at PyEPO's settings. Solvers use the threads of
everyone else; above one, PyEPO's processes do.
"""

import io
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import pyepo
import torch
from torch import nn
from turns import Turns, run, threads


def model_of(data: Any, solver: str) -> Any:
    backend = {"Gurobi": pyepo.model.grb, "OR-Tools": pyepo.model.ort, "MPAX": pyepo.model.mpax}[solver]
    if str(data["problem"]).startswith("SP"):
        model = backend.shortestPathModel(tuple(int(side) for side in data["grid"]))
    else:
        model = backend.knapsackModel(data["weights"], data["capacity"])
        model = model if solver == "MPAX" else model.relax()
    if solver == "Gurobi":
        model._model.Params.Threads = 1  # for several threads PyEPO has processes
    return model


def epochs(data: Any, turns: Turns, method: str) -> None:
    name, solver = method.split(", ")
    optimization = model_of(data, solver)
    if name == "SPO+":
        loss = pyepo.func.SPOPlus(optimization, processes=threads())
    else:
        loss = pyepo.func.perturbedFenchelYoung(optimization, n_samples=1, sigma=1.0, processes=threads(), seed=135)
    features, costs, decisions = (torch.tensor(data[part]) for part in ("features", "costs", "decisions"))
    values = (costs * decisions).sum(1, keepdim=True)
    model = nn.Linear(features.shape[1], costs.shape[1])
    model.load_state_dict({part: torch.tensor(data[part]) for part in ("weight", "bias")})
    optimizer = torch.optim.Adam(model.parameters(), lr=float(data["lr"]))
    generator = torch.Generator().manual_seed(int(data["seed"]))
    while True:
        turns.begin()
        total = 0.0
        for rows in torch.randperm(len(features), generator=generator).split(int(data["batch"])):
            predicted = model(features[rows])
            known = (costs[rows], decisions[rows], values[rows]) if name == "SPO+" else (decisions[rows],)
            value = loss(predicted, *known)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            total += value.item() * len(rows)
        found = {part: tensor.detach().numpy() for part, tensor in model.state_dict().items()}
        turns.end(loss=np.array(total / len(features)), **found)


def labels(data: Any, turns: Turns, solver: str) -> None:
    optimization = model_of(data, solver)

    def call() -> dict[str, np.ndarray]:
        with redirect_stderr(io.StringIO()):  # its progress bar
            found = pyepo.data.dataset.optDataset(optimization, data["features"], data["costs"])
        return {"decisions": found.sols.numpy()}

    turns.serve(call)


if __name__ == "__main__":
    run({"epochs": epochs, "labels": labels})
