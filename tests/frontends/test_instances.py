"""`as_instances`: programs of several days as one program with instances."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dflearn as dfl
from support.random_models import solve


def day(demand: float, fee: float = 1.0, factor: float = 1.0) -> dfl.Program:
    """Buy w₀ at a predicted price or w₁ at a known fee, up to 3; what is known differs from day to day."""
    return dfl.from_milp([0, fee], constraints=([factor, 1], demand, np.inf), bounds=(0, [np.inf, 3]), costs=[0])


def test_every_day_has_its_own_optimum() -> None:
    days = [(2.0, 1.0), (5.0, 1.0), (4.0, 2.0)]
    program, instance = dfl.as_instances([day(*data) for data in days])
    assert set(instance.present()) == {"h", "d"}
    prices = torch.tensor([[0.5], [1.5], [1.5]], dtype=torch.float64)
    found = dfl.HiGHS(program).solve(prices, instance).check()
    expected = [solve(day(*data), price.numpy())[0] for data, price in zip(days, prices, strict=True)]
    np.testing.assert_allclose(found.objective, expected)
    np.testing.assert_allclose(expected, [1.0, 3 + 2 * 1.5, 4 * 1.5])


def test_refused() -> None:
    with pytest.raises(dfl.errors.ProgramError, match="at least one"):
        dfl.as_instances([])
    with pytest.raises(dfl.errors.ProgramError, match="programs 0 and 1 differ in G"):
        dfl.as_instances([day(1), day(2, factor=2)])
    with pytest.raises(dfl.errors.ProgramError, match="programs 0 and 1 differ in integer"):
        dfl.as_instances([dfl.Program(n=2, upper=1), dfl.Program(n=2, upper=1, integer=True)])
