"""One part of dflearn at one size: its time, and the memory that it adds to what was there before.

    run_growth.py growth DATA PART

What is compiled or loaded once was used on a small problem before, so the peak is that of the size itself: program, data,
factor, work space, gradients.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from turns import Turns, peak_megabytes, reset_peak

from dflearn.layers import DavisYin, Smoothed
from dflearn.layers.base import Layer
from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from dflearn.solvers import HiGHS

MU, STEP, BATCH, LABELS, TIME_LIMIT = 1.0, 0.01, 32, 4, 20.0
LAYERS: dict[str, Callable[[Problem], Layer]] = {
    "DavisYin unrolled": lambda problem: DavisYin(problem.program, MU, STEP, gradient="unrolled"),
    "DavisYin jfb": lambda problem: DavisYin(problem.program, MU, STEP, gradient="jfb"),
    "Smoothed": lambda problem: Smoothed(problem.program, MU),
}


def work(name: str, part: str) -> Callable[[], dict[str, np.ndarray]]:
    """A call of the part on a batch of the problem, and what it says about itself."""
    problem = problem_named(name, seed=1)
    about: dict[str, Any] = {"variables": problem.program.n, "instances": BATCH}
    if part in LAYERS:
        dtype = torch.float64 if part == "Smoothed" else torch.float32
        costs = problem.generate(BATCH, dtype=dtype).batch().require("costs")
        layer = LAYERS[part](problem)
        factor = layer.rows.factor  # type: ignore[union-attr]
        about["entries"] = factor.matrix.nnz + factor.entries

        def backward() -> dict[str, np.ndarray]:
            y = costs.clone().requires_grad_()
            solution = layer.solve(y).check()
            solution.decision.sum().backward()
            return {key: np.array(value) for key, value in about.items()}

        return backward
    relaxed = part == "labels, relaxed"
    about["instances"] = BATCH if relaxed else LABELS
    y: Tensor = problem.generate(about["instances"], dtype=torch.float64).batch().require("costs")
    solver = problem.relaxed_solver() if relaxed else problem.solver()
    if isinstance(solver, HiGHS) and problem.program.is_integer and not relaxed:
        solver = HiGHS(problem.program, time_limit=TIME_LIMIT)

    def solve() -> dict[str, np.ndarray]:
        solved = float((solver.solve(y).status == 0).float().mean())
        return {key: np.array(value) for key, value in {**about, "solved": solved}.items()}

    return solve


def main() -> None:
    _, path, part = sys.argv[1:]
    with np.load(path) as file:
        name = str(file["problem"])
    torch.set_num_threads(1)
    turns = Turns()
    work(f"{name.partition('-')[0]}-{'6x3' if name.startswith('CFL') else 6}", part)()
    gc.collect()
    reset_peak()
    turns.imports = peak_megabytes()
    turns.serve(work(name, part))


if __name__ == "__main__":
    main()
