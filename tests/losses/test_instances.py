"""What instances hold beside costs: gradients in it are right or refused; a large known part swallows nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import dflearn as dfl
from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.layers import BlackBox, Perturbed
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, Regret, SmoothedSPOPlus, SPOPlus, TaskLoss

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
    exact = FenchelYoung(layer)(
        y.double(), replace(batch, costs=y.double(), decisions=torch.tensor([[0.0, 1, 0]]).double())
    )
    torch.testing.assert_close(FenchelYoung(layer)(y, batch).double(), exact, atol=1e-6, rtol=0)
