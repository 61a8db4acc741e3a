"""On a GPU (`make test-gpu`): the layer's contract, and every answer and gradient against the CPU's."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dflearn
from dflearn.engine.smoothed.gpu import SmoothedBlocks
from dflearn.layers import Layer, Smoothed
from dflearn.losses import SCE, FenchelYoung
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.testing import check_layer
from dflearn.training import fit
from support.layer_examples import PROGRAMS
from support.reference import random_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),  # torch 2.11 says so of every sparse tensor
]
GPU = torch.device("cuda", 0)


class There(Layer):
    """A layer on the GPU as one on the CPU: costs go there, answers come back."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer.objective)
        self.layer, self.program, self.start_width = layer, layer.program, layer.start_width

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        there = y.to(GPU) if isinstance(y, Tensor) else y
        solution = self.layer.solve(
            there, None if instance is None else instance.to(GPU), None if start is None else start.to(GPU)
        )
        names = ("decision", "status", "objective", "bound", "start", "residual", "fallback")
        back = {name: value.cpu() for name in names if (value := getattr(solution, name)) is not None}
        assert solution.decision.device == GPU
        if instance is None or instance.q is None:  # those are the CPU's
            assert all(getattr(solution, name).device == GPU for name in back)
        return replace(solution, **back)

    def _solve(self, y: Tensor, instance: Instance | None, start: Tensor | None) -> Solution:
        raise AssertionError

    def regularization(self, w: Tensor) -> Tensor:
        return self.layer.regularization(w)


def data_of(name: str, count: int) -> tuple[Program, Tensor]:
    problem = problem_named(name, seed=1)
    return problem.program, problem.generate(count, dtype=torch.float64).batch().require("costs")


@pytest.mark.filterwarnings("ignore:Smoothed solves instances with a q on the CPU")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_layer_keeps_its_contract(program: str) -> None:
    example = PROGRAMS[program]()
    for instance in (example.instance, None):
        layer = There(Smoothed(example.program, 0.7))
        check_layer(
            layer, example.program, y=example.y, instance=instance, exact_gradient=program != "box", tolerance=1e-8
        )


@pytest.mark.parametrize("name", ["SP-5", "SP-15", "SP-25", "KP-100", "KP-500", "CFL-50", "CFL-250", "SP-50"])
def test_answers_and_gradients_are_the_cpus(name: str) -> None:
    program, y = data_of(name, 4 if name == "SP-50" else 12)
    found = []
    for device in ("cpu", GPU):
        layer, costs = Smoothed(program), y.to(device).requires_grad_()
        start = layer.no_start(len(y))
        assert start is not None
        solution = layer.solve(costs, None, start.to(device))
        weight = torch.randn(solution.decision.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        (slope,) = torch.autograd.grad(solution.decision, costs, weight.to(device))
        assert solution.start is not None
        warm = layer.solve(costs.detach() * 1.001, None, solution.start)
        parts = (solution.decision, slope, solution.objective, warm.decision, warm.objective)
        found.append([part.detach().cpu() for part in parts])
        assert not bool(solution.status.any())
        assert float(solution.residual.max()) <= 1e-9  # type: ignore[union-attr]
    for own, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9 * (1 + float(wanted.abs().max())))
    place = layer.blocks(GPU)
    assert isinstance(place, SmoothedBlocks)
    assert (place.spilled > 0) == (name == "SP-50") or torch.cuda.get_device_capability() != (9, 0)


def test_random_programs_have_the_answers_gradients_and_statuses_of_the_cpu() -> None:
    for seed in range(60):
        case = random_case(seed)
        found = []
        for device in ("cpu", GPU):
            y = case.y.to(device).requires_grad_()
            layer, instance = (
                Smoothed(case.program, case.mu),
                None if case.instance is None else case.instance.to(device),
            )
            solution = layer.solve(y, instance)
            if layer.unsettled():  # as `fit` does: the second solve waits for the CPU
                solution = layer.solve(y, instance)
            weight = torch.randn(
                solution.decision.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
            )
            (slope,) = torch.autograd.grad(solution.decision, y, weight.to(device))
            found.append([part.detach().cpu() for part in (solution.decision, slope, solution.status)])
        (w, slope, status), (own, own_slope, own_status) = found
        assert torch.equal(own_status, status), f"seed {seed}"
        torch.testing.assert_close(own, w, rtol=0, atol=1e-9 * (1 + float(w.abs().max())), msg=f"seed {seed}")
        torch.testing.assert_close(own_slope, slope, rtol=1e-7, atol=1e-7, msg=f"seed {seed}")


@pytest.mark.parametrize("name", ["SP-10", "KP-100", "CFL-50"])
def test_answers_repeat_bit_by_bit_on_any_stream_and_in_any_batch(name: str) -> None:
    program, y = data_of(name, 700)
    layer, costs = Smoothed(program), y.to(GPU)
    first = layer.solve(costs)
    with torch.cuda.stream(torch.cuda.Stream()):
        again = layer.solve(costs)
    torch.cuda.synchronize()
    assert torch.equal(first.decision, again.decision)
    for every in (3, 7):  # two blocks on a multiprocessor, and one, which is wider
        assert torch.equal(first.decision[::every], layer.solve(costs[::every]).decision)
    single = layer.solve(costs.float())
    assert single.decision.dtype == torch.float32
    assert float((single.decision - first.decision).abs().max()) < 1e-4


def test_a_training_step_waits_for_nothing() -> None:
    program, y = data_of("SP-5", 32)
    layer, costs = Smoothed(program), y.to(GPU, torch.float32).requires_grad_()
    start = layer.no_start(32)
    assert start is not None
    start = start.to(GPU)
    layer.solve(costs, None, start).decision.sum().backward()  # compiled and loaded
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            solution = layer.solve(costs, None, start).check()
            solution.decision.sum().backward()
            start = solution.start
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert solution.deferred
    assert not layer.unsettled()
    assert not bool(solution.status.any())


@pytest.mark.filterwarnings("ignore::UserWarning")  # what torch says of the streams of gradients
def test_a_whole_step_is_captured_as_a_graph_and_replayed() -> None:
    program, y = data_of("KP-100", 16)
    layer, x = Smoothed(program), y.to(GPU)
    model = nn.Linear(program.p, program.p, dtype=torch.float64).to(GPU)
    nn.init.eye_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = layer(model(x)).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured = []
    for _ in range(3):
        graph.replay()
        captured.append(float(loss))
    model.load_state_dict(kept)
    plain = [float(step()) for _ in range(3)]
    assert captured == pytest.approx(plain, rel=1e-9)


def fitted(device: str, loss: Any, epochs: int, checkpoint: Path | None = None) -> tuple[nn.Module, list[float]]:
    problem = problem_named("SP-5", seed=1)
    data = dflearn.label(problem.generate(64), problem, progress=False)
    torch.manual_seed(0)
    model = nn.Linear(data.features.shape[-1], problem.program.p)
    history = fit(
        model,
        loss(Smoothed(problem.program)),
        data,
        validation=data,
        problem=problem,
        epochs=epochs,
        device=device,
        checkpoint=checkpoint,
        progress=False,
    )
    return model, [row["loss"] for row in history.rows]


@pytest.mark.parametrize("loss", [SCE, FenchelYoung])
def test_fit_learns_the_same_there(loss: Any) -> None:
    here, losses = fitted("cpu", loss, 3)
    there, others = fitted("cuda", loss, 3)
    assert others == pytest.approx(losses, rel=1e-3)
    assert next(there.parameters()).device == GPU
    for own, wanted in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(own.cpu(), wanted, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(("first", "second"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_checkpoint_moves_between_devices(first: str, second: str, tmp_path: Path) -> None:
    _, whole = fitted("cpu", SCE, 4)
    fitted(first, SCE, 2, tmp_path / "run.pt")
    _, losses = fitted(second, SCE, 4, tmp_path / "run.pt")
    assert losses == pytest.approx(whole, rel=1e-3)


def test_what_does_not_fit_goes_through_the_cpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflearn.engine.smoothed.gpu.MOST_ROWS", 2)
    program, y = data_of("KP-100", 3)
    layer = Smoothed(program)
    with pytest.warns(RuntimeWarning, match="on the CPU"):
        decision = layer(y.to(GPU))
    assert decision.device == GPU
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(y.to(GPU))
    assert "the CPU for cuda:0" in repr(layer)


def test_a_q_of_instances_goes_through_the_cpu_and_says_so() -> None:
    layer, y = Smoothed(Program(A=[[1.0, 1, 1]], b=[1])), torch.zeros(2, 3, dtype=torch.float64, device=GPU)
    with pytest.warns(RuntimeWarning, match="instances with a q on the CPU"):
        decision = layer(y, Instance(q=torch.ones_like(y)))
    assert decision.device == GPU
    torch.testing.assert_close(layer(y, Instance(q=torch.ones_like(y))), torch.full_like(y, 1 / 3))


def test_a_quadratic_objective_is_solved_there() -> None:
    program = Program(A=[[1.0, 1, 1]], b=[1], Q=[[2.0, 1, 0], [1, 3, 0], [0, 0, 1]])
    y = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = Smoothed(program, 0.5)
    torch.testing.assert_close(layer(y.to(GPU)).cpu(), Smoothed(program, 0.5)(y), rtol=0, atol=1e-10)
    assert layer.blocks(GPU) is not None
