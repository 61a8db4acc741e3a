"""Parts of rows: against scikit-learn's splitters, in order of time, with gaps and groups."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import TimeSeriesSplit, train_test_split
from sklearn.utils import check_random_state

from dflearn.data.split import Parts, parts_of, rolling_origins
from dflearn.errors import OptionError


def check_parts(parts: Parts, count: int) -> None:
    for rows in parts:
        assert rows.dtype == np.int64
        assert len(rows)
    rows = np.concatenate(parts)
    assert len(set(rows.tolist())) == len(rows)
    assert 0 <= rows.min() <= rows.max() < count


@pytest.mark.parametrize("seed", [0, 7])
def test_random_parts_are_those_of_scikit_learn(seed: int) -> None:
    train, choose, test = parts_of(40, seed=seed)
    last, rest = train_test_split(np.arange(40), test_size=30, random_state=seed)
    again = check_random_state(seed).randint(2**31 - 1)
    kept, held = train_test_split(rest, test_size=6, random_state=again)
    np.testing.assert_array_equal(test, last)
    np.testing.assert_array_equal(choose, held)
    np.testing.assert_array_equal(train, kept)


@pytest.mark.parametrize("gap", [0, 1, 5])
@pytest.mark.parametrize("count", [20, 41, 100])
def test_in_order_of_time_each_part_ends_before_the_next_begins(count: int, gap: int) -> None:
    parts = parts_of(count, ordered=True, gap=gap)
    check_parts(parts, count)
    assert len(parts.test) == round(count / 4)
    assert len(parts.choose) == round(0.2 * (count - len(parts.test)))
    assert parts.test[-1] == count - 1
    for earlier, later in pairwise(parts):
        assert later.min() - earlier.max() == gap + 1
    assert parts.train[0] == 0


def shops(count: int) -> np.ndarray:
    return np.array(["a", "b", "c", "d", "e", "f", "g", "h"])[np.arange(count) * 7 % 8]


@pytest.mark.parametrize("seed", range(5))
def test_a_group_lies_in_one_part(seed: int) -> None:
    groups = shops(80)
    parts = parts_of(80, groups=groups, seed=seed)
    check_parts(parts, 80)
    assert sum(map(len, parts)) == 80
    held = [set(groups[rows]) for rows in parts]
    assert not held[0] & held[1]
    assert not held[1] & held[2]
    assert not held[0] & held[2]
    assert [len(rows) for rows in parts] == [50, 10, 20]  # ten rows each: the shares, to the nearest group
    assert len({parts_of(80, groups=groups, seed=s).test.tobytes() for s in range(5)}) > 1


@pytest.mark.parametrize("gap", [0, 2])
def test_in_order_of_time_cuts_lie_at_borders_of_groups(gap: int) -> None:
    days = np.repeat(np.arange(10), [3, 5, 4, 4, 4, 4, 5, 3, 4, 4])
    parts = parts_of(40, ordered=True, groups=days, gap=gap)
    check_parts(parts, 40)
    held = [set(days[rows]) for rows in parts]
    assert max(held[0]) <= min(held[1])
    assert max(held[1]) < min(held[2])
    assert not held[0] & held[1]
    for part in (parts.choose, parts.test):
        assert days[part[0]] != days[part[0] - 1]
    assert 6 <= len(parts.test) <= 14


def test_folds_are_those_of_time_series_split() -> None:
    found = rolling_origins(60, 5, test=50, gap=2)
    reference = TimeSeriesSplit(5, test_size=10, gap=2)
    for parts, (before, test) in zip(found, reference.split(np.zeros((60, 1))), strict=True):
        check_parts(parts, 60)
        np.testing.assert_array_equal(parts.test, test)
        assert parts.choose[-1] == before[-1]
        assert parts.choose[0] - parts.train[-1] == 3
        assert len(parts.choose) == round(0.2 * test[0])


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "half": ({"test": 0.9}, "test=0.9 of 30 rows is 27: at least 2, and at most half"),
    "share": ({"test": 1.5}, "test is a share between 0 and 1, or a number of rows; got 1.5"),
    "gap at random": ({"gap": 2}, "pass ordered=True"),
    "large gap": ({"gap": 20, "ordered": True}, "nothing is left to train on"),
    "labels": ({"groups": "ab"}, "a label for each of 30 rows; got 2"),
    "two groups": ({"groups": [0, 1] * 15}, "2 different labels; three parts need three"),
    "interleaved": ({"groups": [0, 1, 2] * 10, "ordered": True}, "group of row 3 was there before and comes again"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_is_said(case: str) -> None:
    options, message = WRONG[case]
    with pytest.raises(OptionError, match=message):
        parts_of(30, **options)


def test_folds_that_cannot_be_are_said() -> None:
    with pytest.raises(OptionError, match="folds is at least 1"):
        rolling_origins(30, 0)
    with pytest.raises(OptionError, match="is 15 for 8 folds: each needs 2"):
        rolling_origins(30, 8)
    with pytest.raises(OptionError, match="groups are too large for 6 folds"):
        rolling_origins(40, 6, groups=np.repeat([0, 1, 2, 3], 10))
