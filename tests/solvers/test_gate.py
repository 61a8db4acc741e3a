"""The gate: answers of our own exact solvers are certified, and HiGHS solves the others. References in exact arithmetic."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.engine.exact import few_row_binary, few_row_lp, shortest_path, simplex
from dflearn.errors import ProgramError
from dflearn.problems import FacilityLocation
from dflearn.program import Program
from dflearn.solvers import HiGHS, SmallLP
from dflearn.solvers.base import Status
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.structured import FewRowBinary, FewRowLP, RelaxationFirst
from fuzz.exact import exact_lp
from support import programs

LINEAR = [FewRowLP, SmallLP]


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
@pytest.mark.parametrize(
    ("arguments", "c", "wanted"),
    [
        *(
            ({"G": [[3.0, 5, 2, 4], [1, 1, 1, 1]], "h": [7.0, limit], "upper": 1}, [-6, -5, -4, -3], [1, 0.4, 1, 0])
            for limit in (1e9, 1e12, 1e14, 1e15)  # a budget without a limit
        ),
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
def test_loose_rows_and_rows_in_other_units(
    kind: type[Any], arguments: dict[str, Any], c: list[float], wanted: Any
) -> None:
    program, costs = Program(**arguments), np.array([c], float)
    agrees(kind, program, costs)
    if wanted is not None:
        assert kind(program).solve(torch.tensor(costs)).decision[0].tolist() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kind", LINEAR)
def test_a_broken_block_in_small_units_is_infeasible(kind: type[Any]) -> None:
    program = Program(A=[[1e4, 0, 0], [0, 1e-4, 1e-4]], b=[1e10, 3e-4], upper=[2e6, 0.5, 0.5])
    found = kind(program).solve(torch.tensor([[1.0, 1, 2]], dtype=torch.float64))
    assert found.status.tolist() == [Status.INFEASIBLE]
    assert found.fallback.tolist() == [True], "HiGHS has the last word"


# -- what does not pass -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "kind", "program"),
    [
        (few_row_lp, FewRowLP, programs.knapsack(12, 2).relax()),
        (simplex, SmallLP, programs.knapsack(12, 2).relax()),
        (few_row_binary, FewRowBinary, programs.knapsack(12, 2)),
    ],
)
def test_wrong_answers_go_to_highs(
    kernel: Any, kind: Any, program: Program, monkeypatch: pytest.MonkeyPatch, asked: list[int]
) -> None:
    y = torch.rand(6, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    wanted, solver, solve, linear = HiGHS(program).solve(y), kind(program), kernel.solve_batch, not program.is_integer

    def wrong(*arguments: Any) -> None:
        solve(*arguments)
        w, prices, status = arguments[-3:] if linear else (arguments[-2], None, arguments[-1])
        w[1] = 1.0  # not feasible
        status[2] = Status.INFEASIBLE  # not true
        if prices is not None:
            w[3] = 0.0  # not optimal
            prices[4] -= 1e-5  # not proven

    start = solver.no_start(6)
    solver.solve(y)
    monkeypatch.setattr(kernel, "solve_batch", wrong)
    asked.clear()
    found = solver.solve(y, None, start).check((Status.OPTIMAL,))
    assert asked == [4 if linear else 2]
    assert found.fallback.tolist() == [False, True, True, linear, linear, False]
    torch.testing.assert_close(found.objective, wanted.objective)
    if start is not None:
        torch.testing.assert_close(HiGHS(program).solve(y, None, found.start).objective, wanted.objective)


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


def test_wrong_distances_prove_nothing() -> None:
    program = programs.shortest_path(3)
    solver = DagShortestPath(program)
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
    "solver",
    [
        DagShortestPath(programs.shortest_path(3)),
        TopK(programs.top_k(6, 3, at_most=False)),
        TopK(programs.top_k(6, 3)),
    ],
    ids=str,
)
def test_costs_that_overflow_are_not_called_optimal(solver: Any) -> None:
    y = torch.rand(3, solver.program.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y[1] = -1.7e308
    found = solver.solve(y)
    assert found.fallback.tolist() == [False, True, False]
    assert found.status.tolist()[::2] == [Status.OPTIMAL] * 2
    assert found.status[1] != Status.OPTIMAL


# -- every solver -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "program", "message"),
    [
        (FewRowLP, programs.knapsack(), r"it has integer variables; did you mean program.relax\(\)"),
        (FewRowLP, programs.shortest_path(5), "it has 25 rows, more than 16"),
        (FewRowLP, Program(G=np.ones((1, 3)), h=[1]), "needs finite bounds on every variable"),
        (FewRowLP, Program(n=2, lower=-np.inf, upper=1), "needs finite bounds on every variable"),
        (FewRowBinary, programs.knapsack().relax(), "it has variables that are not integer; did you mean FewRowLP"),
        (FewRowBinary, programs.facility_location(), "it has variables that are not integer"),
        (FewRowBinary, programs.top_k(at_most=False), "it has equations"),
        (FewRowBinary, programs.knapsack(8, 5), "it has 5 rows, more than 4"),
        (FewRowBinary, Program(G=np.ones((1, 3)), h=[1], upper=2, integer=True), "variables with two values, or one"),
        (SmallLP, programs.knapsack(), r"it has integer variables; did you mean program.relax\(\)"),
        (SmallLP, programs.portfolio(), "its objective is quadratic"),
        (SmallLP, Program(G=np.ones((200, 100)), h=np.ones(200)), "its tableau has 20000 entries, more than 12000"),
        (SmallLP, Program(G=np.ones((1001, 3)), h=np.ones(1001)), "it has 1001 rows, more than 1000; use HiGHS"),
        (RelaxationFirst, programs.supply(), "no integer variables"),
    ],
)
def test_refusals(kind: Any, program: Program, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        kind(program)


@pytest.mark.parametrize(
    "solver",
    [
        FewRowLP(programs.knapsack(20, 3).relax()),
        FewRowBinary(programs.knapsack(20, 3)),
        SmallLP(programs.supply()),
        RelaxationFirst(FacilityLocation(10, 2, seed=3).program),
        DagShortestPath(programs.shortest_path(5)),
        TopK(programs.top_k(10, 4, at_most=False)),
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


def test_networks_that_gain_on_a_cycle() -> None:
    """Flow around a cycle pays until a capacity of 1e12 stops it, or without end. Against exact arithmetic."""
    found = Counter[str]()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(4, 8))
        arcs = [(i, j) for i in range(nodes) for j in range(nodes) if i != j and rng.random() < 0.6]
        arcs += [(i, i + 1) for i in range(nodes - 1)]
        tails, heads = np.array(arcs).T
        A, b, flow = np.zeros((nodes, len(arcs))), np.zeros(nodes), rng.uniform(1, 5e4)
        A[tails, np.arange(len(arcs))] = -1
        A[heads, np.arange(len(arcs))] = 1
        b[0], b[-1] = -flow, flow
        upper = rng.choice([flow / 2, 2 * flow, 1e12, np.inf], len(arcs))
        upper[1 - nodes :] = np.inf
        c = rng.uniform(0.1, 30, len(arcs)) * rng.choice([1, -1e-3, 1], len(arcs))
        program = Program(A=np.vstack([A, A[:1]]), b=np.append(b, b[0]), upper=upper)
        exact = exact_lp(c, program.A.toarray(), program.b, np.zeros((0, len(arcs))), np.zeros(0), program.lower, upper)
        answer = HiGHS(program).solve(torch.tensor(c))
        found[exact.status] += 1
        assert Status(int(answer.status)).name.lower() == exact.status, seed
        if exact.objective is not None:
            assert float(answer.objective) == pytest.approx(float(exact.objective), rel=1e-9)
    assert min(found["optimal"], found["unbounded"]) > 3


@pytest.mark.parametrize("options", [{}, {"presolve": True}])
def test_an_optimum_of_zero_is_proven_by_the_bounds(options: dict[str, bool]) -> None:
    """HiGHS's own bound is a little above zero beside a cost of 1e10, and zero leaves no room for rounding."""
    program = Program(
        G=[[-3.0, -3, -1]], h=[-3.0], upper=[1, 1, np.inf], integer=[True, True, False],
        S=[[1.0, 0], [0, 1], [0, 0]], d=[0, 0, 1e10],
    )  # fmt: skip
    answer = HiGHS(program, **options).solve(torch.tensor([[0.0, 2.125], [-2.25, 1.125]], dtype=torch.float64))
    assert answer.status.tolist() == [Status.OPTIMAL] * 2
    assert answer.decision.tolist() == [[1, 0, 0]] * 2
    assert answer.bound.tolist() == [0, -2.25]
