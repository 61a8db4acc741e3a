"""Mixed tables as numbers: against pandas and scikit-learn, learned from the rows to train on alone, the same from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from dflearn.errors import DataError
from dflearn.tables.columns import Encoding
from dflearn.tables.tables import MixedTable, Table, read_mixed, read_table

ROWS, TRAIN = 60, 45


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    held = pd.DataFrame(
        {
            "load": rng.normal(50, 9, ROWS).round(3),
            "shop": rng.choice(["north", "south", "west"], ROWS),
            "open": rng.choice(["yes", "No"], ROWS),
            "busy": rng.choice([True, False], ROWS),
            "at": pd.date_range("2023-12-30", periods=ROWS, freq="171h"),
            "site": 7,
        }
    )
    held.loc[[3, 50], "load"] = np.nan
    held.loc[[5, 6], "shop"] = None
    return held


def table(what: Any) -> MixedTable:
    return MixedTable.of(what, "x")


def refused(message: str) -> Any:
    return pytest.raises(DataError, match=message)


def encoded(what: Any, rows: Any = None) -> pd.DataFrame:
    mixed = table(what)
    encoding = Encoding.of(mixed, rows)
    return pd.DataFrame(encoding(mixed), columns=encoding.names)


def test_numbers_encode_to_themselves() -> None:
    values = np.random.default_rng(0).normal(size=(20, 3))
    numbers = Table(Path("x.csv"), dict(zip("abc", values.T, strict=True)), ("",) * 20)
    for what in (values, pd.DataFrame(values), values.tolist(), numbers):
        np.testing.assert_array_equal(encoded(what).to_numpy(), values)
    assert Encoding.of(table(pd.DataFrame(values, columns=list("abc")))).names == ("a", "b", "c")


def test_each_kind_against_pandas_and_scikit_learn() -> None:
    held, train = frame(), np.arange(TRAIN)
    found = encoded(held, train)
    filled = SimpleImputer(strategy="median").fit(held[["load"]][:TRAIN]).transform(held[["load"]])
    np.testing.assert_array_equal(found[["load"]], filled)
    np.testing.assert_array_equal(found["load missing"], held["load"].isna())
    ones = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(held[["shop"]][:TRAIN].dropna())
    np.testing.assert_array_equal(found[["shop=north", "shop=south", "shop=west"]], ones.transform(held[["shop"]]))
    np.testing.assert_array_equal(found["shop missing"], held["shop"].isna())
    np.testing.assert_array_equal(found["open"], held["open"] == "yes")
    np.testing.assert_array_equal(found["busy"], held["busy"])
    at = held["at"].dt
    np.testing.assert_allclose(found["at trend"], (held["at"] - held["at"][0]).dt.total_seconds() / 86400, atol=1e-9)
    years = (at.day_of_year - 1) / np.where(at.is_leap_year, 366, 365)
    for wave, phase in (("year", years), ("hour", at.hour / 24)):
        np.testing.assert_allclose(found[f"at {wave} sine"], np.sin(2 * np.pi * phase), atol=1e-9)
        np.testing.assert_allclose(found[f"at {wave} cosine"], np.cos(2 * np.pi * phase), atol=1e-9)
    for number, day in enumerate(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")):
        np.testing.assert_array_equal(found[f"at {day}"], at.day_of_week == number)
    short = encoded(held, np.arange(20))  # 134 days: less than half a year, of which a wave cannot be told from a trend
    assert list(short) == [name for name in found if " year " not in name]
    assert list(found)[:2] == ["load", "load missing"]
    assert not [name for name in found if name.startswith("site")]
    assert "'site' has the same value in all rows trained on" in Encoding.of(table(held)).notes[0]


@pytest.mark.parametrize("ending", ["csv", "parquet", "dict"])
def test_a_file_gives_the_same_numbers_as_the_frame(ending: str, tmp_path: Path) -> None:
    held, path = frame(), tmp_path / f"x.{ending}"
    if ending == "dict":
        mixed = table(held.to_dict("list"))
    else:
        held.to_csv(path, index=False) if ending == "csv" else held.to_parquet(path)
        mixed = read_mixed(path)
    other = Encoding.of(table(held), np.arange(TRAIN))
    encoding = Encoding.of(mixed, np.arange(TRAIN))
    assert encoding == other
    np.testing.assert_array_equal(encoding(mixed), other(table(held)))


def test_only_the_rows_to_train_on_are_learned_from() -> None:
    held, changed = frame(), frame()
    changed.loc[TRAIN:, ["load", "shop"]] = [1e6, "elsewhere"]
    changed.loc[TRAIN:, "at"] = pd.Timestamp("1999-01-01")
    rows = np.arange(TRAIN)
    assert Encoding.of(table(held), rows) == Encoding.of(table(changed), rows)
    assert Encoding.of(table(held)) != Encoding.of(table(changed))


def test_it_is_plain_json() -> None:
    encoding = Encoding.of(table(frame()), aside=["shop weight"])
    held = json.loads(json.dumps(encoding.as_dict(), allow_nan=False))
    assert Encoding.from_dict(held) == encoding
    with refused("damaged, or newer"):
        Encoding.from_dict({"columns": [{"kind": "picture", "name": "a"}], "aside": []})


def test_what_is_unusual_later_is_said() -> None:
    held = frame()
    encoding = Encoding.of(table(held), aside=["weight"])
    new = held.head(4).assign(shop=["north", "mars", "mars", "west"], load=[50, 51, 1e4, np.nan], weight=1, note="x")
    new["busy"] = [True, None, False, True]
    said = encoding.remarks(table(new))
    assert any("row 1, column 'shop' holds 'mars', which no row trained on does (2 such rows)" in one for one in said)
    assert any("row 2, column 'load' holds 10000, far outside" in one for one in said)
    assert any("row 3, column 'load' is empty: taken as" in one and "the median, flagged" in one for one in said)
    assert any("row 1, column 'busy' is empty" in one and "had no gaps in training" in one for one in said)
    assert any("has the column 'note', which is no feature of the model: ignored" in one for one in said)
    assert len(said) == 5
    found = pd.DataFrame(encoding(table(new)), columns=encoding.names)
    np.testing.assert_array_equal(found.filter(regex="^shop=").sum(axis=1), [1, 0, 0, 1])
    assert np.isfinite(found.to_numpy()).all()
    assert encoding.remarks(table(held.dropna())) == []
    late = held.dropna().head(1).assign(at=pd.Timestamp("2031-01-01"))
    assert "far from the times of the rows trained on" in encoding.remarks(table(late))[0]
    with refused("x lacks the column 'load' of the features in training; did you mean 'loads'"):
        encoding(table(held.rename(columns={"load": "loads"})))
    encoding(table(held.drop(columns="site")))  # it was constant, so it is not missed
    with refused("row 0, column 'load' holds 'high', which is no number, and the column held numbers"):
        encoding(table(held.astype({"load": object}).assign(load="high")))


def test_many_categories_keep_the_frequent_ones() -> None:
    rng = np.random.default_rng(0)
    cities = [f"c{k:02}" for k in range(40)]
    names = np.concatenate([np.repeat(cities, 2), rng.choice(cities[:10], 200)])
    mixed = table({"city": names.tolist()})
    encoding = Encoding.of(mixed)
    found = pd.DataFrame(encoding(mixed), columns=[name.removeprefix("city=") for name in encoding.names])
    assert found.shape[1] == 30
    assert (found.sum(axis=1) == 1).all()
    counts = pd.Series(names).value_counts()
    assert {*counts.index[:10]} <= {*found}
    assert found["other"].sum() == len(names) - counts[list(found)[:-1]].sum()
    assert "'city' has many categories: the 29 most frequent" in encoding.notes[0]
    assert encoding(table({"city": ["nowhere"]}))[0, -1] == 1
    with refused(r"another text in each row .*id_column='city'"):
        Encoding.of(table({"city": [f"c{k}" for k in range(40)]}))


def test_categories_by_declaration(tmp_path: Path) -> None:
    held = pd.DataFrame({"line": pd.Categorical([1, 2, 1, 10])})
    found = encoded(held)
    assert list(found) == ["line=1", "line=10", "line=2"]
    encoding = Encoding.of(table(held))
    held.to_parquet(tmp_path / "x.parquet")
    assert Encoding.of(read_mixed(tmp_path / "x.parquet")) == encoding
    np.testing.assert_array_equal(encoding(table({"line": ["10", "2", " 1"]})), encoding(table({"line": [10, 2.0, 1]})))


@pytest.mark.parametrize(
    ("texts", "first"),
    [
        (["2024-03-05", "2024-03-06"], "2024-03-05"),
        (["2024-03-05T06:30", "2024-03-06 18:00:00"], "2024-03-05T06:30"),
        (["2024-03-05T06:30+02:00", "2024-03-06T18:00+02:00"], "2024-03-05T06:30"),
        (["2024-03-05T06:30+02:00", "2024-03-06T18:00Z", "2024-03-07T18:00Z"], "2024-03-05T04:30"),
        (["5.3.2024", "31.12.2024"], "2024-03-05"),
        (["03/05/2024", "12/31/2024"], "2024-03-05"),
        (["05/03/2024 06:30", "31/12/2024 07:00"], "2024-03-05T06:30"),
        (["Mar 5, 2024", "Dec 31, 2024"], "2024-03-05"),
        (["5 March 2024", "31 December 2024"], "2024-03-05"),
    ],
)
def test_dates_as_people_write_them(texts: list[str], first: str) -> None:
    (column,) = Encoding.of(table({"day": texts})).columns
    assert column.kind == "time"
    days = (np.datetime64(first) - np.datetime64("1970-01-01")) / np.timedelta64(1, "D")
    assert column.low == pytest.approx(days)


def test_later_tables_may_write_dates_otherwise() -> None:
    encoding = Encoding.of(table({"day": pd.date_range("2024-03-01", periods=20)}))
    iso = encoding(table({"day": ["2024-03-25", "2024-03-26"]}))
    np.testing.assert_array_equal(encoding(table({"day": ["25.03.2024", "26.03.2024"]})), iso)
    with refused("row 1, column 'day' holds 'soon', which is no date or time such as 2026-03-31"):
        encoding(table({"day": ["2024-03-25", "soon"]}))


BERLIN = pd.date_range("2024-03-25", periods=60, freq="7h", tz="Europe/Berlin")  # summer time begins on the 31st


def test_times_of_different_offsets_are_instants(tmp_path: Path) -> None:
    """The same instants, however written, are the same numbers: those of the clock that most rows have."""
    held = pd.DataFrame({"at": BERLIN, "a": range(60)})
    encoding = Encoding.of(table(held))
    found = pd.DataFrame(encoding(table(held)), columns=encoding.names)
    clock = BERLIN.tz_convert("Etc/GMT-2")  # two hours ahead of UTC, as most of these rows
    days = (BERLIN - BERLIN[0]).total_seconds() / 86400
    np.testing.assert_allclose(found["at trend"], days, atol=1e-9)
    np.testing.assert_allclose(found["at hour sine"], np.sin(2 * np.pi * clock.hour / 24), atol=1e-9)
    held.to_csv(tmp_path / "x.csv", index=False)
    held.to_parquet(tmp_path / "x.parquet")
    instants = BERLIN.tz_convert("UTC")
    others = [read_mixed(tmp_path / "x.csv"), read_mixed(tmp_path / "x.parquet")]
    for at in (instants, instants.strftime("%Y-%m-%dT%H:%M:%SZ"), BERLIN.tz_convert("Asia/Kolkata")):
        others.append(table(held.assign(at=at)))
    for other in others:
        np.testing.assert_array_equal(encoding(other), found)
    assert Encoding.of(others[0]) == Encoding.of(others[1]) == encoding
    assert Encoding.from_dict(json.loads(json.dumps(encoding.as_dict()))) == encoding


def test_times_with_an_offset_beside_times_without() -> None:
    aware, naive = "2024-03-05T06:30+02:00", "2024-03-06T18:00"
    without = "holds '2024-03-06T18:00', without an offset from UTC, where other times of the column have one: write"
    with refused(f"row 1, column 'at' {without}"):
        Encoding.of(table({"at": [aware, naive]}))
    mixed = table({"at": [aware, naive, "2024-03-07T06:30Z"]})
    with refused(f"row 1, column 'at' {without}"):  # in a row that is not trained on
        Encoding.of(mixed, [0, 2])(mixed)
    beyond = r"holds '2024-03-05T06:30\+02:00', with an offset from UTC, where other times of the column have none"
    with refused(f"row 0, column 'at' {beyond}"):
        Encoding.of(table({"at": BERLIN.tz_localize(None)}))(table({"at": [aware]}))


def test_days_and_months_that_may_be_each_other_are_an_error() -> None:
    with refused(r"column 'day' holds '03/05/2024', which may be 2024-03-05.* or 2024-05-03.*YYYY"):
        Encoding.of(table({"day": ["03/05/2024", "04/05/2024"]}))


def test_thousands_separators(tmp_path: Path) -> None:
    path = tmp_path / "y.csv"
    path.write_text('a,b\n"1,234.5","12,000"\n"1,234,567",3\n-7,"-1,000"\n')
    values = [[1234.5, 12000], [1234567, 3], [-7, -1000]]
    np.testing.assert_array_equal(read_table(path).values, values)
    mixed = read_mixed(path)
    encoding = Encoding.of(mixed)
    np.testing.assert_array_equal(encoding(mixed), values)
    np.testing.assert_array_equal(encoding(table({"a": ["1,000"], "b": ["2,000"]})), [[1000, 2000]])


def test_underscores_are_no_part_of_numbers(tmp_path: Path) -> None:
    """Python reads 1_001 as 1001; in a table it is a code, or a mistake."""
    path = tmp_path / "x.csv"
    path.write_text("code,a\n" + "".join(f"1_00{i % 3},{i}\n" for i in range(9)))
    texts = {"code": np.array([f"1_00{i % 3}" for i in range(9)])}
    for mixed in (read_mixed(path), table(pd.read_csv(path)), table(texts)):
        assert Encoding.of(mixed).columns[0].kind == "category"
    path.write_text("a\n" + "1\n" * 30 + "1_5\n")
    with refused("line 32, column 'a' holds '1_5', which is no number"):
        read_table(path)
    with refused("line 32, column 'a' holds '1_5', and nearly all other cells"):
        Encoding.of(read_mixed(path))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1,5", "2,5"], r"line 2, column 'b' holds '1,5', with a decimal comma: write 1.5, with a decimal point"),
        (["3", "1.234,5"], r"line 3, column 'b' holds '1.234,5', with a decimal comma: write 1234.5"),
        (["7", "1,234"], r"line 3, column 'b' holds '1,234', which is 1234 with a .* or 1.234 with a decimal comma"),
        (["0,125", "3"], r"line 2, column 'b' holds '0,125', with a decimal comma: write 0.125"),
    ],
)
def test_decimal_commas_are_an_error(cells: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f'1,"{cell}"\n' for cell in cells))
    for read in (read_table, lambda path: Encoding.of(read_mixed(path))):
        with refused(message):
            read(path)


def test_a_mistake_among_numbers_is_no_category() -> None:
    with refused(r"row 4, column 'a' holds '12x', and nearly all other cells"):
        Encoding.of(table({"a": ["1", "2", "3", "4", "12x", *map(str, range(20))]}))
    (column,) = Encoding.of(table({"a": ["1", "2", "x", "y"] * 3})).columns
    assert column.kind == "category"


@pytest.mark.parametrize("word", ["none", "None", "-", "?", "Na", "nAn"])
def test_words_that_are_values_among_text_and_empty_elsewhere(word: str) -> None:
    days, flags = ["2024-03-05", word, "2024-03-09", "2024-03-09"], ["yes", word, "no", "no"]
    texts = ["u", word, "v", ""]
    found = encoded({"a": [1.0, word, 4.0, 3.0], "b": texts, "day": days, "open": flags})
    for name in ("a", "day", "open"):
        np.testing.assert_array_equal(found[f"{name} missing"], [0, 1, 0, 0])
    for level in ("u", word, "v"):
        np.testing.assert_array_equal(found[f"b={level}"], [text == level for text in texts])
    np.testing.assert_array_equal(found["b missing"], [0, 0, 0, 1])


def test_words_that_pandas_takes_as_missing_are_empty_in_columns_of_text(tmp_path: Path) -> None:
    """But for "None", which loses a value silently; the remark names the word."""
    path = tmp_path / "x.csv"
    words = ["NA", "N/A", "#N/A", "#NA", "n/a", "NULL", "null", "NaN", "nan", "<NA>", "None", "none", "b"]
    path.write_text("b,i\n" + "".join(f"{word},{i}\n" for i, word in enumerate(words)))
    mixed = read_mixed(path)
    encoding = Encoding.of(mixed)
    found = pd.DataFrame(encoding(mixed), columns=encoding.names)
    by_pandas = pd.read_csv(path)["b"].isna() & (np.array(words) != "None")
    np.testing.assert_array_equal(found["b missing"], by_pandas)
    assert "line 2, column 'b' holds 'NA', which counts as empty (10 such rows)" in encoding.remarks(mixed)[0]


# -- codes ----------------------------------------------------------------------------------------------------------

CODES = ["01", "1", "10", "001", "2", "02"] * 3


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame", "dict", "category", "array", "bytes"])
def test_leading_zeros_make_codes(ending: str, tmp_path: Path) -> None:
    """As scikit-learn's encoder has them, of the same texts, whatever holds them."""
    held, path = pd.DataFrame({"code": CODES, "a": range(18)}), tmp_path / f"x.{ending}"
    if ending in ("csv", "parquet"):
        held.to_csv(path, index=False) if ending == "csv" else held.to_parquet(path)
        mixed = read_mixed(path)
    else:
        mixed = table(held.astype({"code": "category"}) if ending == "category" else held)
        mixed = table(held.to_dict("list")) if ending == "dict" else mixed
        if ending in ("array", "bytes"):
            mixed = table({"code": np.array(CODES, "S" if ending == "bytes" else "U"), "a": range(18)})
    encoding = Encoding.of(mixed)
    ones = OneHotEncoder(sparse_output=False).fit(held[["code"]])
    assert encoding.names == (*(f"code={level}" for level in ones.categories_[0]), "a")
    np.testing.assert_array_equal(encoding(mixed)[:, :-1], ones.transform(held[["code"]]))
    assert "'code' holds codes with leading zeros, as '001': they are categories" in encoding.notes[0]
    assert encoding.remarks(mixed) == []


def test_zeros_before_numbers_with_signs_or_points_are_numbers_and_said() -> None:
    for cells in (["-05", "007", "12"], ["007", "1.5", "3"]):
        mixed = table({"a": cells})
        encoding = Encoding.of(mixed)
        np.testing.assert_array_equal(encoding(mixed)[:, 0], np.array(cells, float))
        (remark,) = encoding.remarks(mixed)
        assert "holds '007' in a column of numbers: taken as 7; if it is a code, write a letter" in remark
    plain = Encoding.of(table({"a": ["0", "1", "10", "0.5", "-0"]}))
    assert plain.columns[0].kind == "number"
    assert plain.remarks(table({"a": ["0", "10"]})) == []
    assert "holds '01' in a column of numbers" in plain.remarks(table({"a": ["01"]}))[0]


def test_types_of_pandas() -> None:
    held = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], "Int64"),
            "flag": pd.array([True, None, False], "boolean"),
            "text": pd.array(["a", None, "b"], "string"),
            "at": pd.to_datetime(["2024-01-01", None, "2024-01-09"]).tz_localize("Europe/Berlin"),
            "took": pd.to_timedelta(["1h", "2h", None]),
        }
    )
    kinds = [column.kind for column in Encoding.of(table(held)).columns]
    assert kinds == ["number", "boolean", "category", "time", "number"]
    assert np.isfinite(encoded(held).to_numpy()).all()


def test_codes_that_pandas_read_as_numbers_are_none_of_the_categories() -> None:
    """1 may be 1, 01 or 001, so it is not taken as the category 1, and a note says so."""
    encoding = Encoding.of(table(pd.DataFrame({"zone": ["01", "1", "10", "02"] * 5, "v": range(20)})))
    for cells in ([1, 10], [1.0, 10.0]):
        new = table(pd.DataFrame({"zone": cells, "v": [3, 4]}))
        assert encoding(new)[:, :4].sum() == 0
        (note,) = encoding.remarks(new)
        assert "holds 1, a number, and the rows trained on codes such as '01' (2 such rows)" in note
        assert "none of its categories" in note
