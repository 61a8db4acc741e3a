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


def mean(values: np.ndarray, confidence: float) -> Estimate:
    """The mean of `values` `(count,)` with Student's t interval."""
    if not values.size:
        return Estimate(np.nan)
    value = float(values.mean())
    if values.size < 2 or not np.isfinite(value):
        return Estimate(value)
    half = _t(confidence, values.size) * float(values.std(ddof=1)) / np.sqrt(values.size)
    return Estimate(value, value - half, value + half)


def ratio_of_sums(numerator: np.ndarray, denominator: np.ndarray, confidence: float) -> Estimate:
    """R = Σ numerator / Σ denominator, both `(count,)`, with a t interval by the delta method.

    To first order R moves with the mean of (numerator_i − R denominator_i) / mean(denominator).
    """
    total = float(denominator.sum())
    if total == 0:
        return Estimate(np.nan)
    value = float(numerator.sum()) / total
    around = mean((numerator - value * denominator) / denominator.mean(), confidence)
    return Estimate(value, value + around.low, value + around.high)


def share(hits: np.ndarray, confidence: float) -> Estimate:
    """The share of true entries of `hits` `(count,)` with Wilson's score interval."""
    if not hits.size:
        return Estimate(np.nan)
    from scipy.stats import binomtest

    interval = binomtest(int(hits.sum()), hits.size).proportion_ci(confidence, method="wilson")
    return Estimate(float(hits.mean()), float(interval.low), float(interval.high))


def batched_product(regrets: np.ndarray, inverses: np.ndarray, batch_size: int, confidence: float) -> Estimate:
    """Average over consecutive batches of mean(regrets) · mean(inverses), each batch weighted by its rows.

    Both `(count,)`; rows where either is NaN are left out of their batch. The interval is the percentile bootstrap
    over instances, which are put into batches in the order drawn.
    """
    kept = ~(np.isnan(regrets) | np.isnan(inverses))
    if not kept.any():
        return Estimate(np.nan)
    starts = np.arange(0, regrets.size, batch_size)
    table = np.where(kept, np.vstack([regrets, inverses, np.ones(regrets.size)]), 0.0)

    def statistic(columns: np.ndarray) -> float:
        regret, inverse, rows = np.add.reduceat(columns, starts, axis=1)
        return float((regret * inverse / np.maximum(rows, 1)).sum() / max(rows.sum(), 1))

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
