"""Why an early-stopped Davis-Yin layer does well: N iterations of step α from zero smooth like μ = 1/(αN).

    python benchmarks/studies/early_stopping.py --out results/comparison

Two looks. Decisions: how far is the layer's w after N iterations without smoothing from the exactly smoothed w_μ with
μ = 1/(αN), and do their gradients point the same way? Regret: the validation regrets that the comparison's records hold for
every value of its grid, SCE through both layers, side by side at equal μ. The grid pairs them: the step is
0.1 · value / scale, the iterations are 100, so 1/(αN) = 0.1 · scale / value.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from comparison import OUT, by_run, the_study
from dflearn.layers import DavisYin, Layer, Smoothed
from dflearn.problems import problem_named
from dflearn.report.render import render
from dflearn.studies.record import Record
from dflearn.studies.store import read_records

ITERATIONS = 100
INSTANCES = 64
PAIRS = [(0.03, 3.0), (0.1, 1.0), (0.3, 0.3), (1.0, 0.1), (3.0, 0.03)]  # values of the grid with 0.1/step ≈ μ
EARLY, EXACT = "SCE^DYS unrolled tuned", "SCE^smoothed tuned"


def answer(layer: Layer, costs: Tensor, direction: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The decision, and (dw/dy)ᵀ direction."""
    y = costs.clone().requires_grad_()
    w = layer(y)
    (gradient,) = torch.autograd.grad(w, y, direction)
    return w.detach().numpy(), gradient.numpy()


def decisions(name: str) -> list[dict[str, Any]]:
    """Median over instances, for each pair of the grid."""
    problem = problem_named(name, seed=1)
    costs = problem.generate(INSTANCES).costs
    assert costs is not None
    costs = costs.double()
    scale = float(problem.program.objective.vector(costs).abs().mean())
    direction = torch.randn(INSTANCES, problem.program.n, generator=torch.Generator().manual_seed(1)).double()
    rows = []
    for value, _ in PAIRS:
        step = 0.1 * value / scale
        mu = 1 / (step * ITERATIONS)
        w, g = answer(DavisYin(problem.program, 0.0, step, ITERATIONS, gradient="unrolled"), costs, direction)
        exact, exact_g = answer(Smoothed(problem.program, mu), costs, direction)
        lengths = np.linalg.norm(g, axis=1) * np.linalg.norm(exact_g, axis=1)
        with np.errstate(invalid="ignore"):
            cosine = np.where(lengths > 0, (g * exact_g).sum(1) / lengths, np.nan)
        rows.append(
            {
                "problem": name,
                "1/(αN), of the mean cost": 0.1 / value,
                "‖w − w_μ‖ / ‖w_μ‖": float(
                    np.median(np.linalg.norm(w - exact, axis=1) / np.linalg.norm(exact, axis=1))
                ),
                "cosine of gradients": float(np.nanmedian(cosine)),
            }
        )
    return rows


def regrets(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Validation regret, each seed relative to its own least over both layers and the whole grid; mean over seeds."""
    rows, found = [], by_run(records)
    for name in the_study().problems:
        early, exact = found.get((name, EARLY), {}), found.get((name, EXACT), {})
        seeds = sorted(set(early) & set(exact))
        tried = {
            (method, seed): {row["share"]: row["validation_absolute_regret"] for row in runs[seed].tried}
            for method, runs in ((EARLY, early), (EXACT, exact))
            for seed in seeds
        }
        least = {seed: min(min(tried[method, seed].values()) for method in (EARLY, EXACT)) for seed in seeds}
        for step, mu in PAIRS if seeds else ():
            rows.append(
                {
                    "problem": name,
                    "seeds": len(seeds),
                    "μ, of the mean cost": mu,
                    "early-stopped": float(np.mean([tried[EARLY, seed][step] / least[seed] for seed in seeds])),
                    "exact": float(np.mean([tried[EXACT, seed][mu] / least[seed] for seed in seeds])),
                }
            )
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [[f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    return render(list(rows[0]), lines, "markdown")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--problems", nargs="+", default=list(the_study().problems))
    arguments.add_argument("--out", type=Path, default=OUT)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    text = "# Early stopping is smoothing\n\n`python benchmarks/studies/early_stopping.py`\n"
    text += "\n## Decisions and gradients after 100 iterations, against μ = 1/(αN)\n\n"
    text += table([row for name in options.problems for row in decisions(name)]) + "\n"
    text += "\n## Validation regret of SCE, relative to the least of each seed\n\n"
    text += table(regrets(read_records(options.out / "runs.jsonl.xz"))) + "\n"
    (options.out / "early_stopping.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
