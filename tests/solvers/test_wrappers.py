"""Parallel gives the same answers, in order; Pooled answers with what it knows, and says that it proves nothing."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.errors import OptionError, ProgramError, ShapeError
from dflearn.layers.base import Exact
from dflearn.program import Instance, Program
from dflearn.solvers.base import Raw, Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import DagShortestPath
from dflearn.solvers.wrappers import Parallel, Pooled
from support import programs
from support.forked import solved_in_child


def random_costs(program: Program, count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, program.p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Counting(HiGHS):
    """HiGHS that counts the instances it solves and the threads it is called from."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.solved, self.threads_seen = 0, set[int]()

    def _solve(self, c: np.ndarray, sides: Any, start: np.ndarray | None) -> Raw:
        self.solved += len(c)
        self.threads_seen.add(threading.get_ident())
        return super()._solve(c, sides, start)


# -- Parallel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "workers"), [(0, 2), (1, 3), (2, 2), (9, 1), (40, 3)])
def test_parallel_keeps_order_starts_and_sides(count: int, workers: int) -> None:
    program = programs.supply()
    y = random_costs(program, count)
    instance = Instance(h=torch.tensor(program.h) + torch.arange(count)[:, None] / 10, d=y.flip(0))
    alone = HiGHS(program)
    with Parallel(alone, workers) as parallel:
        one, other = (
            alone.solve(y, instance, alone.no_start(count)),
            parallel.solve(y, instance, parallel.no_start(count)),
        )
        for part in ("decision", "status", "objective", "bound", "start"):
            assert torch.equal(getattr(one, part), getattr(other, part)), part
        warm = parallel.solve(y, instance, other.start)
        torch.testing.assert_close(warm.objective, one.objective)
        assert parallel.identity == alone.identity


def test_parallel_uses_its_workers_and_stops_them() -> None:
    solver = Counting(programs.supply())
    parallel = Parallel(solver, workers=2)
    before = threading.active_count()
    parallel.solve(random_costs(solver.program, 64))
    assert solver.solved == 64
    assert threading.get_ident() not in solver.threads_seen
    assert threading.active_count() > before
    parallel.close()
    assert threading.active_count() == before
    parallel.close()
    assert parallel.solve(random_costs(solver.program, 4)).counts() == {"OPTIMAL": 4}  # starts anew
    del parallel


def test_parallel_is_picklable_and_copies_have_workers_of_their_own() -> None:
    program = programs.supply()
    y = random_costs(program, 8)
    with Parallel(HiGHS(program), workers=2) as parallel:
        wanted = parallel.solve(y).objective
        for twin in (pickle.loads(pickle.dumps(parallel)), copy.deepcopy(parallel)):
            assert torch.equal(twin.solve(y).objective, wanted)
            twin.close()
        assert torch.equal(parallel.solve(y).objective, wanted)


def test_parallel_after_a_fork() -> None:
    program = programs.supply()
    y = random_costs(program, 8)
    with Parallel(HiGHS(program), workers=2) as parallel:
        wanted = parallel.solve(y).objective.tolist()
        assert solved_in_child(parallel, y) == wanted
        assert parallel.solve(y).objective.tolist() == wanted


def test_parallel_refuses() -> None:
    program = programs.supply()
    with pytest.raises(OptionError, match="workers must be at least 1; got 0"):
        Parallel(HiGHS(program), 0)
    with pytest.raises(ProgramError, match="must not run in parallel"):
        Parallel(Pooled(HiGHS(program), 0.5))
    assert Parallel(HiGHS(program)).workers >= 1


def test_parallel_passes_instances_on() -> None:
    """Bounds of one's own are no shortest path: the gate of `DagShortestPath` hands them to HiGHS, on each worker."""
    program = programs.shortest_path(3)
    y, instance = random_costs(program, 6).abs(), Instance(upper=torch.full((6, 12), 0.75))
    wanted = HiGHS(program).solve(y, instance).check().objective
    with Parallel(DagShortestPath(program), 2) as paths:
        torch.testing.assert_close(paths.solve(y, instance).check().objective, wanted)


# -- Pooled -------------------------------------------------------------------------------------------------------------


def test_pooled_never_beats_the_optimum_and_claims_nothing() -> None:
    program = programs.knapsack()
    y = random_costs(program, 200).abs()
    pooled = Pooled(Counting(program), ratio=0.2)
    for part in y.split(25):
        answer = pooled.solve(part).check()
        best = HiGHS(program).solve(part).objective
        reused = answer.status == Status.FEASIBLE
        torch.testing.assert_close(answer.objective[~reused], best[~reused])
        assert (answer.objective[reused] >= best[reused] - 1e-9).all()
        assert (answer.bound[reused] == -torch.inf).all()
        assert (program.violation(answer.decision) <= 1e-9).all()
        torch.testing.assert_close(answer.objective, program.objective(part, answer.decision))
        # No member of the pool is better than the one that was taken.
        values = program.objective(part[:, None], pooled.decisions[None])
        assert (answer.objective <= values.amin(-1) + 1e-9).all()
    assert isinstance(pooled.solver, Counting)
    assert 25 < pooled.solver.solved < 90, "the first batch, and about a fifth of the rest"


def test_pooled_keeps_each_decision_once() -> None:
    program = programs.top_k(4, 1, at_most=False)
    pooled = Pooled(HiGHS(program), ratio=1)
    for best in (0, 1, 1, 0, 2):
        pooled.solve(1 - torch.eye(4)[best])
    assert pooled.decisions.argmax(-1).tolist() == [0, 1, 2]
    many = Pooled(HiGHS(program), ratio=1)
    many.solve(torch.cat([1 - torch.eye(4)] * 10))
    assert len(many.decisions) == 4


def test_pooled_begins_with_what_it_is_given() -> None:
    program = programs.top_k(4, 1, at_most=False)
    solver = Counting(program)
    pooled = Pooled(solver, ratio=0, initial=torch.eye(4)[:2])
    answer = pooled.solve(torch.tensor([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]]))
    assert answer.decision.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert answer.objective.tolist() == [2, 0]
    assert answer.counts() == {"FEASIBLE": 2}
    assert solver.solved == 0


def test_pooled_per_batch_tosses_one_coin() -> None:
    program = programs.top_k(4, 1, at_most=False)
    pooled = Pooled(HiGHS(program), ratio=0.5, per="batch", initial=torch.eye(4))
    statuses = [set(pooled.solve(random_costs(program, 6, seed)).status.tolist()) for seed in range(20)]
    assert all(len(status) == 1 for status in statuses)
    assert 4 <= sum(status == {int(Status.OPTIMAL)} for status in statuses) <= 16


def test_pooled_keeps_the_starts_of_what_it_does_not_solve() -> None:
    program = programs.supply()
    pooled = Pooled(HiGHS(program), ratio=0.5)
    y = random_costs(program, 20)
    first = pooled.solve(y, None, pooled.no_start(20))
    second = pooled.solve(y, None, first.start)
    assert first.start is not None
    assert second.start is not None
    reused = second.status == Status.FEASIBLE
    assert 0 < reused.sum() < 20
    assert torch.equal(second.start[reused], first.start[reused])
    assert (second.start >= 0).all()


def test_pooled_goes_on_from_a_checkpoint() -> None:
    """Pool and coins are state: with both saved, a resumed run answers as the one that went on."""
    program = programs.knapsack()
    make = lambda: Pooled(HiGHS(program), ratio=0.3, generator=torch.Generator().manual_seed(5))  # noqa: E731
    went_on, resumed = make(), make()
    went_on.solve(random_costs(program, 30).abs())
    layer, twin = Exact(went_on), Exact(resumed)
    twin.load_state_dict(copy.deepcopy(layer.state_dict()))
    copies = [resumed, pickle.loads(pickle.dumps(went_on)), copy.deepcopy(went_on)]
    for seed in (1, 2):
        y = random_costs(program, 30, seed).abs()
        wanted = went_on.solve(y)
        for other in copies:
            answer = other.solve(y)
            assert torch.equal(answer.decision, wanted.decision)
            assert torch.equal(answer.status, wanted.status)
            assert torch.equal(other.decisions, went_on.decisions)


def test_pooled_does_not_remember_what_has_no_decision() -> None:
    program = Program(G=[[1, -1]], h=[1])
    pooled = Pooled(HiGHS(program), ratio=1)
    answer = pooled.solve(torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    assert answer.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL]
    assert pooled.decisions.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ratio": 1.5}, OptionError, "need 0 <= ratio <= 1"),
        ({"ratio": -0.1}, OptionError, "need 0 <= ratio <= 1"),
        ({"ratio": 0.5, "per": "epoch"}, OptionError, "per 'instance' or 'batch'"),
        ({"ratio": 0.5, "initial": torch.ones(4)}, ShapeError, r"shape \(count, 4\); got \(4,\)"),
        ({"ratio": 0.5, "initial": torch.full((1, 4), torch.nan)}, ShapeError, "hold a NaN"),
        ({"ratio": 0.5, "initial": torch.ones(1, 4)}, ProgramError, "initial decision 0 breaks the constraints"),
        (
            {"ratio": 0.5, "initial": torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])},
            ProgramError,
            "initial decision 1 breaks",
        ),
    ],
)
def test_pooled_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Pooled(HiGHS(programs.top_k(4, 1, at_most=False)), **arguments)


def test_pooled_refuses_instances_with_constraints_of_their_own() -> None:
    program = programs.supply()
    y = random_costs(program, 2)
    pooled = Pooled(HiGHS(program), ratio=0.5)
    with pytest.raises(ProgramError, match="have their own h: what is feasible for one need not be for another"):
        pooled.solve(y, Instance(h=torch.zeros(2, 3)))
    assert pooled.solve(y, Instance(d=torch.zeros(2, 8))).counts() == {"OPTIMAL": 2}


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_a_pool_tells_decisions_apart_in_any_units(unit: float) -> None:
    """Also where variables differ in theirs; what solvers round makes no member of its own."""
    program = Program(A=[[1.0, 1.0, 1e6]], b=[unit], upper=unit)
    corners = unit * np.diag([1.0, 1.0, 1e-6])
    again = corners * (1 + 1e-12) + 1e-14 * corners.max(1, keepdims=True)
    pooled = Pooled(HiGHS(program), 0.0, initial=torch.tensor(np.vstack([corners, again])))
    assert len(pooled.decisions) == 3
    y = torch.tensor([[3.0, 2, 9e6], [1, 2, 3e6], [2, 3, 1e6]], dtype=torch.float64)
    np.testing.assert_allclose(pooled.solve(y).decision, corners[[1, 0, 2]], rtol=1e-9)
