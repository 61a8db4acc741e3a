"""Forecasts of what stands on the right of a constraint: too little and too much of it cost differently, so a mean is wrong."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from dflearn.program import Program
from dflearn.tables.linear import LinearFit, each_cost

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of quantiles, tried where no critical ratio is known


def quantile_fit(x: Tensor, y: Tensor, level: np.ndarray | float, weights: Tensor | None = None) -> LinearFit:
    """Linear quantile regression of each column of y `(count, p)` at its level, a number or `(p,)`: one linear program each."""
    from sklearn.linear_model import QuantileRegressor

    levels = np.broadcast_to(level, y.shape[1:])
    return each_cost(
        x, y, weights, [QuantileRegressor(quantile=float(one), alpha=0.0, solver="highs") for one in levels]
    )


def critical_ratios(program: Program) -> np.ndarray | None:
    """The quantile of each predicted number to plan for `(p,)`; `None` where the program does not tell it.

    A predicted row with supply u at a unit cost λ, a price a for what exceeds t and b for what it lacks costs

        λ u + a (u − t)⁺ + b (t − u)⁺,      least in expectation where  P(t ≤ u) = (b − λ)/(a + b),

    the critical ratio of the newsvendor (Arrow, Harris and Marschak, 1951). The program tells it
    where each predicted number is the right-hand side of one row, in which one variable, that no other row holds,
    brings supply at a known cost, and recourse variables of that row alone what is lacking or in excess.
    """
    if program.recourse is None or not program.predicts_rows or program.Q is not None or program.is_integer:
        return None
    if program.S is None or program.S.nnz:  # costs are predicted too
        return None
    p, sides = program.p, ((program.b, program.B), (program.h, program.H))
    moves = sp.vstack([sp.csr_array((len(side), p)) if by is None else by for side, by in sides]).tocoo()
    if sorted(moves.col) != list(range(p)) or len(set(moves.row)) < p:
        return None
    order = np.argsort(moves.col)
    row, factor = moves.row[order], moves.data[order]  # of each predicted number
    equality = row < len(program.b)
    whole = sp.vstack([program.A, program.G]).tocsr()
    entries = whole[row].tocoo()
    j, k, value = entries.row, entries.col, entries.data
    later, price = program.recourse[k], program.d[k] / np.abs(value)
    slack = (program.lower[k] == 0) & np.isinf(program.upper[k]) & (price > 0)
    alone = np.bincount(whole.indices, minlength=program.n)[k] == 1
    if not alone.all() or not slack[later].all() or (np.bincount(j[~later], minlength=p) != 1).any():
        return None
    excess, lack = np.full((2, p), np.inf)
    for least, some in ((excess, later & (value < 0)), (lack, later & (value > 0))):
        np.minimum.at(least, j[some], price[some])
    if np.isinf(excess).any() or (np.isfinite(lack) != equality).any():
        return None
    lack[~equality] = 0.0
    supply = np.empty(p)
    supply[j[~later]] = (program.d[k] / value)[~later]
    ratios = (lack - supply) / (excess + lack)
    return np.where(factor > 0, ratios, 1 - ratios) if ((ratios > 0) & (ratios < 1)).all() else None
