"""Which model to keep: the blend, unless a decision-focused model is better beyond chance on the rows to choose by.

The best of many candidates looks better on the rows that chose it than it is. So the gain is estimated by cross-fitting: the
candidates that are best on one half of these rows are compared on the other half, and the other way round, over twenty random
halvings. No row judges a candidate that it chose, and every row is used. (Of more parts, the larger ones that choose share
rows, and their choices their luck.)

Beyond chance is by more than two standard errors. One, the usual rule of choosing by cross-validation, kept models that the rows
to choose by liked and later rows did not: in order of time, these rows are one season. For the same reason no other two-stage
model is taken in place of the blend: which of them is best on a hundred rows tells little about the next hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dflearn.evaluation.estimates import Estimate

HALVINGS, ERRORS = 20, 2.0
LEAST_ROWS = 20  # below it two-stage is kept in any case


class Choice(NamedTuple):
    """Names of the two-stage and the best decision-focused model, and the cross-fitted gain of the latter."""

    baseline: str
    focused: str | None
    gain: Estimate  # mean difference of regrets, focused − two-stage, ± two standard errors: negative is a gain
    chosen: str


def choose(baseline: str, two_stage: np.ndarray, focused: dict[str, list[np.ndarray]], *, seed: int) -> Choice:
    """The choice, given the regrets of the two-stage model `(rows,)` and of the candidates behind each decision-focused one."""
    named = [(name, regrets) for name, candidates in focused.items() for regrets in candidates]
    if not named:
        return Choice(baseline, None, Estimate(np.nan), baseline)
    best = min(named, key=lambda one: one[1].mean())[0]
    difference = cross_fitted(np.array([regrets for _, regrets in named]), two_stage[None], seed=seed)
    value, error = float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))
    gain = Estimate(value, value - ERRORS * error, value + ERRORS * error)
    beyond = len(two_stage) >= LEAST_ROWS and gain.high < 0
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
