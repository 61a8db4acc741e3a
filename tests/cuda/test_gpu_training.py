"""On a GPU (`make test-gpu`): torch.compile, `DavisYin`, oracles, threads, processes, the estimator and the command line."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import dflearn
from dflearn.cli import main
from dflearn.engine.cuda.splitting import SplittingBlocks
from dflearn.layers import DavisYin, Exact, Smoothed
from dflearn.layers.davis_yin import Gradient
from dflearn.losses import SmoothedSPOPlus
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.structured import FewRowLP
from support.layer_examples import PROGRAMS
from support.two_on_a_device import material, step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),  # torch 2.11 says so of every sparse tensor
]
GPU = torch.device("cuda", 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it loads inductor
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_step_has_the_gradients_of_the_plain_one(mode: str) -> None:
    problem = problem_named("SP-5", seed=1)
    torch.manual_seed(0)
    model, layer = nn.Linear(6, problem.program.p, dtype=torch.float64).to(GPU), Smoothed(problem.program)
    x = torch.randn(16, 6, dtype=torch.float64, device=GPU)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return layer(5 + 10 * model(x).relu()).square().sum()

    compiled, found = torch.compile(loss, fullgraph=True, mode=mode), []
    for way, times in ((loss, 1), (compiled, 4)):  # with "reduce-overhead", graphs are captured and replayed
        for _ in range(times):
            model.zero_grad()
            value = way(x)
            value.backward()
            found.append([float(value), *(part.grad.clone() for part in model.parameters())])  # type: ignore[union-attr]
    for own in found[1:]:
        assert own[0] == pytest.approx(found[0][0], rel=1e-12)
        for mine, wanted in zip(own[1:], found[0][1:], strict=True):
            torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)
    assert not layer.unsettled()
    torch._dynamo.reset()


def test_labels_of_the_smoothed_program_are_solved_once_on_the_device() -> None:
    problem = problem_named("SP-5", seed=1)
    data = problem.generate(40, dtype=torch.float64)
    weights = []
    for device in ("cpu", "cuda"):
        loss = SmoothedSPOPlus(Smoothed(problem.program, 0.3))
        model = Linear(data.features.shape[1], problem.program.p).double()
        dflearn.fit(model, loss, data, epochs=3, batch_size=16, device=device)
        assert len(loss.labels._found) == len(data)
        kept = list(loss.labels._found.values())
        assert {label.device.type for label in kept} == {device}
        weights.append(torch.nn.utils.parameters_to_vector(model.cpu().parameters()).detach())
    torch.testing.assert_close(*weights, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("gradient", get_args(Gradient))
@pytest.mark.parametrize("name", ["SP-5", "SP-15", "KP-100", "CFL-50"])
@pytest.mark.parametrize("most", [0, 2**40])
def test_davis_yin_has_the_iterates_and_gradients_of_the_cpu(
    most: int, name: str, gradient: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As products in torch, and in blocks."""
    monkeypatch.setattr("dflearn.engine.cuda.splitting.MOST_READ", most)
    problem = problem_named(name, seed=1)
    y = problem.generate(6, dtype=torch.float64).batch().require("costs")
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 5e-4)):
        found = []
        there = DavisYin(problem.program, gradient=gradient)
        for layer, device in ((DavisYin(problem.program, gradient=gradient), "cpu"), *[(there, GPU)] * 3):
            costs = y.to(device, dtype).requires_grad_()
            solution = layer.solve(costs).check()
            weight = torch.randn(solution.decision.shape, generator=torch.Generator().manual_seed(0)).to(costs)
            (slope,) = torch.autograd.grad(solution.decision, costs, weight)
            assert solution.decision.device == slope.device == costs.device
            assert solution.residual is not None
            found.append([part.detach().cpu() for part in (solution.decision, slope, solution.objective)])
        if gradient == "implicit" and dtype == torch.float32:
            continue  # a variable that rounding moves over its bound changes the face
        for own in found[1:]:  # the third is a replay
            for mine, wanted in zip(own, found[0], strict=True):
                size = 1 + float(wanted.abs().max())
                torch.testing.assert_close(mine, wanted, rtol=0, atol=tolerance * size)


@pytest.mark.filterwarnings("ignore::UserWarning")  # what torch says of the streams of gradients
@pytest.mark.parametrize("name", ["KP-100", "SP-10"])
def test_davis_yin_is_captured_and_repeats_bit_by_bit(name: str) -> None:
    problem = problem_named(name, seed=1)
    y = problem.generate(40).batch().require("costs").to(GPU)
    layer = DavisYin(problem.program, gradient="unrolled")

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        costs = y.detach().requires_grad_()
        decision = layer.solve(costs).decision
        return decision, torch.autograd.grad(decision.square().sum(), costs)[0]

    plain = [step() for _ in range(3)]
    assert SplittingBlocks.fitting(layer.rows, y.dtype, GPU, 40) is not None
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    for found in (*plain[1:], captured):
        for own, wanted in zip(found, plain[0], strict=True):
            assert torch.equal(own, wanted)
    part = layer.solve(y[::7]).decision
    assert torch.equal(part, plain[0][0][::7])


@pytest.mark.filterwarnings("ignore:DavisYin solves costs")  # on the CPU, which judges them
@pytest.mark.parametrize("program", PROGRAMS)
def test_davis_yin_stops_where_the_cpu_does(program: str) -> None:
    example, found = PROGRAMS[program](), []
    for device in ("cpu", GPU):
        layer = DavisYin(example.program, 0.7, iterations=3000, tolerance=1e-8)
        solution = layer.solve(example.y.to(device), None if example.instance is None else example.instance.to(device))
        found.append([part.cpu() for part in (solution.decision, solution.status)])
    assert torch.equal(found[0][1], found[1][1])
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0, atol=1e-6, equal_nan=True)


def test_a_kernel_may_be_the_first_work_of_a_thread() -> None:
    """As on the way back, which is a thread of torch's own."""
    layer, y = Smoothed(problem_named("SP-5", seed=1).program), torch.ones(3, 40, dtype=torch.float64, device=GPU)
    wanted, found = layer.solve(y).decision, []
    rows, costs = layer.blocks(GPU), layer.objective.vector(y)  # type: ignore[union-attr]
    rows._modules.clear()
    work = threading.Thread(target=lambda: found.append(layer.blocks(GPU).solve(costs, 1.0, None, None, 1e-10)))  # type: ignore[union-attr]
    work.start()
    work.join()
    torch.cuda.synchronize()
    torch.testing.assert_close(found[0].w, wanted)


@pytest.mark.parametrize("name", ["KP-100", "KP-500"])
def test_costs_of_a_program_of_few_rows_may_lie_there(name: str) -> None:
    problem = problem_named(name, seed=1)
    program = problem.program.relax()
    y = problem.generate(40, dtype=torch.float64).batch().require("costs")
    solver, start = FewRowLP(program), FewRowLP(program).no_start(40)
    here, there = solver.solve(y, None, start), solver.solve(y.to(GPU), None, start)
    assert there.decision.device == GPU
    assert not there.status.any()
    torch.testing.assert_close(there.decision.cpu(), here.decision, rtol=1e-9, atol=1e-9)
    again = solver.solve(1.01 * y.to(GPU), None, there.start)
    torch.testing.assert_close(again.decision.cpu(), here.decision, rtol=1e-9, atol=1e-9)


def test_other_solvers_say_once_that_they_are_the_cpus() -> None:
    layer, y = Exact(HiGHS(problem_named("KP-100", seed=1).program.relax())), torch.ones(2, 100, device=GPU)
    with pytest.warns(RuntimeWarning, match="HiGHS solves on the CPU"):
        assert layer(y).device == GPU
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(y)


def test_two_processes_share_a_gpu(tmp_path: Path) -> None:
    """DDP: the gradient is that of the whole batch in one process, on the CPU."""
    script = Path(__file__).parents[1] / "support" / "two_on_a_device.py"
    done = subprocess.run(
        [sys.executable, str(script), "cuda:0", str(tmp_path / "found.pt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for own, wanted in zip(torch.load(tmp_path / "found.pt"), step(*material("cpu")), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)


def test_the_estimator_is_trained_there() -> None:
    problem = problem_named("KP-100", seed=1)
    data = problem.generate(60)
    X, y = data.features.numpy(), data.batch().require("costs").numpy()
    found = []
    for device in (None, "cuda"):
        regressor = dflearn.DecisionFocusedRegressor(problem, epochs=3, device=device, random_state=0).fit(X, y)
        assert next(regressor.model_.parameters()).device.type == "cpu"
        found.append(regressor.predict(X))
    assert np.abs(found[1] - found[0]).max() <= 1e-2 * np.abs(found[0]).max()


def test_the_command_line_trains_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dflearn.tables.saving.version", lambda name: "0")  # the package need not be installed
    rng = np.random.default_rng(0)
    Path("pack.lp").write_text(
        "Maximize\n value: tent + stove + rope\nSubject To\n weight: 3 tent + 4 stove + 5 rope <= 9\nBinary\n tent stove rope\nEnd\n"
    )
    x = rng.normal(size=(60, 2))
    y = 5 + x @ rng.normal(size=(2, 3)) + rng.normal(0, 0.3, (60, 3))
    for name, names, values in (("x.csv", "rain,wind", x), ("y.csv", "tent,stove,rope", y)):
        np.savetxt(name, values, delimiter=",", header=names, comments="")
    common = ["train", "--program", "pack.lp", "--features", "x.csv", "--costs", "y.csv", "--epochs", "1", "--no-page"]
    assert main([*common, "--out", "model.dfl", "--device", "cuda"]) == 0
    assert Path("model.dfl").exists()
