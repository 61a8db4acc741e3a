"""Newsvendors with one shelf: demand of five goods is predicted, orders share the room.

    python examples/newsvendor.py [--quick]

    min over orders w of  Σ_j cost w_j + left (w_j − y_j)₊ + missed (y_j − w_j)₊     s.t.  Σ w ≤ room,   w ≥ 0

Without the shelf, the best order is a quantile of demand: at the share (missed − cost) / (missed + left).
"""

import numpy as np
import torch

import dflearn as dfl
from beside import data, forecasts, seeds_of

GOODS, COST = 5, 1.0
LEFT, MISSED = 0.2, np.array([2.0, 3.0, 4.0, 6.0, 9.0])
SHARE = (MISSED - COST) / (MISSED + LEFT)  # 0.45 to 0.87


def newsvendor_program(room: float) -> dfl.Program:
    """The row w = y may be broken at a price, once demand is known."""
    program = dfl.Program(
        A=np.eye(GOODS), b=np.zeros(GOODS), B=np.eye(GOODS), S=np.zeros((GOODS, GOODS)), d=np.full(GOODS, COST),
        G=np.ones((1, GOODS)), h=[room], name=f"newsvendor, room {room:g}",
    )  # fmt: skip
    return program.elastic("predicted", [(LEFT, missed) for missed in MISSED])


def draw(seed: int) -> tuple[dfl.DecisionDataset, dfl.DecisionDataset]:
    """Demand has a linear mean, and a spread that grows with a feature: 300 days to learn from, 500 to be judged on."""
    rng = np.random.default_rng(200 + seed)
    x = rng.uniform(-1, 1, (800, 4))
    mean = 10 + x @ rng.uniform(-2, 2, (4, GOODS))
    spread = 1 + 3 * (x[:, :1] + 1) / 2
    return data(torch.tensor(x), torch.tensor(np.maximum(mean + spread * rng.gumbel(size=mean.shape), 0)), 300, seed)


if __name__ == "__main__":
    seeds = seeds_of(__doc__)
    for program in map(newsvendor_program, (200.0, 55.0)):
        shown = forecasts(program, draw, torch.tensor(SHARE), seeds, mu=1e-3, epochs=40, lr=0.02)
        print(f"{program.name}\n{shown}\n")
