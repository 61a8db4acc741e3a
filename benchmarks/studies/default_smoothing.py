"""How much smoothing suits which problem: the evidence behind `mu="auto"` and `sigma="auto"`.

    python benchmarks/studies/default_smoothing.py [--problems SP-5 KP-100 CFL-50] [--losses sce pfy]

Trains the estimator with μ (for "pfy": σ) at multiples of the scale that "auto" takes, and prints the regret of the
best epoch on the held-out fifth of 1000 instances, on the LP relaxation: a validation figure, not a test result.
"""

from __future__ import annotations

import argparse

from dflearn.data.cache import default_cache
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.problems import problem_named
from dflearn.tables import DecisionFocusedRegressor

MULTIPLES = (0.03, 0.1, 0.3, 1, 3, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=["SP-5", "KP-100", "CFL-50"])
    parser.add_argument("--losses", nargs="+", default=["sce", "smoothed-spo+", "pfy"])
    parser.add_argument("--epochs", type=int, default=25)
    options = parser.parse_args()
    print(f"{'problem':<10}{'loss':<15}" + "".join(f"{f'× {multiple}':>9}" for multiple in MULTIPLES))
    for name in options.problems:
        problem = problem_named(name, seed=1)
        data = label(problem.generate(1000), problem.solver(), cache=default_cache())
        assert data.costs is not None
        assert data.decisions is not None
        X, y, decisions = data.features.numpy(), data.costs.numpy(), data.decisions.numpy()
        scale = Scale.of(problem.program.objective, data)
        for loss in options.losses:
            print(f"{name:<10}{loss:<15}", end="", flush=True)
            for multiple in MULTIPLES:
                amount = {"sigma": multiple * scale.sigma} if loss == "pfy" else {"mu": multiple * scale.mu}
                regressor = DecisionFocusedRegressor(problem, loss=loss, epochs=options.epochs, **amount)
                best = regressor.fit(X, y, decisions=decisions).history_.best
                assert best is not None
                print(f"{best['validation_ratio_of_sums']:9.4f}", end="", flush=True)
            print()


if __name__ == "__main__":
    main()
