"""`split_rows`: how all data are divided into parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import OptionError


class Parts(NamedTuple):
    """Which rows are trained on, chosen by (the epoch, the model) and tested on: int64 arrays."""

    train: np.ndarray
    choose: np.ndarray
    test: np.ndarray


def split_rows(count: int, sizes: Mapping[str, int | float], seed: int | None) -> tuple[Tensor, ...]:
    """The rows 0 … count − 1, shuffled by `seed`, cut into parts of these sizes and a last part with the rest.

    With one size, the rows are those of scikit-learn's `train_test_split` with `random_state=seed`: the first part is its
    test set, the second its training set, in the same order.

    Args:
        sizes: by name, for messages. A number of rows, or a share (a float below 1) of all rows, rounded up.
        seed: `None` leaves the rows in their order.
    """
    taken = []
    for name, size in sizes.items():
        taken.append(math.ceil(size * count) if isinstance(size, float) else size)
        if not 0 < taken[-1] < count or (isinstance(size, float) and size >= 1):
            raise OptionError(
                f"{name}={size} asks for {taken[-1]} of {count} instances; it must leave both parts some: "
                "pass a smaller number of instances, or a share between 0 and 1"
            )
    if sum(taken) >= count:
        asked = " and ".join(f"{number} for {name}" for name, number in zip(sizes, taken, strict=True))
        raise OptionError(f"{asked} leave none of {count} instances: pass smaller numbers, or smaller shares")
    order = np.arange(count) if seed is None else np.random.RandomState(seed).permutation(count)
    return torch.as_tensor(order).split([*taken, count - sum(taken)])
