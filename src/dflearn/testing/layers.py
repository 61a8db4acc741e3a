"""`check_layer`: what every layer must do, whatever it computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import DflearnError, ShapeError
from dflearn.layers.base import Layer
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution, Status
from dflearn.testing.solvers import check_fields, check_refused, close, copies, refusal, slope_of


def check_layer(
    layer: Layer,
    program: Program,
    *,
    y: Tensor | None = None,
    instance: Instance | None = None,
    exact_gradient: bool = False,
    random: bool = False,
    detects_infeasible: bool = True,
    tolerance: float = 1e-6,
    step: float = 1e-3,
) -> None:
    """Raise an `AssertionError` that says which part of the contract the layer breaks.

    Args:
        layer: the layer under test.
        program: the program behind it; decisions must be feasible for its relaxation.
        y: costs `(count, p)` with count ≥ 3; standard normal by default.
        instance: what differs between those `count` instances.
        exact_gradient: the layer claims the derivative of its decision: compare it with differences in float64; where it
            `moves_rows`, those in right-hand sides, d and, where it `takes_q`, q as well, and in the bounds that `instance` sets.
        random: the layer draws random numbers (from a state that `state_dict` holds), so that an instance's decision
            depends on the batch it sits in.
        detects_infeasible: the layer claims to notice an instance without any feasible decision.
        tolerance: relative and absolute, between decisions that must agree, and for feasibility. Gradients may differ
            by a thousand times as much.
        step: of the differences, in units of the costs; derivatives must agree to 20 · tolerance / step.

    Examples:
        >>> dfl.testing.check_layer(dfl.Smoothed(program, mu=1.0), program, exact_gradient=True)
    """
    if y is None:
        y = torch.randn(4, program.p, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert y.ndim == 2, f"check_layer needs costs (count, p); got {tuple(y.shape)}"
    assert len(y) >= 3, f"check_layer needs at least three instances; got {len(y)}"
    own = None if instance is None else instance.to(torch.float64)
    case = _Case(layer, program, y.detach().double(), own, random, tolerance, copy.deepcopy(layer.state_dict()))
    for check in (_check_solution, _check_repetition, _check_types, _check_batches, _check_refusals, _check_copies):
        check(case)
    _check_start(case)
    _check_curvature(case)
    if detects_infeasible and program.A.shape[0] + program.G.shape[0]:
        _check_infeasible(case)
    if not random:
        _check_own_gradient(case)
        _check_shared_costs(case)
        _check_threads(case)
    if exact_gradient:
        _check_gradient(case, step)
        if layer.moves_rows:
            _check_sides(case, step)


@dataclass(frozen=True)
class _Case:
    layer: Layer
    program: Program
    y: Tensor
    instance: Instance | None
    random: bool
    tolerance: float
    state: dict[str, Any]

    def solve(self, y: Tensor, instance: Instance | None, start: Tensor | None = None) -> Solution:
        """The layer's answer, with its explicit state (a generator, a pool) set back first."""
        self.layer.load_state_dict(copy.deepcopy(self.state))
        return self.layer.solve(y, instance, start)

    def part(self, index: Any) -> Instance | None:
        return None if self.instance is None else self.instance[index]

    @cached_property
    def solution(self) -> Solution:
        return self.solve(self.y.clone(), self.instance).check()


def _check_solution(case: _Case) -> None:
    solution, w, batch = case.solution, case.solution.decision, case.y.shape[:-1]
    check_fields(solution, batch, case.program.n)
    violation = case.program.relax().violation(w, case.program.realize(case.y, case.instance))
    worst = int(violation.argmax())
    assert float(violation[worst]) <= case.tolerance, (
        f"the decision of instance {worst} violates the relaxed program by {float(violation[worst]):.2g}"
    )
    if solution.residual is not None:
        assert solution.residual.shape == batch, f"residual has shape {tuple(solution.residual.shape)}"
        assert bool((solution.residual >= 0).all()), "a residual is negative or NaN"
    assert solution.start is None, "a start comes back although none was passed"
    allowed = case.tolerance * (1 + solution.objective.abs())
    assert bool((solution.bound <= solution.objective + allowed).all()), "a bound lies above its objective"
    regularization = case.layer.regularization(w)
    assert regularization.shape == batch, f"regularization has shape {tuple(regularization.shape)}, not the batch's"
    if not case.random:  # what a random layer minimizes is an average over its noise
        value = case.program.objective(case.y, w, case.instance) + regularization
        close(solution.objective, value, 10 * case.tolerance, "objective against obj(y, w) + Ω(w)")


def _check_repetition(case: _Case) -> None:
    """A pure function: nothing that happened before changes an answer, and arguments stay as they are."""
    y, w, other = case.y, case.solution.decision, -case.y
    case.solve(other, case.instance)
    assert torch.equal(other, -y), "the layer changes its costs in place"
    case.solve(y[:1], case.part(slice(0, 1)))
    again = case.solve(y, case.instance).decision
    assert torch.equal(again, w), "the same input gives another decision after other inputs came between"
    assert not again.requires_grad, "the decision requires a gradient although the costs do not"
    with torch.no_grad():
        quiet = case.solve(y.clone().requires_grad_(), case.instance).decision
    assert torch.equal(quiet, w), "the decision is another one under torch.no_grad()"


def _check_types(case: _Case) -> None:
    for dtype in (torch.float32, torch.float64):
        costs = case.y.to(dtype, copy=True).requires_grad_()
        decision = case.solve(costs, None if case.instance is None else case.instance.to(dtype)).check().decision
        assert decision.dtype == dtype, f"costs in {dtype} give decisions in {decision.dtype}"
        assert decision.device == costs.device, f"costs on {costs.device} give decisions on {decision.device}"
        slope = slope_of(decision, costs, torch.ones_like(decision))
        assert slope.dtype == dtype, f"costs in {dtype} give gradients in {slope.dtype}"
        assert bool(torch.isfinite(slope).all()), f"a gradient in {dtype} is not finite"
    strided = case.solve(case.y.T.contiguous().T, case.instance).decision
    close(strided, case.solution.decision, case.tolerance, "costs with other strides give another decision")


def _check_batches(case: _Case) -> None:
    """No instance, one, one without batch, a grid: the shapes follow, and every decision is the instance's own."""
    for index in (slice(0, 0), slice(0, 1), 0, torch.tensor([[0, 1], [2, 0], [1, 1]])):
        costs = case.y[index].clone().requires_grad_()
        solution = case.solve(costs, case.part(index)).check()
        check_fields(solution, costs.shape[:-1], case.program.n)
        assert slope_of(solution.decision, costs, torch.ones_like(solution.decision)).shape == costs.shape
        if not case.random:
            wanted = case.solution.decision[index]
            close(solution.decision, wanted, case.tolerance, "an instance has another decision in another batch")


def _check_refusals(case: _Case) -> None:
    """Costs, instances and starts that cannot be are refused, with the number of the instance where there is one."""
    y, p, n = case.y, case.program.p, case.program.n
    for value in (torch.nan, torch.inf):
        wrong = y.clone()
        wrong[1, 0] = value
        check_refused(ShapeError, f"a cost of {value}", "instance 1", case.layer, wrong, case.instance)
    wide = torch.cat([y, y[:, :1]], 1)
    for what, costs in ((f"costs (count, {p - 1})", y[:, 1:]), (f"costs (count, {p + 1})", wide)):
        assert refusal(ShapeError, case.layer, costs, case.instance) is not None, f"{what} are taken for (count, {p})"
    assert refusal(ShapeError, case.layer, y.long(), case.instance) is not None, "integer costs are taken"
    for shape in ((1, n), (1, len(y), n)):
        other = Instance(d=torch.zeros(shape, dtype=y.dtype))
        what = f"costs {tuple(y.shape)} are taken together with an instance's d {shape}"
        assert refusal(ShapeError, case.layer, y, other) is not None, what
    start = torch.zeros(len(y), case.layer.start_width + 1, dtype=case.layer.start_dtype)
    assert refusal(ShapeError, case.layer, y, case.instance, start) is not None, "a start of the wrong width is taken"


def _check_infeasible(case: _Case) -> None:
    """Instance 1 gets bounds that allow one point only, and that point violates the first row."""
    sides = case.program.sides(case.program.realize(case.y, case.instance), len(case.y))
    rows, side = (case.program.A, sides.b) if case.program.A.shape[0] else (case.program.G, sides.h)
    row, limits = torch.as_tensor(rows[[0]].toarray()[0]), np.broadcast_to(side, (len(case.y), rows.shape[0]))
    w, limit = case.solution.decision[1], float(limits[1, 0])
    point = w + row * ((limit - row @ w + 1 + abs(limit)) / (row @ row))
    bounds = {name: torch.tensor(getattr(sides, name)).expand(len(case.y), -1).clone() for name in ("lower", "upper")}
    for bound in bounds.values():
        bound[1] = point
    present = {} if case.instance is None else case.instance.present()
    impossible = Instance(**{**present, **bounds})
    found = [Status(code) for code in case.solve(case.y, impossible).status.tolist()]
    assert not found[1].has_decision, f"instance 1 has no feasible decision, but its status is {found[1].name}"
    others = found[:1] + found[2:]
    assert all(one.has_decision for one in others), f"instance 1 is infeasible, and that spoils others: {found}"
    check_refused(DflearnError, "an infeasible instance in forward", "instance 1", case.layer, case.y, impossible)


def _check_copies(case: _Case) -> None:
    case.layer.load_state_dict(copy.deepcopy(case.state))
    for how, other in copies(case.layer):
        again = other.solve(case.y, case.instance).decision
        assert torch.equal(again, case.solution.decision), f"{how} changes the decisions"


def _check_start(case: _Case) -> None:
    """From no start, from the last answer, and from the answer at other costs: the cold optimum each time."""
    start = case.layer.no_start(len(case.y))
    if start is None:
        return
    for shift in (0.0, 0.0, 0.1, 0.0):
        solution = case.solve(case.y + shift, case.instance, start).check()
        assert solution.start is not None, "a start was passed and none came back"
        assert solution.start.shape == start.shape, f"start {tuple(start.shape)} becomes {tuple(solution.start.shape)}"
        assert solution.start.dtype == case.layer.start_dtype, f"the start is {solution.start.dtype}, not start_dtype"
        if not shift:
            close(solution.objective, case.solution.objective, case.tolerance, "a start changes the objective")
        start = solution.start


def _check_curvature(case: _Case) -> None:
    """A q of the instances is in the objective, and moves no decision out of the program; or it is refused."""
    present = {} if case.instance is None else case.instance.present()
    q = torch.rand(len(case.y), case.program.n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    quadratic = Instance(**{**present, "q": q * (1 + case.y.abs().amax())})
    try:
        solution = case.solve(case.y, quadratic).check()
    except DflearnError:
        return
    w = solution.decision
    worst = float(case.program.relax().violation(w, case.program.realize(case.y, case.instance)).max())
    assert worst <= case.tolerance, f"with a q a decision violates the program by {worst:.2g}"
    if not case.random:
        value = case.program.objective(case.y, w, quadratic) + case.layer.regularization(w)
        close(solution.objective, value, 10 * case.tolerance, "objective against obj(y, w) + Ω(w) with a q")
        other = case.program.objective(case.y, case.solution.decision, quadratic)
        other = other + case.layer.regularization(case.solution.decision)
        optimal = solution.status == int(Status.OPTIMAL)
        worse = (value - other - 10 * case.tolerance * (1 + other.abs()))[optimal]
        assert not bool((worse > 0).any()), "with a q, the decision without it would be better: the layer ignores it"


def _check_own_gradient(case: _Case) -> None:
    """An instance's gradient is its own: it neither depends on, nor is divided by, the batch around it."""
    weight = _weights(case.solution.decision, 1)
    costs = case.y.clone().requires_grad_()
    together = slope_of(case.solve(costs, case.instance).decision, costs, weight)
    for i in range(len(case.y)):
        costs = case.y[i].clone().requires_grad_()
        alone = slope_of(case.solve(costs, case.part(i)).decision, costs, weight[i])
        close(together[i], alone, 1e3 * case.tolerance, f"instance {i} has another gradient when it is alone")


def _check_shared_costs(case: _Case) -> None:
    """One cost vector for three instances: the chain rule sums, it does not average."""
    slopes = []
    for count in (1, 3):
        costs = case.y[0].clone().requires_grad_()
        decision = case.solve(costs.expand(count, -1), case.part(torch.zeros(count, dtype=torch.long))).decision
        slopes.append(slope_of(decision, costs, _weights(decision[0], 1).expand(decision.shape)))
    close(slopes[1], 3 * slopes[0], 1e3 * case.tolerance, "the gradient of costs that three instances share")


def _check_threads(case: _Case) -> None:
    """Two threads that go forward and backward through different batches at once: each gets its own answers."""

    def work(index: slice) -> list[tuple[Tensor, Tensor]]:
        answers = []
        for _ in range(5):
            costs = case.y[index].clone().requires_grad_()
            decision = case.layer(costs, case.part(index))
            answers.append((decision.detach(), slope_of(decision, costs, torch.ones_like(decision))))
        return answers

    parts = (slice(0, 1), slice(1, None))
    expected = [work(part)[0] for part in parts]
    with ThreadPoolExecutor(2) as pool:
        for (w, slope), answers in zip(expected, pool.map(work, parts), strict=True):
            for decision, gradient in answers:
                close(decision, w, case.tolerance, "two threads at once: decisions")
                close(gradient, slope, 1e3 * case.tolerance, "two threads at once: gradients")


def _check_slope(
    case: _Case, name: str, value: Tensor, lines: Tensor, decide: Callable[[Tensor], Tensor], step: float, seeds: int
) -> Tensor:
    """Backward in `value` against differences along `lines` `(k, *value.shape)`, kinks apart; where there is no kink, `(k, count)`."""
    here = decide(value)
    ahead, behind = (  # differences of second order from both sides, (k, count, n): far apart at a kink
        torch.stack([(4 * decide(value + h / 2 * line) - decide(value + h * line) - 3 * here) / h for line in lines])
        for h in (step, -step)
    )
    wanted, apart = (ahead + behind) / 2, (ahead - behind).abs()
    allowed = 20 * case.tolerance / step * (1 + wanted.nan_to_num().abs().amax())
    smooth = (apart <= allowed).all(-1)  # false without a decision
    for seed in range(seeds):
        weight, leaf = _weights(here, seed), value.clone().requires_grad_()
        slope = slope_of(decide(leaf), leaf, weight)
        found, measured = (slope * torch.where(slope != 0, lines, 0.0)).sum(-1), (wanted * weight).sum(-1)
        error = torch.where(smooth, (found - measured).abs(), 0.0)
        k, i = divmod(int(error.argmax()), len(here))
        assert float(error[k, i]) <= float(allowed) * here.shape[-1] ** 0.5, (
            f"the gradient of instance {i} in its {name} is {found[k, i]:.6g} along line {k}, but differences give "
            f"{measured[k, i]:.6g}"
        )
    return smooth


def _check_gradient(case: _Case, step: float) -> None:
    """Backward in each cost; where differences from both sides disagree, the costs lie at a kink."""
    units = torch.eye(case.y.shape[-1], dtype=case.y.dtype).unsqueeze(1).expand(-1, *case.y.shape)
    smooth = _check_slope(
        case, "costs", case.y, units, lambda y: case.solve(y, case.instance).check().decision, step, 3
    )
    assert float(smooth.double().mean()) >= 0.5, "the costs lie at kinks of the layer: choose others, or a smaller step"


def _check_sides(case: _Case, step: float) -> None:
    """Backward in what is known of an instance against differences along one direction for each field, kinks apart."""
    program, count, layer = case.program, len(case.y), case.layer
    given = {} if case.instance is None else case.instance.present()
    own = {"b": program.b, "h": program.h, "d": program.d, **({"q": np.ones(program.n)} if layer.takes_q else {})}
    fields = {name: torch.tensor(part).expand(count, -1).clone() for name, part in own.items()} | given
    case.solve(case.y, Instance(**fields)).check()
    generator = torch.Generator().manual_seed(0)
    for name, value in fields.items():
        if not value.shape[-1]:
            continue
        width = program.n if name == "b" else value.shape[-1]
        direction = torch.randn(count, width, generator=generator, dtype=torch.float64)
        if name == "b":  # rows that depend on each other move together
            direction = torch.tensor((program.A @ direction.numpy().T).T)
        size = float(value[value.isfinite()].abs().max()) if bool(value.isfinite().any()) else 1.0
        direction = direction * (size or 1.0)
        if name in ("lower", "upper"):  # bounds do not cross
            sides = program.sides(Instance(**fields), count)
            room = torch.tensor(sides.upper - sides.lower)
            direction = torch.where(room > 2 * step * direction.abs(), direction, 0.0)
        elif name == "q":
            direction = torch.where(value > step * direction.abs(), direction, 0.0)

        def decide(value: Tensor, name: str = name) -> Tensor:
            return case.solve(case.y, Instance(**{**fields, name: value})).decision

        _check_slope(case, name, value, direction.unsqueeze(0), decide, step, 2)


def _weights(w: Tensor, seed: int) -> Tensor:
    return torch.randn(w.shape, dtype=w.dtype, generator=torch.Generator().manual_seed(seed))
