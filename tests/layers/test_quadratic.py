"""The way that is left when the kernels do not finish. Its answers are compared in tests/kernels and tests of `Smoothed`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dflearn.engine.certify import Certifier
from dflearn.engine.hard.smoothed import Hard, Result
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.highs import proven_infeasible

SUM = Program(A=np.ones((1, 3)), b=[1.0], upper=1)
C = np.array([1.0, 2.0, 6.0])


def solve_alone(program: Program, c: np.ndarray, mu: float, sides: Sides) -> Result:
    return Hard(Certifier(program)).solve(c, mu, sides)


def instances(*sums: float) -> Instance:
    return Instance(b=torch.tensor(sums, dtype=torch.float64)[:, None])


ANGLES = 2 * np.pi * np.arange(40) / 40
POLYGON = np.round(np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1), 9)  # around the unit circle
BOUNDS = Program(n=4, lower=[-1e3, 0, -np.inf, -np.inf], upper=[np.inf, 5e3, np.inf, -2e3])


@pytest.mark.parametrize(
    ("program", "c", "wanted", "inside", "in_force"),
    [
        (SUM, C, [0.75, 0.25, 0.0], [1, 1, 0], [1]),  # c + 2w + λ = 0 inside: λ = −2.5
        (BOUNDS, [7e3, -9e3, 1e3, 0.0], [-1e3, 4.5e3, -5e2, -2e3], [0, 1, 1, 0], []),  # a clip, of any size
        (Program(G=POLYGON, h=np.ones(40), lower=-np.inf), [0.0, -6.0], [0, 1], [1, 1], np.arange(40) == 10),
    ],
)
def test_answers_by_hand(program: Program, c: Any, wanted: Any, inside: Any, in_force: Any) -> None:
    result = solve_alone(program, np.array(c), 2.0, program.own_sides)
    assert result.status is Status.OPTIMAL
    np.testing.assert_allclose(result.w, wanted, rtol=1e-7, atol=1e-7)
    assert result.inside.tolist() == inside
    assert result.in_force.tolist() == list(in_force)


@pytest.mark.parametrize("b", [5.0, 1e21])
def test_no_decision_where_the_bounds_do_not_allow_the_sum(b: float) -> None:
    """The second would be infinite for HiGHS in the user's units."""
    result = solve_alone(SUM, C, 2.0, SUM.sides(instances(b), 1).row(0))
    assert result.status is not Status.OPTIMAL
    assert np.isnan(result.w).all()


def test_which_instances_have_no_feasible_point() -> None:
    sums = (1.0, 5.0, 3.0, -1e-3, 0.0)
    assert proven_infeasible(SUM)(SUM.sides(instances(*sums), 5), 5).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("size", [1e-5, 1.0, 3e4])
@pytest.mark.parametrize("seed", range(4))
def test_answers_that_are_known_by_construction(seed: int, size: float) -> None:
    """A decision, prices and reduced costs with the right signs are chosen first; costs follow: c = r − μ w − Mᵀy."""
    rng, n, mu = np.random.RandomState(seed), 7, 0.3
    A, G = rng.normal(size=(2, n)), rng.normal(size=(4, n))
    at = rng.permutation(np.repeat([-1, 0, 1], [1, n - 2, 1]))  # at the lower bound, inside, at the upper one
    w = size * rng.uniform(-1, 1, n)
    lower, upper = w - size * (at >= 0) * rng.uniform(0.5, 2, n), w + size * (at <= 0) * rng.uniform(0.5, 2, n)
    met = np.array([True, False, True, False])
    y = size * mu * np.concatenate([rng.normal(size=2), met * rng.uniform(0.5, 2, 4)])
    c = -size * mu * at * rng.uniform(0.5, 2, n) - mu * w - np.vstack([A, G]).T @ y
    program = Program(A=A, b=A @ w, G=G, h=G @ w + size * ~met, lower=lower, upper=upper)
    result = solve_alone(program, c, mu, program.own_sides)
    assert result.status is Status.OPTIMAL
    np.testing.assert_allclose(result.w, w, atol=1e-6 * size)
    assert result.residual <= 1e-6
    assert result.inside.tolist() == (at == 0).tolist()
    assert result.in_force.tolist() == [True, True, *met.tolist()]


def test_nothing_to_decide() -> None:
    program = Program(A=[[1.0, 1.0]], b=[3.0], lower=[1, 2], upper=[1, 2])
    result = solve_alone(program, np.array([1.0, -1.0]), 2.0, program.own_sides)
    assert (result.status, result.w.tolist(), result.residual) == (Status.OPTIMAL, [1.0, 2.0], 0.0)
    missed = solve_alone(program, np.array([1.0, -1.0]), 2.0, program.sides(instances(4.0), 1).row(0))
    assert missed.status is Status.FAILED


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_units_in_which_nothing_changes(unit: float) -> None:
    """Free variables, rows from 1e-6 to 1e6, one of them twice, tiny μ: known by construction, in any unit of decisions."""
    rng, n, mu = np.random.RandomState(3), 12, 1e-7
    M = rng.normal(size=(8, n)) * 10.0 ** rng.uniform(-6, 6, (8, 1))
    M = np.vstack([M, M[1] * 3.0])
    w, at = rng.uniform(-1, 1, n), np.arange(n) % 3 - 1
    lower = np.where(at < 0, w, np.where(np.arange(n) < 4, -np.inf, w - 1))
    upper = np.where(at > 0, w, np.where(np.arange(n) < 4, np.inf, w + 1))
    y = rng.normal(size=9) / np.abs(M).max(1)
    y[4:8] = np.abs(y[4:8]) * [1, 0, 1, 0]
    y[8] = 0.0
    c = -M.T @ y - mu * w - at * rng.uniform(0.5, 1, n)
    order = [0, 1, 2, 3, 8, 4, 5, 6, 7]
    M, y, right = M[order], y[order], (M @ w)[order]
    right[[6, 8]] += np.abs(M[[6, 8]]).max(1)
    A, G = M[:5], M[5:]
    program = Program(A=A, b=unit * right[:5], G=G, h=unit * right[5:], lower=unit * lower, upper=unit * upper)
    result = solve_alone(program, c, mu / unit, program.own_sides)
    assert result.status is Status.OPTIMAL
    assert result.residual <= 1e-9
    np.testing.assert_allclose(result.w / unit, w, atol=1e-7)


def blocks(small: float, large: float) -> tuple[Program, np.ndarray]:
    """Two independent blocks in units of their own, a loose row and a large bound; w₁ + w₂ = 1 and w₃ ≤ 1 in those units."""
    program = Program(
        A=[[1.0, 1.0, 0.0]], b=[small], G=[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]], h=[large, 1e9 * large], upper=1e9 * large
    )
    return program, np.array([1.0, 1.5, -4.0])


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("small", "large"), [(1e-8, 1e8), (1.0, 1.0), (1e-6, 1e10)])
def test_independent_blocks_in_mixed_units(small: float, large: float, warm: bool, batch: int) -> None:
    """μ = 1e-6: with w₁ + w₂ = s, w₁ − w₂ = min(s, 0.5/μ); w₃ = min(large, 4/μ). Nothing of the small block may be lost."""
    program, c = blocks(small, large)
    layer, mu, y = Smoothed(program, 1e-6), 1e-6, torch.as_tensor(np.tile(c, (batch, 1)))
    solution = layer.solve(y, None, layer.no_start(batch) if warm else None).check((Status.OPTIMAL,))
    wanted = np.tile([small, 0.0, min(large, 4 / mu)], (batch, 1))
    np.testing.assert_allclose(solution.decision.numpy(), wanted, rtol=1e-6, atol=0)
    assert solution.residual is not None
    assert float(solution.residual.max()) <= 1e-6


@pytest.mark.parametrize("far", [1e9, 1e15, 1e20, 1e30, np.inf])
def test_a_row_without_limit_changes_nothing(far: float) -> None:
    """min −6w₁ − 5w₂ − 4w₃ − 3w₄ + ¼‖w‖² with 3w₁ + 5w₂ + 2w₃ + 4w₄ ≤ 7, w ≤ 1: (1, 0.4, 1, 0)."""
    program = Program(G=[[3.0, 5, 2, 4], [1, 1, 1, 1]], h=[7.0, far], upper=1)
    solution = Smoothed(program, 0.5).solve(-torch.tensor([[6.0, 5, 4, 3]], dtype=torch.float64))
    wanted = torch.tensor([[1.0, 0.4, 1, 0]], dtype=torch.float64)
    torch.testing.assert_close(solution.check((Status.OPTIMAL,)).decision, wanted, rtol=0, atol=1e-9)
