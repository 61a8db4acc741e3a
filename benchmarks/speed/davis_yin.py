"""`DavisYin` against the dense layers of the literature, on two threads, and as problems grow.

    python benchmarks/speed/davis_yin.py [--repeats 9] [--json results/bench/davis_yin.json] [--subjects peers threads growth limits]

Forward and backward of a batch of 32 in float32, 100 iterations, one thread unless said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.layers import DavisYin, Smoothed
from dflearn.layers.base import Layer
from dflearn.paper.as_published import AsPublished, DenseJacobianFree
from dflearn.problems import problem_named
from harness import command_line, earlier, first_call, medians, parser, peak_megabytes, report

MU = 1.0
ALPHA = 0.01  # as published
BATCH = 32
MEASURED = ("SP-15", "SP-25", "KP-400", "CFL-100")


def costs_of(name: str, count: int) -> Tensor:
    return problem_named(name, seed=1).generate(count).batch().require("costs")


def step(layer: Layer, costs: Tensor) -> Callable[[], Tensor]:
    """Forward and backward with the same incoming gradient for everyone."""
    incoming = torch.linspace(-1, 1, layer.objective.n, dtype=costs.dtype).expand(len(costs), -1)

    def run() -> Tensor:
        y = costs.clone().requires_grad_()
        layer(y).backward(incoming)
        assert y.grad is not None
        return y.grad

    return run


def peers(repeats: int) -> list[dict[str, Any]]:
    """Unrolled against the published layer, Jacobian-free against its dense counterpart; then the geometric means."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in MEASURED:
        problem, costs = problem_named(name, seed=1), costs_of(name, BATCH)
        ways: dict[str, Layer] = {
            "unrolled": DavisYin(problem.program, MU, ALPHA, gradient="unrolled"),
            "as published": AsPublished(problem, MU, ALPHA),
            "jfb": DavisYin(problem.program, MU, ALPHA, gradient="jfb"),
            "dense jfb": DenseJacobianFree(problem, MU, ALPHA),
        }
        first = first_call(step(ways["unrolled"], costs)) + first_call(step(ways["jfb"], costs))
        times = medians({key: step(layer, costs) for key, layer in ways.items()}, repeats)
        rows.append(
            {
                "problem": name,
                **{f"{key} ms": 1e3 * seconds for key, seconds in times.items()},
                "unrolled ratio": times["as published"] / times["unrolled"],
                "jfb ratio": times["dense jfb"] / times["jfb"],
                "first calls s": first,
            }
        )
    mean = {key: float(np.exp(np.mean([np.log(row[key]) for row in rows]))) for key in ("unrolled ratio", "jfb ratio")}
    return [*rows, {"problem": "geometric mean", **mean}]


THREADED = [
    (name, batch, way) for name in ("SP-25", "CFL-100") for batch in (BATCH, 4 * BATCH) for way in ("unrolled", "jfb")
]
ROUNDS = 3
CALLS = 5  # in a row on threads, as in training: the first call of a row finds other data in the cache


def threads(repeats: int) -> list[dict[str, Any]]:
    """Two threads against one, by the clock on the wall, in processes that take turns.

    Torch's own threads spin after each of its operations and would take the second core from ours, hence the passive
    waiting. What two threads of arithmetic without any memory gain says how much of a second core there was.
    """
    seconds: dict[int, list[list[float]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for count, found in seconds.items():
            command = [sys.executable, __file__, "--on-threads", str(count), "--repeats", str(repeats)]
            passive = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
            output = subprocess.run(command, capture_output=True, text=True, check=True, env=passive).stdout
            found.append([float(value) for value in output.split()])
    one, two = (np.median(np.array(seconds[count]), axis=0) for count in (1, 2))
    rows: list[dict[str, Any]] = [
        {
            "problem": name,
            "batch": batch,
            "gradient": way,
            "one thread ms": 1e3 * one[k],
            "two threads ms": 1e3 * two[k],
            "ratio": one[k] / two[k],
        }
        for k, (name, batch, way) in enumerate(THREADED)
    ]
    return [*rows, {"problem": "arithmetic alone", "ratio": one[-1] / two[-1]}]


def on_threads(count: int, repeats: int) -> None:
    """Print the wall seconds of each of `THREADED`, then those of four pieces of arithmetic."""
    from dflearn.kernels.lanes import jit
    from dflearn.kernels.threads import run_tiles

    @jit
    def arithmetic(number: int) -> float:
        total = 0.0
        for i in range(number):
            total += np.sqrt(i)
        return total

    torch.set_num_threads(count)
    ways: dict[str, Callable[[], Any]] = {
        f"{name} {batch} {way}": step(
            DavisYin(problem_named(name, seed=1).program, MU, ALPHA, gradient=way),  # type: ignore[arg-type]
            costs_of(name, batch),
        )
        for name, batch, way in THREADED
    }
    ways["arithmetic"] = lambda: run_tiles(lambda _: arithmetic(2_000_000) and None, range(4))
    in_a_row = {name: partial(_call, way, CALLS) for name, way in ways.items()}
    print(*(seconds / CALLS for seconds in medians(in_a_row, repeats, wall=True).values()))


def _call(way: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        way()


def growth(repeats: int) -> list[dict[str, Any]]:
    """Time and memory up to 19,800 variables, each size in a process of its own; then larger knapsacks and locations."""
    names = ("SP-5", "SP-10", "SP-15", "SP-25", "SP-50", "SP-100", "KP-100", "KP-1000", "KP-10000", "CFL-50", "CFL-250")
    rows = []
    for name in names:
        command = [sys.executable, __file__, "--one-size", name, "--repeats", str(min(repeats, 5))]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append(dict(zip(SIZES, (name, *(float(value) for value in output.split())), strict=True)))
    return rows


SIZES = (
    "problem", "variables", "nonzeros + nnz(L)", "first call s", "unrolled ms", "jfb ms", "unrolled µs per 1000 entries",
    "peak MiB", "of which imports MiB",
)  # fmt: skip


def one_size(name: str, repeats: int) -> None:
    """Print one row of `growth`, its name apart."""
    torch.set_num_threads(1)
    small = problem_named("SP-5")
    for gradient in ("unrolled", "jfb"):  # compile, or load what was compiled
        step(DavisYin(small.program, MU, ALPHA, gradient=gradient), small.generate(BATCH).batch().require("costs"))()
    before = peak_megabytes()
    program, costs = problem_named(name, seed=1).program, costs_of(name, BATCH)
    ways = {
        key: step(DavisYin(program, MU, ALPHA, gradient=key), costs)  # type: ignore[arg-type]
        for key in ("unrolled", "jfb")
    }
    first = first_call(ways["unrolled"])
    times = medians(ways, repeats)
    factor = DavisYin(program).rows.factor
    size = factor.matrix.nnz + factor.entries
    unrolled, jfb = 1e3 * times["unrolled"], 1e3 * times["jfb"]
    print(program.n, size, first, unrolled, jfb, 1e6 * unrolled / size, peak_megabytes(), before)


def limits(repeats: int) -> list[dict[str, Any]]:
    """How close a number of iterations comes to the exact smoothed decision, with the published and the default step."""
    torch.set_num_threads(1)
    rows = []
    for name in ("SP-10", "KP-100", "CFL-50"):
        problem, costs = problem_named(name, seed=1), costs_of(name, BATCH).double()
        mu = 0.3 * float(problem.program.objective.vector(costs).square().mean().sqrt())
        exact = Smoothed(problem.program, mu)(costs)
        row: dict[str, Any] = {"problem": name, "mu": mu}
        for label, alpha in (("α = 0.01", ALPHA), ("default α", None)):
            for iterations in (30, 100, 300):
                w = DavisYin(problem.program, mu, alpha, iterations)(costs)
                row[f"{label}, {iterations}"] = float((w - exact).norm() / exact.norm())
        rows.append(row)
    return rows


def main() -> None:
    arguments = parser(__doc__)
    subjects = {"peers": peers, "threads": threads, "growth": growth, "limits": limits}
    arguments.add_argument("--subjects", nargs="+", choices=subjects)
    arguments.add_argument("--one-size", help="measure one size for `growth`, in this process")
    arguments.add_argument("--on-threads", type=int, help="measure for `threads` on so many, in this process")
    options = arguments.parse_args()
    if options.on_threads:
        on_threads(options.on_threads, options.repeats)
        return
    if options.one_size:
        one_size(options.one_size, options.repeats)
        return
    kept = earlier(options.json, options.subjects)
    rows = kept["subjects"] if kept else {}
    rows |= {name: subjects[name](options.repeats) for name in options.subjects or subjects}
    report("The Davis-Yin layer", rows, options.json, command_line(kept))


if __name__ == "__main__":
    main()
