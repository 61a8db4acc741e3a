"""A portfolio with risk: returns are predicted, their covariance is known by factors.

    python examples/portfolio.py [--quick]

    max over w of  yᵀw − ½ wᵀQ w     s.t.  Σ w = 1,   0 ≤ w ≤ 0.2

Returns are powers of linear signals plus factor and own noise, as in Elmachtoub and Grigas (2022).
"""

import numpy as np
import torch

import dflearn as dfl
from beside import data, ridge, seeds_of, study, table, trained

ASSETS, FACTORS, SIGNALS, DEGREE, AVERSION = 20, 4, 6, 4, 20.0
LOADINGS = 0.05 * np.random.default_rng(7).normal(size=(FACTORS, ASSETS))  # the same market for every seed
OWN = np.random.default_rng(8).uniform(0.02, 0.08, ASSETS)  # standard deviation of what no factor explains


def portfolio_program() -> dfl.Program:
    risk = dfl.Quadratic(np.sqrt(AVERSION) * LOADINGS, AVERSION * OWN**2)
    return dfl.Program(
        A=np.ones((1, ASSETS)), b=[1.0], upper=0.2, S=-np.eye(ASSETS), Q=risk, sense="maximize", name="portfolio"
    )


def draw(seed: int) -> tuple[dfl.DecisionDataset, dfl.DecisionDataset]:
    """200 months to learn from, 200 to be judged on."""
    rng = np.random.default_rng(100 + seed)
    picks = rng.binomial(1, 0.5, (ASSETS, SIGNALS))
    x = rng.normal(size=(400, SIGNALS))
    mean = (0.05 / np.sqrt(SIGNALS) * x @ picks.T + 0.1 ** (1 / DEGREE)) ** DEGREE
    noise = rng.normal(size=(400, FACTORS)) @ LOADINGS + OWN * rng.normal(size=(400, ASSETS))
    return data(torch.tensor(x), torch.tensor(mean + noise), 200, seed)


def main() -> None:
    program = portfolio_program()
    layer = dfl.Smoothed(program, mu=0.0)  # the quadratic program itself
    labelled = lambda way: lambda train, seed: way(dfl.label(train, program, progress=False), seed)  # noqa: E731
    pfy, itself = (trained(loss(layer), epochs=10, lr=1e-4) for loss in (dfl.losses.FenchelYoung, dfl.losses.TaskLoss))
    ways = {"ridge": ridge, "Fenchel-Young": labelled(pfy), "the return itself": itself}
    print(table(study(program, draw, ways, seeds_of(__doc__))))


if __name__ == "__main__":
    main()
