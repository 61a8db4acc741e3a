"""Davis-Yin iterations as on a GPU, by products in torch and by the kernels built for the CPU, against the CPU's layer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from dflearn.engine.cuda.splitting import SplittingBlocks
from dflearn.engine.davis_yin.dense import Dense
from dflearn.errors import OptionError
from dflearn.layers import DavisYin
from dflearn.layers.davis_yin import Gradient
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.emulator import COMPILER, MISSING, Emulator
from support.layer_examples import PROGRAMS
from support.splitting import InTorch, both, equal

CPU = torch.device("cpu")
BUILT = pytest.mark.skipif(COMPILER is None, reason=MISSING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


def use_blocks(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Emulator(folder, threads)
    monkeypatch.setattr("dflearn.engine.cuda.splitting.machine_of", lambda device: (machine, threads))


def counted(kind: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an entry for each batch that this backend iterates."""
    batches, real = [], kind.iterate
    monkeypatch.setattr(kind, "iterate", lambda *given, **how: (batches.append(1), real(*given, **how))[1])
    return batches


@pytest.fixture(params=["products", pytest.param("blocks", marks=BUILT)])
def accuracy(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """How precise dense products in torch are, or blocks of one thread; the backend must have been used."""
    blocks = request.param == "blocks"
    if blocks:
        use_blocks(folder, 1, monkeypatch)
    batches = counted(SplittingBlocks if blocks else Dense, monkeypatch)
    yield 1e-11 if blocks else 1e-9
    assert batches


@pytest.mark.parametrize("gradient", get_args(Gradient))
@pytest.mark.parametrize("program", PROGRAMS)
def test_iterates_and_gradients_are_the_cpus(program: str, gradient: Any, accuracy: float) -> None:
    example = PROGRAMS[program]()
    for instance in (None, example.instance):
        equal(both(example.program, example.y, instance, mu=0.7, iterations=60, gradient=gradient), accuracy)


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
@pytest.mark.parametrize("gradient", ["jfb", "unrolled"])
def test_the_papers_problems(name: str, gradient: Any, accuracy: float) -> None:
    problem = problem_named(name, seed=1)
    y = problem.generate(6, dtype=torch.float64).batch().require("costs")
    equal(both(problem.program, y, mu=1.0, gradient=gradient), accuracy)
    equal(both(problem.program, y.float(), mu=1.0, gradient=gradient), 2e-4)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_quadratic_objectives(mu: float, accuracy: float) -> None:
    """Those of a diagonal are the blocks'; a factor of Q leads to products in torch."""
    rows: dict[str, Any] = {"A": [[1.0, 1, 1]], "b": [1], "G": [[1.0, 0, -1]], "h": [0.5], "upper": 0.7}
    y = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    diagonal, whole = (Program(**rows, Q=Q) for Q in (np.diag([2.0, 3, 1]), [[2.0, 1, 0], [1, 3, 0], [0, 0, 1]]))
    for gradient in get_args(Gradient):
        for program, instance, tolerance in (
            (diagonal, None, accuracy), (diagonal, Instance(q=q), accuracy), (Program(**rows), Instance(q=q), accuracy),
            (whole, None, 1e-9), (whole, Instance(q=q), 1e-9),
        ):  # fmt: skip
            if program.Q is not None or mu or gradient != "implicit":
                equal(both(program, y, instance, mu=mu, iterations=40, gradient=gradient), tolerance)


@BUILT
def test_what_has_no_decision_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_blocks(folder, 1, monkeypatch)
    runs = counted(SplittingBlocks, monkeypatch)
    program = Program(A=[[1.0, 1, 1]], b=[1], upper=1)
    y = torch.tensor([[1.0, torch.nan, 1], [1, 2, 3]], dtype=torch.float64)
    solution = Unchecked(program, iterations=20).solve(y)
    assert solution.status.tolist() == [Status.FAILED, Status.FEASIBLE]
    assert torch.isnan(solution.decision).tolist() == [[True] * 3, [False] * 3]
    assert len(runs) == 1


class Unchecked(InTorch):
    """Costs that are no numbers reach the kernels."""

    def _checks_later(self, device: torch.device) -> bool:
        return True


def test_batches_and_sides(accuracy: float) -> None:
    example = PROGRAMS["free_variables"]()
    assert example.instance is not None
    layer = InTorch(example.program)
    assert layer(example.y[:0]).shape == (0, example.program.n)
    torch.testing.assert_close(layer(example.y.reshape(2, 2, -1)), layer(example.y).reshape(2, 2, -1))
    found = []
    for kind in (DavisYin, InTorch):
        sides = {name: value.clone().requires_grad_() for name, value in example.instance.present().items()}
        decision = (
            kind(example.program, 0.7, iterations=800, gradient="implicit").solve(example.y, Instance(**sides)).decision
        )
        weight = torch.randn(decision.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        found.append(torch.autograd.grad(decision, list(sides.values()), weight))
    for own, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-8, atol=1e-9)
    empty = Program(lower=-1, upper=[1, 2, 3])
    equal(both(empty, torch.tensor([[1.0, -8, 0.5]], dtype=torch.float64), mu=2.0), accuracy / 10)
    with pytest.raises(OptionError, match="converge for steps"):
        InTorch(example.program, 1.0, step=1.5).solve(example.y, Instance(q=torch.ones(4, example.program.n).double()))


@BUILT
@pytest.mark.parametrize(("name", "threads"), [("SP-5", 3), ("SP-5", 4), ("KP-100", 4)])
def test_more_threads_change_nothing(name: str, threads: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing barrier between them would show."""
    use_blocks(folder, threads, monkeypatch)
    problem = problem_named(name, seed=1)
    y = problem.generate(2, dtype=torch.float64).batch().require("costs")
    equal(both(problem.program, y, iterations=20, gradient="unrolled"), 1e-11)
