"""The independent check: closed forms, the same residuals in any units, and wrong answers that it catches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, Status
from dflearn.testing import check_optimal, kkt_residuals

RIGHT = 1e-12
NORM: dict[str, Any] = {"mu": 1.0, "regularizer": "norm"}

# A program, costs, Ω, its solution by hand, and an answer that is feasible but wrong.
CASES: dict[str, tuple[Program, list[float], dict[str, Any], list[float], list[float]]] = {
    "a simplex": (Program(A=[[1, 1, 1]], b=[1]), [2, 3, 4], {}, [1, 0, 0], [0, 1, 0]),
    "a knapsack": (Program(G=[[2, 1]], h=[2], upper=1), [-3, -2], {}, [0.5, 1], [1, 0]),
    "a degenerate vertex": (Program(G=[[1, 1], [1, 2], [2, 1]], h=[1, 1, 2], upper=1), [-3, -1], {}, [1, 0], [0, 0.5]),
    "dependent rows": (Program(A=[[1, 1], [2, 2]], b=[1, 2]), [1, 3], {}, [1, 0], [0.5, 0.5]),
    "a penalty": (Program(G=[[-1, -1, -1]], h=[-1], upper=[1, 1, np.inf]), [3, 2.9, 1e9], {}, [0, 1, 0], [1, 0, 0]),
    "a free variable": (Program(A=[[1, 1]], b=[1], lower=[-np.inf, 0]), [1, 1], {}, [-3, 4], [1, 1]),
    "squared, inside": (Program(n=2, lower=-1, upper=1), [0.5, -0.25], {"mu": 1.0}, [-0.5, 0.25], [-0.5, 0.2]),
    "squared, on a row": (Program(A=[[1, 1]], b=[1]), [1, 2], {"mu": 2.0}, [0.75, 0.25], [0.7, 0.3]),
    "squared, at a bound": (Program(A=[[1, 1]], b=[1]), [1, 9], {"mu": 1.0}, [1, 0], [0.9, 0.1]),
    "norm, inside": (Program(A=[[1, 1]], b=[2], lower=-9, upper=9), [0, 0], NORM, [1, 1], [1.1, 0.9]),
    "norm, at zero": (Program(n=2), [-0.6, -0.7], NORM, [0, 0], [0.1, 0.1]),
    "norm, not at zero": (Program(n=2, upper=[3, 4]), [-6, -8], {"mu": 9.0, "regularizer": "norm"}, [3, 4], [0, 0]),
}


def scaled(program: Program, rows: float, decisions: float) -> Program:
    """The same program with rows multiplied by one number and decisions by another."""
    A, G = (matrix * (rows / decisions) for matrix in (program.A, program.G))
    lower, upper = program.lower * decisions, program.upper * decisions
    return Program(A=A, b=program.b * rows, G=G, h=program.h * rows, lower=lower, upper=upper, n=program.n)


@pytest.mark.parametrize("name", CASES)
def test_closed_forms(name: str) -> None:
    program, c, omega, right, wrong = CASES[name]
    assert kkt_residuals(np.array(right), np.array(c), program, **omega).worst <= RIGHT
    assert kkt_residuals(np.array(wrong), np.array(c), program, **omega).worst > 1e-3


@pytest.mark.parametrize(("costs", "rows", "decisions"), [(1e-8, 1e8, 1.0), (1e8, 1e-8, 1e8), (1e8, 1e8, 1e-8)])
@pytest.mark.parametrize("name", CASES)
def test_units_do_not_matter(name: str, costs: float, rows: float, decisions: float) -> None:
    program, c, omega, *answers = CASES[name]
    power = 2 if omega.get("regularizer", "squared") == "squared" else 1
    own = {**omega, "mu": omega["mu"] * costs / decisions**power} if omega else {}
    other = scaled(program, rows, decisions)
    for w in answers:
        before = kkt_residuals(np.array(w), np.array(c), program, **omega)
        after = kkt_residuals(np.array(w) * decisions, np.array(c) * costs / decisions, other, **own)
        for part in ("rows", "bounds", "stationarity", "complementarity"):
            np.testing.assert_allclose(getattr(after, part), getattr(before, part), rtol=1e-6, atol=1e-12)


def test_one_broken_row_is_not_hidden_by_a_large_one() -> None:
    program = Program(A=[[1, 0], [0, 1]], b=[1e9, 1], upper=np.inf)
    found = kkt_residuals(np.array([1e9, 1.01]), np.ones(2), program)
    np.testing.assert_allclose(found.rows, [0, 0.01 / 2.01])


def test_given_prices() -> None:
    program = Program(G=[[2, 1]], h=[2], upper=1)
    w, c = np.array([0.5, 1]), np.array([-3.0, -2.0])
    assert kkt_residuals(w, c, program, multipliers=np.array([-1.5])).worst <= RIGHT
    assert kkt_residuals(w, c, program, multipliers=np.array([-1.4])).worst > 1e-2


def test_check_optimal_names_the_instance() -> None:
    program = Program(A=[[1, 1]], b=[1])
    y, b = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0], [3.0]])

    def answer(w: list[list[float]], status: Status = Status.OPTIMAL) -> Solution:
        codes = torch.tensor([0, int(status)], dtype=torch.int8)
        return Solution(torch.tensor(w, dtype=torch.float64), codes, torch.zeros(2), torch.zeros(2))

    check_optimal(answer([[1, 0], [3, 0]]), y, program, Instance(b=b))
    check_optimal(answer([[1, 0], [1, 0]], Status.FEASIBLE), y, program, Instance(b=b))
    with pytest.raises(AssertionError, match=r"instance 1 .* rows"):
        check_optimal(answer([[1, 0], [1, 0]]), y, program, Instance(b=b))
    with pytest.raises(AssertionError, match=r"instance 1 .* stationarity"):
        check_optimal(answer([[1, 0], [0, 3]]), y, program, Instance(b=b))


@pytest.mark.parametrize("regularizer", ["squared", "norm"])
def test_without_costs_the_smoothing_says_what_noise_is(regularizer: Any) -> None:
    """Four rows through (−1, 0), the point nearest to zero: what rounding leaves of a price has no reduced cost."""
    program = Program(
        G=[[-2, -1], [-2, -2], [-2, 1], [2, -2]], h=[3, 2, 3, -2], lower=[-2, 0], upper=[-1, 2]
    )  # fmt: skip
    c, omega = np.zeros(2), {"mu": 0.5, "regularizer": regularizer}
    assert kkt_residuals(np.array([-1.0, 0.0]), c, program, **omega).worst <= RIGHT
    assert kkt_residuals(np.array([-1.0, 1e-3]), c, program, **omega).worst > 1e-4


def test_rows_that_are_noise_bind() -> None:
    """w_1 = w_2 = 0 by three rows; the costs of both are paid by the prices of rows whose slack is rounding."""
    program = Program(
        A=[[0, 8, 3]], b=[0], G=[[0, -4, 1], [0, -2, -0.375], [-1, 0, 0.125]], h=[0, 1, 0], lower=[0, -1, -1],
        upper=[3, 3, 1],
    )  # fmt: skip
    c, omega = np.array([-1.0, 0.0, -4.0]), {"mu": 1.0, "regularizer": "norm"}
    for noise in (0.0, -3e-16):
        assert kkt_residuals(np.array([0.6, noise, noise / 12]), c, program, **omega).worst <= RIGHT
    assert kkt_residuals(np.array([0.6, -3e-3, 8e-3]), c, program, **omega).worst > 1e-4
