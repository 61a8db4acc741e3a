"""`TrainResult`: the models that `train` made, how they did, and one verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

import numpy as np

from dflearn.data import DecisionDataset
from dflearn.data.split import Parts
from dflearn.estimator.regressor import DecisionFocusedRegressor
from dflearn.evaluation import Comparison, Evaluation

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
            choose by (see `dflearn.estimator.verdict`).
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
