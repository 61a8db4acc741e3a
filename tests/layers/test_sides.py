"""Gradients in right-hand sides and bounds: finite differences, prices by hand, dependent rows, predicted rows, cvxpylayers."""

from __future__ import annotations

from dataclasses import replace

import cvxpy
import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers import CvxpySmoothed, DavisYin, Exact, Smoothed
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS
from dflearn.testing.layers import check_layer
from support import programs

PORTFOLIO = programs.portfolio()
GENERATOR = torch.Generator().manual_seed(0)
Y = torch.randn(4, 8, generator=GENERATOR, dtype=torch.float64)


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


SIDES = {
    "b": torch.linspace(0.5, 1, 4, dtype=torch.float64)[:, None],
    "h": torch.full((4, 1), 0.3, dtype=torch.float64),
    "lower": -0.1 * rand(4, 8),
    "upper": 0.2 + 0.4 * rand(4, 8),
    "d": rand(4, 8),
}


@pytest.mark.parametrize(
    ("program", "mu"),
    [(replace(PORTFOLIO, Q=None), 0.5), (PORTFOLIO, 0.1), (PORTFOLIO, 0.0)],
    ids=["LP", "QP", "exact QP"],
)
def test_finite_differences(program: Program, mu: float) -> None:
    layer = Smoothed(program, mu)
    names = list(SIDES)

    def decide(y: Tensor, *sides: Tensor) -> Tensor:
        return layer(y, Instance(**dict(zip(names, sides, strict=True))))

    arguments = [value.clone().requires_grad_() for value in (Y, *SIDES.values())]
    assert torch.autograd.gradcheck(decide, arguments, eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_row_in_force_and_one_that_is_not(unit: float) -> None:
    """min ½μ‖w‖² over w_0 + w_1 = b, w_2 ≥ −h: w_0 = w_1 = b/2, and h changes nothing."""
    program = Program(A=[[unit, unit, 0]], b=[unit], G=[[0, 0, -1.0]], h=[1], lower=-np.inf)
    b, h = torch.tensor([unit], requires_grad=True), torch.tensor([1.0], requires_grad=True)
    w = Smoothed(program, 1.0)(torch.zeros(3, dtype=torch.float64), Instance(b=b.double(), h=h.double()))
    slope_b, slope_h = torch.autograd.grad(w @ torch.tensor([1.0, 0, 1], dtype=torch.float64), (b, h))
    assert float(slope_b) == pytest.approx(0.5 / unit)
    assert float(slope_h) == 0


def test_dependent_rows() -> None:
    """Rows that say the same twice: exact along directions that move both consistently."""
    A = np.array([[1.0, 1, 0], [2, 2, 0], [0, 0, 1]])
    layer = Smoothed(Program(A=A, b=A @ [1.0, 1, 1], lower=-np.inf), 1.0)
    y = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    direction, v = A @ np.array([0.7, 0.1, -0.4]), torch.tensor([1.0, 3, -2], dtype=torch.float64)
    b = torch.tensor(A @ np.ones(3), requires_grad=True)
    (slope,) = torch.autograd.grad(layer(y, Instance(b=b)) @ v, b)
    step = 1e-6
    ends = [layer(y, Instance(b=b.detach() + sign * step * torch.tensor(direction))) @ v for sign in (1, -1)]
    assert float(slope.numpy() @ direction) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_rows_that_depend_within_the_face() -> None:
    """Two inequalities in force that coincide once a variable is fixed."""
    program = Program(G=[[-1.0, -1, 0], [-1, -1, 1]], h=[-1, -1], upper=[np.inf, np.inf, 0])
    h = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    w = Smoothed(program, 1.0)(torch.ones(3, dtype=torch.float64), Instance(h=h))
    (slope,) = torch.autograd.grad(w.sum(), h)
    assert float(slope.sum()) == pytest.approx(-1)  # both right-hand sides down by one: one more to bring


def test_predicted_rows() -> None:
    program = programs.predicted_demand()
    y = rand(3, 5).requires_grad_()
    assert torch.autograd.gradcheck(Smoothed(program, 0.3), (y,), eps=1e-6, atol=1e-6)
    curved = replace(program, Q=np.eye(3) + 0.5 * np.ones((3, 3)))
    assert torch.autograd.gradcheck(Smoothed(curved, 0.0), (y,), eps=1e-6, atol=1e-6)
    check_layer(Smoothed(program, 0.3), program)
    exact = HiGHS(program).solve(y)
    torch.testing.assert_close(Exact(HiGHS(program))(y), exact.decision)
    assert bool(program.is_feasible(exact.decision, program.realize(y.detach())).all())
    for layer in (DavisYin(program, 0.3), CvxpySmoothed(program, 0.3)):
        with pytest.raises(OptionError, match="no gradient through those: use Smoothed, or DavisYin"):
            layer(y)
        assert layer(y.detach()).shape == (3, 3)


def test_refusals() -> None:
    program = replace(PORTFOLIO, Q=None)
    instance = Instance(b=SIDES["b"].clone().requires_grad_())
    with pytest.raises(OptionError, match="no gradient in the instance's b"):
        Smoothed(program, 0.5, regularizer="norm")(Y, instance)
    w = Smoothed(program, 0.5)(Y, instance)
    assert instance.b is not None
    (slope,) = torch.autograd.grad(w.square().sum(), instance.b, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(slope.sum(), instance.b)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # cvxpylayers copies tensors so
def test_against_cvxpylayers() -> None:
    from cvxpylayers.torch import CvxpyLayer

    w, c, b, h, u = cvxpy.Variable(8), cvxpy.Parameter(8), cvxpy.Parameter(1), cvxpy.Parameter(1), cvxpy.Parameter(8)
    rows = [cvxpy.sum(w) == b, w >= 0, w <= u, cvxpy.sum(w[:3]) <= h]
    problem = cvxpy.Problem(cvxpy.Minimize(c @ w + 0.25 * cvxpy.sum_squares(w)), rows)
    values = [Y[:2], SIDES["b"][:2], SIDES["h"][:2], SIDES["upper"][:2]]
    y, *sides = (value.clone().requires_grad_() for value in values)
    v = torch.linspace(-1, 2, 8, dtype=torch.float64)
    precise = {"solve_method": "Clarabel", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11)}
    (theirs,) = CvxpyLayer(problem, parameters=[c, b, h, u], variables=[w])(-y, *sides, solver_args=precise)
    ours = Smoothed(replace(PORTFOLIO, Q=None), 0.5)(y, Instance(**dict(zip(("b", "h", "upper"), sides, strict=True))))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    for one, other in zip(
        torch.autograd.grad((ours * v).sum(), (y, *sides)),
        torch.autograd.grad((theirs * v).sum(), (y, *sides)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
