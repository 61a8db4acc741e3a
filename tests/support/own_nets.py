"""Modules of a user's own, for tests that save and load them by import path."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PriceNet(nn.Module):
    """3 features → 4 costs, with so many hidden units."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, hidden), nn.Linear(hidden, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


class Plain(PriceNet):
    """The same, without arguments."""

    def __init__(self) -> None:
        super().__init__(5)


def no_module(size: int) -> int:
    return size


class Small(nn.Linear):
    """2 features → 3 costs."""

    def __init__(self) -> None:
        super().__init__(2, 3)
