"""What is decided, whatever it is said with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.errors import OptionError
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import DagShortestPath, HiGHS, from_callable
from dflearn.solvers.task import DecisionTask
from support import programs


def cheapest(c: np.ndarray) -> np.ndarray:
    """Takes every item of negative cost."""
    return (c < 0).astype(float)


def test_a_problem_keeps_its_solvers_and_its_floor() -> None:
    problem = problem_named("SP-3", seed=1)
    task = DecisionTask.of(problem)
    assert isinstance(task.solver, DagShortestPath)
    assert task.name == "SP-3"
    assert task.expected_costs is not None
    features = torch.zeros(2, 10)
    torch.testing.assert_close(task.expected_costs(features), problem.expected_costs(features))


def test_a_solver_stays_what_it_is() -> None:
    solver = HiGHS(programs.shortest_path())
    assert DecisionTask.of(solver).solver is solver
    assert DecisionTask.of(solver).relaxed is solver
    lonely = from_callable(cheapest, 3)
    task = DecisionTask.of(lonely)
    assert task.program is None
    assert task.relaxed is lonely
    assert DecisionTask.of(task) is task


def test_a_function_decides_for_as_many_costs_as_there_are() -> None:
    task = DecisionTask.of(cheapest, costs=3)
    assert task.solver.solve(torch.tensor([[1.0, -1.0, -2.0]])).decision.tolist() == [[0, 1, 1]]
    with pytest.raises(OptionError, match=r"wrap it with dflearn.from_callable\(function, n\)"):
        DecisionTask.of(cheapest)


@pytest.mark.parametrize("what", ["SP-5", 3, None, Program])
def test_anything_else_is_refused(what: object) -> None:
    with pytest.raises(OptionError, match="a Problem, a Program, a Solver or a function"):
        DecisionTask.of(what)  # type: ignore[arg-type]
