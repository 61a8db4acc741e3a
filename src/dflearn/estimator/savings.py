"""What a trained model saves, in the unit of the objective: per row, and per year where rows are days, weeks, ….

saved_i = regret of the other model − regret of this one on row i
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from dflearn.errors import OptionError
from dflearn.estimator.result import AVERAGE, TrainResult
from dflearn.evaluation import compare
from dflearn.evaluation.estimates import Estimate, plain

YEAR = 365.2425 * 24 * 3600  # seconds
THOUSAND = 1000.0  # rows to count by where nothing tells how many a year has


class Saving(NamedTuple):
    """What the model saves against another on the rows to test on, with intervals; negative where it costs more.

    Attributes:
        model, against: the two models.
        per_row: mean saving of a row.
        in_all: the same for `rows` of them: a year, or 1,000 rows.
        rows: how many.
        share: of the other's regret that is saved; NaN where it has none.
        wins, ties, losses: on how many rows the model has less regret, the same, more.
        confidence: level of the intervals.
    """

    model: str
    against: str
    per_row: Estimate
    in_all: Estimate
    rows: float
    share: float
    wins: int
    ties: int
    losses: int
    confidence: float

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval does not hold zero."""
        return not (np.isnan(self.per_row.low) or self.per_row.low <= 0 <= self.per_row.high)

    def as_dict(self) -> dict[str, Any]:
        numbers = plain({"per_row": self.per_row, "in_all": self.in_all})
        others = {name: getattr(self, name) for name in ("model", "against", "rows", "wins", "ties", "losses")}
        share = None if np.isnan(self.share) else self.share
        return {**others, **numbers, "share": share, "beyond_chance": self.beyond_chance, "confidence": self.confidence}


def saving(result: TrainResult, model: str, against: str, rows: float = THOUSAND) -> Saving:
    """What `model` saves against another one, by the names that they have in `result.tested`."""
    mine, others = result.tested[model], result.tested[against]
    found = compare(mine, others)
    value, low, high = found.absolute_regret
    saved = Estimate(0.0 - value, 0.0 - high, 0.0 - low)
    lost = others.absolute_regret
    share = saved.value / lost if lost > 0 else np.nan
    scaled = Estimate(*(rows * number for number in saved))
    return Saving(model, against, saved, scaled, rows, share, found.wins, found.ties, found.losses, found.confidence)


def savings(result: TrainResult, rows: float = THOUSAND) -> list[Saving]:
    """What the chosen model saves against the best two-stage one, and against average costs.

    Where the two-stage model itself was chosen, the first is what the best of the others would have saved against it.
    """
    mine = result.chosen if result.chosen != result.baseline else result.compared
    return [saving(result, mine, result.baseline, rows), saving(result, result.chosen, AVERAGE, rows)]


def rows_per_year(result: TrainResult, given: float | None = None) -> float | None:
    """How many rows a year has: as given, or by the names of the rows where these are dates in order; else `None`."""
    if given is not None:
        if not 0 < given < np.inf:
            raise OptionError(f"the rows of a year are a positive number, got {given}")
        return given
    return _by_dates(result.row_names)


def _by_dates(names: Sequence[str]) -> float | None:
    try:
        times = [datetime.fromisoformat(name) for name in names]
    except ValueError:
        return None
    seconds = np.array([time.replace(tzinfo=time.tzinfo or UTC).timestamp() for time in times])
    span = seconds[-1] - seconds[0]
    if len(seconds) < 2 or span <= 0 or (np.diff(seconds) < 0).any():
        return None
    return float((len(seconds) - 1) * YEAR / span)
