"""`check_layer` on every layer over every kind of program, and proof that it notices broken layers."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dflearn import layers
from dflearn.errors import ShapeError
from dflearn.layers import (
    AdaptiveImplicitMLE,
    BlackBox,
    CvxpySmoothed,
    DavisYin,
    Exact,
    ImplicitMLE,
    Layer,
    LogBarrier,
    NegativeIdentity,
    Perturbed,
    Smoothed,
)
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.solvers.highs import HiGHS
from dflearn.testing.layers import check_layer
from support.closed_form_layers import SmoothedBox, SmoothedTopOne, top_one
from support.layer_examples import PROGRAMS, simplex

LAYERS: dict[str, tuple[Callable[[Program], Layer], dict[str, Any]]] = {
    "Exact": (lambda program: Exact(HiGHS(program.relax())), {"exact_gradient": True}),
    "Exact, integer": (lambda program: Exact(HiGHS(program)), {}),
    "Perturbed": (lambda program: Perturbed(HiGHS(program.relax()), sigma=0.5, samples=3), {"random": True}),
    "Perturbed, multiplicative": (
        lambda program: Perturbed(HiGHS(program.relax()), sigma=0.5, samples=3, multiplicative=True),
        {"random": True},
    ),
    "BlackBox": (lambda program: BlackBox(HiGHS(program.relax()), step=2.0), {}),
    "NegativeIdentity": (lambda program: NegativeIdentity(HiGHS(program.relax()), "std"), {}),
    "ImplicitMLE": (
        lambda program: ImplicitMLE(HiGHS(program.relax()), sigma=0.5, step=2.0, samples=2),
        {"random": True},
    ),
    "AdaptiveImplicitMLE": (
        lambda program: AdaptiveImplicitMLE(HiGHS(program.relax()), 0.5, 2, noise="gumbel", two_sided=True),
        {"random": True},
    ),
    "Smoothed": (lambda program: Smoothed(program, 0.7), {"exact_gradient": True, "tolerance": 1e-8}),
    "Smoothed, norm": (
        lambda program: Smoothed(program, 0.7, regularizer="norm"),
        {"exact_gradient": True, "tolerance": 1e-8},
    ),
    "LogBarrier": (lambda program: LogBarrier(program, 0.1), {"exact_gradient": True, "tolerance": 1e-7}),
    "DavisYin, converged": (
        lambda program: DavisYin(program, 0.7, iterations=20_000, tolerance=1e-9, gradient="implicit"),
        {"exact_gradient": True, "tolerance": 1e-6},
    ),
    "DavisYin, unrolled": (
        lambda program: DavisYin(program, 0.7, 0.5, iterations=2000, gradient="unrolled"),
        {"exact_gradient": True, "tolerance": 1e-4, "detects_infeasible": False},
    ),
    "DavisYin, Jacobian-free": (
        lambda program: DavisYin(program, 0.7, iterations=20_000, tolerance=1e-9),
        {"tolerance": 1e-6},
    ),
    "CvxpySmoothed": (
        lambda program: CvxpySmoothed(program, 0.7),
        {"exact_gradient": True, "tolerance": 1e-5, "step": 0.01},
    ),
    "CvxpySmoothed, norm": (
        lambda program: CvxpySmoothed(program, 0.7, regularizer="norm"),
        {"exact_gradient": True, "tolerance": 1e-5, "step": 0.01},
    ),
}


def test_every_layer_is_in_the_registry() -> None:
    program = simplex().program
    assert {type(make(program)).__name__ for make, _ in LAYERS.values()} == set(layers.__all__) - {"Layer"}


# cvxpylayers are slow, and compared with the others and with closed forms in test_smoothed.py and test_cvxpy.py.
# One process compiles the kernels of Davis-Yin for all tests of the group.
PAIRS = [
    pytest.param(layer, program, marks=pytest.mark.xdist_group("davis_yin") if "DavisYin" in layer else ())
    for program in PROGRAMS
    for layer in LAYERS
    if "Cvxpy" not in layer or program in ("knapsack", "free_variables")
]


@pytest.mark.parametrize(("layer", "program"), PAIRS)
def test_layers_keep_the_contract(layer: str, program: str) -> None:
    make, promises = LAYERS[layer]
    example = PROGRAMS[program]()
    check_layer(make(example.program), example.program, y=example.y, instance=example.instance, **promises)
    if example.instance is not None:
        check_layer(make(example.program), example.program, y=example.y, **promises)


# -- what check_layer notices -----------------------------------------------------------------------------------------


def test_a_layer_in_closed_form_passes() -> None:
    check_layer(SmoothedBox(BOX, 0.7), BOX, exact_gradient=True, tolerance=1e-9)
    check_layer(SmoothedTopOne(4, 0.7), top_one(4), exact_gradient=True, detects_infeasible=False)


BOX = Program(upper=1, n=4)


class Broken(SmoothedBox):
    """A correct layer until a subclass breaks it."""

    def __init__(self) -> None:
        super().__init__(BOX, 0.7)


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class Remembers(Broken):
    last: Tensor | None = None

    def _project(self, z: Tensor, instance: Instance | None) -> Tensor:
        w = super()._project(z if self.last is None else z + 1e-9 * self.last, instance)
        self.last = z.detach().mean()
        return w


class Changes(Broken):
    """Uses the costs' memory for something else."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = super()._solve(y, instance, start)
        with torch.no_grad():
            y.zero_()
        return solution


class Projects(Broken):
    """Projects something else, or returns something else than the projection."""

    def __init__(self, before: Callable[[Tensor], Tensor], after: float = 1.0) -> None:
        super().__init__()
        self.before, self.after = before, after

    def _project(self, z: Tensor, instance: Instance | None) -> Tensor:
        return super()._project(self.before(z), instance) * self.after


def as_it_is(z: Tensor) -> Tensor:
    return z


def averaged_gradient(z: Tensor) -> Tensor:
    return _ScaledGradient.apply(z, 1 / max(1, z[..., 0].numel()))


def wrong_gradient(z: Tensor) -> Tensor:
    return _ScaledGradient.apply(z, 1.01)


def coupled(z: Tensor) -> Tensor:
    return z - z.mean() if z.ndim > 1 else z


def flat(z: Tensor) -> Tensor:
    return z.reshape(-1, z.shape[-1])


class Answers(Broken):
    """Answers with one field changed."""

    def __init__(self, field: str, change: Callable[[Solution], Tensor]) -> None:
        super().__init__()
        self.field, self.change = field, change

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = super()._solve(y, instance, start)
        changed: dict[str, Any] = {self.field: self.change(solution)}
        return replace(solution, **changed)


class TakesAnyCosts(Broken):
    """Skips the checks that `Layer.solve` makes."""

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        return self._solve(y.nan_to_num(0.0, 0.0, 0.0), instance, start)


class Unpicklable(Broken):
    def __init__(self) -> None:
        super().__init__()
        self.function = lambda z: z


class ForgetsItself(Broken):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "mu": 1.0}


class NotThreadSafe(Broken):
    """Keeps the costs of a call where another call finds them."""

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        self.costs = y
        time.sleep(0.002)
        return super()._solve(self.costs, instance, start)


class LosesStarts(Broken):
    start_width = 2


class MisledByStarts(LosesStarts):
    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        solution = super()._solve(y, instance, start)
        if start is None:
            return solution
        return replace(
            solution, start=start.nan_to_num(1.0), objective=solution.objective + 0.1 * ~start[..., 0].isnan()
        )


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        (lambda: Projects(averaged_gradient), "another gradient when it is alone"),
        (lambda: Projects(wrong_gradient), "differences give"),
        (lambda: Projects(as_it_is, 1.001), "violates the relaxed program"),
        (lambda: Projects(coupled), "another decision in another batch"),
        (lambda: Projects(flat), "decisions have shape"),
        (Remembers, "after other inputs came between"),
        (Changes, "in place"),
        (lambda: Answers("decision", lambda one: one.decision.float()), "give decisions in torch.float32"),
        (lambda: Answers("objective", lambda one: one.objective + 0.1), "objective against"),
        (lambda: Answers("bound", lambda one: one.bound + 0.1), "bound lies above"),
        (lambda: Answers("status", lambda one: one.status.new_zeros(1)), "status is"),
        (lambda: Answers("start", lambda one: one.decision.detach()), "although none was passed"),
        (TakesAnyCosts, "a cost of nan is taken"),
        (ForgetsItself, "pickling changes"),
        (NotThreadSafe, "two threads at once"),
        (LosesStarts, "none came back"),
        (MisledByStarts, "a start changes the objective"),
    ],
)
def test_check_layer_notices(layer: Callable[[], Broken], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_layer(layer(), BOX, exact_gradient=True, tolerance=1e-8)


def test_check_layer_notices_a_layer_that_cannot_be_pickled() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError)):
        check_layer(Unpicklable(), BOX)


def test_check_layer_notices_infeasible_instances_that_are_solved() -> None:
    """`SmoothedTopOne` does not look at the constraints of an instance."""
    with pytest.raises(AssertionError, match="instance 1 has no feasible decision, but its status is OPTIMAL"):
        check_layer(SmoothedTopOne(4, 0.7), top_one(4))


@pytest.mark.parametrize("costs", [[[0.0, 0.0]], None, torch.zeros(1, 2).numpy()], ids=["list", "None", "array"])
def test_costs_must_be_a_tensor(costs: Any) -> None:
    program = Program(n=2, upper=1)
    for layer in (Exact(HiGHS(program)), Smoothed(program)):
        with pytest.raises(ShapeError, match="must be a floating-point torch tensor"):
            layer(costs)
