"""Two-stage with quantiles: which quantile of each predicted number to plan for, and linear quantile regression.

A predicted row with supply u at a unit cost λ, a price a for what exceeds t and b for what it lacks costs

    λ u + a (u − t)⁺ + b (t − u)⁺,      least in expectation where  P(t ≤ u) = (b − λ)/(a + b),

the critical ratio of the newsvendor (Arrow, Harris and Marschak, 1951).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dflearn.estimator.two_stage import LinearFit
from dflearn.models import Standardize
from dflearn.program import Program

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # tried where no critical ratio is known, one for all


def critical_ratios(program: Program) -> np.ndarray | None:
    """The quantile of each predicted number to plan for `(p,)`; `None` where the program does not tell it.

    It does where each predicted number is the right-hand side of one row, in which one variable, that no other row holds,
    brings supply at a known cost, and recourse variables of that row alone what is lacking or in excess.
    """
    if program.recourse is None or not program.predicts_rows or program.Q is not None or program.is_integer:
        return None
    if program.S is None or program.S.nnz:  # costs are predicted too
        return None
    entries = np.zeros(program.n)
    for matrix in (program.A, program.G):
        entries += np.bincount(matrix.indices, minlength=program.n)
    ratios, taken = np.full(program.p, np.nan), np.zeros(program.p, int)
    for moves, equality in ((program.B, True), (program.H, False)):
        if moves is None:
            continue
        for i in np.flatnonzero(np.diff(moves.indptr)):
            if moves.indptr[i + 1] - moves.indptr[i] > 1:
                return None
            j, factor = int(moves.indices[moves.indptr[i]]), float(moves.data[moves.indptr[i]])
            ratio = _ratio(program, int(i), entries, equality=equality)
            if ratio is None:
                return None
            ratios[j], taken[j] = ratio if factor > 0 else 1 - ratio, taken[j] + 1
    return ratios if (taken == 1).all() else None


def _ratio(program: Program, i: int, entries: np.ndarray, *, equality: bool) -> float | None:
    """(b − λ)/(a + b) of one row, where all of its variables stand in it alone."""
    assert program.recourse is not None
    matrix = program.A if equality else program.G
    held = slice(matrix.indptr[i], matrix.indptr[i + 1])
    columns, values = matrix.indices[held], matrix.data[held]
    if (entries[columns] > 1).any():
        return None
    later = program.recourse[columns]
    if int((~later).sum()) != 1:
        return None
    prices = program.d[columns] / np.abs(values)
    slack = (program.lower[columns] == 0) & np.isinf(program.upper[columns])
    if not slack[later].all() or (prices[later] <= 0).any():
        return None
    above, below = later & (values < 0), later & (values > 0)
    if not above.any() or (equality and not below.any()) or (not equality and below.any()):
        return None
    a, b = prices[above].min(), prices[below].min() if equality else 0.0
    supply = float((program.d[columns] / values)[~later][0])
    ratio = float((b - supply) / (a + b))
    return ratio if 0 < ratio < 1 else None


def quantile_fit(x: Tensor, y: Tensor, level: np.ndarray | float, weights: Tensor | None = None) -> LinearFit:
    """Linear quantile regression of each column of y `(count, p)` at its level, a number or `(p,)`: one linear program each."""
    from sklearn.linear_model import QuantileRegressor

    standardize = Standardize(x.shape[-1], x, weights)
    z, levels = standardize(x).numpy(), np.broadcast_to(level, y.shape[1:])
    weight, bias = np.zeros((y.shape[1], x.shape[-1])), np.zeros(y.shape[1])
    counts = None if weights is None else weights.numpy()
    for j, (target, own) in enumerate(zip(y.numpy().T, levels, strict=True)):
        middle, unit = float(np.median(target)), float(np.abs(target).max()) or 1.0
        fit = QuantileRegressor(quantile=float(own), alpha=0.0, solver="highs").fit(z, (target - middle) / unit, counts)
        weight[j], bias[j] = unit * fit.coef_, middle + unit * fit.intercept_
    return LinearFit(standardize, torch.tensor(weight), torch.tensor(bias), 0.0)
