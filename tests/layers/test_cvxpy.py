"""`CvxpySmoothed` beyond the contract: statuses, instances of different shapes, what stays compiled, what is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from dflearn.errors import MissingExtraError, ProgramError, SolverError
from dflearn.layers.cvxpy import CvxpySmoothed
from dflearn.layers.smoothed import Smoothed
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.closed_form_layers import SmoothedBox

SIMPLEX = Program(A=np.ones((1, 3)), b=[1])


@pytest.mark.parametrize("regularizer", ["squared", "norm"])
def test_infeasible_instances_are_named_and_spoil_no_others(regularizer: str) -> None:
    layer = CvxpySmoothed(SIMPLEX, regularizer=regularizer)
    y = torch.tensor([[1.0, 2, 3], [1, 2, 3], [3, 2, 1]], dtype=torch.float64, requires_grad=True)
    instance = Instance(b=torch.tensor([[1.0], [-1.0], [2.0]]))
    solution = layer.solve(y, instance)
    assert solution.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
    assert solution.decision[1].isnan().all()
    assert solution.objective[1].isnan()
    assert solution.bound[1] == -torch.inf
    torch.testing.assert_close(solution.decision[[0, 2]].sum(-1), torch.tensor([1.0, 2.0], dtype=torch.float64))
    solution.decision[[0, 2]].square().sum().backward()
    assert y.grad is not None
    assert (y.grad[1] == 0).all()
    with pytest.raises(SolverError, match="instance 1 is INFEASIBLE"):
        layer(y, instance)


def test_the_norm_may_be_too_weak() -> None:
    """min cᵀw + μ‖w‖ over w ≥ 0 is unbounded once the negative part of c is longer than μ, and zero before."""
    layer = CvxpySmoothed(Program(n=2), 1.0, regularizer="norm")
    solution = layer.solve(torch.tensor([[-2.0, -2.0], [-0.3, -0.2], [5.0, -0.9], [5.0, -1.1]]))
    assert solution.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL, Status.OPTIMAL, Status.UNBOUNDED]
    torch.testing.assert_close(solution.decision[1:3], torch.zeros(2, 2), rtol=0, atol=1e-6)
    with pytest.raises(SolverError, match="instance 0 is UNBOUNDED"):
        layer(torch.tensor([[-2.0, -2.0]]))


def test_an_answer_that_was_stopped_early_is_finished() -> None:
    """The cone solver's answer after three steps is not optimal; what is called optimal is the clip."""
    layer, y = CvxpySmoothed(Program(upper=1, n=5), 0.1, solver_args={"max_iter": 3}), [[1.0, -1, 0.05, -0.05, 0.3]]
    solution = layer.solve(torch.tensor(y).double())
    assert solution.counts() == {"OPTIMAL": 1}
    torch.testing.assert_close(solution.decision, torch.tensor([[0, 1, 0, 0.5, 0]]).double(), rtol=1e-6, atol=1e-9)
    assert solution.residual is not None
    assert float(solution.residual) <= 1e-6


@pytest.mark.parametrize(
    ("program", "c"),
    [
        (Program(A=[[1, -1]], b=[0]), [-2.0, -2.0]),  # along (1, 1)
        (Program(G=[[1e3, -1e3]], h=[5]), [-2.0, -2.0]),
        (Program(G=[[-1, 0]], h=[-3], n=2, lower=-np.inf), [0.0, 3.0]),  # down the second variable
        (Program(n=2, lower=[-np.inf, 0], upper=[0, np.inf]), [2.0, -2.0]),
    ],
)
@pytest.mark.parametrize("make", [CvxpySmoothed, Smoothed])
def test_the_norm_may_be_too_weak_along_rows_and_bounds(
    make: type[CvxpySmoothed] | type[Smoothed], program: Program, c: list[float]
) -> None:
    weak, strong = (make(program, mu, regularizer="norm") for mu in (1.0, 4.0))
    costs = torch.tensor([c], dtype=torch.float64)
    assert weak.solve(costs).counts() == {"UNBOUNDED": 1}
    assert strong.solve(costs).counts() == {"OPTIMAL": 1}


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("loose", [1e3, 1e9, 1e15])
def test_optimal_in_mixed_units_is_right(unit: float, loose: float) -> None:
    """min cᵀw + (μ/2)‖w‖² with 0 ≤ w ≤ (1, unit), w₁ + w₂ ≤ loose: a clip, each variable in its own unit."""
    program = Program(G=[[1.0, 1.0 / unit]], h=[loose], upper=[1.0, unit])
    y = torch.tensor([[-0.3, -0.2 / unit], [0.4, -5 * unit], [-0.05, 0.1], [-3.0, -0.04 * unit]]).double()
    solution = CvxpySmoothed(program, 0.1).solve(y)
    wanted = torch.minimum((-y / 0.1).clamp(min=0), torch.tensor([1.0, unit]).double())
    for i, status in enumerate(solution.status.tolist()):
        if status == Status.OPTIMAL:
            torch.testing.assert_close(solution.decision[i], wanted[i], rtol=1e-5, atol=0)
        else:
            assert solution.reason is not None
            assert any(word in solution.reason[i] for word in ("row", "variable", "objective"))
    assert unit < 1e-4 or unit > 1e4 or solution.counts() == {"OPTIMAL": 4}


def test_bounds_that_are_finite_in_different_places() -> None:
    """Free, one-sided, two-sided and fixed variables side by side in one batch; the answer is a clip."""
    lower = torch.tensor([[-np.inf, 0.0, 0.2], [0.0, -np.inf, -np.inf], [-1.0, 0.0, 0.5], [-np.inf, 0.0, 0.2]])
    upper = torch.tensor([[np.inf, np.inf, 0.2], [1.0, np.inf, 0.0], [np.inf, 0.1, 0.5], [np.inf, np.inf, 0.2]])
    y = torch.tensor(np.random.RandomState(0).normal(size=(4, 3)), requires_grad=True)
    layer = CvxpySmoothed(Program(n=3, lower=-5, upper=5), 0.5)
    w = layer(y, Instance(lower=lower, upper=upper))
    wanted = torch.minimum(torch.maximum(-y / 0.5, lower), upper)
    torch.testing.assert_close(w, wanted, rtol=1e-5, atol=1e-5)
    slope, expected = (torch.autograd.grad(decision.sum(), y)[0] for decision in (w, wanted))
    torch.testing.assert_close(slope, expected, rtol=0, atol=1e-4)


def test_dependent_rows_whose_right_hand_sides_are_rounded() -> None:
    """In float32, b of a row and of three times that row agree to seven digits only: that is no contradiction."""
    program = Program(A=[[1, 1, 1], [3, 3, 3]], b=[0.1, 0.3])
    b = torch.tensor([[0.1, 0.3], [0.7, 2.1]])
    w = CvxpySmoothed(program)(torch.zeros(2, 3), Instance(b=b))
    torch.testing.assert_close(w, b[:, :1].expand(2, 3) / 3, rtol=0, atol=1e-5)
    with pytest.raises(ProgramError, match="instance 1"):
        CvxpySmoothed(program)(torch.zeros(2, 3), Instance(b=torch.tensor([[0.1, 0.3], [0.1, 0.4]])))


@pytest.mark.parametrize("mode", ["dense", "lsqr"])
def test_modes_and_threads(mode: str) -> None:
    program = Program(upper=1, n=4)
    y = torch.tensor(np.random.RandomState(1).normal(size=(5, 4)), requires_grad=True)
    weight = torch.tensor(np.random.RandomState(2).normal(size=(5, 4)))
    layer = CvxpySmoothed(program, 0.8, threads=2, solver_args={"mode": mode})
    slope, wanted = (torch.autograd.grad(one(y), y, weight)[0] for one in (layer, SmoothedBox(program, 0.8)))
    torch.testing.assert_close(slope, wanted, rtol=0, atol=1e-4)
    torch.testing.assert_close(layer(y.detach()), SmoothedBox(program, 0.8)(y.detach()), rtol=0, atol=1e-5)


def test_without_cvxpylayers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpylayers.torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dflearn\[cvxpy\]'"):
        CvxpySmoothed(SIMPLEX)


def test_integrality_is_dropped_and_said() -> None:
    layer = CvxpySmoothed(Program(A=np.ones((1, 2)), b=[1], integer=True), 1.0)
    torch.testing.assert_close(layer(torch.zeros(2)), torch.full((2,), 0.5), rtol=0, atol=1e-6)
    assert "(relaxed)" in repr(layer)
