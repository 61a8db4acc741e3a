"""What `fit` of the estimator was given: costs by their names, and the rows that it holds out to choose the epoch by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dflearn.data import DecisionDataset, split_rows
from dflearn.errors import DataError, OptionError


def in_order(y: Any, columns: Sequence[str], names: Sequence[str]) -> Any:
    """Costs with columns of these names in the order of the program's `names`; an error where a name is not known."""
    missing, unknown = ([name for name in a if name not in b] for a, b in ((names, columns), (columns, names)))
    if missing or unknown:
        wrong = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}"
        raise DataError(
            f"the costs of the program are {', '.join(names[:5])}{', …' if len(names) > 5 else ''}, and y {wrong}: "
            "name its columns as the program does, or pass it without names"
        )
    return y[list(names)]


def drawn(count: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows held out at random, and those to train on."""
    if not 0 <= fraction < 1:
        raise OptionError(f"validation_fraction lies in [0, 1), got {fraction}")
    number = round(fraction * count)
    if number == 0:
        return np.arange(0), np.arange(count)
    held_out, kept = split_rows(count, {"validation": number}, seed)
    return held_out.numpy(), kept.numpy()


def named_by(validation: Any, data: DecisionDataset, rows: np.ndarray) -> np.ndarray:
    """The places in the data of rows of X that are given, or that a splitter's last split holds out."""
    if isinstance(validation, np.ndarray | list):
        return np.flatnonzero(np.isin(rows, np.asarray(validation, np.int64)))
    *_, (_, last) = validation.split(data.features.numpy())
    return np.asarray(last, np.int64)
