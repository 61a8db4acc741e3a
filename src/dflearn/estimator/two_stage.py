"""Forecasts for a small squared error: least squares, ridge, boosting. The baseline, and where decision-focused training starts.

    least squares, ridge:   min over W, b of  Σ_i a_i ‖y_i − W z_i − b‖² / Σ a_i + strength · ‖W‖²,   z = standardized features

All costs at once by one singular value decomposition; b is free; without weights a = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.models import Standardize, Trees

STRENGTHS = tuple(10.0**power for power in np.arange(-6, 3.01, 0.5))  # of ridge, relative to features of variance 1
RANK = 1e-10  # singular values below this share of the largest count as zero
TREES, WORK, LEAST_TREES = 100, 3000, 25  # trees per cost at most; trees of all costs together; but so many at least
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
    share = torch.full((len(x),), 1 / len(x), dtype=torch.float64) if weights is None else weights / weights.sum()
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
    from sklearn.ensemble import HistGradientBoostingRegressor

    p = y.shape[1]
    most = trees or max(LEAST_TREES, min(TREES, WORK // p))
    most = min(most, max(1, len(x) // ROWS_PER_TREE))
    unit = units_of(y)
    errors = np.zeros(most)
    fitted = []
    for j in range(p):
        model = HistGradientBoostingRegressor(
            max_iter=most,
            learning_rate=RATE,
            max_leaf_nodes=LEAVES,
            min_samples_leaf=min(PER_LEAF, max(1, len(x) // 5)),
            early_stopping=False,
            random_state=seed,
        )
        target = (y[:, j] / unit[j]).numpy()
        model.fit(x.numpy(), target, None if weights is None else weights.numpy())
        if choose is not None:
            truth = (choose[1][:, j] / unit[j]).numpy()
            staged = model.staged_predict(choose[0].numpy())
            errors += [float(np.square(forecast - truth).mean()) for forecast in staged]
        fitted.append(model)
    number = most if choose is None else int(errors.argmin()) + 1
    return _as_trees(fitted, number, unit)


def _as_trees(fitted: Sequence[object], number: int, unit: Tensor) -> Trees:
    """The first `number` trees of scikit-learn's models, one model per cost, as arrays; each cost is in its unit."""
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "missing_left", "value")
    }
    root = np.zeros((len(fitted), number), np.int64)
    base, first = [], 0
    for j, model in enumerate(fitted):
        base.append(float(np.ravel(model._baseline_prediction)[0]) * unit[j].item())  # type: ignore[attr-defined]
        for t, (tree,) in enumerate(model._predictors[:number]):  # type: ignore[attr-defined]
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


def best_share(linear: Tensor, boosted: Tensor, y: Tensor, unit: Tensor) -> float:
    """a in [0, 1] at which (1 − a) · linear + a · boosted, forecasts of y `(count, p)`, have the least squared error in units."""
    apart, left = (boosted - linear) / unit, (y - linear) / unit
    size = apart.square().sum().item()
    return min(1.0, max(0.0, (apart * left).sum().item() / size)) if size > 0 else 1.0


# -- forecasts of rows that a model was not fitted to -------------------------------------------------------------------

FOLDS, FIRST = 4, 1 / 3  # parts of the training rows; in order of time, the share that nothing forecasts


def out_of_fold(
    x: Tensor, y: Tensor, weights: Tensor | None, *, trees: int, ordered: bool, gap: int, seed: int
) -> tuple[np.ndarray, Tensor]:
    """Rows, and boosting's forecasts of them `(rows, p)` by models that were fitted to other rows.

    In order of time these are earlier rows, less a gap, so that the first rows have no forecast. Otherwise all rows have one.
    """
    count = len(x)
    if ordered:
        starts = np.linspace(round(FIRST * count), count, FOLDS + 1).round().astype(int)
        folds = [(np.arange(max(1, a - gap)), np.arange(a, b)) for a, b in pairwise(starts)]
    else:
        order = np.random.RandomState(seed).permutation(count)
        parts = np.array_split(order, FOLDS)
        folds = [(np.sort(np.setdiff1d(order, part)), np.sort(part)) for part in parts]
    found = []
    for others, own in folds:
        part = None if weights is None else weights[others]
        found.append(boosting(x[others], y[others], part, trees=trees, seed=seed)(x[own]))
    rows = np.concatenate([own for _, own in folds])
    return rows, torch.cat(found)
