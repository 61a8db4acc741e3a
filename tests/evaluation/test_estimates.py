"""Intervals: what they cover, resamples by hand, blocks against the closed form of an autoregression, verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from dflearn.errors import OptionError
from dflearn.evaluation import Evaluation, compare, estimates
from dflearn.evaluation.estimates import FARTHEST, FEW, RESAMPLES, Estimate, over_seeds

RNG = np.random.RandomState


def by_hand(numerator: np.ndarray, denominator: np.ndarray, confidence: float = 0.95) -> Estimate:
    """The studentized bootstrap as one would write it, resample by resample; each limit is the farther of its and Student's."""

    def ratio(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
        value = a.sum() / b.sum()
        return value, ((a - value * b) / b.mean()).std(ddof=1) / np.sqrt(len(a))

    count, generator = len(numerator), np.random.default_rng(0)
    value, error = ratio(numerator, denominator)
    student = scipy.stats.t.ppf((1 + confidence) / 2, count - 1)
    drawn = []
    for _ in range(RESAMPLES):
        rows = generator.integers(count, size=count)
        there, spread = ratio(numerator[rows], denominator[rows])
        drawn.append(np.clip((there - value) / spread, -FARTHEST * student, FARTHEST * student))
    ends = sorted(drawn)
    tail = round((RESAMPLES + 1) * (1 - confidence) / 2)
    low, high = min(ends[tail - 1], -student), max(ends[-tail], student)
    return Estimate(value, value - high * error, value - low * error)


@pytest.mark.parametrize("count", [FEW, 90])
def test_mean_and_ratio_against_resampling_by_hand(count: int) -> None:
    values, sizes = RNG(0).lognormal(sigma=1.5, size=count), RNG(1).uniform(1, 3, count)
    assert estimates.mean(values, 0.95) == pytest.approx(by_hand(values, np.ones(count)), rel=1e-4)
    assert estimates.ratio_of_sums(values, sizes, 0.95) == pytest.approx(by_hand(values, sizes), rel=1e-4)
    weights = RNG(2).uniform(0.5, 2, count)
    assert estimates.mean(values, 0.9, weights) == pytest.approx(by_hand(weights * values, weights, 0.9), rel=1e-4)
    assert estimates.mean(values, 0.95) == estimates.mean(values, 0.95)  # the same resamples each time
    for unit in (1e-150, 1e150):
        wanted = [part * unit for part in estimates.mean(values, 0.95)]
        assert estimates.mean(values * unit, 0.95) == pytest.approx(wanted, rel=1e-6)


def covered(draw: Callable[[np.random.RandomState], np.ndarray], truth: float, times: int = 300) -> tuple[float, float]:
    """How often the interval of the mean holds the truth, and how often Student's does."""
    hits = []
    for seed in range(times):
        values = draw(RNG(seed))
        found = estimates.mean(values, 0.95)
        student = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        hits.append((found.low <= truth <= found.high, student.low <= truth <= student.high))
    ours, students = np.mean(hits, axis=0)
    return ours, students


def test_skewed_values_are_covered_as_promised() -> None:
    """Mostly zero, otherwise lognormal: what regrets look like. The errors of a share of 300 are about 0.013."""
    draw = lambda rng: rng.binomial(1, 0.3, 60) * rng.lognormal(sigma=1.0, size=60)  # noqa: E731
    ours, students = covered(draw, 0.3 * np.exp(0.5))
    assert 0.93 <= ours <= 0.975
    assert students < 0.92
    ours, students = covered(lambda rng: rng.normal(size=60), 0.0)
    assert 0.93 <= ours <= 0.985
    assert ours >= students


def test_hardly_any_spread_does_not_mean_an_endless_interval() -> None:
    values = np.zeros(200)
    assert estimates.mean(values, 0.95) == (0, 0, 0)
    values[:2] = 1.0  # one resample in eight has none of them
    value, low, high = estimates.mean(values, 0.95)
    error, student = values.std(ddof=1) / np.sqrt(200), scipy.stats.t.ppf(0.975, 199)
    assert high == pytest.approx(value + FARTHEST * student * error)
    assert low == pytest.approx(value - student * error)
    assert estimates.mean(np.full(50, 3.0), 0.95) == (3, 3, 3)


def test_a_share_of_none_or_all_ends_there() -> None:
    for count in (5, 200, 1000):
        for hits in (np.zeros(count, bool), np.ones(count, bool)):
            wilson = scipy.stats.binomtest(int(hits.sum()), count).proportion_ci(0.95, method="wilson")
            found = estimates.share(hits, 0.95)
            assert found == pytest.approx((hits.mean(), *wilson))
            assert found.low <= found.value <= found.high  # to the last digit


def test_instances_of_no_weight_are_not_there() -> None:
    values, weights = RNG(0).lognormal(size=60), np.repeat([1.0, 0.0], 30)
    assert estimates.mean(values, 0.95, weights) == estimates.mean(values[:30], 0.95)
    product = estimates.batched_product(values, 1 / values, 32, 0.95, weights)
    assert product == pytest.approx(estimates.batched_product(values[:30], 1 / values[:30], 32, 0.95), rel=1e-6)


def autoregression(rng: np.random.RandomState, count: int, phi: float) -> np.ndarray:
    values = np.empty(count)
    values[0] = rng.normal() / np.sqrt(1 - phi**2)
    for i in range(1, count):
        values[i] = phi * values[i - 1] + rng.normal()
    return values


def test_blocks_have_the_error_of_an_autoregression() -> None:
    """x_t = φ x_{t−1} + e_t: the mean of many has the standard error 1 / ((1 − φ) √count)."""
    count, phi, block = 1500, 0.5, 30
    widths = {1: [], block: []}
    for seed in range(12):
        values = autoregression(RNG(seed), count, phi)
        for length, found in widths.items():
            _, low, high = estimates.mean(values, 0.5, block=length)
            found.append((high - low) / 2 / scipy.stats.norm.ppf(0.75))
    closed = 1 / ((1 - phi) * np.sqrt(count))
    assert np.mean(widths[block]) == pytest.approx(closed, rel=0.12)
    assert np.mean(widths[1]) == pytest.approx(closed / np.sqrt((1 + phi) / (1 - phi)), rel=0.05)  # as if independent


def judged(regrets: np.ndarray, ids: np.ndarray | None = None, optima: np.ndarray | None = None) -> Evaluation:
    ids = np.arange(len(regrets)) if ids is None else ids
    optima = 10.0 + ids % 7 if optima is None else optima
    return Evaluation("example", "none", ids, regrets, optima, np.zeros(len(regrets)))


def test_pairs_of_several_seeds_are_pooled_by_instance() -> None:
    """Seeds that judge the same rows are no new rows; origins that judge others are."""
    rng = RNG(0)
    a, b = rng.lognormal(size=(2, 3, 40))
    ones, others = ([judged(row) for row in rows] for rows in (a, b))
    found = compare(ones, others)
    assert found.absolute_regret == pytest.approx(estimates.mean((a - b).mean(0), 0.95), rel=1e-5)
    sizes = 10.0 + np.arange(40) % 7
    assert found.mean_of_ratios == pytest.approx(estimates.mean((a - b).mean(0) / sizes, 0.95), rel=1e-5)
    assert found.ratio_of_sums == pytest.approx(estimates.ratio_of_sums((a - b).mean(0), sizes, 0.95), rel=1e-5)
    assert (found.wins + found.losses, found.count) == (120, pytest.approx(40))
    same = compare([ones[0]] * 3, [others[0]] * 3)
    assert same.absolute_regret == pytest.approx(compare(ones[0], others[0]).absolute_regret, rel=1e-5)

    ids = [np.arange(first, first + 40) for first in (80, 0, 40)]
    ones, others = ([judged(row, own) for row, own in zip(rows, ids, strict=True)] for rows in (a, b))
    in_time = (a - b)[[1, 2, 0]].reshape(-1)
    found = compare(ones, others, block=4)
    assert found.absolute_regret == pytest.approx(estimates.mean(in_time, 0.95, block=4), rel=1e-5)
    assert found.count == pytest.approx(30)
    assert compare(ones, others, block="auto").count == pytest.approx(24)
    with pytest.raises(OptionError, match="pairs of evaluations"):
        compare(ones, others[:2])
    for block in (0, 2.5, True, "some"):
        with pytest.raises(OptionError, match="block is a number"):
            compare(ones, others, block=block)


def test_beyond_chance_is_said_of_enough_rows_only() -> None:
    def difference(count: int, shift: float) -> tuple[Evaluation, Evaluation]:
        noise = RNG(0).normal(size=count)
        return judged(5 + shift + noise), judged(5 + np.zeros(count))

    clear, other = difference(FEW, -3.0)
    assert compare(clear, other).beyond_chance
    few = compare(*difference(FEW - 1, -3.0))
    assert few.absolute_regret.high < 0
    assert not few.beyond_chance
    assert not compare(*difference(40, -3.0), block=4).beyond_chance  # ten blocks
    even = compare(*difference(200, 0.0))
    assert "The difference between ridge and SCE may be chance" in even.verdict("ridge", "SCE")
    assert even.as_dict()["beyond_chance"] is False


COUNT, TEN = 50, np.full(50, 10.0)


def seeds_of(effects: list[float], deviation: float = 1.0) -> tuple[list[Evaluation], list[Evaluation]]:
    """Two methods on seeds with these mean differences; the noise of each seed has mean zero."""
    rng, ones, others = np.random.default_rng(0), [], []
    for effect in effects:
        base, noise = rng.uniform(5, 9, COUNT), deviation * rng.normal(size=COUNT)
        ones.append(judged(base + effect + noise - noise.mean(), optima=TEN))
        others.append(judged(base, optima=TEN))
    return ones, others


def test_the_value_is_the_mean_of_seeds_and_the_interval_at_least_students() -> None:
    effects = [-1.0, -0.4, -1.3, -0.7, -0.9]
    found = compare(*seeds_of(effects), seeds=True)
    assert found.absolute_regret.value == pytest.approx(np.mean(effects))
    assert found.ratio_of_sums.value == pytest.approx(np.mean(effects) / 10)
    reach = scipy.stats.t.ppf(0.975, 4) * np.std(effects, ddof=1) / np.sqrt(5)
    assert found.absolute_regret.low <= np.mean(effects) - reach + 1e-12
    assert found.absolute_regret.high >= np.mean(effects) + reach - 1e-12
    assert found.p_value == pytest.approx(2 / 2**5)  # all of one sign: two of the 2⁵ ways to choose signs
    assert found.verdict("SCE") == "SCE lowers the regret, beyond chance over 5 seeds."
    assert "Wilcoxon over seeds: p = 0.0625" in str(found)
    assert (found.as_dict()["seeds"], found.seeds) == (5, 5)


def test_what_seeds_disagree_on_may_be_chance_however_many_instances_agree() -> None:
    ones, others = seeds_of([-3.0, 2.0, -2.0, 1.5], deviation=0.01)
    found = compare(ones, others, seeds=True)
    assert not found.beyond_chance
    assert "over 4 seeds holds zero. More seeds would tell" in found.verdict()
    shifted = [judged(one.regrets - 0.4, optima=TEN) for one in ones]
    alike, apart = ([replace(one, ids=one.ids + 100 * i) for i, one in enumerate(some)] for some in (shifted, others))
    assert compare(alike, apart).beyond_chance  # over instances it is


def test_seeds_count_alike_and_weights_count_within_a_seed() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=count) for count in (10, 40, 90)]
    weights = [rng.integers(0, 3, size=len(part)).astype(float) for part in parts]
    found = over_seeds(parts, [np.full_like(part, 2.0) for part in parts], weights, 0.95)
    means = [np.repeat(part, weight.astype(int)).mean() for part, weight in zip(parts, weights, strict=True)]
    assert found.value == pytest.approx(np.mean(means) / 2)
    assert found.low < found.value < found.high


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng, held, trials = np.random.default_rng(2), 0, 200
    for _ in range(trials):
        parts = [rng.normal(rng.normal(), 2.0, size=20) for _ in range(5)]  # the truth is 0
        low, high = over_seeds(parts, [np.ones(20)] * 5, [np.ones(20)] * 5, 0.9)[1:]
        held += low <= 0 <= high
    assert held >= scipy.stats.binom.ppf(1e-4, trials, 0.9)
