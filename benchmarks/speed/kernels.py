"""How close the kernels come to the machine: operations counted, rates measured, beside the rates of two loops that do
nothing but arithmetic and nothing but copying.

    python benchmarks/speed/kernels.py --json results/bench/kernels.json

One thread, least of many repeats: the question is what the code can do, not what the machine had time for. An operation
is an addition or a multiplication of one number; a fused multiply-add is two. Bytes are those of the arrays that a kernel
must read or write once, however often it does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from dflearn.kernels.cholesky import SparseFactor, assemble, factorize, substitute
from dflearn.kernels.davis_yin import adjoint, iterate
from dflearn.kernels.lanes import LANES, get, jit, put, wide_tile
from dflearn.kernels.splitting_data import SplittingAnswer, SplittingData, space_rows
from dflearn.layers import DavisYin, Smoothed
from dflearn.problems import problem_named
from dflearn.problems.base import Problem
from harness import command_line, parser, report

PROBLEMS = ["SP-15", "SP-25", "SP-50", "KP-400", "CFL-100"]
ITERATIONS = 100


def least(function: Callable[[], Any], repeats: int) -> float:
    """Least CPU seconds of a call."""
    function()
    seconds = np.inf
    for _ in range(repeats):
        begun = time.thread_time()
        function()
        seconds = min(seconds, time.thread_time() - begun)
    return seconds


@jit
def _multiply_add(x: Any, turns: int) -> None:
    """Ten chains of multiply-adds that do not wait for each other, in registers."""
    a, b, c, d, e = get(x, 0), get(x, 1), get(x, 2), get(x, 3), get(x, 4)
    f, g, h, i, j = get(x, 5), get(x, 6), get(x, 7), get(x, 8), get(x, 9)
    m, n = get(x, 10), get(x, 11)
    for _ in range(turns):
        a, b, c, d, e = a * m + n, b * m + n, c * m + n, d * m + n, e * m + n
        f, g, h, i, j = f * m + n, g * m + n, h * m + n, i * m + n, j * m + n
    put(x, 0, a + b + c + d + e + f + g + h + i + j)


@jit
def _copy(x: Any, y: Any, turns: int) -> None:
    """y = x, row by row."""
    for _ in range(turns):
        for i in range(len(x)):
            put(y, i, get(x, i))


def machine(repeats: int) -> list[dict[str, Any]]:
    """What one thread reaches when it does one thing only."""
    rows, turns = [], 100_000
    for dtype, lanes in ((np.float64, 8), (np.float32, 16)):
        x = wide_tile(12, lanes, dtype)
        x["lane"][:] = 0.5
        seconds = least(lambda: _multiply_add(x, turns), repeats)  # noqa: B023
        rows.append(
            {"loop": f"multiply-adds, {np.dtype(dtype)}", "rate": 20 * lanes * turns / seconds / 1e9, "unit": "Gop/s"}
        )
    for name, kibibytes in (("nearest cache", 16), ("second cache", 512), ("beyond", 16384)):
        rows_count = kibibytes * 1024 // 128
        x, y = (wide_tile(rows_count, 8, np.float64) for _ in range(2))
        x["lane"][:] = 1.0
        turns = max(1, 2**24 // (rows_count * 64))
        seconds = least(lambda: _copy(x, y, turns), repeats)  # noqa: B023
        rows.append(
            {
                "loop": f"copy within {kibibytes} KiB ({name})",
                "rate": 2 * rows_count * 64 * turns / seconds / 1e9,
                "unit": "GB/s",
            }
        )
    return rows


def factor_operations(factor: SparseFactor) -> int:
    """Operations of one factorization, per lane."""
    below = np.diff(factor.pattern.column_start.astype(np.int64))
    return int((below * (below + 1)).sum() + below.sum() + 2 * factor.rows)


def smoothed_parts(problem: Problem, repeats: int) -> list[dict[str, Any]]:
    """The parts of which interior-point and Newton steps consist, on a tile of eight in float64."""
    factor = Smoothed(problem.program, 1.0).rows.factor
    m, n, entries = factor.rows, factor.matrix.shape[1], factor.entries
    theta, x = np.ones((n, LANES)), np.ones((m, LANES))
    values = np.empty((factor.value_rows, LANES))
    assemble(factor.pattern, theta, values)
    raw = values.copy()

    def refactor() -> None:
        values[:] = raw
        factorize(factor.pattern, values, 0.0)

    copying = least(lambda: np.copyto(values, raw), repeats)
    refactor()
    factored = values.copy()
    pairs = len(factor.pattern.pair_target)
    parts = {
        "assemble": (lambda: assemble(factor.pattern, theta, values), 2 * pairs, n + 2 * (entries + m), 0.0),
        "factorize": (refactor, factor_operations(factor), 2 * (entries + m), copying),
        "substitute": (lambda: substitute(factor.pattern, factored, x), 4 * entries + 2 * m, entries + 3 * m, 0.0),
    }
    return [
        _row(problem.name, name, "float64", LANES, least(function, repeats) - apart, operations, rows * 64)
        for name, (function, operations, rows, apart) in parts.items()
    ]


def davis_yin_parts(problem: Problem, repeats: int) -> list[dict[str, Any]]:
    """All iterations, and the way back through them, on a tile of 32 and one of 16 in float32."""
    layer = DavisYin(problem.program, 0.0, 0.01, ITERATIONS, gradient="unrolled")
    kernel, dtype = layer.rows, np.dtype(np.float32)
    system, N, n = kernel.system(dtype), layer.width, layer.program.n
    m, nonzeros, entries = len(system.pivot), kernel.factor.matrix.nnz, kernel.factor.entries
    r, lower, upper = kernel.sides(layer.program.sides(None, 1), dtype)
    rows = []
    for lanes in (32, 16):
        costs = problem.generate(lanes).costs
        assert costs is not None
        c = layer.objective.vector(costs.float()).numpy()
        data = SplittingData(np.ascontiguousarray(c), r, np.full(lanes, 0.01, dtype), np.zeros((1, N), dtype))
        answer = SplittingAnswer.empty(lanes, n, N, dtype)
        space, index = wide_tile(space_rows(system, N), lanes, dtype), np.arange(lanes)
        inside, out = np.empty((ITERATIONS, N), f"u{lanes // 8}"), np.empty_like(data.c)

        def forward() -> None:
            iterate(
                system, data, lower, upper, 0.0, ITERATIONS, 0.0, index, lanes, space, True, inside, answer  # noqa: B023
            )  # fmt: skip

        def backward() -> None:
            adjoint(system, data.alpha, 0.0, inside, answer.iterations, data.c, index, lanes, space, out)  # noqa: B023

        sparse = 4 * nonzeros + 4 * entries + m
        for name, function, per_variable, arrays in (("iterate", forward, 8, 4), ("adjoint", backward, 4, 3)):
            rows.append(
                _row(
                    problem.name,
                    name,
                    "float32",
                    lanes,
                    least(function, repeats) / ITERATIONS,
                    sparse + per_variable * N,
                    (arrays * N + 3 * m) * 4 * lanes,
                )
            )
    return rows


def _row(
    problem: str, part: str, dtype: str, lanes: int, seconds: float, operations: int, bytes_: int
) -> dict[str, Any]:
    return {
        "problem": problem,
        "part": part,
        "dtype": dtype,
        "lanes": lanes,
        "µs": seconds * 1e6,
        "operations per lane": operations,
        "Gop/s": operations * lanes / seconds / 1e9,
        "KiB": bytes_ / 1024,
        "GB/s": bytes_ / seconds / 1e9,
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--problems", nargs="+", default=PROBLEMS)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    repeats = 30 * options.repeats
    limits = machine(repeats)
    peak = {row["loop"].split(", ")[1]: row["rate"] for row in limits if row["unit"] == "Gop/s"}
    rows = []
    for name in options.problems:
        problem = problem_named(name, seed=1)
        rows += [*smoothed_parts(problem, repeats), *davis_yin_parts(problem, repeats)]
    for row in rows:
        row["share of the arithmetic peak"] = row["Gop/s"] / peak[row["dtype"]]
    report("Kernels and the machine", {"machine": limits, "parts": rows}, options.json, command_line())


if __name__ == "__main__":
    main()
