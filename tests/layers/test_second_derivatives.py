"""Second derivatives: those of finite differences of gradients, or an error; never a silent zero."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, pi, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian

from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers import CvxpySmoothed, DavisYin, Exact, Layer, Perturbed, Smoothed
from dflearn.losses import SCE, CaVE, FenchelYoung, Loss, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS

RNG = np.random.RandomState(3)
PROGRAM = Program(
    A=RNG.uniform(0.5, 1.5, (1, 6)), b=[3.0], G=RNG.uniform(0, 1, (2, 6)), h=[2.0, 1.5], upper=1.5,
    S=RNG.normal(size=(6, 4)), d=RNG.normal(size=6),
)  # fmt: skip
Y = torch.tensor(RNG.normal(size=(3, 4)))
LABEL = Exact(HiGHS(PROGRAM))(torch.tensor(RNG.normal(size=(3, 4))))
WEIGHT = torch.tensor(RNG.normal(size=(3, 6)))

LAYERS: dict[str, Callable[[], Layer]] = {
    "squared": lambda: Smoothed(PROGRAM, 0.7),
    "norm": lambda: Smoothed(PROGRAM, 4.0, regularizer="norm"),
    "implicit": lambda: DavisYin(PROGRAM, 0.7, iterations=20_000, tolerance=1e-12, gradient="implicit"),
    "cvxpy": lambda: CvxpySmoothed(PROGRAM, 0.7),
}
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda w: (WEIGHT * w).sum(),
    "square": lambda w: (WEIGHT * w.square()).sum(),
    "wavy": lambda w: (WEIGHT * w.sin()).sum(),
}
LOSSES: dict[str, Callable[[Layer], Loss]] = {
    "FenchelYoung": FenchelYoung,
    "SmoothedSPOPlus": SmoothedSPOPlus,
    "SPOPlus": SPOPlus,
    "SCE": SCE,
    "Regret": Regret,
    "SquaredDecisionError": SquaredDecisionError,
}


def differences(function: Callable[[Tensor], Tensor], y: Tensor, step: float) -> Tensor:
    """The Hessian `(size, size)` by central differences of gradients."""

    def slope(at: Tensor) -> Tensor:
        leaf = at.clone().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf)[0].reshape(-1)

    rows = []
    for i in range(y.numel()):
        e = torch.zeros(y.numel(), dtype=y.dtype)
        e[i] = step
        rows.append((slope(y + e.reshape(y.shape)) - slope(y - e.reshape(y.shape))) / (2 * step))
    return torch.stack(rows, 1)


def check(function: Callable[[Tensor], Tensor], tolerance: float = 1e-5, step: float = 1e-5) -> Tensor:
    wanted = differences(function, Y, step)
    got = hessian(function, Y).reshape(wanted.shape)
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance * max(1.0, float(wanted.abs().max())))
    return got


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_of_a_layer(layer: str, function: str) -> None:
    made = LAYERS[layer]()
    accuracy = (1e-2, 1e-3) if layer == "cvxpy" else (1e-5, 1e-5)
    found = check(lambda y: FUNCTIONS[function](made(y)), *accuracy)
    zero = function == "linear" and layer != "norm"  # a linear function of what is linear on a face
    assert bool((found.abs().max() < 1e-8) == zero)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layer", ["squared", "norm"])
def test_of_a_loss(layer: str, loss: str) -> None:
    made = LOSSES[loss](LAYERS[layer]())
    batch = Batch(features=Y, costs=Y.flip(0), decisions=LABEL)
    found = check(lambda y: made(y, batch).sum())
    assert (found.abs().max() > 1e-3) or (loss == "Regret" and layer == "squared")


def test_the_hessian_of_fenchel_young_is_the_jacobian_of_the_layer() -> None:
    layer = Smoothed(PROGRAM, 0.7)
    loss = FenchelYoung(layer)
    found = hessian(lambda y: loss(y, Batch(features=Y[:1], decisions=LABEL[:1])).sum(), Y[:1]).reshape(4, 4)
    jacobian = torch.autograd.functional.jacobian(lambda y: layer(y), Y[:1]).reshape(6, 4)
    wanted = -torch.tensor(PROGRAM.S.toarray()).T @ jacobian
    torch.testing.assert_close(found, wanted)
    assert bool((torch.linalg.eigvalsh(found) > -1e-12).all())


def test_the_norm_where_the_decision_is_zero() -> None:
    layer = Smoothed(Program(upper=1, n=2), 5.0, regularizer="norm")
    y = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    assert float(layer(y).norm()) < 1e-12
    assert float(hessian(lambda at: layer(at).sum(), y).abs().max()) < 1e-9


REFUSED: dict[str, Callable[[], Layer]] = {
    "jfb": lambda: DavisYin(PROGRAM, 0.7),
    "unrolled": lambda: DavisYin(PROGRAM, 0.7, gradient="unrolled"),
    "cvxpy, norm": lambda: CvxpySmoothed(PROGRAM, 0.7, regularizer="norm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_there_is_none_asking_is_an_error(name: str) -> None:
    layer = REFUSED[name]()
    y = Y.clone().requires_grad_()
    (plain,) = torch.autograd.grad(FUNCTIONS["linear"](layer(y)), y)
    (first,) = torch.autograd.grad(FUNCTIONS["linear"](layer(y)), y, create_graph=True)  # which alone is no error
    torch.testing.assert_close(first, plain)
    for function in FUNCTIONS.values():
        with pytest.raises(OptionError, match="has no second derivatives: use"):
            hessian(lambda y: function(layer(y)), Y)  # noqa: B023


def test_fenchel_young_needs_first_derivatives_of_the_layer_alone() -> None:
    layer = DavisYin(PROGRAM, 0.7, 0.5, 30, gradient="unrolled")
    loss, batch = FenchelYoung(layer), Batch(features=Y, decisions=LABEL)
    check(lambda y: loss(y, batch).sum())


def test_cave_holds_its_projection_fixed_and_says_so() -> None:
    loss, batch = CaVE(PROGRAM), Batch(features=Y, decisions=LABEL)
    with pytest.raises(OptionError, match="CaVE has no second derivatives"):
        hessian(lambda y: loss(y, batch).sum(), Y)


# -- Perturbed ----------------------------------------------------------------------------------------------------------


SIGN = from_callable(lambda c: (c < 0).astype(float), 1, batched=True, name="sign")


def test_perturbed_by_closed_form() -> None:
    """w* = 1 where the cost is negative, so w_σ(y) = Φ(−y/σ); and (w_σ²)'' = 2 w' w' + 2 w w''."""
    y, sigma, samples = 0.4, 0.8, 400_000
    layer = Perturbed(SIGN, sigma, samples, generator=1)
    at = torch.tensor([[y]], dtype=torch.float64)
    density = exp(-((y / sigma) ** 2) / 2) / sqrt(2 * pi) / sigma
    assert float(layer(at)) == pytest.approx((1 - erf(y / sigma / sqrt(2))) / 2, abs=0.005)
    assert float(hessian(lambda x: layer(x).sum(), at)) == pytest.approx(density * y / sigma**2, abs=0.02)
    batch = Batch(features=at, decisions=torch.ones(1, 1, dtype=torch.float64))
    loss = FenchelYoung(layer)
    assert float(hessian(lambda x: loss(x, batch).sum(), at)) == pytest.approx(density, abs=0.01)
    w, slope, curve = (1 - erf(y / sigma / sqrt(2))) / 2, -density, density * y / sigma**2
    found = float(hessian(lambda x: layer(x).square().sum(), at))
    assert found == pytest.approx(2 * slope**2 + 2 * w * curve, abs=0.03)


def test_perturbed_has_no_third_derivatives() -> None:
    layer = Perturbed(HiGHS(PROGRAM), 0.5, 3)
    y = Y.clone().requires_grad_()
    (first,) = torch.autograd.grad(FUNCTIONS["square"](layer(y)), y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), y, create_graph=True)
    with pytest.raises(OptionError, match="no third derivatives"):
        second.sum().backward()
