"""What layers inherit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.errors import ShapeError
from dflearn.layers.base import Exact, Layer
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_exact_layer_has_no_regularization(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    w = torch.ones(*batch, 2, dtype=dtype)
    omega = Exact(HiGHS(Program(n=2, upper=1))).regularization(w)
    assert torch.equal(omega, torch.zeros(batch, dtype=dtype))


@pytest.mark.parametrize(
    "layer", [Exact(HiGHS(Program(n=2, upper=1))), Smoothed(Program(n=2, upper=1))], ids=["Exact", "Smoothed"]
)
@pytest.mark.parametrize("costs", [np.zeros((1, 2)), [[0.0, 0.0]], None], ids=["array", "list", "None"])
def test_costs_that_are_no_tensor_are_told_so(layer: Layer, costs: object) -> None:
    with pytest.raises(ShapeError, match=f"must be a floating-point torch tensor.*got a {type(costs).__name__}"):
        layer(costs)
