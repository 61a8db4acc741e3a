"""`Smoothed`, the exact smoothed layer, by itself: on two threads, and by which method cold instances start.

    python benchmarks/speed/smoothed.py [--repeats 9] [--json results/bench/smoothed.json] [--subjects threads methods]

Forward and backward of a batch of 32. `layers.py` has its peers, `growth.py` larger programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from contest import on_two_threads
from dflearn.engine.smoothed.tiles import COLD, NEWTON, SmoothedAnswer
from dflearn.layers import Smoothed
from dflearn.problems import problem_named
from harness import Rows, costs_of, main, medians, moved

MU, BATCH = 1.0, 32


def material(name: str, batch: int = BATCH) -> dict[str, Any]:
    costs = costs_of(name, batch)
    incoming = np.linspace(-1, 1, problem_named(name, seed=1).program.n)
    return {"problem": name, "mu": MU, "costs": costs.numpy(), "near": moved(costs).numpy(), "incoming": incoming}


def threads(options: Any) -> Rows:
    """Two threads against one, by the clock on the wall."""
    names = ("SP-25", "CFL-100")
    return [{"problem": name, **on_two_threads("layer", material(name), options.repeats, "cold")} for name in names]


def methods(options: Any) -> Rows:
    """Why cold instances start with interior points: steps of both methods, 64 instances each, at three values of μ."""
    rows = []
    for name, mu in ((name, mu) for name in ("SP-15", "KP-100", "CFL-50") for mu in (0.1, 1.0, 10.0)):
        layer = Smoothed(problem_named(name, seed=1).program, mu)
        c = layer.objective.vector(costs_of(name, 64)).numpy()
        data = layer.rows.data(c, np.full(64, mu), layer.program.sides(None, 64))
        row: dict[str, Any] = {"problem": name, "mu": mu}
        for way, kind in (("Newton from zero", NEWTON), ("interior points, then Newton", COLD)):
            answer = SmoothedAnswer.empty(64, layer.program.n, layer.rows.factor.rows)

            def run(
                answer: SmoothedAnswer = answer, kind: int = kind, layer: Smoothed = layer, data: Any = data
            ) -> None:
                answer.y[:] = 0.0
                layer.rows.run(data, None, kind, layer.tolerance, answer, newton_steps=300)

            seconds = medians({way: run}, min(options.repeats, 3))[way]
            done = answer.residual <= 1e-6
            steps = f"{answer.newton_steps[done].mean() if done.any() else float('nan'):.0f} Newton"
            steps += f" + {answer.interior_steps.mean():.0f} interior" * (kind == COLD)
            row |= {f"{way}: ms per instance": 1e3 * seconds / 64, f"{way}: steps": steps}
            row[f"{way}: solved"] = f"{done.mean():.0%}"
        rows.append(row)
    return rows


if __name__ == "__main__":
    main("The exact smoothed layer", __doc__, {"threads": threads, "methods": methods})
