"""Statuses of a solve on a GPU, read when they have arrived."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from dflearn.solvers.base import Status


class Watch(threading.local):
    """The statuses of a layer's last solve, on their way to the host; every thread has its own.

    Attributes:
        waiting: whether solves wait for their statuses, since one of them was not good.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._last: tuple[Tensor, Any] | None = None
        self._host: Tensor | None = None  # used again once it is read
        self._arrived: Any = None

    def begin(self, status: Tensor) -> None:
        """Send them, beside the work that follows; while a graph is captured, whoever replays it looks at them."""
        self._last = None
        if status.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        if not status.is_cuda:
            self._last = status, None
            return
        if self._host is None or self._host.shape != status.shape:
            self._host, self._arrived = (
                torch.empty(status.shape, dtype=status.dtype, pin_memory=True),
                torch.cuda.Event(),
            )
        self._host.copy_(status, non_blocking=True)
        self._arrived.record(torch.cuda.current_stream(status.device))
        self._last = self._host, self._arrived

    def end(self) -> list[int]:
        """The statuses of the last solve that is not looked at yet, where one of them was not good; solves wait from then on."""
        if self._last is None:
            return []
        status, arrived = self._last
        self._last = None
        if arrived is not None:
            arrived.synchronize()
        codes: list[int] = status.tolist()
        if all(code == int(Status.OPTIMAL) for code in codes):
            return []
        self.waiting = True
        return codes
