"""The iteration of `AsPublished` on tiles, sparse: all iterations in one call, one pass over the variables each.

On z for the variables and the slacks of inequalities, t for the slacks of upper bounds, with ρ = 10⁻⁶ + τ and a step α of
the iteration's own:

    v = −(1 + α ρ) z − α c  where z < 0,  (1 − α (τ + ρ)) z − α c  elsewhere;    z⁺ = min(z, 0) + P₁(v);

the same for t, which has no costs. P₁ projects onto the rows, of which there are three kinds:

- Upper bounds, w_j + t_j = u_j. The nearest pair to (v_j, v_t) is m_j = (v_j + u_j − v_t)/2 and u_j − m_j, and moving it costs
  twice as much: with Θ_j = ½ there and m_j = v_j, Θ_j = 1 elsewhere, what is left is a projection of m onto the other rows.
- Private rows D w = r_D, of which no two have a variable in common. A pass satisfies them block by block.
- Shared rows F w = r_F, all others: with N = D Θ Dᵀ (diagonal) and B = F Θ^½ (I − Θ^½ Dᵀ N⁻¹ D Θ^½), a sparse factor of B Bᵀ,

      m′ = m − Θ Dᵀ N⁻¹ (D m − r_D),   x = (B Bᵀ)⁻¹ (F m′ − r_F),   y = m − Θ Fᵀ x,   P₁ = y − Θ Dᵀ N⁻¹ (D y − r_D).

A pass gets x, computes P₁, the new z and, from it, the sums F m′ − r_F of the next pass. Which entries of z and t are negative
is all that the way back has to know: one bit per entry, instance and iteration.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dflearn.kernels.davis_yin import less_fours
from dflearn.kernels.lanes import BLOCK, bits, get, jit, load, maximum, minimum, put, where
from dflearn.kernels.splitting_data import PaddedRows


class PublishedSystem(NamedTuple):
    """The rows in one dtype. Variables and slacks of inequalities (N) stand block by block, a block for each private row.

    What is in no private row stands in further blocks, whose row is zero and so satisfied.

    column: what stands at each place, as a column of the start (N + pairs); the slacks of upper bounds follow (pairs).
    block: where each block begins, and where the last one ends (blocks + 1,).
    plain: whether all places of a block have one entry in the shared rows and no slack of an upper bound (blocks,).
    own, pull: of each place, the entry of its private row, D, and of Θ Dᵀ N⁻¹ (N,).
    start, row, value, weighted: Fᵀ by places, its rows scaled and in elimination order; and the values of Θ Fᵀ.
    pair: of each place, which slack of an upper bound belongs to it, or −1; upper: those bounds (pairs,).
    below, above, pivot: the factor of B Bᵀ, as of `SplittingSystem`.
    """

    column: np.ndarray
    block: np.ndarray
    plain: np.ndarray
    own: np.ndarray
    pull: np.ndarray
    start: np.ndarray
    row: np.ndarray
    value: np.ndarray
    weighted: np.ndarray
    pair: np.ndarray
    upper: np.ndarray
    below: PaddedRows
    above: PaddedRows
    pivot: np.ndarray


def space_rows(system: PublishedSystem) -> int:
    """Rows of the tile that both ways need as work space."""
    return 3 * len(system.pair) + len(system.upper) + 3 * len(system.pivot) + len(system.block)


@jit
def load_columns(source: Any, column: Any, index: Any, tile: Any) -> None:
    """As `load`, with column[p] of the source at place p; zero where the source has no such column."""
    for first in range(0, len(column), BLOCK):
        for t in range(len(index)):
            row = index[t]
            for p in range(first, min(first + BLOCK, len(column))):
                j = column[p]
                tile[p, t] = source[row, j] if j < source.shape[1] else 0.0


@jit
def store_columns(tile: Any, column: Any, index: Any, used: int, out: Any) -> None:
    """The way back of `load_columns`: what has no column is left out."""
    for first in range(0, tile.shape[0], BLOCK):
        for t in range(used):
            row = index[t]
            for p in range(first, min(first + BLOCK, tile.shape[0])):
                if column[p] < out.shape[1]:
                    out[row, column[p]] = tile[p, t]


@jit
def multipliers(system: PublishedSystem, sums: Any, right: Any, x: Any) -> None:
    """x = (B Bᵀ)⁻¹ sums; the sums begin anew at −right, or at zero where that is `None`."""
    m = len(system.pivot)
    for i in range(m):
        put(x, i, less_fours(get(sums, i), system.below, i, x))
        if right is None:
            put(sums, i, 0.0)
        else:
            put(sums, i, 0.0 - get(right, i))
    for i in range(m - 1, -1, -1):
        put(x, i, less_fours(get(x, i) * system.pivot[i], system.above, i, x))


@jit
def bent(point: Any, keep: float, turn: float) -> Any:
    """(keep + turn) · point where that is negative, keep · point elsewhere."""
    return keep * point + turn * minimum(point, 0.0)


@jit
def sweep(
    system: PublishedSystem,
    z: Any,
    t: Any,
    cost: Any,
    right: Any,
    x: Any,
    sums: Any,
    aimed: Any,
    step: float,
    tau: float,
    rho: float,
    moving: bool,
    aiming: bool,
    record: bool,
    negative: Any,
) -> None:
    """One pass: with `moving`, the new z and t from the multipliers x; with `aiming`, m and the sums for a step from there.

    aimed: m. right: r_D. negative (N + pairs,): with `record`, which entries of the new z and t are negative.
    """
    block, plain, own, pull, pair, upper = (
        system.block,
        system.plain,
        system.own,
        system.pull,
        system.pair,
        system.upper,
    )
    start, row, value, weighted = system.start, system.row, system.value, system.weighted
    N, keep, turn = len(pair), 1.0 - step * (tau + rho), step * tau - 2.0
    for b in range(len(block) - 1):
        begun, end = block[b], block[b + 1]
        short = 0.0 - get(right, b)
        total, excess = short, short
        if moving and aiming and plain[b]:
            lag = start[begun] - begun
            for p in range(begun, end):
                total = total + own[p] * (get(aimed, p) - weighted[p + lag] * get(x, row[p + lag]))
            for p in range(begun, end):
                point = get(aimed, p) - weighted[p + lag] * get(x, row[p + lag]) - pull[p] * total
                new = minimum(get(z, p), 0.0) + point
                put(z, p, new)
                if record:
                    negative[p] = bits(new < 0.0)
                point = bent(new, keep, turn) - step * get(cost, p)
                put(aimed, p, point)
                excess = excess + own[p] * point
            for p in range(begun, end):
                i = row[p + lag]
                put(sums, i, get(sums, i) + value[p + lag] * (get(aimed, p) - pull[p] * excess))
            continue
        if moving:
            for p in range(begun, end):
                point = get(aimed, p)
                for e in range(start[p], start[p + 1]):
                    point = point - weighted[e] * get(x, row[e])
                put(aimed, p, point)
                total = total + own[p] * point
        for p in range(begun, end):
            new, k = get(z, p), pair[p]
            slack = get(t, k) if k >= 0 else new
            if moving:
                point = get(aimed, p) - pull[p] * total
                new = minimum(new, 0.0) + point
                put(z, p, new)
                if record:
                    negative[p] = bits(new < 0.0)
                if k >= 0:
                    slack = minimum(slack, 0.0) + (upper[k] - point)
                    put(t, k, slack)
                    if record:
                        negative[N + k] = bits(slack < 0.0)
            if aiming:
                point = bent(new, keep, turn) - step * get(cost, p)
                if k >= 0:
                    point = 0.5 * (point + upper[k] - bent(slack, keep, turn))
                put(aimed, p, point)
                excess = excess + own[p] * point
        if aiming:
            for p in range(begun, end):
                point = get(aimed, p) - pull[p] * excess
                for e in range(start[p], start[p + 1]):
                    put(sums, row[e], get(sums, row[e]) + value[e] * point)


@jit
def iterate(
    system: PublishedSystem,
    c: Any,
    begin: Any,
    private: Any,
    shared: Any,
    steps: Any,
    tau: float,
    rho: float,
    index: Any,
    used: int,
    space: Any,
    record: bool,
    negative: Any,
    out: Any,
) -> None:
    """out (count, n) = max(z, 0) after the steps, for the instances `index`.

    c (count, n); begin: z, then t, (count, N + pairs); private, shared: r_D and r_F, (count or 1, ·). negative: unsigned
    integers of one bit per lane; with `record` (steps, N + pairs), row k is about the z after step k.
    """
    N, pairs, m, blocks = len(system.pair), len(system.upper), len(system.pivot), len(system.block) - 1
    z, t, rest = space[:N], space[N : N + pairs], space[N + pairs :]
    cost, aimed, sums, rest = rest[:N], rest[N : 2 * N], rest[2 * N : 2 * N + m], rest[2 * N + m :]
    x, right, own_right = rest[:m], rest[m : 2 * m], rest[2 * m : 2 * m + blocks]
    load_columns(begin, system.column, index, space[: N + pairs].lane)
    load_columns(c, system.column[:N], index, cost.lane)
    load(shared, index, right.lane)
    load(private, index, own_right.lane)
    for i in range(m):
        put(sums, i, 0.0 - get(right, i))
    last = len(steps)
    for k in range(last + 1):  # step k − 1 ends, step k begins
        if k > 0:
            multipliers(system, sums, right, x)
        step, marks = steps[min(k, last - 1)], negative[max(k - 1, 0) if record else 0]
        sweep(system, z, t, cost, own_right, x, sums, aimed, step, tau, rho, k > 0, k < last, record, marks)
    for p in range(N):
        put(z, p, maximum(0.0, get(z, p)))  # in this order, what is not a number stays so
    store_columns(z.lane, system.column, index, used, out)


@jit
def sweep_back(
    system: PublishedSystem,
    g: Any,
    h: Any,
    charge: Any,
    x: Any,
    sums: Any,
    scratch: Any,
    zero: Any,
    step: float,
    tau: float,
    rho: float,
    moving: bool,
    aiming: bool,
    negative: Any,
) -> None:
    """One pass back: with `moving`, the derivatives before a step from those after it; with `aiming`, the sums for the next.

    negative (N + pairs,): which entries of z and t were negative before the step. scratch: a block.
    """
    block, plain, own, pull, pair = system.block, system.plain, system.own, system.pull, system.pair
    start, row, value, weighted = system.start, system.row, system.value, system.weighted
    N, keep, turn = len(pair), 1.0 - step * (tau + rho), 1.0 + step * rho
    for b in range(len(block) - 1):
        begun, end = block[b], block[b + 1]
        total, excess = zero, zero
        if moving and aiming and plain[b]:
            lag = start[begun] - begun
            for p in range(begun, end):
                total = total + own[p] * (get(g, p) - weighted[p + lag] * get(x, row[p + lag]))
            for p in range(begun, end):
                inner = get(g, p) - weighted[p + lag] * get(x, row[p + lag]) - pull[p] * total
                put(charge, p, get(charge, p) - step * inner)
                point = where(negative[p], get(g, p) - turn * inner, keep * inner)
                put(g, p, point)
                excess = excess + own[p] * point
            for p in range(begun, end):
                i = row[p + lag]
                put(sums, i, get(sums, i) + value[p + lag] * (get(g, p) - pull[p] * excess))
            continue
        if moving:
            for p in range(begun, end):
                point, k = get(g, p), pair[p]
                if k >= 0:
                    point = 0.5 * (point - get(h, k))
                for e in range(start[p], start[p + 1]):
                    point = point - weighted[e] * get(x, row[e])
                put(scratch, p - begun, point)
                total = total + own[p] * point
        for p in range(begun, end):
            point, k = get(g, p), pair[p]
            if moving:
                inner = get(scratch, p - begun) - pull[p] * total
                put(charge, p, get(charge, p) - step * inner)
                point = where(negative[p], point - turn * inner, keep * inner)
                put(g, p, point)
                if k >= 0:
                    put(h, k, where(negative[N + k], get(h, k) + turn * inner, 0.0 - keep * inner))
            if aiming:
                if k >= 0:
                    point = 0.5 * (point - get(h, k))
                put(scratch, p - begun, point)
                excess = excess + own[p] * point
        if aiming:
            for p in range(begun, end):
                point = get(scratch, p - begun) - pull[p] * excess
                for e in range(start[p], start[p + 1]):
                    put(sums, row[e], get(sums, row[e]) + value[e] * point)


@jit
def adjoint(
    system: PublishedSystem,
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

    With (g, h) the derivatives with respect to z⁺ and t⁺, and (p, −p) their projection onto the null space of the rows, one
    iteration back is: c gets −α p; z gets g − (1 + α ρ) p where it is negative, (1 − α (τ + ρ)) p elsewhere; t likewise.
    """
    N, pairs, m = len(system.pair), len(system.upper), len(system.pivot)
    g, h, charge, rest = space[:N], space[N : N + pairs], space[N + pairs : 2 * N + pairs], space[2 * N + pairs :]
    sums, x, scratch, final = rest[:m], rest[m : 2 * m], rest[2 * m :], len(steps) - 1
    put(scratch, 0, 0.0)
    zero = get(scratch, 0)
    load_columns(gradient, system.column[:N], index, g.lane)
    for p in range(N):
        put(g, p, where(negative[final, p], zero, get(g, p)))
        put(charge, p, 0.0)
    for k in range(pairs):
        put(h, k, 0.0)
    for i in range(m):
        put(sums, i, 0.0)
    for k in range(final + 1, -1, -1):
        if k <= final:
            multipliers(system, sums, None, x)
        marks = negative[max(k - 1, 0)]
        sweep_back(
            system, g, h, charge, x, sums, scratch, zero, steps[min(k, final)], tau, rho, k <= final, k > 0, marks
        )  # fmt: skip
    store_columns(charge.lane, system.column, index, used, out)
