"""`Smoothed` over quadratic programs: against exact solves, closed forms, finite differences and cvxpylayers."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers import CvxpySmoothed, Smoothed
from dflearn.program import Instance, Program, Quadratic
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.testing.layers import check_layer
from dflearn.testing.optimality import check_optimal
from support import programs

PORTFOLIO = programs.portfolio()
Y = torch.randn(5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def curvature(program: Program, mu: float) -> np.ndarray:
    assert program.Q is not None
    return program.Q.matrix.toarray() + mu * np.eye(program.n)


def with_mu(program: Program, mu: float) -> Program:
    """The quadratic program that smoothing by μ makes of it."""
    assert program.Q is not None
    return replace(program.relax(), Q=Quadratic(program.Q.factor, program.Q.diagonal + mu))


@pytest.mark.parametrize("mu", [0.0, 1e-3, 1.0])
def test_the_contract(mu: float) -> None:
    check_layer(Smoothed(PORTFOLIO, mu), PORTFOLIO)
    if mu == 1:
        check_layer(Smoothed(programs.lots(), mu), programs.lots())


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("price", [1e-6, 1.0, 1e6])
def test_units(unit: float, price: float) -> None:
    """Decisions in one unit, costs in another: the same decision, and the same gradient."""
    plain = PORTFOLIO
    assert plain.Q is not None
    ratio = price / unit
    scaled = replace(
        plain,
        b=plain.b * unit,
        h=plain.h * unit,
        Q=Quadratic(plain.Q.factor * np.sqrt(ratio), plain.Q.diagonal * ratio),
    )
    for mu in (0.0, 0.1):
        found = Smoothed(scaled, mu * ratio).solve(Y * price)
        wanted = HiGHS(with_mu(plain, mu)).solve(Y).check((Status.OPTIMAL,))
        assert found.status.tolist() == [int(Status.OPTIMAL)] * len(Y)
        torch.testing.assert_close(found.decision / unit, wanted.decision, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(found.objective / (unit * price), wanted.objective, rtol=1e-9, atol=1e-12)
        check_optimal(found, Y * price, scaled, mu=mu * ratio)


def jacobian(layer: Smoothed, y: Tensor) -> np.ndarray:
    return torch.autograd.functional.jacobian(layer, y).numpy()


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_the_gradient_is_the_one_on_the_face(mu: float) -> None:
    """−Z(Zᵀ(Q + μI)Z)⁻¹ZᵀS with Z from a null space, written without the kernels."""
    layer = Smoothed(PORTFOLIO, mu)
    for y in Y:
        w = layer(y).numpy()
        rows = [np.ones(8), *np.eye(8)[w <= 1e-9]]
        if 0.5 - w[:3].sum() <= 1e-9:
            rows.append(PORTFOLIO.G.toarray()[0])
        Z = scipy.linalg.null_space(np.array(rows))
        inverse = Z @ np.linalg.inv(Z.T @ curvature(PORTFOLIO, mu) @ Z) @ Z.T
        np.testing.assert_allclose(jacobian(layer, y), inverse, rtol=1e-6, atol=1e-9)  # S = −I


def test_a_closed_form() -> None:
    """Without rows and bounds, w = −Q⁻¹ c; on a line, the projection in the norm of Q."""
    assert PORTFOLIO.Q is not None
    Q = PORTFOLIO.Q.matrix.toarray()
    free = Program(Q=Q, lower=-np.inf)
    np.testing.assert_allclose(Smoothed(free, 0.0)(Y), -Y.numpy() @ np.linalg.inv(Q), rtol=1e-8)
    line = Program(A=np.ones((1, 8)), b=[1], Q=Q, lower=-np.inf)
    inverse, one = np.linalg.inv(Q), np.ones(8)
    w = -Y.numpy() @ inverse
    wanted = w + (1 - w @ one)[:, None] * (inverse @ one) / (one @ inverse @ one)
    np.testing.assert_allclose(Smoothed(line, 0.0)(Y), wanted, rtol=1e-7)


def test_instances_starts_and_annealing() -> None:
    layer = Smoothed(PORTFOLIO, 0.2)
    generator = torch.Generator().manual_seed(1)
    upper = torch.rand(5, 8, generator=generator, dtype=torch.float64) * 0.5 + 0.2
    instance = Instance(
        upper=upper, b=torch.linspace(0.5, 1, 5, dtype=torch.float64)[:, None], h=torch.full((5, 1), 0.4), d=Y.flip(0)
    )
    wanted = HiGHS(with_mu(PORTFOLIO, 0.2)).solve(Y, instance).check((Status.OPTIMAL,))
    cold = layer.solve(Y, instance, layer.no_start(5))
    torch.testing.assert_close(cold.decision, wanted.decision, rtol=1e-7, atol=1e-9)
    warm = layer.solve(Y, instance, cold.start)
    torch.testing.assert_close(warm.decision, cold.decision, rtol=1e-8, atol=1e-10)
    layer.mu = 0.0
    torch.testing.assert_close(layer(Y), HiGHS(PORTFOLIO).solve(Y).decision, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(layer.solve(Y, instance, cold.start).decision, layer.solve(Y, instance).decision)
    copy = pickle.loads(pickle.dumps(layer))
    torch.testing.assert_close(copy(Y), layer(Y))
    assert layer(Y.float()).dtype == torch.float32
    broken = layer.solve(Y, Instance(b=torch.full((5, 1), -1.0)))
    assert broken.status.tolist() == [int(Status.INFEASIBLE)] * 5


def test_refusals() -> None:
    singular = Program(Q=Quadratic(np.ones((1, 3))), A=np.ones((1, 3)), b=[1])
    with pytest.raises(OptionError, match="Q is singular"):
        Smoothed(singular, 0.0)
    assert Smoothed(singular, 0.1)(torch.zeros(3, dtype=torch.float64)).sum() == pytest.approx(1)
    with pytest.raises(OptionError, match="regularizer='squared'"):
        Smoothed(PORTFOLIO, 1.0, regularizer="norm")
    with pytest.raises(OptionError, match="use Smoothed"):
        CvxpySmoothed(PORTFOLIO)
