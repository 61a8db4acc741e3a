"""Which features move which predicted costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

ROWS = 500  # of the features, at most, that are looked at
LINEAR = 1e-9  # relative to the predictions: how far a linear model's lie from the middle of two rows


class Influence(NamedTuple):
    """How much each of k features matters to each of p predicted costs, in units of the costs.

    Attributes:
        change: mean |change of the cost| when the feature's values are dealt out anew among the rows, `(k, p)`.
        slope: change of the cost for one standard deviation more of the feature, `(k, p)`; `None` where the model is not
            linear, so that there is no such number.
    """

    change: np.ndarray
    slope: np.ndarray | None


def influence(
    predict: Callable[[np.ndarray], np.ndarray],
    features: np.ndarray,
    seed: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
) -> Influence:
    """Measured on at most 500 rows of these features `(count, k)`, drawn by the seed.

    Args:
        predict: features `(count, k)` → costs `(count, p)`.
        groups: columns that make one feature together, as those of a category do; by default each is one by itself. Where
            a group holds several, there are no slopes.
    """
    groups = [[k] for k in range(features.shape[1])] if groups is None else groups
    rng = np.random.default_rng(seed)
    x = features[rng.permutation(len(features))[:ROWS]]
    before = predict(x)
    change = np.empty((len(groups), before.shape[1]))
    for i, group in enumerate(groups):
        other = x.copy()
        other[:, group] = x[rng.permutation(len(x))][:, group]
        change[i] = np.abs(predict(other) - before).mean(0)
    slopes = _slopes(predict, x, before) if all(len(group) == 1 for group in groups) else None
    return Influence(change, None if slopes is None else slopes[[group[0] for group in groups]])


def _slopes(predict: Callable[[np.ndarray], np.ndarray], x: np.ndarray, before: np.ndarray) -> np.ndarray | None:
    """The differences that one standard deviation makes, where the model is linear between the rows."""
    if not len(x):
        return None
    middle = predict((x + x[::-1]) / 2) - (before + before[::-1]) / 2
    deviations = np.where(np.ptp(x, axis=0) > 0, x.std(0), 0.0)
    if np.abs(middle).max(initial=0) > LINEAR * max(np.abs(before).max(initial=0), 1e-300):
        return None
    moved = [predict(x[:1] + step) - before[:1] for step in np.diag(deviations)]
    return np.concatenate(moved) if moved else np.empty((0, before.shape[1]))
