"""Solves in a forked process."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch

from dflearn.solvers.base import Solver


def _in_child(solver: Solver, y: torch.Tensor, answers: Any) -> None:
    answers.put(solver.solve(y).objective.tolist())


def solved_in_child(solver: Solver, y: torch.Tensor) -> list[float]:
    """The objectives, from a forked process that is given a minute."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(solver, y, answers), daemon=True)
    child.start()
    try:
        found: list[float] = answers.get(timeout=60)
        return found
    finally:
        child.kill()
        child.join()
