"""Data with decisions and no costs, on every kind of problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DataError
from dflearn.layers import Smoothed
from dflearn.losses import MSE, CaVE
from dflearn.losses.base import Loss
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS
from support.loss_examples import LOSSES

COUNT = 3


def named(name: str) -> tuple[Program, Batch]:
    problem = problem_named(name, seed=4)
    costs = problem.generate(COUNT, dtype=torch.float64).costs
    assert costs is not None
    return problem.program, Batch(costs, costs, HiGHS(problem.program).solve(costs).check().decision)


def sides_per_instance() -> tuple[Program, Batch]:
    """Purchases from five suppliers: demand, budget of one resource and capacities differ per instance."""
    rng = np.random.RandomState(3)
    program = Program(A=np.ones((1, 5)), b=[2.0], G=rng.rand(1, 5), h=[1.5], upper=1)
    array = lambda *parts: torch.tensor(np.array(parts), dtype=torch.float64)  # noqa: E731
    instance = Instance(
        b=array([1.5], [2.0], [2.4]), h=array([1.6], [1.8], [2.0]), upper=array(*(0.8 + rng.rand(3, 5)))
    )
    costs = torch.tensor(rng.uniform(1, 3, (COUNT, 5)))
    return program, Batch(costs, costs, HiGHS(program).solve(costs, instance).check().decision, instance)


PROBLEMS: dict[str, Callable[[], tuple[Program, Batch]]] = {
    "SP": lambda: named("SP-3"),
    "CFL": lambda: named("CFL-4x2"),
    "sides per instance": sides_per_instance,
}
DECISIONS_ONLY = {"squared decision error", "plain SCE", "Fenchel-Young", "CaVE"}


@cache
def example(name: str) -> tuple[Program, Batch, Tensor]:
    """Program, batch, and predictions off the true costs."""
    program, batch = PROBLEMS[name]()
    noise = torch.randn(batch.require("costs").shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return program, batch, batch.require("costs") * (1 + 0.4 * noise)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_decisions_without_costs(problem: str) -> None:
    """What the mathematics allows gives the same gradient as with costs; the rest is refused with an explanation."""
    program, batch, predicted = example(problem)
    seen = replace(batch, costs=None)
    losses: dict[str, Loss] = {name: make(Smoothed(program, mu=2.0)) for name, make in LOSSES.items()}
    losses |= {"MSE": MSE(), "CaVE": CaVE(program)}
    for name, loss in losses.items():
        point = predicted.clone().requires_grad_()
        if name in DECISIONS_ONLY:
            (gradient,) = torch.autograd.grad(loss(point, seen).sum(), point)
            (expected,) = torch.autograd.grad(loss(point, batch).sum(), point)
            torch.testing.assert_close(gradient, expected)
        else:
            with pytest.raises(DataError, match=r"needs costs|no costs"):
                loss(point, seen)
