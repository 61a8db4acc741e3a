"""What layers inherit."""

from __future__ import annotations

import pytest
import torch

from dflearn.layers.base import Exact
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS


@pytest.mark.parametrize("batch", [(), (1,), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_exact_layer_has_no_regularization(batch: tuple[int, ...], dtype: torch.dtype) -> None:
    w = torch.ones(*batch, 2, dtype=dtype)
    omega = Exact(HiGHS(Program(n=2, upper=1))).regularization(w)
    assert torch.equal(omega, torch.zeros(batch, dtype=dtype))
