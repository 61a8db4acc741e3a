"""`Smoothed` on a GPU without one: the layer's own code around the kernels built for the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.engine.cuda.nvrtc import NotHere
from dflearn.engine.smoothed.gpu import SmoothedBlocks
from dflearn.errors import ProgramError, ShapeError, SolverError
from dflearn.layers import Smoothed
from dflearn.program import Instance, Program
from dflearn.program.quadratic import Quadratic
from dflearn.solvers.base import Status
from dflearn.testing import check_layer
from support.emulator import COMPILER, MISSING, Emulator, InBlocks
from support.layer_examples import PROGRAMS

pytestmark = [pytest.mark.skipif(COMPILER is None, reason=MISSING), pytest.mark.xdist_group("layer on a GPU")]
CPU = torch.device("cpu")
SIMPLEX = Program(A=np.ones((1, 3)), b=[1], upper=1)


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    InBlocks.machine = Emulator(tmp_path_factory.mktemp("emulated"))
    return InBlocks.machine


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_layer_keeps_its_contract(program: str) -> None:
    example = PROGRAMS[program]()
    for instance in (example.instance, None):
        layer = InBlocks(example.program, 0.7)
        check_layer(
            layer, example.program, y=example.y, instance=instance, exact_gradient=program != "box", tolerance=1e-8
        )


def test_second_derivatives_are_those_on_the_face() -> None:
    y = torch.tensor([[0.1, 0.2, 0.4]], dtype=torch.float64, requires_grad=True)
    decision = InBlocks(SIMPLEX).solve(y).decision
    (slope,) = torch.autograd.grad((decision**2).sum(), y, create_graph=True)
    (second,) = torch.autograd.grad(slope[0, 0], y)
    face = torch.eye(3, dtype=torch.float64) - 1 / 3  # w = −P y + const, so that d²‖w‖² = 2 P P = 2 P
    torch.testing.assert_close(second, 2 * face[:1], rtol=0, atol=1e-10)


def test_a_quadratic_objective_goes_through_the_same_kernels() -> None:
    """The decision, and its gradients in costs, right-hand sides and bounds."""
    program = Program(A=np.ones((1, 3)), b=[1], Q=Quadratic(factor=[[1.0, 2, 0]], diagonal=[1.0, 2, 3]))
    y = torch.tensor([[1.0, -1, 0.5], [0, 2, -3]], dtype=torch.float64)
    b = torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    upper = torch.tensor([[0.4, 9, 9], [9, 0.1, 9]], dtype=torch.float64)
    answers = []
    for layer in (InBlocks(program, 0.5), Smoothed(program, 0.5)):
        given = [part.clone().requires_grad_() for part in (y, b, upper)]
        decision = layer(given[0], Instance(b=given[1], upper=given[2]))
        slopes = torch.autograd.grad(decision, given, torch.tensor([[1.0, 2, -1], [0, 3, 1]]).double())
        answers.append([layer(y), decision.detach(), *slopes])
        assert not layer.unsettled()
    for own, wanted in zip(*answers, strict=True):
        torch.testing.assert_close(own, wanted, rtol=0, atol=1e-9)


# -- statuses that nobody waits for -----------------------------------------------------------------------------------


def spoilt(layer: InBlocks, monkeypatch: pytest.MonkeyPatch, rows: list[int], code: Status) -> None:
    """Let the kernels leave these instances."""
    place = layer.blocks(CPU)
    solve = place.solve

    def leaves(*arguments: Any, **named: Any) -> Any:
        answer = solve(*arguments, **named)
        answer.status[rows], answer.w[rows], answer.inside[rows], answer.alarm[0] = int(code), 0.0, 0, 1
        return answer

    monkeypatch.setattr(place, "solve", leaves)


def test_what_the_kernels_leave_the_cpu_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    example = PROGRAMS["knapsack"]()
    layer, plain = InBlocks(example.program, 0.7), Smoothed(example.program, 0.7)
    spoilt(layer, monkeypatch, [1, 2], Status.FAILED)
    start = layer.no_start(len(example.y))
    found, wanted = (one.solve(example.y, example.instance, start) for one in (layer, plain))
    assert found.start is not None
    assert wanted.start is not None
    torch.testing.assert_close(found.decision, wanted.decision, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.start, wanted.start, rtol=1e-6, atol=1e-8)
    assert found.status.tolist() == wanted.status.tolist()
    layer.watch.waiting = True  # gradients too, on the faces that the CPU found
    slopes = []
    for one in (layer, plain):
        y = example.y.clone().requires_grad_()
        slopes.append(torch.autograd.grad(one.solve(y, example.instance).decision.sum(), y)[0])
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-9)


def test_training_does_not_look_at_statuses_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = InBlocks(SIMPLEX)
    y = torch.tensor([[0.1, 0.2, 0.4], [1.0, 0, 0]], dtype=torch.float64, requires_grad=True)
    solution = layer.solve(y).check()
    assert solution.deferred
    assert not layer.unsettled()
    spoilt(layer, monkeypatch, [1], Status.FAILED)
    decision = layer(y)
    (slope,) = torch.autograd.grad(decision.sum() + (decision**2).sum(), y)
    assert not slope[1].any(), "an instance without a decision has a gradient"
    assert layer.unsettled()
    assert not layer.unsettled(), "it is told once"
    again = layer.solve(y)
    assert not again.deferred, "from now on solves wait"
    torch.testing.assert_close(again.decision, Smoothed(SIMPLEX).solve(y).decision, rtol=0, atol=1e-10)


def test_a_projection_off_its_face_is_told_and_made_by_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, plain = InBlocks(SIMPLEX), Smoothed(SIMPLEX)
    y, weight = (
        torch.tensor([[0.1, 0.2, 0.4]] * 2, dtype=torch.float64),
        torch.tensor([[1.0, 2, 4], [3, 1, 0]]).double(),
    )
    b = torch.tensor([[1.0], [1.5]], dtype=torch.float64)
    rows = layer.blocks(CPU)

    def misses(way: Any) -> Any:
        def spoilt_way(*arguments: Any) -> Any:
            out, off = way(*arguments)
            out[1], off.status[1], off.alarm[0] = 77.0, int(Status.FAILED), 1
            return out, off

        return spoilt_way

    monkeypatch.setattr(rows, "project", misses(rows.project))
    monkeypatch.setattr(rows, "prices", misses(rows.prices))

    def slopes(one: Smoothed) -> tuple[torch.Tensor, ...]:
        sides, costs = b.clone().requires_grad_(), y.clone().requires_grad_()
        return torch.autograd.grad(one.solve(costs, Instance(b=sides)).decision, (costs, sides), weight)

    slopes(layer)
    assert layer.unsettled()
    for own, wanted in zip(slopes(layer), slopes(plain), strict=True):
        torch.testing.assert_close(own, wanted, rtol=0, atol=1e-12)


def test_who_does_not_ask_is_warned_at_the_next_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = InBlocks(SIMPLEX)
    y = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    spoilt(layer, monkeypatch, [0], Status.FAILED)
    layer(y)
    with pytest.warns(RuntimeWarning, match="1 of 2 instances of the last solve on the GPU were not finished"):
        layer(y)


def test_what_has_no_feasible_point_is_an_error_at_the_next_solve() -> None:
    layer = InBlocks(SIMPLEX)
    y, b = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True), torch.tensor([[1.0], [9.0]], dtype=torch.float64)
    assert layer(y, Instance(b=b)).shape == (2, 3)
    with pytest.raises(SolverError, match="Instance 1 is INFEASIBLE"):
        layer(y)
    with pytest.raises(SolverError, match="instance 1 is INFEASIBLE"):  # and now it waits
        layer(y, Instance(b=b))


def test_odd_costs_and_sides_are_told_in_the_words_of_the_cpu() -> None:
    layer = InBlocks(SIMPLEX)
    y = torch.zeros(2, 3, dtype=torch.float64)
    y[1, 1] = torch.nan
    with pytest.raises(ShapeError, match="instance 1: costs hold a NaN"):
        layer(y)
    crossed = Instance(lower=torch.tensor([[0.0] * 3, [0, 2, 0]], dtype=torch.float64))
    with pytest.raises(ProgramError, match="variable 1 of instance 1 cross"):
        layer(torch.zeros(2, 3, dtype=torch.float64), crossed)
    twice = Program(A=[[1.0, 1, 1], [2, 2, 2]], b=[1, 2], upper=1)
    b = torch.tensor([[1.0, 2], [1, 3]], dtype=torch.float64)
    with pytest.raises(ProgramError, match=r"instance 1: equality row \d is a combination"):
        InBlocks(twice)(torch.zeros(2, 3, dtype=torch.float64), Instance(b=b))
    with pytest.raises(ShapeError, match="instance's b must have shape"):
        layer(torch.zeros(2, 3, dtype=torch.float64), Instance(b=torch.zeros(2, 4, dtype=torch.float64)))


# -- where it solves --------------------------------------------------------------------------------------------------


def test_where_it_cannot_be_the_cpu_solves_and_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*arguments: object) -> None:
        raise NotHere("NVRTC of CUDA 13.0 was not found")

    monkeypatch.setattr(SmoothedBlocks, "prepare", refuses)
    layer, device = Smoothed(SIMPLEX), torch.device("cuda", 0)
    with pytest.warns(RuntimeWarning, match="on the CPU, to which they are copied: NVRTC of CUDA 13.0 was not found"):
        assert layer.blocks(device) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert layer.blocks(device) is None
        assert layer.blocks(CPU) is None
    assert "solved on the CPU for cuda:0: NVRTC of CUDA 13.0 was not found" in repr(layer)
