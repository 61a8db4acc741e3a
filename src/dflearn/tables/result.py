"""`TrainResult`: the models that `train` made, how they did, and one verdict."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate

from dflearn.data import DecisionDataset
from dflearn.data.split import Parts
from dflearn.errors import OptionError
from dflearn.evaluation import Comparison, Evaluation, compare
from dflearn.evaluation.estimates import Estimate, plain
from dflearn.tables.forecasters import AVERAGE, YOURS
from dflearn.tables.regressor import DecisionFocusedRegressor

BASELINE, CHOSEN = "the baseline", "the kept model"  # of all folds of rolling origins
JOINED = ("ids", "regrets", "optima", "squared_errors")  # of the evaluations of folds
WIDTH = 100  # of what is printed
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
        models: ordinary forecasts first ("your forecast", "ridge", …, "blend"), then decision-focused ones ("stack", the linear models
            by their losses, "focused boosting").
        baseline: the ordinary model that decision-focused ones have to beat.
        chosen: the model that `save` keeps: the baseline, unless a decision-focused one is better beyond chance on the
            validation rows (see `dflearn.tables.choice.choose`).
        compared: the model that `difference` compares with the baseline: the chosen one, or else the best decision-focused one
            on the validation rows.
        validation, tested: how each model did on the validation rows, forecast by models that left them out, and on the test rows,
            there with "average costs", which ignores the features.
        difference: `compared` − `baseline` on the test rows, row by row.
        parts: the rows for training, those of them that were left out in turn for validation, and the test rows; by their numbers
            in the tables, or in time if `ordered` names a column.
        data, encoding: all rows, labelled, with encoded features; the map from a table of features to these.
        row_names: the id of each row, or its place in the table.
        notes, seconds: remarks about the data and the models; the time it took.
        record: settings, steps taken and figures, as the model's file keeps them.
        final: the chosen model trained again on all rows, with `refit=True`.

    Examples:
        >>> x, y = data.features.numpy(), data.costs.numpy()
        >>> result = dfl.train(program, x, y, forecasters=["ridge"], losses=["spo+"], epochs=1, progress=False)
        >>> result.baseline, list(result.models)
        ('ridge', ['ridge', 'stack', 'spo+', 'focused boosting'])
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
    final: DecisionFocusedRegressor | None = None

    @property
    def model(self) -> DecisionFocusedRegressor:
        """The chosen model; the one that was trained again on all rows, where there is one."""
        return self.models[self.chosen] if self.final is None else self.final

    @property
    def rows(self) -> tuple[int, int, int]:
        """The numbers of training, validation and test rows."""
        return len(self.parts.train), len(self.parts.choose), len(self.parts.test)

    def predict(self, name: str, x: np.ndarray) -> np.ndarray:
        """The costs that a model predicts for rows of `data.features`."""
        model = self.models[name]
        return model.predict(x[:, : model.n_features_in_])

    def save(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        """Write the chosen model to one file, which `decide` reads; `options` are kept in its record."""
        self.model.save(path, self.model.record_ | ({} if options is None else {"options": dict(options)}))

    def as_dict(self, per_year: float | None = None) -> dict[str, Any]:
        """How the models did, as JSON holds it; per_year: as of `rows_per_year`."""
        rows = rows_per_year(self, per_year)
        return {
            **{name: getattr(self, name) for name in ("chosen", "baseline", "compared")},
            "rows": dict(zip(("train", "choose", "test"), self.rows, strict=True)),
            "rows_per_year": rows,
            "savings": [one.as_dict() for one in savings(self, rows or THOUSAND)],
            "difference": self.difference.as_dict(),
            "test": {name: judged.as_dict() for name, judged in self.tested.items()},
            "choose": {name: judged.as_dict() for name, judged in self.validation.items()},
            "notes": self.notes,
        }

    def __str__(self) -> str:
        trained_on, validated, tested_on = self.rows
        marks = {self.baseline: " (baseline)", self.chosen: " (kept)"}
        rows = [
            [name + marks.get(name, ""), *(_cell(judged.metrics[one].value, form) for one, (_, form) in WORDS.items())]
            for name, judged in self.tested.items()
        ]
        head = ["on the test rows", *("\n".join(wrap(words, 10)) for words, _ in WORDS.values())]
        table = tabulate(rows, head, disable_numparse=True, colalign=["left", *["right"] * len(WORDS)])
        between = [(words, vars(self.difference).get(metric), form) for metric, (words, form) in WORDS.items()]
        differences = [(words, _between(found, form)) for words, found, form in between if found is not None]
        width = max(len(words) for words, _ in differences)
        again = f"{self.chosen} was then trained again on all {trained_on + tested_on} rows."
        lines = [
            f"{trained_on + tested_on} rows: {trained_on} for training ({validated} left out in turn, for validation), {tested_on} for testing",
            f"\n{table}\n",
            f"{self.compared} − {self.baseline}, {self.difference.confidence:.0%} intervals:",
            *(f"  {words:{width}}  {found}" for words, found in differences),
            f"  less regret on {self.difference.wins} rows, the same on {self.difference.ties}, more on {self.difference.losses}\n",
            *wrap(self.verdict, WIDTH),
            *([] if self.final is None else [again]),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """What the test says, in a sentence or two that do not contradict each other."""
        said, kept = [], self.tested[self.chosen]
        if YOURS in self.models and self.chosen != YOURS:
            mine = compare(kept, self.tested[YOURS])
            said.append(f"Against {YOURS}: {mine.verdict(self.chosen, YOURS)}")
        why = f", which was better than {self.baseline} on the validation rows."
        if self.chosen == self.baseline:
            why = "; on the validation rows, no decision-focused model was better beyond chance."
        said.append(f"Kept: {self.chosen}{why}")
        best = min(self.models, key=lambda name: self.tested[name].absolute_regret)
        regret, least = kept.absolute_regret, self.tested[best].absolute_regret
        if regret - least > kept.roundoff.mean():
            against = f"mean regret {least:.4g}, against {regret:.4g} for {self.chosen}."
            said.append(f"On the test rows, {best} did best: {against}")
        perfect = (kept.regrets <= kept.roundoff).all()
        told = self.difference.verdict(self.compared, self.baseline)
        if not perfect and not regret < self.tested[AVERAGE].absolute_regret:
            told = (
                "On the test rows it does not beat average costs: the features tell too little, or are too many for "
                "so few rows. Differences between the models mean little then."
            )
        return " ".join([*said, told])


@dataclass(frozen=True, eq=False)
class RollingResult:
    """The results of `train_rolling`. Printed, it is a line for each fold, one for all together, and a verdict.

    Attributes:
        folds: the result of each fold, in order of time.
        tested: "average costs", "the baseline" and "the kept model" of each fold, on the test rows of all folds together.
        difference: the kept model − the baseline on these rows.
    """

    folds: list[TrainResult]
    tested: dict[str, Evaluation]
    difference: Comparison

    @property
    def last(self) -> TrainResult:
        """The fold that was trained on the most rows, and the latest."""
        return self.folds[-1]

    @property
    def model(self) -> DecisionFocusedRegressor:
        return self.last.model

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for fold in self.folds for note in fold.notes))

    def save(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> None:
        self.last.save(path, options)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows: the mean regrets of each fold, and of all together."""
        rows = []
        for fold in self.folds:
            first, last = (fold.row_names[fold.parts.test[k]] for k in (0, -1))
            trained_on, validated, _ = fold.rows
            regrets = [fold.tested[name].absolute_regret for name in (AVERAGE, fold.baseline, fold.chosen)]
            named = [f"{first} … {last}", f"{trained_on + validated}", fold.baseline, fold.chosen]
            rows.append(named + [f"{regret:.4g}" for regret in regrets])
        rows.append(["together", "", "", "", *(f"{judged.absolute_regret:.4g}" for judged in self.tested.values())])
        return ["rows tested", "trained on", "baseline", "kept", AVERAGE, BASELINE, CHOSEN], rows

    @property
    def verdict(self) -> str:
        """The kept models − the baselines on the rows of all folds, and whether that is beyond chance."""
        told = f"{_between(self.difference.absolute_regret, '.4g')}, {self.difference.confidence:.0%} interval"
        same = not self.difference.wins and not self.difference.losses
        said = "The kept models decide as the baselines do." if same else self.difference.verdict(CHOSEN, BASELINE)
        return f"{CHOSEN} − {BASELINE}: {told}. {said}"

    def __str__(self) -> str:
        header, rows = self.table()
        align = ["left", "right", "left", "left", *["right"] * 3]
        table = tabulate(rows, header, disable_numparse=True, colalign=align)
        told = "folds in order of time, each trained on the rows before those that it tests; mean regret"
        lines = [f"{len(self.folds)} {told}\n", table, "", self.verdict, *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def together(parts: Sequence[Evaluation]) -> Evaluation:
    joined: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in JOINED}
    if parts[0].weights is not None:
        joined["weights"] = np.concatenate([part.weights for part in parts])
    return replace(parts[0], **joined, decisions=None, pessimistic_regrets=None, floor_regrets=None)


def _cell(number: float, form: str, sign: str = "") -> str:
    return format(number, f"{sign}z{form}") if np.isfinite(number) else "unknown"


def _between(estimate: tuple[float, float, float], form: str) -> str:
    return "{} [{}, {}]".format(*(_cell(number, form, "+") for number in estimate))


YEAR = 365.2425 * 24 * 3600  # seconds
THOUSAND = 1000.0  # rows to count by where nothing tells how many a year has


class Saving(NamedTuple):
    """The savings of a model against another one on the test rows, in the unit of the objective; negative if it costs more."""

    model: str
    against: str
    difference: Comparison  # of their paired regrets, model − against
    share: float  # of the other's regret that is saved; NaN if it has none
    rows: float  # that `in_all` counts: those of a year, or 1,000

    @property
    def per_row(self) -> Estimate:
        value, low, high = self.difference.absolute_regret
        return Estimate(0.0 - value, 0.0 - high, 0.0 - low)

    @property
    def in_all(self) -> Estimate:
        return Estimate(*(self.rows * number for number in self.per_row))

    def as_dict(self) -> dict[str, Any]:
        names = ("wins", "ties", "losses", "confidence", "beyond_chance")
        held = {name: getattr(self.difference, name) for name in names}
        share = None if np.isnan(self.share) else self.share
        held |= {"model": self.model, "against": self.against, "rows": self.rows, "share": share}
        return held | plain({"per_row": self.per_row, "in_all": self.in_all})


def saving(result: TrainResult, model: str, against: str, rows: float = THOUSAND) -> Saving:
    """The savings of `model` against another one, by their names in `result.tested`."""
    found, lost = compare(result.tested[model], result.tested[against]), result.tested[against].absolute_regret
    return Saving(model, against, found, -found.absolute_regret.value / lost if lost > 0 else np.nan, rows)


def savings(result: TrainResult, rows: float = THOUSAND) -> list[Saving]:
    """The savings of the compared model against the baseline, and of the chosen model against average costs."""
    mine = result.chosen if result.chosen != result.baseline else result.compared
    return [saving(result, mine, result.baseline, rows), saving(result, result.chosen, AVERAGE, rows)]


def rows_per_year(result: TrainResult, given: float | None = None) -> float | None:
    """How many rows a year has: as given, or by the names of the rows where these are dates in order; else `None`."""
    if given is not None:
        if not 0 < given < np.inf:
            raise OptionError(f"the rows of a year are a positive number, got {given}")
        return given
    with suppress(ValueError):
        times = [datetime.fromisoformat(name) for name in result.row_names]
        steps = np.diff([time.replace(tzinfo=time.tzinfo or UTC).timestamp() for time in times])
        if steps.sum() > 0 and (steps >= 0).all():
            return float(YEAR / steps.mean())
    return None
