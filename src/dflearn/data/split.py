"""How rows are divided into parts: `split_rows` of a data set, `parts_of` a table, `rolling_origins` of a series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import OptionError

Size = int | float  # a number of rows, or a share (a float below 1) of them


class Parts(NamedTuple):
    """Rows to train on, to choose by (an epoch, a model), and to test on: int64, no row in two parts.

    Examples:
        >>> parts = dfl.data.parts_of(100, seed=1)
        >>> len(parts.train), len(parts.choose), len(parts.test)
        (60, 15, 25)
    """

    train: np.ndarray
    choose: np.ndarray
    test: np.ndarray


def parts_of(
    count: int,
    *,
    test: Size = 0.25,
    choose: Size = 0.2,
    ordered: bool = False,
    gap: int = 0,
    groups: Sequence[Any] | np.ndarray | None = None,
    seed: int = 0,
) -> Parts:
    """The rows 0 … count − 1 in three parts.

    Args:
        test: of all rows, those to test on: a share up to a half, or a number of rows.
        choose: of the other rows, those to choose by.
        ordered: rows are in order of time, so training < choosing < testing. Otherwise they are drawn by `seed`.
        gap: how many rows are left out before the validation rows, and before those to test on, in order of time.
        groups: a label for each row, `(count,)`; rows of one label never lie in two parts. Shares of rows are then met as
            closely as whole groups allow.

    Examples:
        >>> parts = dfl.data.parts_of(100, test=20, choose=10, ordered=True, gap=1)
        >>> [(int(rows[0]), int(rows[-1])) for rows in parts]
        [(0, 67), (69, 78), (80, 99)]
    """
    if gap < 0 or (gap and not ordered):
        raise OptionError(f"gap={gap} leaves out rows between parts in order of time: pass ordered=True, and gap ≥ 0")
    labels = None if groups is None else _labels(groups, count)
    tested = _size("test", test, count)
    if not 2 <= tested <= (count // 2 if isinstance(test, float) else count - 2):
        raise OptionError(f"test={test} of {count} rows is {tested}: at least 2, and at most half of them, can test")
    if ordered:
        borders = _borders(labels, count)
        return _before(_nearest(borders, count - tested, "test", test), count, borders, choose, gap)
    chosen = _size("choose", choose, count - tested)
    if labels is not None:
        return _whole_groups(labels, chosen, tested, seed)
    rest, last = split_rows(count, {"train": count - tested}, seed)
    again = int(np.random.RandomState(seed).randint(2**31 - 1))  # as the estimator, which has a seed of its own
    choosing, training = split_rows(len(rest), {"choose": chosen}, again)
    return Parts(rest[training].numpy(), rest[choosing].numpy(), last.numpy())


def rolling_origins(
    count: int,
    folds: int,
    *,
    test: Size = 0.5,
    choose: Size = 0.2,
    gap: int = 0,
    groups: Sequence[Any] | np.ndarray | None = None,
) -> list[Parts]:
    """The parts of rolling-origin evaluation: each fold is tested on the next rows in time, and trained on all before.

    The last rows, `test` of all, are cut into `folds` blocks of about one size. One fold is `parts_of(…, ordered=True)`.

    Args:
        count: how many rows there are.
        test: of all rows, those that the folds test on, together.
        choose, gap, groups: as of `parts_of`, in each fold.

    Examples:
        >>> folds = dfl.data.rolling_origins(100, folds=2, test=20)
        >>> [(int(fold.test[0]), int(fold.test[-1])) for fold in folds]
        [(80, 89), (90, 99)]
    """
    if folds < 1:
        raise OptionError(f"folds is at least 1, got {folds}")
    tested = _size("test", test, count)
    if not 2 * folds <= tested < count:
        rows = f"test={test} of {count} rows is {tested} for {folds} folds"
        raise OptionError(f"{rows}: each needs 2, and the first some to train on")
    borders = _borders(None if groups is None else _labels(groups, count), count)
    ends = [count - tested + round(tested * fold / folds) for fold in range(folds)]
    starts = [_nearest(borders, end, "test", test) for end in ends] + [count]
    if any(later <= earlier for earlier, later in pairwise(starts)):
        raise OptionError(f"groups are too large for {folds} folds, of which one tests on nothing: take fewer folds")
    return [_before(start, end, borders, choose, gap) for start, end in pairwise(starts)]


def split_rows(count: int, sizes: Mapping[str, Size], seed: int | None) -> tuple[Tensor, ...]:
    """The rows 0 … count − 1, shuffled by `seed`, cut into parts of these sizes and a last part with the rest.

    With one size, they are test and training set of scikit-learn's `train_test_split` with `random_state=seed`.

    Args:
        sizes: by name, for messages. A number of rows, or a share (a float below 1) of all rows, rounded up.
        seed: `None` leaves the rows in their order.

    Examples:
        >>> test, rest = dfl.data.split_rows(10, {"test": 0.2}, seed=1)
        >>> test
        tensor([2, 9])
    """
    taken = []
    for name, size in sizes.items():
        taken.append(math.ceil(size * count) if isinstance(size, float) else size)
        if not 0 < taken[-1] < count or (isinstance(size, float) and size >= 1):
            remedy = "it must leave both parts some: pass a smaller number of instances, or a share between 0 and 1"
            raise OptionError(f"{name}={size} asks for {taken[-1]} of {count} instances; {remedy}")
    if sum(taken) >= count:
        asked = " and ".join(f"{number} for {name}" for name, number in zip(sizes, taken, strict=True))
        raise OptionError(f"{asked} leave none of {count} instances: pass smaller numbers, or smaller shares")
    order = np.arange(count) if seed is None else np.random.RandomState(seed).permutation(count)
    return torch.as_tensor(order).split([*taken, count - sum(taken)])


def _size(name: str, size: Size, count: int) -> int:
    if isinstance(size, bool) or not size > 0 or (isinstance(size, float) and size >= 1):
        raise OptionError(f"{name} is a share between 0 and 1, or a number of rows; got {size}")
    return max(1, round(size * count)) if isinstance(size, float) else int(size)


def _labels(groups: Sequence[Any] | np.ndarray, count: int) -> np.ndarray:
    """The groups numbered 0, 1, … in the order in which they come, int64 `(count,)`."""
    if len(groups) != count:
        raise OptionError(f"groups needs a label for each of {count} rows; got {len(groups)}")
    number: dict[Any, int] = {}
    labels = np.array([number.setdefault(label, len(number)) for label in groups], np.int64)
    if len(number) < 3:
        raise OptionError(f"groups holds {len(number)} different labels; three parts need three at least")
    return labels


def _borders(labels: np.ndarray | None, count: int) -> np.ndarray:
    """Where rows in order of time may be cut: a cut at i divides rows < i from rows ≥ i."""
    if labels is None:
        return np.arange(1, count)
    borders = np.flatnonzero(np.diff(labels)) + 1
    if len(borders) + 1 != labels.max() + 1:
        again = next(i for i in borders.tolist() if labels[i] in labels[:i])
        why = "so that no cut in order of time keeps it whole: sort the rows by group, or leave out ordered or groups"
        raise OptionError(f"groups: the group of row {again} was there before and comes again, {why}")
    return borders


def _nearest(borders: np.ndarray, cut: int, name: str, size: Size) -> int:
    """The border next to a cut, the earlier of two."""
    if not borders.size:
        raise OptionError(f"{name}={size} leaves no group before it: take smaller groups, or a smaller share")
    return int(borders[np.abs(borders - cut).argmin()])


def _before(start: int, end: int, borders: np.ndarray, choose: Size, gap: int) -> Parts:
    """The parts whose rows to test on are start … end − 1."""
    last = start - gap  # where the validation rows end
    number = _size("choose", choose, start)
    within = borders[borders < max(last, 0)]
    first = _nearest(within, last - number, "choose", choose) if within.size else 0
    if first - gap < 1 or last <= first or number >= last - gap:
        left = "" if not gap else f", and a gap of {gap} twice"
        raise OptionError(
            f"{start} rows come before those to test on; choose={choose} takes {number} of them{left}, and groups stay "
            "whole: nothing is left to train on. Take smaller shares, a smaller gap, or more rows"
        )
    return Parts(*(np.arange(a, b, dtype=np.int64) for a, b in ((0, first - gap), (first, last), (start, end))))


def _whole_groups(labels: np.ndarray, chosen: int, tested: int, seed: int) -> Parts:
    """Groups in random order: those to test on, then to choose by, as many as come closest; the rest is to train on."""
    sizes = np.bincount(labels)
    order = np.random.RandomState(seed).permutation(len(sizes))
    ends = sizes[order].cumsum()
    first = int(np.abs(ends[:-2] - tested).argmin()) + 1  # leaves two groups at least
    second = first + int(np.abs(ends[first:-1] - ends[first - 1] - chosen).argmin()) + 1
    pick = lambda some: np.flatnonzero(np.isin(labels, some))  # noqa: E731
    return Parts(pick(order[second:]), pick(order[first:second]), pick(order[:first]))
