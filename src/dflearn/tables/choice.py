"""Which candidate is kept: by paired regrets on rows left out; the ordinary one, unless another is better beyond its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.regret import EXACT
from dflearn.tables.cross_fitting import Candidate
from dflearn.tables.forecasters import YOURS

Focused = Mapping[str, Sequence[Candidate]]  # by name
HALVINGS, ERRORS = 20, 1.0
LEAST_ROWS, APART = 20, 10  # with fewer rows, or fewer on which regrets differ, the ordinary model is kept in any case
FAR, MANY = 0.1, 0.2  # a row is far outside by a tenth of the range of a feature; a fifth of the rows is many


class Choice(NamedTuple):
    """Names of the ordinary and the best decision-focused model, and the cross-fitted gain of the latter."""

    baseline: str
    focused: str | None
    gain: Estimate  # mean difference of regrets, focused − ordinary, ± one standard error: negative is a gain
    chosen: str


def error_of(difference: np.ndarray) -> float:
    """The standard error of a mean."""
    return float(difference.std(ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else np.inf


def within(one: np.ndarray, best: np.ndarray) -> bool:
    """Whether regrets are within so many standard errors of the best ones, row by row."""
    if not (np.isfinite(one).all() and np.isfinite(best).all()):
        return bool(np.isfinite(one).all())
    return float((one - best).mean()) <= ERRORS * error_of(one - best)


def best_ordinary(candidates: Sequence[Candidate], *, drifts: bool) -> Candidate:
    """The ordinary candidate of the least regret on rows left out.

    But the user's own forecast is kept unless the best is better by more than a standard error. If the rows drift out of the range
    of those before them, trees, which do not follow, must be so much better than the best without them.
    """
    best = min(candidates, key=lambda one: one.mean)
    plain = min((one for one in candidates if not one.trees), key=lambda one: one.mean, default=best)
    if drifts and best.trees and within(plain.regrets, best.regrets):
        best = plain
    yours = next((one for one in candidates if one.name == YOURS), best)
    return yours if within(yours.regrets, best.regrets) else best


def choose(base: Candidate, focused: Focused, windows: Sequence[np.ndarray], *, ordered: bool, seed: int) -> Choice:
    """The choice between the ordinary candidate and the decision-focused ones, by name, the simplest first.

    The best of many candidates looks too good on the rows that chose it, so the gain is cross-fitted. The simplest decision-focused
    one within a standard error of the best is kept if it is better by more than one standard error, and, in order of time, no worse
    than that in the last window.
    """
    found: dict[str, tuple[np.ndarray, Candidate]] = {}  # of each name, the paired gain and the best candidate
    for name, candidates in focused.items():
        if sound := [one for one in candidates if np.isfinite(one.regrets).all()]:
            regrets = np.array([one.regrets for one in sound])
            found[name] = cross_fitted(regrets, base.regrets[None], seed=seed), min(sound, key=lambda one: one.mean)
    if not found:
        return Choice(base.name, None, Estimate(np.nan), base.name)
    best = min(found, key=lambda name: float(found[name][0].mean()))
    name = next(name for name in found if name == best or within(found[name][0], found[best][0]))  # the simplest
    difference, one = found[name]
    value, error = float(difference.mean()), error_of(difference)
    gain = Estimate(value, value - ERRORS * error, value + ERRORS * error)
    last = (one.regrets - base.regrets)[windows[-1]]
    steady = not ordered or float(last.mean()) <= ERRORS * error_of(last)
    apart = int((np.abs(one.regrets - base.regrets) > EXACT * np.abs(base.regrets).max()).sum())
    beyond = len(base.regrets) >= LEAST_ROWS and apart >= APART and gain.high < 0 and steady
    return Choice(base.name, name, gain, name if beyond else base.name)


def cross_fitted(ours: np.ndarray, theirs: np.ndarray, *, seed: int) -> np.ndarray:
    """Paired differences `(rows,)` of our best and their best, `(candidates, rows)` each, chosen without the row's own half.

    The candidates that are best on one half of the rows are compared on the other half, and the other way round, over twenty
    random halvings.
    """
    count, random = ours.shape[1], np.random.RandomState(seed)
    difference = np.zeros(count)
    for _ in range(HALVINGS):
        halves = np.array_split(random.permutation(count), 2)
        for others, part in (halves, halves[::-1]):
            our, their = (side[:, others].mean(1).argmin() for side in (ours, theirs))
            difference[part] += (ours[our, part] - theirs[their, part]) / HALVINGS
    return difference


def drifting(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether many rows of features `(rows, k)` lie far outside the range of the rows before them; clocks, which never fall, aside."""
    low, high = before.min(0), before.max(0)
    room, clock = FAR * (high - low), (np.diff(before, axis=0) >= 0).all(0)
    far = ((after < low - room) | (after > high + room)) & ~clock
    return bool(far.any(1).mean() > MANY)
