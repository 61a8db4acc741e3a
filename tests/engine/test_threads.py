"""Tiles on threads: every tile once, errors come back, nesting and forks do no harm."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.engine.linear_algebra.threads import run_tiles


@pytest.fixture
def threads() -> Iterator[Any]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def squares(count: int) -> np.ndarray:
    out = np.zeros(count)

    def square(tile: int) -> None:
        out[tile] += tile**2

    run_tiles(square, range(count))
    return out


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_every_tile_runs_once(threads: Any, workers: int, count: int) -> None:
    threads(workers)
    assert (squares(count) == np.arange(count) ** 2.0).all()


def test_two_tiles_run_side_by_side(threads: Any) -> None:
    threads(2)
    meeting = threading.Barrier(2, timeout=30)
    run_tiles(lambda _: meeting.wait() and None, range(2))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("bad", [0, 5])
def test_errors_come_back(threads: Any, workers: int, bad: int) -> None:
    threads(workers)

    def fail(tile: int) -> None:
        time.sleep(0.001)
        if tile == bad:
            raise ZeroDivisionError(f"tile {tile}")

    with pytest.raises(ZeroDivisionError, match=f"tile {bad}"):
        run_tiles(fail, range(8))
    assert squares(5)[4] == 16


def test_tiles_within_tiles_do_not_wait_for_each_other(threads: Any) -> None:
    threads(2)
    totals = np.zeros(6)

    def outer(tile: int) -> None:
        totals[tile] = squares(10).sum()

    run_tiles(outer, range(6))
    assert (totals == 285).all()


def in_child(queue: Any) -> None:
    queue.put(squares(50).sum())


def test_works_after_a_fork(threads: Any) -> None:
    threads(2)
    squares(50)  # the parent's pool has threads, which the child does not inherit
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == sum(i**2 for i in range(50))
    child.join(60)
    assert child.exitcode == 0
