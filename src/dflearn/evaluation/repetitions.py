"""Differences over several seeds and their instances: the hierarchical bootstrap, and Wilcoxon's signed ranks over seeds.

Instances of one seed share its data and its training, so that a thousand of them say little about the next seed. Here seeds are
drawn first, then instances within each drawn seed. Few seeds are drawn too much alike, so that each limit is the farther of
the bootstrap's and of Student's interval over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from dflearn.evaluation.estimates import CHUNK, RESAMPLES, Estimate, student_quantile

KEPT = 4_000_000  # rows of all resamples together, up to which the draws are kept for the next data of the same sizes


def over_seeds(
    numerators: Sequence[np.ndarray],
    denominators: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
    confidence: float,
) -> Estimate:
    """R = Σ_s m_s / Σ_s d_s over seeds s, each part `(count_s,)`; m_s and d_s are weighted means within a seed: all count alike.

    Limits: quantiles of R over resamples of seeds and, within each, of instances; or R ± t · error, where the error is that of
    z_s = (m_s − R d_s) / mean(d) over seeds; whichever is farther. The resamples are always the same.
    """
    tables = [
        np.stack([above, below, np.ones_like(weight)], 1) * weight[:, None]
        for above, below, weight in zip(numerators, denominators, weights, strict=True)
        if weight.sum() > 0
    ]
    means = np.array([table[:, :2].sum(0) / table[:, 2].sum() for table in tables]).reshape(-1, 2)
    seeds, total = len(means), float(means[:, 1].sum())
    if total == 0:
        return Estimate(np.nan)
    value = float(means[:, 0].sum()) / total
    if seeds < 2:
        return Estimate(value)
    z = (means[:, 0] - value * means[:, 1]) * seeds / total
    reach = student_quantile(confidence, seeds) * float(np.sqrt(np.square(z).sum() / (seeds - 1) / seeds))
    columns = np.empty((RESAMPLES, seeds, 2))
    for seed, (resample, place), times in _resamples(tuple(map(len, tables))):
        above, below, counted = (times @ tables[seed]).T
        counted = np.where(counted > 0, counted, 1.0)
        columns[resample, place] = np.stack([above / counted, below / counted], 1)
    above, below = columns.sum(1).T
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(above / below, nan=value)
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, min(float(low), value - reach), max(float(high), value + reach))


_Draws = tuple[int, tuple[np.ndarray, np.ndarray], np.ndarray]


def _resamples(sizes: tuple[int, ...]) -> Iterable[_Draws]:
    """Some resamples at a time: a seed, (in which resamples, as which of its seeds) it was drawn, and how often each row was then.

    They depend on the numbers of rows of the seeds alone, so that those of one size serve all comparisons on it.
    """
    return _kept(sizes) if RESAMPLES * sum(sizes) <= KEPT else _drawn(sizes)


@lru_cache(maxsize=16)
def _kept(sizes: tuple[int, ...]) -> list[_Draws]:
    return [(seed, where, times.astype(np.uint16)) for seed, where, times in _drawn(sizes)]


def _drawn(sizes: tuple[int, ...]) -> Iterator[_Draws]:
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(sizes), size=(RESAMPLES, len(sizes)))
    for seed, size in enumerate(sizes):
        resamples, places = np.nonzero(drawn == seed)
        for first in range(0, len(places), CHUNK):
            some = slice(first, first + CHUNK)
            count = len(places[some])
            rows = rng.integers(size, size=(count, size)) + size * np.arange(count)[:, None]
            times = np.bincount(rows.ravel(), minlength=count * size).reshape(count, size)
            yield seed, (resamples[some], places[some]), times


def signed_ranks(differences: np.ndarray) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test over the differences of seeds `(seeds,)`; 1 where all are zero."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences).pvalue) if np.any(differences != 0) else 1.0
