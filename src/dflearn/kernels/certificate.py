"""How wrong answers to a linear program are, by their decisions and prices: see `solvers.certificate`, whose rules these are."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels import ahead

jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def check_answers(
    start: Any, index: Any, entry: Any, equalities: int, active: float, zero: float, noise: float,
    c: Any, w: Any, prices: Any, right: Any, lower: Any, upper: Any, out: Any,
) -> None:  # fmt: skip
    """out `(5, count)`: as `Verdict`.

    M is stored by rows: entry[k] is in column index[k], for k from start[i] to start[i + 1]. c, w `(count, n)`, prices
    `(count, rows)`; right, lower, upper have one line per instance or one for all. active, zero, noise: the tolerances there.
    """
    rows, n = len(start) - 1, c.shape[1]
    row_largest, column_largest = np.zeros(rows), np.zeros(n)
    for i in range(rows):
        for k in range(start[i], start[i + 1]):
            row_largest[i] = max(row_largest[i], abs(entry[k]))
            column_largest[index[k]] = max(column_largest[index[k]], abs(entry[k]))
    reduced, terms = np.empty(n), np.empty(n)
    for t in range(c.shape[0]):
        q, low, high = right[min(t, len(right) - 1)], lower[min(t, len(lower) - 1)], upper[min(t, len(upper) - 1)]
        largest, highest, primal, dual, gap, value, objective = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(n):
            reduced[j], terms[j] = c[t, j], abs(c[t, j])
            largest = max(largest, abs(w[t, j]))
            value += abs(c[t, j] * w[t, j])
            objective += c[t, j] * w[t, j]
        for i in range(rows):
            excess, size, y = -q[i], abs(q[i]), prices[t, i]
            for k in range(start[i], start[i + 1]):
                part = entry[k] * w[t, index[k]]
                excess += part
                size += abs(part)
            if abs(excess) <= noise * row_largest[i] * largest:
                excess = 0.0
            if excess > 0.0 or (i < equalities and excess != 0.0):
                primal = max(primal, abs(excess) / size)
            if i >= equalities and (y > 0.0 or excess < -active * size):
                y = 0.0  # what is left to spare has no price
            if y != 0.0:
                highest = max(highest, abs(y))
                gap += abs(y * excess)
                for k in range(start[i], start[i + 1]):
                    part = entry[k] * y
                    reduced[index[k]] -= part
                    terms[index[k]] += abs(part)
        for j in range(n):
            r, x = reduced[j], w[t, j]
            bound = low[j] if r > 0.0 else high[j]
            off = abs(x - bound)
            if off <= noise * largest:
                continue
            if off > (
                0.0 if np.isinf(bound) else active * max(abs(x), abs(bound))
            ):  # not at the bound that it asks for
                wrong = max(abs(r) - noise * column_largest[j] * highest, 0.0)
                wrong = wrong / terms[j] if wrong > 0.0 else 0.0
                dual = max(dual, wrong)
                if wrong <= zero:
                    continue
            gap += abs(r) * off
        share = 0.0 if gap == 0.0 else gap / value if value > 0.0 and not np.isnan(gap) else np.inf
        out[0, t], out[1, t], out[2, t], out[3, t] = primal, dual, share, max(primal, dual, share)
        out[4, t] = objective - gap
