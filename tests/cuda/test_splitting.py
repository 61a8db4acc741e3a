"""The kernels of Davis-Yin iterations, built for the CPU, against the CPU's layer: iterates, gradients, statuses."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings, strategies as st

from dflearn.cuda.splitting import SplittingBlocks
from dflearn.layers import DavisYin
from dflearn.layers.davis_yin import GRADIENTS
from dflearn.layers.splitting_in_blocks import BlockRun
from dflearn.layers.splitting_in_torch import TorchRun
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.emulator import COMPILER, MISSING, Emulator
from support.layer_examples import PROGRAMS
from support.splitting import InTorch, both, equal

pytestmark = pytest.mark.skipif(COMPILER is None, reason=MISSING)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture(autouse=True)
def runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks of one thread, unless a test says otherwise; how many batches went through them."""
    machine, made, real = Emulator(folder), [], BlockRun.__init__
    monkeypatch.setattr("dflearn.layers.splitting_in_blocks.machine_of", lambda device: (machine, 1))
    monkeypatch.setattr(BlockRun, "__init__", lambda self, *given: (made.append(1), real(self, *given))[1])
    return made


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_iterates_and_gradients_are_the_cpus(program: str, gradient: Any, runs: list[int]) -> None:
    example = PROGRAMS[program]()
    for instance in (None, example.instance):
        equal(both(example.program, example.y, instance, mu=0.7, iterations=60, gradient=gradient), 1e-11)
    assert len(runs) == 2


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
@pytest.mark.parametrize("gradient", ["jfb", "unrolled"])
def test_the_papers_problems(name: str, gradient: Any, runs: list[int]) -> None:
    problem = problem_named(name, seed=1)
    y = problem.generate(6, dtype=torch.float64).batch().require("costs")
    equal(both(problem.program, y, mu=1.0, gradient=gradient), 1e-11)
    equal(both(problem.program, y.float(), mu=1.0, gradient=gradient), 2e-4)
    assert len(runs) == 2


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_quadratic_objectives(mu: float, runs: list[int]) -> None:
    """Those of a diagonal are the blocks'; a factor of Q leads to products in torch."""
    rows: dict[str, Any] = {"A": [[1.0, 1, 1]], "b": [1], "G": [[1.0, 0, -1]], "h": [0.5], "upper": 0.7}
    y = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for gradient in GRADIENTS:
        for program in (Program(**rows, Q=np.diag([2.0, 3, 1])), Program(**rows)):
            if program.Q is not None or mu or gradient != "implicit":
                equal(both(program, y, Instance(q=q), mu=mu, iterations=40, gradient=gradient), 1e-11)
        equal(both(Program(**rows, Q=np.diag([2.0, 3, 1])), y, mu=mu, iterations=40, gradient=gradient), 1e-11)
    assert len(runs) == (9 if mu else 8)
    before = len(runs)
    equal(both(Program(**rows, Q=[[2.0, 1, 0], [1, 3, 0], [0, 0, 1]]), y, mu=mu, iterations=40))
    assert len(runs) == before


def test_with_a_tolerance_products_in_torch_iterate(runs: list[int]) -> None:
    """The CPU judges on the way, which blocks of one launch do not wait for."""
    program, y = PROGRAMS["knapsack"]().program, PROGRAMS["knapsack"]().y
    found = both(program, y, mu=0.7, iterations=2000, tolerance=1e-8, gradient="unrolled")
    assert found[1][4].tolist() == [Status.OPTIMAL] * len(y)
    equal(found, 1e-9)
    assert not runs


def test_what_has_no_decision_is_explained(runs: list[int]) -> None:
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


def test_batches_and_sides(runs: list[int]) -> None:
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
    equal(both(empty, torch.tensor([[1.0, -8, 0.5]], dtype=torch.float64), mu=2.0), 1e-12)
    assert runs


@pytest.mark.parametrize("limit", ["MOST_ONE_READS", "MOST_READ", "MOST_NUMBERS"])
def test_many_rows_are_products_in_torch(limit: str, runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"dflearn.layers.splitting_in_blocks.{limit}", 1)
    program, made, real = PROGRAMS["knapsack"]().program, [], TorchRun.__init__
    monkeypatch.setattr(TorchRun, "__init__", lambda self, *given: (made.append(1), real(self, *given))[1])
    equal(both(program, PROGRAMS["knapsack"]().y, gradient="unrolled"))
    assert made
    assert not runs


@pytest.mark.parametrize(("name", "threads"), [("SP-5", 3), ("SP-5", 4), ("KP-100", 4)])
def test_more_threads_change_nothing(name: str, threads: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing barrier between them would show."""
    machine = Emulator(folder, threads)
    monkeypatch.setattr("dflearn.layers.splitting_in_blocks.machine_of", lambda device: (machine, threads))
    problem = problem_named(name, seed=1)
    y = problem.generate(2, dtype=torch.float64).batch().require("costs")
    equal(both(problem.program, y, iterations=20, gradient="unrolled"), 1e-11)


class Anywhere(Emulator):
    """A machine that says how wide its warps are and runs nothing: for what is made before."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.warp = 32

    def load_splitting(self, threads: int, options: tuple[str, ...], shared: int) -> Any:
        return options, shared


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 300), st.sampled_from([0.02, 0.3, 1.0]))
def test_pieces_hold_every_entry_of_a_row_once(seed: int, m: int, n: int, share: float) -> None:
    rng = np.random.RandomState(seed)
    dense = np.hstack([rng.normal(size=(m, n)) * (rng.rand(m, n) < share), np.eye(m)])
    blocks = SplittingBlocks(sp.csr_array(dense), n, Anywhere(), CPU, torch.float64)
    piece_start, column, value, row_piece, inverse, column_start, row, by_column = (
        part.numpy() for part in blocks._shared
    )
    v = rng.normal(size=n + m)
    terms = value * v[column]
    sums = np.array([terms[a:b].sum() for a, b in itertools.pairwise(piece_start)])
    assert len(row_piece) == m + 1
    np.testing.assert_allclose([sums[a:b].sum() for a, b in itertools.pairwise(row_piece)], dense @ v)
    np.testing.assert_allclose(inverse @ sums, np.linalg.solve(dense @ dense.T, dense @ v) if m else [], atol=1e-9)
    again = sp.csc_array((by_column, row, column_start), shape=dense.shape).toarray()
    np.testing.assert_array_equal(again, dense)
    assert blocks.threads % 32 == 0
