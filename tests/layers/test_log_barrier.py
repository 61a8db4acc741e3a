"""`LogBarrier`: closed forms, the theory of barriers, finite differences, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from dflearn.errors import OptionError, ProgramError
from dflearn.layers import LogBarrier
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(np.random.RandomState(seed).normal(size=shape))


def test_one_variable_in_closed_form() -> None:
    """min c w − μ log w − μ log(1 − w):  c w² − (c + 2μ) w + μ = 0, the root inside."""
    mu, c = 0.3, torch.tensor([[-2.0], [-0.1], [0.7], [5.0]], dtype=torch.float64)
    w = LogBarrier(Program(n=1, upper=1), mu)(c)
    root = ((c + 2 * mu) - torch.sqrt((c + 2 * mu) ** 2 - 4 * c * mu)) / (2 * c)
    torch.testing.assert_close(w, root, rtol=1e-9, atol=1e-9)


def test_the_simplex_meets_its_optimality_conditions() -> None:
    """c_i − μ / w_i is the same for all i, and w sums to one."""
    mu, c = 0.2, draw(0, 5, 6)
    w = LogBarrier(Program(A=np.ones((1, 6)), b=[1]), mu)(c)
    price = c - mu / w
    torch.testing.assert_close(price, price[:, :1].expand_as(price), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(w.sum(-1), torch.ones(5).double())


@pytest.mark.parametrize("mu", [1.0, 1e-3])
def test_the_gap_is_at_most_mu_times_the_number_of_slacks(mu: float) -> None:
    problem = problem_named("KP-8", capacity_share=2.0)
    y = problem.generate(6, dtype=torch.float64).batch().require("costs")
    w = LogBarrier(problem.program, mu)(y)
    best = HiGHS(problem.relaxation).solve(y).check().objective
    gap = problem.program.objective(y, w) - best
    assert bool((gap >= -1e-8).all())
    assert float(gap.max()) <= mu * (2 + 2 * 8) + 1e-8


def test_gradients_are_those_of_differences() -> None:
    problem = problem_named("SP-3")
    y = problem.generate(2, dtype=torch.float64).batch().require("costs")
    layer = LogBarrier(problem.program, 0.2)
    assert torch.autograd.gradcheck(layer, (y.clone().requires_grad_(),), eps=1e-5, atol=1e-6)


def test_a_quadratic_objective_without_constraints_in_closed_form() -> None:
    """Far from the boundary and with a small μ the answer is that of the quadratic program."""
    Q, c = np.array([[2.0, 0.5], [0.5, 1.0]]), draw(1, 4, 2)
    layer = LogBarrier(Program(Q=Q, lower=-100, upper=100), 1e-7)
    torch.testing.assert_close(layer(c), -c @ torch.tensor(np.linalg.inv(Q)), rtol=1e-6, atol=1e-6)


def test_what_has_no_inside_is_refused() -> None:
    pinched = Program(G=[[1, 1], [-1, -1]], h=[1, -1])
    with pytest.raises(ProgramError, match="no point strictly inside"):
        LogBarrier(pinched)(torch.ones(1, 2))
    with pytest.raises(OptionError, match="mu > 0"):
        LogBarrier(Program(n=2, upper=1), 0.0)


@pytest.mark.parametrize("n", [3, 9])  # by directions, by rows
@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_rows_may_be_in_other_units(n: int, unit: float) -> None:
    A, b = np.stack([np.ones(n), 1.0 + (np.arange(n) < n - 1)]), np.array([1, 1.5])
    G, h = np.linspace(0, 1, n)[None], np.array([0.9])
    y = torch.arange(2.0 * n).reshape(2, n).double()
    plain, other = (
        LogBarrier(Program(A=A * [[1], [by]], b=b * [1, by], G=G * by, h=h * by, upper=1), 0.1) for by in (1.0, unit)
    )
    decision = other.solve(y).check().decision
    torch.testing.assert_close(decision @ torch.tensor(A.T), torch.tensor(b).expand(2, 2))
    torch.testing.assert_close(decision, plain.solve(y).decision, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("unit", [1e-7, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("loose", [1e9, 1e12, 1e15])
def test_optimal_in_mixed_units_is_right(unit: float, loose: float) -> None:
    """Two variables with bounds 1 and `unit`, and a loose row: each is its own closed form, or the layer says that it failed."""
    mu, c = 0.3, torch.tensor([[-2.0, -2 / unit], [0.7, 0.5 / unit], [-0.1, 5 / unit]]).double()
    solution = LogBarrier(Program(G=[[1.0, 1.0]], h=[max(loose, 1e9 * unit)], upper=[1.0, unit]), mu).solve(c)
    each = c * torch.tensor([1.0, unit]).double()
    root = ((each + 2 * mu) - torch.sqrt((each + 2 * mu) ** 2 - 4 * each * mu)) / (2 * each)
    solved = (solution.status == int(Status.OPTIMAL)).numpy()
    found = solution.decision / torch.tensor([1.0, unit]).double()
    torch.testing.assert_close(found[solved], root[solved], rtol=1e-6, atol=0)
    assert unit not in (1e-4, 1.0, 1e4) or solution.counts() == {"OPTIMAL": 3}


@pytest.mark.parametrize(
    ("program", "costs"),
    [
        (Program(upper=[1.0, 1.0, 1.0], G=[[3.0, 2.0, 1.0]], h=[7.0]), [-4.7e9, 1.0, 2.0]),  # a slack of 2e-13 beside 1
        (Program(upper=[1.0, 1.0], G=[[7.0, 3.0], [7.0, 1.0]], h=[5.0, 4.0]), [-4e7, -1.0]),  # all of it presses on a row
    ],
)  # fmt: skip
def test_dear_costs_have_a_barrier(program: Program, costs: list[float]) -> None:
    mu, c = 2.0**-10, torch.tensor([costs]).double()
    found, best = LogBarrier(program, mu).solve(c).check(), HiGHS(program).solve(c).check()
    assert found.counts() == {"OPTIMAL": 1}
    above = float(found.objective - best.objective)
    assert -1e-9 * float(c.abs().max()) <= above <= 6 * mu + 1e-9 * float(c.abs().max())


def test_bounds_far_away_count_for_nothing() -> None:
    """−1 ≤ w₀ ≤ 0 by rows: the closed form of one variable, moved by one; w₁ is in the middle."""
    mu, c = 0.3, 1.0
    program = Program(G=[[1, 0], [-1, 0]], h=[0, 1], lower=[-1e17, 0], upper=[1e16, 1])
    found = LogBarrier(program, mu).solve(torch.tensor([c, 0.0], dtype=torch.float64)).check((Status.OPTIMAL,))
    root = ((c + 2 * mu) - np.sqrt((c + 2 * mu) ** 2 - 4 * c * mu)) / (2 * c)
    np.testing.assert_allclose(found.decision, [root - 1, 0.5], rtol=1e-9)


def test_a_free_variable_that_a_row_fixes() -> None:
    """w₀ = 0; the others are apart: 1/w₁ = .9/(.6 − .9 w₁) + 1/(1 − w₁), 1/w₂ = 1/(.2 − w₂) + 1/(1 − w₂)."""
    program = Program(
        A=[[1, 0, 0]], b=[0], G=[[1, 0, 1], [0.4, 0.9, 0]], h=[0.2, 0.6], lower=[-1, 0, 0], upper=[np.inf, 1, 1]
    )
    found = LogBarrier(program, 0.01).solve(torch.zeros(3, dtype=torch.float64)).check((Status.OPTIMAL,))
    first = brentq(lambda w: 1 / w - 0.9 / (0.6 - 0.9 * w) - 1 / (1 - w), 1e-9, 0.6 / 0.9 - 1e-9)
    second = brentq(lambda w: 1 / w - 1 / (0.2 - w) - 1 / (1 - w), 1e-9, 0.2 - 1e-9)
    np.testing.assert_allclose(found.decision, [0, first, second], rtol=1e-8, atol=1e-12)


def test_decisions_that_a_penalty_makes_tiny() -> None:
    """w₂ ≥ 18 w₁ = −18 w₀/19 with the price P of w₂: for large P, s = w₂ − 18 w₁ = 4μ/(3P) and w₁ = s/9, by hand."""
    mu, price = 2.0**-10, 1e10
    program = Program(
        A=[[-0.125, -2.375, 0]], b=[0], G=[[3.25, -2, 0], [-1, -1, -1]], h=[2, 0], lower=[-1, 0, 0],
        upper=[0, 2, np.inf],
    )  # fmt: skip
    found = LogBarrier(program, mu).solve(torch.tensor([2.375, -2.125, price], dtype=torch.float64))
    s = 4 * mu / (3 * price)
    np.testing.assert_allclose(found.check((Status.OPTIMAL,)).decision, [-19 * s / 9, s / 9, 3 * s], rtol=1e-6)


def test_a_barrier_that_falls_without_end_has_no_centre() -> None:
    """w₁ costs nothing, and its slack may grow without end."""
    found = LogBarrier(Program(n=2, upper=[1, np.inf]), 0.1).solve(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert int(found.status[0]) == int(Status.FAILED)
    assert found.reason is not None
    assert "without end" in found.reason[0]
