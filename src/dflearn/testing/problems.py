"""`check_problem`: what every problem must do, whatever it is about."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.problems.base import Problem
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.recourse import recourse_of
from dflearn.testing.solvers import copies, reference

TOLERANCE = 1e-6  # relative, between optima and for feasibility


def check_problem(problem: Problem, *, count: int = 6, draws: int = 4000) -> None:
    """Raise an `AssertionError` that says which part of the contract the problem breaks.

    Args:
        problem: a small one: `count` instances are solved several times, the integer program by HiGHS too.
        count: how many instances to look at.
        draws: noise draws for each of three instances, with whose mean E[y | x] is compared, where the problem knows it.

    Examples:
        >>> dfl.testing.check_problem(problem, count=3, draws=500)
    """
    _check_program(problem)
    _check_data(problem, count)
    costs = problem.generate(count, dtype=torch.float64).costs
    assert costs is not None
    optimum = _check_solver(problem.solver, problem.program, costs)
    bound = _check_solver(problem.relaxed_solver, problem.relaxation, costs)
    assert bool((bound <= optimum + TOLERANCE * (1 + optimum.abs())).all()), "the relaxation lies above the optimum"
    _check_recourse(problem, costs, optimum)
    if problem.has_floor:
        _check_mean(problem, draws)
    _check_copies(problem, count)


def _check_program(problem: Problem) -> None:
    program, relaxation = problem.program, problem.relaxation
    assert problem.name, "the problem has no name"
    assert program.name == problem.name, f"the program is named {program.name!r}, the problem {problem.name!r}"
    assert problem.program is program, "the program is built anew each time it is asked for; cache it"
    assert not relaxation.is_integer, "the relaxation has integer variables"
    assert relaxation.fingerprint == program.relax().fingerprint, "the relaxation is not that of the program"


def _check_data(problem: Problem, count: int) -> None:
    data = problem.generate(count)
    _check_shapes(problem, data, count)
    assert _same(data, problem.generate(count)), "two calls of generate with the same arguments differ"
    double = problem.generate(count, dtype=torch.float64)
    assert double.features.dtype == torch.float64, f"float64 was asked for, {double.features.dtype} came"
    assert _same(double.to(torch.float32), data), "float32 data are not the float64 data, rounded"
    for few in (0, 1):
        _check_shapes(problem, problem.generate(few), few)
    before = problem.program.fingerprint
    fresh = [problem.generate(count, seed=seed) for seed in (problem.seed, problem.seed + 1)]
    assert _same(fresh[0], problem.generate(count, seed=problem.seed)), "fresh data are not fixed by their seed"
    for one, other in combinations((data, *fresh), 2):
        assert not bool((one.features == other.features).all()), "another seed gives the same features"
    assert problem.program.fingerprint == before, "drawing data changed the program"


def _check_shapes(problem: Problem, data: DecisionDataset, count: int) -> None:
    assert data.costs is not None, "generated data hold no costs"
    assert len(data) == count, f"{count} instances were asked for, {len(data)} came"
    wanted = (count, problem.program.p)
    assert data.costs.shape == wanted, f"costs have shape {tuple(data.costs.shape)}, wanted {wanted}"
    assert data.features.dtype == data.costs.dtype == torch.float32, "float32 is the default dtype"


def _check_solver(make: Callable[[], Solver], program: Program, costs: Tensor) -> Tensor:
    """The optima `(count,)`, after a comparison with HiGHS."""
    solver = make()
    where = f"{make.__name__}() of {program.name}"
    solution = solver.solve(costs).check()
    w = solution.decision
    assert float(program.violation(w, program.realize(costs)).max()) <= TOLERANCE, f"{where} gives infeasible decisions"
    whole = w[:, torch.as_tensor(program.integer.copy())]
    assert bool(((whole - whole.round()).abs() <= TOLERANCE).all()), f"{where} gives fractions where integers are due"
    value = program.objective(costs, w)
    best = reference(program).solve(costs).check().objective
    gap = ((value - best).abs() / (1 + best.abs())).max()
    assert float(gap) <= TOLERANCE, f"{where} is off the optimum by {float(gap):.2g} (relative)"
    return best


def _check_recourse(problem: Problem, costs: Tensor, optimum: Tensor) -> None:
    """Where something is decided once the truth is known: settled decisions hold, and none costs less than the optimum."""
    settle, program = recourse_of(problem.program), problem.program
    if settle is None:
        return
    later = torch.zeros(program.n, dtype=torch.bool) if program.recourse is None else torch.tensor(program.recourse)
    for decided, exact in ((costs, True), (costs.flip(0), False)):
        w = problem.solver().solve(decided).check().decision
        settled, cost = settle.settle(costs, w)
        found, excess = cost.isfinite(), (cost - optimum) / (1 + optimum.abs())
        assert bool((excess >= -TOLERANCE).all()), "a decision costs less after recourse than the best one"
        assert not exact or bool((excess <= TOLERANCE).all()), "decisions for the truth cost more after recourse"
        size = 1 + w.abs().amax(-1, keepdim=True)
        moved = ((settled - w).abs() / size)[found][:, ~later]
        assert not moved.numel() or float(moved.max()) <= TOLERANCE, "recourse changes what was decided before"
        broken = program.violation(settled, program.realize(costs))[found]
        assert bool((broken <= TOLERANCE).all()), (
            f"a settled decision breaks the program at the truth by {broken.max():.2g}"
        )


def _check_mean(problem: Problem, draws: int) -> None:
    """Six standard errors, and some more for rare events that the draws may have missed."""
    features = problem.generate(3, dtype=torch.float64).features
    expected = problem.expected_costs(features)
    assert expected.shape == (3, problem.program.p), f"expected costs have shape {tuple(expected.shape)}"
    alone = problem.expected_costs(features[0])
    assert alone.shape == expected[0].shape, f"one instance gives shape {tuple(alone.shape)}"
    assert torch.allclose(alone, expected[0], rtol=1e-9), "one instance alone has other expected costs than in a batch"
    assert problem.expected_costs(features.float()).dtype == torch.float32, "expected costs keep the features' dtype"
    sample = problem.sample_costs(features.expand(draws, *features.shape), seed=0)
    mean, deviation = sample.mean(0), sample.std(0)
    allowed = 6 * deviation / draws**0.5 + 20 / draws * (1 + mean.abs())
    worst = float(((mean - expected).abs() / allowed).max())
    assert worst <= 1, f"expected costs differ from the mean of {draws} draws by {6 * worst:.1f} standard errors"


def _check_copies(problem: Problem, count: int) -> None:
    for how, other in copies(problem):
        assert (other, hash(other)) == (problem, hash(problem)), f"{how} changes the configuration"
        assert other.program.fingerprint == problem.program.fingerprint, f"{how} changes the program"
        assert _same(other.generate(count), problem.generate(count)), f"{how} changes the data"


def _same(first: DecisionDataset, second: DecisionDataset) -> bool:
    pairs = ((first.features, second.features), (first.batch().require("costs"), second.batch().require("costs")))
    return all(torch.equal(one, other) for one, other in pairs)
