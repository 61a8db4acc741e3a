"""Clarabel with the polish on the face: loose rows and bounds, units, random programs; and bound propagation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import linprog

from dflearn.engine.implied import Propagation
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from dflearn.solvers.convex import ConvexQP
from dflearn.solvers.highs import HiGHS


def solved(program: Program, c: list[float]) -> np.ndarray:
    found = ConvexQP(program).best(np.array(c, float), program.own_sides)
    assert found is not None
    assert found.error <= 1e-10
    return found.w


@pytest.mark.parametrize("large", [1e6, 1e9, 1e15, 1e20, 1e30, np.inf])
def test_loose_bounds_and_rows_of_quadratic_programs(large: float) -> None:
    y, Q, side = torch.tensor([-3.0, -1.0], dtype=torch.float64), np.eye(2), min(large, 1e300)
    for program, wanted in [
        (Program(G=[[1.0, 1]], h=[1.0], upper=large, Q=Q), [1.0, 0.0]),
        (Program(G=[[1.0, 1], [2, 1]], h=[1.0, side], upper=1e9, Q=Q), [1.0, 0.0]),
        (Program(G=[[1.0, -1], [-2, 1]], h=[1.0, side], upper=large, Q=Q), [2.5, 1.5]),
        (Program(upper=large, n=2, Q=Q), [3.0, 1.0]),
    ]:
        found = HiGHS(program).solve(y).check((Status.OPTIMAL,))
        np.testing.assert_allclose(found.decision, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("program", "c", "wanted"),
    [
        (Program(G=[[1.0, 0, 0], [0, 1, 1]], h=[1e9, 0.5]), [-1e-9, -1, -0.5], [1e9, 0.5, 0]),
        (Program(G=[[1.0, 0], [0, 1]], h=[1e7, 1e-8]), [-1e-7, -1e8], [1e7, 1e-8]),
        (Program(G=[[3.0, 5, 2, 4], [1, 1, 1, 1]], h=[7, 1e15], upper=1), [-6, -5, -4, -3], [1, 0.4, 1, 0]),
        (Program(A=[[1e4, 0, 0], [0, 1e-4, 1e-4]], b=[1e10, 3e-4], upper=[2e6, 1, 5]), [1, 1, 2], [1e6, 1, 2]),
        (Program(G=[[-1e4], [1e-4]], h=[1e8, 1e-7], upper=0.1), [-100], [0.001]),
    ],
)
def test_linear_programs_of_mixed_sizes(program: Program, c: list[float], wanted: list[float]) -> None:
    np.testing.assert_allclose(solved(program, c), wanted, rtol=1e-10, atol=1e-20)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_in_other_units(seed: int) -> None:
    """Linear ones against scipy, and projections on a box with one row against bisection."""
    rng = np.random.default_rng(seed)
    n, unit, price = int(rng.integers(2, 15)), 10.0 ** rng.integers(-6, 7), 10.0 ** rng.integers(-6, 7)
    G, inside, c = rng.normal(size=(4, n)), rng.uniform(0, 1, n), rng.normal(size=n)
    h = G @ inside + rng.uniform(0, 1, 4)
    w = solved(Program(G=G, h=unit * h, upper=unit), (price * c).tolist())
    assert c @ w / unit == pytest.approx(linprog(c, G, h, bounds=(0, 1)).fun, rel=1e-9, abs=1e-9)
    w = solved(Program(A=np.ones((1, n)), b=[unit], upper=1e9 * unit, Q=price / unit * np.eye(n)), (price * c).tolist())
    low, high = c.min(), c.max() + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(middle - c, 0).sum() < 1 else (low, middle)
    np.testing.assert_allclose(w / unit, np.maximum(low - c, 0), rtol=1e-11, atol=1e-12)


def test_an_empty_part_of_an_instance_beside_q() -> None:
    program = Program(upper=1.0, n=2)
    instance = Instance(b=torch.zeros(1, 0), q=torch.ones(1, 2))
    found = HiGHS(program).solve(torch.tensor([[-0.5, -3.0]], dtype=torch.float64), instance).check((Status.OPTIMAL,))
    torch.testing.assert_close(found.decision, torch.tensor([[0.5, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize("seed", range(15))
def test_implied_bounds_hold(seed: int) -> None:
    """They contain what scipy finds by minimizing and maximizing each variable, and are no looser than those given."""
    rng = np.random.default_rng(seed)
    n = 5
    M = np.round(rng.normal(size=(4, n)) * (rng.random((4, n)) < 0.6), 1)
    inside = rng.uniform(-1, 1, n)
    right = M @ inside + np.append(0.0, rng.uniform(0, 1, 3))
    lower, upper = np.where(rng.random(n) < 0.7, -2.0, -np.inf), np.where(rng.random(n) < 0.7, 1e9, np.inf)
    low, high = Propagation(sp.csr_array(M), 1).bounds(right, lower, upper)
    assert (low >= lower).all()
    assert (high <= upper).all()
    for j, sign in [(j, sign) for j in range(n) for sign in (1, -1)]:
        bounds = np.column_stack([lower, upper])
        found = linprog(sign * np.eye(n)[j], M[1:], right[1:], M[:1], right[:1], bounds=bounds)
        if found.status == 0:
            assert low[j] - 1e-6 <= found.x[j] <= high[j] + 1e-6


def test_bounds_pass_along_a_chain_and_a_batch() -> None:
    chain = sp.csr_array(np.array([[1.0, 0, 0], [-1, 1, 0], [0, -2, 1]]))
    right, infinite = np.array([[1.0, 0, 0], [2.0, 1, 0]]), np.full(3, np.inf)
    low, high = Propagation(chain, 0).bounds(right, np.zeros(3), infinite)
    assert (low == 0).all()
    np.testing.assert_allclose(high, [[1, 1, 2], [2, 3, 6]], rtol=1e-14)
    assert (high >= [[1, 1, 2], [2, 3, 6]]).all()


def test_a_face_that_cannot_meet_a_row_lets_go_of_the_cheapest_variable() -> None:
    """min −w₀ + 0.001 w₁ + ½‖w‖², w₀ = 5 w₁, w₀ ≤ 1e-5: both at bounds is no decision; by hand it is w₁ that moves."""
    program = Program(A=[[1.0, -5.0]], b=[0.0], upper=[1e-5, np.inf], Q=np.eye(2))
    found = HiGHS(program).solve(torch.tensor([-1.0, 1e-3], dtype=torch.float64)).check((Status.OPTIMAL,))
    np.testing.assert_allclose(found.decision, [1e-5, 2e-6], rtol=1e-12)


def test_blocks_have_units_of_costs_of_their_own() -> None:
    """The last variable meets no row, and costs of 1e-17 stand beside some of 1e2. Each block by hand."""
    far = np.array([[6.2, 2.4], [2.4, 3.8]]) * 1e-25
    Q = np.block([[1.6e9 * np.eye(2), np.zeros((2, 2))], [np.zeros((2, 2)), far]])
    for c, wanted in (([1.16e-17, 4.2e-17], [0.0, 0.0]), ([-1.24e-17, 0.0], [2e7, 0.0])):
        program = Program(G=[[0, 0.375, 0, 0], [0, 0, -0.43, 0]], h=[1e-8, 2e8], upper=[1e-7, 6e-8, 2.7e8, 4e8], Q=Q)
        found = solved(program, [384.0, -16.0, *c])
        np.testing.assert_allclose(found, [0.0, 1e-8, *wanted], rtol=1e-9, atol=1e-14)


def test_the_unit_of_a_row_is_no_unit_of_its_variables() -> None:
    """One row with entries of 4e16, and variables of 1e-9 whose costs per square are 1e9."""
    Q, c = np.array([[6.8e9, -1.8e9], [-1.8e9, 3.4e9]]), np.array([-1.125, -3.375])
    program = Program(G=[[3.6e16, 0.0]], h=[2e8], upper=[1.5e-8, 3e-8], Q=Q)
    found = HiGHS(program).solve(torch.tensor(c)).check((Status.OPTIMAL,))
    np.testing.assert_allclose(found.decision, np.linalg.solve(Q, -c), rtol=1e-9)  # nothing binds
