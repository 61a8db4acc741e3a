"""`check_solver`: what every exact solver must do, whatever it solves."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import OptionError, ProgramError, ShapeError, SolverError
from dflearn.program import Instance, Program, Quadratic
from dflearn.solvers.base import Solution, Solver, Status


def check_solver(
    make_solver: Callable[[Program], Solver],
    program: Program,
    costs: Tensor | None = None,
    *,
    any_program: bool = True,
    repeatable: bool = True,
    tolerance: float = 1e-6,
) -> None:
    """Raise an `AssertionError` that says which part of the contract the solver breaks.

    Args:
        make_solver: a solver for a program; it refuses with a `ProgramError` what the solver is not made for.
        program: one that it is made for.
        costs: y `(count, p)` with count ≥ 2, for which the program has an optimum; by default normal random numbers.
        any_program: `make_solver` looks at the program it gets, so that small programs with known answers, infeasible and
            unbounded ones included, can be tried too.
        repeatable: the same instance has the same answer, wherever it stands in a batch and whenever it is solved.
        tolerance: relative and absolute, between numbers that must agree.

    Examples:
        >>> dfl.testing.check_solver(dfl.HiGHS, dfl.Program(n=2, lower=-1, upper=1), any_program=False)
    """
    if costs is None:
        costs = torch.randn(4, program.p, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert costs.ndim == 2, f"check_solver needs costs (count, p); got {tuple(costs.shape)}"
    assert len(costs) >= 2, "check_solver needs at least two instances"
    solver, y = make_solver(program), costs.double()
    assert isinstance(solver.identity, str), "identity must be a string"
    assert solver.identity == make_solver(program).identity, "two solvers made alike differ in identity"
    answer = solver.solve(y)
    _check_answer(solver, program, y, answer, tolerance)
    _check_optimum(program, y, answer, tolerance)
    _check_tensors(solver, y)
    _check_refusals(solver, y)
    _check_sizes(solver, program, y, tolerance)
    _check_instances(solver, program, y, tolerance)
    _check_sides(solver, program, y, answer, tolerance)
    _check_curvature(solver, program, y, tolerance)
    _check_starts(solver, y, answer, tolerance)
    if repeatable:
        _check_repeats(solver, y, answer)
    if any_program:
        for case in KNOWN:
            _check_known(make_solver, case, tolerance)
        _check_mixed_batch(make_solver)


def _check_answer(solver: Solver, program: Program, y: Tensor, answer: Solution, tolerance: float) -> None:
    """The decision is feasible, and the reported objective is its objective."""
    check_fields(answer, y.shape[:-1], program.n)
    answer.check()
    assert answer.start is None, "a start came back though none was passed"
    violation = program.violation(answer.decision, program.realize(y))
    assert not bool((violation > tolerance).any()), f"a decision breaks a constraint by {float(violation.max()):.2g}"
    integers = answer.decision[..., torch.tensor(program.integer)]
    assert torch.equal(integers, integers.round()), "an integer variable is not an integer"
    close(answer.objective, program.objective(y, answer.decision), tolerance, "objective is not that of the decision")
    excess = answer.bound - answer.objective
    assert not bool((excess > tolerance * (1 + answer.objective.abs())).any()), "a lower bound lies above the objective"


def _check_optimum(program: Program, y: Tensor, answer: Solution, tolerance: float) -> None:
    """What is called optimal is as good as what `reference` finds."""
    best = reference(program).solve(y).check((Status.OPTIMAL,)).objective
    optimal = answer.status == int(Status.OPTIMAL)
    close(answer.objective[optimal], best[optimal], tolerance, "a decision that is called optimal is not")
    worst = (best - answer.objective - tolerance * (1 + best.abs())).amax()
    assert worst <= 0, "a decision is better than the optimum: it cannot be feasible"


def reference(program: Program) -> Solver:
    """HiGHS, or another general solver where it has none for the program."""
    from dflearn.solvers.highs import HiGHS
    from dflearn.solvers.task import best_solver

    return best_solver(program) if program.Q is not None and program.is_integer else HiGHS(program)


def _check_tensors(solver: Solver, y: Tensor) -> None:
    """Dtype and device of the costs come back; the decision hangs on no graph."""
    for dtype in (torch.float32, torch.float64):
        decision = solver.solve(y.to(dtype).clone().requires_grad_()).decision
        assert decision.dtype == dtype, f"costs in {dtype} give a decision in {decision.dtype}"
        assert decision.device == y.device, f"costs on {y.device} give a decision on {decision.device}"
        assert not decision.requires_grad, "a solver's decision must carry no gradient"
    strided = solver.solve(y.T.contiguous().T)
    close(strided.objective, solver.solve(y).objective, 1e-9, "costs in another memory layout give another objective")


def _check_refusals(solver: Solver, y: Tensor) -> None:
    """Costs that are no costs are errors that say so."""
    broken = y.clone()
    broken[1, 0] = torch.nan
    check_refused(ShapeError, "NaN among the costs", "instance 1", solver.solve, broken)
    wrong: dict[str, Any] = {
        "an infinite cost": torch.where(broken.isnan(), torch.inf, y),
        "one cost too many": torch.cat([y, y[:, :1]], 1),
        "integer costs": y.long(),
        "a numpy array": y.numpy(),
    }
    for what, value in wrong.items():
        assert refusal(ShapeError, solver.solve, value), f"{what} is no error"


def _check_sizes(solver: Solver, program: Program, y: Tensor, tolerance: float) -> None:
    """No instance, one instance, an instance without batch, and a grid of instances."""
    check_fields(solver.solve(y[:0]), torch.Size([0]), program.n)
    for part in (y[:1], y[0], y[:2].reshape(2, 1, -1)):
        _check_answer(solver, program, part, solver.solve(part), tolerance)


def _check_instances(solver: Solver, program: Program, y: Tensor, tolerance: float) -> None:
    """An instance's own d counts; shapes are checked."""
    d = torch.tensor(program.d) + torch.linspace(0.5, 1, program.n, dtype=torch.float64)
    moved = solver.solve(y, Instance(d=d.expand(len(y), -1)))
    value = program.objective(y, moved.decision) + ((d - torch.tensor(program.d)) * moved.decision).sum(-1)
    close(moved.objective, value, tolerance, "an instance's own d is not in the objective")
    wrong = Instance(d=d.expand(len(y) + 1, -1))
    assert refusal(ShapeError, solver.solve, y, wrong), "an instance of another batch shape is no error"


def _check_sides(solver: Solver, program: Program, y: Tensor, answer: Solution, tolerance: float) -> None:
    """Right-hand sides and bounds of an instance's own count: as if they were the program's; or they are refused."""
    for names, values in _other_sides(program, y, answer):
        sides = {name: torch.tensor(getattr(program, name)).repeat(len(y), 1) for name in names}
        for name in names:
            sides[name][1:] = values[name][1:]  # the first instance keeps the program's
        try:
            found = solver.solve(y, Instance(**sides))
        except (ProgramError, ShapeError):  # refused, which is honest
            continue
        what = " and ".join(names)
        for i in range(len(y)):
            status, wanted = Status(int(found.status[i])), _optimum(program, y[i], {n: sides[n][i] for n in names})
            if status is Status.OPTIMAL:
                assert wanted is not None, f"instance {i} has {what} of its own and no decision, but is called OPTIMAL"
                close(found.objective[i], wanted, tolerance, f"instance {i}: the optimum for its own {what}")
            elif status in (Status.INFEASIBLE, Status.UNBOUNDED):
                assert wanted is None, f"instance {i} has an optimum for its own {what}, but is called {status.name}"


def _check_curvature(solver: Solver, program: Program, y: Tensor, tolerance: float) -> None:
    """An instance's own q counts, as if it were added to the program's Q; or it is refused."""
    q = torch.rand(len(y), program.n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    q[0] = 0.0
    try:
        found = solver.solve(y, Instance(q=q))
    except (ProgramError, ShapeError, OptionError):
        return  # refused, which is honest
    value = program.objective(y, found.decision, Instance(q=q))
    close(found.objective, value, tolerance, "an instance's own q is not in the objective")
    for i in range(len(y)):
        own = Quadratic(diagonal=q[i].numpy()) if program.Q is None else program.Q.plus(q[i].numpy())
        wanted = reference(replace(program, Q=own)).solve(y[i]).check((Status.OPTIMAL,)).objective
        close(found.objective[i], wanted, tolerance, f"instance {i}: the optimum for its own q")


def _other_sides(program: Program, y: Tensor, answer: Solution) -> Iterator[tuple[tuple[str, ...], dict[str, Tensor]]]:
    """Sides that leave other decisions than the program's: those of the opposite costs, then a step further on."""
    opposite = reference(program).solve(-y)
    has = (opposite.status == int(Status.OPTIMAL))[:, None]
    other = torch.where(has, opposite.decision, answer.decision.flip(0))
    lower, upper = torch.tensor(program.lower), torch.tensor(program.upper)
    step = torch.where(other + 1 <= upper, other + 1, torch.where(other - 1 >= lower, other - 1, other))
    yield ("lower", "upper"), {"lower": other, "upper": other}
    yield ("upper",), {"upper": torch.maximum(other, lower)}
    yield ("lower",), {"lower": torch.minimum(other, upper)}
    for name, rows in (("h", program.G), ("b", program.A)):
        if rows.shape[0]:
            yield (name,), {name: torch.tensor((rows @ (other if name == "h" else step).numpy().T).T)}


def _optimum(program: Program, y: Tensor, sides: dict[str, Tensor]) -> Tensor | None:
    """The least objective where these sides are the program's own; `None` where no decision is left."""
    changes: dict[str, Any] = {name: value.numpy() for name, value in sides.items()}
    answer = reference(replace(program, **changes)).solve(y)
    if int(answer.status) in (Status.INFEASIBLE, Status.UNBOUNDED):
        return None
    return answer.check((Status.OPTIMAL,)).objective


def _check_starts(solver: Solver, y: Tensor, answer: Solution, tolerance: float) -> None:
    """A start comes back if one was passed; it changes no objective, whatever it was the start of."""
    start = solver.no_start(len(y))
    if start is None:
        assert refusal(ShapeError, solver.solve, y, None, torch.zeros(len(y), 1)), "a start is taken, none is declared"
        return
    moved = 1.05 * y.flip(0)
    cold = solver.solve(moved)
    for costs, wanted in ((y, answer), (y, answer), (moved, cold), (moved, cold)):
        warm = solver.solve(costs, None, start)
        close(warm.objective, wanted.objective, tolerance, "a start changes the objective")
        assert warm.start is not None, "a start was passed and none came back"
        assert warm.start.shape == start.shape, f"the start that came back has shape {tuple(warm.start.shape)}"
        assert warm.start.dtype == solver.start_dtype, f"the start that came back is {warm.start.dtype}"
        start = warm.start
    assert refusal(ShapeError, solver.solve, y, None, start[:, :-1]), "a start of the wrong width is no error"


def _check_repeats(solver: Solver, y: Tensor, answer: Solution) -> None:
    """The same input has the same answer: again, in another order, alone, and from a copy of the solver."""
    for what, other in (("solving again", solver), *copies(solver)):
        assert torch.equal(other.solve(y).decision, answer.decision), f"{what} changes the decision"
        assert other.identity == solver.identity, f"{what} changes the identity"
    assert torch.equal(solver.solve(y.flip(0)).decision.flip(0), answer.decision), "the batch's order changes decisions"
    for i in range(len(y)):
        assert torch.equal(solver.solve(y[i]).decision, answer.decision[i]), f"instance {i} alone has another decision"


class Known(NamedTuple):
    """A program, costs y, how its solve ends and, where there is one, the optimum."""

    name: str
    program: Program
    costs: list[float]
    status: Status = Status.OPTIMAL
    optimum: float = np.nan


_FREE: dict[str, Any] = {"lower": -np.inf, "upper": np.inf}
_ITEMS: dict[str, Any] = {"G": [[2, 1]], "h": [2], "upper": 1}
_RAY: dict[str, Any] = {"G": [[1, -1]], "h": [1]}
_NONE: dict[str, Any] = {"A": [[1, 1]], "b": [3], "upper": 1}
_HALF: dict[str, Any] = {"A": [[2, 2]], "b": [1], "upper": 1}
KNOWN = [
    Known("a box", Program(n=3, upper=1), [1, -2, 3], optimum=-2),
    Known("a simplex", Program(A=[[1, 1, 1]], b=[1]), [2, 3, 4], optimum=2),
    Known("a knapsack, relaxed", Program(**_ITEMS), [-3, -2], optimum=-3.5),
    Known("a knapsack", Program(**_ITEMS, integer=True), [-3, -2], optimum=-3),
    Known("bounds other than 0 and 1", Program(A=[[1, 1]], b=[1], lower=[-2, 0], upper=[3, 2]), [1, 2], optimum=1),
    Known("zero costs", Program(A=[[1, 1]], b=[1], upper=1), [0, 0], optimum=0),
    Known("a degenerate vertex", Program(G=np.tri(3), h=np.ones(3), upper=1), [-1, -2, -3], optimum=-3),
    Known("free variables", Program(A=[[1, 1]], b=[1], **_FREE), [2, 2], optimum=2),
    Known("S and d", Program(A=[[1, 1]], b=[1], upper=1, S=[[2.0], [0.0]], d=[0, 3]), [1], optimum=2),
    Known("no decision", Program(**_NONE), [1, 1], Status.INFEASIBLE),
    Known("no integer decision", Program(**_HALF, integer=True), [1, 1], Status.INFEASIBLE),
    Known("no integer decision, and a ray", Program(A=[[2, -2]], b=[1], integer=True), [-1, -1], Status.INFEASIBLE),
    Known("no least objective", Program(**_RAY), [-1, -1], Status.UNBOUNDED),
    Known("no least objective in integers", Program(**_RAY, integer=True), [-1, -1], Status.UNBOUNDED),
    Known("no least objective without rows", Program(n=2), [1, -1], Status.UNBOUNDED),
    Known("a parabola in a box", Program(Q=2 * np.eye(2), upper=1), [-1, -4], optimum=-3.25),
    Known("a parabola on a line", Program(A=[[1, 1]], b=[2], Q=[[2, 1], [1, 2]], **_FREE), [1, 0], optimum=3.75),
    Known("a parabola at integers", Program(Q=[[2.0]], upper=9, integer=True), [-2.9], optimum=-1.9),
    Known("a curve that ends nowhere", Program(Q=np.diag([1.0, 0.0])), [1, -1], Status.UNBOUNDED),
    Known("a curve over nothing", Program(**_NONE, Q=np.eye(2)), [1, 1], Status.INFEASIBLE),
    Known("a predicted right-hand side", Program(A=[[1, 1]], b=[0], B=[[1, 0]]), [2, 3], optimum=4),
    Known("a predicted limit", Program(G=[[1, 1]], h=[1], H=[[0, -1]], upper=9), [-1, -3], optimum=-12),
]


def _check_known(make_solver: Callable[[Program], Solver], case: Known, tolerance: float) -> None:
    y = torch.tensor([case.costs, case.costs], dtype=torch.float64)
    try:
        solver = make_solver(case.program)
        answer = solver.solve(y)
    except ProgramError:
        return  # not made for it, and says so
    found = [Status(code).name for code in answer.status.tolist()]
    assert found == [case.status.name] * 2, f"{case.name}: statuses {found}, wanted {case.status.name}"
    if case.status.has_decision:
        _check_answer(solver, case.program, y, answer, tolerance)
        wanted = torch.full((2,), float(case.optimum), dtype=torch.float64)
        close(answer.objective, wanted, tolerance, f"{case.name}: the optimum")
    else:
        assert bool(answer.decision.isnan().all()), f"{case.name}: a decision where there is none"
        check_refused(SolverError, f"{case.name}: check() of it", case.status.name, answer.check)


def _check_mixed_batch(make_solver: Callable[[Program], Solver]) -> None:
    """In one batch, an instance that is infeasible does not touch its neighbours."""
    b = torch.tensor([[1.0], [5.0], [2.0]])
    try:
        solver = make_solver(Program(A=[[1, 1]], b=[1], upper=1))
        answer = solver.solve(torch.tensor([[1.0, 2.0]]).expand(3, -1), Instance(b=b))
    except ProgramError:
        return
    wanted = [Status.OPTIMAL, Status.INFEASIBLE, Status.OPTIMAL]
    assert answer.status.tolist() == wanted, f"a batch with an infeasible instance: statuses {answer.counts()}"
    assert answer.decision[[0, 2]].tolist() == [[1.0, 0.0], [1.0, 1.0]], "an infeasible instance changes its neighbours"
    check_refused(SolverError, "check() of an infeasible instance", "instance 1", answer.check)


def refusal(kind: type[Exception], function: Callable[..., Any], *arguments: Any) -> str | None:
    """The message of the error that `function` raises, `None` without one; another kind of error passes through."""
    try:
        function(*arguments)
    except kind as error:
        return str(error)
    return None


def check_refused(kind: type[Exception], what: str, named: str, function: Callable[..., Any], *arguments: Any) -> None:
    """`function` raises this kind of error, whose message names what is wrong."""
    message = refusal(kind, function, *arguments)
    assert message is not None, f"{what} is taken, and no error"
    assert named in message, f"{what} is refused without naming {named}: {message}"


def slope_of(value: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The gradient of Σ weight · value in y; zero where the value does not depend on y."""
    if not value.requires_grad:
        return torch.zeros_like(y)
    (slope,) = torch.autograd.grad(value, y, weight, allow_unused=True)
    return torch.zeros_like(y) if slope is None else slope


def close(actual: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    """Both are equal in dtype and shape, and up to `tolerance`, relative and absolute, in their numbers."""
    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance, "msg": lambda text: f"{what}: {text}"}
    torch.testing.assert_close(actual.detach(), wanted.detach(), **options)


def copies(thing: Any) -> Iterator[tuple[str, Any]]:
    """What pickling makes of it, then what copying does, each in the state that it has then."""
    yield "pickling", pickle.loads(pickle.dumps(thing))
    yield "a deep copy", copy.deepcopy(thing)


def check_fields(solution: Solution, batch: torch.Size, n: int) -> None:
    shape, wanted = tuple(solution.decision.shape), (*batch, n)
    assert shape == wanted, f"decisions have shape {shape}, wanted {wanted}"
    for name, dtype in (("status", torch.int8), ("objective", torch.float64), ("bound", torch.float64)):
        value = getattr(solution, name)
        assert (value.dtype, value.shape) == (dtype, batch), (
            f"{name} is {value.dtype} {value.shape}, wanted {dtype} {batch}"
        )
