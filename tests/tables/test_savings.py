"""Savings, against what NumPy says about the same rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dflearn.errors import OptionError
from dflearn.evaluation import Evaluation
from dflearn.tables.result import rows_per_year, saving, savings

RNG = np.random.default_rng(1)
OPTIMA = RNG.uniform(50, 100, 40)
REGRETS = {"average costs": RNG.gamma(2, 5, 40), "two-stage": RNG.gamma(2, 2, 40), "spo+": RNG.gamma(2, 1, 40)}


def result(chosen: str = "spo+", names: Any = ()) -> Any:
    """What savings read of a `TrainResult`."""
    tested = {
        name: Evaluation("p", "s", np.arange(40), regrets, OPTIMA, np.zeros(40)) for name, regrets in REGRETS.items()
    }
    return SimpleNamespace(tested=tested, chosen=chosen, compared="spo+", baseline="two-stage", row_names=names)


@pytest.mark.parametrize("against", ["two-stage", "average costs"])
def test_savings_are_paired_differences(against: str) -> None:
    """Their interval is no narrower than Student's."""
    found = saving(result(), "spo+", against, rows=250)
    difference = REGRETS[against] - REGRETS["spo+"]
    interval = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
    value, low, high = found.per_row
    assert value == pytest.approx(difference.mean())
    assert low <= interval.low + 1e-12 < interval.high - 1e-12 <= high
    assert high - low <= 2 * (interval.high - interval.low)
    assert found.in_all == pytest.approx(tuple(250 * np.array(found.per_row)))
    assert found.share == pytest.approx(difference.sum() / REGRETS[against].sum())
    assert found.difference.beyond_chance == (low > 0 or high < 0)
    assert (found.difference.wins, found.difference.losses) == ((difference > 0).sum(), (difference < 0).sum())
    assert found.as_dict()["per_row"]["low"] == pytest.approx(low)


def test_where_the_two_stage_model_is_kept_the_other_is_still_compared() -> None:
    first, second = savings(result(chosen="two-stage"))
    assert (first.model, first.against) == ("spo+", "two-stage")
    assert (second.model, second.against) == ("two-stage", "average costs")
    assert savings(result())[1].model == "spo+"


def test_a_model_without_regret_leaves_no_share_to_save() -> None:
    same = saving(result(), "spo+", "spo+")
    assert (same.per_row.value, same.difference.beyond_chance, same.difference.ties) == (0, False, 40)
    held = result()
    held.tested["spo+"] = Evaluation("p", "s", np.arange(40), np.zeros(40), OPTIMA, np.zeros(40))
    none = saving(held, "two-stage", "spo+")
    assert none.as_dict()["share"] is None
    assert none.per_row.value == pytest.approx(-REGRETS["two-stage"].mean())


def test_rows_of_a_year_by_dates_in_order() -> None:
    days = tuple(str(np.datetime64("2024-01-01") + k) for k in range(40))
    hours = tuple(str(np.datetime64("2024-01-01T00") + k) for k in range(40))
    assert rows_per_year(result(names=days)) == pytest.approx(365.2425)
    assert rows_per_year(result(names=tuple(f"{hour}:00" for hour in hours))) == pytest.approx(24 * 365.2425)
    assert rows_per_year(result(names=days[::-1])) is None
    assert rows_per_year(result(names=("2024-01-01",))) is None
    assert rows_per_year(result(names=("line 2", "line 3"))) is None
    assert rows_per_year(result(names=days), 52) == 52
    with pytest.raises(OptionError, match="positive number"):
        rows_per_year(result(names=days), -1)
