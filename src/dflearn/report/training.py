"""The page of `dfl train`: the kept model, its savings in money with intervals, in which rows, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dflearn.evaluation.estimates import Estimate
from dflearn.report import training_figures as figures
from dflearn.report.page import Page
from dflearn.report.training_figures import short_number as number, with_unit
from dflearn.tables.result import AVERAGE, THOUSAND, RollingResult, Saving, TrainResult, rows_per_year, saving, savings

TOP = 5  # rows in the table of the largest gains, and of the largest losses
FEATURES, COSTS, ROWS = 15, 24, 500  # most features and costs in the heat map, and rows behind it
FAR = 3  # average costs with more than so many times the regret of any model are left out of the figure


def training_page(
    result: TrainResult,
    *,
    unit: str = "",
    per_year: float | None = None,
    commands: Iterable[tuple[str, str]] | None = None,
    rolled: RollingResult | None = None,
) -> Page:
    """The page of a training.

    Args:
        unit: of the objective, such as "EUR".
        per_year: rows per year. Default: from the names of the rows if they are dates, else sums are per 1,000 rows.
        commands: next steps: the purpose of each, and the command.
        rolled: all folds, of which `result` is the last. They come first; the rest of the page is about the last.
    """
    rows = rows_per_year(result, per_year)
    baseline, average = savings(result, rows or THOUSAND)
    saved, than = baseline.per_row.value, baseline.against
    verb, against = ("saves", f"against {than}") if saved >= 0 else ("costs", f"more than {than}")
    lead = f"On the test rows {baseline.model} {verb} {_money_text(abs(saved), unit)} per row {against}."
    title = f"{result.tested[result.chosen].problem}: what the forecasts are worth"
    page = Page(title, f"{result.verdict} {lead}", contents=True)
    if rolled is not None:
        _folds(page, rolled, unit)
    _money(page, result, baseline, average, unit, rows)
    _models(page, result, unit)
    _over_time(page, result, unit)
    _rows(page, result, unit)
    _features(page, result, unit)
    page.section("What to do next")
    page.commands(_in_python() if commands is None else commands)
    if result.notes:
        page.text("Notes:")
        page.items(("", note) for note in result.notes)
    _made(page, result)
    return page


def _folds(page: Page, rolled: RollingResult, unit: str) -> None:
    page.section("All folds")
    page.table(*rolled.table())
    page.text(f"Mean regret on the test rows of each fold. {rolled.verdict}")
    trained = "Each fold was trained on the rows before its test rows."
    rest = f"The rest of this page is about the last of the {len(rolled.folds)} folds, whose model is saved."
    page.text(f"{_unit(unit)} {trained} {rest}", faint=True)


def _money(page: Page, result: TrainResult, baseline: Saving, average: Saving, unit: str, rows: float | None) -> None:
    time = "per year" if rows else "per 1,000 rows"
    kept = result.tested[result.chosen]
    shown = [average] if result.chosen == result.baseline else [baseline, average]
    saved = [(f"saved {time} against {one.against}", one.in_all.value, _sure(one, unit)) for one in shown]
    share, lost = kept.metrics["ratio_of_sums"], f"{_money_text(kept.absolute_regret, unit)} per row"
    surely = "" if np.isnan(share.low) else f", {share.low:.2%} to {share.high:.2%}"
    cards = [(what, _money_text(value, unit), sure) for what, value, sure in saved]
    page.cards([*cards, ("still lost against perfect foresight", lost, f"{share.value:.2%} of the optimum{surely}")])
    page.section("In money")
    found = [baseline, average]
    if result.chosen != result.baseline:
        found.insert(1, saving(result, result.baseline, AVERAGE, average.rows))
    header = ["saved by", "against", "per row", time, "of its regret", "beyond chance"]
    body = [
        [
            one.model, one.against, _with_range(one.per_row), _with_range(one.in_all),
            "" if np.isnan(one.share) else f"{one.share:.0%}".replace("-", "−"), "yes" if one.difference.beyond_chance else "no",
        ]
        for one in found
    ]  # fmt: skip
    page.table(header, body)
    year = f" A year has {number(rows)} rows." if rows else ""
    rows_said = f"row by row on the {len(result.parts.test)} test rows, which were used for nothing else."
    bands = f"The {baseline.difference.confidence:.0%} intervals in brackets cover the choice of these rows."
    lines = f"Each line compares two models {rows_said} {bands} A negative number is a loss.{year}"
    page.text(f"{_unit(unit)} {lines}", faint=True)


def _models(page: Page, result: TrainResult, unit: str) -> None:
    page.section("All models on the test rows")
    body = [
        [
            f"{name} (kept)" if name == result.chosen else name,
            _with_range(judged.metrics["absolute_regret"]),
            f"{judged.ratio_of_sums:.2%}" if np.isfinite(judged.ratio_of_sums) else "",
            f"{judged.exact_share:.0%}",
            number(judged.mse),
            number(result.validation[name].absolute_regret) if name in result.validation else "",
        ]
        for name, judged in result.tested.items()
    ]
    page.table(["model", "mean regret", "regret / optimum", "without regret", "squared error", "validation"], body)
    found = {name: judged.metrics["absolute_regret"] for name, judged in result.tested.items()}
    far = found[AVERAGE][0] > FAR * max(found[name][0] for name in result.models)
    if far:  # otherwise the other points could not be told apart
        del found[AVERAGE]
    page.figure(
        figures.intervals(found, result.chosen, with_unit("mean regret of a test row", unit)),
        "Regret: what a decision costs more, or earns less, than the best one in hindsight. Bands are the intervals of each "
        "model alone. Differences between models are more certain than they look here, since all models decided the same rows."
        + (" Average costs lie far to the right." if far else ""),
    )
    for note in result.tested[result.chosen].notes():
        page.text(note[0].upper() + note[1:] + ".", faint=True)


def _over_time(page: Page, result: TrainResult, unit: str) -> None:
    page.section("Over time")
    tested = result.tested
    order = np.argsort(tested[result.chosen].ids, kind="stable")
    labels = [result.row_names[row] for row in tested[result.chosen].ids[order]]
    other = result.baseline if result.chosen != result.baseline else AVERAGE
    regrets = {name: tested[name].regrets[order] for name in (result.chosen, other)}
    page.figure(
        figures.over_time(labels, regrets, unit),
        f"Above: regret per row, a running mean over {figures.running(len(labels))} rows. Below: the savings of the "
        f"{result.chosen} model against {other} up to each row. A steady slope is a lasting saving; one step is one lucky row.",
    )


def _rows(page: Page, result: TrainResult, unit: str) -> None:
    page.section("Which rows gain, which lose")
    mine, other = result.compared, result.baseline
    a, b = result.tested[mine], result.tested[other]
    lost = [np.where(np.abs(one.regrets) > one.roundoff, one.regrets, 0.0) for one in (b, a)]  # without round-off
    saved = np.where(np.abs(b.regrets - a.regrets) > a.roundoff, b.regrets - a.regrets, 0.0)
    gains, losses = int((saved > 0).sum()), int((saved < 0).sum())
    page.text(
        f"{mine} against {other}: {gains} rows gain {_money_text(saved[saved > 0].sum(), unit)} in all, {losses} lose "
        f"{_money_text(-saved[saved < 0].sum(), unit)}, and {len(saved) - gains - losses} are the same."
    )
    page.figure(figures.gains_and_losses(saved, unit), f"What {mine} saves on each test row against {other}.")
    order = np.argsort(-saved, kind="stable")
    shown = [i for i in order[:TOP] if saved[i] > 0] + [i for i in order[-TOP:] if saved[i] < 0]
    if shown:
        columns = (saved, *lost, a.optima)
        rows = [[result.row_names[a.ids[i]], *(number(column[i]) for column in columns)] for i in shown]
        page.table(["row", "saved", f"regret of {other}", f"regret of {mine}", "optimum"], rows)


def _features(page: Page, result: TrainResult, unit: str) -> None:
    page.section("Which features move which costs")
    x = result.data.features.numpy()[result.parts.train]
    owners = [column.name for column in result.encoding.columns for _ in column.names]  # a table column per number
    groups = {name: [k for k, owner in enumerate(owners) if owner == name] for name in dict.fromkeys(owners)}
    costs = result.model.cost_names or [f"cost {k}" for k in range(result.model.solver_.objective.p)]
    names = list(groups)
    change = influence(lambda x: result.predict(result.chosen, x), x, list(groups.values()))
    rows = np.argsort(-change.mean(1), kind="stable")[:FEATURES]
    columns = np.sort(np.argsort(-change.mean(0), kind="stable")[:COSTS])
    what = "mean change of the predicted cost when the rows of the feature are shuffled"
    text = f"The {result.chosen} model: {with_unit(what, unit)}. The strongest feature is on top."
    for some, of, kind in ((rows, len(names), "features"), (columns, len(costs), "costs")):
        text += f" Shown: the {len(some)} of {of} {kind} with the largest changes." if len(some) < of else ""
    if result.chosen != result.baseline:
        text += " A model trained for decisions shows what moves the decision. It is not a forecast."
    labels = [names[k] for k in rows], [costs[k] for k in columns]
    page.figure(figures.heat_map(change[np.ix_(rows, columns)], *labels), text)


def influence(
    predict: Callable[[np.ndarray], np.ndarray], features: np.ndarray, groups: Sequence[Sequence[int]], seed: int = 0
) -> np.ndarray:
    """Mean |change of each predicted cost| when the columns of a group are shuffled among the rows, `(groups, p)`.

    Measured on at most 500 rows of features `(count, k)`, drawn by the seed.
    """
    rng = np.random.default_rng(seed)
    x = features[rng.permutation(len(features))[:ROWS]]
    before, change = predict(x), []
    for group in groups:
        other = x.copy()
        other[:, group] = x[rng.permutation(len(x))][:, group]
        change.append(np.abs(predict(other) - before).mean(0))
    return np.array(change)


def _made(page: Page, result: TrainResult) -> None:
    page.section("How this was made")
    train, choose, test = result.rows
    facts = {
        "rows": f"{train} for training ({choose} of them, in turn, for validation), {test} for testing",
        "kept": f"{result.chosen}, by its validation regret",
        "time": f"{result.seconds:.0f} s",
        "solver": result.tested[result.chosen].solver,
        **{str(name).replace("_", " "): _setting(value) for name, value in result.record.get("options", {}).items()},
    }
    page.facts(facts.items())
    page.folded("The same as a table of text", str(result))


def _in_python() -> list[tuple[str, str]]:
    return [
        ("Keep the model, and decide for new rows:", 'result.save("model.dfl")\ndflearn.decide("model.dfl", new_features).columns'),
        ("Once their true costs are known, judge what the decisions were worth:", 'print(dflearn.decide("model.dfl", new_features, true_costs))'),
    ]  # fmt: skip


def _setting(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else "no" if value is False else "default" if value is None else str(value)


def _money_text(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".strip()


def _with_range(found: Estimate) -> str:
    return number(found.value) + ("" if np.isnan(found.low) else f" [{number(found.low)}, {number(found.high)}]")


def _sure(found: Saving, unit: str) -> str:
    low, high = (_money_text(end, unit) for end in (found.in_all.low, found.in_all.high))
    if np.isnan(found.in_all.low):
        return "too few rows for an interval"
    return f"{low} to {high}: {'beyond chance' if found.difference.beyond_chance else 'may be chance'}"


def _unit(unit: str) -> str:
    return f"Amounts are in {unit}." if unit else "Amounts are in the unit of the objective."
