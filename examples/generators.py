"""Generator scheduling: tomorrow's load is predicted, output follows it within ramps, errors are paid for unequally.

    python examples/generators.py [--quick]

    min over g of  Σ_t fuel g_t + ½ curve g_t² + dear (load_t − g_t)₊ + cheap (g_t − load_t)₊     s.t.  |g_t − g_{t−1}| ≤ ramp

After Donti, Amos and Kolter (2017): what is missing is bought at a high price, what is too much is lost.
"""

import numpy as np
import torch

import dflearn as dfl
from beside import data, forecasts, seeds_of

HOURS, FUEL, CURVE, RAMP, CHEAP, DEAR = 24, 1.0, 0.05, 1.0, 0.5, 8.0
SHARE = (DEAR - FUEL - CURVE * 10) / (DEAR + CHEAP)  # of a newsvendor for each hour, at a usual load of 10
DAY = 10 + 3 * np.sin(2 * np.pi * (np.arange(HOURS) - 9) / HOURS)


def generator_program() -> dfl.Program:
    steps = np.eye(HOURS)[1:] - np.eye(HOURS)[:-1]
    program = dfl.Program(
        A=np.eye(HOURS), b=np.zeros(HOURS), B=np.eye(HOURS), S=np.zeros((HOURS, HOURS)),  # output = load, which is predicted
        G=np.vstack([steps, -steps]), h=RAMP, d=np.full(HOURS, FUEL), Q=CURVE * np.eye(HOURS), name="generators",
    )  # fmt: skip
    return program.elastic("predicted", (CHEAP, DEAR))


def draw(seed: int) -> tuple[dfl.DecisionDataset, dfl.DecisionDataset]:
    """Load follows the temperature, more so and with more noise in the afternoon; 200 days to learn from, 200 to be judged on."""
    rng = np.random.default_rng(300 + seed)
    x = rng.normal(size=(400, 3))  # temperature, its change, the day before
    afternoon = np.exp(-(((np.arange(HOURS) - 15) / 4) ** 2))
    errors = np.cumsum(rng.normal(size=(400, HOURS)), axis=1) / np.sqrt(HOURS)
    load = DAY + x[:, :1] * (0.5 + afternoon) + 0.3 * x[:, 1:2] + 0.5 * x[:, 2:] + (0.3 + 1.5 * afternoon) * errors
    return data(torch.tensor(x), torch.tensor(load), 200, seed)


if __name__ == "__main__":
    print(forecasts(generator_program(), draw, SHARE, seeds_of(__doc__), mu=1e-3, epochs=30, lr=0.01))
