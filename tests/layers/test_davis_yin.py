"""`DavisYin` against the same iteration in plain torch, against Clarabel, and against the published formulas."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from dflearn.errors import DflearnError, OptionError, ProgramError, ShapeError
from dflearn.layers import DavisYin, Smoothed
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from support.reference import RandomCase, clarabel_smoothed, jacobian, random_case, smoothed_objective
from support.splitting import InTorch

ITERATIONS = 25
KINK = 1e-9  # where some z comes this close to a bound, derivatives are not compared


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


class Plain(NamedTuple):
    """The iteration of `DavisYin` in dense torch, rows as they come, projection by pseudo-inverse; float64."""

    matrix: Tensor
    inverse: Tensor
    right: Tensor
    lower: Tensor
    upper: Tensor
    smoothing: Tensor
    n: int

    @classmethod
    def of(cls, program: Program, mu: float, instance: Instance | None = None, count: int = 1) -> Plain:
        slacks = program.G.shape[0]
        matrix = np.block(
            [
                [program.A.toarray(), np.zeros((program.A.shape[0], slacks))],
                [program.G.toarray(), np.eye(slacks)],
            ]
        )
        parts = program.sides(instance, count).parts().values()
        sides = Sides(*(np.broadcast_to(part, (count, part.shape[-1])) for part in parts))
        inverse = np.linalg.pinv(matrix, rcond=1e-10) if len(matrix) else np.zeros(matrix.shape[::-1])
        parts = (
            matrix,
            inverse,
            np.hstack([sides.b, sides.h]),
            np.hstack([sides.lower, np.zeros((count, slacks))]),
            np.hstack([sides.upper, np.full((count, slacks), np.inf)]),
            np.concatenate([np.full(program.n, mu), np.zeros(slacks)]),
        )
        return cls(*(torch.tensor(part, dtype=torch.float64) for part in parts), program.n)

    def clip(self, z: Tensor) -> Tensor:
        """Its derivative is one strictly inside the bounds and zero elsewhere, bounds included."""
        inside = (z > self.lower) & (z < self.upper)
        return torch.where(inside, z, torch.maximum(torch.minimum(z.detach(), self.upper), self.lower))

    def step(self, z: Tensor, c: Tensor, alpha: Tensor) -> Tensor:
        x = self.clip(z)
        v = (2 - alpha * self.smoothing) * x - z - alpha * torch.nn.functional.pad(c, (0, z.shape[-1] - self.n))
        return z - x + v - (v @ self.matrix.T - self.right) @ self.inverse.T

    def run(self, c: Tensor, alpha: Any, iterations: int, *, jacobian_free: bool = False) -> tuple[Tensor, Tensor]:
        """w, and the smallest distance to a kink on the way, `(count,)`."""
        z = torch.zeros(len(c), self.matrix.shape[1], dtype=torch.float64)
        alpha = torch.as_tensor(alpha, dtype=torch.float64).reshape(-1, 1)
        distance = torch.full((len(c),), torch.inf, dtype=torch.float64)
        for _ in range(iterations):
            z = self.step(z.detach() if jacobian_free else z, c, alpha)
            gap = torch.minimum((z - self.lower).abs(), (z - self.upper).abs())
            gap = torch.where(self.lower == self.upper, torch.inf, gap)
            distance = torch.minimum(distance, gap.amin(1).detach())
        return self.clip(z)[:, : self.n], distance


def slope(w: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    weight = torch.randn(w.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(w)
    return torch.autograd.grad((w * weight).sum(), y)[0]


def costs_of(name: str, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return problem_named(name, seed=1).generate(count, dtype=dtype).batch().require("costs")


# -- the iteration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_decisions_and_gradients_equal_plain_torch(seed: int) -> None:
    """Rows repeated and implied, free, fixed and one-sided variables, everything per instance or shared."""
    case = random_case(seed)
    alpha = 0.9 / case.mu
    plain = Plain.of(case.program, case.mu, case.instance, len(case.y))
    for gradient in ("jfb", "unrolled"):
        layer = DavisYin(case.program, case.mu, alpha, ITERATIONS, gradient=gradient)  # type: ignore[arg-type]
        ours, theirs = (case.y.clone().requires_grad_() for _ in range(2))
        w = layer(ours, case.instance)
        c = case.program.objective.vector(theirs, case.instance)
        wanted, distance = plain.run(c, alpha, ITERATIONS, jacobian_free=gradient == "jfb")
        size = 1 + float(wanted.detach().abs().max())
        torch.testing.assert_close(w, wanted, rtol=1e-9, atol=1e-9 * size)
        clear = distance > KINK * size
        got, want = slope(w, ours), slope(wanted, theirs)
        torch.testing.assert_close(got[clear], want[clear], rtol=1e-8, atol=1e-9 * (1 + float(want.abs().max())))


def test_most_random_cases_are_away_from_kinks() -> None:
    """The comparison above compares something."""
    cases = [random_case(seed) for seed in range(60)]
    clear = [
        (
            Plain.of(k.program, k.mu, k.instance, len(k.y)).run(
                k.program.objective.vector(k.y, k.instance), 0.9 / k.mu, ITERATIONS
            )[1]
            > 1e-6
        )
        for k in cases
    ]
    assert float(torch.cat(clear).double().mean()) > 0.7


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
@pytest.mark.parametrize("gradient", ["jfb", "unrolled"])
@pytest.mark.parametrize("count", [1, 19, 40])
def test_the_papers_problems_in_both_precisions(name: str, gradient: Any, count: int) -> None:
    program = problem_named(name, seed=1).program
    plain = Plain.of(program, 1.0, count=count)
    y = costs_of(name, count).requires_grad_()
    wanted, _ = plain.run(program.objective.vector(y), 0.05, 100, jacobian_free=gradient == "jfb")
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


def test_unrolled_passes_gradcheck() -> None:
    case = random_case(3)
    layer = DavisYin(case.program, case.mu, 0.5 / case.mu, 12, gradient="unrolled")
    torch.autograd.gradcheck(lambda y: layer(y, case.instance), (case.y.clone().requires_grad_(),))


def test_jacobian_free_gradient_is_the_formula() -> None:
    """−α Sᵀ Eᵀ P D E g, written out."""
    program = problem_named("CFL-4x2").program
    y = costs_of("CFL-4x2", 3).requires_grad_()
    layer, plain = DavisYin(program, 0.5, 0.1, 40), Plain.of(program, 0.5, count=3)
    z = torch.zeros(3, plain.matrix.shape[1], dtype=torch.float64)
    for _ in range(40):
        z = plain.step(z, program.objective.vector(y.detach()), torch.tensor(0.1))
    weight = torch.randn(3, program.n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = torch.nn.functional.pad(weight, (0, z.shape[1] - program.n)) * ((z > plain.lower) & (z < plain.upper))
    g = -0.1 * (g - (g @ plain.matrix.T) @ plain.inverse.T)
    wanted = program.objective.transpose(g[:, : program.n])
    torch.testing.assert_close(slope(layer(y), y), wanted, rtol=1e-10, atol=1e-12)


# -- the limit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100, 140))
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


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
def test_all_gradients_but_jfb_agree_in_the_limit(name: str) -> None:
    program, y = problem_named(name, seed=1).program, costs_of(name, 6)
    mu = float(program.objective.vector(y).square().mean().sqrt())
    slopes = []
    for layer in (
        Smoothed(program, mu),
        DavisYin(program, mu, iterations=20_000, tolerance=1e-10, gradient="implicit"),
        DavisYin(program, mu, iterations=20_000, tolerance=1e-10, gradient="unrolled"),
    ):
        own = y.clone().requires_grad_()
        slopes.append(slope(layer(own), own))
    for other in slopes[1:]:
        torch.testing.assert_close(other, slopes[0], rtol=1e-5, atol=1e-6 * float(slopes[0].abs().max()))


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


def test_instances_stop_by_themselves() -> None:
    """An answer does not depend on how long its neighbours take; nor on how many lanes there are."""
    program, y = problem_named("SP-5", seed=1).program, costs_of("SP-5", 40)
    y[3] *= 100
    layer = DavisYin(program, 0.1, iterations=5000, tolerance=1e-8, gradient="unrolled")
    together = y.clone().requires_grad_()
    solution = layer.solve(together)
    gradient = slope(solution.decision, together)
    for i in (0, 3, 17, 39):
        alone = y[i : i + 1].clone().requires_grad_()
        own = layer.solve(alone)
        torch.testing.assert_close(own.decision[0], solution.decision[i], rtol=0, atol=1e-14)
        weight = torch.randn(solution.decision.shape, generator=torch.Generator().manual_seed(0), dtype=y.dtype)[i]
        (back,) = torch.autograd.grad((own.decision[0] * weight).sum(), alone)
        torch.testing.assert_close(back[0], gradient[i], rtol=1e-10, atol=1e-12)


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
def test_a_start_saves_iterations_and_keeps_the_answer(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflearn.layers.splitting import Run

    steps: list[int] = []
    original = Run.status

    def spy(run: Any) -> np.ndarray:
        steps.append(int(run.answer.iterations.sum()))
        return original(run)

    monkeypatch.setattr(Run, "status", spy)
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
    assert steps[2] < 0.8 * steps[3]


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


def _in_child(queue: Any, layer: DavisYin, y: Tensor) -> None:
    own = y.clone().requires_grad_()
    w = layer(own)
    w.sum().backward()
    assert own.grad is not None
    queue.put((w.detach().numpy(), own.grad.numpy()))


def test_works_after_a_fork(two_threads: None) -> None:
    layer, y = DavisYin(problem_named("SP-5").program, gradient="unrolled"), costs_of("SP-5", 100)
    own = y.clone().requires_grad_()
    w = layer(own)
    w.sum().backward()
    torch.set_num_threads(1)  # torch's own threads do not survive a fork; ours are made anew
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, layer, y))
    child.start()
    decision, gradient = queue.get(timeout=120)
    child.join(60)
    assert child.exitcode == 0
    assert own.grad is not None
    np.testing.assert_array_equal(decision, w.detach().numpy())
    np.testing.assert_array_equal(gradient, own.grad.numpy())


def test_half_precision_computes_in_float32() -> None:
    program, y = problem_named("SP-5").program, costs_of("SP-5", 3)
    w = DavisYin(program)(y.bfloat16())
    assert w.dtype == torch.bfloat16
    torch.testing.assert_close(w, DavisYin(program)(y.bfloat16().float()).bfloat16())


def test_a_case_is_not_forgotten() -> None:
    """The random programs of these tests hold what they are said to hold."""
    cases: list[RandomCase] = [random_case(seed) for seed in range(60)]
    assert any(k.instance is not None for k in cases)
    assert any(len(k.program.equality_form().dropped) for k in cases)
    assert any((k.program.lower == k.program.upper).any() for k in cases)
    assert any((np.isinf(k.program.lower) & np.isinf(k.program.upper)).any() for k in cases)
    assert any(not k.program.A.shape[0] + k.program.G.shape[0] for k in cases)


def test_float32_calls_no_broken_row_rounding() -> None:
    """3.375 w₀ + w₁/8 = 0 with 0 ≤ w ≤ 3 has one solution, w = 0; w₁ = 1e-4 was called optimal."""
    program = Program(A=[[3.375, 0.125]], b=[0.0], upper=3.0)
    layer = DavisYin(program, 8.0, iterations=3000, tolerance=1e-9)
    solution = layer.solve(torch.tensor([[-0.5017, -0.3121], [0.8712, -1.3915]]))
    optimal = solution.status == int(Status.OPTIMAL)
    assert (solution.decision[optimal].abs() <= 3e-5).all()


# -- what OPTIMAL means ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DavisYin, InTorch])
def test_a_block_in_small_units_is_not_forgotten(kind: type[DavisYin]) -> None:
    """w₁ ≤ 1e7, w₂ ≤ 1e-8, both pressed upwards: (5e6, 0) was called optimal."""
    program = Program(G=[[1.0, 0], [0, 1]], h=[1e7, 1e-8])
    solution = kind(program, 0.0, iterations=2000, tolerance=1e-9).solve(torch.tensor([[-1e-7, -1e8]]).double())
    if int(solution.status) == Status.OPTIMAL:
        np.testing.assert_allclose(solution.decision, [[1e7, 1e-8]], rtol=1e-6)
    else:
        assert solution.counts() == {"NOT_FOUND": 1}


@pytest.mark.parametrize("kind", [DavisYin, InTorch])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loose", [1e9, 1e15, 1e30, None])
@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_optimal_in_mixed_units_is_right(
    kind: type[DavisYin], dtype: torch.dtype, loose: float | None, unit: float
) -> None:
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
    solution = kind(program, 0.1, iterations=2000, tolerance=1e-7).solve(costs)
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
    from dflearn.certify import Certifier

    assert bool((solved.residual <= (1e-5 if dtype == torch.float32 else 1e-6)).all())  # type: ignore[operator]
    w = solved.decision.double().numpy()
    assert float(Certifier(program.relax()).violation(w, program.own_sides).max()) <= 1e-5
