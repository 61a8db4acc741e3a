"""Status, Solution and the checks of arguments that every solver inherits."""

from __future__ import annotations

import highspy
import numpy as np
import pytest
import torch

from dflearn.errors import ShapeError, SolverError
from dflearn.program import Instance, Program
from dflearn.solvers.base import Basis, Solution, Status, check_costs
from dflearn.solvers.callable import from_callable
from dflearn.solvers.highs import HiGHS
from support import programs


def solution(*codes: Status) -> Solution:
    status = torch.tensor([int(code) for code in codes], dtype=torch.int8)
    number = torch.zeros(len(codes), dtype=torch.float64)
    return Solution(torch.zeros(len(codes), 2), status, number, number)


def test_check_names_the_first_instance_that_is_not_accepted() -> None:
    fine = solution(Status.OPTIMAL, Status.FEASIBLE)
    assert fine.check() is fine
    with pytest.raises(
        SolverError, match=r"1 of 2 instances have no acceptable decision. instance 1 is FEASIBLE: a limit .* accept="
    ):
        fine.check((Status.OPTIMAL,))
    bad = solution(Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
    with pytest.raises(SolverError, match=r"2 of 3 .* instance 1 is INFEASIBLE.* check the right-hand sides"):
        bad.check()
    others = ", ".join(f"instance {i}" for i in range(1, 9))
    for count, more in ((9, f"8 more: {others}"), (12, f"11 more: {others}, …")):
        with pytest.raises(SolverError, match=rf"instance 0 is FAILED \(and {more}\):"):
            solution(*[Status.FAILED] * count).check()
    assert solution().check().counts() == {}
    assert bad.counts() == {"OPTIMAL": 1, "INFEASIBLE": 1, "UNBOUNDED": 1}


def test_codes_of_a_basis_are_those_of_highs() -> None:
    theirs = highspy.HighsBasisStatus
    wanted = {"AT_LOWER": theirs.kLower, "BASIC": theirs.kBasic, "AT_UPPER": theirs.kUpper, "AT_ZERO": theirs.kZero}
    codes = {name: int(code) for name, code in Basis.__members__.items()}
    assert codes.pop("NONE") < 0
    assert codes == {name: int(code) for name, code in wanted.items()}


def test_costs_that_overflow_when_added_are_costs() -> None:
    objective = Program(n=2).objective
    for huge in (torch.full((3, 2), 3e38), torch.full((3, 2), 6e4, dtype=torch.float16)):
        assert check_costs(huge, objective) == (3,)
    cancel = torch.tensor([[torch.inf, 0.0], [0.0, -torch.inf]])
    with pytest.raises(ShapeError, match=r"instance 0: costs hold a NaN or an infinity \(2 such instances\)"):
        check_costs(cancel, objective)


def test_an_instance_must_have_the_batch_of_the_costs() -> None:
    """Six instances as (6,) and as (2, 3) are as many, and not the same."""
    solver = HiGHS(programs.supply())
    y = torch.zeros(6, 8)
    with pytest.raises(ShapeError, match=r"costs have batch shape \(6,\), the instance's fields have \(2, 3\)"):
        solver.solve(y, Instance(b=torch.zeros(2, 3, 2)))


def test_a_solver_without_a_program_takes_no_sides() -> None:
    solver = from_callable(np.sign, 2)
    with pytest.raises(ShapeError, match="knows no constraints, so an instance may only override d"):
        solver.solve(torch.ones(1, 2), Instance(upper=torch.ones(1, 2)))


def test_half_precision_costs() -> None:
    program = Program(A=[[1, 1]], b=[1], upper=1)
    for dtype in (torch.float16, torch.bfloat16):
        answer = HiGHS(program).solve(torch.tensor([[2.0, 1.0]], dtype=dtype))
        assert answer.decision.dtype == dtype
        assert answer.decision.tolist() == [[0.0, 1.0]]
