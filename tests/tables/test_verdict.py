"""The choice: what is better by chance is not kept, what is better is."""

from __future__ import annotations

import numpy as np

from dflearn.tables.fine_tuning import choose, cross_fitted


def test_cross_fitting_by_hand() -> None:
    """Two rows: each is judged by what is best on the other."""
    ours, theirs = np.array([[1.0, 9.0], [5.0, 2.0]]), np.array([[4.0, 4.0]])
    np.testing.assert_allclose(cross_fitted(ours, theirs, seed=0), [5.0 - 4.0, 9.0 - 4.0])


def test_the_best_of_many_by_chance_is_hardly_ever_kept() -> None:
    """Fifty candidates without any gain: the best of them looks good, and is kept about as often as two standard errors say."""
    rng = np.random.default_rng(0)
    kept, optimism = 0, 0.0
    for seed in range(200):
        base = rng.exponential(size=100)
        candidates = [base + rng.normal(size=100) for _ in range(50)]
        found = choose("blend", base, {"sce": candidates}, seed=seed)
        kept += found.chosen == "sce"
        optimism += min(one.mean() for one in candidates) - base.mean()
    assert optimism / 200 < -0.2  # two standard errors of a single candidate
    assert kept <= 12  # one in forty is 5; the best of fifty on the same rows would always be kept


def test_a_true_gain_is_kept_and_two_stage_otherwise() -> None:
    rng = np.random.default_rng(0)
    base = rng.exponential(size=100)
    better, worse = base - 0.3 + rng.normal(0, 0.5, 100), base + 1
    found = choose("blend", base, {"sce": [worse], "spo+": [base, better]}, seed=0)
    assert (found.baseline, found.focused, found.chosen) == ("blend", "spo+", "spo+")
    assert found.gain.high < 0
    found = choose("blend", base, {"sce": [worse]}, seed=0)
    assert (found.baseline, found.focused, found.chosen) == ("blend", "sce", "blend")
    few = choose("blend", base[:10], {"sce": [base[:10] - 1]}, seed=0)
    assert few.chosen == "blend"
    assert choose("blend", base, {}, seed=0).chosen == "blend"
