"""Forecasts for a small squared error: least squares, ridge, boosting. The baseline, and where decision-focused training starts.

    least squares, ridge:   min over W, b of  Σ_i a_i ‖y_i − W z_i − b‖² / Σ a_i + strength · ‖W‖²,   z = standardized features

All costs at once by one singular value decomposition; b is free; without weights a = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.models import Standardize, Trees
from dflearn.program import Program

STRENGTHS = tuple(10.0**power for power in np.arange(-6, 3.01, 0.5))  # of ridge, relative to features of variance 1
RANK = 1e-10  # singular values below this share of the largest count as zero
TREES, WORK, LEAST_TREES = 100, 1500, 25  # trees per cost at most; trees of all costs together; but so many at least
ROWS_PER_TREE = 4  # so that few rows make for few trees
LEAVES, RATE, PER_LEAF = 15, 0.1, 20  # of a tree; of boosting; rows in a leaf at least


class LinearFit(NamedTuple):
    """ŷ = weight · z + bias on features standardized by `standardize`; strength 0 is least squares."""

    standardize: Standardize
    weight: Tensor  # (p, k)
    bias: Tensor  # (p,)
    strength: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.standardize(x) @ self.weight.T + self.bias


def linear_fits(x: Tensor, y: Tensor, strengths: Sequence[float], weights: Tensor | None = None) -> list[LinearFit]:
    """One fit per strength; x `(count, k)`, y `(count, p)`, weights `(count,)`.

    Where features depend on each other, least squares is the smallest of its solutions.
    """
    standardize = Standardize(x.shape[-1], x, weights)
    share = _shares(len(x), weights)
    z = standardize(x)
    middle, level = share @ z, share @ y
    root = share.sqrt()[:, None]
    u, sizes, v = torch.linalg.svd(root * (z - middle), full_matrices=False)
    target = u.T @ (root * (y - level))
    fits = []
    for strength in strengths:
        kept = sizes > RANK * sizes.max() if len(sizes) else sizes > 0
        inverse = torch.where(kept, sizes / (sizes.square() + strength), torch.zeros_like(sizes))
        weight = (v.T @ (inverse[:, None] * target)).T
        fits.append(LinearFit(standardize, weight, level - weight @ middle, float(strength)))
    return fits


def least_squares(x: Tensor, y: Tensor, weights: Tensor | None = None) -> LinearFit:
    return linear_fits(x, y, [0.0], weights)[0]


def ridge(
    x: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    *,
    choose: tuple[Tensor, Tensor] | None = None,
    strength: float | None = None,
) -> LinearFit:
    """Ridge of the given strength, or of the one among `STRENGTHS` that forecasts the rows `choose` = (x, y) best.

    Best is the least sum over costs of squared errors in units of each cost's variance.
    """
    if strength is not None:
        return linear_fits(x, y, [strength], weights)[0]
    assert choose is not None
    fits = linear_fits(x, y, STRENGTHS, weights)
    unit = units_of(y)
    errors = [((fit(choose[0]) - choose[1]) / unit).square().mean().item() for fit in fits]
    return fits[int(np.argmin(errors))]


def units_of(y: Tensor) -> Tensor:
    """The standard deviation of each cost, 1 where it never changes; `(count, p)` → `(p,)`."""
    deviation = y.std(0, correction=0)
    return torch.where(deviation > 1e-9 * y.abs().amax(0), deviation, torch.ones_like(deviation))


# -- boosting ---------------------------------------------------------------------------------------------------------


def boosting(
    x: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    *,
    choose: tuple[Tensor, Tensor] | None = None,
    trees: int | None = None,
    seed: int = 0,
) -> Trees:
    """Gradient-boosted trees for each cost, by scikit-learn's `HistGradientBoostingRegressor`.

    Args:
        choose: rows (x, y) that choose the number of trees, one for all costs: the least sum of squared errors in units of
            each cost's variance.
        trees: that number, where it is known.
    """
    most, unit = trees or most_trees(y.shape[1]), units_of(y)
    fitted = _fitted(x, y / unit, weights, most, seed)
    number = len(fitted[0]._predictors)
    if choose is not None:
        number = int(_error_curve(fitted, choose[0], choose[1] / unit, number).argmin()) + 1
    return _as_trees(fitted, number, unit)


def most_trees(costs: int) -> int:
    """How many trees for each cost are tried."""
    return max(LEAST_TREES, min(TREES, WORK // costs))


def _fitted(x: Tensor, y: Tensor, weights: Tensor | None, trees: int, seed: int) -> list[Any]:
    """scikit-learn's models, one for each cost; few rows make for few trees."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    models = [
        HistGradientBoostingRegressor(
            max_iter=min(trees, max(1, len(x) // ROWS_PER_TREE)),
            learning_rate=RATE,
            max_leaf_nodes=LEAVES,
            min_samples_leaf=min(PER_LEAF, max(1, len(x) // 5)),
            early_stopping=False,
            random_state=seed,
        )
        for _ in range(y.shape[1])
    ]
    for model, target in zip(models, y.T, strict=True):
        model.fit(x.numpy(), target.numpy(), None if weights is None else weights.numpy())
    return models


def _error_curve(fitted: Sequence[Any], x: Tensor, y: Tensor, most: int, weights: Tensor | None = None) -> np.ndarray:
    """Σ of squared errors with 1, 2, … most trees; models with fewer stay at their last."""
    errors, counts = np.zeros(most), np.ones(len(x)) if weights is None else weights.numpy()
    for model, truth in zip(fitted, y.T.numpy(), strict=True):
        curve = [float(counts @ np.square(forecast - truth)) for forecast in model.staged_predict(x.numpy())]
        errors += np.array(curve + curve[-1:] * (most - len(curve)))
    return errors


def _as_trees(fitted: Sequence[Any], number: int, unit: Tensor) -> Trees:
    """The first `number` trees of scikit-learn's models, one model per cost, as arrays; each cost is in its unit."""
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "missing_left", "value")
    }
    number = min(number, len(fitted[0]._predictors))
    root = np.zeros((len(fitted), number), np.int64)
    base, first = [], 0
    for j, model in enumerate(fitted):
        base.append(float(np.ravel(model._baseline_prediction)[0]) * unit[j].item())
        for t, (tree,) in enumerate(model._predictors[:number]):
            nodes, own = tree.nodes, np.arange(first, first + len(tree.nodes))
            leaf = nodes["is_leaf"].astype(bool)
            root[j, t] = first
            parts["feature"].append(np.where(leaf, 0, nodes["feature_idx"]))
            parts["threshold"].append(np.where(leaf, 0.0, np.minimum(nodes["num_threshold"], np.finfo(np.float64).max)))
            parts["left"].append(np.where(leaf, own, first + nodes["left"].astype(np.int64)))
            parts["right"].append(np.where(leaf, own, first + nodes["right"].astype(np.int64)))
            parts["missing_left"].append(nodes["missing_go_to_left"].astype(bool))
            parts["value"].append(np.where(leaf, nodes["value"] * unit[j].item(), 0.0))
            first += len(nodes)
    arrays = {name: torch.tensor(np.concatenate(held)) for name, held in parts.items()}
    return Trees(len(fitted), {**arrays, "root": torch.tensor(root), "base": torch.tensor(base, dtype=torch.float64)})


# -- both -----------------------------------------------------------------------------------------------------------


def best_share(linear: Tensor, boosted: Tensor, y: Tensor, unit: Tensor, weights: Tensor | None = None) -> float:
    """a in [0, 1] at which (1 − a) · linear + a · boosted, forecasts of y `(count, p)`, have the least squared error in units."""
    apart, left = (boosted - linear) / unit, (y - linear) / unit
    size = _mean(apart.square(), weights)
    return min(1.0, max(0.0, _mean(apart * left, weights) / size)) if size > 0 else 1.0


# -- forecasts of rows that a model was not fitted to -------------------------------------------------------------------

FOLDS, FIRST = 4, 1 / 3  # parts of the training rows; in order of time, the share that nothing forecasts

Fold = tuple[np.ndarray, np.ndarray]  # rows to fit to, rows to forecast


def folds_of(
    rows: np.ndarray, *, ordered: bool, gap: int = 0, groups: np.ndarray | None = None, seed: int
) -> list[Fold]:
    """Rows in parts that are forecast from the others; in order of time, from earlier rows, less a gap, so that the first rows
    are in no part. Rows of one group, given by labels of all rows, stay together."""
    labels = np.arange(len(rows)) if groups is None else np.unique(np.asarray(groups)[rows], return_inverse=True)[1]
    if ordered:
        borders = np.append(np.flatnonzero(np.diff(labels)) + 1, len(rows))
        wanted = np.linspace(round(FIRST * len(rows)), len(rows), FOLDS)
        cuts = np.unique([borders[np.abs(borders - cut).argmin()] for cut in wanted])
        return [(rows[: max(1, a - gap)], rows[a:b]) for a, b in pairwise(cuts)]
    order = np.random.RandomState(seed).permutation(labels.max() + 1)
    parts = [np.isin(labels, part) for part in np.array_split(order, min(FOLDS, len(order)))]
    return [(rows[~part], rows[part]) for part in parts if not part.all()]


def ridge_left_out(
    x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold], strengths: Sequence[float] = STRENGTHS
) -> tuple[float, Tensor]:
    """The strength that forecasts the rows of the folds best, and its forecasts of them `(rows, p)`."""
    every = [linear_fits(x[others], y[others], strengths, _some(weights, others)) for others, _ in folds]
    truth = y[_forecast(folds)]
    unit = units_of(truth)
    forecasts = [
        torch.cat([fits[s](x[own]) for fits, (_, own) in zip(every, folds, strict=True)]) for s in range(len(strengths))
    ]
    counts = _some(weights, _forecast(folds))
    best = int(np.argmin([_mean(((one - truth) / unit).square(), counts) for one in forecasts]))
    return float(strengths[best]), forecasts[best]


def strength_by_leaving_one_out(x: Tensor, y: Tensor, weights: Tensor | None = None) -> float:
    """The strength among `STRENGTHS` that forecasts each row best from all others.

    In closed form: residual_i / (1 − h_i), with h_i the weight of y_i in its own forecast.
    """
    standardize, share = Standardize(x.shape[-1], x, weights), _shares(len(x), weights)
    z = standardize(x)
    z, apart = z - share @ z, y - share @ y
    u, sizes, v = torch.linalg.svd(share.sqrt()[:, None] * z, full_matrices=False)
    turned, target, unit = z @ v.T, u.T @ (share.sqrt()[:, None] * apart), units_of(y)
    errors = []
    for strength in STRENGTHS:
        own = share * (1 + turned.square() @ (1 / (sizes.square() + strength)))
        residual = apart - turned @ ((sizes / (sizes.square() + strength))[:, None] * target)
        errors.append(_mean((residual / (1 - own.clamp(max=1 - 1e-9))[:, None] / unit).square(), share))
    return float(STRENGTHS[int(np.argmin(errors))])


def boosting_left_out(
    x: Tensor, y: Tensor, weights: Tensor | None, folds: Sequence[Fold], *, trees: int | None = None, seed: int = 0
) -> tuple[list[Trees], Tensor]:
    """Trees of each fold, as many as forecast the rows of the folds best (or `trees`), and the forecasts `(rows, p)`."""
    most, unit = trees or most_trees(y.shape[1]), units_of(y[_forecast(folds)])
    every = [_fitted(x[others], y[others] / unit, _some(weights, others), most, seed) for others, _ in folds]
    number = most
    if trees is None:
        curves = [
            _error_curve(one, x[own], y[own] / unit, most, _some(weights, own))
            for one, (_, own) in zip(every, folds, strict=True)
        ]
        number = int(np.sum(curves, 0).argmin()) + 1
    found = [_as_trees(one, number, unit) for one in every]
    return found, torch.cat([one(x[own]) for one, (_, own) in zip(found, folds, strict=True)])


def _forecast(folds: Sequence[Fold]) -> np.ndarray:
    return np.concatenate([own for _, own in folds])


def _mean(values: Tensor, weights: Tensor | None) -> float:
    """Over rows and costs `(rows, p)`, rows weighed."""
    return values.mean().item() if weights is None else ((weights / weights.sum()) @ values.mean(-1)).item()


def _shares(count: int, weights: Tensor | None) -> Tensor:
    """What each row counts, together one."""
    return torch.full((count,), 1 / count, dtype=torch.float64) if weights is None else weights / weights.sum()


def _some(weights: Tensor | None, rows: np.ndarray) -> Tensor | None:
    return None if weights is None else weights[rows]


# -- quantiles ---------------------------------------------------------------------------------------------------------


LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # tried where no critical ratio is known, one for all


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
