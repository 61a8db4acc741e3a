"""LODL: weights against least squares written anew, where regret is known in closed form; the contract; what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import DataError, OptionError
from dflearn.losses import LODL
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from dflearn.testing import check_loss
from dflearn.training import fit

PROBLEM = problem_named("TopK-4x1", seed=1)
DATA = label(PROBLEM.generate(12, dtype=torch.float64), PROBLEM, progress=False)


def test_a_regret_that_is_quadratic_is_learned_exactly() -> None:
    """min y w + w² / (4 a) has w = −2 a y, and regret a (ŷ − y)² for each cost."""
    a = np.array([0.5, 2.0, 1.0])
    program = Program(Q=np.diag(1 / (2 * a)), lower=-100, upper=100)
    y = torch.tensor(np.random.RandomState(0).normal(size=(5, 3)))
    loss = LODL.learn(DecisionDataset(y, y), HiGHS(program), 0.7, samples=8)
    torch.testing.assert_close(loss.weights, torch.tensor(a).expand(5, 3), rtol=1e-4, atol=1e-4)


def test_weights_are_those_of_nonnegative_least_squares() -> None:
    """Written anew: the conditions of Karush, Kuhn and Tucker of the fit, over the same draws."""
    samples, sigma = 30, 0.5
    loss = LODL.learn(DATA, PROBLEM.relaxed_solver(), sigma, samples, floor=0.0, generator=3)
    y, best = DATA.batch().require("costs"), DATA.batch().require("decisions")
    errors = sigma * torch.randn(samples, *y.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    order = torch.argsort(DATA.ids)
    for i in range(len(y)):
        a = loss.weights[int((order == i).nonzero())]
        noisy = y[i] + errors[:, i]
        chosen = torch.nn.functional.one_hot(noisy.argmax(-1), 4) * (noisy > 0)  # nothing, where all are worth nothing
        regret = (y[i] * (best[i] - chosen)).sum(-1)
        squares = errors[:, i] ** 2
        slope = squares.T @ (squares @ a - regret)
        assert float(slope.min()) >= -1e-8
        assert float((slope * a).abs().max()) <= 1e-8


def test_the_contract() -> None:
    loss = LODL.learn(DATA, PROBLEM.relaxed_solver(), 0.5, 20)
    y = DATA.batch().require("costs")
    check_loss(loss, y + 0.3 * torch.randn(y.shape, generator=torch.Generator().manual_seed(0)), DATA.batch())
    assert loss(y, DATA.batch()).tolist() == [0.0] * len(y)


def test_what_it_refuses() -> None:
    loss = LODL(DATA.ids[:5], torch.ones(5, 4).double())
    with pytest.raises(DataError, match="no weights for the instance with id"):
        loss(DATA.batch().require("costs"), DATA.batch())
    with pytest.raises(OptionError, match="each id once"):
        LODL(torch.zeros(2, dtype=torch.long), torch.ones(2, 4))
    with pytest.raises(OptionError, match="one row of weights"):
        LODL(torch.arange(3), torch.ones(2, 4))
    with pytest.raises(OptionError, match="sigma > 0"):
        LODL.learn(DATA, PROBLEM.relaxed_solver(), 0.0)


def test_regret_is_that_of_the_solver_and_labels_of_another_do_not_matter() -> None:
    """Beside an integer label, decisions of the relaxation would have regret below zero, and weights would be lost."""
    problem = problem_named("KP-6x2", seed=1)
    data = label(problem.generate(8, dtype=torch.float64), problem, progress=False)
    learned = [LODL.learn(one, problem.relaxed_solver(), 2.0, 15) for one in (data, data.without_decisions())]
    assert torch.equal(learned[0].weights, learned[1].weights)


def test_regrets_are_of_what_decisions_truly_cost() -> None:
    """min yᵀw + ‖w‖² over [0, 1], as a program and as a function that says what its decisions cost."""
    solver = from_callable(lambda c: np.clip(-c / 2, 0, 1), 3, value=lambda y, w: y @ w + w @ w)
    y = -torch.tensor(np.random.RandomState(0).uniform(size=(5, 3)))
    data = DecisionDataset(y, y)
    of_program = LODL.learn(data, HiGHS(Program(Q=2 * np.eye(3), upper=1)), 0.5, 20)
    torch.testing.assert_close(LODL.learn(data, solver, 0.5, 20).weights, of_program.weights, rtol=1e-4, atol=1e-5)


def test_other_data_with_the_same_ids_are_refused() -> None:
    loss = LODL.learn(DATA, PROBLEM.relaxed_solver(), 0.5, 20)
    batch = DATA.batch(torch.tensor([3, 1])).to(torch.float32)
    loss(batch.require("costs"), batch)  # rounding is no other data
    other = DecisionDataset(DATA.features, DATA.batch().require("costs").flip(0))
    with pytest.raises(DataError, match="other data with the same ids"):
        loss(other.batch().require("costs"), other.batch())
    model = Linear(10, 4).double()
    with pytest.raises(DataError, match="judge by regret"):
        fit(model, loss, DATA, validation=other, epochs=1, progress=False)
