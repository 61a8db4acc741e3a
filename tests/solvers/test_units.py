"""What is called optimal is optimal in any units: against rational enumeration, closed forms, and answers in other units."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
import torch

from dflearn.errors import SolverError
from dflearn.program import Instance, Program
from dflearn.solvers.base import Basis, Solution, Solver, Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS, ModelSolver
from dflearn.solvers.oracles import DagShortestPath
from dflearn.solvers.structured import FewRowBinary, FewRowLP, RelaxationFirst
from fuzz.exact import exact_lp
from support import programs

BACK_ENDS = [HiGHS, Gurobi]


def assert_honest(answer: Solution, c: np.ndarray, best: Fraction | float, case: object) -> None:
    """Optimal answers are, relative to the terms of the objective; a bound is a bound; nothing is called impossible."""
    status, w, best = Status(int(answer.status)), answer.decision.numpy(), float(best)
    assert status.has_decision, (case, status)
    allowed = 1e-6 * max(np.abs(c * w).sum(), abs(best))
    if status is Status.OPTIMAL:
        assert abs(float(answer.objective) - best) <= allowed, (case, float(answer.objective), best)
    assert float(answer.bound) <= best + allowed, (case, float(answer.bound), best)


# -- penalties ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BACK_ENDS)
@pytest.mark.parametrize("integer", [False, True])
def test_one_large_cost(make: type[ModelSolver], integer: bool) -> None:
    program = Program(
        G=[[-1, -1, -1]], h=[-1], upper=[1, 1, np.inf], d=[0, 0, 1e9], S=np.eye(3)[:, :2], integer=integer
    )
    answer = make(program).solve(torch.tensor([3, 2.9], dtype=torch.float64)).check((Status.OPTIMAL,))
    assert answer.decision.tolist() == [0, 1, 0]
    assert answer.objective.item() == pytest.approx(2.9, rel=1e-9)
    assert answer.bound.item() == pytest.approx(2.9, rel=1e-6)


def covering(rng: np.random.RandomState) -> tuple[Program, np.ndarray, Fraction, Fraction]:
    """min cᵀw + penalty · s  s.t.  aᵀw + s ≥ need,  0 ≤ w ≤ 1: the program, costs, and its optima for any and whole w.

    Filled in the order of the cost of a unit, and by trying all whole decisions, in rational numbers.
    """
    n = rng.randint(2, 7)
    a, c = np.round(rng.uniform(0.5, 4, n), 2), np.round(rng.uniform(1, 4, n), 2)
    need, penalty = np.round(rng.uniform(0.3, 1.1) * a.sum(), 2), np.round(10 ** rng.uniform(2, 9), 2)
    program = Program(
        G=-np.append(a, 1)[None], h=[-need], upper=np.append(np.ones(n), np.inf), d=np.append(np.zeros(n), penalty),
        S=np.eye(n + 1)[:, :n],
    )  # fmt: skip
    weights, costs = ([Fraction(float(x)) for x in part] for part in (a, c))
    price, left, linear = Fraction(float(penalty)), Fraction(float(need)), Fraction(0)
    for j in sorted(range(n), key=lambda j: costs[j] / weights[j]):
        share = min(Fraction(1), left / weights[j])
        linear, left = linear + share * costs[j], left - share * weights[j]
        if not left:
            break
    linear += left * price
    whole = min(
        sum((costs[j] for j in range(n) if (k >> j) & 1), Fraction(0))
        + price
        * max(Fraction(0), Fraction(float(need)) - sum((weights[j] for j in range(n) if (k >> j) & 1), Fraction(0)))
        for k in range(1 << n)
    )
    return program, c, linear, whole


@pytest.mark.parametrize("make", BACK_ENDS)
def test_penalties(make: type[ModelSolver]) -> None:
    called = 0
    for seed in range(100):
        program, c, linear, _ = covering(np.random.RandomState(seed))
        answer = make(program).solve(torch.tensor(c))
        assert_honest(answer, program.objective.vector(torch.tensor(c)).numpy(), linear, seed)
        called += int(answer.status) == Status.OPTIMAL
    assert called >= 99


@pytest.mark.parametrize("make", [*BACK_ENDS, RelaxationFirst])
def test_penalties_on_whole_decisions(make: Callable[[Program], Solver]) -> None:
    called = 0
    for seed in range(900, 940):
        program, c, _, whole = covering(np.random.RandomState(seed))
        mixed = Program(
            G=program.G, h=program.h, upper=program.upper, S=program.S, d=program.d, integer=range(program.p)
        )
        answer = make(mixed).solve(torch.tensor(c))
        assert_honest(answer, program.objective.vector(torch.tensor(c)).numpy(), whole, seed)
        called += int(answer.status) == Status.OPTIMAL
    assert called >= 39


# -- units of everything --------------------------------------------------------------------------------------------


def mixed_scales(rng: np.random.RandomState, integer: bool) -> tuple[Program, np.ndarray]:
    """Rows, decisions and costs of sizes from 10⁻⁶ to 10⁶, with a decision that is known to be feasible."""
    n, m = rng.randint(2, 4), rng.randint(1, 3)
    rows = rng.randn(m, n) * 10 ** rng.uniform(-6, 6, (m, 1))
    if integer:
        known, upper, whole = (
            rng.randint(0, 3, n).astype(float),
            np.full(n, 2.0),
            np.append(True, rng.rand(n - 1) < 0.5),
        )
    else:
        rows *= 10 ** rng.uniform(-6, 6, (1, n))
        known, whole = rng.uniform(0, 1, n) * 10 ** rng.uniform(-6, 6, n), np.zeros(n, bool)
        upper = known * rng.uniform(1, 3, n)
    h = rows @ known + np.abs(rows) @ known * rng.uniform(0.001, 0.3, m)
    return Program(G=rows, h=h, upper=upper, integer=whole), rng.randn(n) * 10 ** rng.uniform(-6, 6, n)


@lru_cache
def mixed_case(seed: int, integer: bool) -> tuple[Program, np.ndarray, Fraction]:
    """The optimum in rational numbers, over all choices of the integers (0, 1 or 2)."""
    program, c = mixed_scales(np.random.RandomState(seed), integer)
    rows, whole, found = (program.A.toarray(), program.b, program.G.toarray(), program.h), program.integer, []
    for choice in itertools.product(range(3), repeat=int(whole.sum())):
        lower, upper = program.lower.copy(), program.upper.copy()
        lower[whole] = upper[whole] = choice
        found.append(exact_lp(c, *rows, lower, upper).objective)
    return program, c, min(value for value in found if value is not None)


@pytest.mark.parametrize(
    ("make", "integer"),
    [*((make, False) for make in (*BACK_ENDS, FewRowLP)), *((make, True) for make in (*BACK_ENDS, RelaxationFirst))],
)
def test_mixed_scales(make: Callable[[Program], Solver], integer: bool) -> None:
    for seed in range(60):
        program, c, best = mixed_case(seed, integer)
        answer = make(program).solve(torch.tensor(c))
        assert_honest(answer, c, best, seed)
        assert integer or int(answer.status) == Status.OPTIMAL, seed
        assert program.violation(answer.decision) <= (1e-6 if integer else 1e-8), seed


@pytest.mark.parametrize("make", [*BACK_ENDS, FewRowLP])
@pytest.mark.parametrize(("rows", "decisions", "costs"), [(1e-8, 1e8, 1e-8), (1e8, 1e-8, 1e8), (1e8, 1e8, 1e8)])
def test_answers_know_no_unit(make: type[ModelSolver], rows: float, decisions: float, costs: float) -> None:
    """The same program in other units has the same answers, cold and from a start; infeasible instances too."""
    rng = np.random.RandomState(3)
    G, A = rng.uniform(0, 5, (2, 8)), np.round(rng.randn(1, 8), 2)
    known = rng.uniform(0, 1, (20, 8))
    h, b = known @ G.T + rng.uniform(0, 1, (20, 2)), known @ A.T
    h[7] = -1.0  # no decision
    y = torch.tensor(rng.randn(20, 8))
    plain = make(Program(G=G, h=h[0], A=A, b=b[0], upper=1)).solve(y, Instance(h=torch.tensor(h), b=torch.tensor(b)))
    program = Program(G=rows * G, h=h[0], A=rows * A, b=b[0], upper=decisions)
    own = Instance(h=torch.tensor(rows * decisions * h), b=torch.tensor(rows * decisions * b))
    solver = make(program)
    start = solver.no_start(20)
    for _ in range(2):
        found = solver.solve(costs * y, own, start)
        assert torch.equal(found.status, plain.status)
        assert found.counts() == {"OPTIMAL": 19, "INFEASIBLE": 1}
        torch.testing.assert_close(found.decision / decisions, plain.decision, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert torch.allclose(
            found.objective / (costs * decisions), plain.objective, rtol=1e-9, atol=1e-9, equal_nan=True
        )
        start = found.start


@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_binary_answers_know_no_unit(size: float) -> None:
    program = programs.knapsack(12, 2)
    y = torch.rand(20, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = FewRowBinary(program).solve(y)
    scaled = Program(G=size * program.G, h=size * program.h, upper=1, S=program.S, integer=True)
    found = FewRowBinary(scaled).solve(y / size)
    assert torch.equal(found.decision, wanted.decision)
    full = Program(G=[[0.1 * size, 0.2 * size]], h=[0.3 * size], upper=1, integer=True)  # 0.1 + 0.2 is 0.3
    assert FewRowBinary(full).solve(-torch.ones(2)).decision.tolist() == [1, 1]
    over = Program(G=[[0.1 * size, 0.2 * size]], h=[0.2999 * size], upper=1, integer=True)
    assert FewRowBinary(over).solve(-torch.ones(2)).decision.sum() == 1


@pytest.mark.parametrize("make", BACK_ENDS)
def test_presolve_is_not_misled_by_a_penalty(make: type[ModelSolver]) -> None:
    """A penalty of 1e10: with presolve HiGHS called [1, −1, 1, ½, 1, 0] optimal, in any unit of costs."""
    program = Program(
        A=[[0.5, -2, -1.125, -2.75, -1.625, 0], [-1.625, 0, 1.5, -3.75, 0, 0]], b=[-1.625, -2],
        G=[[0, 2, 3.625, 0, 1.5, 0], [-3, -3, -3, -2, -3, -1]], h=[3.125, -7],
        lower=[0, -2, 0, 0, 0, 0], upper=[1, -1, 1, 4, 3, np.inf], integer=[True, True, True, False, False, False],
    )  # fmt: skip
    answer = make(program).solve(torch.tensor([[0, 1, 1, 0, 0, 1e10]], dtype=torch.float64))
    assert answer.counts() == {"OPTIMAL": 1}
    assert answer.objective.item() == pytest.approx(-1.0, abs=1e-9)


def commitment(rng: np.random.Generator, power: np.ndarray) -> tuple[Program, np.ndarray]:
    """Three plants on two days: power, on, started. Costs; power is counted in units of its own for each plant and day `(3, 2)`,
    and bounded by 1e9 MW."""
    one, zero = np.eye(6), np.zeros((6, 6))
    most = np.repeat(rng.uniform(1, 3, 3), 2)
    least, day = most * np.repeat(rng.uniform(0.1, 0.5, 3), 2), np.kron(np.ones(3), np.eye(2))
    before, ramp = np.kron(np.eye(3), [[0, 0], [1, 0]]), np.kron(np.eye(3), [[-1, 1]])
    G = np.block(
        [
            [-day, np.zeros((2, 12))],
            [one, -np.diag(most), zero],
            [-one, np.diag(least), zero],
            [zero, one - before, -one],
            [ramp, np.zeros((3, 12))],
        ]
    )
    h = np.r_[-day @ most * rng.uniform(0.2, 0.9, 2), np.zeros(18), 0.7 * most[::2]]
    unit = np.r_[power.ravel(), np.ones(12)]
    costs = np.r_[rng.uniform(0.5, 2, 6), rng.uniform(0, 0.3, 6), rng.uniform(0, 3, 6)]
    upper = np.r_[np.full(6, 1e9) * unit[:6], np.ones(12)]
    return Program(G=G / unit, h=h, upper=upper, integer=np.arange(18) >= 6), costs / unit


@pytest.mark.parametrize("seed", range(12))
def test_commitment_in_mixed_units(seed: int) -> None:
    """Beside bounds of 1e9 that nothing reaches, a strict HiGHS without presolve called worse decisions optimal."""
    answers = []
    for power in (np.ones((3, 2)), 10 ** np.random.default_rng(seed).uniform(-4, 4, (3, 2))):
        program, costs = commitment(np.random.default_rng(seed), power)
        answers.append(HiGHS(program).solve(torch.tensor(costs)).check((Status.OPTIMAL,)).objective.item())
        model = HiGHS(program)._model()
        settled = model.settle(costs, program.own_sides, 1.0, 0.0, model.nothing(Status.FAILED), wide=False)
        answers.append(float(costs @ settled.w))
    assert answers == pytest.approx(answers[:1] * 4, rel=1e-6)


@pytest.mark.parametrize("presolve", [True, False])
def test_presolve_tells_no_end_from_nothing(presolve: bool) -> None:
    """w = 0 is feasible, and w_2 may grow for ever: with presolve HiGHS calls that infeasible."""
    program = Program(G=[[0.1, 1, -2.6], [-0.4, -0.9, 0.1]], h=[0, 1])
    assert HiGHS(program, presolve=presolve).solve(torch.tensor([[0.0, 0.0, -2.0]])).counts() == {"UNBOUNDED": 1}


def test_what_refinement_calls_impossible_is_asked_again() -> None:
    """From this start HiGHS ends near the optimum, and the program of the error left has no feasible point by its tolerances."""
    program = Program(
        A=[[2, 1.875, 0, 0, -2.625]], b=[0],
        G=[[-1.5, 3.25, -3.375, 0, 3], [0.25, -0.5, -1.875, 0, 0.5], [3.75, 3, -2.25, 0.25, -0.75]],
        h=[-2.375, -1.875, -2.5], lower=[0, 0, 0, -1, 0], upper=[3, 1, 1, 2, 3],
    )  # fmt: skip
    costs = torch.tensor([[-3.75, -1.75, 2.875, 2.5, 0.125]], dtype=torch.float64)
    start = torch.tensor([[1, 1, 0, 2, 3, 3, 2, 2, 1]], dtype=torch.int8)
    answer = HiGHS(program, presolve=True).solve(costs, None, start)
    assert answer.counts() == {"OPTIMAL": 1}
    assert answer.objective.item() == pytest.approx(HiGHS(program).solve(costs).objective.item(), rel=1e-9)


# -- starts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BACK_ENDS)
def test_every_code_of_a_start(make: type[ModelSolver]) -> None:
    """Any codes are a start: they may save time, never change what is found out."""
    program = Program(G=[[1, 2, 3], [-1, 1, 0]], h=[4, 1], lower=[0, -1, 0], upper=[2, 1, 3])
    y = torch.tensor([[-1.0, -2.5, -2.0]]).double()
    solver = make(program)
    wanted = solver.solve(y).objective
    codes = np.array(np.meshgrid(*[[0, 1, 2, 3]] * 5)).reshape(5, -1).T.astype(np.int8)
    starts = torch.tensor(codes[(codes == Basis.BASIC).sum(1) == 2])
    answer = solver.solve(y.expand(len(starts), -1), None, starts)
    assert answer.counts() == {"OPTIMAL": len(starts)}
    torch.testing.assert_close(answer.objective, wanted.expand(len(starts)))


# -- what the check sees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BACK_ENDS)
def test_what_cannot_be_certified_is_not_called_optimal(
    make: type[ModelSolver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A back end that answers something else: Clarabel's answer; feasible with a true bound without."""
    program = Program(G=[[-1, -1, -1]], h=[-1], upper=[1, 1, np.inf])
    y = torch.tensor([[3, 2.9, 1e3]], dtype=torch.float64)
    solver = make(program)
    model = solver._model()
    monkeypatch.setattr(model, "decision_and_prices", lambda: (np.array([1.0, 0, 0]), np.array([-3.0])))
    answer = solver.solve(y).check((Status.OPTIMAL,))
    assert answer.decision.tolist() == [[0, 1, 0]]
    assert answer.fallback is not None
    assert answer.fallback.all()
    monkeypatch.setattr(model.clarabel, "best", lambda c, sides, guess: None)
    answer = solver.solve(y)
    assert answer.counts() == {"FEASIBLE": 1}
    with pytest.raises(SolverError, match=r"reduced cost of variable 1 is -0\.1"):
        answer.check((Status.OPTIMAL,))
    assert answer.objective.item() == 3
    assert answer.bound.item() == pytest.approx(2.9)
    monkeypatch.setattr(model, "decision_and_prices", lambda: (np.array([0.5, 0, 0]), np.array([-3.0])))
    assert solver.solve(y).counts() == {"FAILED": 1}


@pytest.mark.parametrize("tiny", [1e-8, 1e-12])
def test_paths_with_costs_of_all_sizes(tiny: float) -> None:
    """The objective is that of the path, whatever is lost on the way."""
    oracle = DagShortestPath(programs.paths([0, 0, 1, 2, 1], [1, 2, 3, 3, 2], 0, 3))
    c = torch.tensor([[1e8, 1e8 + 1, tiny, 1.0, -1e8], [tiny, 2 * tiny, 1e8, 1e8, 0]], dtype=torch.float64)
    answer = oracle.solve(c)
    torch.testing.assert_close(answer.objective, (c * answer.decision).sum(-1), rtol=1e-15, atol=0)
    for i, row in enumerate(c.numpy()):
        best = min(sum(Fraction(float(row[a])) for a in path) for path in ([0, 2], [1, 3], [0, 4, 3]))
        assert float(answer.objective[i]) == pytest.approx(float(best), rel=1e-15, abs=1e-7)


def test_rounding_in_the_inverse_of_a_basis() -> None:
    """w ≤ 0 and a row that does not bind: what rounding left in the inverse made the only decision break its bound."""
    program = Program(G=[[65536.0], [-20073.43196970109]], h=[0, 131072], upper=1)
    answer = FewRowLP(program).solve(torch.tensor([[0.9], [-0.55]], dtype=torch.float64)).check((Status.OPTIMAL,))
    assert answer.decision.tolist() == [[0.0], [0.0]]


def test_dependent_rows_that_only_zero_satisfies() -> None:
    """Four equations of rank two in three variables, and bounds: rounding in the inverse made it infeasible."""
    program = Program(
        A=[[1, -2, 1], [-4, -4, -4], [-1, -4, -1], [-2, -2, -2]], b=[0, 0, 0, 0],
        G=[[2.25, -2.125, 0.875], [3, -1.625, 0], [4.5, -4.25, 1.75], [1, -2, 1]], h=[0, 0.5, 1, 0.5],
        lower=[0, -1, -1], upper=[2, 1, 0],
    )  # fmt: skip
    answer = FewRowLP(program).solve(torch.tensor([[-0.25, -1.5, 2.875]], dtype=torch.float64)).check((Status.OPTIMAL,))
    wanted = HiGHS(program).solve(torch.tensor([[-0.25, -1.5, 2.875]], dtype=torch.float64)).check((Status.OPTIMAL,))
    torch.testing.assert_close(answer.decision, wanted.decision, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", BACK_ENDS)
def test_whole_decisions_without_end(make: type[ModelSolver]) -> None:
    """Costs pull along a ray of the rows: whoever stops at the best of the points seen so far is wrong."""
    program = Program(G=[[0.5, -1.5, -2.9], [-3.9, 0.1, 1]], h=[1, 0], lower=0, integer=True, n=3)
    y = torch.tensor([[-5.0, 0.0, -6.0], [5.0, 1.0, 6.0]], dtype=torch.float64)
    solution = make(program).solve(y)
    assert solution.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL]
    assert solution.decision[1].tolist() == [0, 0, 0]
