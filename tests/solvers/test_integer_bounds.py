"""Fractional bounds of integer variables mean the integers within: HiGHS 1.15 itself is wrong about some such MILPs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import dflearn as dfl


@pytest.mark.parametrize("solver", [dfl.HiGHS, dfl.Gurobi])
def test_against_enumeration(solver: type[dfl.HiGHS] | type[dfl.Gurobi]) -> None:
    """Random ILPs, bounds per program and per instance, against all integer points."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        lower, upper = -rng.uniform(0, 2.5, (2, 3)), rng.uniform(0, 2.5, (2, 3))
        G, c = rng.integers(-3, 4, (2, 3)) + 0.5, rng.normal(size=3)
        h = rng.uniform(0, 4, 2)
        program = dfl.Program(G=G, h=h, lower=lower[0], upper=upper[0], integer=True)
        instance = dfl.Instance(lower=torch.as_tensor(lower), upper=torch.as_tensor(upper))
        found = solver(program).solve(torch.as_tensor(np.stack([c, c])), instance).check()
        for i in range(2):
            ranges = [np.arange(np.ceil(low), high + 1e-12) for low, high in zip(lower[i], upper[i], strict=True)]
            points = np.array([w for w in product(*ranges) if (G @ w <= h).all()])  # 0 is always among them
            assert found.objective[i].item() == pytest.approx((points @ c).min())
        assert solver(program).solve(torch.as_tensor(c)).objective.item() == pytest.approx(found.objective[0].item())


def test_no_integer_within() -> None:
    program = dfl.Program(n=2, lower=0.2, upper=[0.7, 1.7], integer=True)
    assert dfl.HiGHS(program).solve(torch.ones(1, 2)).counts() == {"INFEASIBLE": 1}


def test_a_milp_that_highs_gets_wrong() -> None:
    """Found among random models: w₂ ∈ ℤ ∩ [−0.52, 0.36] can only be 0."""
    program = dfl.Program(
        A=[[-2, -1, 1]], b=[-1.71160682754932],
        G=[[0, -2, 1], [0, 1, -2], [2, 1, 0], [2, 0, -1], [0, -1, 2], [-2, -1, 0]],
        h=[3.66078686995387, -0.211954628332845, 2.21069073166465, 4.20362415764698, 2.63173371319177, 0.635925472895624],
        lower=[-1, -2, -0.520063688355303], upper=[np.inf, 0.0100520974573447, 0.363569807174841], integer=[2],
    )  # fmt: skip
    y = torch.tensor([[0.217600609219474, -0.0579899878665262, 0.553260588888739]], dtype=torch.float64)
    # Then w₀ = (1.7116… − w₁) / 2, and the objective falls as w₁ grows, which is at most −0.2119…
    w1 = -0.211954628332845
    w0 = (1.71160682754932 - w1) / 2
    for presolve in (True, False):
        found = dfl.HiGHS(program, presolve=presolve).solve(y)
        assert found.objective.item() == pytest.approx(y[0, 0].item() * w0 + y[0, 1].item() * w1)
