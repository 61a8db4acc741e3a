"""The layers of the literature against the published formulas in float64, each other, and `DavisYin`; CaVE against CVXPY's steps."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import cvxpy
import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import OptionError, ProgramError
from dflearn.layers import DavisYin
from dflearn.losses import CaVE
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.studies.paper.as_published import AsPublished, CaVEAsPublished, DenseJacobianFree, SparseAsPublished


def costs_of(name: str, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return problem_named(name, seed=1).generate(count, dtype=dtype).batch().require("costs")


def slope(w: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    weight = torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(w)
    return torch.autograd.grad((w * weight).sum(), y)[0]


def literally(
    program: Program, C: np.ndarray, d: np.ndarray, y: Tensor, z: Tensor, tau: float, alpha: float, N: int
) -> Tensor:
    """The published iteration in float64, with an exact pseudo-inverse."""
    A = program.A.toarray()
    matrix = torch.tensor(np.block([[C, np.eye(len(C))], [A, np.zeros((len(A), len(C)))]]))
    right, inverse = torch.tensor(np.concatenate([d, program.b])), torch.linalg.pinv(matrix, atol=1e-3)
    c = program.objective.vector(y)
    c = torch.cat([c, c.new_zeros(len(c), len(C))], 1)
    for i in range(N + 1):
        a = alpha * (1 - i / N) ** 0.1 if i < N else alpha
        x = torch.relu(z)
        v = (2 - tau * a) * x - z - a * (c + (1e-6 + tau) * z)
        z = z - x + v - (v @ matrix.T - right) @ inverse.T
    return torch.relu(z)[:, : program.n]


Kind = type[AsPublished | SparseAsPublished]
KINDS = [AsPublished, SparseAsPublished]
CASES = [("SP-4x6", 0.0, 0.01), ("KP-70", 1.0, 0.1), ("CFL-20x4", 0.1, 0.01)]
COUNT = 17  # more than a tile of 16, so that the last one is filled up


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "tau", "alpha"), CASES)
def test_as_published_is_the_published_iteration(kind: Kind, name: str, tau: float, alpha: float) -> None:
    """SP has no upper bounds, KP all of them, CFL those of the facilities."""
    problem = problem_named(name, seed=1)
    program, y = problem.program, costs_of(name, COUNT).requires_grad_()
    eye = np.eye(program.n)
    bounded = {"SP": eye[:0], "KP": eye, "CFL": eye[-4:]}[name.split("-")[0]]
    C, d = np.vstack([program.G.toarray(), bounded]), np.concatenate([program.h, np.ones(len(bounded))])
    layer = kind(problem, tau, alpha, 100, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    z = torch.randn(COUNT, program.n + len(C), generator=torch.Generator().manual_seed(5)).double()
    wanted = literally(program, C, d, y, z, tau, alpha, 100)
    theirs = slope(wanted, y)
    solution = layer.solve(y)
    assert solution.counts() == {"FEASIBLE": COUNT}
    torch.testing.assert_close(solution.objective, program.objective(y, wanted).detach())
    torch.testing.assert_close(solution.decision, wanted, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(slope(solution.decision, y), theirs, rtol=1e-10, atol=1e-12 * float(theirs.abs().max()))
    assert not torch.equal(layer(y), solution.decision), "every call starts anew"
    in_float32 = kind(problem, tau, alpha, 100, generator=torch.Generator().manual_seed(5))(y)
    assert in_float32.dtype == torch.float64
    torch.testing.assert_close(in_float32, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope(in_float32, y), theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_as_published_draws_from_its_state(kind: Kind) -> None:
    problem = problem_named("KP-10")
    y = costs_of("KP-10", 3)
    layer, other = kind(problem, 1.0), kind(problem.program, 1.0)
    assert torch.equal(layer(y), other(y))
    state = layer.state_dict()
    after = layer(y)
    other(y), other(y)
    other.load_state_dict(state)
    assert torch.equal(other(y), after)


def both(problem: Any, y: Tensor, *options: Any, instance: Instance | None = None, **more: Any) -> list[Tensor]:
    """Decision and gradient of the sparse layer, then of the dense one, in float64 from the same starts."""
    found = []
    for kind in (SparseAsPublished, AsPublished):
        costs = y.clone().requires_grad_()
        w = kind(problem, *options, dtype=torch.float64, **more)(costs, instance)
        found += [w.detach(), slope(w, costs)]
    return found


def assert_same(found: list[Tensor]) -> None:
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11 * float(theirs.abs().max()))


def test_a_program_of_any_rows_and_sides() -> None:
    """Rows of both kinds, one of them a combination of others; b, h and d of each instance; variables in no row."""
    rng = np.random.RandomState(3)
    A, G, point = rng.normal(size=(3, 12)), rng.normal(size=(4, 12)), rng.uniform(0.2, 0.8, 12)
    A[:, 9:], G[:, 9:] = 0, 0
    A[2] = A[0] - 2 * A[1]
    program = Program(A=A, b=A @ point, G=G, h=G @ point + 0.3, upper=1, name="KP-any")
    y = torch.tensor(rng.normal(size=(6, 12)))
    b = torch.tensor(rng.uniform(0.2, 0.8, (6, 12)) @ A.T)
    h = torch.tensor(rng.uniform(0.5, 2.0, (6, 4)))
    instance = Instance(b=b, h=h, d=torch.tensor(rng.normal(size=(6, 12))))
    for given in (None, instance, Instance(h=h)):
        assert_same(both(program, y, 0.3, 0.1, instance=given))
    assert_same(both(Program(upper=1, n=3, name="KP-free"), y[:, :3], 0.3, 0.1))
    wrong = b + torch.tensor([0.0, 0.0, 1.0])
    with pytest.raises(ProgramError, match="is a combination of other rows"):
        SparseAsPublished(program, 0.3)(y, Instance(b=wrong))


def test_sparse_is_a_layer_like_others() -> None:
    problem = problem_named("CFL-6x3", seed=1)
    y = costs_of("CFL-6x3", 70, torch.float32)
    layer = SparseAsPublished(problem, 0.1)
    again = pickle.loads(pickle.dumps(SparseAsPublished(problem, 0.1)))
    assert torch.equal(again(y), layer(y)), "pickling changes nothing"
    for part in (y[:0], y[0], y[:6].reshape(2, 3, -1)):
        assert layer(part).shape == (*part.shape[:-1], 21)
    costs = y[:2].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(costs).sum(), costs, create_graph=True)
    with pytest.raises(OptionError, match="AsPublished, the dense layer, has"):
        torch.autograd.grad(gradient.sum(), costs)
    with pytest.raises(OptionError, match=r"torch\.float32 or torch\.float64"):
        SparseAsPublished(problem, 0.1, dtype=torch.float16)


def test_what_diverges_has_failed() -> None:
    y = costs_of("KP-10", 3, torch.float32)
    for kind in KINDS:
        assert kind(problem_named("KP-10"), 100.0, 10.0).solve(y).counts() == {"FAILED": 3}


def test_the_dense_jacobian_free_layer_is_the_same_iteration() -> None:
    """On a program with equalities only and w ≥ 0, the dense system is the equality form."""
    problem = problem_named("SP-4", seed=1)
    program = Program(A=problem.program.A, b=problem.program.b, name="SP-4")
    ours, theirs = DavisYin(program, 0.7, 0.05, 80), DenseJacobianFree(program, 0.7, 0.05, 80)
    y, other = (costs_of("SP-4", 9, torch.float32).requires_grad_() for _ in range(2))
    w, wanted = ours(y), theirs(other)
    torch.testing.assert_close(w, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope(w, y), slope(wanted, other), rtol=1e-3, atol=1e-6)


def example(name: str) -> tuple[CaVEAsPublished, Tensor, Tensor]:
    """The loss, costs of three instances to predict with, and the optimal decisions of others."""
    problem = problem_named(name, seed=1)
    costs = problem.generate(3).costs
    assert costs is not None
    decisions = problem.solver().solve(costs.double()).check().decision
    noise = torch.randn(costs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return CaVEAsPublished(problem.program), costs.double() + 3 * noise, decisions


@pytest.mark.parametrize("name", ["SP-4", "KP-12", "CFL-6x2"])
def test_three_steps_are_those_of_cvxpy(name: str) -> None:
    loss, predicted, decisions = example(name)
    for y, w in zip(predicted, decisions.numpy(), strict=True):
        v = -loss.program.objective.vector(y).numpy()
        multipliers = cvxpy.Variable(loss.normals(w).shape[0], nonneg=True)
        distance = cvxpy.sum_squares(v - multipliers @ loss.normals(w).toarray())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the solution may be inaccurate
            cvxpy.Problem(cvxpy.Minimize(distance)).solve(solver=cvxpy.CLARABEL, max_iter=3)
        expected = multipliers.value @ loss.normals(w).toarray()
        np.testing.assert_allclose(loss.project(v, w), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["SP-4", "KP-12", "CFL-6x2"])
def test_many_steps_lead_to_the_exact_projection(name: str) -> None:
    _, predicted, decisions = example(name)
    batch = Batch(predicted, None, decisions)
    program = problem_named(name, seed=1).program
    values = [loss(predicted, batch) for loss in (CaVEAsPublished(program, 100), CaVE(program))]
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)


def test_the_gradient_holds_the_target_fixed() -> None:
    loss, predicted, decisions = example("KP-12")
    predicted.requires_grad_(True)
    loss(predicted, Batch(predicted.detach(), None, decisions)).sum().backward()
    assert predicted.grad is not None
    v = predicted.detach().clone().requires_grad_(True)  # values are maximized: v = ŷ
    target = np.stack([loss.project(*pair) for pair in zip(v.detach().numpy(), decisions.numpy(), strict=True)])
    (-torch.nn.functional.cosine_similarity(v, torch.as_tensor(target), dim=-1)).sum().backward()
    torch.testing.assert_close(predicted.grad, v.grad)
