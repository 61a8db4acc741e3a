"""Unit commitment: which units run tomorrow, and at what output, before the load is known; errors are balanced at a price.

    python examples/commitment.py [--quick]

    min over (on, start, g) of  Σ_it fixed_i on_it + begin_i start_it + fuel_i g_it + balancing
        s.t.  least_i on_it ≤ g_it ≤ most_i on_it,   start_it ≥ on_it − on_i,t−1,   Σ_i g_it = load_t up to balancing,   on_it ∈ {0, 1}

Load is predicted. Training goes through the relaxation; labels, decisions and the test are those of the integer program.
"""

import numpy as np
import torch

import dflearn as dfl
from beside import data, forecasts, seeds_of

UNITS, HOURS = 3, 8
MOST, LEAST = np.array([6.0, 4.0, 3.0]), np.array([3.0, 1.5, 0.5])
FIXED, BEGIN, FUEL = np.array([4.0, 3.0, 1.0]), np.array([8.0, 4.0, 1.0]), np.array([1.0, 1.5, 3.0])
SOLD, BOUGHT = 0.5, 12.0
SHARE = (BOUGHT - FUEL[1] - FIXED[1] / MOST[1]) / (BOUGHT + SOLD)  # of a newsvendor whose last unit is the second


def commitment_program() -> dfl.Program:
    """Variables on, start, g, each unit by unit."""
    one, none, many = np.eye(HOURS), np.zeros((HOURS, HOURS)), np.eye(UNITS * HOURS)
    on_before = np.kron(np.eye(UNITS), np.eye(HOURS, k=-1))
    zero = np.zeros_like(many)
    each = lambda values: np.diag(np.repeat(values, HOURS))  # noqa: E731
    n = 3 * UNITS * HOURS
    program = dfl.Program(
        A=np.hstack([none] * 2 * UNITS + [one] * UNITS), b=np.zeros(HOURS), B=one, S=np.zeros((n, HOURS)),
        G=np.vstack([
            np.hstack([-each(MOST), zero, many]),  # no more than the unit can
            np.hstack([each(LEAST), zero, -many]),  # no less
            np.hstack([many - on_before, -many, zero]),  # a start
        ]),
        h=0.0, d=np.concatenate([np.repeat(part, HOURS) for part in (FIXED, BEGIN, FUEL)]),
        upper=np.concatenate([np.ones(2 * UNITS * HOURS), np.repeat(MOST, HOURS)]),
        integer=np.arange(UNITS * HOURS), name="commitment",
    )  # fmt: skip
    return program.elastic("predicted", (SOLD, BOUGHT))


def draw(seed: int) -> tuple[dfl.DecisionDataset, dfl.DecisionDataset]:
    """Load between 2 and 12, with more noise in the evening; 120 days to learn from, 60 to be judged on."""
    rng = np.random.default_rng(500 + seed)
    x = rng.normal(size=(180, 3))
    shape = 6 + 2.5 * np.sin(2 * np.pi * (np.arange(HOURS) - 2) / HOURS)
    spread = np.linspace(0.3, 1.2, HOURS)
    load = shape + x @ rng.uniform(-0.7, 0.7, (3, HOURS)) + spread * rng.normal(size=(180, HOURS))
    return data(torch.tensor(x), torch.tensor(np.maximum(load, 0.5)), 120, seed)


if __name__ == "__main__":
    print(forecasts(commitment_program(), draw, SHARE, seeds_of(__doc__), mu=1e-2, epochs=12, lr=0.02))
