"""`DavisYin` against the same iteration in plain torch, against Clarabel, and against the published formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import DflearnError, OptionError, ProgramError, ShapeError
from dflearn.layers import DavisYin
from dflearn.problems import problem_named
from dflearn.program import Instance, Program, Quadratic
from dflearn.solvers.base import Status
from support.reference import clarabel_smoothed, jacobian, random_case, smoothed_objective
from support.splitting import InTorch, plain

pytestmark = pytest.mark.xdist_group("davis_yin")  # kernels are compiled once

ITERATIONS = 25
KINK = 1e-9  # where some z comes this close to a bound, derivatives are not compared


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def slope(w: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    weight = torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(w)
    return torch.autograd.grad((w * weight).sum(), y)[0]


def costs_of(name: str, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return problem_named(name, seed=1).generate(count, dtype=dtype).batch().require("costs")


# -- the iteration ----------------------------------------------------------------------------------------------------


def with_q(seed: int) -> tuple[Program, Tensor, Any, float]:
    """A random program with a random Q: diagonal, of low rank, or both; everything per instance or shared."""
    case, rng = random_case(seed), np.random.default_rng(seed)
    rank, n = int(rng.integers(0, 4)), case.program.n
    diagonal = rng.uniform(0, 2, n) * (rng.random(n) < 0.5)
    Q = Quadratic(rng.normal(size=(rank, n)) if rank else None, diagonal)
    return replace(case.program, Q=Q), case.y, case.instance, case.mu


@pytest.mark.parametrize("quadratic", [False, True])
def test_decisions_and_gradients_equal_plain_torch(quadratic: bool) -> None:
    """Rows repeated and implied, free, fixed and one-sided variables, everything per instance or shared."""
    compared = []
    for seed in range(12 if quadratic else 30):
        case = random_case(seed)
        program, y, instance, mu = with_q(seed) if quadratic else (case.program, case.y, case.instance, case.mu)
        alpha = (1.2 if quadratic else 0.9) / (mu + (0.0 if program.Q is None else program.Q.norm))
        for gradient in ("jfb", "unrolled"):
            layer = DavisYin(program, mu, alpha, ITERATIONS, gradient=gradient)  # type: ignore[arg-type]
            ours, theirs = (y.clone().requires_grad_() for _ in range(2))
            w = layer(ours, instance)
            c = program.objective.vector(theirs, instance)
            wanted, distance = plain(program, c, mu, alpha, ITERATIONS, instance, free=gradient == "jfb")
            size = 1 + float(wanted.detach().abs().max())
            torch.testing.assert_close(w, wanted, rtol=1e-9, atol=1e-9 * size)
            clear = distance > KINK * size
            got, want = slope(w, ours), slope(wanted, theirs)
            torch.testing.assert_close(got[clear], want[clear], rtol=1e-8, atol=1e-9 * (1 + float(want.abs().max())))
            compared.append(distance > 1e-6)
    assert quadratic or float(torch.cat(compared).double().mean()) > 0.7, "most cases are at kinks"


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
@pytest.mark.parametrize("gradient", ["jfb", "unrolled"])
@pytest.mark.parametrize("count", [1, 19])
def test_the_papers_problems_in_both_precisions(name: str, gradient: Any, count: int) -> None:
    program = problem_named(name, seed=1).program
    y = costs_of(name, count).requires_grad_()
    wanted, _ = plain(program, program.objective.vector(y), 1.0, 0.05, 100, None, free=gradient == "jfb")
    want = slope(wanted, y)
    layer = DavisYin(program, 1.0, 0.05, 100, gradient=gradient)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
        ours = y.detach().to(dtype).requires_grad_()
        w = layer(ours)
        got = slope(w, ours)
        assert w.dtype == got.dtype == dtype
        torch.testing.assert_close(w.double(), wanted, rtol=tolerance, atol=tolerance)
        # In float32 a mask may flip where z is next to a bound: then one entry differs, not the whole.
        error = (got.double() - want).norm() / want.norm()
        assert float(error) < (1e-9 if dtype == torch.float64 else 0.02)


# -- the limit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100, 116))
def test_the_limit_is_the_smoothed_solution(seed: int) -> None:
    case = random_case(seed)
    rows = case.rows()
    exact = [clarabel_smoothed(case.program, c, case.mu, sides, "squared")[1] for c, sides in rows]
    # Where nothing but the smoothing stops the decisions, they grow large, and the default step is too small for them.
    step = 1 / case.mu if max(np.abs(w).max() for w in exact) > 50 else None
    layer = DavisYin(case.program, case.mu, step, 50_000, tolerance=1e-11, gradient="implicit")
    y = case.y.clone().requires_grad_()
    solution = layer.solve(y, case.instance)
    assert solution.counts() == {"OPTIMAL": len(rows)}, solution
    got = [torch.autograd.grad(w_i, y, retain_graph=True)[0] for w_i in solution.decision.sum(0)]
    for i, (c, sides) in enumerate(rows):
        w = solution.decision[i].detach().numpy()
        np.testing.assert_allclose(w, exact[i], atol=2e-5 * (1 + np.abs(exact[i]).max()))
        value = smoothed_objective(c, w, case.mu, "squared")
        assert float(solution.objective[i]) == pytest.approx(value, rel=1e-9, abs=1e-9)
        assert float(solution.residual[i]) <= 1e-11  # type: ignore[index]
        derivative = jacobian(case.program, c, w, case.mu, sides, "squared")
        if derivative is not None:
            S = np.eye(case.program.n) if case.program.S is None else case.program.S.toarray()
            ours = np.array([g[i].numpy() for g in got])
            np.testing.assert_allclose(ours, derivative @ S, atol=1e-7 * (1 + np.abs(derivative).max()))


def test_without_smoothing_the_limit_is_the_linear_optimum() -> None:
    problem = problem_named("SP-5", seed=1)
    y = costs_of("SP-5", 20)
    solution = DavisYin(problem.program, 0.0, iterations=20_000, tolerance=1e-10).solve(y).check()
    torch.testing.assert_close(solution.objective, problem.solver().solve(y).objective, rtol=1e-7, atol=1e-7)


def test_the_default_step_makes_units_irrelevant() -> None:
    program, y = problem_named("KP-100", seed=1).program, costs_of("KP-100", 5)
    results = []
    for unit, size in ((1.0, 1.0), (1e4, 1.0), (1.0, 50.0)):  # of costs and of decisions
        own = (y * unit).requires_grad_()
        scaled = Program(G=program.G, h=program.h * size, upper=size, S=program.S)
        w = DavisYin(scaled, 2.0 * unit / size, gradient="unrolled")(own)
        results.append((w / size, slope(w, own) * unit / size))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-6, atol=1e-9)
    zero = DavisYin(program, 0.0).solve(torch.zeros(2, 100, dtype=torch.float64))
    assert bool(torch.isfinite(zero.decision).all())


# -- what cannot be solved --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_infeasible_and_unbounded_instances_are_told_apart(dtype: torch.dtype) -> None:
    """min cᵀw, w₁ + w₂ = b, w₁ − w₂ ≤ h, w ≥ 0, w₂ ≤ 1."""
    program = Program(A=[[1, 1, 0]], b=[1], G=[[1, -1, 0]], h=[1], upper=[np.inf, 1, np.inf])
    b = torch.tensor([[1.0], [-1.0], [1.0], [5.0]], dtype=dtype)  # −1: no; 5: w₁ = 4 at least, w₁ − w₂ = 3 > h
    y = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, -1], [1, 1, 1]], dtype=dtype)
    instance = Instance(b=b)
    solution = DavisYin(program, 0.0, 0.3, 3000, tolerance=1e-6).solve(y, instance)
    found = [Status(code) for code in solution.status.tolist()]
    assert found == [Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED, Status.INFEASIBLE]
    assert bool(solution.decision[1:].isnan().all())
    assert bool(solution.objective[1:].isnan().all())
    with pytest.raises(DflearnError, match="instance 1 is INFEASIBLE"):
        DavisYin(program, 0.5, 0.3, 3000, tolerance=1e-6)(y, instance)
    smooth = DavisYin(program, 0.5, 0.3, 3000, tolerance=1e-6).solve(y, instance)
    assert Status(int(smooth.status[2])) is Status.OPTIMAL


@pytest.mark.parametrize("lower", [-np.inf, 0.0])
@pytest.mark.parametrize(("mu", "upper"), [(0.0, 1.0), (0.5, 1.0), (0.5, np.inf)])
def test_what_bounds_or_smoothing_stop_does_not_fall_without_end(lower: float, mu: float, upper: float) -> None:
    """Stopped after a step or two, when all that can be seen is that costs fall."""
    program, c = Program(n=2, lower=lower, upper=upper), torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    for iterations in (1, 2):
        solution = DavisYin(program, mu, iterations=iterations, tolerance=1e-12).solve(c)
        assert solution.status.item() in (Status.OPTIMAL, Status.NOT_FOUND)


def test_too_few_iterations_are_no_proof() -> None:
    program, y = problem_named("SP-5").program, costs_of("SP-5", 3)
    layer = DavisYin(program, 0.1, iterations=10, tolerance=1e-9)
    assert layer.solve(y).counts() == {"NOT_FOUND": 3}
    with pytest.raises(DflearnError, match="instance 0 is NOT_FOUND"):
        layer(y)
    fixed = DavisYin(program, 0.1, iterations=10).solve(y)
    assert fixed.counts() == {"FEASIBLE": 3}
    assert bool((fixed.residual > 1e-9).all()), "the residual says how far it is"  # type: ignore[operator]


@pytest.mark.parametrize("tolerance", [None, 1e-4])
def test_numbers_that_overflow_are_no_decision(tolerance: float | None) -> None:
    y = torch.tensor([[1.0, 2.0], [3e38, -3e38]])
    solution = DavisYin(Program(A=[[1, 1]], b=[1]), 0.0, 1.0, 200, tolerance=tolerance).solve(y)
    assert Status(int(solution.status[0])).has_decision
    assert Status(int(solution.status[1])) is Status.FAILED
    assert bool(solution.decision[1].isnan().all())


def test_contradictory_sides_and_bad_arguments_are_refused() -> None:
    program = Program(A=[[1, 1], [2, 2]], b=[1, 2])
    y = torch.ones(2, 2)
    with pytest.raises(ProgramError, match="instance 1: equality row"):
        DavisYin(program)(y, Instance(b=torch.tensor([[1.0, 2.0], [1.0, 3.0]])))
    for wrong in (
        {"mu": -1},
        {"mu": np.inf},
        {"mu": 1, "step": 2},
        {"step": 0},
        {"iterations": 0},
        {"tolerance": 0},
        {"gradient": "exact"},
        {"mu": 0, "gradient": "implicit"},
    ):
        with pytest.raises(OptionError):
            DavisYin(program, **wrong)
    DavisYin(program, 0, 1e6)  # without smoothing every step converges


# -- starts, threads, processes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_start_keeps_the_answer(dtype: torch.dtype) -> None:
    program, y = problem_named("SP-5", seed=1).program, costs_of("SP-5", 12, dtype)
    layer = DavisYin(program, 0.3, iterations=5000, tolerance=1e-7)
    cold = layer.solve(y)
    assert cold.start is None
    first = layer.solve(y, None, layer.no_start(12))
    assert torch.equal(first.decision, cold.decision), "a blank start is a cold one"
    assert first.start is not None
    assert first.start.dtype == torch.float32
    mixed = first.start.clone()
    mixed[4] = torch.nan
    warm = layer.solve(y * 1.001, None, mixed)
    wanted = layer.solve(y * 1.001)
    torch.testing.assert_close(warm.decision, wanted.decision, rtol=0, atol=1e-3 if dtype == torch.float32 else 1e-5)
    assert torch.equal(warm.decision[4], wanted.decision[4])
    few = DavisYin(program, 0.3, iterations=10, tolerance=1e-7)
    assert few.solve(y, None, first.start).counts() == {"OPTIMAL": 12}, "a start saves iterations"


def test_a_start_needs_a_tolerance() -> None:
    program, y = problem_named("SP-5").program, costs_of("SP-5", 2)
    layer = DavisYin(program)
    assert layer.no_start(2) is None
    with pytest.raises(ShapeError, match="takes no start"):
        layer(y, None, torch.zeros(2, 40))


@pytest.mark.parametrize("gradient", ["jfb", "unrolled", "implicit"])
def test_threads_change_nothing(gradient: Any, two_threads: None) -> None:
    program = problem_named("CFL-50", seed=1).program
    layer = DavisYin(program, 5.0, gradient=gradient)
    for count in (1, 20, 100):
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            y = costs_of("CFL-50", count).requires_grad_()
            w = layer(y)
            torch.set_num_threads(3 - threads)  # the way back may find another number of threads
            results.append((w.detach(), slope(w, y)))
        torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-12)


def test_half_precision_computes_in_float32() -> None:
    program, y = problem_named("SP-5").program, costs_of("SP-5", 3)
    w = DavisYin(program)(y.bfloat16())
    assert w.dtype == torch.bfloat16
    torch.testing.assert_close(w, DavisYin(program)(y.bfloat16().float()).bfloat16())


def test_float32_calls_no_broken_row_rounding() -> None:
    """3.375 w₀ + w₁/8 = 0 with 0 ≤ w ≤ 3 has one solution, w = 0; w₁ = 1e-4 was called optimal."""
    program = Program(A=[[3.375, 0.125]], b=[0.0], upper=3.0)
    layer = DavisYin(program, 8.0, iterations=3000, tolerance=1e-9)
    solution = layer.solve(torch.tensor([[-0.5017, -0.3121], [0.8712, -1.3915]]))
    optimal = solution.status == int(Status.OPTIMAL)
    assert (solution.decision[optimal].abs() <= 3e-5).all()


# -- what OPTIMAL means ------------------------------------------------------------------------------------------------


def test_the_objective_is_that_of_the_decision() -> None:
    """Beside a loose row (4e20) what is left of w is a residue: it becomes zero, and the objective follows."""
    program = Program(G=[[1.0], [4096.0], [2.0**-18]], h=[0.0, 4096.0, 2.0**-18 * 1e26], upper=1)
    start = torch.tensor([[0.49, -1.0, -1.2, 1.1]])
    y = torch.zeros(1, 1, dtype=torch.float64)
    answer = DavisYin(program, 1.0, iterations=2000, tolerance=1e-9).solve(y, start=start)
    assert answer.status.tolist() == [int(Status.OPTIMAL)]
    assert answer.decision.tolist() == [[0.0]]
    assert answer.objective.tolist() == [0.0]


def test_a_block_in_small_units_is_not_forgotten() -> None:
    """w₁ ≤ 1e7, w₂ ≤ 1e-8, both pressed upwards: (5e6, 0) was called optimal."""
    program = Program(G=[[1.0, 0], [0, 1]], h=[1e7, 1e-8])
    solution = DavisYin(program, 0.0, iterations=2000, tolerance=1e-9).solve(torch.tensor([[-1e-7, -1e8]]).double())
    if int(solution.status) == Status.OPTIMAL:
        np.testing.assert_allclose(solution.decision, [[1e7, 1e-8]], rtol=1e-6)
    else:
        assert solution.counts() == {"NOT_FOUND": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loose", [1e9, 1e15, 1e30, None])
@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_optimal_in_mixed_units_is_right(dtype: torch.dtype, loose: float | None, unit: float) -> None:
    """Two blocks of other units, a loose row, balances with right-hand sides zero: where it says OPTIMAL, it is Clarabel's."""
    generator, found = np.random.RandomState(0), 0
    row = np.array([[1.0, 1, 1]])
    balance = np.array([[1.0, -1, 0]])
    A = np.block([[balance, np.zeros((1, 3))], [np.zeros((1, 3)), balance * unit]])
    G = np.block([[row, np.zeros((1, 3))], [np.zeros((1, 3)), row]])
    h = np.array([2.0, 2.0 * unit])
    if loose is not None:
        G, h = np.vstack([G, np.ones((1, 6))]), np.append(h, loose)
    upper = np.repeat([1.0, unit], 3)
    program = Program(A=A, b=0.0, G=G, h=h, upper=upper)
    costs = torch.tensor(generator.normal(size=(6, 6)) * np.repeat([1.0, 1 / unit], 3)).to(dtype)
    solution = DavisYin(program, 0.1, iterations=2000, tolerance=1e-7).solve(costs)
    for i in np.flatnonzero(solution.status == int(Status.OPTIMAL)):
        for block, size in (
            (slice(0, 3), 1.0),
            (slice(3, 6), min(unit, 1 / unit)),
        ):  # each in a unit in which it is about one
            c, mu = costs[i, block].double().numpy() * size, 0.1 * size**2
            scale = np.abs(c).max()
            own = Program(A=balance, b=0.0, G=row, h=[2.0 * upper[block][0] / size], upper=upper[block] / size)
            _, exact = clarabel_smoothed(own, c / scale, mu / scale, own.own_sides, "squared")
            w = solution.decision[i, block].double().numpy() / size
            np.testing.assert_allclose(w, exact, rtol=1e-3, atol=1e-4)
            assert abs(w[0] - w[1]) <= 1e-5 * (w[0] + w[1]), "a balance is off beside its own terms"
        found += 1
    if unit == 1.0 and loose is None:
        assert found == 6


@pytest.mark.parametrize("kind", [DavisYin, InTorch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_optimal_without_a_tolerance(kind: type[DavisYin], dtype: torch.dtype) -> None:
    program, y = problem_named("SP-5").program, costs_of("SP-5", 3, dtype)
    assert kind(program, 5.0, iterations=3000).solve(y).counts() == {"FEASIBLE": 3}
    solved = kind(program, 5.0, iterations=3000, tolerance=1e-6).solve(y)
    assert solved.counts() == {"OPTIMAL": 3}
    from dflearn.engine.certify import Certifier

    assert bool((solved.residual <= (1e-5 if dtype == torch.float32 else 1e-6)).all())  # type: ignore[operator]
    w = solved.decision.double().numpy()
    assert float(Certifier(program.relax()).violation(w, program.own_sides).max()) <= 1e-5
