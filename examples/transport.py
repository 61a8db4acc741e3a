"""Transport: lorries leave before demand is known, and what is missing in the evening goes by express.

    python examples/transport.py [--quick]

    min over w of  Σ_ij cost_ij w_ij + express Σ_j (y_j − Σ_i w_ij)₊ + back Σ_j (Σ_i w_ij − y_j)₊     s.t.  Σ_j w_ij ≤ supply_i

Demand y of each town is predicted.
"""

import numpy as np
import torch

import dflearn as dfl
from beside import data, forecasts, seeds_of

DEPOTS, TOWNS, BACK, EXPRESS, SUPPLY = 3, 6, 0.5, 9.0, 22.0
PLACES = np.random.default_rng(5).uniform(0, 3, (DEPOTS + TOWNS, 2))
COSTS = 0.5 + np.linalg.norm(PLACES[:DEPOTS, None] - PLACES[None, DEPOTS:], axis=-1)
SHARE = torch.tensor(
    (EXPRESS - COSTS.min(0)) / (EXPRESS + BACK)
)  # of a newsvendor in each town, served by the nearest depot


def transport_program() -> dfl.Program:
    program = dfl.Program(
        A=np.kron(np.ones((1, DEPOTS)), np.eye(TOWNS)), b=np.zeros(TOWNS), B=np.eye(TOWNS),  # what arrives is the demand
        G=np.kron(np.eye(DEPOTS), np.ones((1, TOWNS))), h=SUPPLY, d=COSTS.reshape(-1), S=np.zeros((DEPOTS * TOWNS, TOWNS)),
        name="transport",
    )  # fmt: skip
    return program.elastic("predicted", (BACK, EXPRESS))


def draw(seed: int) -> tuple[dfl.DecisionDataset, dfl.DecisionDataset]:
    """Demand about 10 a town, skewed, all towns together larger before holidays; 200 days to learn from, 200 to be judged on."""
    rng = np.random.default_rng(400 + seed)
    x = rng.normal(size=(400, 4))
    mean = np.maximum(9 + x @ rng.uniform(-1.5, 1.5, (4, TOWNS)), 1)
    together = rng.gamma(8, 1 / 8, (400, 1))
    return data(torch.tensor(x), torch.tensor(mean * together * rng.gamma(12, 1 / 12, mean.shape)), 200, seed)


if __name__ == "__main__":
    print(forecasts(transport_program(), draw, SHARE, seeds_of(__doc__), mu=1e-2, epochs=30, lr=0.02))
