"""CaVE against non-negative least squares on the explicitly formed cone, and against what the paper says of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import ProgramError
from dflearn.losses.optimality import CaVE
from dflearn.problems import FacilityLocation, Knapsack, ShortestPath
from dflearn.problems.base import Problem
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS


def binding_normals(program: Program, w: np.ndarray) -> np.ndarray:
    """Every outward normal that binds at w, one per row; equalities with both signs."""
    rows = [*program.A.toarray(), *-program.A.toarray()]
    rows += [row for row, h in zip(program.G.toarray(), program.h, strict=True) if abs(row @ w - h) < 1e-6]
    eye = np.eye(program.n)
    rows += [-eye[j] for j in range(program.n) if abs(w[j] - program.lower[j]) < 1e-6]
    rows += [eye[j] for j in range(program.n) if abs(w[j] - program.upper[j]) < 1e-6]
    return np.array(rows)


def reference(program: Program, costs: np.ndarray, w: np.ndarray) -> float:
    normals = binding_normals(program, w)
    weights, _ = nnls(normals.T, -costs, maxiter=100 * normals.shape[0])
    target = normals.T @ weights
    return 1 - float(-costs @ target / np.linalg.norm(costs) / max(np.linalg.norm(target), 1e-12))


PROBLEMS = [ShortestPath(4, 4, seed=3), Knapsack(30, 2, seed=3), FacilityLocation(6, 3, seed=3)]


def predictions(problem: Problem, count: int) -> tuple[Tensor, Tensor]:
    data = problem.generate(count, dtype=torch.float64)
    decisions = HiGHS(problem.program).solve(data.costs).check().decision
    noise = torch.randn(data.costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return data.costs * (1 + 0.5 * noise), decisions


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_exact_cone_projection(problem: Problem) -> None:
    predicted, decisions = predictions(problem, 10)
    value = CaVE(problem.program)(predicted, Batch(predicted, decisions=decisions))
    costs = problem.program.objective.vector(predicted).numpy()
    expected = [reference(problem.program, c, w) for c, w in zip(costs, decisions.numpy(), strict=True)]
    np.testing.assert_allclose(value.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_zero_if_and_only_if_optimal_for_the_relaxation(problem: Problem) -> None:
    data = problem.generate(8, dtype=torch.float64)
    vertices = HiGHS(problem.relaxation).solve(data.costs).check().decision
    loss = CaVE(problem.program)
    assert float(loss(data.costs, Batch(data.costs, decisions=vertices)).max()) < 1e-9
    assert float(loss(-data.costs, Batch(data.costs, decisions=vertices)).min()) > 1e-3


def test_gradient_by_finite_differences() -> None:
    """The projection is constant in the gradient, and rightly so: the derivative through it vanishes."""
    problem = PROBLEMS[0]
    predicted, decisions = predictions(problem, 4)
    predicted.requires_grad_()
    batch = Batch(predicted, decisions=decisions)
    assert torch.autograd.gradcheck(lambda y: CaVE(problem.program)(y, batch), (predicted,), eps=1e-5, atol=1e-5)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_inner_target_lies_in_the_cone_and_tends_to_the_projection(problem: Problem) -> None:
    predicted, decisions = predictions(problem, 3)
    batch = Batch(predicted, decisions=decisions)
    exact = CaVE(problem.program)(predicted, batch)
    inner = CaVE(problem.program, variant="inner")(predicted, batch)
    many = CaVE(problem.program, variant="inner", iterations=40)(predicted, batch)
    assert bool((inner >= exact - 1e-9).all()), "no point of the cone is closer in angle than the projection"
    torch.testing.assert_close(many, exact, atol=1e-6, rtol=0)


def test_the_papers_counter_example() -> None:
    """3v₁ + 3v₂ ≤ 5: (1, 0) is the best integer point for values (2, 1.9), yet its cone does not hold them."""
    program = Program(G=[[3, 3]], h=[5], upper=1, S=-np.eye(2), integer=True, sense="maximize")
    values = torch.tensor([[2.0, 1.9]], dtype=torch.float64)
    decision = HiGHS(program).solve(values).check().decision
    np.testing.assert_array_equal(decision.numpy(), [[1, 0]])
    assert float(CaVE(program)(values, Batch(values, decisions=decision))) > 0.1
    alone = torch.tensor([[2.0, -0.1]], dtype=torch.float64)
    assert float(CaVE(program)(alone, Batch(alone, decisions=decision))) < 1e-12


def test_bounds_and_sides_per_instance_and_infeasible_labels() -> None:
    program = Program(A=np.ones((1, 3)), b=[1.0], upper=1)
    y = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    instance = Instance(
        b=torch.tensor([[1.0], [1.5]], dtype=torch.float64),
        upper=torch.tensor([[1.0, 1, 1], [0.7, 1, 1]], dtype=torch.float64),
    )
    decisions = HiGHS(program).solve(y, instance).check().decision
    loss = CaVE(program)
    assert float(loss(y, Batch(y, decisions=decisions, instance=instance)).max()) < 1e-12
    with pytest.raises(ProgramError, match="instance 1: the decision violates"):
        loss(y, Batch(y, decisions=decisions))


@pytest.mark.parametrize("unit", ["decisions", "costs", "rows"])
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_angles_know_no_unit(unit: str, factor: float) -> None:
    """What binds is judged by the terms of the row or the bound, and no cost is too small to have a direction."""
    rng = np.random.RandomState(0)
    size, cost, row = (factor if unit == name else 1.0 for name in ("decisions", "costs", "rows"))
    for _ in range(10):
        G, y = np.round(rng.randn(3, 5), 2), rng.randn(4, 5)
        h = G @ np.full(5, 0.5) + rng.uniform(0, 0.3, 3)
        plain = Program(G=G, h=h, upper=1)
        other = Program(G=row * G, h=row * size * h, upper=size)
        w = HiGHS(plain).solve(torch.tensor(y)).check().decision
        results = []
        for program, unit_of_costs, decisions in ((plain, 1.0, w), (other, cost, w * size)):
            predicted = torch.tensor(unit_of_costs * y[::-1].copy(), requires_grad=True)
            value = CaVE(program)(predicted, Batch(torch.zeros(4, 1), None, decisions, None))
            (slope,) = torch.autograd.grad(value.sum(), predicted)
            results.append((value.detach(), slope * unit_of_costs))
        torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-9)
        wanted = [reference(plain, y[3 - i], w[i].numpy()) for i in range(4)]
        np.testing.assert_allclose(results[1][0], wanted, atol=1e-6)
