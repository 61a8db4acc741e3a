"""`DavisYin` against the dense layers of the literature, on two threads, and how close its iterations come.

    python benchmarks/speed/davis_yin.py [--repeats 9] [--json results/bench/davis_yin.json] [--subjects peers threads limits]

Forward and backward of a batch of 32 in float32, 100 iterations, one thread unless said. `growth.py` has larger programs.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from contest import on_two_threads
from dflearn.layers import DavisYin, Smoothed
from dflearn.problems import problem_named
from dflearn.studies.paper.as_published import AsPublished, DenseJacobianFree
from harness import Rows, costs_of, geometric_mean, main, medians, step
from smoothed import material

MU, BATCH = 1.0, 32
ALPHA = 0.01  # as published


def peers(options: Any) -> Rows:
    """Unrolled against the published layer, Jacobian-free against its dense counterpart; then the geometric means."""
    rows: Rows = []
    for name in ("SP-15", "SP-25", "KP-400", "CFL-100"):
        problem, costs = problem_named(name, seed=1), costs_of(name, BATCH, torch.float32)
        layers = {
            "unrolled": DavisYin(problem.program, MU, ALPHA, gradient="unrolled"),
            "as published": AsPublished(problem, MU, ALPHA),
            "jfb": DavisYin(problem.program, MU, ALPHA, gradient="jfb"),
            "dense jfb": DenseJacobianFree(problem, MU, ALPHA),
        }
        ways = {key: step(layer, costs) for key, layer in layers.items()}
        begun = time.perf_counter()
        ways["unrolled"](), ways["jfb"]()
        first = time.perf_counter() - begun
        times = medians(ways, options.repeats)
        row = {"problem": name, **{f"{key} ms": 1e3 * seconds for key, seconds in times.items()}}
        row |= {
            "unrolled ratio": times["as published"] / times["unrolled"],
            "jfb ratio": times["dense jfb"] / times["jfb"],
        }
        rows.append({**row, "first calls s": first})
    return [*rows, geometric_mean(rows, "unrolled ratio", "jfb ratio")]


def threads(options: Any) -> Rows:
    """Two threads against one, by the clock on the wall.

    What two threads of arithmetic without any memory gain says how much of a second core there was.
    """
    rows: Rows = []
    for name, batch in ((name, batch) for name in ("SP-25", "CFL-100") for batch in (BATCH, 4 * BATCH)):
        data = material(name, batch)
        data |= {key: data[key].astype(np.float32) for key in ("costs", "near", "incoming")}
        for way in ("unrolled", "jfb"):
            place = {"problem": name, "batch": batch, "gradient": way}
            rows.append(place | on_two_threads("layer", data, options.repeats, way))
    return [*rows, {"problem": "arithmetic alone", **on_two_threads("arithmetic", {}, options.repeats)}]


def limits(options: Any) -> Rows:
    """How close a number of iterations comes to the exact smoothed decision, with the published and the default step."""
    rows = []
    for name in ("SP-10", "KP-100", "CFL-50"):
        program, costs = problem_named(name, seed=1).program, costs_of(name, BATCH)
        mu = 0.3 * float(program.objective.vector(costs).square().mean().sqrt())
        exact = Smoothed(program, mu)(costs)
        row: dict[str, Any] = {"problem": name, "mu": mu}
        for label, alpha in (("α = 0.01", ALPHA), ("default α", None)):
            for iterations in (30, 100, 300):
                w = DavisYin(program, mu, alpha, iterations)(costs)
                row[f"{label}, {iterations}"] = float((w - exact).norm() / exact.norm())
        rows.append(row)
    return rows


if __name__ == "__main__":
    main("The Davis-Yin layer", __doc__, {"peers": peers, "threads": threads, "limits": limits})
