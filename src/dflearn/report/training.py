"""The page of `dfl train`: what was kept, what it saves in money and how surely, where, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dflearn.evaluation.estimates import Estimate
from dflearn.evaluation.regret import Evaluation
from dflearn.program import Program
from dflearn.report import training_figures as figures
from dflearn.report.page import Page
from dflearn.report.training_figures import short_number as number, with_unit
from dflearn.tables.result import (
    AVERAGE,
    THOUSAND,
    RollingResult,
    Saving,
    TrainResult,
    influence,
    rows_per_year,
    saving,
    savings,
)

TOP = 5  # rows that gain or lose most, named
FEATURES, COSTS, VARIABLES = 15, 24, 60  # shown at most
FAR = 3  # times the regret of any model: average costs are then left out of the figure


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
        per_year: how many rows a year has; by default as the names of the rows tell, where these are dates, and otherwise
            sums are told per 1,000 rows.
        commands: what to do next: what for, and what to type.
        rolled: the folds of which `result` is the last: they come first then, and the rest is about the last.
    """
    rows = rows_per_year(result, per_year)
    against_baseline, against_average = savings(result, rows or THOUSAND)
    name = result.tested[result.chosen].problem
    page = Page(f"{name}: what the forecasts are worth", _lead(result, against_baseline, unit), contents=True)
    if rolled is not None:
        _folds(page, rolled, unit)
    _money(page, result, against_baseline, against_average, unit, rows)
    _models(page, result, unit)
    _over_time(page, result, unit)
    _rows(page, result, unit)
    _features(page, result, unit)
    _one_decision(page, result, unit)
    page.section("What to do next")
    page.commands(commands if commands is not None else _in_python())
    if result.notes:
        page.text("Noted on the way:")
        page.items(("", note) for note in result.notes)
    _made(page, result)
    return page


def _lead(result: TrainResult, found: Saving, unit: str) -> str:
    """The verdict, and what the decision-focused model saves against the baseline."""
    saved = found.per_row.value
    verb = "saves" if saved >= 0 else "costs"
    amount = f"{_money_text(abs(saved), unit)} per row {'against' if saved >= 0 else 'more than'} {found.against}"
    return f"{result.verdict} On the test rows {found.model} {verb} {amount}."


# -- sections -------------------------------------------------------------------------------------------------------


def _folds(page: Page, rolled: RollingResult, unit: str) -> None:
    page.section("All folds")
    page.table(*rolled.table())
    page.text(f"Mean regret on the rows that each fold tests. {rolled.verdict}")
    page.text(
        f"{_unit(unit)} Each fold was trained on the rows before those that it tests. All that follows is about the last of the "
        f"{len(rolled.folds)} folds, whose model is the one that is saved.",
        faint=True,
    )


def _money(page: Page, result: TrainResult, baseline: Saving, average: Saving, unit: str, rows: float | None) -> None:
    time = "per year" if rows else "per 1,000 rows"
    kept = result.tested[result.chosen]
    shown = [average] if result.chosen == result.baseline else [baseline, average]
    cards = [
        (f"saved {time} against {one.against}", _money_text(one.in_all.value, unit), _sure(one, unit)) for one in shown
    ]
    share, lost = kept.metrics["ratio_of_sums"], f"{_money_text(kept.absolute_regret, unit)} per row"
    surely = "" if np.isnan(share.low) else f", {share.low:.2%} to {share.high:.2%}"
    cards.append(("still lost against perfect foresight", lost, f"{share.value:.2%} of the optimum{surely}"))
    page.cards(cards)
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
    page.text(
        f"{_unit(unit)} Each line compares two models row by row on the {len(result.parts.test)} test rows, which served for "
        f"nothing else; in brackets {baseline.difference.confidence:.0%} intervals, which are about the choice of these rows. Below zero: "
        f"it costs more.{year}",
        faint=True,
    )


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
    if far:  # the others could not be told apart beside it
        del found[AVERAGE]
    page.figure(
        figures.intervals(found, result.chosen, with_unit("mean regret of a test row", unit)),
        "Regret: what a decision costs more, or earns less, than the best one in hindsight. Bands are the intervals of each "
        "model by itself; differences between models are surer than they look here, since all decided the same rows."
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
        f"Above: regret per row, a running mean over {figures.running(len(labels))} rows. Below: what the {result.chosen} model "
        f"has saved against {other} up to each row. A steady slope is a saving that lasts; one step is one lucky row.",
    )


def _rows(page: Page, result: TrainResult, unit: str) -> None:
    page.section("Which rows gain, which lose")
    mine, other = result.compared, result.baseline
    a, b = result.tested[mine], result.tested[other]
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
        numbers = [map(number, (saved[i], _rounded(b, i), _rounded(a, i), a.optima[i])) for i in shown]
        rows = [[result.row_names[a.ids[i]], *cells] for i, cells in zip(shown, numbers, strict=True)]
        page.table(["row", "saved", f"regret of {other}", f"regret of {mine}", "optimum"], rows)


def _features(page: Page, result: TrainResult, unit: str) -> None:
    page.section("Which features move which costs")
    x = result.data.features.numpy()[result.parts.train]
    program, groups = _program(result), _columns_of_features(result)
    costs = result.model.cost_names or [f"cost {k}" for k in range(program.p)]
    names = list(groups)
    found = influence(lambda x: result.predict(result.chosen, x), x, groups=list(groups.values()))
    rows = np.argsort(-found.change.mean(1), kind="stable")[:FEATURES]
    columns = np.sort(np.argsort(-found.change.mean(0), kind="stable")[:COSTS])
    shown = found.change if found.slope is None else found.slope
    what = (
        "mean change of the predicted cost when the values of the feature are dealt out anew among the rows"
        if found.slope is None
        else "what one standard deviation more of the feature adds to the predicted cost (blue) or takes from it (orange)"
    )
    what += f", in {unit}" if unit else ""
    left = [
        f"the {len(some)} of {of} {kind} that matter most"
        for some, of, kind in ((rows, len(names), "features"), (columns, len(costs), "costs"))
        if len(some) < of
    ]
    page.figure(
        figures.heat_map(
            shown[np.ix_(rows, columns)],
            [names[k] for k in rows],
            [costs[k] for k in columns],
            signed=found.slope is not None,
        ),
        f"The {result.chosen} model: {what}; the strongest feature on top."
        + (f" Shown: {' and '.join(left)}." if left else "")
        + (
            " A model trained for decisions bends its predictions where decisions depend on them: read it as what moves the "
            "decision, not as a forecast."
            if result.chosen != result.baseline
            else ""
        ),
    )


def _one_decision(page: Page, result: TrainResult, unit: str) -> None:
    page.section("One decision beside the best")
    kept, other = result.tested[result.chosen], result.tested[result.baseline]
    i, why = _typical(result)
    row = int(kept.ids[i])
    assert kept.decisions is not None
    assert other.decisions is not None
    assert result.data.decisions is not None
    taken = {"best in hindsight": result.data.decisions[row].numpy(), result.chosen: kept.decisions[i].numpy()}
    if result.chosen != result.baseline:
        taken[result.baseline] = other.decisions[i].numpy()
    stacked = np.array(list(taken.values()), float)
    apart = np.ptp(stacked, axis=0) > 1e-6 * np.maximum(np.abs(stacked).max(0), 1)
    count = int(apart.sum())
    name = result.row_names[row]
    if not count:
        page.text(f"On every test row the decisions are the best ones in hindsight, {name} included.")
        return
    worth = _coefficients(result, row)
    size = np.ptp(stacked, axis=0) * np.abs(worth["in truth"]) * apart
    which = np.sort(np.argsort(-size, kind="stable")[: min(count, VARIABLES)])
    program = _program(result)
    variables = program.variable_names or [f"w[{k}]" for k in range(program.n)]
    regrets = f"{result.chosen} loses {_money_text(_rounded(kept, i), unit)}"
    if result.chosen != result.baseline:
        regrets += f", {result.baseline} {_money_text(_rounded(other, i), unit)}"
    page.figure(
        figures.decisions(
            [variables[k] for k in which],
            {who: values[which] for who, values in zip(taken, stacked, strict=True)},
            {who: costs[which] for who, costs in worth.items()},
            with_unit("in the objective", unit),
        ),
        f"{name}, {why}: against the best decision, {regrets}. Shown: "
        + (f"the {len(which)} of {count}" if len(which) < count else f"the {count}")
        + f" of {len(variables)} variables on which the decisions differ; above what is decided, below what each unit of it is "
        "worth in the objective, in truth and as predicted.",
    )


def _made(page: Page, result: TrainResult) -> None:
    page.section("How this was made")
    parts = result.parts
    facts = {
        "rows": f"{len(parts.train)} for training ({len(parts.choose)} left out in turn, for validation), {len(parts.test)} for testing",
        "kept": f"{result.chosen}, by its regret on rows left out",
        "time": f"{result.seconds:.0f} s",
        "solver": result.tested[result.chosen].solver,
        **{str(name).replace("_", " "): _setting(value) for name, value in result.record.get("options", {}).items()},
    }
    page.facts(facts.items())
    page.folded("The same as a table of text", str(result))


# -- words and numbers ----------------------------------------------------------------------------------------------


def _typical(result: TrainResult) -> tuple[int, str]:
    """A test row to show, and why this one: no best case, no worst."""
    kept, other = result.tested[result.chosen].regrets, result.tested[result.baseline].regrets
    apart = np.abs(other - kept)
    differ = f"on which {result.chosen} and {result.baseline} differ"
    least = result.tested[result.chosen].roundoff
    for size, some, why in ((apart, apart > least, differ), (kept, kept > least, "with regret")):
        rows = np.flatnonzero(some)
        if rows.size:
            middle = rows[np.argsort(size[rows], kind="stable")[(len(rows) - 1) // 2]]
            return int(middle), f"the middle one of the {len(rows)} test rows {why}"
    return 0, "the first test row"


def _coefficients(result: TrainResult, row: int) -> dict[str, np.ndarray]:
    """What each variable is worth in the objective, in the program's own sense: in truth, and as two models predict."""
    program = _program(result)
    assert result.data.costs is not None
    x = result.data.features.numpy()[row : row + 1]
    costs = {"in truth": result.data.costs[row].numpy()}
    for name in dict.fromkeys([result.chosen, result.baseline]):
        costs[f"as {name} predicts"] = result.predict(name, x)[0]
    instance = None if result.data.instance is None else result.data.instance[row : row + 1]
    sign = -1.0 if program.sense == "maximize" else 1.0
    known = program.d if instance is None or instance.d is None else instance.d[0].numpy()
    return {name: sign * ((y if program.S is None else program.S @ y) + known) for name, y in costs.items()}


def _program(result: TrainResult) -> Program:
    program = result.model.solver_.program
    assert program is not None
    return program


def _columns_of_features(result: TrainResult) -> dict[str, list[int]]:
    """Each column of the table of features, and the columns of numbers that it became."""
    owners = [column.name for column in result.encoding.columns for _ in column.names]
    return {name: [k for k, owner in enumerate(owners) if owner == name] for name in dict.fromkeys(owners)}


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


def _rounded(judged: Evaluation, i: int) -> float:
    """The regret of a row; zero where it is round-off."""
    regret = float(judged.regrets[i])
    return regret if abs(regret) > judged.roundoff[i] else 0.0


def _sure(found: Saving, unit: str) -> str:
    low, high = (_money_text(end, unit) for end in (found.in_all.low, found.in_all.high))
    if np.isnan(found.in_all.low):
        return "too few rows for an interval"
    return f"{low} to {high}: {'beyond chance' if found.difference.beyond_chance else 'may be chance'}"


def _unit(unit: str) -> str:
    return f"Amounts are in {unit}." if unit else "Amounts are in the unit of the objective."
