"""Warm starts: where the layer may begin when an instance comes round again."""

from __future__ import annotations

from torch import Tensor

from dflearn.layers.base import Layer


class Starts:
    """One start per training instance, in a tensor `(instances, width)` that the run owns and checkpoints hold."""

    def __init__(self, blank: Tensor) -> None:
        self.rows = blank

    @classmethod
    def of(cls, layer: Layer | None, count: int, limit: int) -> tuple[Starts | None, str]:
        """The store for `count` instances, or none and a note on why. `limit` is in bytes."""
        if layer is None or not layer.start_width:
            return None, ""
        size = count * layer.start_width * layer.start_dtype.itemsize
        if size > limit:
            return None, (
                f"warm starts are off: {count} instances of {layer.start_width} numbers take {size / 2**20:.0f} MiB, "
                f"more than the limit of {limit / 2**20:.0f} MiB; raise warm_start_bytes to have them"
            )
        blank = layer.no_start(count)
        assert blank is not None
        return cls(blank), ""

    def get(self, index: Tensor) -> Tensor:
        return self.rows[index.to(self.rows.device, non_blocking=True)]

    def put(self, index: Tensor, start: Tensor) -> None:
        self.rows = self.rows.to(start.device)  # moves once, to where the layer works
        self.rows[index.to(start.device, non_blocking=True)] = start.detach()
