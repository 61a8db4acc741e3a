"""Two evaluations side by side, instance by instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dflearn.errors import DataError
from dflearn.evaluation import estimates
from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.regret import EXACT, ZERO, Evaluation


@dataclass(frozen=True)
class Comparison:
    """Paired differences a − b on the same instances, with intervals: negative favours a.

    `wins` counts the instances on which a has less regret than b, beyond round-off.
    """

    absolute_regret: Estimate
    mean_of_ratios: Estimate
    ratio_of_sums: Estimate
    wins: int
    ties: int
    losses: int
    confidence: float

    def summary(self) -> str:
        names = ("absolute_regret", "mean_of_ratios", "ratio_of_sums")
        lines = [f"  {name:<22}{getattr(self, name)}" for name in names]
        lines.append(f"  {self.wins} wins, {self.ties} ties, {self.losses} losses; {self.confidence:.0%} confidence")
        return "\n".join(["paired difference, negative favours the first", *lines])

    def __str__(self) -> str:
        return self.summary()

    def as_dict(self) -> dict[str, Any]:
        names = ("absolute_regret", "mean_of_ratios", "ratio_of_sums")
        counts = {name: getattr(self, name) for name in ("wins", "ties", "losses", "confidence")}
        return {**estimates.plain({name: getattr(self, name) for name in names}), **counts}


def compare(a: Evaluation, b: Evaluation) -> Comparison:
    """How much less regret a has than b, instance by instance; both must have judged the same instances."""
    if a.problem != b.problem or not np.array_equal(a.ids, b.ids):
        raise DataError("only evaluations of the same instances of the same problem, in the same order, can be paired")
    if not np.allclose(a.optima, b.optima, rtol=1e-3, atol=ZERO * a._average):
        raise DataError("the two evaluations have different optima, so they did not judge the same data")
    if not _same(a.weights, b.weights):
        raise DataError(
            "the two evaluations weigh the instances differently: evaluate both on data with the same weights"
        )
    weights = a.weights
    difference, size, kept = a.regrets - b.regrets, np.abs(a.optima), ~a.zero_optima
    better, worse = difference < -EXACT * a._scale, difference > EXACT * a._scale
    return Comparison(
        absolute_regret=estimates.mean(difference, a.confidence, weights),
        mean_of_ratios=estimates.mean(
            difference[kept] / size[kept], a.confidence, None if weights is None else weights[kept]
        ),
        ratio_of_sums=estimates.ratio_of_sums(difference, size, a.confidence, weights),
        wins=int(better.sum()),
        ties=int((~better & ~worse).sum()),
        losses=int(worse.sum()),
        confidence=a.confidence,
    )


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)
