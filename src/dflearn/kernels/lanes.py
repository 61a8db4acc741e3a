"""Arithmetic on tiles `(items, LANES)`: one row is one vector register's worth of instances.

Functions that update a row read all lanes before they write any: the compiler may then keep the row in a register
without proving that the arrays do not overlap. Loops over whole tiles run over the flat array instead, with few arrays
in each, which the compiler vectorizes by itself.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

LANES = 8

jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "arcp", "nsz"})
inline = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "arcp", "nsz"}, inline="always")


@inline
def add_scaled(x: Any, i: Any, a: Any, y: Any, j: Any) -> None:
    """x[i] += a · y[j]."""
    s0, s1, s2, s3 = x[i, 0] + a * y[j, 0], x[i, 1] + a * y[j, 1], x[i, 2] + a * y[j, 2], x[i, 3] + a * y[j, 3]
    s4, s5, s6, s7 = x[i, 4] + a * y[j, 4], x[i, 5] + a * y[j, 5], x[i, 6] + a * y[j, 6], x[i, 7] + a * y[j, 7]
    x[i, 0], x[i, 1], x[i, 2], x[i, 3] = s0, s1, s2, s3
    x[i, 4], x[i, 5], x[i, 6], x[i, 7] = s4, s5, s6, s7


@jit
def gather(start: Any, index: Any, value: Any, x: Any, out: Any) -> None:
    """out = Matrix · x for a matrix by rows (start, index, value): every row a sum held in registers."""
    for i in range(out.shape[0]):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = x[0, 0] * 0.0
        for k in range(start[i], start[i + 1]):
            j, a = index[k], value[k]
            s0 += a * x[j, 0]
            s1 += a * x[j, 1]
            s2 += a * x[j, 2]
            s3 += a * x[j, 3]
            s4 += a * x[j, 4]
            s5 += a * x[j, 5]
            s6 += a * x[j, 6]
            s7 += a * x[j, 7]
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = s0, s1, s2, s3
        out[i, 4], out[i, 5], out[i, 6], out[i, 7] = s4, s5, s6, s7


@jit
def lane_sum(x: Any, out: Any) -> None:
    """out[t] = Σ over items of x[·, t]."""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for i in range(x.shape[0]):
        s0 += x[i, 0]
        s1 += x[i, 1]
        s2 += x[i, 2]
        s3 += x[i, 3]
        s4 += x[i, 4]
        s5 += x[i, 5]
        s6 += x[i, 6]
        s7 += x[i, 7]
    out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = s0, s1, s2, s3, s4, s5, s6, s7


@jit
def lane_max(x: Any, out: Any) -> None:
    """out[t] = max(out[t], max over items of x[·, t])."""
    s0, s1, s2, s3, s4, s5, s6, s7 = out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]
    for i in range(x.shape[0]):
        s0 = max(s0, x[i, 0])
        s1 = max(s1, x[i, 1])
        s2 = max(s2, x[i, 2])
        s3 = max(s3, x[i, 3])
        s4 = max(s4, x[i, 4])
        s5 = max(s5, x[i, 5])
        s6 = max(s6, x[i, 6])
        s7 = max(s7, x[i, 7])
    out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7] = s0, s1, s2, s3, s4, s5, s6, s7


@jit
def spread(lane: Any, out: Any) -> None:
    """out[i, t] = lane[t]: one number per instance, for loops over the flat array."""
    for i in range(out.shape[0]):
        for t in range(LANES):
            out[i, t] = lane[t]


@jit
def load(source: Any, index: Any, out: Any) -> None:
    """Rows `index` of an instance-major array `(count, items)` (or `(1, items)`, shared by all) become the lanes."""
    shared = source.shape[0] == 1
    for t in range(LANES):
        row = 0 if shared else index[t]
        for i in range(out.shape[0]):
            out[i, t] = source[row, i]


@jit
def store(tile: Any, index: Any, used: Any, out: Any) -> None:
    """The first `used` lanes go back to their rows of an instance-major array."""
    for t in range(used):
        row = index[t]
        for i in range(tile.shape[0]):
            out[row, i] = tile[i, t]


def tiles(index: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """Instance numbers in groups of `LANES`; the last group repeats its last instance. With how many are real."""
    groups = []
    for first in range(0, len(index), LANES):
        part = index[first : first + LANES]
        padded = np.full(LANES, part[-1], dtype=np.int64)
        padded[: len(part)] = part
        groups.append((padded, len(part)))
    return groups
