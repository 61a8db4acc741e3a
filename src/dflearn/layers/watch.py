"""Statuses of work on a GPU, read when they have arrived."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor


class Watch:
    """The statuses of a layer's last solve, and of the way back from it, on their way to the host.

    Attributes:
        waiting: whether solves wait for their statuses, since one of them was not good.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._lock = threading.Lock()  # the way back from a GPU is another thread's
        self._sent: list[tuple[Tensor, Any]] = []
        self._read: list[tuple[Tensor, Any]] = []  # memory and events to use again

    def begin(self, status: Tensor) -> None:
        """Send them, beside the work that follows; while a graph is captured, whoever replays it looks at them."""
        if status.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        with self._lock:
            if not status.is_cuda:
                self._sent.append((status, None))
                return
            place = next((k for k, (host, _) in enumerate(self._read) if host.shape == status.shape), None)
            if place is None:
                self._read.clear()
                host, arrived = torch.empty(status.shape, dtype=status.dtype, pin_memory=True), torch.cuda.Event()
            else:
                host, arrived = self._read.pop(place)
            host.copy_(status, non_blocking=True)
            arrived.record(torch.cuda.current_stream(status.device))
            self._sent.append((host, arrived))

    def end(self) -> list[int]:
        """The statuses that nobody looked at yet, where one of them was not good; solves wait from then on."""
        with self._lock:
            sent, self._sent = self._sent, []
            worst: list[int] = []
            for status, arrived in sent:
                if arrived is not None:
                    arrived.synchronize()
                    self._read.append((status, arrived))
                if not worst and status.numpy().any():  # OPTIMAL is 0
                    worst = status.tolist()
            self.waiting |= bool(worst)
            return worst
