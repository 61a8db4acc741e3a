"""Labels: the cache solves nothing twice, survives interruption and damage, and never hands out a bad status."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.data import DecisionDataset
from dflearn.data.labels import label, solve_cached
from dflearn.errors import DataError, SolverError
from dflearn.evaluation import evaluate
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status
from dflearn.solvers.highs import HiGHS

N = 6


class Counting(Solver):
    """HiGHS, with a count of the instances solved and something to do before each chunk."""

    def __init__(self, program: Program, before: Callable[[int], None] = lambda _: None, name: str = "one") -> None:
        self.program, self.objective = program, program.objective
        self.inner, self.before, self.name, self.solved = HiGHS(program), before, name, 0

    @property
    def identity(self) -> str:
        return self.name

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert start is None
        self.before(self.solved)
        self.solved += len(c)
        return self.inner._solve(c, sides, None)


@pytest.fixture
def program() -> Program:
    return Program(G=np.arange(2.0, 2 + N)[None], h=[11], upper=1, S=-np.eye(N), integer=True, sense="maximize")


@pytest.fixture
def costs() -> torch.Tensor:
    return torch.as_tensor(np.random.RandomState(0).uniform(1, 9, (20, N)), dtype=torch.float32)


def files(cache: Path) -> list[Path]:
    return sorted((cache / "solutions").glob("*.sqlite"))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(-7), other.nan_to_num(-7))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_plain_solve(program: Program, costs: torch.Tensor, tmp_path: Path, cached: bool, dtype) -> None:
    y = costs.to(dtype).reshape(4, 5, N)
    wanted = HiGHS(program).solve(y)
    for _ in range(2):  # the second time from the cache
        found = solve_cached(HiGHS(program), y, cache=tmp_path if cached else None, chunk=7)
        assert found.decision.dtype == dtype
        for name in ("decision", "status", "objective", "bound"):
            assert same(getattr(found, name), getattr(wanted, name)), name
    assert bool(files(tmp_path)) == cached


def test_nothing_is_solved_twice(program: Program, costs: torch.Tensor, tmp_path: Path) -> None:
    solver = Counting(program)
    solve_cached(solver, costs[:12], cache=tmp_path)
    assert solver.solved == 12
    solve_cached(solver, costs[5:], cache=tmp_path)  # seven rows known
    assert solver.solved == 20
    solve_cached(solver, costs.double().flip(0), cache=tmp_path)  # another order and dtype, the same numbers
    assert solver.solved == 20
    twice = Counting(program)
    answer = solve_cached(twice, torch.cat([costs, costs]), cache=tmp_path / "new")  # equal rows within one call
    assert twice.solved == 20
    assert torch.equal(answer.decision[:20], answer.decision[20:])


def test_another_program_or_instance_is_another_question(program: Program, costs: torch.Tensor, tmp_path: Path) -> None:
    solve_cached(Counting(program), costs, cache=tmp_path)
    larger, named = Counting(replace(program, h=[12])), Counting(program, name="another tolerance")
    for other in (larger, Counting(program.relax()), named):
        solve_cached(other, costs, cache=tmp_path)
        assert other.solved == 20
    solver = Counting(program)
    h = torch.full((20, 1), 11.0)
    h[3:5] = 9.0
    solve_cached(solver, costs, Instance(h=h), cache=tmp_path)
    assert solver.solved == 20
    h[4] = 8.0
    answer = solve_cached(solver, costs, Instance(h=h), cache=tmp_path)
    assert solver.solved == 21
    assert torch.equal(answer.decision, HiGHS(program).solve(costs, Instance(h=h)).decision)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_keeps_what_is_finished(
    program: Program, costs: torch.Tensor, tmp_path: Path, error: type[BaseException]
) -> None:
    def stop(solved: int) -> None:
        if solved >= 12:
            raise error

    interrupted = Counting(program, stop)
    with pytest.raises(error):
        solve_cached(interrupted, costs, cache=tmp_path, chunk=4)
    resumed = Counting(program)
    answer = solve_cached(resumed, costs, cache=tmp_path, chunk=4)
    assert (interrupted.solved, resumed.solved) == (12, 8)
    assert torch.equal(answer.decision, HiGHS(program).solve(costs).decision)


def damage_entries(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT key, packed FROM solutions ORDER BY key").fetchall()
        spoilt = (rows[0][1][:-1], rows[1][1][:5] + b"\xff" + rows[1][1][6:], zlib.compress(b"short"))
        for (key, _), packed in zip(rows, spoilt, strict=False):
            connection.execute("UPDATE solutions SET packed = ? WHERE key = ?", (packed, key))
    connection.close()


def test_damaged_entries_are_named_and_solved_again(program: Program, costs: torch.Tensor, tmp_path: Path) -> None:
    solve_cached(Counting(program), costs, cache=tmp_path)
    (path,) = files(tmp_path)
    damage_entries(path)
    solver = Counting(program)
    with pytest.warns(RuntimeWarning, match=path.name):
        answer = solve_cached(solver, costs, cache=tmp_path)
    assert solver.solved == 3
    assert torch.equal(answer.decision, HiGHS(program).solve(costs).decision)
    solve_cached(solver, costs, cache=tmp_path)  # repaired: no warning, no solve
    assert solver.solved == 3


@pytest.mark.parametrize("spoil", [lambda b: b"no database" * 99, lambda b: b[:4096] + b"\xff" * (len(b) - 4096)])
def test_a_damaged_file_is_moved_aside(
    program: Program, costs: torch.Tensor, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    solve_cached(Counting(program), costs, cache=tmp_path)
    (path,) = files(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    solver = Counting(program)
    with pytest.warns(RuntimeWarning, match=rf"{path.name} is damaged.*moved to"):
        solve_cached(solver, costs, cache=tmp_path)
    assert solver.solved == 20
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    solve_cached(solver, costs, cache=tmp_path)
    assert solver.solved == 20


def test_without_a_writable_folder_it_goes_on_uncached(program: Program, costs: torch.Tensor, tmp_path: Path) -> None:
    expected = HiGHS(program).solve(costs)
    (tmp_path / "solutions").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="answers are not kept. Name another folder") as told:
        found = solve_cached(HiGHS(program), costs, cache=tmp_path)
    assert len(told) == 1
    assert torch.equal(found.decision, expected.decision)


class Stateful(Counting):
    def get_state(self) -> dict[str, int]:
        return {"solved": self.solved}


def test_a_solver_with_a_memory_makes_no_labels(program: Program, costs: torch.Tensor) -> None:
    with pytest.raises(SolverError, match="depend on what it solved before"):
        solve_cached(Stateful(program), costs)


class Scripted(Solver):
    """Answers zeros with the statuses it is told."""

    def __init__(self, program: Program, status: list[Status]) -> None:
        self.program, self.objective, self.script, self.solved = program, program.objective, status, 0

    @property
    def identity(self) -> str:
        return "scripted"

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        raw = Raw.empty(len(c), N)
        raw.status[:] = self.script[: len(c)]
        decided = [Status(int(code)).has_decision for code in raw.status]
        raw.decision[decided] = raw.objective[decided] = raw.bound[decided] = 0.0
        self.solved += len(c)
        return raw


def test_workers_give_the_same_labels_and_share_the_cache(
    program: Program, costs: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DecisionDataset(torch.zeros(20, 2), costs)
    wanted = label(data, HiGHS(program)).decisions
    assert torch.equal(label(data, HiGHS(program), cache=tmp_path, workers=3).decisions, wanted)
    monkeypatch.setattr(HiGHS, "_solve", None)  # nothing may be solved any more
    assert torch.equal(label(data, HiGHS(program), cache=tmp_path).decisions, wanted)


def test_label_refuses_what_is_not_optimal(program: Program, costs: torch.Tensor) -> None:
    data = DecisionDataset(torch.zeros(4, 2), costs[:4], ids=torch.tensor([7, 8, 9, 10]))
    script = [Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.FEASIBLE]
    with pytest.raises(SolverError, match=r"3 of 4 .*id 8 is FEASIBLE \(and 1 more: id 10\).*id 9 is INFEAS.*accept="):
        label(data, Scripted(program, script))
    both = (Status.OPTIMAL, Status.FEASIBLE)
    with pytest.raises(SolverError, match=r"1 of 4 .*id 9 is INFEASIBLE"):
        label(data, Scripted(program, script), accept=both)
    assert label(data, Scripted(program, [*both, *both]), accept=both).decisions.shape == (4, N)
    with pytest.raises(DataError, match="no costs"):
        label(DecisionDataset(torch.zeros(4, 2)), HiGHS(program))


def test_what_says_nothing_is_not_kept(program: Program, costs: torch.Tensor, tmp_path: Path) -> None:
    solver = Scripted(program, [Status.OPTIMAL, Status.NOT_FOUND, Status.INFEASIBLE, Status.FAILED])
    first = solve_cached(solver, costs[:4], cache=tmp_path)
    assert first.status.tolist() == [0, 4, 2, 5]
    solver.script = [Status.OPTIMAL, Status.OPTIMAL, Status.OPTIMAL]
    assert solve_cached(solver, costs[:4], cache=tmp_path).status.tolist() == [0, 0, 0, 0]
    assert solver.solved == 7


def test_functions_without_a_name_are_not_remembered(tmp_path: Path) -> None:
    """Nothing tells two lambdas apart, so the answers of one are never given for the other."""
    data = DecisionDataset(torch.zeros(4, 1), torch.rand(4, 3, generator=torch.Generator().manual_seed(0)))
    with pytest.warns(RuntimeWarning, match="are not remembered"):
        least = label(data, lambda c: np.eye(3)[c.argmin()], cache=tmp_path)
    with pytest.warns(RuntimeWarning, match="are not remembered"):
        most = label(data, lambda c: np.eye(3)[c.argmax()], cache=tmp_path)
    assert data.costs is not None
    for labelled, wanted in ((least, data.costs.argmin(1)), (most, data.costs.argmax(1))):
        assert labelled.decisions is not None
        assert labelled.decisions.argmax(1).tolist() == wanted.tolist()


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("h", [False, True])
def test_an_instance_field_of_width_zero(program: Program, count: int, h: bool, tmp_path: Path) -> None:
    """A program without equalities has a b of no columns; `label`, `evaluate` and training take it as it is."""
    rng = np.random.RandomState(count)
    costs = torch.as_tensor(rng.uniform(1, 9, (count, N)))
    sides = {"h": torch.full((count, 1), 9.0)} if h else {}
    instance = Instance(b=torch.zeros(count, 0, dtype=torch.float64), **sides)
    data = DecisionDataset(torch.zeros(count, 2, dtype=torch.float64), costs, instance=instance)
    labelled = label(data, program, cache=tmp_path)
    assert torch.equal(labelled.decisions, HiGHS(program).solve(costs, Instance(**sides) if h else None).decision)
    assert torch.equal(label(data, program, cache=tmp_path).decisions, labelled.decisions)
    judged = evaluate(costs, program, labelled, pessimistic=True, progress=False)
    assert not judged.regrets.any()
    assert len(evaluate(costs, program, data, progress=False).regrets) == count
    batched = solve_cached(HiGHS(program), costs[:, None], instance.map(lambda value: value[:, None]))
    assert torch.equal(batched.decision[:, 0], labelled.decisions)


def test_labels_lose_nothing_to_the_dtype_of_the_costs() -> None:
    """A perfect prediction has no regret, also where a vertex is no number in single precision; batches are in that one."""
    trade = Program(A=[[7.0, -11.0]], b=[0.0], upper=[1e6 / 7, np.inf])
    data = DecisionDataset(torch.zeros(3, 1), torch.tensor([[700.0, -1102.75]] * 3))
    labelled = label(data, trade)
    assert labelled.decisions is not None
    assert labelled.decisions.dtype == torch.float64
    batch = labelled.batch().decisions
    assert batch is not None
    assert batch.dtype == torch.float32
    assert data.costs is not None
    for own in (labelled, labelled.with_decisions(batch)):  # and where one's own labels are rounded
        judged = evaluate(data.costs, trade, own)
        assert judged.absolute_regret == 0
        assert judged.exact_share == 1
        np.testing.assert_allclose(judged.optima, -250_000, rtol=1e-12)
    whole = label(data, Program(A=[[1.0, -1.0]], b=[0.0], upper=[3, np.inf]))
    assert whole.decisions is not None
    assert whole.decisions.dtype == torch.float32
