"""Comparisons over seeds and instances: against formulas written anew, and by how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dflearn.errors import OptionError
from dflearn.evaluation import Evaluation, compare, repetitions
from dflearn.evaluation.repetitions import over_seeds

COUNT = 50


def judged(regrets: np.ndarray, weights: np.ndarray | None = None) -> Evaluation:
    count = len(regrets)
    return Evaluation("P", "solver", np.arange(count), regrets, np.full(count, 10.0), np.zeros(count), weights=weights)


def seeds_of(effects: list[float], deviation: float = 1.0) -> tuple[list[Evaluation], list[Evaluation]]:
    """Two methods on seeds with these mean differences; the noise of each seed has mean zero."""
    rng, ones, others = np.random.default_rng(0), [], []
    for effect in effects:
        base, noise = rng.uniform(5, 9, COUNT), deviation * rng.normal(size=COUNT)
        ones.append(judged(base + effect + noise - noise.mean()))
        others.append(judged(base))
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
    shifted = [judged(one.regrets - 0.4) for one in ones]
    alike = [replace_ids(one, 100 * i) for i, one in enumerate(shifted)]
    assert compare(alike, [replace_ids(o, 100 * i) for i, o in enumerate(others)]).beyond_chance  # over instances it is


def replace_ids(one: Evaluation, first: int) -> Evaluation:
    from dataclasses import replace

    return replace(one, ids=one.ids + first)


def test_two_seeds_are_too_few() -> None:
    found = compare(*seeds_of([-1.0, -1.0]), seeds=True)
    assert not found.beyond_chance
    assert "2 seeds are too few" in found.verdict()


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


def test_limits_are_those_of_resamples_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds of one mean, so that Student's interval has no width and the bootstrap's is the farther one."""
    rng = np.random.default_rng(3)
    parts = [(part - part.mean()) * 3 for part in (rng.exponential(size=count) for count in (30, 30, 50, 70))]
    ones = [np.ones_like(part) for part in parts]
    found = over_seeds(parts, ones, ones, 0.8)
    drawn = [
        np.mean([rng.choice(parts[seed], len(parts[seed])).mean() for seed in rng.integers(4, size=4)])
        for _ in range(4000)
    ]
    assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.1, 0.9]), rel=0.1)
    monkeypatch.setattr(repetitions, "KEPT", 0)  # too many to keep: the same resamples, drawn again
    assert over_seeds(parts, ones, ones, 0.8) == pytest.approx(found, rel=1e-12)


def test_blocks_and_seeds_are_two_things() -> None:
    with pytest.raises(OptionError, match="leave block out"):
        compare(*seeds_of([-1.0, -1.0]), seeds=True, block=3)
