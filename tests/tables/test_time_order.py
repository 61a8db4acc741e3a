"""`order_in_time`, against the order that pandas gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dflearn.errors import DataError
from dflearn.tables.roles import UNTOLD, order_in_time
from dflearn.tables.tables import MixedTable

TIMES = pd.date_range("2023-11-20 03:30", periods=40, freq="29h")
SHUFFLED = np.random.default_rng(0).permutation(40)
FORMS: dict[str, Any] = {
    "ISO": lambda at: at.strftime("%Y-%m-%d").tolist(),
    "with a clock": lambda at: at.strftime("%Y-%m-%dT%H:%M").tolist(),
    "German": lambda at: at.strftime("%d.%m.%Y %H:%M").tolist(),
    "American": lambda at: at.strftime("%m/%d/%Y").tolist(),
    "words": lambda at: at.strftime("%d %b %Y").tolist(),
    "digits": lambda at: at.strftime("%Y%m%d").tolist(),
    "months": lambda at: at.strftime("%Y-%m").tolist(),
    "datetime64": lambda at: at,
    "periods": lambda at: at.to_period("h").tolist(),
    "Python": lambda at: at.to_pydatetime().tolist(),
    "summer time": lambda at: (at + pd.Timedelta(days=125)).tz_localize("Europe/Berlin"),
    "offsets": lambda at: [
        one.tz_localize("UTC").tz_convert(zone).isoformat()
        for one, zone in zip(at, ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata"] * 10, strict=True)
    ],
}


def table(columns: Any, **more: Any) -> MixedTable:
    return MixedTable.of(columns, "x", **more)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_ids", [False, True])
def test_a_column_sorts_the_rows(form: str, as_ids: bool) -> None:
    """Stable, as pandas' own sort of the times; texts whose order is another one included."""
    written = FORMS[form](TIMES[SHUFFLED])
    days = form in ("ISO", "American", "words", "digits")
    at = TIMES.to_period("M" if form == "months" else "D").to_timestamp() if days or form == "months" else TIMES
    if as_ids and at.has_duplicates:
        return
    held = table({"a": range(40), "day": written}, id_column="day" if as_ids else None)
    order, said = order_in_time(held, "day", "day" if as_ids else None)
    np.testing.assert_array_equal(order, np.argsort(at[SHUFFLED], kind="stable"))
    assert said == []


def test_numbers_sort_the_rows_too() -> None:
    for cells in ([3, 1, 2], ["10", "9", "-1"], [2.5, 0.5, 1.5], ["007", "12", "001"]):
        order, _ = order_in_time(table({"hour": cells, "a": [1, 2, 3]}), "hour")
        np.testing.assert_array_equal(order, np.argsort(np.array(cells, float)))


@pytest.mark.parametrize("form", [form for form in FORMS if form != "months"])
@pytest.mark.parametrize("held_by", ["ids", "index", "feature"])
def test_rows_that_are_not_in_order_are_refused(form: str, held_by: str) -> None:
    for at, right in ((TIMES, True), (TIMES[SHUFFLED], False), (TIMES[::-1], False)):
        written, columns = FORMS[form](at), {"a": np.arange(40)}
        if held_by == "index":
            held = table(pd.DataFrame(columns, index=pd.Index(written)))
        else:
            held = table(columns | {"day": written}, id_column="day" if held_by == "ids" else None)
        if held_by == "feature" and form == "digits":
            assert order_in_time(held, True) == (None, [UNTOLD])  # a number, which may be anything
        elif right:
            assert order_in_time(held, True, "day") == (None, [])
        else:
            how = r"sort_index\(\)" if held_by == "index" else "pass ordered='day'"
            with pytest.raises(DataError, match=f"not in order of time.*: .*{how}.*; or, .* pass ordered='as-is'"):
                order_in_time(held, True, "day")
        assert order_in_time(held, "as-is", "day") == order_in_time(held, False, "day") == (None, [])


def test_what_tells_most_counts() -> None:
    back = TIMES[::-1].strftime("%Y-%m-%d").tolist()
    numbered = pd.DataFrame({"since": back, "at": TIMES}, index=SHUFFLED)
    assert order_in_time(table(numbered), True) == (
        None,
        [],
    )  # one column is in order; an index of numbers tells nothing
    ids = [f"r{k}" for k in range(40)]
    with pytest.raises(DataError, match="row 1, column 'since' holds 2024-01-05 and comes after 2024-01-06"):
        order_in_time(table({"day": ids, "since": back}, id_column="day"), True, "day")
    dated = table({"day": TIMES.astype(str), "since": back}, id_column="day")
    assert order_in_time(dated, True, "day") == (None, [])
    costs = table(pd.DataFrame({"c": range(40)}, index=TIMES[::-1]))
    with pytest.raises(DataError, match=r"index 2024-01-05 .*comes after 2024-01-06.*sort_index"):
        order_in_time(table(np.ones((40, 2))), True, costs=costs)
    gaps = [None if k % 3 else text for k, text in enumerate(TIMES.astype(str))]
    assert order_in_time(table({"day": gaps}), True) == (None, [])
    assert order_in_time(table({"a": [1, 2], "b": ["u", "v"]}), True) == (None, [UNTOLD])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["2024-01-01", "", "2024-01-03"], "row 1, column 'day' is empty: the rows are sorted by this column"),
        (
            ["2024-01-01", "soon", "2024-01-03"],
            "row 0, column 'day' holds '2024-01-01', which is no number, and no time",
        ),
        (["03/04/2024", "04/05/2024", "05/06/2024"], "column 'day' holds '03/04/2024', which may be"),
        (["2024-01-01T00:00Z", "2024-01-02T00:00", "2024-01-03T00:00Z"], "row 1, column 'day' .*without an offset"),
    ],
)
def test_columns_that_sort_nothing(cells: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        order_in_time(table({"day": cells, "a": [1, 2, 3]}), "day")
    with pytest.raises(DataError, match="x has no column 'days' to sort the rows by; did you mean 'day'"):
        order_in_time(table({"day": cells}), "days")
