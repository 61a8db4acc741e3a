"""The iteration of `AsPublished` on tiles, with sparse rows: all iterations in one call, and back through all of them.

With M (w, s) = r the scaled, ordered rows, ρ = 10⁻⁶ + τ and a step α of the iteration's own:

    v = (2 − τ α) max(z, 0) − z − α (c + ρ z),      x = (M Mᵀ)⁻¹ (M v − r),      z⁺ = min(z, 0) + v − Mᵀ x

`multipliers` and `less_pairs` are those of `DavisYin`. The derivative needs only the signs of z: one bit per entry, instance and
iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.davis_yin.compiled import Compiled
from dflearn.engine.davis_yin.data import SplittingRows, SplittingSystem
from dflearn.engine.davis_yin.iterations import less_pairs, multipliers
from dflearn.engine.linear_algebra.lanes import Tile, bits, get, jit, load, maximum, minimum, put, store, where
from dflearn.engine.linear_algebra.threads import run_tiles
from dflearn.layers.base import as_rows, in_shape
from dflearn.program.sides import Sides


@jit
def iterate(
    system: SplittingSystem,
    c: Any,
    begin: Any,
    right: Any,
    steps: Any,
    tau: float,
    rho: float,
    index: Any,
    used: int,
    space: Any,
    negative: Any,
    out: Any,
) -> None:
    """out (count, n) = max(z, 0) after the steps, for the instances `index`.

    c (count, n), begin: z (count, N), right: r (count or 1, m). negative: unsigned integers of one bit per lane,
    (steps, N), row k about the z after step k; (0, N) if no gradient is needed.
    """
    n, N, m = c.shape[1], begin.shape[1], len(system.pivot)
    z, v, cost = space[:N], space[N : 2 * N], space[2 * N : 3 * N]
    x, r = space[3 * N : 3 * N + m], space[3 * N + m : 3 * N + 2 * m]
    load(begin, index, z.lane)
    load(c, index, cost.lane)
    load(right, index, r.lane)
    for j in range(n, N):
        put(cost, j, 0.0)
    for k in range(len(steps)):
        step = steps[k]
        keep, turn = 1.0 - step * (tau + rho), step * tau - 2.0
        for j in range(N):
            point = get(z, j)
            put(v, j, keep * point + turn * minimum(point, 0.0) - step * get(cost, j))
        multipliers(system, v, r, x)
        for j in range(N):
            point = minimum(get(z, j), 0.0) + less_pairs(get(v, j), system.columns, j, x)
            put(z, j, point)
            if len(negative) > 0:
                negative[k, j] = bits(point < 0.0)
    for j in range(n):
        put(z, j, maximum(0.0, get(z, j)))  # in this order, NaN stays NaN
    store(z[:n].lane, index, used, out)


@jit
def adjoint(
    system: SplittingSystem,
    steps: Any,
    tau: float,
    rho: float,
    negative: Any,
    gradient: Any,
    index: Any,
    used: int,
    space: Any,
    out: Any,
) -> None:
    """The derivative through every iteration: out (count, n) = (dw/dc)ᵀ gradient for the instances `index`.

    With g the derivative with respect to z⁺ and p its projection onto the null space of M, one iteration back is: c gets
    −α p; z gets g − (1 + α ρ) p where it is negative, (1 − α (τ + ρ)) p elsewhere.
    """
    n, N, m = gradient.shape[1], negative.shape[1], len(system.pivot)
    g, charge, x = space[:N], space[N : N + n], space[2 * N : 2 * N + m]
    load(gradient, index, g.lane)
    for j in range(n, N):
        put(g, j, 0.0)
    for j in range(n):
        put(g, j, where(negative[len(steps) - 1, j], 0.0, get(g, j)))
        put(charge, j, 0.0)
    for k in range(len(steps) - 1, -1, -1):
        step = steps[k]
        keep, turn = 1.0 - step * (tau + rho), 1.0 + step * rho
        multipliers(system, g, None, x)
        for j in range(N):
            whole = get(g, j)
            p = less_pairs(whole, system.columns, j, x)
            if j < n:
                put(charge, j, get(charge, j) - step * p)
            if k > 0:
                put(g, j, where(negative[k - 1, j], whole - turn * p, keep * p))
    store(charge.lane, index, used, out)


def run(
    rows: SplittingRows, tau: float, rho: float, steps: np.ndarray, costs: Tensor, start: Tensor, sides: Sides,
    precision: torch.dtype, record: bool,
) -> tuple[np.ndarray, Callable[[Tensor], Tensor]]:  # fmt: skip
    """w `(count, n)` of one batch, and its backward, gradient → (dw/dc)ᵀ gradient, with the tiles and the work space of `DavisYin`."""
    kernels = Compiled.of(rows, precision, torch.device("cpu"))
    c, begin = (as_rows(part, len(start), kernels.numbers) for part in (costs, start))
    right, w = rows.numbers(sides, kernels.numbers).right, np.empty_like(c)
    solved: list[tuple[Tile, np.ndarray]] = []

    def solve(tile: Tile) -> None:
        index, used = tile
        negative = np.empty((len(steps) if record else 0, begin.shape[1]), f"u{len(index) // 8}")
        constants = steps, tau, rho, index, used, kernels.space(len(index))
        iterate(kernels.system, c, begin, right, *constants, negative, w)
        solved.append((tile, negative))

    def backward(gradient: Tensor) -> Tensor:
        g = as_rows(gradient, len(w), w.dtype)
        out = np.empty_like(g)

        def transpose(part: tuple[Tile, np.ndarray]) -> None:
            (index, used), negative = part
            adjoint(kernels.system, steps, tau, rho, negative, g, index, used, kernels.space(len(index)), out)

        run_tiles(transpose, solved)
        return in_shape(out, gradient.shape[:-1]).to(gradient)

    run_tiles(solve, kernels.tiles(len(c)))
    return w, backward
