"""Which solver a program gets: an oracle where its structure is known, with the same optimum as HiGHS."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers import DagShortestPath, FewRowBinary, FewRowLP, HiGHS, RelaxationFirst, SmallLP, Solver, TopK
from dflearn.solvers.task import best_solver
from support import programs

CASES: dict[str, tuple[Program, type[Solver]]] = {
    "path": (programs.shortest_path(4), DagShortestPath),
    "at most k": (programs.top_k(), TopK),
    "exactly k": (programs.top_k(at_most=False), TopK),
    "two of each": (Program(G=np.full((1, 7), 2.0), h=[6], upper=1, S=-np.eye(7), sense="maximize"), TopK),
    "relaxed knapsack": (programs.knapsack(12).relax(), FewRowLP),
    "knapsack": (programs.knapsack(12), FewRowBinary),
    "facilities that must all open": (problem_named("CFL-50", seed=2).program, RelaxationFirst),
    "facilities that may stay closed": (programs.facility_location(), HiGHS),
    "many facilities": (programs.facility_location(1, 33), HiGHS),
    "no switches": (Program(G=np.ones((2, 3)), h=[1, 2], upper=1, integer=[0, 1]), HiGHS),
    "free variables": (Program(G=np.ones((1, 3)), h=[1], lower=-np.inf, upper=1), SmallLP),
    "relaxed facility location": (programs.facility_location().relax(), FewRowLP),
    "assignment": (
        Program(A=np.vstack([np.kron(np.eye(5), np.ones((1, 5))), np.kron(np.ones((1, 5)), np.eye(5))]), b=np.ones(10)),
        SmallLP,
    ),
    "large": (Program(G=np.ones((200, 100)), h=np.ones(200)), HiGHS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_of_each_structure_finds_the_optimum(name: str) -> None:
    program, kind = CASES[name]
    solver = best_solver(program)
    assert type(solver) is kind
    y = torch.rand(5, program.p, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.3 * (kind is TopK)
    found, wanted = solver.solve(y), HiGHS(program).solve(y)
    assert found.status.tolist() == wanted.status.tolist()
    torch.testing.assert_close(found.objective, wanted.objective, equal_nan=True)


@pytest.mark.parametrize("name", ["path", "at most k", "relaxed knapsack", "knapsack"])
def test_instances_that_leave_the_structure_are_solved_all_the_same(name: str) -> None:
    """Bounds of their own, on one side infinite where the structure has finite ones."""
    program, _ = CASES[name]
    upper = torch.ones(3, program.n, dtype=torch.float64)
    upper[1, ::2], upper[2, 0] = (1.0, 2.0) if name == "path" else (0.0, 2.0)
    y = torch.rand(3, program.p, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    own = Instance(upper=upper)
    found = best_solver(program).solve(y, own)
    assert found.fallback is not None
    assert not found.fallback.any(), "HiGHS is the first solver of such instances"
    torch.testing.assert_close(found.objective, HiGHS(program).solve(y, own).objective)
