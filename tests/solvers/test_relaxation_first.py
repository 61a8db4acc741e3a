"""`RelaxationFirst` against HiGHS: integers that the relaxation fixes need no integer program, all others do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.problems import FacilityLocation, problem_named
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.structured import RelaxationFirst

OPTIMAL = (Status.OPTIMAL,)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_published_facilities_must_all_open() -> None:
    """Capacities are scaled to the demand and rounded up, so that none can be spared."""
    for name in ("CFL-50", "CFL-100"):
        problem = problem_named(name, seed=2)
        program = problem.program
        linear = RelaxationFirst(program).linear
        assert linear is not None
        assert (linear.program.lower[program.integer] == 1).all()
    y = torch.cat([problem.generate(3, dtype=torch.float64).batch().require("costs"), 4 * draw(3, program.p) - 1])
    found, wanted = RelaxationFirst(program).solve(y).check(OPTIMAL), HiGHS(program).solve(y).check(OPTIMAL)
    assert found.fallback is None or not found.fallback.any()
    torch.testing.assert_close(found.objective, wanted.objective, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.bound, found.objective, rtol=1e-8, atol=1e-8)
    assert bool(program.is_feasible(found.decision).all())


@pytest.mark.parametrize("facilities", [4, 8])
def test_facilities_that_may_stay_closed_are_solved_as_integers(facilities: int) -> None:
    problem = FacilityLocation(10, facilities, seed=3)
    program = problem.program
    solver, y = RelaxationFirst(program), 4 * draw(6, program.p) - 1
    assert solver.linear is None
    found = solver.solve(y).check(OPTIMAL)
    torch.testing.assert_close(found.objective, HiGHS(program).solve(y).objective)


@pytest.mark.parametrize(("rows", "shares", "costs"), [(1e-6, 1e6, 1e-6), (1e6, 1e-6, 1e6), (1.0, 1e6, 1e6)])
def test_answers_know_no_unit(rows: float, shares: float, costs: float) -> None:
    """The same facilities with other units of rows, of what is carried, and of costs."""
    program = FacilityLocation(6, 2, seed=1).program
    y = draw(4, program.p)
    wanted = RelaxationFirst(program).solve(y).check(OPTIMAL)
    size = np.where(program.integer, 1.0, shares)
    columns = sp.diags_array(1 / size)
    S = sp.eye_array(program.n) if program.S is None else program.S
    other = replace(
        program, A=rows * program.A @ columns, b=rows * program.b, G=rows * program.G @ columns, upper=program.upper * size,
        S=costs * columns @ S, d=costs * program.d / size,
    )  # fmt: skip
    solver = RelaxationFirst(other)
    assert (solver.linear is None) == (RelaxationFirst(program).linear is None)
    found = solver.solve(y).check(OPTIMAL)
    torch.testing.assert_close(found.objective / costs, wanted.objective, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.decision / torch.tensor(size), wanted.decision, rtol=1e-7, atol=1e-7)


def test_infeasible_and_unbounded() -> None:
    nothing = Program(A=[[1.0, 1]], b=[3], upper=1, integer=True)
    assert int(RelaxationFirst(nothing).solve(torch.ones(2)).status) == Status.INFEASIBLE
    no_integers = Program(A=[[2.0, 2]], b=[3], upper=5, integer=True)
    assert int(RelaxationFirst(no_integers).solve(torch.ones(2)).status) == Status.INFEASIBLE
    half = Program(G=[[1.0, 1]], h=[3], lower=[0.2, 0], upper=[0.8, 1], integer=True)
    assert int(RelaxationFirst(half).solve(torch.ones(2)).status) == Status.INFEASIBLE
    fixed = Program(G=[[1.0, -1]], h=[0.5], lower=[1, 0], upper=[1, np.inf], integer=[0])
    found = RelaxationFirst(fixed).solve(torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
    assert found.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL]
    assert found.objective[1].item() == 2
