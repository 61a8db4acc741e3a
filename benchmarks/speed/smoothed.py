"""`Smoothed`, the exact smoothed layer: against cvxpylayers, on two threads, and as problems grow.

    python benchmarks/speed/smoothed.py [--repeats 9] [--json results/bench/smoothed.json] [--subjects growth threads peers methods]

Forward and backward of a batch, one thread unless said. Cold: no start. Warm: from the multipliers of costs that differ
by 2 %. cvxpylayers solves the same squared-norm problem (it has no warm start) with tolerances that leave a larger error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.layers import CvxpySmoothed, Smoothed
from dflearn.layers.base import Layer
from dflearn.problems import problem_named
from harness import command_line, earlier, first_call, medians, parser, peak_megabytes, report

MU = 1.0
BATCH = 32


def costs_of(name: str, count: int) -> Tensor:
    return problem_named(name, seed=1).generate(count, dtype=torch.float64).costs


def moved(costs: Tensor) -> Tensor:
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=costs.dtype)
    return costs * (1 + 0.02 * noise)


def step(layer: Layer, costs: Tensor, start: Tensor | None = None) -> Callable[[], Tensor]:
    """Forward and backward with the same incoming gradient for everyone."""
    incoming = torch.linspace(-1, 1, layer.objective.n, dtype=costs.dtype).expand(len(costs), -1)

    def run() -> Tensor:
        y = costs.clone().requires_grad_()
        layer.solve(y, None, start).check().decision.backward(incoming)
        assert y.grad is not None
        return y.grad

    return run


def peers(repeats: int) -> list[dict[str, Any]]:
    """Against cvxpylayers, batches of 1, 32 and 256."""
    torch.set_num_threads(1)
    rows = []
    for name in ("SP-10", "KP-100", "CFL-50"):
        program = problem_named(name, seed=1).program
        ours, theirs = Smoothed(program, MU), CvxpySmoothed(program, MU)
        for batch in (1, BATCH, 256):
            costs = costs_of(name, batch)
            near = moved(costs)
            start = ours.solve(costs, None, ours.no_start(batch)).start
            with torch.no_grad():
                error = (theirs(near) - ours(near)).abs().max()
            times = medians({"cold": step(ours, near), "warm": step(ours, near, start)}, repeats)
            times |= medians({"cvxpylayers": step(theirs, near)}, 3 if batch < 256 else 1)
            rows.append(
                {
                    "problem": name,
                    "batch": batch,
                    "cold ms": 1e3 * times["cold"],
                    "warm ms": 1e3 * times["warm"],
                    "cvxpylayers ms": 1e3 * times["cvxpylayers"],
                    "cold ratio": times["cvxpylayers"] / times["cold"],
                    "warm ratio": times["cvxpylayers"] / times["warm"],
                    "residual": float(ours.solve(near).residual.max()),
                    "difference": float(error),
                }
            )
    return rows


def threads(repeats: int) -> list[dict[str, Any]]:
    """Two threads against one, by the clock on the wall."""
    rows = []
    for name in ("SP-25", "CFL-100"):
        layer = Smoothed(problem_named(name, seed=1).program, MU)
        costs = costs_of(name, BATCH)
        run = step(layer, costs)

        def on(count: int, run: Callable[[], Tensor] = run) -> Callable[[], None]:
            def call() -> None:
                torch.set_num_threads(count)
                for _ in range(5):
                    run()

            return call

        times = medians({"one": on(1), "two": on(2)}, repeats, wall=True)
        rows.append(
            {
                "problem": name,
                "one thread ms": 200 * times["one"],
                "two threads ms": 200 * times["two"],
                "ratio": times["one"] / times["two"],
            }
        )
    torch.set_num_threads(1)
    return rows


def growth(repeats: int) -> list[dict[str, Any]]:
    """Time per instance and memory up to 19,800 variables; the time should follow the entries of the factor."""
    torch.set_num_threads(1)
    rows = []
    for name in (
        "SP-5",
        "SP-10",
        "SP-15",
        "SP-25",
        "SP-50",
        "SP-100",
        "KP-100",
        "KP-1000",
        "KP-10000",
        "CFL-50",
        "CFL-250",
    ):
        problem = problem_named(name, seed=1)
        before = peak_megabytes()
        layer = Smoothed(problem.program, MU)
        costs = costs_of(name, 8)
        compiled = first_call(step(layer, costs))
        near = moved(costs)
        start = layer.solve(costs, None, layer.no_start(8)).start
        times = medians({"cold": step(layer, near), "warm": step(layer, near, start)}, min(repeats, 5))
        factor = layer.rows.factor
        size = factor.matrix.nnz + factor.entries
        rows.append(
            {
                "problem": name,
                "variables": problem.program.n,
                "nonzeros + nnz(L)": size,
                "first call s": compiled,
                "cold ms per instance": 1e3 * times["cold"] / 8,
                "warm ms per instance": 1e3 * times["warm"] / 8,
                "cold µs per 1000 entries": 1e9 * times["cold"] / 8 / size,
                "memory added MiB": peak_megabytes() - before,
            }
        )
    return rows


def methods(repeats: int) -> list[dict[str, Any]]:
    """Why cold instances start with interior points: steps of both methods, 64 instances each, at three values of μ."""
    from dflearn.kernels.smoothed import COLD, NEWTON, SmoothedAnswer

    rows = []
    for name in ("SP-15", "KP-100", "CFL-50"):
        for mu in (0.1, 1.0, 10.0):
            layer = Smoothed(problem_named(name, seed=1).program, mu)
            c = layer.objective.vector(costs_of(name, 64)).numpy()
            data = layer.rows.data(c, np.full(64, mu), layer.program.sides(None, 64))
            ways = {}
            for way in ("Newton from zero", "interior points, then Newton"):
                answer = SmoothedAnswer.empty(64, layer.program.n, layer.rows.factor.rows)

                def run(
                    answer: SmoothedAnswer = answer, way: str = way, layer: Smoothed = layer, data: Any = data
                ) -> None:
                    answer.y[:] = 0.0
                    kind = NEWTON if way == "Newton from zero" else COLD
                    layer.rows.run(data, None, kind, layer.tolerance, answer, newton_steps=300)

                seconds = medians({way: run}, min(repeats, 3))[way]
                done = answer.residual <= 1e-6
                ways |= {
                    f"{way}: ms per instance": 1e3 * seconds / 64,
                    f"{way}: steps": f"{answer.newton_steps[done].mean() if done.any() else float('nan'):.0f} Newton"
                    + (f" + {answer.interior_steps.mean():.0f} interior" if way.startswith("interior") else ""),
                    f"{way}: solved": f"{done.mean():.0%}",
                }
            rows.append({"problem": name, "mu": mu, **ways})
    return rows


def main() -> None:
    arguments = parser(__doc__)
    subjects = {
        "growth": growth,
        "threads": threads,
        "peers": peers,
        "methods": methods,
    }  # memory is a peak: growth first
    arguments.add_argument("--subjects", nargs="+", choices=subjects)
    options = arguments.parse_args()
    kept = earlier(options.json, options.subjects)
    rows = kept["subjects"] if kept else {}
    rows |= {name: subjects[name](options.repeats) for name in options.subjects or subjects}
    report("The exact smoothed layer", rows, options.json, command_line(kept))


if __name__ == "__main__":
    main()
