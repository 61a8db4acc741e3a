"""`TrainResult`: the models that `train` made, how they did, and one verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from dflearn.data import DecisionDataset
from dflearn.data.split import Parts
from dflearn.errors import OptionError
from dflearn.evaluation import Comparison, Evaluation, compare
from dflearn.evaluation.estimates import Estimate, plain
from dflearn.tables.regressor import DecisionFocusedRegressor

AVERAGE = "average costs"
WIDTH = 100  # of what is printed
LEAST_TESTED = 30  # rows to test on below which nothing is said to be beyond chance
WORDS = {
    "mean_of_ratios": ("mean of regret / optimum", ".2%"),
    "ratio_of_sums": ("total regret / total optimum", ".2%"),
    "published_style": ("as in published tables, by 32 rows", ".2%"),
    "absolute_regret": ("mean regret", ".4g"),
    "exact_share": ("decisions without regret", ".1%"),
    "mse": ("mean squared error of costs", ".4g"),
}


@dataclass(frozen=True, eq=False)
class TrainResult:
    """The models that `train` made, and how they did. Printed, it is the table that compares them, and a verdict.

    Attributes:
        models: the trained models: two-stage ones first ("least squares", "ridge", "boosting", "blend"), then decision-focused ones by
            their losses ("smoothed-spo+", "sce").
        baseline: the two-stage model that decision-focused ones have to beat: the blend.
        chosen: the model that `save` keeps: the baseline, unless a decision-focused one is better beyond chance on the rows to
            choose by (see `dflearn.tables.fine_tuning.choose`).
        compared: the model that `difference` compares with the baseline: the chosen one, or, where that is the baseline, the
            best decision-focused one on the rows to choose by.
        validation: how each model did on the rows to choose by, when it was fitted to the rows to train on alone.
        tested: how each did on the rows to test on, after "average costs", which ignores the features.
        difference: `compared` − `baseline` on the rows to test on, row by row.
        parts: the rows in each part; by their numbers in the tables, or in time where `ordered` names a column.
        data: all rows, labelled, with encoded features.
        row_names: what each row is called: its id, or its place in the table.
        encoding: what turns a table of features into numbers, or `None` where they are numbers as they are.
        notes: what else is worth knowing about the data and the models.
        record: settings, steps taken and figures, as the model's file keeps them.
        seconds: how long it took.
        final: the chosen model trained again on all rows, with `refit=True`.
    """

    models: dict[str, DecisionFocusedRegressor]
    baseline: str
    chosen: str
    compared: str
    validation: dict[str, Evaluation]
    tested: dict[str, Evaluation]
    difference: Comparison
    parts: Parts
    data: DecisionDataset
    row_names: tuple[str, ...]
    encoding: Any
    notes: list[str]
    record: dict[str, Any]
    seconds: float
    final: DecisionFocusedRegressor | None = field(default=None)

    @property
    def model(self) -> DecisionFocusedRegressor:
        """The chosen model; the one that was trained again on all rows, where there is one."""
        return self.models[self.chosen] if self.final is None else self.final

    @property
    def rows(self) -> tuple[int, int, int]:
        """How many rows there were to train on, to choose by, and to test on."""
        train, choose, test = map(len, self.parts)
        return train, choose, test

    def save(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        """Write the chosen model to one file, which `decide` reads; `options` are kept in its record."""
        self.model.save(path, self.model.record_ | ({} if options is None else {"options": dict(options)}))

    def __str__(self) -> str:
        """How the models did on the rows to test on, the verdict, and the notes."""
        trained_on, chosen_by, tested_on = self.rows
        marks = {self.baseline: " (baseline)", self.chosen: " (kept)"}
        rows = [
            [name + marks.get(name, ""), *(_cell(judged.metrics[one].value, form) for one, (_, form) in WORDS.items())]
            for name, judged in self.tested.items()
        ]
        table = _table(["on the test rows", *(words for words, _ in WORDS.values())], rows)
        between = {words: (vars(self.difference).get(metric), form) for metric, (words, form) in WORDS.items()}
        differences = [(words, _between(found, form)) for words, (found, form) in between.items() if found is not None]
        width = max(len(words) for words, _ in differences)
        lines = "".join(f"\n  {words:{width}}  {found}" for words, found in differences)
        return (
            f"{sum(self.rows)} rows: {trained_on} to train on, {chosen_by} to choose by, {tested_on} to test on\n\n{table}\n\n"
            f"{self.compared} − {self.baseline}, {self.difference.confidence:.0%} intervals:{lines}\n"
            f"  less regret on {self.difference.wins} rows, the same on {self.difference.ties}, more on {self.difference.losses}\n\n"
            + "\n".join(wrap(self.verdict, WIDTH))
            + ("" if self.final is None else f"\n{self.chosen} was then trained again on all {sum(self.rows)} rows.")
            + "".join(f"\nnote: {note}" for note in self.notes)
        )

    @property
    def verdict(self) -> str:
        """What the test says, in a sentence or two that do not contradict each other."""
        kept = self._kept()
        if not self.tested[self.chosen].absolute_regret < self.tested[AVERAGE].absolute_regret:
            return (
                f"{kept} On the test rows it does not beat average costs: the features tell too little, or are too many for "
                "so few rows. Differences between the models mean little then."
            )
        value, low, high = self.difference.absolute_regret
        tested = len(self.tested[self.compared].regrets)
        if tested < LEAST_TESTED:
            return f"{kept} {tested} rows are too few to test a difference on."
        if low <= 0 <= high or not np.isfinite(low):
            told = "On the test rows the difference may be chance: its interval holds zero."
        else:
            told = f"On the test rows {self.compared} has {'less' if value < 0 else 'more'} regret, beyond chance."
        return f"{kept} {told}"

    def _kept(self) -> str:
        if self.chosen == self.baseline:
            return (
                f"Kept: {self.chosen}, which is two-stage: on the rows to choose by, no decision-focused model was better "
                "beyond chance."
            )
        return f"Kept: {self.chosen}, which was better than {self.baseline} on the rows to choose by."


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Names to the left, figures to the right, the words of the head one below the other."""
    words = [[name] if k == 0 else wrap(name, 10) for k, name in enumerate(head)]
    words = [[*one, *[""] * (max(map(len, words)) - len(one))] for one in words]
    lines = [*map(list, zip(*words, strict=True)), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    aligned.insert(len(words[0]), "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in aligned)


def _cell(number: float, form: str) -> str:
    return format(number, form) if np.isfinite(number) else "unknown"


def _between(estimate: tuple[float, float, float], form: str) -> str:
    return "{} [{}, {}]".format(*(_cell(number, f"+{form}") for number in estimate))


# -- savings -----------------------------------------------------------------------------------------------------------


YEAR = 365.2425 * 24 * 3600  # seconds
THOUSAND = 1000.0  # rows to count by where nothing tells how many a year has


class Saving(NamedTuple):
    """What the model saves against another on the rows to test on, with intervals; negative where it costs more.

    saved_i = regret of the other model − regret of this one on row i, in the unit of the objective.

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


# -- influence of features ---------------------------------------------------------------------------------------------


ROWS = 500  # of the features, at most, that are looked at
LINEAR = 1e-9  # relative to the predictions: how far a linear model's lie from the middle of two rows


class Influence(NamedTuple):
    """How much each of k features matters to each of p predicted costs, in units of the costs.

    Attributes:
        change: mean |change of the cost| when the feature's values are dealt out anew among the rows, `(k, p)`.
        slope: change of the cost for one standard deviation more of the feature, `(k, p)`; `None` where the model is not
            linear, so that there is no such number.
    """

    change: np.ndarray
    slope: np.ndarray | None


def influence(
    predict: Callable[[np.ndarray], np.ndarray],
    features: np.ndarray,
    seed: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
) -> Influence:
    """Measured on at most 500 rows of these features `(count, k)`, drawn by the seed.

    Args:
        predict: features `(count, k)` → costs `(count, p)`.
        groups: columns that make one feature together, as those of a category do; by default each is one by itself. Where
            a group holds several, there are no slopes.
    """
    groups = [[k] for k in range(features.shape[1])] if groups is None else groups
    rng = np.random.default_rng(seed)
    x = features[rng.permutation(len(features))[:ROWS]]
    before = predict(x)
    change = np.empty((len(groups), before.shape[1]))
    for i, group in enumerate(groups):
        other = x.copy()
        other[:, group] = x[rng.permutation(len(x))][:, group]
        change[i] = np.abs(predict(other) - before).mean(0)
    slopes = _slopes(predict, x, before) if all(len(group) == 1 for group in groups) else None
    return Influence(change, None if slopes is None else slopes[[group[0] for group in groups]])


def _slopes(predict: Callable[[np.ndarray], np.ndarray], x: np.ndarray, before: np.ndarray) -> np.ndarray | None:
    """The differences that one standard deviation makes, where the model is linear between the rows."""
    if not len(x):
        return None
    middle = predict((x + x[::-1]) / 2) - (before + before[::-1]) / 2
    deviations = np.where(np.ptp(x, axis=0) > 0, x.std(0), 0.0)
    if np.abs(middle).max(initial=0) > LINEAR * max(np.abs(before).max(initial=0), 1e-300):
        return None
    moved = [predict(x[:1] + step) - before[:1] for step in np.diag(deviations)]
    return np.concatenate(moved) if moved else np.empty((0, before.shape[1]))
