"""The score-function estimate: unbiased where the gradient is known, and through recourse."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, SolverError
from dflearn.layers import Exact
from dflearn.losses import ScoreFunction
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.testing.losses import check_loss

Y = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
PREDICTED = torch.tensor([[1.5, 1.0], [0.0, 0.0]], dtype=torch.float64)
BATCH = Batch(torch.zeros(2, 1), Y)


def itself(c: np.ndarray) -> np.ndarray:
    return c


DECIDES = Exact(from_callable(itself, 2, batched=True))  # w = ŷ


def squared(w: Tensor, batch: Batch) -> Tensor:
    assert batch.costs is not None
    return (w - batch.costs).square().sum(-1)


def test_it_is_unbiased() -> None:
    """E‖ŷ + σε − y‖² = ‖ŷ − y‖² + pσ², with gradient 2(ŷ − y)."""
    loss = ScoreFunction(DECIDES, 0.3, samples=200_000, cost=squared)
    x = PREDICTED.clone().requires_grad_()
    value = loss(x, BATCH)
    torch.testing.assert_close(value, (PREDICTED - Y).square().sum(-1) + 2 * 0.09, rtol=1e-2, atol=1e-2)
    (slope,) = torch.autograd.grad(value.sum(), x)
    torch.testing.assert_close(slope, 2 * (PREDICTED - Y), rtol=3e-2, atol=3e-2)


def test_the_contract() -> None:
    check_loss(ScoreFunction(DECIDES, 0.3, samples=3), PREDICTED, BATCH, random=True)
    loss = ScoreFunction(DECIDES, 0.3, samples=3)
    state = loss.state_dict()
    first = loss(PREDICTED, BATCH)
    loss.load_state_dict(state)
    assert torch.equal(loss(PREDICTED, BATCH), first)
    loss.load_state_dict(state)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(PREDICTED, BATCH), first)
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
