"""Numbers with intervals: each function estimates one quantity from per-instance values and says how surely."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

RESAMPLES = 1000  # of the bootstrap; its generator always starts from the same seed


class Estimate(NamedTuple):
    """A value and its confidence interval [low, high]; NaN where there are too few instances to tell."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def mean(values: np.ndarray, confidence: float, weights: np.ndarray | None = None) -> Estimate:
    """The mean of `values` `(count,)` with Student's t interval."""
    if weights is not None:
        return ratio_of_sums(weights * values, weights, confidence)
    if not values.size:
        return Estimate(np.nan)
    value = float(values.mean())
    if values.size < 2 or not np.isfinite(value):
        return Estimate(value)
    half = _t(confidence, values.size) * float(values.std(ddof=1)) / np.sqrt(values.size)
    return Estimate(value, value - half, value + half)


def ratio_of_sums(
    numerator: np.ndarray, denominator: np.ndarray, confidence: float, weights: np.ndarray | None = None
) -> Estimate:
    """R = Σ numerator / Σ denominator, both `(count,)`, with a t interval by the delta method.

    To first order R moves with the mean of (numerator_i − R denominator_i) / mean(denominator).
    """
    if weights is not None:
        numerator, denominator = weights * numerator, weights * denominator
    total = float(denominator.sum())
    if total == 0:
        return Estimate(np.nan)
    value = float(numerator.sum()) / total
    around = mean((numerator - value * denominator) / denominator.mean(), confidence)
    return Estimate(value, value + around.low, value + around.high)


def share(hits: np.ndarray, confidence: float, weights: np.ndarray | None = None) -> Estimate:
    """The share of true entries of `hits` `(count,)` with Wilson's score interval, of `effective_count` trials."""
    if not hits.size:
        return Estimate(np.nan)
    from scipy.stats import norm

    value = float(np.average(hits, weights=weights))
    count, z = effective_count(hits.size, weights), float(norm.ppf((1 + confidence) / 2))
    centre, spread = value + z**2 / (2 * count), z * np.sqrt(value * (1 - value) / count + z**2 / (4 * count**2))
    low, high = ((centre + side * spread) / (1 + z**2 / count) for side in (-1, 1))
    return Estimate(value, max(0.0, float(low)), min(1.0, float(high)))


def effective_count(count: int, weights: np.ndarray | None) -> float:
    """How many instances of equal weight tell as much: (Σ weight)² / Σ weight²."""
    return count if weights is None else float(weights.sum() ** 2 / np.square(weights).sum())


def batched_product(
    regrets: np.ndarray,
    inverses: np.ndarray,
    batch_size: int,
    confidence: float,
    weights: np.ndarray | None = None,
) -> Estimate:
    """Average over consecutive batches of mean(regrets) · mean(inverses), each batch weighted by its rows.

    Both `(count,)`; rows where either is NaN are left out of their batch. The interval is the percentile bootstrap
    over instances, which are put into batches in the order drawn. With weights, a batch is cut where they add up to
    `batch_size`, in the midst of an instance if need be: so one of weight 2 is one that stands there twice.
    """
    kept = ~(np.isnan(regrets) | np.isnan(inverses))
    if not kept.any():
        return Estimate(np.nan)
    starts = np.arange(0, regrets.size, batch_size)
    table = np.where(kept, np.vstack([regrets, inverses, np.ones(regrets.size)]), 0.0)
    if weights is not None:
        table = np.vstack([weights * table, weights])

    def statistic(columns: np.ndarray) -> float:
        if weights is None:
            regret, inverse, rows = np.add.reduceat(columns, starts, axis=1)
        else:
            *sums, counted = np.insert(columns.cumsum(1), 0, 0.0, axis=1)
            edges = np.append(np.arange(0.0, counted[-1], batch_size), counted[-1])
            regret, inverse, rows = (np.diff(np.interp(edges, counted, one)) for one in sums)
        products = np.divide(regret * inverse, rows, out=np.zeros_like(rows), where=rows > 0)
        return float(products.sum() / max(rows.sum(), np.finfo(float).tiny))

    value = statistic(table)
    if regrets.size < 2:
        return Estimate(value)
    generator = np.random.default_rng(0)
    drawn = [statistic(table[:, generator.integers(regrets.size, size=regrets.size)]) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, float(low), float(high))


def plain(found: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """Estimates as JSON can hold them."""
    return {
        name: {part: number if np.isfinite(number) else None for part, number in estimate._asdict().items()}
        for name, estimate in found.items()
    }


def _t(confidence: float, count: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, count - 1))
