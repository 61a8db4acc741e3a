"""Tables: what is written is read back, and every cell, name or row that is wrong is told by its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dflearn.errors import DataError
from dflearn.tables.roles import Roles
from dflearn.tables.table_files import read_predictions
from dflearn.tables.tables import MixedTable, Table, Tables, read_table, write_table

COLUMNS = {"day": ["mon", "tue"], "a": [1.5, -2e-7], "x(1,2)": [3, 4], 'ü "q"': [0.1 + 0.2, 1e300]}


def refused(message: str) -> Any:
    return pytest.raises(DataError, match=message)


def csv_file(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    write_table(tmp_path / name, COLUMNS)
    table = read_table(tmp_path / name, "day")
    assert table.names == ("a", "x(1,2)", 'ü "q"')
    assert table.ids == ("mon", "tue")
    np.testing.assert_array_equal(table.values, np.array([COLUMNS[name] for name in table.names]).T)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    pd.testing.assert_frame_equal(read(tmp_path / name), pd.DataFrame(COLUMNS), check_dtype=False)


def test_spaces_blank_lines_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    table = read_table(csv_file(tmp_path, b"\xef\xbb\xbfa, b\r\n1, 2\r\n\r\n3,4e1\r\n"))
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 40]])
    assert table.where(1) == f"{tmp_path / 't.csv'}, line 4"


def test_infinity_where_it_is_allowed(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "upper:x\ninf\n-3\n")
    assert read_table(path, infinite=True).values[0, 0] == np.inf
    with refused("line 2, column 'upper:x' holds inf"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: its first line names the columns"),
        ("a,b\n", "has no rows"),
        ("a,b,a\n1,2,3\n", "has 2 columns named 'a'"),
        (",a\n0,1\n", "column 1 has no name.*index=False"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells, and the first line names 2 columns"),
        ("a,b\n1,\n", "line 2, column 'b' is empty"),
        ("a,b\n1,2\n1,nan\n", "line 3, column 'b' holds nan"),
        ("a,b\n1,2\n1,Monday\n", "line 3, column 'b' holds 'Monday', which is no number: .*id_column='b'; .*0 and 1"),
        ("a;b\n1;2\n", "otherwise than by commas"),
        ("a\tb\n1\t2\n", "otherwise than by commas"),
        ('a,b\n1,"2\n', "cannot be read as CSV"),
        (b"a,b\n1,\xff\n", "cannot be read as CSV.*UTF-8"),
    ],
)
def test_what_is_wrong_in_a_csv_file(tmp_path: Path, content: str | bytes, message: str) -> None:
    with refused(message) as error:
        read_table(csv_file(tmp_path, content))
    assert str(tmp_path / "t.csv") in str(error.value)


def test_what_is_wrong_in_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with refused("cannot be read as Parquet"):
        read_table(csv_file(tmp_path, "a,b\n1,2\n", "t.parquet"))
    pd.DataFrame({"a": [1.0, None]}).to_parquet(path)
    with refused("row 1, column 'a' is empty"):
        read_table(path)
    pd.DataFrame({"a": ["x", "y"]}).to_parquet(path)
    with refused("row 0, column 'a' holds 'x'"):
        read_table(path)
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "missing.parquet")


# -- ids and names --------------------------------------------------------------------------------------------------


def table_of(name: str, ids: tuple[str, ...] | None, count: int = 3) -> Table:
    return Table(Path(name), {"a": np.arange(count) + 0.0}, tuple(f"line {i + 2}" for i in range(count)), ids)


def test_rows_are_matched_by_id() -> None:
    first, second = table_of("x.csv", ("p", "q", "r")), table_of("y.csv", ("r", "p", "q"))
    aligned = second.aligned_with(first)
    np.testing.assert_array_equal(aligned.values[:, 0], [1, 2, 0])
    assert aligned.where(2) == "y.csv, line 2 (id 'r')"
    with refused(r"y.csv has no row with id 's', and x.csv has"):
        second.aligned_with(table_of("x.csv", ("p", "q", "r", "s"), 4))
    with refused(r"x.csv has no row with id 'r', and y.csv has"):
        second.aligned_with(table_of("x.csv", ("p", "q"), 2))
    with refused(r"x.csv has 2 rows and y.csv has 3.*id_column"):
        table_of("y.csv", None).aligned_with(table_of("x.csv", None, 2))


def test_ids_are_there_and_unique(tmp_path: Path) -> None:
    path = csv_file(tmp_path, "day,a\nmon,1\ntue,2\nmon,3\n")
    with refused("id 'mon' stands in line 2 and in line 4"):
        read_table(path, "day")
    with refused(r"has no column 'days' to name the rows \(id_column\); did you mean 'day'"):
        read_table(path, "days")
    with refused("line 3: the id column 'day' is empty"):
        read_table(csv_file(tmp_path, "day,a\nmon,1\n,2\n"), "day")
    with refused("no column of numbers"):
        read_table(csv_file(tmp_path, "day\nmon\n"), "day")


def test_columns_are_picked_by_name() -> None:
    table = Table(Path("x.csv"), {"rain": np.array([1.0]), "wind": np.array([2.0])}, ("line 2",))
    np.testing.assert_array_equal(table.in_order(["wind", "rain"], "training").values, [[2, 1]])
    with refused(r"x.csv lacks the column 'winds' of training; did you mean 'wind'"):
        table.in_order(["winds", "rain"], "training")
    with refused(r"x.csv has the column 'wind', which is none of training: drop it.*id_column='wind'"):
        table.in_order(["rain"], "training")


# -- the index of DataFrames ------------------------------------------------------------------------------------------------


def frames(index: list[Any] | None) -> pd.DataFrame:
    return pd.DataFrame({"a": [0.0, 1.0, 2.0]}, index=index)


def rows(one: pd.DataFrame, other: pd.DataFrame) -> list[float]:
    """The cells of one table, in the order of the other's rows."""
    tables = Tables.of({"features": other, "costs": one}, None, {}, "")
    assert tables.costs is not None
    return tables.costs.values[:, 0].tolist()


def test_frames_are_matched_by_their_index() -> None:
    days = pd.date_range("2024-01-01", periods=3).tolist()
    assert rows(frames(["q", "r", "p"]), frames(["p", "q", "r"])) == [2, 0, 1]
    assert rows(frames(days[::-1]), frames(days)) == [2, 1, 0]
    assert rows(frames([7, 7, 8]), frames([7, 7, 8])) == [0, 1, 2]  # the same labels in the same order
    assert rows(frames(None), frames(days)) == [0, 1, 2]  # one has no labels: by position
    assert rows(frames(["p", "q", "r"]), frames(None)) == [0, 1, 2]
    assert rows(frames([0, 1, 2]), frames(None)) == [0, 1, 2]  # an index of whole numbers that is no RangeIndex
    assert rows(frames([2, 0, 1]), frames(None)) == [1, 2, 0]  # the same labels in another order
    assert rows(frames(None), frames([1, 0, 2])) == [1, 0, 2]
    assert rows(frames([5, 6, 7]), frames(None)) == [0, 1, 2]  # none of the labels is a position
    for one, other, message in (
        (["p", "q", "s"], ["p", "q", "r"], "costs has no row with index 'r', and the table of features has.*reset_"),
        ([7, 7, 8], [7, 8, 7], "index of the table of costs names some rows twice and differs"),
        ([1, 2, 3], None, r"costs has no row with index 0, and the table of features has: .*reset_index"),
        (None, [2, 3, 4], r"costs has no row with index 3, and the table of features has \(2 such\): .*reset_index"),
        ([0, 1, 0], None, "index of the table of costs names some rows twice and differs"),
    ):
        with refused(message):
            rows(frames(one), frames(other))
    for features, costs in ((frames([2, 0, 1]), np.eye(3)), (np.eye(3), frames([2, 0, 1]))):
        with refused(r"is 0, 1, … in another order, and the table of \w+ has none: .*reset_index"):
            Tables.of({"features": features, "costs": costs}, None, {}, "")


@pytest.mark.parametrize("features", [np.eye(3), frames(None)])
def test_instances_are_matched_with_costs_where_features_name_no_rows(features: Any) -> None:
    given = {"features": features, "costs": frames(["p", "q", "r"]), "instances": frames(["r", "p", "q"])}
    tables = Tables.of(given, None, {}, "")
    assert tables.instances is not None
    assert tables.instances.values[:, 0].tolist() == [1, 2, 0]


def test_ids_go_before_the_index() -> None:
    one = frames([5, 6, 7]).assign(day=["p", "q", "r"])
    tables = Tables.of({"features": one, "costs": one[::-1].set_index(pd.Index([1, 2, 3]))}, "day", {}, "")
    assert tables.costs is not None
    assert tables.costs.values[:, 0].tolist() == [0, 1, 2]


def test_columns_as_another_tool_writes_them() -> None:
    table = Table(Path("y.csv"), {"x_1_2": np.array([2.0]), "X[1,1]": np.array([1.0])}, ("line 2",))
    np.testing.assert_array_equal(table.in_order(["x(1,1)", "x(1,2)"], "the program").values, [[1, 2]])
    with refused(r"the column 'X\[1,1\]' may be any of 'x\(1,1\)', 'x_1_1'"):
        table.in_order(["x(1,1)", "x_1_1", "x_1_2"], "the program")


# -- columns that are no features ------------------------------------------------------------------------------------------


def test_groups_and_weights_are_set_aside() -> None:
    table = MixedTable.of({"a": [1, 2, 3], "shop": ["u", "v", 3.0], "w": ["1", "0", "2,000.0"]}, "x")
    roles = Roles.of(table, "shop", "w")
    assert (roles.features.names, roles.aside, roles.groups) == (("a",), ("shop", "w"), ["u", "v", "3"])
    np.testing.assert_array_equal(roles.weights, [1, 0, 2000])
    assert Roles.of(table, [4, 4, 5]).groups == ["4", "4", "5"]
    own = Table(Path("w.csv"), {"w": np.array([3.0, 1.0, 2.0])}, ("line 2", "line 3", "line 4"), ("r", "p", "q"))
    np.testing.assert_array_equal(Roles.of(replace(table, ids=("p", "q", "r")), None, own).weights, [1, 2, 3])
    frame = MixedTable.of(frames(["p", "q", "r"]), "x")
    series = pd.Series([3.0, 1.0, 2.0], index=["r", "p", "q"])
    np.testing.assert_array_equal(Roles.of(frame, None, series).weights, [1, 2, 3])
    assert Roles.of(frame, series).groups == ["1", "2", "3"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"groups": "shops"}, "x has no column 'shops' for groups; did you mean 'shop'"),
        ({"groups": ["u"]}, r"groups has shape \(1,\), and x has 3 rows"),
        ({"groups": ["u", None, "v"]}, "row 1, column 'groups' is empty"),
        ({"weights": [1, 2]}, r"weights has shape \(2,\)"),
        ({"weights": [1, -2, 3]}, "row 1, column 'weights' holds -2, and no weight is negative"),
        ({"weights": [0, 0, 0]}, "all weights are zero"),
        ({"weights": "shop"}, "row 0, column 'shop' holds 'u', which is no number"),
    ]
    for options, message in wrong:
        with refused(message):
            Roles.of(table, **options)


def test_unreadable_predictions_are_named(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.csv", b"", "a.csv holds no predictions that can be read: it has no rows"),
        ("header.csv", b"a,b\n", "it has no rows"),
        ("b.csv", b"1,2\n3\n", "b.csv"),
        ("c.csv", b"1,2\n3,x\n", "c.csv"),
        ("d.npz", b"no zip", "d.npz"),
        ("e.txt", b"1,2\n", "end in .csv or .npz"),
    ):
        (tmp_path / name).write_bytes(content)
        with refused(message):
            read_predictions(tmp_path / name)
    for name, arrays in (("f.npz", {"y": np.eye(2)}), ("g.npz", {"costs": np.eye(2), "ids": np.arange(3)})):
        np.savez(tmp_path / name, **arrays)
        with refused(name):
            read_predictions(tmp_path / name)
