"""BlackBox, NegativeIdentity, ImplicitMLE, AdaptiveImplicitMLE and the multiplicative Perturbed against their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import OptionError
from dflearn.layers import AdaptiveImplicitMLE, BlackBox, Exact, ImplicitMLE, NegativeIdentity, Perturbed
from dflearn.layers.base import Layer
from dflearn.layers.gradient_rules import draw
from dflearn.program import Instance, Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS

N = 4
DTYPE = {"dtype": torch.float64}


def box_solver(n: int = N, **options: Any) -> Any:
    """min cᵀw over 0 ≤ w ≤ 1: w_j = 1 where c_j < 0."""
    return from_callable(lambda c: (c < 0).astype(float), n=n, **options)


def choice_solver(n: int, sense: str) -> Any:
    """One of n items: the best one."""
    S = -np.eye(n) if sense == "maximize" else None
    return from_callable(lambda c: np.eye(n)[c.argmin()], n=n, S=S, sense=sense)


def gradient(layer: Layer, y: Tensor, g: Tensor, instance: Instance | None = None) -> Tensor:
    leaf = y.clone().requires_grad_()
    (slope,) = torch.autograd.grad(layer(leaf, instance), leaf, g)
    return slope


Y = torch.tensor([[-0.5, 0.3, 1.0, -2.0], [0.1, 0.2, -0.3, 4.0]], **DTYPE)
G = torch.tensor([[1.0, -1.0, -2.0, 0.5], [-1.0, 1.0, 2.0, -0.1]], **DTYPE)


# -- black box ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.2, 1.0, 10.0])
def test_black_box_in_closed_form(step: float) -> None:
    """On a box, w_j changes where c_j and c_j + λ g_j differ in sign."""
    wanted = ((Y + step * G < 0).double() - (Y < 0).double()) / step
    torch.testing.assert_close(gradient(BlackBox(box_solver(), step), Y, G), wanted)


def test_black_box_with_known_parts() -> None:
    """c = S y + d, with d of the program and of the instance: the step is taken in c, which no y may reach."""
    S, d = np.array([[1.0, 0], [0.5, -1], [0, 2], [0, 0]]), np.array([0.1, 0.0, -0.2, -0.3])
    solver = HiGHS(Program(upper=1, n=N, S=S, d=d))
    y, matrix = torch.tensor([[0.4, -0.3], [1.0, 0.5]], **DTYPE), torch.tensor(S)
    for instance in (None, Instance(d=torch.tensor([[0.2, 0.1, 0, -1], [0.3, -2, 0, 0.4]], **DTYPE))):
        known = torch.tensor(d) if instance is None or instance.d is None else instance.d
        c = y @ matrix.T + known
        wanted = ((c + 2 * G < 0).double() - (c < 0).double()) / 2 @ matrix
        torch.testing.assert_close(gradient(BlackBox(solver, 2.0), y, G, instance), wanted)


def test_black_box_is_the_slope_of_an_interpolation() -> None:
    """gᵀ times the gradient is (f(c + λg) − f(c))/λ, f = gᵀw*: never positive, since w* minimizes."""
    y = torch.randn(50, N, generator=torch.Generator().manual_seed(0), **DTYPE)
    g = torch.randn(50, N, generator=torch.Generator().manual_seed(1), **DTYPE)
    along = (gradient(BlackBox(box_solver(), 1.0), y, g) * g).sum(-1)
    assert bool((along <= 0).all())
    assert bool((along < 0).any())


# -- negative identity ----------------------------------------------------------------------------------------------------

PROJECTIONS = {
    "none": lambda c: c,
    "mean": lambda c: c - c.mean(-1, keepdim=True),
    "norm": lambda c: c / c.norm(dim=-1, keepdim=True),
    "std": lambda c: (c - c.mean(-1, keepdim=True)) / (c - c.mean(-1, keepdim=True)).norm(dim=-1, keepdim=True),
}


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_negative_identity_is_that_of_the_projected_costs(projection: Any) -> None:
    """−Jᵀ g, with J by torch's own differentiation of the projection."""
    leaf = Y.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(PROJECTIONS[projection](leaf), leaf, -G)
    layer = NegativeIdentity(box_solver(), projection)
    torch.testing.assert_close(gradient(layer, Y, G), wanted)
    torch.testing.assert_close(layer(Y), Exact(box_solver())(Y))


def test_costs_that_are_all_equal_have_a_finite_gradient() -> None:
    slope = gradient(NegativeIdentity(box_solver(), "std"), torch.ones(1, N, **DTYPE), G[:1])
    assert bool(slope.isfinite().all())


# -- implicit MLE -----------------------------------------------------------------------------------------------------------


def test_without_noise_implicit_mle_is_the_black_box() -> None:
    layer = ImplicitMLE(box_solver(), sigma=1e-12, step=1.5, samples=2)
    torch.testing.assert_close(gradient(layer, Y, G), gradient(BlackBox(box_solver(), 1.5), Y, G))


@pytest.mark.parametrize("two_sided", [False, True])
def test_implicit_mle_in_closed_form(two_sided: bool) -> None:
    """On a box with Gaussian noise, w̄ → Φ(−c/σ): the gradient is a difference of Φ."""
    count, sigma, step = 20_000, 0.8, 1.3
    phi = torch.special.ndtr
    forward = phi(-(Y[0] + step * G[0]) / sigma)
    back = phi(-(Y[0] - step * G[0]) / sigma) if two_sided else phi(-Y[0] / sigma)
    wanted = (forward - back) / (step * (1 + two_sided))
    layer = ImplicitMLE(box_solver(), sigma, step, 2, 1, noise="gaussian", two_sided=two_sided)
    slope = gradient(layer, Y[:1].expand(count, N), G[:1].expand(count, N))
    error = slope.std(0) / math.sqrt(count)
    assert bool(((slope.mean(0) - wanted).abs() <= 4.5 * error + 1e-12).all())


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_gumbel_noise_on_a_choice_is_a_softmax(sense: str) -> None:
    count, sigma = 20_000, 0.7
    y = torch.tensor([0.3, -0.2, 0.9], **DTYPE)
    layer = ImplicitMLE(choice_solver(3, sense), sigma, samples=2, noise="gumbel", generator=3)
    w = layer(y.expand(count, 3))
    wanted = torch.softmax((y if sense == "maximize" else -y) / sigma, -1)
    error = w.std(0) / math.sqrt(count)
    assert bool(((w.mean(0) - wanted).abs() <= 4.5 * error).all())


@pytest.mark.parametrize(
    ("noise", "mean", "variance"),
    [
        ("gaussian", 0.0, 1.0),
        ("gumbel", 0.5772156649, math.pi**2 / 6),
        # Σ 1/i − log s and Σ 1/i² over the ten terms; over infinitely many they are the Gumbel's.
        (
            "sum-of-gamma",
            (sum(1 / i for i in range(1, 11)) - math.log(10)) / 3,
            sum(1 / i**2 for i in range(1, 11)) / 3,
        ),
    ],
)
def test_moments_of_the_noise(noise: Any, mean: float, variance: float) -> None:
    count = 200_000
    z = draw(noise, torch.zeros(1, **DTYPE), (count,), torch.Generator().manual_seed(0), 3.0)
    assert abs(float(z.mean()) - mean) <= 4.5 * math.sqrt(variance / count)
    assert float(z.var()) == pytest.approx(variance, rel=0.03)


def test_the_adaptive_step() -> None:
    """λ = α‖c‖/‖g‖; α goes up while gradients are sparser than the target, and down after."""
    layer = AdaptiveImplicitMLE(box_solver(), sigma=1e-12, target=1.5, rate=0.25)
    step = float(Y.norm() / G.norm())
    torch.testing.assert_close(gradient(layer, Y, G), gradient(BlackBox(box_solver(), step), Y, G))
    found = int((gradient(BlackBox(box_solver(), step), Y, G) != 0).sum()) / 2
    assert layer.nonzeros == pytest.approx(0.9 * 1.5 + 0.1 * found)
    assert layer.alpha == (1.25 if layer.nonzeros < 1.5 else 0.75)


def test_adaptive_gradients_have_the_scale_of_what_arrives() -> None:
    """λ ‖g‖ does not depend on the size of g, so the gradient is proportional to it."""
    small, large = (gradient(AdaptiveImplicitMLE(box_solver(), 0.3, 4, 5), Y, size * G) / size for size in (1e-4, 1e3))
    torch.testing.assert_close(small, large)
    assert not gradient(AdaptiveImplicitMLE(box_solver()), Y, 0 * G).any()


# -- multiplicative noise -----------------------------------------------------------------------------------------------


def test_multiplicative_noise_keeps_signs() -> None:
    layer = Perturbed(box_solver(), 2.0, 20, multiplicative=True)
    torch.testing.assert_close(layer(Y), (Y < 0).double())
    zero = torch.zeros(1, N, **DTYPE)
    assert not gradient(layer, zero, G[:1]).any()


def test_multiplicative_estimates_are_unbiased() -> None:
    """One of two items: item 0 where y₀η₀ < y₁η₁, of probability Φ(log(y₁/y₀)/(σ√2)) =: Φ(t), and slope φ(t)·dt/dy."""
    count, sigma = 20_000, 0.6
    y0 = torch.tensor([1.0, 1.3], **DTYPE)
    layer = Perturbed(choice_solver(2, "minimize"), sigma, 3, 1, multiplicative=True)
    y = y0.expand(count, 2).clone().requires_grad_()
    solution = layer.solve(y)
    (slope,) = torch.autograd.grad(solution.decision[:, 0].sum(), y)
    t = math.log(1.3) / (sigma * math.sqrt(2))
    density = math.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) / (sigma * math.sqrt(2))
    probability = float(torch.special.ndtr(torch.tensor(t, **DTYPE)))
    for sample, wanted in (
        (solution.decision.detach(), torch.tensor([probability, 1 - probability], **DTYPE)),
        (slope, density * torch.tensor([-1.0, 1 / 1.3], **DTYPE)),
    ):
        error = sample.std(0) / math.sqrt(count)
        assert bool(((sample.mean(0) - wanted).abs() <= 4.5 * error).all())


def test_the_slope_is_that_of_the_multiplicative_optimum() -> None:
    """mean of min over w of (y ⊙ η)ᵀw at one draw of η: differences of it give `slope`."""
    layer = Perturbed(box_solver(S=np.array([[1.0, 0], [0.5, -1], [0, 2], [1, 1]])), 0.5, 8, multiplicative=True)
    y, state = torch.tensor([[0.4, -0.7]], **DTYPE), layer.state_dict()

    def solved(y: Tensor) -> Any:
        layer.load_state_dict(state)
        return layer.solve(y)

    for j in range(2):
        shift = torch.zeros(1, 2, **DTYPE)
        shift[0, j] = 1e-6
        difference = (solved(y + shift).objective - solved(y - shift).objective) / 2e-6
        assert float(difference) == pytest.approx(float(solved(y).slope[0, j]), abs=1e-6)


# -- in training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlackBox(box_solver(), 0.0), "a finite step > 0"),
        (lambda: NegativeIdentity(box_solver(), "sum"), "'norm' or 'std'"),  # type: ignore[arg-type]
        (lambda: ImplicitMLE(box_solver(), step=-1.0), "a finite step > 0"),
        (lambda: ImplicitMLE(box_solver(), noise="cauchy"), "'gumbel'"),  # type: ignore[arg-type]
        (lambda: ImplicitMLE(box_solver(), kappa=0), "a finite kappa > 0"),
        (lambda: AdaptiveImplicitMLE(box_solver(), target=0), "target > 0"),
        (lambda: AdaptiveImplicitMLE(box_solver(), samples=0), "samples >= 1"),
    ],
)
def test_arguments(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_second_derivatives_are_refused() -> None:
    for layer in (BlackBox(box_solver()), NegativeIdentity(box_solver()), ImplicitMLE(box_solver())):
        leaf = Y.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(leaf).square().sum(), leaf, create_graph=True)
        with pytest.raises(OptionError, match="no second derivatives"):
            slope.sum().backward()
