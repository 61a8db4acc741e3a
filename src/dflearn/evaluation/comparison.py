"""Two evaluations side by side, instance by instance; or several pairs of them, pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dflearn.errors import DataError, OptionError
from dflearn.evaluation import estimates
from dflearn.evaluation.estimates import FEW, Block, Estimate, over_seeds, signed_ranks
from dflearn.evaluation.regret import ZERO, Evaluation, zero_note

FEWEST_SEEDS = 3  # with fewer, their spread is not known
Evaluations = Evaluation | Sequence[Evaluation]
COMPARED = ("absolute_regret", "mean_of_ratios", "ratio_of_sums")


@dataclass(frozen=True)
class Comparison:
    """Paired differences a − b on the same instances, with intervals: negative favours a.

    Attributes:
        absolute_regret, mean_of_ratios, ratio_of_sums: the mean difference, by definition of regret.
        wins, ties, losses: on how many instances a has less regret than b, beyond round-off, as much, and more.
        confidence: level of the intervals.
        count: how many independent instances of equal weight tell as much: fewer than there are, where they have weights,
            or are drawn in blocks.
        zero_optima: how many instances have a zero optimum, and so are left out of `mean_of_ratios`.
        seeds: how many independent repetitions the intervals are over; `None` where they are over instances alone.
        p_value: of Wilcoxon's signed ranks of the seeds' mean differences; NaN without seeds.

    Examples:
        >>> good = dfl.evaluate(predicted, problem, data, progress=False)
        >>> difference = dfl.compare(good, good)
        >>> difference.ties, difference.absolute_regret.value
        (40, 0.0)
    """

    absolute_regret: Estimate
    mean_of_ratios: Estimate
    ratio_of_sums: Estimate
    wins: int
    ties: int
    losses: int
    confidence: float
    count: float
    zero_optima: int = 0
    seeds: int | None = None
    p_value: float = float("nan")

    @property
    def alike(self) -> bool:
        """Whether no instance differs by more than round-off."""
        return not self.wins and not self.losses

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval of the mean difference lies on one side of zero, and there are instances (and seeds) enough."""
        if self.alike or (self.seeds is not None and self.seeds < FEWEST_SEEDS):
            return False
        return self.count >= FEW and not self.absolute_regret.low <= 0 <= self.absolute_regret.high

    def verdict(self, first: str = "the first", second: str = "the second") -> str:
        """In one sentence, whether `first` has less regret than `second`, and how surely."""
        if self.alike:
            return f"The regrets of {first} and {second} are the same on every row."
        chance = f"The difference between {first} and {second} may be chance"
        over = "" if self.seeds is None else f" over {self.seeds} seeds"
        if self.seeds is not None and self.seeds < FEWEST_SEEDS:
            return f"{chance}: {self.seeds} seeds are too few to tell, {FEWEST_SEEDS} is the least."
        if self.count < FEW:
            return f"{chance}: {self.count:.3g} independent rows are too few to tell, {FEW} is the least."
        if not self.beyond_chance:
            more = "rows" if self.seeds is None else "seeds"
            return f"{chance}: its interval{over} holds zero. More {more} would tell."
        found = f"{first} {'lowers' if self.absolute_regret.value < 0 else 'raises'} the regret, beyond chance{over}."
        return found[0].upper() + found[1:]

    def summary(self) -> str:
        lines = [f"  {name:<22}{getattr(self, name)}" for name in COMPARED]
        lines.append(f"  {self.wins} wins, {self.ties} ties, {self.losses} losses; {self.confidence:.0%} confidence")
        if self.seeds is not None:
            lines.append(f"  {self.seeds} seeds, then their instances; Wilcoxon over seeds: p = {self.p_value:.3g}")
        lines.extend(f"  note: {note}" for note in self.notes())
        return "\n".join(["paired difference, negative favours the first", *lines, f"  {self.verdict()}"])

    def notes(self) -> list[str]:
        count = self.wins + self.ties + self.losses
        return [zero_note(self.zero_optima, count, "mean_of_ratios")] if self.zero_optima else []

    __str__ = summary

    def as_dict(self) -> dict[str, Any]:
        names = ("wins", "ties", "losses", "confidence", "count", "zero_optima", "beyond_chance")
        counts = {name: getattr(self, name) for name in names}
        if self.seeds is not None:
            counts |= {"seeds": self.seeds, "p_value": self.p_value}
        return {**estimates.plain({name: getattr(self, name) for name in COMPARED}), **counts}


def compare(a: Evaluations, b: Evaluations, *, block: Block = None, seeds: bool = False) -> Comparison:
    """How much less regret a has than b, instance by instance; both must have judged the same instances.

    Args:
        a, b: two evaluations, or two lists of as many, pair by pair: of several seeds or origins. The pairs are pooled: an
            instance that several of them judge, by its id, is one draw, with all its differences.
        block: how many consecutive instances, in the order of their ids, are drawn together: for instances in order of
            time, whose neighbours are alike. "auto": the cube root of their number.
        seeds: whether the pairs are repetitions of one experiment, each with data and training of its own. Then intervals are
            of the hierarchical bootstrap, which draws seeds and then instances. Each seed counts the same.

    Examples:
        >>> good = dfl.evaluate(data.costs, problem, data, progress=False)
        >>> poor = dfl.evaluate(predicted, problem, data, progress=False)
        >>> difference = dfl.compare(good, poor)
        >>> difference.losses, difference.absolute_regret.value < 0
        (0, True)
    """
    ones, others = ([part] if isinstance(part, Evaluation) else list(part) for part in (a, b))
    if not ones or len(ones) != len(others):
        raise OptionError(f"compare takes pairs of evaluations, and there are {len(ones)} and {len(others)}")
    pairs = list(zip(ones, others, strict=True))
    for one, other in pairs:
        _check_pair(one, other)
    if isinstance(block, bool) or not (block in (None, "auto") or (isinstance(block, int) and block >= 1)):
        raise OptionError(f"block is a number of consecutive instances, at least 1, or 'auto'; got {block!r}")
    if seeds and block is not None:
        raise OptionError("seeds are drawn whole, with instances that are independent: leave block out")
    level = ones[0].confidence
    difference = np.concatenate([one.regrets - other.regrets for one, other in pairs])
    weights = np.concatenate([np.ones(len(one.ids)) if one.weights is None else one.weights for one in ones])
    size, zero = np.abs(np.concatenate([one.optima for one in ones])), np.concatenate([one.zero_optima for one in ones])
    ids, exact = np.concatenate([one.ids for one in ones]), np.concatenate([one.roundoff for one in ones])
    if seeds or (len(pairs) == 1 and block is None):
        rows, count = np.arange(len(ids)), len(ids)
    else:
        known, rows = np.unique(ids, return_inverse=True)
        count = len(known)
    length, ends = estimates.block_length(count, block), np.cumsum([len(one.ids) for one in ones])[:-1]

    def pooled(numerator: np.ndarray, denominator: np.ndarray, counted: np.ndarray) -> Estimate:
        """Both `(judgements,)`, each times its weight, added up by instance."""
        used = weights * counted
        if seeds:
            lost, sizes, counts = (np.split(column, ends) for column in (numerator, denominator, used))
            return over_seeds(lost, sizes, counts, level)
        held = np.bincount(rows, used, minlength=count) > 0
        above, below = (np.bincount(rows, used * values, minlength=count)[held] for values in (numerator, denominator))
        return estimates.ratio_of_sums(above, below, level, block=length)

    p_value, each = float("nan"), np.ones_like(difference)
    if seeds:
        parts = zip(np.split(difference, ends), np.split(weights, ends), strict=True)
        p_value = signed_ranks(np.array([np.average(part, weights=own) for part, own in parts if own.sum() > 0]))
    ratios = np.divide(difference, size, out=np.zeros_like(difference), where=~zero)
    better, worse = difference < -exact, difference > exact
    return Comparison(
        absolute_regret=pooled(difference, each, each),
        mean_of_ratios=pooled(ratios, each, ~zero),
        ratio_of_sums=pooled(difference, size, each),
        wins=int(better.sum()),
        ties=int((~better & ~worse).sum()),
        losses=int(worse.sum()),
        confidence=level,
        count=estimates.effective_count(count, np.bincount(rows, weights, minlength=count)) / length if count else 0.0,
        zero_optima=int(zero.sum()),
        seeds=len(pairs) if seeds else None,
        p_value=p_value,
    )


def _check_pair(a: Evaluation, b: Evaluation) -> None:
    if a.problem != b.problem or not np.array_equal(a.ids, b.ids):
        raise DataError("only evaluations of the same instances of the same problem, in the same order, can be paired")
    if lost := int((a.infeasible | b.infeasible).sum()):
        why = "infeasible once the truth is known, so that their regrets are infinite and have no difference"
        remedy = "compare the shares, `infeasible_share`, or add priced slack, Program.elastic(rows, price)"
        raise DataError(f"{lost} of {len(a.ids)} decisions are {why}: {remedy}")
    if not np.allclose(a.optima, b.optima, rtol=1e-3, atol=ZERO * a._average):
        raise DataError("the two evaluations have different optima, so they did not judge the same data")
    if not (a.weights is b.weights if a.weights is None or b.weights is None else np.array_equal(a.weights, b.weights)):
        raise DataError("the two evaluations have different weights: evaluate both on data with the same weights")
