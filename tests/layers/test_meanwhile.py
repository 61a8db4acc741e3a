"""What happens between the way there and the way back changes no gradient: other parameters, and costs that are written to."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn import HiGHS, Program, Smoothed
from dflearn.layers import (
    AdaptiveImplicitMLE,
    BlackBox,
    CvxpySmoothed,
    DavisYin,
    ImplicitMLE,
    LogBarrier,
    NegativeIdentity,
    Perturbed,
)
from dflearn.layers.base import Layer
from dflearn.program import Instance

RNG = np.random.default_rng(0)
PROGRAM = Program(G=RNG.uniform(0.2, 1, (2, 6)), h=[1.2, 1.3], lower=0, upper=1, n=6)
R = RNG.normal(size=(6, 6))
CURVED = Program(G=PROGRAM.G, h=PROGRAM.h, lower=0, upper=1, n=6, Q=R.T @ R)
COSTS, GRADIENT = torch.tensor(-RNG.uniform(0.5, 1.5, (4, 6))), torch.tensor(RNG.normal(size=(4, 6)))
LAYERS: dict[str, Callable[[], Layer]] = {
    "squared": lambda: Smoothed(PROGRAM, 0.3),
    "norm": lambda: Smoothed(PROGRAM, 0.3, regularizer="norm"),
    "curved": lambda: Smoothed(CURVED, 0.3),
    "cvxpy": lambda: CvxpySmoothed(PROGRAM, 0.3),
    "cvxpy, norm": lambda: CvxpySmoothed(PROGRAM, 0.3, regularizer="norm"),
    "jfb": lambda: DavisYin(PROGRAM, 0.3),
    "unrolled": lambda: DavisYin(PROGRAM, 0.3, gradient="unrolled"),
    "implicit": lambda: DavisYin(PROGRAM, 0.3, gradient="implicit"),
    "barrier": lambda: LogBarrier(PROGRAM, 0.3),
    "black box": lambda: BlackBox(HiGHS(PROGRAM), 1.0),
    "identity": lambda: NegativeIdentity(HiGHS(PROGRAM), "std"),
    "implicit MLE": lambda: ImplicitMLE(HiGHS(PROGRAM), 1.0, 1.0, samples=3),
    "adaptive": lambda: AdaptiveImplicitMLE(HiGHS(PROGRAM), 1.0, samples=3),
    "perturbed": lambda: Perturbed(HiGHS(PROGRAM), 1.0, samples=5),
}


def slope(layer: Layer, meanwhile: Callable[[Tensor, Instance], None] | None = None, *, with_d: bool = False) -> Tensor:
    """The gradient in y of GRADIENTᵀ w, where `meanwhile` is called between the two ways."""
    leaf, instance = COSTS.clone().requires_grad_(), Instance(d=torch.full((4, 6), 0.1).double() if with_d else None)
    y = leaf * 1.0
    w = layer(y, instance)
    if meanwhile is not None:
        meanwhile(y, instance)
    return torch.autograd.grad(w, leaf, GRADIENT)[0]


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_of_the_way_there_count(name: str) -> None:
    layer = LAYERS[name]()
    expected = slope(copy.deepcopy(layer))

    def other(y: Tensor, instance: Instance) -> None:
        for number in layer.annealed:
            setattr(layer, number, 5 * getattr(layer, number))

    torch.testing.assert_close(slope(layer, other), expected, rtol=0, atol=0)


@pytest.mark.parametrize("with_d", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_costs_written_to_meanwhile_are_refused_or_do_not_matter(name: str, with_d: bool) -> None:
    layer = LAYERS[name]()
    expected = slope(copy.deepcopy(layer), with_d=with_d)

    def write(y: Tensor, instance: Instance) -> None:
        y.mul_(3.0).sub_(1.0)
        if instance.d is not None:
            instance.d.mul_(-20.0)

    try:
        found = slope(layer, write, with_d=with_d)
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017  # torch's own refusal
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["squared", "norm", "curved"])
def test_compiled_layers_keep_the_mu_of_the_way_there(name: str) -> None:
    layer = LAYERS[name]()
    assert isinstance(layer, Smoothed)
    y = COSTS.clone().requires_grad_()
    (expected,) = torch.autograd.grad(layer(y), y, GRADIENT)
    w = torch.compile(lambda t: layer(t), backend="aot_eager", fullgraph=True)(y)
    layer.mu = 1.5
    torch.testing.assert_close(torch.autograd.grad(w, y, GRADIENT)[0], expected)
