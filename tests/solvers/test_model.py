"""The rules that solvers on a model object share, on HiGHS, on Gurobi, and on a back end that misbehaves on purpose."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.errors import MissingExtraError, OptionError, ProgramError, ShapeError, SolverError
from dflearn.program import Instance, Program
from dflearn.solvers.base import Basis, Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS, ModelSolver
from dflearn.solvers.task import best_solver
from dflearn.solvers.wrappers import Parallel
from support import programs
from support.forked import solved_in_child

BACK_ENDS = [HiGHS, Gurobi]


def random_costs(program: Program, count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, program.p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def own_sides(program: Program, count: int) -> Instance:
    """Right-hand sides and upper bounds that differ from instance to instance, none tighter than the program's."""
    generator = torch.Generator().manual_seed(1)
    h = torch.tensor(program.h) + torch.rand(count, len(program.h), generator=generator, dtype=torch.float64)
    step = torch.rand(count, program.n, generator=generator, dtype=torch.float64) * ~torch.tensor(program.integer)
    return Instance(h=h, upper=torch.tensor(program.upper) + step)


# -- answers depend on nothing but the instance -----------------------------------------------------------------------


@pytest.mark.parametrize("make", BACK_ENDS)
@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_history_leaves_no_trace(make: type[ModelSolver], integer: bool, own: bool) -> None:
    """Bit for bit: what was solved before, on this model or another, does not matter."""
    program = programs.facility_location() if integer else programs.facility_location().relax()
    count = 24
    y = random_costs(program, count)
    instance = own_sides(program, count) if own else None
    fresh = [make(program).solve(y[i], None if instance is None else instance[i]).decision for i in range(count)]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(2))
    solver = make(program)
    for parallel in (solver, solver, Parallel(solver, workers=2)):
        answer = parallel.solve(y[order], None if instance is None else instance[order])
        assert torch.equal(answer.decision, torch.stack(fresh)[order])


@pytest.mark.parametrize("make", BACK_ENDS)
@pytest.mark.parametrize(
    "program",
    [
        programs.supply(),
        programs.knapsack(30).relax(),
        programs.shortest_path(5),
        Program(A=np.ones((1, 4)), b=[2], G=[[1, 0, 1, 0]], h=[1], upper=1),
    ],
)
def test_starts_are_interchangeable(make: type[ModelSolver], program: Program) -> None:
    """A basis of one back end is a start for every other, and for other costs and sides."""
    y = random_costs(program, 6)
    basis = make(program).solve(y, None, make(program).no_start(6)).start
    assert basis is not None
    rows = program.A.shape[0] + program.G.shape[0]
    assert basis.shape == (6, program.n + rows)
    assert (basis != Basis.NONE).all()
    assert ((basis == Basis.BASIC).sum(-1) == rows).all()
    instance = own_sides(program, 6)
    for other in BACK_ENDS:
        cold = other(program).solve(1.1 * y.flip(0), instance)
        warm = other(program).solve(1.1 * y.flip(0), instance, basis)
        torch.testing.assert_close(warm.objective, cold.objective, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", BACK_ENDS)
def test_starts_of_instances_without_a_solution(make: type[ModelSolver]) -> None:
    program = Program(A=[[1, 1]], b=[1], upper=1)
    solver = make(program)
    instance = Instance(b=torch.tensor([[1.0], [3.0]]))
    y = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    first = solver.solve(y, instance, solver.no_start(2))
    assert first.start is not None
    assert first.start[1].eq(Basis.NONE).all()
    again = solver.solve(y, instance, first.start)
    assert again.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    # A basis that fits no more is dropped, and the truth is found from cold.
    swapped = solver.solve(y, instance, first.start[[0, 0]])
    assert swapped.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    nonsense = torch.full_like(first.start, Basis.BASIC)
    assert solver.solve(y, instance, nonsense).status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]
    with pytest.raises(ShapeError, match="codes of a simplex basis, from -1 to 3"):
        solver.solve(y, instance, torch.full_like(first.start, 9))


# -- limits, failures, refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BACK_ENDS)
def test_limits_and_gaps_are_validated(make: type[ModelSolver]) -> None:
    for wrong in ({"time_limit": 0}, {"time_limit": np.nan}, {"gap": -1}, {"gap": np.nan}, {"threads": 0}):
        with pytest.raises(OptionError, match="need time_limit > 0, gap >= 0, threads >= 1"):
            make(programs.supply(), **wrong)


def test_a_limit_with_and_without_a_feasible_point() -> None:
    """At the limit the slack basis of the knapsack is feasible (take nothing), that of the path is not."""
    knapsack, path = programs.knapsack().relax(), programs.shortest_path()
    found = HiGHS(knapsack, time_limit=1e-9).solve(random_costs(knapsack, 3).abs())
    assert found.counts() == {"FEASIBLE": 3}
    assert knapsack.violation(found.decision).max() <= 1e-9
    assert torch.equal(found.bound, torch.full((3,), -torch.inf, dtype=torch.float64))
    found.check()
    missing = HiGHS(path, time_limit=1e-9).solve(random_costs(path, 3).abs())
    assert missing.counts() == {"NOT_FOUND": 3}
    assert missing.decision.isnan().all()
    with pytest.raises(SolverError, match=r"instance 0 is NOT_FOUND.* raise the time limit"):
        missing.check()


def test_an_integer_program_at_its_limit() -> None:
    rng = np.random.RandomState(0)
    weights = rng.uniform(3, 8, (5, 60))
    program = Program(G=weights, h=0.3 * weights.sum(1), upper=1, integer=True)
    answer = HiGHS(program, time_limit=0.02).solve(torch.tensor(-rng.uniform(1, 5, (3, 60))))
    assert set(answer.counts()) <= {"FEASIBLE", "NOT_FOUND", "OPTIMAL"}
    known = answer.status <= Status.FEASIBLE
    assert (answer.bound[known] <= answer.objective[known]).all()
    assert (program.violation(answer.decision[known]) <= 1e-9).all()


@pytest.mark.parametrize("make", BACK_ENDS)
def test_a_gap_is_taken(make: type[ModelSolver]) -> None:
    program = programs.knapsack(30, 3)
    y = random_costs(program, 4).abs()
    exact, rough = make(program).solve(y), make(program, gap=0.5).solve(y)
    assert rough.counts() == {"OPTIMAL": 4}
    assert (rough.objective >= exact.objective - 1e-9).all()
    assert (rough.bound <= exact.objective + 1e-9).all()
    assert ((rough.objective - rough.bound) <= 0.5 * rough.objective.abs() + 1e-9).all()
    torch.testing.assert_close(exact.bound, exact.objective)


@pytest.mark.parametrize("make", BACK_ENDS)
def test_numbers_that_back_ends_take_for_infinite(make: type[ModelSolver]) -> None:
    """Solved as something else they would be wrong in silence."""
    program = Program(A=[[1, 1]], b=[1], upper=1)
    y = torch.tensor([[1.0, 2.0], [1e21, 2.0], [1.0, 2.0]])
    answer = make(program).solve(y.double())
    assert answer.status.tolist() == [Status.OPTIMAL, Status.FAILED, Status.OPTIMAL]
    with pytest.raises(SolverError, match=r"instance 1 is FAILED.* give it in a larger unit"):
        answer.check()
    b = torch.tensor([[1.0], [1.0], [1e21]], dtype=torch.float64)
    own = make(program).solve(torch.ones(3, 2), Instance(b=b))
    assert own.status.tolist() == [Status.OPTIMAL, Status.OPTIMAL, Status.FAILED]


@pytest.mark.parametrize("make", BACK_ENDS)
def test_a_row_that_no_back_end_can_hold(make: type[ModelSolver]) -> None:
    """Back ends drop entries below 1e-12, in silence. Where columns may be scaled, the same row is no trouble."""
    rows: dict[str, Any] = {"A": [[1e16, 1]], "b": [1], "upper": 1}
    with pytest.raises(ProgramError, match="the entries of a row span more than 1e"):
        make(Program(**rows, integer=True)).solve(torch.ones(2))
    answer = make(Program(**rows)).solve(torch.tensor([[1.0, -1.0], [-1.0, 1.0]])).check((Status.OPTIMAL,))
    torch.testing.assert_close(answer.decision, torch.tensor([[0.0, 1.0], [1e-16, 0.0]]))


@pytest.mark.parametrize("entry", [0.9e-9, 1e-9, 1.1e-9])
def test_entries_as_small_as_those_that_highs_drops(entry: float) -> None:
    """w₂ = 1 / entry is all that satisfies entry · w₂ ≥ 1; without the entry nothing does."""
    program = Program(G=[[-1, -entry]], h=[-1], upper=[0, 4e9], integer=True)
    answer = HiGHS(program).solve(torch.ones(2, dtype=torch.float64)).check((Status.OPTIMAL,))
    assert answer.decision[1].item() == pytest.approx(1 / entry, rel=1e-8)
    HiGHS(program).solve(torch.zeros(2, dtype=torch.float64)).check((Status.OPTIMAL,))  # any decision is the best


def test_presolve_that_never_ended() -> None:
    """HiGHS 1.15.1, left alone, tries the same step again and again on this program, whatever its time limit."""
    program = Program(
        A=[[-1, 0, -1, -3]], b=[-3], G=[[1, 3, -3, 2], [0, 0, -2, 1]], h=[2, 2],
        lower=[0, 0, -np.inf, -2], upper=[1, 1, 2, 3], integer=[1, 3],
    )  # fmt: skip
    y = torch.tensor([[1.8591, -1.0741, 2.7408, 1.5273]], dtype=torch.float64)
    wanted = Gurobi(program).solve(y).check().objective.tolist()
    assert solved_in_child(HiGHS(program), y) == pytest.approx(wanted)


# -- threads and processes ----------------------------------------------------------------------------------------------


def test_solvers_with_different_threads_live_together() -> None:
    """HiGHS keeps one scheduler for all, and refuses to run where another number of threads is asked for."""
    program = programs.knapsack(20)
    y = random_costs(program, 4)
    one, two = HiGHS(program, threads=1), HiGHS(program, threads=2)
    wanted = one.solve(y).check().objective
    for solver in (two, one, two):
        torch.testing.assert_close(solver.solve(y).check().objective, wanted)
    assert one.identity != two.identity


@pytest.mark.parametrize("make", BACK_ENDS)
def test_after_a_fork(make: type[ModelSolver]) -> None:
    program = programs.knapsack(12)
    solver, y = make(program), random_costs(program, 3)
    wanted = solver.solve(y).objective.tolist()
    assert solved_in_child(solver, y) == pytest.approx(wanted)


# -- integers are integers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", [Status.INFEASIBLE, Status.UNBOUNDED])
def test_a_false_claim_of_no_decision_is_not_believed(claim: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clarabel has an answer that passes, so that answer counts; without one, nothing is known."""
    solver = HiGHS(Program(n=2, upper=1))
    model = solver._model()
    monkeypatch.setattr(model, "run", lambda costs, basis: claim)
    answer = solver.solve(torch.tensor([-1.0, 1e9], dtype=torch.float64))
    assert answer.counts() == {"OPTIMAL": 1}
    assert answer.decision.tolist() == [1, 0]
    assert answer.fallback is not None
    assert answer.fallback.item()
    monkeypatch.setattr(model.clarabel, "best", lambda c, sides, guess: None)
    monkeypatch.setattr(model.clarabel, "agrees", lambda claim, c, sides: False)
    with pytest.raises(SolverError, match=f"FAILED.*first solver says {claim.name}"):
        solver.solve(torch.tensor([-1.0, 1e9], dtype=torch.float64)).check()


@pytest.mark.parametrize("large", [1.0, 1e9, 1e15, 1e20, 1e30, np.inf])
def test_sides_that_mean_no_limit(large: float) -> None:
    """A second budget that can never bind: integer, linear, and with rows of both signs."""
    G, h = [[3.0, 5, 2, 4], [1, 1, 1, 1], [-1, -1, -1, -1]], [7.0, 4 * large, large]
    y = torch.tensor([6.0, 5, 4, 3], dtype=torch.float64)
    for integer, wanted in ((False, [1, 0.4, 1, 0]), (True, [1, 0, 1, 0])):
        program = Program(G=G, h=np.minimum(h, 1e300), upper=1, S=-np.eye(4), integer=integer)
        for make in BACK_ENDS:
            answer = make(program).solve(y).check((Status.OPTIMAL,))
            np.testing.assert_allclose(answer.decision, wanted, rtol=1e-12, atol=1e-15)


# -- Gurobi's own -------------------------------------------------------------------------------------------------------


def test_gurobi_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dflearn\[gurobi\]'"):
        Gurobi(programs.supply())


def test_gurobi_says_what_its_small_licence_cannot_do() -> None:
    if os.environ.get("GRB_LICENSE_FILE"):
        return  # a full licence solves it
    program = programs.knapsack(2500)
    with pytest.raises(SolverError, match=r"small models only .* install a full licence or use HiGHS"):
        Gurobi(program).solve(torch.ones(2500))


def test_small_costs_beside_huge_ones_are_not_lost() -> None:
    """Items worth 1e-6 and less beside one that costs 1e15: to take none is feasible, and never called optimal."""
    worth = [-2e-6, -3e-7, 1e15, -1e-9, 1e12]
    program = Program(G=[[1.0, 1, 1, 1, 1]], h=[3], upper=1, integer=True)
    for make in BACK_ENDS:
        answer = make(program).solve(torch.tensor(worth, dtype=torch.float64))
        best = float(answer.objective) <= -2.301e-6 * (1 - 1e-9)
        assert best or Status(int(answer.status)) is not Status.OPTIMAL


@pytest.mark.parametrize("large", [1e4, 1e7, 1e8, 1e9])
def test_a_big_m_does_not_hide_what_it_switches(large: float) -> None:
    """x ≤ M z with z binary: to open pays, whatever M is. By hand."""
    one = Program(G=[[1, -large]], h=[0], upper=[3, 1], integer=[1])
    shared = Program(
        G=[[1, 1, 1, 0], [1, 0, 0, -large], [0, 1, 0, -large], [0, 0, 1, -large]],
        h=[10, 0, 0, 0], upper=[np.inf, np.inf, np.inf, 1], integer=[3],
    )  # fmt: skip
    for make in (*BACK_ENDS, best_solver):
        for program, costs, wanted in ((one, [-1.0, 2], -1.0), (shared, [-1.0, -2, -1.5, 5], -15.0)):
            answer = make(program).solve(torch.tensor(costs, dtype=torch.float64)).check((Status.OPTIMAL,))
            assert answer.objective.item() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("large", [1e7, 1e9])
def test_a_big_m_that_lets_tolerances_open_nothing(large: float) -> None:
    """Demand is met but for .0054, which a plant x ≤ M z makes: within tolerances z = 1e-9 would open it for nothing. By hand."""
    limit, demand, other = 2.789422324243048, 1.2455766126999739, 0.5609734363483981
    program = Program(A=[[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 1]], b=[demand, other, 0.988234976185236],
                      G=[[-large, 1, 0, 0, 0], [0, 0, 1, 1, 1]], h=[0, limit],
                      upper=[1, np.inf, np.inf, np.inf, np.inf], integer=[0])  # fmt: skip
    for make in (*BACK_ENDS, best_solver):
        answer = make(program).solve(torch.tensor([1.0, 1, 0, 0, 0], dtype=torch.float64)).check((Status.OPTIMAL,))
        assert answer.objective.item() == pytest.approx(1 + 0.988234976185236 - (limit - demand - other), rel=1e-9)


@pytest.mark.parametrize(("large", "limit"), [(1745408.12, 4.593241064168047), (12782935264.43, np.inf)])
def test_a_big_m_does_not_hide_the_best_plants(large: float, limit: float) -> None:
    """Two plants for three customers: HiGHS called both plants, or a dearer one, optimal. By enumeration."""
    demand, opened = np.array([1.03, 1.98, 2.39]), np.array([865.0, 755.0])
    carried = np.array([[101.5, 141.7, 208.6], [254.9, 98.4, 193.9]])
    row, eye = np.ones(3), np.eye(3)
    program = Program(
        A=np.hstack([np.zeros((3, 1)), eye, np.zeros((3, 1)), eye]), b=demand,
        G=[[-large, *row, 0, *0 * row], [0, *0 * row, -large, *row], [0, *0 * row, 0, *row]], h=[0, 0, limit],
        upper=[1, *np.inf * row, 1, *np.inf * row], integer=[0, 4],
    )  # fmt: skip
    costs = torch.tensor([opened[0], *carried[0], opened[1], *carried[1]])
    both = opened.sum() + carried.min(0) @ demand  # without the limit, which then does not bind
    alone = opened + np.where([True, demand.sum() <= limit], carried @ demand, np.inf)
    for make in (*BACK_ENDS, best_solver):
        answer = make(program).solve(costs).check((Status.OPTIMAL,))
        assert answer.objective.item() == pytest.approx(min(both, *alone), rel=1e-9)


def test_a_variable_that_rows_fix_at_zero_has_a_unit() -> None:
    """x ≤ 2 − 2 z and 2 v + 3 z ≥ 5 leave x only zero, up to rounding; another row makes scaling worth it."""
    program = Program(A=[[0, 0, 32768, 0]], b=[0], G=[[1, 0, 0, 2], [0, -2, 0, -3]], h=[2, -5],
                      upper=[1, 1, np.inf, 1], integer=[1, 3])  # fmt: skip
    for make in BACK_ENDS:
        answer = make(program).solve(torch.tensor([-1.0, 1, 1, 1], dtype=torch.float64)).check((Status.OPTIMAL,))
        np.testing.assert_allclose(answer.decision, [0, 1, 0, 1], atol=1e-9)


@pytest.mark.parametrize(("missing", "cash", "link"), [(5.0, 1e6, 1e-9), (5e-3, 1e6, 1e-6), (1e-5, 1e9, 1.0)])
def test_a_demand_that_nobody_meets_is_infeasible(missing: float, cash: float, link: float) -> None:
    """stock = production − demand, and nothing can be produced; the cash row, in force, knows production by a tiny number."""
    program = Program(A=[[1, -1, 0], [0, link, 1]], b=[-missing, cash], upper=[np.inf, 0, np.inf])
    for make in (*BACK_ENDS, best_solver):
        assert make(program).solve(torch.ones(3, dtype=torch.float64)).counts() == {"INFEASIBLE": 1}


@pytest.mark.parametrize("gain", [0.1, 1e-2, 1e-3, 1e-4])
def test_what_falls_without_end_is_not_called_optimal(gain: float) -> None:
    """x₁ = x₂ + 5e-6 can grow for ever and gains a little; a cost of 1e9 stands beside."""
    program = Program(A=[[1, -1, 1e-6], [0, 0, 1]], b=[5e-6, 5.0])
    for make in (*BACK_ENDS, best_solver):
        answer = make(program).solve(torch.tensor([3.0, -3.0 - gain, 1e9], dtype=torch.float64))
        assert Status(int(answer.status)) in (Status.UNBOUNDED, Status.FEASIBLE)


def test_integers_that_tolerances_allow_are_no_better() -> None:
    """w₀ − 1e6 w₁ ≤ 2e6 is off by 5e-7 of its terms at [1, −2], which a back end may let pass, and is met at [1, −1]. By hand."""
    program = Program(G=[[1, -1e6, 0]], h=[2e6], lower=[0, -2, 0], upper=[1, 0, np.inf], integer=[0, 1])
    for make in (*BACK_ENDS, best_solver):
        answer = make(program).solve(torch.tensor([-3.0, 1, 0], dtype=torch.float64)).check((Status.OPTIMAL,))
        assert -5.0 <= answer.objective.item() <= -4.0
