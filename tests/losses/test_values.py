"""Every loss against its equation, written out in numpy over an enumerated feasible set, with S, d and instances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dflearn as dfl
from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers import BlackBox, Perturbed
from dflearn.layers.base import Exact
from dflearn.losses import (
    MSE,
    SCE,
    FenchelYoung,
    Loss,
    Regret,
    SmoothedSPOPlus,
    SPOPlus,
    SquaredDecisionError,
    TaskLoss,
)
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS
from support.closed_form_layers import SmoothedBox

N, P, COUNT, MU = 5, 3, 6, 0.7
RNG = np.random.RandomState(0)
S, D = RNG.normal(size=(N, P)), RNG.normal(size=N)
WEIGHTS = RNG.uniform(1, 3, N)
POINTS = np.array([w for w in itertools.product((0.0, 1.0), repeat=N) if WEIGHTS @ w <= 5])
KNAPSACK = Program(G=WEIGHTS[None], h=[5], upper=1, S=S, d=D, integer=True)
BOX = Program(lower=-0.5, upper=1, S=S, d=D)
Y, PREDICTED = RNG.normal(size=(COUNT, P)), RNG.normal(size=(COUNT, P))


def best(y: np.ndarray) -> np.ndarray:
    """The optimal decisions of the knapsack by enumeration.  `(count, p)` → `(count, n)`."""
    return POINTS[((y @ S.T + D) @ POINTS.T).argmin(1)]


def clipped(y: np.ndarray) -> np.ndarray:
    """The smoothed decisions of the box."""
    return np.clip(-(y @ S.T + D) / MU, -0.5, 1)


def obj(y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return ((y @ S.T + D) * w).sum(1)


def value_and_gradient(loss: Loss, decisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    predicted = torch.tensor(PREDICTED, requires_grad=True)
    batch = Batch(torch.zeros(COUNT, 1), torch.tensor(Y), torch.tensor(decisions))
    value = loss(predicted, batch)
    if not value.requires_grad:
        return value.numpy(), np.zeros_like(PREDICTED)
    value.sum().backward()
    return value.detach().numpy(), predicted.grad.numpy()


def test_mse_is_the_mean_over_coefficients_and_then_over_instances() -> None:
    value, gradient = value_and_gradient(MSE(), best(Y))
    np.testing.assert_allclose(value, ((PREDICTED - Y) ** 2).mean(1))
    np.testing.assert_allclose(gradient, 2 * (PREDICTED - Y) / P)
    np.testing.assert_allclose(value.mean(), nn.MSELoss()(torch.tensor(PREDICTED), torch.tensor(Y)).item())


def test_losses_through_an_exact_solver() -> None:
    layer, w, label, tilde = Exact(HiGHS(KNAPSACK)), best(PREDICTED), best(Y), best(2 * PREDICTED - Y)
    shifted = 2 * PREDICTED - Y
    regret = obj(Y, w) - obj(Y, label)
    plain = obj(PREDICTED, label) - obj(PREDICTED, w)
    spo_plus = obj(shifted, label) - obj(shifted, tilde)
    nothing, contrast, doubled = np.zeros_like(Y), (label - w) @ S, 2 * (label - tilde) @ S
    for loss, wanted, slope in (
        (Regret(layer), regret, nothing),
        (SquaredDecisionError(layer), ((label - w) ** 2).sum(1), nothing),
        (SquaredDecisionError(layer, reduction="mean"), ((label - w) ** 2).mean(1), nothing),
        (SCE(layer), plain + regret, contrast),
        (SCE(layer, label="smoothed"), plain + regret, contrast),
        (SCE(layer, variant="plain"), plain, contrast),
        (FenchelYoung(layer), plain, contrast),
        (SPOPlus(layer), spo_plus, doubled),
        (SmoothedSPOPlus(layer), spo_plus, doubled),
    ):
        value, gradient = value_and_gradient(loss, label)
        np.testing.assert_allclose(value, wanted, atol=1e-9, err_msg=repr(loss))
        np.testing.assert_allclose(gradient, slope, atol=1e-9, err_msg=repr(loss))


def test_losses_through_a_smoothed_layer() -> None:
    """Gradients by the formulas of the paper: direct part plus the layer's Jacobian, −1/μ where the clip is inactive."""
    layer, label, w = SmoothedBox(BOX, MU), best(Y), clipped(PREDICTED)
    shifted = 2 * PREDICTED - Y
    tilde = clipped(shifted)

    def pulled_back(at: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(∂w/∂y)ᵀ v at the decision `at`."""
        return -(v * ((at > -0.5) & (at < 1))) @ S / MU

    omega = lambda w: MU / 2 * (w**2).sum(1)  # noqa: E731
    c, c_predicted, c_shifted = (y @ S.T + D for y in (Y, PREDICTED, shifted))
    regret = obj(Y, w) - obj(Y, label)
    plain = obj(PREDICTED, label) - obj(PREDICTED, w)
    own = clipped(Y)
    own_plain, to_own = obj(PREDICTED, own) - obj(PREDICTED, w), (own - w) @ S
    spo_plus, own_spo_plus = (obj(shifted, one) - obj(shifted, tilde) for one in (label, own))
    for loss, wanted, slope in (
        (Regret(layer), regret, pulled_back(w, c)),
        (SquaredDecisionError(layer), ((label - w) ** 2).sum(1), 2 * pulled_back(w, w - label)),
        (SquaredDecisionError(layer, reduction="mean"), ((label - w) ** 2).mean(1), 2 * pulled_back(w, w - label) / N),
        (SCE(layer), plain + regret, (label - w) @ S + pulled_back(w, c - c_predicted)),
        (SCE(layer, variant="plain"), plain, (label - w) @ S - pulled_back(w, c_predicted)),
        (
            SCE(layer, label="smoothed"),
            ((c_predicted - c) * (own - w)).sum(1),
            to_own + pulled_back(w, c - c_predicted),
        ),
        (SCE(layer, variant="plain", label="smoothed"), own_plain, to_own - pulled_back(w, c_predicted)),
        (SPOPlus(layer), spo_plus, 2 * (label - tilde) @ S - 2 * pulled_back(tilde, c_shifted)),
        (FenchelYoung(layer), plain + omega(label) - omega(w), (label - w) @ S),
        (SmoothedSPOPlus(layer, label="exact"), spo_plus + omega(label) - omega(tilde), 2 * (label - tilde) @ S),
        (SmoothedSPOPlus(layer), own_spo_plus + omega(own) - omega(tilde), 2 * (own - tilde) @ S),
        (FenchelYoung(layer, label="smoothed"), own_plain + omega(own) - omega(w), to_own),
    ):
        value, gradient = value_and_gradient(loss, label)
        np.testing.assert_allclose(value, wanted, atol=1e-9, err_msg=repr(loss))
        np.testing.assert_allclose(gradient, slope, atol=1e-9, err_msg=repr(loss))


def test_perturbed_fenchel_young() -> None:
    """The average over the noise of obj(ŷ + σZ, w* − w), w optimal under the noise; gradient Sᵀ(w* − mean w)."""
    sigma, samples, label = 0.5, 4, best(Y)
    layer = Perturbed(HiGHS(KNAPSACK), sigma, samples, torch.Generator().manual_seed(7))
    value, gradient = value_and_gradient(FenchelYoung(layer), label)
    noise = torch.randn(COUNT, samples, P, generator=torch.Generator().manual_seed(7), dtype=torch.float64).numpy()
    noisy = PREDICTED[:, None] + sigma * noise
    w = best(noisy.reshape(-1, P))
    optimum = obj(noisy.reshape(-1, P), w).reshape(COUNT, samples).mean(1)
    np.testing.assert_allclose(value, obj(PREDICTED, label) - optimum, atol=1e-9)
    np.testing.assert_allclose(gradient, (label - w.reshape(COUNT, samples, N).mean(1)) @ S, atol=1e-9)


@pytest.mark.parametrize(
    ("variant", "label", "needs"),
    [
        ("shifted", "exact", {"costs", "decisions"}),
        ("shifted", "smoothed", {"costs"}),
        ("plain", "exact", {"decisions"}),
        ("plain", "smoothed", {"costs"}),
    ],
)
def test_sce_needs_what_its_equation_holds(variant: str, label: str, needs: set[str]) -> None:
    loss = SCE(SmoothedBox(BOX, MU), variant=variant, label=label)
    assert set(loss.needs) == needs
    held = {"costs": torch.tensor(Y), "decisions": torch.tensor(clipped(Y))}
    batch = Batch(torch.zeros(COUNT, 1), **{name: value for name, value in held.items() if name in needs})
    assert loss(torch.tensor(PREDICTED), batch).shape == (COUNT,)


def test_fenchel_young_is_differentiable_in_the_label() -> None:
    """obj(ŷ, w*) + Ω(w*) is all that holds w*: its gradient is S ŷ + d + μ w*."""
    label = torch.tensor(clipped(Y), requires_grad=True)
    batch = Batch(torch.zeros(COUNT, 1), torch.tensor(Y), label)
    value = FenchelYoung(SmoothedBox(BOX, MU))(torch.tensor(PREDICTED), batch)
    (gradient,) = torch.autograd.grad(value.sum(), label)
    np.testing.assert_allclose(gradient.numpy(), PREDICTED @ S.T + D + MU * clipped(Y), atol=1e-12)
    fixed = Batch(torch.zeros(COUNT, 1), torch.tensor(Y), label.detach())
    torch.testing.assert_close(value.detach(), FenchelYoung(SmoothedBox(BOX, MU))(torch.tensor(PREDICTED), fixed))


def test_an_instance_replaces_d_and_bounds() -> None:
    """Losses see the instance's own d and upper bounds, both in the decision and in the objective."""
    d, upper = RNG.normal(size=(COUNT, N)), RNG.uniform(0.2, 2, (COUNT, N))
    instance = Instance(d=torch.tensor(d), upper=torch.tensor(upper))
    label = np.where(Y @ S.T + d < 0, upper, -0.5)
    batch = Batch(torch.zeros(COUNT, 1), torch.tensor(Y), torch.tensor(label), instance)
    predicted = torch.tensor(PREDICTED)
    c, c_predicted = Y @ S.T + d, PREDICTED @ S.T + d
    w = np.where(c_predicted < 0, upper, -0.5)
    exact = Exact(HiGHS(BOX))
    close = lambda value, wanted: np.testing.assert_allclose(value.numpy(), wanted, atol=1e-9)  # noqa: E731
    close(Regret(exact)(predicted, batch), (c * (w - label)).sum(1))
    close(SCE(exact)(predicted, batch), ((c_predicted - c) * (label - w)).sum(1))
    c_shifted = 2 * c_predicted - c
    tilde = np.where(c_shifted < 0, upper, -0.5)
    close(SPOPlus(exact)(predicted, batch), (c_shifted * (label - tilde)).sum(1))
    smoothed = np.clip(-c_predicted / MU, -0.5, upper)
    wanted = (c_predicted * (label - smoothed)).sum(1) + MU / 2 * (label**2 - smoothed**2).sum(1)
    close(FenchelYoung(SmoothedBox(BOX, MU))(predicted, batch), wanted)


LEARNED = {"h": [1.8], "b": [1.0], "upper": [1.0, 1, 1], "q": [0.1, 0.1, 0.1]}


@pytest.mark.parametrize("field", LEARNED)
def test_gradients_in_an_instance_are_right_or_refused(field: str) -> None:
    """Whether a loss gives them is known; whoever gives them not says so."""
    program = dfl.Program(A=[[1.0, 1, 1]], b=[1.0], G=[[1.0, 2, 3]], h=[1.8], upper=1)
    y = torch.tensor([[1.0, 0.5, 0.2]], dtype=torch.float64)
    exact, smoothed = dfl.Exact(dfl.HiGHS(program)), dfl.Smoothed(program, 0.5)
    label = exact(y)

    def value(loss: Loss, part: Tensor) -> Tensor:
        return loss(1.3 * y, Batch(torch.zeros(1, 1), y, label, dfl.Instance(**{field: part}))).sum()

    learned = torch.tensor([LEARNED[field]], dtype=torch.float64, requires_grad=True)
    for loss in (SCE(smoothed), Regret(smoothed), SPOPlus(smoothed), TaskLoss(smoothed), MSE() + SCE(smoothed)):
        assert torch.autograd.gradcheck(lambda part, loss=loss: value(loss, part), learned, atol=1e-5)
    for loss in (FenchelYoung(smoothed), SmoothedSPOPlus(smoothed), SPOPlus(exact), MSE() + SPOPlus(exact)):
        with pytest.raises(OptionError, match=f"no gradient in the instance's {field}"):
            value(loss, learned)
        value(loss, learned.detach())
    for layer in (Perturbed(exact.solver, 0.5, samples=2), BlackBox(exact.solver, 0.5)):
        with pytest.raises(OptionError, match=f"no gradient in the instance's {field}"):
            layer(y, dfl.Instance(**{field: learned}))


def test_a_large_known_part_swallows_no_prediction_in_single_precision() -> None:
    program = dfl.Program(A=np.ones((1, 3)), b=[1.0], upper=1, d=np.full(3, 1e6))
    y = torch.tensor([[0.3, 0.1, 0.2]])
    layer = dfl.Smoothed(program, 0.2)
    torch.testing.assert_close(layer(y), torch.tensor([[0.0, 0.75, 0.25]]), atol=1e-6, rtol=0)
    batch = Batch(torch.zeros(1, 1), y, torch.tensor([[0.0, 1, 0]]))
    exact = FenchelYoung(layer)(y.double(), batch.to(torch.float64))
    torch.testing.assert_close(FenchelYoung(layer)(y, batch).double(), exact, atol=1e-6, rtol=0)
