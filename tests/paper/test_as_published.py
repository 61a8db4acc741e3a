"""The dense Davis-Yin layers of the literature against the published formulas in float64, and against `DavisYin`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import ProgramError, ShapeError
from dflearn.layers import DavisYin
from dflearn.paper.as_published import AsPublished, DenseJacobianFree
from dflearn.problems import problem_named
from dflearn.program import Instance, Program


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


@pytest.mark.parametrize(("name", "tau", "alpha"), [("SP-4", 0.0, 0.01), ("KP-10", 1.0, 0.1), ("CFL-6x3", 0.1, 0.01)])
def test_as_published_is_the_published_iteration(name: str, tau: float, alpha: float) -> None:
    """SP has no upper bounds, KP all of them, CFL those of the facilities."""
    problem = problem_named(name, seed=1)
    program, y = problem.program, costs_of(name, 5).requires_grad_()
    eye = np.eye(program.n)
    bounded = {"SP": eye[:0], "KP": eye, "CFL": eye[-3:]}[name.split("-")[0]]
    C, d = np.vstack([program.G.toarray(), bounded]), np.concatenate([program.h, np.ones(len(bounded))])
    layer = AsPublished(problem, tau, alpha, 60, generator=torch.Generator().manual_seed(5))
    z = torch.randn(5, program.n + len(C), generator=torch.Generator().manual_seed(5)).double()
    wanted = literally(program, C, d, y, z, tau, alpha, 60)
    theirs = slope(wanted, y)
    solution = layer.solve(y)
    assert solution.counts() == {"FEASIBLE": 5}
    torch.testing.assert_close(solution.decision, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope(solution.decision, y), theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
    assert not torch.equal(layer(y), solution.decision), "every call starts anew"


def test_as_published_draws_from_its_state() -> None:
    problem = problem_named("KP-10")
    y = costs_of("KP-10", 3)
    layer, other = AsPublished(problem, 1.0), AsPublished(problem.program, 1.0)
    assert torch.equal(layer(y), other(y))
    state = layer.state_dict()
    after = layer(y)
    other(y), other(y)
    other.load_state_dict(state)
    assert torch.equal(other(y), after)


def test_rows_for_upper_bounds() -> None:
    program = problem_named("CFL-6x3").program
    rows = {
        kind: AsPublished(program, 0, upper_bound_rows=kind).V.shape[1] - program.n
        for kind in ("all", "none", "integer")
    }  # type: ignore[arg-type]
    assert rows == {"all": 3 + 21, "none": 3, "integer": 6}
    mask = np.arange(program.n) < 2
    assert AsPublished(program, 0, upper_bound_rows=mask).V.shape[1] == program.n + 3 + 2
    for wrong, why in (
        ({"upper_bound_rows": "some"}, "'all', 'none'"),
        ({"upper_bound_rows": mask[:3]}, "boolean"),
        ({"alpha": 0}, "alpha > 0"),
    ):
        with pytest.raises(ProgramError, match=why):
            AsPublished(program, 0, **wrong)
    with pytest.raises(ProgramError, match="no integer variables"):
        AsPublished(program.relax(), 0)
    with pytest.raises(ProgramError, match="pass upper_bound_rows"):
        AsPublished(Program(n=3), 0)
    with pytest.raises(ProgramError, match="lower bounds of zero"):
        AsPublished(Program(lower=1, n=3), 0, upper_bound_rows="none")


def test_as_published_takes_sides_per_instance() -> None:
    program = problem_named("KP-10").program
    y = costs_of("KP-10", 2)
    h = torch.tensor([[2.0, 2.0], [20.0, 20.0]])
    layer = DenseJacobianFree(program, 1.0, 0.1, 200)
    w = layer(y, Instance(h=h))
    for i in range(2):
        alone = DenseJacobianFree(Program(**{**_fields(program), "h": h[i].numpy()}), 1.0, 0.1, 200)
        torch.testing.assert_close(w[i], alone(y[i]), rtol=1e-4, atol=1e-5)
    with pytest.raises(ShapeError, match="b, h and d only"):
        layer(y, Instance(upper=torch.ones(2, 10)))
    with pytest.raises(ShapeError, match="no start"):
        layer(y, None, torch.zeros(2, 10))


def _fields(program: Program) -> dict[str, Any]:
    return {name: getattr(program, name) for name in ("A", "b", "G", "h", "upper", "S", "name")}


def test_the_dense_jacobian_free_layer_is_the_same_iteration() -> None:
    """On a program with equalities only and w ≥ 0, the dense system is the equality form."""
    problem = problem_named("SP-4", seed=1)
    program = Program(A=problem.program.A, b=problem.program.b, name="SP-4")
    ours, theirs = DavisYin(program, 0.7, 0.05, 80), DenseJacobianFree(program, 0.7, 0.05, 80)
    y, other = (costs_of("SP-4", 9, torch.float32).requires_grad_() for _ in range(2))
    w, wanted = ours(y), theirs(other)
    torch.testing.assert_close(w, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope(w, y), slope(wanted, other), rtol=1e-3, atol=1e-6)
