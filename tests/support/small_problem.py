"""A small knapsack with labelled data, for tests of training: learnable, but with noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from dflearn.data import DecisionDataset
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS

ITEMS, FEATURES = 6, 3
PROGRAM = Program(G=np.array([[3.0, 4, 2, 5, 3, 4]]), h=[9], upper=1, S=-np.eye(ITEMS), integer=True, sense="maximize")
RELAXED = PROGRAM.relax()
POINTS = np.array(
    [w for w in product([0.0, 1.0], repeat=ITEMS) if (PROGRAM.G @ w <= PROGRAM.h).all()]
)  # all feasible ones


def knapsack_data(count: int, seed: int, solver: HiGHS | None = None) -> DecisionDataset:
    """Values that are a noisy polynomial of the features, with the best decisions of all (or those of `solver`)."""
    truth = np.random.RandomState(0).binomial(1, 0.5, (FEATURES, ITEMS))
    rng = np.random.RandomState(seed)
    x = rng.normal(size=(count, FEATURES))
    y = (x @ truth / np.sqrt(FEATURES) + 3) ** 3 / 9 * rng.uniform(0.8, 1.2, (count, ITEMS))
    costs = torch.tensor(y, dtype=torch.float32)
    best = torch.tensor(POINTS[(costs.double().numpy() @ POINTS.T).argmax(1)], dtype=torch.float32)
    decisions = best if solver is None else solver.solve(costs).check().decision
    return DecisionDataset(torch.tensor(x, dtype=torch.float32), costs, decisions)
