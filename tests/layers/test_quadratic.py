"""The way that is left when the kernels do not finish. Its answers are compared in tests/kernels and tests of `Smoothed`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.layers.quadratic import solve_with_highs
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status


@pytest.mark.parametrize(("b", "status"), [(1.0, Status.OPTIMAL), (5.0, Status.INFEASIBLE), (1e21, Status.INFEASIBLE)])
def test_status(b: float, status: Status) -> None:
    """A sum that the bounds allow, one that they do not, and one that HiGHS would take for infinite in the user's units."""
    program = Program(A=np.ones((1, 3)), b=[1.0], upper=1)
    sides = program.sides(Instance(b=torch.tensor([[b]], dtype=torch.float64)), 1)
    result = solve_with_highs(program, np.array([1.0, 2.0, 6.0]), 2.0, sides.row(0))
    assert result.status is status
    if status is Status.OPTIMAL:
        np.testing.assert_allclose(result.w, [0.75, 0.25, 0.0], atol=1e-7)  # c + 2w + λ = 0 inside: λ = −2.5
    else:
        assert np.isnan(result.w).all()
