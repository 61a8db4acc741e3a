"""Records aggregated: means and deviations, the seeds that methods share, paired differences, the Pareto front."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dflearn.errors import OptionError
from dflearn.evaluation.regret import zero_note
from dflearn.studies.record import Record
from dflearn.studies.summary import common_seeds, notes_on, paired, pareto_front, rankings, summarize
from support.study_records import record


def test_summaries() -> None:
    runs = (("MSE", 2, 0.3, 2.0), ("MSE", 1, 0.2, 1.0), ("PFY", 1, 0.1, 3.0))
    records = [record("SP-5", *one) for one in runs]
    best, other = summarize(records)
    assert (best.method, best.deviation, best.seeds) == ("PFY", 0, (1,))
    assert (other.method, other.seeds) == ("MSE", (1, 2))
    assert other.regret == pytest.approx(0.25)
    assert other.deviation == pytest.approx(0.05 * np.sqrt(2))
    assert other.mean_of("published_style") == pytest.approx(0.75)
    assert other.seconds == pytest.approx(1.5)
    assert other.above_floor == pytest.approx(0.9 * 0.25 - 0.04)
    with pytest.raises(OptionError, match="no metric 'nonsense'; it has mean_of_ratios"):
        summarize(records, "nonsense")


def test_runs_in_other_settings_are_kept_apart() -> None:
    one = record("SP-5", "MSE", 1, 0.2, 1.0)
    short = replace(one, config=replace(one.config, settings=replace(one.config.settings, epochs=3)))
    assert {s.method for s in summarize([one, short])} == {"MSE (epochs=25)", "MSE (epochs=3)"}


def test_one_easy_seed_does_not_win() -> None:
    """The method that ran with the easiest seed alone has the least mean, and is not ranked."""
    easy = {1: 0.1, 2: 0.3, 3: 0.3}
    records = [record("SP-5", method, seed, regret + extra, 1.0)
               for method, extra in (("good", 0.0), ("bad", 0.05)) for seed, regret in easy.items()]  # fmt: skip
    records += [record("SP-5", "lucky", 1, 0.15, 1.0), record("SP-5", "good", 9, 0.9, 1.0)]
    (ranking,) = rankings(summarize(records))
    assert [(s.method, s.rank) for s in ranking.ranked] == [("good", 1), ("bad", 2)]
    assert [s.method for s in ranking.apart] == ["lucky"]
    assert (ranking.seeds, ranking.unused) == ((1, 2, 3), 1)
    assert ranking.best.regret == pytest.approx(0.7 / 3), "over the shared seeds alone"
    behind = ranking.ranked[1].behind
    assert behind is not None
    # The seeds differ by far more than the methods, which are 0.05 apart on every one of them.
    np.testing.assert_allclose(behind, [0.05, 0.05, 0.05])


def test_equal_regrets_share_their_rank() -> None:
    records = [record("SP-5", method, 1, regret, 1.0) for method, regret in (("a", 0.1), ("b", 0.1), ("c", 0.2))]
    (ranking,) = rankings(summarize(records))
    assert [s.rank for s in ranking.ranked] == [1.5, 1.5, 3]


def test_common_seeds_by_brute_force() -> None:
    rng = np.random.RandomState(0)
    for _ in range(50):
        own = [set(rng.choice(5, rng.randint(1, 6), replace=False).tolist()) for _ in range(4)]
        worth = lambda seeds: len(seeds) * (sum(seeds <= other for other in own) - 1)  # noqa: B023, E731
        every = [set(some) for size in range(1, 6) for some in itertools.combinations(range(5), size)]
        assert worth(common_seeds(own)) == max(worth(seeds) for seeds in every if any(seeds <= o for o in own))
    assert common_seeds([(1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1,)]) == {1, 2, 3, 4, 5}
    assert common_seeds([range(100), (1, 2), (1, 2)]) == {1, 2}, "a method alone compares with nothing"


def test_paired_interval_over_the_seeds() -> None:
    a, b = ([record("SP-5", name, seed, value, 1.0) for seed, value in enumerate(values)]
            for name, values in (("a", [0.2, 0.5, 0.3]), ("b", [0.1, 0.45, 0.1])))  # fmt: skip
    one, other = (next(iter(summarize(some))) for some in (a, b))
    found = paired(one, other)
    test = stats.ttest_rel(one.values("mean_of_ratios"), other.values("mean_of_ratios")).confidence_interval()
    np.testing.assert_allclose(found, [0.35 / 3, test.low, test.high])


@pytest.mark.parametrize("metric", ["mean_of_ratios", "ratio_of_sums", "absolute_regret", "published_style"])
def test_paired_interval_over_the_instances_of_one_seed(metric: str) -> None:
    rng = np.random.RandomState(0)
    optima = rng.uniform(1, 2, 200)
    regrets = {"a": rng.uniform(0, 1, 200)}
    regrets["b"] = regrets["a"] + rng.uniform(0, 0.02, 200)

    def judged(name: str) -> Record:
        lost = regrets[name]
        values = {"mean_of_ratios": (lost / optima).mean(), "ratio_of_sums": lost.sum() / optima.sum()}
        values |= {"absolute_regret": lost.mean(), "published_style": 0.5}
        metrics = {key: (float(value), 0.0, 1.0) for key, value in values.items()}
        return replace(record("SP-5", name, 1, 0.1, 1.0), metrics=metrics, regrets=regrets[name], optima=optima)

    one, other = (next(iter(summarize([judged(name)], metric))) for name in "ba")
    value, low, high = paired(one, other)
    assert value == pytest.approx(one.regret - other.regret)
    if metric == "published_style":
        assert np.isnan(low)
    else:
        assert 0 < low < value < high < 0.02, "far narrower than the regrets themselves vary"


def test_pareto_front_by_brute_force() -> None:
    rng = np.random.RandomState(1)
    found = summarize([record("SP-5", f"m{k}", 1, rng.randint(1, 9) / 10, rng.randint(1, 9)) for k in range(30)])
    spots = {(s.seconds, s.regret) for s in found}
    undominated = {a for a in spots if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in spots)}
    assert {(s.seconds, s.regret) for s in pareto_front(found)} == undominated


def test_runs_on_other_data_are_another_problem() -> None:
    """Equal seeds mean equal data only in equal settings: what differs is never paired."""
    one = record("SP-5", "MSE", 1, 0.2, 1.0)
    quiet = replace(one, config=replace(one.config, settings=replace(one.config.settings, noise=0.0)))
    found = summarize([one, quiet])
    assert {(s.problem, s.method) for s in found} == {("SP-5 (noise=0.5)", "MSE"), ("SP-5 (noise=0)", "MSE")}
    assert [len(ranking.ranked) for ranking in rankings(found)] == [1, 1]


def test_ratios_that_leave_instances_out_are_told() -> None:
    note = zero_note(3, 200, "mean_of_ratios and published_style")
    whole, some = record("SP-5", "SPO+", 1, 0.1, 1.0), record("KP-100", "SPO+", 1, 0.1, 1.0)
    some = replace(some, notes=(note, "another"))
    assert notes_on([whole, some, some]) == [f"KP-100: {note}"]
    assert "3 of 200 instances have a zero optimum" in note
