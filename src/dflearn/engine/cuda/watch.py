"""Statuses of work on a GPU, polled once available."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.torch_private import current_stream


class Watch:
    """The statuses of a layer's last solve, and of its backward.

    Where all went well nothing is copied: the kernels ring an alarm, in memory of the host, where it did not.

    Attributes:
        waiting: whether solves wait for their statuses, since one of them was not good.
    """

    def __init__(self) -> None:
        self.waiting = False
        self._lock = threading.Lock()  # backward on a GPU is another thread's
        self._begun: list[tuple[Tensor, Any, np.ndarray | None]] = []  # statuses, the stream of their work, alarms
        self._marks: dict[Any, Any] = {}  # by stream, an event after the work that was begun there
        self._marked = 0  # of what is begun, how much is before those events
        self._streams: dict[Any, Any] = {}

    def begin(self, status: Tensor, alarm: np.ndarray | None = None) -> None:
        """Look at them later, if the alarm rang (or there is none); while a graph is captured, whoever replays it does."""
        with self._lock:
            if not status.is_cuda:
                self._begun.append((status, None, alarm))
            elif not torch.cuda.is_current_stream_capturing():
                self._begun.append((status, self._stream(status.device), alarm))

    def mark(self) -> None:
        """The next `end` is about what is begun until now: it does not wait for work that comes later."""
        with self._lock:
            for stream in {stream for _, stream, _ in self._begun if stream is not None}:
                if stream not in self._marks:
                    self._marks[stream] = torch.cuda.Event()
                self._marks[stream].record(stream)
            self._marked = len(self._begun)

    def _stream(self, device: torch.device) -> Any:
        """The current stream, as the same object each time, which takes less time to have."""
        key = current_stream(device.index)
        if (device, key) not in self._streams:
            self._streams[device, key] = torch.cuda.current_stream(device)
        return self._streams[device, key]

    def end(self) -> list[int]:
        """The statuses that nobody looked at yet, where one of them was not good; solves wait from then on."""
        with self._lock:
            marked, self._marked = self._marked, 0
            count = marked or len(self._begun)
            begun, self._begun = self._begun[:count], self._begun[count:]
            for stream in {stream for _, stream, _ in begun if stream is not None}:
                (self._marks[stream] if marked else stream).synchronize()
            worst: list[int] = []
            for status, _, alarm in begun:
                if (alarm is None or alarm[0]) and not worst:
                    codes: list[int] = status.tolist()
                    worst = codes if any(codes) else []  # OPTIMAL is 0
            self.waiting |= bool(worst)
            return worst
