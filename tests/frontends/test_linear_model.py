"""Limits that cross by rounding are equal; those that cross are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint

import dflearn as dfl
from dflearn.errors import ProgramError
from dflearn.frontends.linear_model import Rows
from dflearn.frontends.scipy import from_milp
from support.random_models import solve


def test_the_case_that_rounding_makes() -> None:
    assert 0.3 / 3 < 0.1
    program = from_milp([1.0], constraints=LinearConstraint([[3.0]], -np.inf, 0.3), bounds=([0.1], [1.0]))
    assert program.lower == program.upper == 0.1
    assert float(dfl.HiGHS(program).solve(torch.ones(1, dtype=torch.float64)).check().decision) == 0.1


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("sign", [1, -1])
def test_whatever_the_size(size: float, sign: int) -> None:
    """x ≥ 0.1 and 3 x ≤ 0.3, in any units and mirrored: the variable's own bound stays."""
    own, limit = 0.1 * size, np.nextafter(0.3 * size, 0)
    limits = ([-np.inf], [limit]) if sign > 0 else ([-limit], [np.inf])
    box = (own, np.inf) if sign > 0 else (-np.inf, -own)
    rows = Rows([[3.0]], *map(np.array, limits), np.zeros(1, bool))
    sides = rows.sides(*map(np.array, limits), *(np.array([side]) for side in box))
    assert sides.lower == sides.upper == sign * own


def test_two_rows_and_two_limits_of_one_row() -> None:
    rows, limits = ([[3.0], [1.0]], [-np.inf, 0.1], [0.3, np.inf]), ([[1.0, 1.0]], [0.3], [0.1 * 3 - 1e-16])
    for matrix, low, high in (rows, limits):
        program = from_milp(np.ones(len(matrix[0])), constraints=LinearConstraint(matrix, low, high))
        assert dfl.HiGHS(program).solve(torch.ones(program.n)).check().status == 0
    assert program.A.shape == (1, 2)


@pytest.mark.parametrize("bound", [0.1 + 1e-9, 0.2, 1e-9])
def test_bounds_that_cross_are_refused(bound: float) -> None:
    high = 0.3 if bound > 0.1 else 3 * bound - 1e-12
    constraint = LinearConstraint([[3.0]], -np.inf, high)
    with pytest.raises(ProgramError, match="bounds of variable 0 cross"):
        from_milp([1.0], constraints=constraint, bounds=([bound], [1.0]))


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


def test_days_that_differ_too_much_are_refused() -> None:
    with pytest.raises(dfl.errors.ProgramError, match="at least one"):
        dfl.as_instances([])
    with pytest.raises(dfl.errors.ProgramError, match="programs 0 and 1 differ in G"):
        dfl.as_instances([day(1), day(2, factor=2)])
    with pytest.raises(dfl.errors.ProgramError, match="programs 0 and 1 differ in integer"):
        dfl.as_instances([dfl.Program(n=2, upper=1), dfl.Program(n=2, upper=1, integer=True)])
