"""`DavisYin` with a quadratic objective: against `Smoothed`, Clarabel and differences."""

from __future__ import annotations

import pickle
from dataclasses import replace

import cvxpy
import numpy as np
import pytest
import torch

from dflearn.errors import OptionError
from dflearn.layers import DavisYin, Smoothed
from dflearn.program import Program, Quadratic
from dflearn.solvers.base import Status
from dflearn.testing.layers import check_layer
from support import programs

pytestmark = pytest.mark.xdist_group("davis_yin")  # kernels are compiled once

PORTFOLIO = programs.portfolio()
Y = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_the_limit_is_the_quadratic_program(mu: float) -> None:
    """Against `Smoothed` and, through CVXPY, Clarabel; the implicit gradient is that of `Smoothed` and of differences."""
    layer = DavisYin(PORTFOLIO, mu, iterations=20_000, tolerance=1e-12, gradient="implicit")
    found = layer.solve(Y)
    assert found.status.tolist() == [int(Status.OPTIMAL)] * len(Y)
    exact = Smoothed(PORTFOLIO, mu)
    torch.testing.assert_close(found.decision, exact(Y), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.objective, exact.solve(Y).objective, rtol=1e-9, atol=1e-10)
    assert PORTFOLIO.Q is not None
    for i, c in enumerate(PORTFOLIO.objective.vector(Y).numpy()):
        w = cvxpy.Variable(8)
        rows = [PORTFOLIO.A @ w == PORTFOLIO.b, PORTFOLIO.G @ w <= PORTFOLIO.h, w >= PORTFOLIO.lower]
        whole = PORTFOLIO.Q.matrix.toarray() + mu * np.eye(8)
        cvxpy.Problem(cvxpy.Minimize(c @ w + 0.5 * cvxpy.quad_form(w, whole)), rows).solve(solver="CLARABEL")
        torch.testing.assert_close(found.decision[i], torch.tensor(w.value), rtol=1e-5, atol=1e-6)
    ours, theirs = (torch.autograd.functional.jacobian(one, Y[:2]) for one in (layer, exact))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    assert torch.autograd.gradcheck(layer, (Y[:2].clone().requires_grad_(),), eps=1e-5, atol=1e-4)


def test_the_contract() -> None:
    for options in ({"gradient": "implicit"}, {"tolerance": 1e-9, "iterations": 20_000}):
        layer = DavisYin(PORTFOLIO, 0.5, **{"iterations": 3000, **options})  # type: ignore[arg-type]
        check_layer(layer, PORTFOLIO, detects_infeasible="tolerance" in options)


def test_singular_curvature_needs_no_smoothing_in_the_iteration() -> None:
    """Q of rank one with μ = 0: an optimal value as Clarabel's, and unbounded where Q does not stop the decision."""
    R = np.array([[1.0, 1.0, 0.0]])
    boxed = Program(Q=Quadratic(R), upper=2.0, n=3)
    y = torch.tensor([[-1.0, -2.0, -3.0], [1.0, -0.5, 1.0]], dtype=torch.float64)
    found = DavisYin(boxed, 0.0, iterations=5000, tolerance=1e-10).solve(y)
    wanted = torch.tensor([-6.0 - 2.0, -0.125], dtype=torch.float64)
    torch.testing.assert_close(found.objective, wanted)
    free = DavisYin(replace(boxed, upper=np.inf), 0.0, iterations=500, tolerance=1e-8).solve(y)
    assert [Status(code) for code in free.status.tolist()] == [Status.UNBOUNDED, Status.OPTIMAL]
    with pytest.raises(OptionError, match="Q is singular"):
        DavisYin(boxed, 0.0, gradient="implicit")


def test_refusals_and_copies() -> None:
    assert PORTFOLIO.Q is not None
    bend = float(np.linalg.eigvalsh(PORTFOLIO.Q.matrix.toarray())[-1])
    with pytest.raises(OptionError, match=r"2/\(‖Q‖ \+ μ\)"):
        DavisYin(PORTFOLIO, 0.1, 2.001 / (bend + 0.1))
    layer = DavisYin(PORTFOLIO, 0.1, 1.999 / (bend + 0.1), gradient="implicit")
    layer(Y[:1])
    layer.mu = 0.05
    assert torch.equal(pickle.loads(pickle.dumps(layer))(Y), layer(Y))
    assert layer(Y[:0]).shape == (0, 8)
    single = layer(Y.float().requires_grad_())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), layer(Y), rtol=1e-3, atol=1e-4)


def test_the_largest_eigenvalue() -> None:
    rng = np.random.default_rng(0)
    R, diagonal = rng.normal(size=(4, 1200)), rng.uniform(0, 1, 1200)
    wanted = np.linalg.eigvalsh(R.T @ R + np.diag(diagonal))[-1]
    assert Quadratic(R, diagonal).norm == pytest.approx(wanted, rel=1e-9)
    assert Quadratic(R[:, :9], diagonal[:9]).norm == pytest.approx(
        np.linalg.eigvalsh(R[:, :9].T @ R[:, :9] + np.diag(diagonal[:9]))[-1]
    )
    assert Quadratic(diagonal=diagonal).norm == diagonal.max()
