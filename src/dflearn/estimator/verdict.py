"""Which model to keep: the best two-stage one, unless a decision-focused one is better on the rows to choose by beyond chance.

The best of many candidates looks better on the rows that chose it than it is. So the gain is estimated by cross-fitting: the
candidates that are best on one half of these rows are compared on the other half, and the other way round. No row judges a
candidate that it chose, every row is used, and the paired differences make one interval. (Of more parts, the larger ones that
choose share rows, and their choices their luck: with ten parts a gain of zero is kept three times as often as it should.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dflearn.evaluation.estimates import Estimate, mean

PARTS = 2
CONFIDENCE = 0.9  # two-sided, so that one in twenty is kept by chance where there is no gain
LEAST_ROWS = 20  # below it no gain is told from chance


class Choice(NamedTuple):
    """Names of the best two-stage and the best decision-focused model, and the cross-fitted gain of the latter."""

    baseline: str
    focused: str | None
    gain: Estimate  # mean difference of regrets, focused − two-stage: negative is a gain
    chosen: str


def choose(
    two_stage: dict[str, np.ndarray], focused: dict[str, list[np.ndarray]], *, ordered: bool, seed: int
) -> Choice:
    """The choice, given the regrets of two-stage models `(rows,)` and of the candidates behind each decision-focused model."""
    baseline = min(two_stage, key=lambda name: two_stage[name].mean())
    named = [(name, regrets) for name, candidates in focused.items() for regrets in candidates]
    if not named:
        return Choice(baseline, None, Estimate(np.nan), baseline)
    best = min(named, key=lambda one: one[1].mean())[0]
    ours, theirs = np.array([regrets for _, regrets in named]), np.array(list(two_stage.values()))
    gain = mean(cross_fitted(ours, theirs, ordered=ordered, seed=seed), CONFIDENCE)
    beyond = ours.shape[1] >= LEAST_ROWS and gain.high < 0
    return Choice(baseline, best, gain, best if beyond else baseline)


def cross_fitted(ours: np.ndarray, theirs: np.ndarray, *, ordered: bool, seed: int) -> np.ndarray:
    """Paired differences `(rows,)` of our best and their best, `(candidates, rows)` each, chosen without the row's own part."""
    count = ours.shape[1]
    rows = np.arange(count) if ordered else np.random.RandomState(seed).permutation(count)
    difference = np.zeros(count)
    for part in np.array_split(rows, min(PARTS, count)):
        others = np.setdiff1d(rows, part)
        if len(others):
            our, their = (side[:, others].mean(1).argmin() for side in (ours, theirs))
            difference[part] = ours[our, part] - theirs[their, part]
    return difference
