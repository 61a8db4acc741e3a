"""The cost after recourse as a loss: closed forms, finite differences, and a model that learns the newsvendor's quantile."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, ShapeError, SolverError
from dflearn.layers import Exact, Smoothed
from dflearn.losses import ScoreFunction, TaskLoss
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.testing.losses import check_loss
from support import programs

COST, SURPLUS, SHORTAGE = 1.0, 0.5, 4.0


def newsvendor(unit: float = 1.0) -> Program:
    strict = Program(A=[[1.0]], b=[0.0], B=[[unit]], S=np.zeros((1, 1)), d=[COST], upper=100 * unit, name="newsvendor")
    return strict.elastic("predicted", (SURPLUS, SHORTAGE))


# Two depots serve two towns; emergency deliveries come once demand is known.
TRANSPORT = Program(
    G=[[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [-1, 0, -1, 0, -1, 0], [0, -1, 0, -1, 0, -1]],
    h=[10, 10, 0, 0],
    H=[[0, 0], [0, 0], [-1, 0], [0, -1]],
    S=np.zeros((6, 2)),
    d=[1, 3, 3, 1, 9, 9],
    upper=20,
    recourse=[4, 5],
)


def batch(y: Tensor) -> Batch:
    return Batch(torch.zeros(len(y), 1), y)


Y = torch.tensor([[3.0], [5.0], [8.0], [2.0]], dtype=torch.float64)
PREDICTED = torch.tensor([[4.0], [4.9], [1.0], [2.5]], dtype=torch.float64)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_newsvendor(unit: float) -> None:
    x = PREDICTED.clone().requires_grad_()
    value = TaskLoss(Smoothed(newsvendor(unit), 1e-6 / unit))(x, batch(Y)) / unit
    over, under = (PREDICTED - Y).clamp_min(0), (Y - PREDICTED).clamp_min(0)
    torch.testing.assert_close(
        value, (COST * PREDICTED + SURPLUS * over + SHORTAGE * under)[:, 0], rtol=1e-6, atol=1e-6
    )
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(
        slope, torch.where(over > 0, COST + SURPLUS, COST - SHORTAGE).double(), rtol=1e-6, atol=1e-6
    )


def test_the_contract() -> None:
    demand = torch.tensor([[6.3, 4.0], [2.0, 9.5], [12, 1]], dtype=torch.float64)
    guess = torch.tensor([[5.0, 4.5], [3.0, 7.0], [9, 3]], dtype=torch.float64)
    check_loss(TaskLoss(Smoothed(TRANSPORT, 0.05)), guess, batch(demand), differentiable=True)
    portfolio = programs.portfolio()
    y, predicted = (torch.randn(3, 8, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (0, 1))
    check_loss(TaskLoss(Smoothed(portfolio, 0.1)), predicted, batch(y), differentiable=True)


def test_quadratic_recourse() -> None:
    """Two generators, one settled later at a quadratic price; the value is known in closed form."""
    program = Program(
        A=[[1.0, 1.0]], b=[0.0], B=[[1.0]], S=np.zeros((2, 1)), d=[1.0, 0.0], Q=np.diag([0.1, 3.0]),
        lower=[0, -np.inf], recourse=[1],
    )  # fmt: skip
    layer = Smoothed(program, 0.0)
    x = PREDICTED.clone().requires_grad_()
    first = layer(x.detach())[:, 0]
    loss = TaskLoss(layer)(x, batch(Y))
    torch.testing.assert_close(loss, first + 0.05 * first**2 + 1.5 * (Y[:, 0] - first) ** 2)
    assert torch.autograd.gradcheck(lambda y: TaskLoss(layer)(y, batch(Y)), (x,), eps=1e-6, atol=1e-5)


def test_a_cost_of_ones_own() -> None:
    layer = Smoothed(newsvendor(), 1e-3)
    x = PREDICTED.clone().requires_grad_()

    def shortage(w: Tensor, batch: Batch) -> Tensor:
        assert batch.costs is not None
        return (batch.costs - w[..., :1]).square().sum(-1)

    (slope,) = torch.autograd.grad(TaskLoss(layer, shortage)(x, batch(Y)).sum(), x)
    torch.testing.assert_close(slope, 2 * (PREDICTED - Y), rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match="one value per instance"):
        TaskLoss(layer, lambda w, batch: w.sum())(x, batch(Y))


def test_refusals() -> None:
    strict = Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)), d=[COST], upper=100)
    with pytest.raises(SolverError, match=r"program\.elastic"):
        TaskLoss(Smoothed(strict, 1e-3))(PREDICTED, batch(Y))
    relaxed = TaskLoss(Smoothed(replace(newsvendor(), integer=[1]), 1e-3))(PREDICTED, batch(Y))
    torch.testing.assert_close(relaxed, TaskLoss(Smoothed(newsvendor(), 1e-3))(PREDICTED, batch(Y)))


COSTS = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
GUESS = torch.tensor([[1.5, 1.0], [0.0, 0.0]], dtype=torch.float64)
SCORED = Batch(torch.zeros(2, 1), COSTS)


def itself(c: np.ndarray) -> np.ndarray:
    return c


DECIDES = Exact(from_callable(itself, 2, batched=True))  # w = ŷ


def squared_distance(w: Tensor, batch: Batch) -> Tensor:
    assert batch.costs is not None
    return (w - batch.costs).square().sum(-1)


def test_it_is_unbiased() -> None:
    """E‖ŷ + σε − y‖² = ‖ŷ − y‖² + pσ², with gradient 2(ŷ − y)."""
    loss = ScoreFunction(DECIDES, 0.3, samples=200_000, cost=squared_distance)
    x = GUESS.clone().requires_grad_()
    value = loss(x, SCORED)
    torch.testing.assert_close(value, (GUESS - COSTS).square().sum(-1) + 2 * 0.09, rtol=1e-2, atol=1e-2)
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(slope, 2 * (GUESS - COSTS), rtol=3e-2, atol=3e-2)


def test_the_contract_of_the_score_function() -> None:
    check_loss(ScoreFunction(DECIDES, 0.3, samples=3), GUESS, SCORED, random=True)
    loss = ScoreFunction(DECIDES, 0.3, samples=3)
    state = loss.state_dict()
    first = loss(GUESS, SCORED)
    loss.load_state_dict(state)
    assert torch.equal(loss(GUESS, SCORED), first)
    loss.load_state_dict(state)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(GUESS, SCORED), first)
    with pytest.raises(OptionError, match="at least 2"):
        ScoreFunction(DECIDES, 0.3, samples=1)


def test_recourse() -> None:
    """A newsvendor far below demand: each unit more saves shortage − cost, whatever the noise."""
    strict = Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)), d=[1.0], upper=100)
    batch = Batch(torch.zeros(1, 1), torch.tensor([[50.0]], dtype=torch.float64))
    x = torch.tensor([[20.0]], dtype=torch.float64, requires_grad=True)
    loss = ScoreFunction(Exact(HiGHS(strict.elastic("predicted", (0.5, 4.0)))), 0.5, samples=60)
    value = loss(x, batch)
    assert float(value.detach()) == pytest.approx(20 + 4 * 30, rel=0.01)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert float(slope) == pytest.approx(-3, abs=1.5)
    with pytest.raises(SolverError, match=r"program\.elastic"):
        ScoreFunction(Exact(HiGHS(strict)), 0.5)(x, batch)
