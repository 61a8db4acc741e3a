"""`RelaxationFirst` against HiGHS, Gurobi and rational enumeration; what it does not prove, it does not claim."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.errors import OptionError, ProgramError
from dflearn.problems import FacilityLocation
from dflearn.program import Instance, Program
from dflearn.solvers.base import Raw, Solution, Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.relaxation_first import RelaxationFirst
from dflearn.solvers.strengthening import Relaxation
from dflearn.solvers.wrappers import Parallel
from support import programs
from support.rationals import exact_optimum

OPTIMAL = (Status.OPTIMAL,)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HiGHS's own integer programs to fall back on."""

    def refuse(self: HiGHS, c: np.ndarray, *others: object) -> Raw:
        assert not self.program.is_integer, "it fell back on HiGHS"
        return solve(self, c, *others)  # type: ignore[arg-type]

    solve = HiGHS._solve
    monkeypatch.setattr(HiGHS, "_solve", refuse)


def assert_same(found: Solution, wanted: Solution, program: Program) -> None:
    assert found.status.tolist() == wanted.status.tolist()
    torch.testing.assert_close(found.objective, wanted.objective, rtol=1e-9, atol=1e-9, equal_nan=True)
    good = found.status == Status.OPTIMAL
    assert (found.bound[good] <= found.objective[good]).all()
    torch.testing.assert_close(found.bound[good], found.objective[good], rtol=1e-8, atol=1e-8)
    w = found.decision[good].numpy()
    assert (w[:, program.integer] == w[:, program.integer].round()).all()


# -- facilities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facilities", [2, 4, 8])
def test_facilities_without_falling_back(facilities: int, request: pytest.FixtureRequest) -> None:
    """All must open (2), some may stay closed (4, 8): true costs, and predictions that may be negative."""
    problem = FacilityLocation(10, facilities, seed=3)
    program = problem.program
    y = torch.cat([problem.generate(6, dtype=torch.float64).batch().require("costs"), 4 * draw(6, program.p) - 1])
    wanted, others = HiGHS(program).solve(y), Gurobi(program).solve(y)
    request.getfixturevalue("alone")
    found = RelaxationFirst(program).solve(y).check(OPTIMAL)
    assert_same(found, wanted, program)
    assert_same(found, others, program)
    assert bool(program.is_feasible(found.decision).all())


def test_the_problem_takes_it() -> None:
    assert isinstance(FacilityLocation(10, 4).solver(), RelaxationFirst)
    assert isinstance(FacilityLocation(5, 40).solver(), HiGHS), "it was not measured on so many facilities"


@pytest.mark.parametrize("program", [FacilityLocation(8, 2).program, programs.facility_location(8, 4)])
def test_answers_depend_on_the_instance_alone(program: Program) -> None:
    """In any order, alone, from a new solver, a pickled one or threads: bit for bit."""
    y = (4 * draw(33, program.p)).round(decimals=1)  # with ties
    solver = RelaxationFirst(program)
    found = solver.solve(y)
    order = torch.randperm(33, generator=torch.Generator().manual_seed(1))
    assert torch.equal(solver.solve(y[order]).decision, found.decision[order])
    assert torch.equal(solver.solve(y[5]).decision, found.decision[5])
    assert torch.equal(RelaxationFirst(program).solve(y[32:]).decision, found.decision[32:])
    assert torch.equal(pickle.loads(pickle.dumps(solver)).solve(y).decision, found.decision)
    sent = pickle.loads(pickle.dumps(program.own_sides))
    assert np.array_equal(solver._solve(program.objective.vector(y).numpy(), sent, None).decision, found.decision)
    with Parallel(solver, workers=2) as many:
        assert torch.equal(many.solve(y).decision, found.decision)
    assert solver.solve(y[:0]).decision.shape == (0, program.n)


@pytest.mark.parametrize("rows", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("shares", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("costs", [1e-6, 1e6])
@pytest.mark.usefixtures("alone")
def test_answers_know_no_unit(rows: float, shares: float, costs: float) -> None:
    """The same facilities with other units of rows, of what is carried, and of costs."""
    program = programs.facility_location(6, 4)
    y = draw(4, program.p)
    wanted = RelaxationFirst(program).solve(y).check(OPTIMAL)
    size = np.where(program.integer, 1.0, shares)
    columns = sp.diags_array(1 / size)
    assert program.S is not None
    other = replace(
        program, A=rows * program.A @ columns, b=rows * program.b, G=rows * program.G @ columns, upper=program.upper * size,
        S=costs * columns @ program.S, d=costs * program.d / size,
    )  # fmt: skip
    found = RelaxationFirst(other).solve(y).check(OPTIMAL)
    torch.testing.assert_close(found.objective / costs, wanted.objective, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.decision / torch.tensor(size), wanted.decision, rtol=1e-7, atol=1e-7)


def test_sides_of_their_own() -> None:
    program = programs.facility_location(5, 3)
    y, count = draw(20, program.p), 20
    upper = torch.ones(count, program.n, dtype=torch.float64)
    upper[::2, -1] = 0  # closed
    upper[::5, -2:] = 0.5  # closed, as no half opens
    lower = torch.zeros_like(upper)
    lower[1::3, -3] = 0.5  # open
    h = draw(count, 3, seed=1) - 0.2
    for own in (
        Instance(upper=upper),
        Instance(lower=lower),
        Instance(h=h),
        Instance(upper=upper, lower=lower, h=h, b=0.5 + draw(count, 5, seed=2), d=draw(count, program.n)),
    ):
        found, wanted = RelaxationFirst(program).solve(y, own), HiGHS(program).solve(y, own)
        assert_same(found, wanted, program)
    assert len(wanted.counts()) == 2, "some are infeasible"


# -- any integer program --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_general_integers_and_equations_against_enumeration() -> None:
    for seed in range(40):
        rng = np.random.RandomState(seed)
        n = rng.randint(2, 5)
        inside = rng.randint(-1, 3, n).astype(float)
        integer = rng.uniform(size=n) < 0.7
        integer[0] = True
        inside += np.where(integer, 0.0, 0.25)
        A, G = rng.randint(-3, 4, (rng.randint(0, 2), n)), rng.randint(-4, 5, (rng.randint(1, 3), n))
        A, G = A[A.any(1)], G[G.any(1)]
        program = Program(
            A=A,
            b=A @ inside,
            G=G,
            h=G @ inside + rng.randint(0, 3, len(G)) / 2,
            lower=-1,
            upper=3,
            integer=integer,
            n=n,
        )
        c = rng.randint(-5, 6, n) + rng.choice([0, 0.5])
        best = exact_optimum(program, c)
        assert best is not None
        found = RelaxationFirst(program).solve(torch.tensor(c, dtype=torch.float64)).check(OPTIMAL)
        assert found.objective.item() == pytest.approx(float(best), rel=1e-9, abs=1e-9), seed
        assert bool(program.is_feasible(found.decision)), seed


def test_infeasible_and_unbounded() -> None:
    nothing = Program(A=[[1.0, 1]], b=[3], upper=1, integer=True)
    assert int(RelaxationFirst(nothing).solve(torch.ones(2)).status) == Status.INFEASIBLE
    no_integers = Program(A=[[2.0, 2]], b=[3], upper=5, integer=True)
    assert int(RelaxationFirst(no_integers).solve(torch.ones(2)).status) == Status.INFEASIBLE
    half = Program(G=[[1.0, 1]], h=[3], lower=[0.2, 0], upper=[0.8, 1], integer=True)
    assert int(RelaxationFirst(half).solve(torch.ones(2)).status) == Status.INFEASIBLE
    endless = Program(G=[[1.0, -1]], h=[0.5], integer=[0])
    found = RelaxationFirst(endless).solve(torch.tensor([[-1.0, 0.5], [1.0, 2.0]]))
    assert found.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL]
    fixed = Program(G=[[1.0, -1]], h=[0.5], lower=[1, 0], upper=[1, np.inf], integer=[0])
    found = RelaxationFirst(fixed).solve(torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
    assert found.status.tolist() == [Status.UNBOUNDED, Status.OPTIMAL]
    assert found.objective[1].item() == 2


# -- what is not proven ---------------------------------------------------------------------------------------------


def test_more_nodes_than_allowed_go_to_highs() -> None:
    program = programs.knapsack(12)
    y = draw(6, program.p)
    calls = []
    solver = RelaxationFirst(program, nodes=1)
    solve = solver.general._solve
    solver.general._solve = lambda c, *others: calls.append(len(c)) or solve(c, *others)  # type: ignore
    assert_same(solver.solve(y).check(OPTIMAL), HiGHS(program).solve(y), program)
    assert calls
    assert calls[0] > 1, "most of them need more than the root"


@pytest.mark.parametrize("way", ["bound", "decision", "status"])
def test_a_relaxation_that_is_wrong_is_not_believed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.facility_location(6, 4)
    y = draw(5, program.p)
    wanted = HiGHS(program).solve(y)
    solver = RelaxationFirst(program)
    assert not solver.strength.fixes_all(program)
    if way == "bound":  # prices that prove nothing
        bound = Relaxation.bound
        monkeypatch.setattr(Relaxation, "bound", lambda self, c, prices: bound(self, c, 0 * prices))
    elif way == "decision":  # everything closed
        monkeypatch.setattr(Relaxation, "decision", lambda self: np.zeros(self.n))
    else:
        monkeypatch.setattr(Relaxation, "run", lambda self: (Status.FAILED, -np.inf))
    assert_same(solver.solve(y).check(OPTIMAL), wanted, program)


def test_refusals() -> None:
    with pytest.raises(ProgramError, match="no integer variables"):
        RelaxationFirst(programs.supply())
    with pytest.raises(OptionError, match="nodes"):
        RelaxationFirst(programs.knapsack(), nodes=0)
