"""The rule of `dflearn.engine.certify` for a batch, without its allowance for rounding: what passes here passes there."""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.engine import ahead
from dflearn.engine.limits import DOUBT, NOTHING

EPS = float(np.finfo(np.float64).eps)
ROUNDING = 64.0  # a gap of so many times that is rounding itself
jit = ahead.jit(nogil=True, error_model="numpy")


@jit
def check_answers(
    start: Any, index: Any, entry: Any, equalities: int, zero: float,
    c: Any, factor: Any, curve: Any, w: Any, prices: Any, right: Any, lower: Any, upper: Any, out: Any,
) -> None:  # fmt: skip
    """out `(5, count)`: primal, dual, gap and the worst of these, and the bound, as of `Verdict`.

    M is stored by rows: entry[k] is in column index[k], for k from start[i] to start[i + 1]. c, w `(count, n)`, prices
    `(count, rows)`. curve: the diagonal part of Q. factor `(2, count, n)`: what the rest of Q adds to the slope, and the size of
    its terms; no instances where there is no rest. Of curve, right, lower and upper there is one line per instance or one for
    all.
    """
    rows, n = len(start) - 1, c.shape[1]
    slope, terms = np.empty(n), np.empty(n)
    excess, size = np.empty(rows), np.empty(rows)
    for t in range(c.shape[0]):
        q, low, high = right[min(t, len(right) - 1)], lower[min(t, len(lower) - 1)], upper[min(t, len(upper) - 1)]
        delta = curve[min(t, len(curve) - 1)]
        primal, dual, gap, value, objective, doubt = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        dearest, length = 0.0, 0.0
        for j in range(n):
            x = w[t, j]
            pull, weight = delta[j] * x, delta[j] * abs(x)
            if factor.shape[1]:
                pull += factor[0, t, j]
                weight += factor[1, t, j]
            slope[j], terms[j] = c[t, j] + pull, abs(c[t, j]) + weight
            dearest, length = max(dearest, terms[j]), length + abs(x)
            value += (abs(c[t, j]) + 0.5 * weight) * abs(x)
            objective += (c[t, j] + 0.5 * pull) * x
        for i in range(rows):
            over, total, y = -q[i], abs(q[i]), prices[t, i]
            for k in range(start[i], start[i + 1]):
                part = entry[k] * w[t, index[k]]
                over += part
                total += abs(part)
            excess[i], size[i] = over, total
            if over > 0.0 or (i < equalities and over != 0.0):
                primal = max(primal, abs(over) / total)
            if y != 0.0 and (i < equalities or y < 0.0):
                gap += abs(y * over)
                for k in range(start[i], start[i + 1]):
                    part = entry[k] * y
                    slope[index[k]] -= part
                    terms[index[k]] += abs(part)
            if np.isnan(over) or np.isnan(y):
                primal = np.inf
        for i in range(equalities, rows):
            if prices[t, i] < 0.0 and excess[i] < 0.0:
                felt = 0.0
                for k in range(start[i], start[i + 1]):
                    felt = max(felt, abs(entry[k] * prices[t, i]) / terms[index[k]])
                dual = max(dual, min(felt, -excess[i] / size[i]))
        for j in range(n):
            r, x = slope[j], w[t, j]
            doubt += EPS * terms[j] * abs(x)
            bound = low[j] if r > 0.0 else high[j]
            off = abs(x - bound)
            if r == 0.0 or off == 0.0:
                continue
            share = abs(r) / terms[j]
            dual = max(dual, share if np.isinf(bound) else min(share, off / max(abs(x), abs(bound))))
            if delta[j] > 0.0:
                off = min(off, abs(r) / delta[j])
            if share > NOTHING:
                gap += abs(r) * (off if share > zero else min(off, abs(x)))
        if np.isnan(objective) or np.isnan(gap) or np.isnan(dual):
            primal = gap = np.inf
        part = 0.0 if gap <= ROUNDING * doubt else gap / value if value > 0.0 else np.inf
        costs = max(value, dearest * length)
        if costs > 0.0 and doubt > DOUBT * costs:
            part = max(part, doubt / costs)
        out[0, t], out[1, t], out[2, t] = primal, dual, part
        out[3, t] = np.inf if np.isinf(primal) else max(primal, dual, part)
        out[4, t] = objective - gap
