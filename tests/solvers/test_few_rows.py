"""Programs with few rows: the simplex method and the enumeration against HiGHS, and against every decision there is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.errors import ProgramError
from dflearn.kernels.few_row_binary import search
from dflearn.program import Instance, Program
from dflearn.solvers import few_rows
from dflearn.solvers.base import Basis, Status
from dflearn.solvers.few_rows import FewRowBinary, FewRowLP
from dflearn.solvers.highs import HiGHS
from support import programs
from support.in_torch import FewRowLPInTorch

# -- linear programs ------------------------------------------------------------------------------------------------


@pytest.fixture(params=[FewRowLP, FewRowLPInTorch])
def few_row_lp(request: pytest.FixtureRequest) -> type[FewRowLP]:
    """The CPU's kernel, and what a GPU does."""
    kind: type[FewRowLP] = request.param
    return kind


@pytest.mark.parametrize("items", [5, 40, 200])
@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_relaxed_knapsacks_against_highs(items: int, dimensions: int, few_row_lp: type[FewRowLP]) -> None:
    program = programs.knapsack(items, dimensions).relax()
    rng = np.random.RandomState(items)
    for values in (
        rng.uniform(0, 5, (20, items)),
        np.ceil(rng.uniform(0, 5, (20, items))),
    ):  # the second with many ties
        y = torch.tensor(values)
        answer, best = few_row_lp(program).solve(y).check((Status.OPTIMAL,)), HiGHS(program).solve(y)
        torch.testing.assert_close(answer.objective, best.objective, rtol=1e-11, atol=1e-11)
        assert program.violation(answer.decision).max() <= 1e-12
        between = ((answer.decision > 0) & (answer.decision < 1)).sum(-1)
        assert between.max() <= dimensions, "a vertex has at most one fraction for each row"


def test_few_rows_with_sides_of_their_own(few_row_lp: type[FewRowLP]) -> None:
    program = programs.supply()
    count = 30
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    instance = Instance(
        b=torch.tensor(program.b) + 0.1 * draw(count, 2),
        h=torch.tensor(program.h) + 1 - 8 * draw(count, 3),
        lower=-1 - draw(count, 8),
        upper=1 + draw(count, 8),
        d=draw(count, 8),
    )
    y = draw(count, 8) - 0.5
    solver = few_row_lp(program)
    best = HiGHS(program).solve(y, instance)
    assert len(best.counts()) == 2, "some are infeasible"
    for fields in (("b",), ("h",), ("lower", "upper"), ("b", "h", "lower", "upper", "d")):
        own = Instance(**{name: instance.present()[name] for name in fields})
        answer, best = solver.solve(y, own), HiGHS(program).solve(y, own)
        assert torch.equal(answer.status, best.status)
        torch.testing.assert_close(answer.objective, best.objective, equal_nan=True)
        assert torch.equal(answer.decision.isnan().any(-1), best.status != Status.OPTIMAL)
        assert torch.equal(answer.bound == -torch.inf, best.status != Status.OPTIMAL)


@pytest.mark.parametrize(
    "arguments",
    [
        {"G": np.ones((3, 4)), "h": [2, 2, 2]},  # the same row three times
        {"A": np.ones((2, 4)), "b": [2, 2]},
        {"A": [[1, 1, 1, 1], [2, 2, 2, 2]], "b": [2, 4]},
        {"G": np.vstack([np.eye(4), np.ones((1, 4))]), "h": [1, 1, 1, 1, 2]},  # rows that are bounds
        {"G": [[1, 1, 1, 1]], "h": [0]},  # a single decision
        {"G": [[1e-6, 1e6, 1, 1]], "h": [1]},
        {"A": [[1, -1, 1, -1]], "b": [0], "lower": [0, 0, 1, 1]},  # fixed variables
    ],
)
def test_degenerate_rows(arguments: dict[str, Any], few_row_lp: type[FewRowLP]) -> None:
    program = Program(**arguments, upper=1)
    y = torch.tensor(list(itertools.product([-1.0, 0.0, 1.0], repeat=4)), dtype=torch.float64)  # ties everywhere
    solver = few_row_lp(program)
    answer, best = solver.solve(y).check((Status.OPTIMAL,)), HiGHS(program).solve(y).check((Status.OPTIMAL,))
    torch.testing.assert_close(answer.objective, best.objective, rtol=1e-7, atol=1e-7)
    assert program.violation(answer.decision).max() <= 1e-9
    start = solver.solve(y, None, solver.no_start(len(y))).start
    warm = solver.solve(y.flip(0), None, start)
    torch.testing.assert_close(warm.objective, answer.objective.flip(0), rtol=1e-7, atol=1e-7)


def test_a_basis_travels_between_solvers(few_row_lp: type[FewRowLP]) -> None:
    program = programs.knapsack(30, 3).relax()
    y = torch.rand(9, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    few, highs = few_row_lp(program), HiGHS(program)
    wanted = highs.solve(y).objective
    for one, other in ((few, highs), (highs, few)):
        start = one.solve(y, None, one.no_start(9)).start
        assert start is not None
        assert ((start == Basis.BASIC).sum(-1) == 3).all()
        torch.testing.assert_close(other.solve(y, None, start).objective, wanted)
    nonsense = torch.full((9, 33), int(Basis.BASIC), dtype=torch.int8)
    torch.testing.assert_close(few.solve(y, None, nonsense).objective, wanted)


def test_the_start_that_was_passed_stays_as_it_was() -> None:
    solver = FewRowLP(programs.knapsack(10).relax())
    start = solver.no_start(2)
    assert start is not None
    solver.solve(torch.rand(2, 10, generator=torch.Generator().manual_seed(0)), None, start)
    assert start.eq(Basis.NONE).all()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (programs.knapsack(), r"it has integer variables; did you mean program.relax\(\)"),
        (programs.shortest_path(5), "it has 25 rows, more than 16"),
        (Program(G=np.ones((1, 3)), h=[1]), "needs finite bounds on every variable"),
        (Program(n=2, lower=-np.inf, upper=1), "needs finite bounds on every variable"),
    ],
)
def test_programs_that_few_rows_refuses(program: Program, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        FewRowLP(program)


def test_highs_solves_instances_with_infinite_bounds() -> None:
    solver = FewRowLP(programs.knapsack(3).relax())
    own, y = Instance(upper=torch.full((1, 3), torch.inf)), torch.ones(1, 3)
    found, wanted = solver.solve(y, own, solver.no_start(1)), solver.general.solve(y, own, solver.no_start(1))
    assert found.fallback is not None
    assert found.fallback.all()
    assert torch.equal(found.start, wanted.start)  # type: ignore[arg-type]
    torch.testing.assert_close(found.objective, wanted.objective)


# -- yes or no ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [5, 40, 150])
@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_knapsacks_against_highs(items: int, dimensions: int) -> None:
    program = programs.knapsack(items, dimensions)
    rng = np.random.RandomState(items)
    for values in (rng.uniform(-1, 5, (6, items)), np.ceil(rng.uniform(0, 5, (6, items)))):  # the second with many ties
        y = torch.tensor(values)
        answer = FewRowBinary(program).solve(y).check((Status.OPTIMAL,))
        best = HiGHS(program).solve(y).check((Status.OPTIMAL,))
        torch.testing.assert_close(answer.objective, best.objective, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(answer.objective, answer.bound)
        assert program.violation(answer.decision).max() <= 1e-9
        assert set(answer.decision.unique().tolist()) <= {0.0, 1.0}


def best_of_all(program: Program, y: torch.Tensor, lower: np.ndarray, upper: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The least objective over every decision within the bounds; infinite where none is feasible."""
    every = np.array(list(itertools.product(*({low, high} for low, high in zip(lower, upper, strict=True)))))
    feasible = every[(every @ program.G.T <= h + 1e-9).all(1)]
    values = y.numpy() @ feasible.T
    return values.min(1) if len(feasible) else np.full(len(y), np.inf)


@pytest.mark.parametrize("seed", range(12))
def test_any_rows_against_every_decision(seed: int) -> None:
    """Rows, costs and sides of both signs, fixed variables, bounds other than 0 and 1, infeasible instances."""
    rng = np.random.RandomState(seed)
    n, m = rng.randint(1, 9), rng.randint(0, 4)
    rows = rng.choice([-2.0, -1, -0.5, 0, 0.5, 1, 3], (m, n)) if seed % 2 else rng.normal(size=(m, n))
    lower = rng.choice([-1.0, 0, 0, 2], n)
    upper = lower + rng.choice([0.0, 1, 1, 1], n)
    program = Program(n=n, G=rows, h=np.zeros(m), lower=lower, upper=upper, integer=True)
    y = torch.tensor(np.vstack([rng.normal(size=(20, n)), rng.randint(-2, 3, (20, n)), np.zeros((1, n))]))
    h = rng.normal(size=(len(y), m)) * 2
    answer = FewRowBinary(program).solve(y, Instance(h=torch.tensor(h)) if m else None)
    for i in range(len(y)):
        (wanted,) = best_of_all(program, y[i : i + 1], lower, upper, h[i])
        if np.isinf(wanted):
            assert answer.status[i] == Status.INFEASIBLE
        else:
            assert answer.status[i] == Status.OPTIMAL
            assert float(answer.objective[i]) == pytest.approx(wanted, abs=1e-9)
            assert (rows @ answer.decision[i].numpy() <= h[i] + 1e-8).all()


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-20, 1e-9])
def test_flips_that_cost_next_to_nothing(tiny: float) -> None:
    """The search may pay for any number of them."""
    cost, change = np.array([tiny, tiny, 1.0]), np.array([[1.0], [2.0], [2.0]])
    path, at, spent, chosen = np.empty(4, np.int64), np.empty((4, 1)), np.empty(4), np.empty(3, np.int64)
    left, price, largest = np.array([-2.0]), np.array([0.5]), np.array([2.0])
    found, steps = search(cost, change, left, price, largest, 10.0, 100, path, at, spent, chosen)
    assert (found, chosen[0]) == (1, 1)
    assert steps >= 0


def test_bounds_of_an_instance_fix_variables() -> None:
    program = programs.knapsack(10)
    y = torch.rand(5, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lower, upper = torch.zeros(5, 10, dtype=torch.float64), torch.ones(5, 10, dtype=torch.float64)
    lower[:, 3], upper[:, 7] = 1, 0
    own = Instance(lower=lower, upper=upper)
    answer = FewRowBinary(program).solve(y, own)
    assert answer.decision[:, 3].eq(1).all()
    assert answer.decision[:, 7].eq(0).all()
    torch.testing.assert_close(answer.objective, HiGHS(program).solve(y, own).objective)


def test_what_takes_too_long_is_left_to_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.knapsack(30)
    y = torch.rand(6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = Instance(h=torch.tensor(program.h) * torch.linspace(0.2, 1, 6, dtype=torch.float64)[:, None])
    wanted = FewRowBinary(program).solve(y, own)
    for steps in (0, 20):
        monkeypatch.setattr(few_rows, "STEPS", steps)
        answer = FewRowBinary(program).solve(y, own).check((Status.OPTIMAL,))
        torch.testing.assert_close(answer.objective, wanted.objective, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (programs.knapsack().relax(), "it has variables that are not integer; did you mean FewRowLP"),
        (programs.facility_location(), "it has variables that are not integer"),
        (programs.top_k(at_most=False), "it has equations"),
        (programs.knapsack(8, 5), "it has 5 rows, more than 4"),
        (Program(G=np.ones((1, 3)), h=[1], upper=2, integer=True), "variables with two values, or one"),
        (Program(G=np.ones((1, 3)), h=[1], integer=True), "variables with two values, or one"),
    ],
)
def test_programs_that_few_row_binary_refuses(program: Program, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        FewRowBinary(program)
