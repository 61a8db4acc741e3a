"""Scheduling: the program against every schedule of a tiny instance, the text format, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.errors import DataError, ProgramError
from dflearn.problems.scheduling import Job, Scheduling
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS

TINY = Scheduling(
    tasks=(
        Job(2, 0, 6, 10.0, (3.0, 1.0)),
        Job(3, 1, 6, 5.0, (2.0, 2.0)),
        Job(1, 0, 4, 20.0, (4.0, 0.0)),
    ),
    capacities=((5.0, 2.0), (4.0, 3.0)),
    slots=6,
    minutes=60,
)
TEXT = """30
1
2
0 190 0.1 0.0
5481
1 170 0.1 0.1
5583
2
0 10 1 25 471.40
2610
1 23 8 47 426.43
2361
"""


def cheapest(problem: Scheduling, prices: np.ndarray) -> float:
    """The least cost of all schedules that keep to the capacities, by trying each."""
    best = np.inf
    choices = [list(itertools.product(range(len(problem.capacities)), task.starts)) for task in problem.tasks]
    for schedule in itertools.product(*choices):
        used = np.zeros((len(problem.capacities), problem.slots, len(problem.capacities[0])))
        cost = 0.0
        for task, (machine, start) in zip(problem.tasks, schedule, strict=True):
            used[machine, start : start + task.duration] += task.use
            cost += task.power * prices[start : start + task.duration].sum() * problem.minutes / 60
        if (used <= np.array(problem.capacities)[:, None, :]).all():
            best = min(best, cost)
    return best


def test_the_program_finds_the_cheapest_of_all_schedules() -> None:
    prices = np.random.RandomState(0).uniform(0, 10, (5, 6))
    found = TINY.solver().solve(torch.as_tensor(prices)).check((Status.OPTIMAL,))
    assert found.objective.tolist() == pytest.approx([cheapest(TINY, row) for row in prices])
    assert bool((TINY.relaxed_solver().solve(torch.as_tensor(prices)).objective <= found.objective + 1e-6).all())
    power = TINY.power(found.decision.numpy())
    assert power.shape == (5, 6)
    np.testing.assert_allclose((power * prices).sum(1), found.objective)


def test_reading_the_text_format(tmp_path: Path) -> None:
    path = tmp_path / "load.txt"
    path.write_text(TEXT)
    problem = Scheduling.read(path)
    assert problem.name == "load"
    assert (problem.slots, problem.minutes) == (48, 30)
    assert problem.capacities == ((5481.0,), (5583.0,))
    assert problem.tasks == (Job(10, 1, 25, 471.40, (2610.0,)), Job(23, 8, 47, 426.43, (2361.0,)))
    # One task runs alone: the cheapest window of its length. Here both fit everywhere.
    prices = np.random.RandomState(1).uniform(20, 80, (2, 48))
    alone = [
        [min(task.power / 2 * day[t : t + task.duration].sum() for t in task.starts) for task in problem.tasks]
        for day in prices
    ]
    found = problem.solver().solve(torch.as_tensor(prices))
    assert found.objective.tolist() == pytest.approx(np.sum(alone, axis=1).tolist())
    for wrong in (TEXT[:-6], TEXT + "7", TEXT.replace("471.40", "much")):
        path.write_text(wrong)
        with pytest.raises(DataError, match="not a scheduling instance"):
            Scheduling.read(path)


@pytest.mark.parametrize("seed", range(4))
def test_synthetic_instances_have_a_schedule(seed: int) -> None:
    problem = Scheduling.synthetic(6, 2, seed)
    prices = torch.as_tensor(np.random.RandomState(seed).uniform(20, 80, (1, 48)))
    HiGHS(problem.program).solve(prices).check((Status.OPTIMAL,))
    assert Scheduling.synthetic(6, 2, seed) == problem


@pytest.mark.parametrize(
    ("tasks", "capacities", "complaint"),
    [
        ((), ((1.0,),), "at least one task"),
        ((Job(2, 0, 4, 1.0, (1.0, 1.0)),), ((1.0,),), "1 resources"),
        ((Job(5, 0, 4, 1.0, (1.0,)),), ((1.0,),), "task 0 has no start"),
        ((Job(2, 0, 49, 1.0, (1.0,)),), ((1.0,),), "task 0 has no start"),
    ],
)
def test_impossible_instances_are_refused(tasks, capacities, complaint) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProgramError, match=complaint):
        Scheduling(tasks, capacities)
