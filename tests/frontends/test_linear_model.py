"""Limits that cross by rounding are equal; those that cross are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint

import dflearn as dfl
from dflearn.errors import ProgramError
from dflearn.frontends.linear_model import Rows
from dflearn.frontends.scipy import from_milp


def test_the_case_that_rounding_makes() -> None:
    assert 0.3 / 3 < 0.1
    program = from_milp([1.0], constraints=LinearConstraint([[3.0]], -np.inf, 0.3), bounds=([0.1], [1.0]))
    assert program.lower == program.upper == 0.1
    assert float(dfl.HiGHS(program).solve(torch.ones(1, dtype=torch.float64)).check().decision) == 0.1


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.lp"
    path.write_text("Minimize\n obj: x + y\nSubject To\n r: 3 x <= 0.3\n s: x + y >= 1\nBounds\n x >= 0.1\nEnd\n")
    program = dfl.from_lp(path)
    assert program.lower[0] == program.upper[0] == 0.1


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
    for matrix, low, high in (
        ([[3.0], [1.0]], [-np.inf, 0.1], [0.3, np.inf]),
        ([[1.0, 1.0]], [0.3], [0.1 * 3 - 1e-16]),
    ):
        program = from_milp(np.ones(len(matrix[0])), constraints=LinearConstraint(matrix, low, high))
        assert dfl.HiGHS(program).solve(torch.ones(program.n)).check().status == 0
    assert program.A.shape == (1, 2)


@pytest.mark.parametrize("bound", [0.1 + 1e-9, 0.2, 1e-9])
def test_bounds_that_cross_are_refused(bound: float) -> None:
    high = 0.3 if bound > 0.1 else 3 * bound - 1e-12
    constraint = LinearConstraint([[3.0]], -np.inf, high)
    with pytest.raises(ProgramError, match="bounds of variable 0 cross"):
        from_milp([1.0], constraints=constraint, bounds=([bound], [1.0]))


def test_limits_that_cross_are_refused() -> None:
    with pytest.raises(ProgramError, match="nothing satisfies that; check the data of this row"):
        from_milp([1.0, 1.0], constraints=LinearConstraint([[1.0, 1.0]], 1.0 + 1e-9, 1.0))


def test_infinite_limits() -> None:
    rows = Rows(np.eye(2), np.array([-np.inf, 1]), np.array([np.inf, np.inf]), np.zeros(2, bool))
    limits: Any = (
        np.array([-np.inf, 1]),
        np.array([np.inf, np.inf]),
        np.array([-np.inf, 0]),
        np.array([np.inf, np.inf]),
    )
    sides = rows.sides(*limits)
    assert sides.lower.tolist() == [-np.inf, 1]
    assert sides.upper.tolist() == [np.inf, np.inf]
