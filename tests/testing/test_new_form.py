"""The contracts on programs with Q, B, H, recourse and instances with a q: what is right passes, what ignores them is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers import DavisYin, Exact, Smoothed
from dflearn.losses import ScoreFunction, TaskLoss
from dflearn.problems import Selection
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, Solver
from dflearn.solvers.highs import HiGHS
from dflearn.testing import check_layer, check_loss, check_problem, check_solver
from support import programs

# Q, B, H, recourse and S in one: two orders, a predicted need for each, a predicted limit of both, and a price.
WHOLE = Program(
    A=[[1.0, 0], [0, 1]], b=[0.0, 0], B=[[1.0, 0, 0, 0], [0, 1, 0, 0]], G=[[1.0, 1]], h=[4.0], H=[[0.0, 0, 1, 0]],
    S=[[0.0, 0, 0, 1], [0, 0, 0, 0.5]], Q=[[1.0, 0.3], [0.3, 0.5]], d=[0.1, 0.2], upper=50,
).elastic("predicted", 9.0)  # fmt: skip
Y = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5


@pytest.mark.xdist_group("davis_yin")
def test_the_whole_form_keeps_every_contract() -> None:
    check_solver(HiGHS, WHOLE, Y)
    check_layer(Smoothed(WHOLE, 0.3), WHOLE, y=Y, exact_gradient=True)
    splitting = DavisYin(WHOLE, 1.0, iterations=20_000, tolerance=1e-9, gradient="implicit")
    check_layer(splitting, WHOLE, y=Y, exact_gradient=True)
    batch = Batch(Y, Y)
    check_loss(TaskLoss(Smoothed(WHOLE, 0.3)), Y.flip(0), batch, differentiable=True)
    check_loss(ScoreFunction(Exact(HiGHS(WHOLE)), 0.2, samples=2), Y[:2].flip(0), Batch(Y[:2], Y[:2]), random=True)


class ForgetsCurvature(HiGHS):
    def with_diagonal(self, q: np.ndarray) -> Solver:
        return HiGHS(self.program)


class IgnoresCurvature(Smoothed):
    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        return super()._solve(y, None if instance is None else replace(instance, q=None), start)


class StiffRows(Smoothed):
    """Follows the costs, and holds right-hand sides fixed on the way back."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        return super()._solve(y, None if instance is None else instance.map(torch.Tensor.detach), start)


def test_what_ignores_the_new_parts_is_found() -> None:
    linear = replace(programs.portfolio(), Q=None)
    with pytest.raises(AssertionError, match="own q is not in the objective"):
        check_solver(ForgetsCurvature, linear, any_program=False)
    with pytest.raises(AssertionError, match="with a q"):
        check_layer(IgnoresCurvature(linear, 0.5), linear)
    with pytest.raises(AssertionError, match=r"gradient of instance \d in its (b|h|d) is 0"):
        check_layer(StiffRows(linear, 0.5), linear, exact_gradient=True)
    with pytest.raises(AssertionError, match="differences give"):
        check_layer(StiffRows(WHOLE, 0.3), WHOLE, y=Y, exact_gradient=True)


@dataclass(frozen=True)
class Orders(Selection):
    """As many newsvendors as there are items, whose demand the costs are."""

    def _build_program(self, structure: Any) -> Program:
        one = np.eye(self.items)
        program = Program(A=one, b=0.0, B=one, S=0 * one, d=1.0, n=self.items, name=self.name)
        return program.elastic("predicted", (0.5, 4.0))

    def solver(self) -> Solver:
        return HiGHS(self.program)

    def relaxed_solver(self) -> Solver:
        return HiGHS(self.relaxation)


class Careless(HiGHS):
    """Orders nothing, and has everything brought."""

    def _solve(self, c: Any, sides: Any, start: Any) -> Any:
        return super()._solve(np.where(np.arange(c.shape[1]) < c.shape[1] // 3, 9.0, c), sides, start)


@dataclass(frozen=True)
class CarelessOrders(Orders):
    def solver(self) -> Solver:
        return Careless(self.program)


def test_problems_with_recourse() -> None:
    check_problem(Orders(3, 1), draws=200)
    with pytest.raises(AssertionError, match="off the optimum"):
        check_problem(CarelessOrders(3, 1), draws=200)
