"""Electricity days (file, stand-in, split), their knapsack, and scheduling: against HiGHS, every schedule, the text format."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.evaluation import evaluate
from dflearn.problems.energy import EnergyKnapsack, load_energy_days, split_days, synthetic_energy_days
from dflearn.problems.scheduling import Job, Scheduling
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.testing.problems import check_problem


@pytest.fixture
def file(tmp_path: Path) -> Path:
    days = synthetic_energy_days(12, seed=3)
    path = tmp_path / "days.npz"
    arrays = {"features": days.features.astype(np.float32), "values": days.values, "weights": days.weights}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_what_is_no_file_of_days_is_refused(tmp_path: Path, file: Path) -> None:
    for name, write in (
        ("missing.npz", lambda path: None),
        ("text.npz", lambda path: path.write_text("no archive")),
        ("other.npz", lambda path: np.savez(path, features=np.zeros(3))),
        ("array.npy", lambda path: np.save(path, np.zeros(3))),
    ):
        write(tmp_path / name)
        with pytest.raises(DataError, match="not a file of energy days"):
            load_energy_days(tmp_path / name)
    np.savez(tmp_path / "short.npz", features=np.zeros((2, 47, 8)), values=np.zeros((2, 48)), weights=np.ones(48))
    with pytest.raises(DataError, match=r"features must be finite numbers of shape \(2, 48, 8\)"):
        load_energy_days(tmp_path / "short.npz")


def test_split_is_disjoint_standardized_and_knows_the_training_days_only() -> None:
    days = synthetic_energy_days(60)
    data = days.dataset(days.values)
    (train, validation, test), unit = split_days(data, 1, train=30, validation=10)
    assert sorted(torch.cat([part.ids for part in (train, validation, test)]).tolist()) == list(range(60))
    flat = train.features.double().flatten(0, 1)
    torch.testing.assert_close(flat.mean(0), torch.zeros(8).double(), atol=1e-5, rtol=0)
    moving = flat.std(0) > 0  # all but the holidays, of which there may be none
    torch.testing.assert_close(flat.std(0)[moving], torch.ones(int(moving.sum())).double(), atol=1e-4, rtol=0)
    assert unit == pytest.approx(float(data.costs[train.ids].mean()))
    torch.testing.assert_close(test.costs * unit, data.costs[test.ids])
    again, _ = split_days(data, 1, train=0.5, validation=1 / 6)
    assert torch.equal(again.test.features, test.features)
    assert not torch.equal(split_days(data, 2, train=30, validation=10)[0].test.ids, test.ids)
    with pytest.raises(OptionError, match="leave none of 60"):
        split_days(data, 1, train=50, validation=10)


@pytest.mark.parametrize("capacity", [2, 60, 120, 300])
@pytest.mark.parametrize("predict", ["value", "price"])
def test_knapsack_solver_is_exact(capacity: int, predict) -> None:  # type: ignore[no-untyped-def]
    days = synthetic_energy_days(3)
    knapsack = EnergyKnapsack(tuple(days.weights.tolist()), capacity, predict)
    costs = torch.as_tensor(knapsack.costs(days))
    costs[2] -= costs[2].median()  # items that are better left out
    found, reference = knapsack.solver().solve(costs), HiGHS(knapsack.program).solve(costs)
    assert float(knapsack.program.violation(found.decision).max()) == 0
    torch.testing.assert_close(found.objective, reference.objective)
    relaxed = knapsack.relaxed_solver().solve(costs)
    torch.testing.assert_close(relaxed.objective, HiGHS(knapsack.program.relax()).solve(costs).objective)


SMALL = [EnergyKnapsack(capacity=20), EnergyKnapsack(capacity=30, predict="price", seed=3)]
SMALL += [EnergyKnapsack((3, 5, 7) * 16, 24), Scheduling.synthetic(2, 2, seed=1)]


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_contract(problem: EnergyKnapsack | Scheduling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DFLEARN_ENERGY", raising=False)
    check_problem(problem)
    assert not problem.has_floor
    assert problem.task().expected_costs is None
    data = problem.generate(10)
    assert json.loads(json.dumps(data.origin)) == problem.origin  # a file of data gives it back
    with pytest.raises(OptionError, match="no floor"):
        problem.expected_costs(data.features)
    with pytest.raises(OptionError, match="no other costs"):
        problem.sample_costs(data.features, seed=0)
    with pytest.raises(OptionError, match="790 days were asked for, and there are 789"):
        problem.generate(790)


def test_the_days_are_those_of_the_file_in_their_order(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = load_energy_days(file)
    monkeypatch.setenv("DFLEARN_ENERGY", str(file))
    for path in (None, str(file)):
        problem = EnergyKnapsack(capacity=20, predict="price", path=path)
        data = problem.generate(5, dtype=torch.float64)
        np.testing.assert_array_equal(data.features, days.features[:5])
        np.testing.assert_array_equal(data.costs, days.prices[:5])
        shuffled = problem.generate(12, seed=1, dtype=torch.float64)
        assert sorted(shuffled.costs[:, 0].tolist()) == sorted(days.prices[:, 0].tolist())
        assert problem.program.G.toarray().ravel().tolist() == days.weights.tolist()
    found = evaluate(shuffled.costs, problem, shuffled)
    assert found.absolute_regret == 0
    assert found.floor_regrets is None


JOBS = (Job(2, 0, 6, 10.0, (3.0, 1.0)), Job(3, 1, 6, 5.0, (2.0, 2.0)), Job(1, 0, 4, 20.0, (4.0, 0.0)))
TINY = Scheduling(tasks=JOBS, capacities=((5.0, 2.0), (4.0, 3.0)), slots=6, minutes=60)
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
        with pytest.raises(DataError, match="scheduling instance"):
            Scheduling.read(path)


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
