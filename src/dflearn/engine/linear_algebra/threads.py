"""Tiles of a batch shared out among threads; the kernels release the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")

# One pool per process, since threads do not survive a fork, and per size. A pool has no threads until it is given work.
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def threads() -> int:
    """How many threads tiles are shared out among."""
    return torch.get_num_threads()


def run_tiles(function: Callable[[Item], None], tiles: Sequence[Item]) -> None:
    """Call `function` on every tile, on as many threads as `torch.get_num_threads()` says; errors come back.

    The calling thread takes its share, so that a pool busy with other callers delays nobody for ever. Which thread
    gets which tile is open: `function` must write to places of its tile's own.
    """
    helpers = min(threads(), len(tiles)) - 1
    queue = iter(list(tiles))  # each item of a list iterator goes to one thread only

    def drain() -> None:
        for tile in queue:
            function(tile)

    tasks = [_pool(helpers).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        # A task that has not begun finds nothing left, or an error made the rest unwanted.
        running = [task for task in tasks if not task.cancel()]
        errors = [error for task in running if (error := task.exception()) is not None]
    if errors:
        raise errors[0]


def _pool(workers: int) -> ThreadPoolExecutor:
    return _pools.setdefault((os.getpid(), workers), ThreadPoolExecutor(workers, thread_name_prefix="dflearn"))
