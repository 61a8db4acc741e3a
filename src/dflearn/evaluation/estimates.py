"""Numbers with intervals: each function estimates one quantity from per-instance values and says how surely.

Regrets are skewed, so that Student's t interval covers their mean too rarely. The quantiles of t are therefore also taken from
resamples of the instances, always the same ones (the studentized bootstrap: Hall 1992; Efron and Tibshirani 1993, chapter 12),
and each limit is the farther of the two. `results/coverage` has what the intervals cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

RESAMPLES = 999  # of the bootstrap; its generator always starts from the same seed
FEW = 20  # with fewer instances, their shape is not known well enough: Student's quantiles
MANY = 50_000  # with more, Student's quantiles will do
# Times Student's quantile: where limits end, so that resamples with hardly any spread mean no endless interval.
FARTHEST = 3.0
CHUNK = 64  # resamples that are added up at once

Block = int | Literal["auto"] | None


class Estimate(NamedTuple):
    """A value and its confidence interval [low, high]; NaN where there are too few instances to tell."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def mean(values: np.ndarray, confidence: float, weights: np.ndarray | None = None, block: int = 1) -> Estimate:
    """The mean of `values` `(count,)`, weighted by `weights` `(count,)`, with a studentized bootstrap interval."""
    return ratio_of_sums(values, np.ones_like(values, float), confidence, weights, block)


def ratio_of_sums(
    numerator: np.ndarray, denominator: np.ndarray, confidence: float, weights: np.ndarray | None = None, block: int = 1
) -> Estimate:
    """R = Σ numerator / Σ denominator, all `(count,)`, with a studentized bootstrap interval; weights multiply both.

    To first order R moves with the mean of z_i = (numerator_i − R denominator_i) / mean(denominator), whose deviation gives
    the standard error, of R and of each resample.

    Args:
        block: how many consecutive instances are drawn together, for instances in order of time, which may depend on their
            neighbours: the circular moving-block bootstrap (Künsch 1989; Politis and Romano 1992).
    """
    numerator, denominator = _counted(weights, numerator, denominator)
    count, total = numerator.size, float(denominator.sum())
    if not count or total == 0:
        return Estimate(np.nan)
    value = float(numerator.sum()) / total
    if count < 2 or not np.isfinite(value):
        return Estimate(value)
    z, share = (numerator - value * denominator) * (count / total), denominator * (count / total)
    if block > 1:
        z, share = _moving_means(z, block), _moving_means(share, block)
    drawn = max(2, round(count / block))
    error = float(np.sqrt(np.square(z).sum() / count * drawn / (drawn - 1) / drawn))
    student = student_quantile(confidence, drawn)
    if error == 0 or not FEW <= drawn <= MANY:
        return Estimate(value, value - student * error, value + student * error)
    unit = error * np.sqrt(drawn)  # so that numbers of any size fit into single precision
    u, uu, v, uv, vv = _sums(np.stack([z / unit, (z / unit) ** 2, share, z / unit * share, share**2], axis=1), drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = u / v  # of R in this resample, in units
        spread = np.sqrt(np.maximum(uu - 2 * shift * uv + shift**2 * vv, 0) / (drawn * (drawn - 1))) / np.abs(v / drawn)
        return _studentized(value, error, shift / spread, student, confidence)


def share(hits: np.ndarray, confidence: float, weights: np.ndarray | None = None) -> Estimate:
    """The share of true entries of `hits` `(count,)` with Wilson's score interval, of `effective_count` trials."""
    if not hits.size:
        return Estimate(np.nan)
    from scipy.stats import norm

    value = float(np.average(hits, weights=weights))
    count, z = effective_count(hits.size, weights), float(norm.ppf((1 + confidence) / 2))
    centre, spread = value + z**2 / (2 * count), z * np.sqrt(value * (1 - value) / count + z**2 / (4 * count**2))
    low, high = ((centre + side * spread) / (1 + z**2 / count) for side in (-1, 1))
    return Estimate(value, float(low) if value > 0 else 0.0, float(high) if value < 1 else 1.0)  # exact at the ends


def batched_product(
    regrets: np.ndarray, inverses: np.ndarray, batch_size: int, confidence: float, weights: np.ndarray | None = None
) -> Estimate:
    """Average over consecutive batches of mean(regrets) · mean(inverses), each batch weighted by its rows.

    Both `(count,)`; rows where either is NaN are left out of their batch. With weights, a batch is cut where they add up to
    `batch_size`, even within an instance. The interval is that of the product of both means, by the studentized bootstrap; its
    standard error also has what the product of deviations within a batch adds.
    """
    kept = ~(np.isnan(regrets) | np.isnan(inverses))
    if not kept.any() or np.isinf(regrets[kept]).any():
        return Estimate(np.inf if kept.any() else np.nan)
    value = _batched_product(np.where(kept, regrets, 0.0), np.where(kept, inverses, 0.0), kept, batch_size, weights)
    part = None if weights is None else weights[kept]
    r, i, w = _counted(part, regrets[kept], inverses[kept], np.ones(int(kept.sum())))
    count = w.size
    if count < 2 or not np.isfinite(value):
        return Estimate(value)
    r_mean, i_mean = r.sum() / w.sum(), i.sum() / w.sum()
    if r_mean == 0 or i_mean == 0:
        return Estimate(value, value, value)
    w, r, i = w / w.mean(), r / (r_mean * w.mean()), i / (i_mean * w.mean())  # both means are 1 now
    a, b = r - w, i - w
    student, unit = student_quantile(confidence, count), abs(r_mean * i_mean)
    within = np.square(a).mean() * np.square(b).mean() / batch_size
    error = float(np.sqrt((np.square(a + b).mean() + within) / (count - 1)))
    if error == 0 or not FEW <= count <= MANY:
        return Estimate(value, value - student * error * unit, value + student * error * unit)
    columns = [a, b, w, a * a, b * b, a * b, a * w, b * w, w * w]
    sa, sb, sw, aa, bb, ab, aw, bw, ww = _sums(np.stack(columns, axis=1), count)
    with np.errstate(divide="ignore", invalid="ignore"):
        x, y = sa / sw, sb / sw  # how far both means are from 1 in this resample
        # Σ of (1 + y)² (a − x w)² + (1 + x)² (b − y w)² + 2 (1 + x)(1 + y)(a − x w)(b − y w)
        first, second = aa - 2 * x * aw + x * x * ww, bb - 2 * y * bw + y * y * ww
        both = ab - x * bw - y * aw + x * y * ww
        squares = (1 + y) ** 2 * first + (1 + x) ** 2 * second + 2 * (1 + x) * (1 + y) * both
        squares = np.maximum(squares, 0) + np.maximum(first, 0) * np.maximum(second, 0) / (count * batch_size)
        spread = np.sqrt(squares / (count * (count - 1))) / (sw / count)
        return _studentized(value, error * unit, ((1 + x) * (1 + y) - 1) / spread, student, confidence)


def _batched_product(
    regrets: np.ndarray, inverses: np.ndarray, kept: np.ndarray, batch_size: int, weights: np.ndarray | None
) -> float:
    table = np.vstack([regrets, inverses, kept])
    if weights is None:
        regret, inverse, rows = np.add.reduceat(table, np.arange(0, kept.size, batch_size), axis=1)
    else:
        *sums, counted = np.insert(np.vstack([weights * table, weights]).cumsum(1), 0, 0.0, axis=1)
        edges = np.append(np.arange(0.0, counted[-1], batch_size), counted[-1])
        regret, inverse, rows = (np.diff(np.interp(edges, counted, one)) for one in sums)
    products = np.divide(regret * inverse, rows, out=np.zeros_like(rows), where=rows > 0)
    return float(products.sum() / rows.sum()) if rows.sum() > 0 else np.nan


def effective_count(count: int, weights: np.ndarray | None) -> float:
    """How many instances of equal weight tell as much: (Σ weight)² / Σ weight²."""
    return count if weights is None else float(weights.sum() ** 2 / np.square(weights).sum())


def block_length(count: int, block: Block) -> int:
    """How many consecutive instances are drawn together: "auto" is count^(1/3), rounded; `None` is 1."""
    if block == "auto":
        return max(1, round(count ** (1 / 3)))
    return 1 if block is None else int(block)


def plain(found: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """Estimates as JSON can hold them."""
    return {
        name: {part: number if np.isfinite(number) else None for part, number in estimate._asdict().items()}
        for name, estimate in found.items()
    }


def _counted(weights: np.ndarray | None, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
    """The columns times the weights, without the instances that weigh nothing."""
    if weights is None:
        return columns
    some = weights > 0
    return tuple((weights * column)[some] for column in columns)


def _moving_means(values: np.ndarray, block: int) -> np.ndarray:
    """The mean of each `block` consecutive values, going round at the end; `(count,)` like the values."""
    total = np.concatenate([[0.0], np.concatenate([values, values[: block - 1]]).cumsum()])
    return (total[block:] - total[:-block]) / block


@lru_cache(maxsize=4)
def _draws(count: int, drawn: int) -> np.ndarray:
    """How often each of `count` instances is among the `drawn` ones of a resample, uint8 `(resamples, count)`."""
    generator, times = np.random.default_rng(0), np.empty((RESAMPLES, count), np.uint8)
    for row in times:
        row[:] = np.minimum(np.bincount(generator.integers(count, size=drawn), minlength=count), 255)
    return times


def _sums(columns: np.ndarray, drawn: int) -> np.ndarray:
    """The sum of each column of `(count, k)` over each resample, float64 `(k, resamples)`."""
    draws, single = _draws(len(columns), drawn), columns.astype(np.float32)
    parts = [draws[first : first + CHUNK].astype(np.float32) @ single for first in range(0, len(draws), CHUNK)]
    return np.concatenate(parts).T.astype(np.float64)


def _studentized(value: float, error: float, drawn: np.ndarray, student: float, confidence: float) -> Estimate:
    """The interval by the quantiles of t in the resamples: no less than Student's, no more than `FARTHEST` times those."""
    farthest = FARTHEST * student
    drawn = np.clip(np.nan_to_num(drawn, nan=0.0), -farthest, farthest)
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], method="weibull")
    return Estimate(value, value - max(float(high), student) * error, value - min(float(low), -student) * error)


def student_quantile(confidence: float, count: int) -> float:
    """How many standard errors of a mean of `count` values an interval reaches to each side."""
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, count - 1))


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
    for seed, (resample, place), times in _resamples([len(table) for table in tables]):
        above, below, counted = (times @ tables[seed]).T
        counted = np.where(counted > 0, counted, 1.0)
        columns[resample, place] = np.stack([above / counted, below / counted], 1)
    above, below = columns.sum(1).T
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(above / below, nan=value)
    low, high = np.quantile(ratios, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value, min(float(low), value - reach), max(float(high), value + reach))


def _resamples(sizes: Sequence[int]) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray], np.ndarray]]:
    """A seed, (in which resamples, as which of its seeds) it was drawn, and how often each row was; by the sizes alone."""
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
