"""The gate: answers of our own exact solvers are certified, and HiGHS solves the others. References in exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag

from dflearn.certify import SURE
from dflearn.kernels import few_row_binary, few_row_lp, shortest_path
from dflearn.program import Instance, Program
from dflearn.solvers import HiGHS, SmallLP
from dflearn.solvers.base import Raw, Status
from dflearn.solvers.few_rows import FewRowBinary, FewRowLP
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.recognition import best_solver
from dflearn.solvers.relaxation_first import RelaxationFirst
from fuzz.exact import exact_lp
from support import programs
from support.in_torch import FewRowLPInTorch

LINEAR = [FewRowLP, FewRowLPInTorch, SmallLP]


def optimum(program: Program, c: np.ndarray) -> float | None:
    """Of costs `(n,)`, in fractions; `None` where there is no decision."""
    found = exact_lp(
        c, program.A.toarray(), program.b, program.G.toarray(), program.h, program.lower, program.upper
    )  # fmt: skip
    return None if found.objective is None else float(found.objective)


def agrees(kind: type[Any], program: Program, c: np.ndarray) -> int:
    """Each answer is OPTIMAL, feasible and as good as the exact one; how many of them HiGHS gave."""
    found = kind(program).solve(torch.tensor(c)).check((Status.OPTIMAL,))
    w, M, right = found.decision.numpy(), (program.A, program.G), (program.b, program.h)
    assert (w >= program.lower).all()
    assert (w <= program.upper).all()
    for matrix, side, sign in zip(M, right, (np.abs, lambda excess: excess), strict=True):
        excess, terms = sign(w @ matrix.T - side), np.abs(w) @ abs(matrix).T + np.abs(side)
        assert (excess <= 1e-8 * terms).all()
    for i, costs in enumerate(c):
        wanted = optimum(program, costs)
        assert wanted is not None
        assert float(costs @ w[i]) == pytest.approx(wanted, rel=0, abs=1e-8 * float(np.abs(costs * w[i]).sum()))
    assert found.fallback is not None
    return int(found.fallback.sum())


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("limit", [1e9, 1e12, 1e14, 1e15])
def test_a_budget_without_a_limit_changes_nothing(kind: type[Any], limit: float) -> None:
    program = Program(G=[[3.0, 5, 2, 4], [1, 1, 1, 1]], h=[7.0, limit], upper=1)
    y = torch.tensor([[-6.0, -5, -4, -3]], dtype=torch.float64)
    found = kind(program).solve(y)
    assert found.decision.tolist() == [[1.0, 0.4, 1.0, 0.0]]
    assert found.status.tolist() == [Status.OPTIMAL]
    assert found.fallback.tolist() == [False]
    assert agrees(kind, program, y.numpy()) == 0


def test_the_default_solver_with_a_budget_without_a_limit() -> None:
    program = Program(
        G=[[3.0, 5, 2, 4], [1, 1, 1, 1]], h=[7.0, 1e15], upper=1, S=-np.eye(4), sense="maximize"
    )  # fmt: skip
    found = best_solver(program).solve(torch.tensor([[6.0, 5, 4, 3]], dtype=torch.float64))
    assert found.objective.tolist() == pytest.approx([-12.0])


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize(
    ("arguments", "c", "wanted"),
    [
        ({"A": [[1e4, 0, 0], [0, 1e-4, 1e-4]], "b": [1e10, 3e-4], "upper": [2e6, 1, 5]}, [1, 1, 2], [1e6, 1, 2]),
        ({"G": [[-1e4], [1e-4]], "h": [1e8, 1e-7], "upper": 0.1}, [-100], [1e-3]),
        ({"G": [[1.0, 0], [0, 1]], "h": [1e7, 1e-8], "upper": [1e9, 1e9]}, [-1e-7, -1e8], [1e7, 1e-8]),
        (
            {
                "A": [[-0.4229640858814333, 1847.5990898792174, 0], [0, 318.827987020942, 0]],
                "b": [-29.919329728801035, 1.6818004567336424],
                "G": [[-6789.863832052028, 0, -0.0001019077870349304]],
                "h": [-636749.3590623809],
                "upper": [1000, 0.1, 1000],
            },
            [-0.01, 100, 0.001],
            None,
        ),
    ],
)
def test_rows_in_other_units(kind: type[Any], arguments: dict[str, Any], c: list[float], wanted: Any) -> None:
    program, costs = Program(**arguments), np.array([c], float)
    agrees(kind, program, costs)
    if wanted is not None:
        assert kind(program).solve(torch.tensor(costs)).decision[0].tolist() == pytest.approx(wanted, rel=1e-9)


def test_small_lps_without_upper_bounds_keep_a_block_in_small_units() -> None:
    program = Program(G=[[1.0, 0], [0, 1]], h=[1e7, 1e-8])
    found = SmallLP(program).solve(torch.tensor([[-1e-7, -1e8]], dtype=torch.float64))
    assert found.decision.tolist() == [[1e7, 1e-8]]
    assert found.fallback.tolist() == [False]


@pytest.mark.parametrize("kind", LINEAR)
def test_a_broken_block_in_small_units_is_infeasible(kind: type[Any]) -> None:
    program = Program(A=[[1e4, 0, 0], [0, 1e-4, 1e-4]], b=[1e10, 3e-4], upper=[2e6, 0.5, 0.5])
    found = kind(program).solve(torch.tensor([[1.0, 1, 2]], dtype=torch.float64))
    assert found.status.tolist() == [Status.INFEASIBLE]
    assert found.fallback.tolist() == [True], "HiGHS has the last word"


def loose_rows(rng: np.random.Generator) -> Program:
    G, inside = rng.normal(size=(4, 5)), rng.random(5)
    h = np.where(rng.random(4) < 0.5, 10.0 ** rng.uniform(9, 15, 4), G @ inside + rng.random(4))
    return Program(G=G, h=h, upper=np.where(rng.random(5) < 0.2, 10.0 ** rng.uniform(3, 12, 5), 1.0))


def blocks(rng: np.random.Generator) -> Program:
    A, G, inside = [], [], []
    for unit in 10.0 ** rng.integers(-8, 9, 3):
        inside.append(unit * rng.random(3))
        A.append(rng.normal(size=(1, 3)))
        G.append(rng.normal(size=(2, 3)))
    w, slack = np.concatenate(inside), np.repeat([part.max() for part in inside], 2) * rng.random(6)
    rows, more = block_diag(*A), block_diag(*G)
    return Program(A=rows, b=rows @ w, G=more, h=more @ w + slack, upper=np.repeat([2 * x.max() for x in inside], 3))


def stocks(rng: np.random.Generator) -> Program:
    """stock_t = stock_{t−1} + buy_t − use_t, a demand and a budget: variables buy, use, stock."""
    T, eye = 4, np.eye(4)
    A = np.hstack([eye, -eye, np.eye(T, k=-1) - eye])
    G = np.vstack(
        [np.hstack([0 * eye, -eye * rng.choice([0.3, 0.7, 1.0], T), 0 * eye]), np.r_[rng.random(T), np.zeros(8)]]
    )
    h = np.r_[-rng.uniform(0, 50, T) * (rng.random(T) < 0.7), 500.0]
    return Program(A=A, b=np.zeros(T), G=G, h=h, upper=10.0 ** rng.integers(3, 5))


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("family", [loose_rows, blocks, stocks])
def test_families_against_exact_arithmetic(kind: type[Any], family: Any) -> None:
    """All answers are right, and nearly all are the first solver's."""
    left, count = 0, 40
    for seed in range(count):
        rng = np.random.default_rng(seed)
        program = family(rng)
        c = rng.normal(size=(1, program.n)) if family is not stocks else rng.uniform(1, 5, (1, program.n))
        left += agrees(kind, program, c * 10.0 ** rng.integers(-5, 6))
    assert left <= count // 20


# -- what does not pass -------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instances each call of HiGHS solved."""
    counts, solve = [], HiGHS._solve

    def watched(self: HiGHS, c: np.ndarray, *others: Any) -> Raw:
        counts.append(len(c))
        return solve(self, c, *others)

    monkeypatch.setattr(HiGHS, "_solve", watched)
    return counts


def test_few_rows_hand_wrong_answers_to_highs(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    program = programs.knapsack(12, 2).relax()
    y = torch.rand(6, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    wanted, solver, solve = HiGHS(program).solve(y), FewRowLP(program), few_row_lp.solve_batch

    def wrong(*arguments: Any) -> None:
        solve(*arguments)
        w, prices, status = arguments[-3:]
        w[1] = 1.0  # not feasible
        w[2] = 0.0  # not optimal
        prices[3] -= 1e-5  # not proven
        status[4] = Status.INFEASIBLE  # not true

    monkeypatch.setattr(few_row_lp, "solve_batch", wrong)
    asked.clear()
    found = solver.solve(y, None, solver.no_start(6)).check((Status.OPTIMAL,))
    assert asked == [4]
    assert found.fallback.tolist() == [False, True, True, True, True, False]
    torch.testing.assert_close(found.objective, wanted.objective)
    assert found.start is not None
    again = HiGHS(program).solve(y, None, found.start)
    torch.testing.assert_close(again.objective, wanted.objective)


def test_few_row_binary_hands_broken_rows_to_highs(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    program = programs.knapsack(12, 2)
    y = torch.rand(4, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    wanted, solver, solve = HiGHS(program).solve(y), FewRowBinary(program), few_row_binary.solve_batch

    def wrong(*arguments: Any) -> None:
        solve(*arguments)
        arguments[-2][1] = 1.0
        arguments[-1][2] = Status.INFEASIBLE

    monkeypatch.setattr(few_row_binary, "solve_batch", wrong)
    asked.clear()
    found = solver.solve(y).check((Status.OPTIMAL,))
    assert asked == [2]
    assert found.fallback.tolist() == [False, True, True, False]
    torch.testing.assert_close(found.objective, wanted.objective)


def test_binary_decisions_with_loose_rows_and_costs_of_many_sizes() -> None:
    """Against every decision there is."""
    rng = np.random.default_rng(0)
    every = np.array(np.meshgrid(*[[0.0, 1.0]] * 7)).reshape(7, -1).T
    for k in range(30):
        G = rng.normal(size=(2, 7))
        h = np.array([G[0].clip(0).sum() / 2, 10.0 ** rng.uniform(9, 15)])
        y = rng.normal(size=(4, 7)) * 10.0 ** rng.uniform(-9, 15, (4, 7) if k % 2 else (4, 1))
        found = FewRowBinary(Program(G=G, h=h, upper=1, integer=True)).solve(torch.tensor(y)).check((Status.OPTIMAL,))
        values = y @ every[(every @ G.T <= h).all(1)].T
        terms = (found.decision.numpy() * np.abs(y)).sum(1)
        assert (np.abs(found.objective.numpy() - values.min(1)) <= 1e-7 * terms).all()


def test_sums_that_are_not_precise_enough_go_to_highs(asked: list[int]) -> None:
    """An item that is worth 1e12 and does not fit sets the price of the row: rounding hides what the others are worth."""
    program = Program(G=[[2.0, 0.3, 0.4, 0.5, 0.6]], h=[1.0], upper=1, integer=True)
    y = torch.tensor([[-worth, -1.0, -1.1, -1.2, -1.5] for worth in (3.0, 1e12)], dtype=torch.float64)
    found = FewRowBinary(program).solve(y).check((Status.OPTIMAL,))
    assert asked == [1]
    assert found.fallback.tolist() == [False, True]
    assert found.objective.tolist() == pytest.approx([-2.6, -2.6])


# -- oracles ----------------------------------------------------------------------------------------------------------


def test_distances_are_prices_that_pass_the_rule() -> None:
    """The check inside the kernel says what the rule of `certify` says."""
    program = programs.shortest_path(5)
    solver = DagShortestPath.of(program)
    y = torch.rand(20, program.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = solver.solve(y).check((Status.OPTIMAL,))
    assert found.fallback is not None
    assert not found.fallback.any()
    start, arc, tail = solver._incoming
    distance = np.empty((start.size - 1, 8))
    shortest_path.distances(start, arc, tail, y.numpy(), 0, distance)
    graph, prices = solver.graph, np.zeros((8, program.A.shape[0]))
    prices[:, graph.tails[graph._arc]] = distance.T[:, graph._tail]
    prices[:, graph.heads[graph._arc]] = distance.T[:, graph._head]
    verdict = solver.certifier.check(y.numpy()[:8], found.decision.numpy()[:8], prices, program.own_sides)
    assert verdict.error.max() <= SURE


def test_wrong_distances_prove_nothing() -> None:
    program = programs.shortest_path(3)
    solver = DagShortestPath.of(program)
    start, arc, tail = solver._incoming
    c = np.random.default_rng(0).random((8, program.n))
    distance, wrong = np.empty((start.size - 1, 8)), np.empty(8)
    shortest_path.distances(start, arc, tail, c, 0, distance)
    shortest_path.check(start, arc, tail, c, 0, distance, wrong)
    assert (wrong == 0).all()
    distance[4, 3] += 0.1
    shortest_path.check(start, arc, tail, c, 0, distance, wrong)
    assert (wrong > 0).nonzero()[0].tolist() == [3]


@pytest.mark.parametrize(
    "solver", [DagShortestPath.of(programs.shortest_path(3)), TopK(6, 3), TopK(6, 3, at_most=True)], ids=str
)
def test_costs_that_overflow_are_not_called_optimal(solver: Any) -> None:
    y = torch.rand(3, solver.program.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y[1] = -1.7e308
    found = solver.solve(y)
    assert found.fallback.tolist() == [False, True, False]
    assert found.status.tolist()[::2] == [Status.OPTIMAL] * 2
    assert found.status[1] != Status.OPTIMAL


def test_topk_that_left_a_cheaper_item_is_not_sure(monkeypatch: pytest.MonkeyPatch, asked: list[int]) -> None:
    solver, topk = TopK(5, 2), torch.Tensor.topk
    y = torch.tensor([[3.0, 1, 2, 5, 4], [1, 2, 3, 4, 5]], dtype=torch.float64)

    def wrong(self: torch.Tensor, k: int, **options: Any) -> Any:
        found = topk(self, k, **options)
        found.indices[0, 1], found.values[0, 1] = 3, self[0, 3]
        return found

    monkeypatch.setattr(torch.Tensor, "topk", wrong)
    found = solver.solve(y).check((Status.OPTIMAL,))
    assert asked == [1]
    assert found.fallback.tolist() == [True, False]
    assert found.objective.tolist() == [3.0, 3.0]


# -- every solver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solver",
    [
        FewRowLP(programs.knapsack(20, 3).relax()),
        FewRowLPInTorch(programs.knapsack(20, 3).relax()),
        FewRowBinary(programs.knapsack(20, 3)),
        SmallLP(programs.supply()),
        RelaxationFirst(programs.facility_location()),
        DagShortestPath.of(programs.shortest_path(5)),
        TopK(10, 4),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_the_first_solver_answers_ordinary_programs(solver: Any) -> None:
    y = torch.rand(100, solver.objective.p, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    found = solver.solve(y).check((Status.OPTIMAL,))
    assert found.fallback is not None
    assert found.fallback.shape == (100,)
    assert found.fallback.sum() <= 1
    torch.testing.assert_close(found.objective, HiGHS(solver.program).solve(y).objective)


def test_infeasible_claims_are_those_of_highs(asked: list[int]) -> None:
    program = programs.knapsack(4).relax()
    y = torch.ones(3, 4, dtype=torch.float64)
    own = Instance(h=torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]], dtype=torch.float64))
    found = FewRowLP(program).solve(y, own)
    assert asked == [1]
    assert found.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
