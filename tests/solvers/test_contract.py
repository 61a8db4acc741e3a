"""Every solver on every program that it is made for: the one contract that they all share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from dflearn.errors import ProgramError, SolverError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status
from dflearn.solvers.callable import from_callable
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.scip import SCIP
from dflearn.solvers.structured import FewRowBinary, FewRowLP, RelaxationFirst, SmallLP
from dflearn.solvers.wrappers import Parallel, Pooled
from dflearn.testing.solvers import check_solver
from support import programs

PROGRAMS: dict[str, Program] = {
    "path": programs.shortest_path(),
    "knapsack": programs.knapsack(),
    "relaxed knapsack": programs.knapsack().relax(),
    "facility location": programs.facility_location(),
    "relaxed facility location": programs.facility_location().relax(),
    "supply": programs.supply(),
    "at most k": programs.top_k(),
    "exactly k": programs.top_k(at_most=False),
    "no rows": Program(n=4, lower=-1, upper=2),
    "portfolio": programs.portfolio(),
    "lots": programs.lots(),
    "predicted demand": programs.predicted_demand(),
}

SOLVERS: dict[str, Callable[[Program], Solver]] = {
    "HiGHS": HiGHS,
    "HiGHS with presolve": lambda program: HiGHS(program, presolve=True),
    "Gurobi": Gurobi,
    "SCIP": SCIP,
    "DagShortestPath": DagShortestPath,
    "TopK": TopK,
    "FewRowLP": FewRowLP,
    "FewRowBinary": FewRowBinary,
    "SmallLP": SmallLP,
    "RelaxationFirst": RelaxationFirst,
    "Parallel HiGHS": lambda program: Parallel(HiGHS(program), workers=2),
    "Pooled HiGHS": lambda program: Pooled(HiGHS(program), ratio=1),
}

SPECIAL = {
    **{name: {*PROGRAMS} - {"lots"} for name in ("HiGHS", "HiGHS with presolve", "Parallel HiGHS")},
    "Pooled HiGHS": {*PROGRAMS} - {"lots", "predicted demand"},
    "SCIP": {"lots"},
    "RelaxationFirst": {"knapsack", "facility location", "at most k", "exactly k"},
    "DagShortestPath": {"path"},
    "TopK": {"at most k", "exactly k"},
    "FewRowBinary": {"knapsack", "at most k"},
    **{
        name: {"path", "relaxed knapsack", "relaxed facility location", "supply", "no rows", "predicted demand"}
        for name in ("FewRowLP", "FewRowLP in torch", "SmallLP")
    },
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_contract(solver: str, program: str) -> None:
    make, what = SOLVERS[solver], PROGRAMS[program]
    if program not in SPECIAL.get(solver, PROGRAMS):
        with pytest.raises(ProgramError, match=r"cannot solve|is here for|a pool holds"):
            make(what)
    else:
        # The small programs with known answers do not depend on this one: once for each solver is enough.
        check_solver(make, what, any_program=program in ("path", "supply", "at most k", "lots"))


def cheapest(c: np.ndarray) -> np.ndarray:
    """min cᵀw  s.t.  Σ w = 1,  0 ≤ w ≤ 1; for one instance or a batch."""
    return (c == c.min(-1, keepdims=True)).astype(float)


@pytest.mark.parametrize("batched", [False, True])
def test_contract_of_a_function(batched: bool) -> None:
    program = Program(A=np.ones((1, 5)), b=[1], upper=1, S=np.diag(np.arange(1.0, 6)), d=np.ones(5))
    check_solver(
        lambda program: from_callable(cheapest, program.n, S=program.S, d=program.d, batched=batched),
        program,
        any_program=False,
    )


class Broken(Solver):
    """TopK of one item, wrong in one respect."""

    identity = "broken"

    def __init__(self, program: Program, fault: str) -> None:
        self.program, self.objective, self.fault, self.calls = program, program.objective, fault, 0

    def _solve(self, c: np.ndarray, sides: Sides | None, start: object) -> Raw:
        self.calls += 1
        if sides is not None and not sides.is_shared and self.fault != "deaf":
            raise ProgramError("the same constraints for every instance")
        w = cheapest(c)
        if self.fault == "suboptimal":
            w = np.roll(w, 1, axis=1)
        elif self.fault == "infeasible":
            w = 2 * w
        elif self.fault == "fractional":
            w = np.full_like(c, 1 / c.shape[1])
        elif self.fault == "batch" and len(c) > 1:
            w[:] = w[0]
        elif self.fault == "memory" and self.calls > 1:
            w = np.roll(w, 1, axis=1)
        value = (c * w).sum(1)
        status = Status.FAILED if self.fault == "silent" else Status.OPTIMAL
        told = value + 1 if self.fault == "objective" else value
        return Raw(w, np.full(len(c), int(status), np.int8), told, value + 1 if self.fault == "bound" else told)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("suboptimal", "called optimal is not"),
        ("infeasible", "breaks a constraint"),
        ("fractional", "not an integer"),
        ("batch", "called optimal is not"),
        ("memory", "changes the decision"),
        ("objective", "not that of the decision"),
        ("bound", "above the objective"),
        ("silent", "FAILED"),
        ("deaf", "its own lower and upper"),
    ],
)
def test_the_check_finds_what_is_wrong(fault: str, message: str) -> None:
    program = Program(A=np.ones((1, 5)), b=[1], upper=1, integer=True)
    costs = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with pytest.raises((AssertionError, SolverError), match=message):
        check_solver(lambda p: Broken(p, fault), program, costs, any_program=False)


class Forgetful(HiGHS):
    """HiGHS that forgets one side of an instance."""

    def __init__(self, program: Program, forgets: str) -> None:
        super().__init__(program)
        self.forgets = forgets

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        return super()._solve(c, replace(sides, **{self.forgets: getattr(self.program, self.forgets)}), start)


@pytest.mark.parametrize("side", ["b", "h", "lower", "upper"])
@pytest.mark.parametrize("integer", [False, True])
def test_a_solver_that_ignores_a_side_of_an_instance_is_found(side: str, integer: bool) -> None:
    program = Program(A=np.ones((1, 5)), b=[2], G=[[1, 1, 0, 0, 0]], h=[1], upper=1, integer=integer)
    costs = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with pytest.raises(AssertionError, match=side):
        check_solver(lambda p: Forgetful(p, side), program, costs, any_program=False)
