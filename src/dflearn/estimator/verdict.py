"""Which model to keep: the best two-stage one, unless a decision-focused one is clearly better on the rows to choose by.

The best of many candidates looks better on the rows that chose it than it is. So the gain is estimated by cross-fitting: the
candidates that are best on one half of these rows are compared on the other half, and the other way round, over twenty random
halvings. No row judges a candidate that it chose, and every row is used. (Of more parts, the larger ones that choose share
rows, and their choices their luck.)

Clearly is by more than one standard error, the usual rule of choosing by cross-validation. It is not proof: with no gain at all
a decision-focused model is kept about one time in six, which then costs nothing on average. Asking for 95 % here would keep
two-stage where hundreds of rows show half the regret; what is beyond chance, the rows to test on say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dflearn.evaluation.estimates import Estimate

HALVINGS = 20
LEAST_ROWS = 20  # below it two-stage is kept in any case


class Choice(NamedTuple):
    """Names of the best two-stage and the best decision-focused model, and the cross-fitted gain of the latter."""

    baseline: str
    focused: str | None
    gain: Estimate  # mean difference of regrets, focused − two-stage, ± one standard error: negative is a gain
    chosen: str


def choose(two_stage: dict[str, np.ndarray], focused: dict[str, list[np.ndarray]], *, seed: int) -> Choice:
    """The choice, given the regrets of two-stage models `(rows,)` and of the candidates behind each decision-focused model."""
    baseline = min(two_stage, key=lambda name: two_stage[name].mean())
    named = [(name, regrets) for name, candidates in focused.items() for regrets in candidates]
    if not named:
        return Choice(baseline, None, Estimate(np.nan), baseline)
    best = min(named, key=lambda one: one[1].mean())[0]
    ours, theirs = np.array([regrets for _, regrets in named]), np.array(list(two_stage.values()))
    difference = cross_fitted(ours, theirs, seed=seed)
    value, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
    gain = Estimate(value, value - error, value + error)
    beyond = ours.shape[1] >= LEAST_ROWS and gain.high < 0
    return Choice(baseline, best, gain, best if beyond else baseline)


def cross_fitted(ours: np.ndarray, theirs: np.ndarray, *, seed: int) -> np.ndarray:
    """Paired differences `(rows,)` of our best and their best, `(candidates, rows)` each, chosen without the row's own half."""
    count, random = ours.shape[1], np.random.RandomState(seed)
    difference = np.zeros(count)
    for _ in range(HALVINGS):
        halves = np.array_split(random.permutation(count), 2)
        for others, part in (halves, halves[::-1]):
            our, their = (side[:, others].mean(1).argmin() for side in (ours, theirs))
            difference[part] += (ours[our, part] - theirs[their, part]) / HALVINGS
    return difference
