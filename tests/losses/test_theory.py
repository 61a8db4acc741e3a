"""What the paper proves about SCE, SPO+ and the regret, and where its text slips.

The feasible sets are small enough to list all their points, so every claim about "all w in F" is checked on all of them.
N(w*) = {v : vᵀ(w − w*) ≥ 0 for all w in F} are the costs under which w* is optimal.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from dflearn.data import Batch
from dflearn.layers.base import Exact, Layer
from dflearn.losses import SCE, Loss, Regret, SmoothedSPOPlus, SPOPlus, SquaredDecisionError
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS
from support.closed_form_layers import SmoothedBox, SmoothedTopOne

N = 5
WEIGHTS = np.array([2.0, 3.0, 1.0, 4.0, 2.5])
POINTS = np.array([w for w in itertools.product((0.0, 1.0), repeat=N) if WEIGHTS @ w <= 6])
KNAPSACK = Program(G=WEIGHTS[None], h=[6], upper=1, integer=True)  # costs may be negative: F is what matters here
SOLVER = HiGHS(KNAPSACK)
EXACT = Exact(SOLVER)
ONE = Program(upper=1, n=1)  # the one-dimensional illustration: min y w, 0 ≤ w ≤ 1

seeds = st.integers(0, 10_000)
few = settings(max_examples=4)  # each draws some forty predictions, and every one is a solve


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(seed).normal(size=(*shape, N))


def best(y: np.ndarray) -> np.ndarray:
    return POINTS[(y @ POINTS.T).argmin(-1)]


def evaluate(loss: Loss, predicted: np.ndarray, y: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and gradient, for one y against many predictions `(count, n)`."""
    point = torch.tensor(predicted, requires_grad=True)
    count = len(predicted)
    batch = Batch(
        torch.zeros(count, 1), *(torch.tensor(np.broadcast_to(v, (count, v.size)).copy()) for v in (y, label))
    )
    value = loss(point, batch)
    if not value.requires_grad:
        return value.numpy(), np.zeros_like(predicted)
    (gradient,) = torch.autograd.grad(value.sum(), point)
    return value.detach().numpy(), gradient.numpy()


def around(y: np.ndarray, seed: int, count: int = 40) -> np.ndarray:
    """Predictions from near y to far from it, so that some of them have zero gradient."""
    scale = np.geomspace(0.05, 3, count)[:, None]
    return y * np.random.RandomState(seed + 1).uniform(0.1, 2, (count, 1)) + scale * draw(seed + 2, count)


def margin(v: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Γ(v) = min over w of vᵀ(w − w*)/‖w − w*‖: how far v can move before w* is no longer optimal; negative outside N(w*)."""
    others = POINTS[(label != POINTS).any(1)] - label
    return (v @ others.T / np.linalg.norm(others, axis=1)).min(-1)


# -- Theorem 1, Corollary 3, Theorem 2 ------------------------------------------------------------------------------


@few
@given(seeds)
def test_theorem_1_zero_gradient_means_the_label_is_optimal(seed: int) -> None:
    y = draw(seed)
    label, predicted = best(y), around(y, seed)
    optimal = predicted @ label <= (predicted @ POINTS.T).min(1) + 1e-9
    for loss in (SCE(EXACT), SPOPlus(EXACT)):
        _, gradient = evaluate(loss, predicted, y, label)
        still = np.abs(gradient).max(1) == 0
        assert still.any()
        assert not still.all()
        assert optimal[still].all()


@few
@given(seeds)
def test_corollary_3_where_spo_plus_rests_sce_rests_too(seed: int) -> None:
    y = draw(seed)
    label, predicted = best(y), around(y, seed)
    rests = {loss: np.abs(evaluate(loss(EXACT), predicted, y, label)[1]).max(1) == 0 for loss in (SCE, SPOPlus)}
    assert (rests[SCE] >= rests[SPOPlus]).all()


@few
@given(seeds)
def test_theorem_2_spo_plus_rests_exactly_on_half_the_costs_plus_the_cone(seed: int) -> None:
    """{ŷ : ∇SPO+ = 0} = y/2 + N(w*), and {ŷ : ∇SCE = 0} = N(w*)."""
    y = draw(seed)
    label, predicted = best(y), around(y, seed)
    for loss, apex in ((SPOPlus(EXACT), y / 2), (SCE(EXACT), 0 * y)):
        _, gradient = evaluate(loss, predicted, y, label)
        inside = margin(predicted - apex, label)
        clear = np.abs(inside) > 1e-6  # on the boundary other decisions are optimal too, and the solver may return one
        np.testing.assert_array_equal((np.abs(gradient).max(1) == 0)[clear], (inside > 0)[clear])


@few
@given(seeds)
def test_theorem_2_thresholds_in_closed_form(seed: int) -> None:
    """Γ_SPO+ = Γ(y)/2, reached as ŷ → y/2;  Γ_SCE = 0, approached as ŷ = t y, t → 0."""
    y = draw(seed)
    label, predicted = best(y), around(y, seed)
    gamma = margin(y, label)
    _, gradient = evaluate(SPOPlus(EXACT), predicted, y, label)
    rests = np.abs(gradient).max(1) == 0
    assert (margin(predicted[rests], label) >= gamma / 2 - 1e-9).all()
    barely, shrinking = np.geomspace(1e-3, 1, 8)[:, None] * y + y / 2, np.geomspace(1e-3, 0.499, 8)[:, None] * y
    assert not evaluate(SPOPlus(EXACT), barely, y, label)[1].any()
    np.testing.assert_allclose(margin(barely[0], label), (0.5 + 1e-3) * gamma)
    assert not evaluate(SCE(EXACT), shrinking, y, label)[1].any()
    np.testing.assert_allclose(margin(shrinking[0], label), 1e-3 * gamma)
    assert (np.abs(evaluate(SPOPlus(EXACT), shrinking, y, label)[1]).max(1) > 0).all()


# -- Proposition 1 and the bounds -----------------------------------------------------------------------------------


@few
@given(seeds)
def test_proposition_1_and_upper_bounds_of_the_regret(seed: int) -> None:
    """SCE ≥ regret ≥ 0, SCE = 0 ⇔ regret = 0 (optima of random costs are unique), SPO+ ≥ regret."""
    y = draw(seed)
    label, predicted = best(y), around(y, seed)
    regret, sce, spo_plus = (evaluate(loss(EXACT), predicted, y, label)[0] for loss in (Regret, SCE, SPOPlus))
    assert (regret >= -1e-9).all()
    assert (sce >= regret - 1e-9).all()
    assert (spo_plus >= regret - 1e-9).all()
    np.testing.assert_array_equal(sce < 1e-9, regret < 1e-9)
    assert (regret < 1e-9).any()
    assert (regret > 1e-9).any()


@few
@given(st.lists(st.integers(-2, 2), min_size=2 * N, max_size=2 * N))
def test_bounds_hold_with_ties(numbers: list[int]) -> None:
    """With several optima SCE ≥ regret ≥ 0 still holds for whichever the solver returns."""
    y, predicted = np.array(numbers, float).reshape(2, N)
    label = SOLVER.solve(torch.tensor(y)).check().decision.numpy()
    (regret,), (sce,) = (evaluate(loss(EXACT), predicted[None], y, label)[0] for loss in (Regret, SCE))
    assert sce + 1e-9 >= regret >= -1e-9


@few
@given(seeds)
@pytest.mark.parametrize("loss", [SPOPlus(EXACT), SmoothedSPOPlus(SmoothedBox(Program(upper=1, n=N), 0.5))])
def test_spo_plus_is_convex(loss: Loss, seed: int) -> None:
    y = draw(seed)
    one, other = draw(seed + 1, 20), draw(seed + 2, 20)
    share = np.random.RandomState(seed).uniform(size=(20, 1))
    ends = [evaluate(loss, point, y, best(y))[0] for point in (one, other)]
    between, _ = evaluate(loss, share * one + (1 - share) * other, y, best(y))
    assert (between <= share[:, 0] * ends[0] + (1 - share[:, 0]) * ends[1] + 1e-9).all()


# -- Smoothing ------------------------------------------------------------------------------------------------------


def permutations(items: int, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted values as in the simulation: the numbers 1 … M in random orders."""
    rng = np.random.RandomState(items)
    return tuple(np.array([rng.permutation(items) + 1.0 for _ in range(count)]) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.parametrize("mu", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("items", [5, 20, 100])
def test_smoothed_regret_has_no_gradient_where_sce_has_one(items: int, mu: float) -> None:
    """Top-1 with integer values and μ < 1: the smoothed decision is a corner, so the regret cannot move; SCE does."""
    layer = SmoothedTopOne(items, mu)
    y, predicted = (torch.tensor(v) for v in permutations(items))
    label = torch.nn.functional.one_hot(y.argmax(1), items).double()
    wrong = y.argmax(1) != predicted.argmax(1)
    assert wrong.any()
    gradients = {
        loss: gradient_of(loss(layer), predicted, Batch(y, y, label)) for loss in (Regret, SquaredDecisionError, SCE)
    }
    assert not gradients[Regret].any()
    assert not gradients[SquaredDecisionError].any()
    assert bool((gradients[SCE][wrong].abs().sum(1) >= 2).all())
    assert not gradients[SCE][~wrong].any()


def gradient_of(loss: Loss, predicted: Tensor, batch: Batch) -> Tensor:
    point = predicted.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(point, batch).sum(), point)
    return gradient


# -- The two variants, and the slips --------------------------------------------------------------------------------


def scalar(loss: Loss, y: float, label: float, *predicted: float) -> list[float]:
    return evaluate(loss, np.array(predicted, float)[:, None], np.array([float(y)]), np.array([float(label)]))[
        0
    ].tolist()


def test_smoothed_sce_is_not_convex() -> None:
    """One dimension, y = 4, μ = 6."""
    left, middle, right = scalar(SCE(SmoothedBox(ONE, 6.0)), 4, 0, -8, -6, -4)
    assert (left, middle, right) == pytest.approx((12, 10, 16 / 3))
    assert middle > (left + right) / 2


def test_smoothed_sce_can_be_negative_with_an_exact_label_but_not_with_a_smoothed_one() -> None:
    layer = SmoothedBox(ONE, 6.0)
    assert scalar(SCE(layer), -4, 1, -5) == pytest.approx([-1 / 6])
    assert scalar(SCE(layer, label="smoothed"), -4, 1, -5) == pytest.approx([1 / 6])


@few
@given(seeds, st.floats(0.1, 10))
@pytest.mark.parametrize("make", [lambda mu: SmoothedBox(Program(upper=1, n=N), mu), lambda mu: SmoothedTopOne(N, mu)])
def test_smoothed_label_bounds_sce_from_below(make: type[Layer], seed: int, mu: float) -> None:
    """(ŷ − y)ᵀSᵀ(w_μ(y) − w_μ(ŷ)) ≥ μ‖w_μ(y) − w_μ(ŷ)‖²."""
    layer = make(mu)  # type: ignore[arg-type]
    y, predicted = draw(seed), draw(seed + 1, 20)
    value, _ = evaluate(SCE(layer, label="smoothed"), predicted, y, y)
    distance = (layer(torch.tensor(y)) - layer(torch.tensor(predicted))).square().sum(-1).numpy()
    assert (value >= mu * distance - 1e-9).all()
