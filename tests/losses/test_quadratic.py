"""Losses of quadratic programs: the contract, their bounds, and every regret as a difference of objectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.data import Batch, DecisionDataset
from dflearn.evaluation import evaluate
from dflearn.evaluation.pessimistic import worst_optimal
from dflearn.layers import Exact, Smoothed
from dflearn.layers.base import Layer
from dflearn.losses import SCE, CaVE, FenchelYoung, Regret, SmoothedSPOPlus, SPOPlus
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS
from dflearn.testing.losses import check_loss
from support import programs
from support.loss_examples import FLAT, LOSSES

PROGRAM = programs.portfolio()
SOLVER = HiGHS(PROGRAM)
COUNT = 4
Y = torch.randn(COUNT, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PREDICTED = Y + 0.5 * torch.randn(COUNT, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
BEST = SOLVER.solve(Y).check().decision
BATCH = Batch(torch.zeros(COUNT, 1), Y, BEST)

LAYERS: dict[str, Callable[[], Layer]] = {
    "exact": lambda: Exact(SOLVER),
    "smoothed": lambda: Smoothed(PROGRAM, 0.3),
    "exact QP layer": lambda: Smoothed(PROGRAM, 0.0),
}
# Through `Exact` the decision is held fixed, so the slope is that of the loss only where the decision is a minimizer in it.
ENVELOPE = {"SPO+", "smoothed SPO+", "plain SCE", "Fenchel-Young"}


def objective(y: Tensor, w: Tensor) -> Tensor:
    """obj(y, w) by its definition."""
    assert PROGRAM.Q is not None
    Q = torch.tensor(PROGRAM.Q.matrix.toarray())
    return -(y * w).sum(-1) + 0.5 * torch.einsum("bi,ij,bj->b", w, Q, w)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", LOSSES)
def test_the_contract(name: str, layer: str) -> None:
    loss = LOSSES[name](LAYERS[layer]())
    exact = layer == "exact"
    derivative = not exact or name in ENVELOPE
    check_loss(loss, PREDICTED, BATCH, differentiable=derivative, flat=exact and name in FLAT)


def test_values() -> None:
    layer = Exact(SOLVER)
    w, shifted = SOLVER.solve(PREDICTED).decision, 2 * PREDICTED - Y
    regret = objective(Y, w) - objective(Y, BEST)
    plus = objective(shifted, BEST) - objective(shifted, SOLVER.solve(shifted).decision)
    contrast = objective(PREDICTED, BEST) - objective(PREDICTED, w)
    for loss, wanted in (
        (Regret(layer), regret),
        (SPOPlus(layer), plus),
        (SmoothedSPOPlus(layer), plus),
        (SCE(layer), contrast + regret),
        (SCE(layer, variant="plain"), contrast),
        (FenchelYoung(layer), contrast),
    ):
        torch.testing.assert_close(loss(PREDICTED, BATCH), wanted, rtol=1e-8, atol=1e-10)
    assert bool((regret > 1e-3).all())
    assert bool((plus >= regret).all())
    assert not Regret(layer)(Y, BATCH).abs().gt(1e-12).any()
    by_difference = PROGRAM.objective(Y, w - BEST)  # what a linear objective allows, and this one does not
    assert not torch.allclose(by_difference, regret, rtol=1e-2)


def test_cave_is_zero_where_the_label_is_optimal() -> None:
    loss = CaVE(PROGRAM)
    assert float(loss(Y, BATCH).abs().max()) < 1e-9
    assert float(loss(PREDICTED, BATCH).min()) > 1e-4
    check_loss(loss, PREDICTED, BATCH, differentiable=False)


def test_evaluation() -> None:
    data = DecisionDataset(torch.zeros(COUNT, 1, dtype=torch.float64), Y)
    found = evaluate(PREDICTED, PROGRAM, data, pessimistic=True)
    regret = objective(Y, SOLVER.solve(PREDICTED).decision) - objective(Y, BEST)
    np.testing.assert_allclose(found.regrets, regret, rtol=1e-7)
    np.testing.assert_allclose(found.optima, -objective(Y, BEST), rtol=1e-9)
    assert found.pessimistic_regrets is not None
    np.testing.assert_allclose(found.pessimistic_regrets, regret, rtol=1e-4)  # one decision is optimal
    assert evaluate(Y, PROGRAM, data).regrets.max() < 1e-12


def test_the_worst_of_optimal_decisions() -> None:
    """min ½ w_0² + w_0 − ŷ over Σ w = 1: w_0 = 0, and the rest is a tie."""
    program = Program(A=np.ones((1, 3)), b=[1], Q=np.diag([1.0, 0, 0]))
    predicted = torch.tensor([[1.0, 0.5, 0.5]], dtype=torch.float64)
    costs = torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64)
    decision = HiGHS(program).solve(predicted).check().decision
    assert worst_optimal(program, predicted, costs, decision) == pytest.approx([5.0], rel=1e-5)
