"""`DavisYin` in torch, as on a GPU, against the CPU's kernels: iterates, gradients, statuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dflearn.errors import OptionError
from dflearn.layers import DavisYin
from dflearn.layers.davis_yin import GRADIENTS
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.layer_examples import PROGRAMS
from support.reference import random_case
from support.splitting import InTorch, both, equal


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_iterates_and_gradients_are_the_cpus(program: str, gradient: Any) -> None:
    example = PROGRAMS[program]()
    for instance in (None, example.instance):
        equal(both(example.program, example.y, instance, mu=0.7, iterations=60, gradient=gradient))


@pytest.mark.parametrize("name", ["SP-5", "KP-100", "CFL-50"])
@pytest.mark.parametrize("gradient", ["jfb", "unrolled"])
def test_the_papers_problems(name: str, gradient: Any) -> None:
    problem = problem_named(name, seed=1)
    y = problem.generate(6, dtype=torch.float64).batch().require("costs")
    equal(both(problem.program, y, mu=1.0, gradient=gradient))
    equal(both(problem.program, y.float(), mu=1.0, gradient=gradient), 2e-4)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_quadratic_objectives(mu: float) -> None:
    program = Program(
        A=[[1.0, 1, 1]], b=[1], G=[[1.0, 0, -1]], h=[0.5], Q=[[2.0, 1, 0], [1, 3, 0], [0, 0, 1]], upper=0.7
    )
    y = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = torch.rand(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for gradient in GRADIENTS:
        equal(both(program, y, mu=mu, iterations=40, gradient=gradient))
        equal(both(program, y, Instance(q=q), mu=mu, iterations=40, gradient=gradient))


def test_instances_stop_where_the_cpus_do() -> None:
    """With a tolerance: statuses, numbers of iterations by way of gradients, and starts that save them."""
    for seed in range(12):
        case = random_case(seed)
        equal(both(case.program, case.y, case.instance, mu=case.mu, iterations=3000, tolerance=1e-8), 1e-6)
    program, y = PROGRAMS["knapsack"]().program, PROGRAMS["knapsack"]().y
    found = both(program, y, mu=0.7, iterations=2000, tolerance=1e-8, gradient="unrolled")
    assert found[1][4].tolist() == [Status.OPTIMAL] * len(y)
    equal(found, 1e-7)
    layer = InTorch(program, 0.7, iterations=2000, tolerance=1e-8)
    start = layer.solve(y, None, layer.no_start(len(y))).start
    again = InTorch(program, 0.7, iterations=10, tolerance=1e-5).solve(y, None, start)
    assert again.status.tolist() == [Status.OPTIMAL] * len(y)


def test_what_has_no_decision_is_explained() -> None:
    program = Program(A=[[1.0, 1, 1]], b=[1], upper=1)
    b = torch.tensor([[1.0], [9.0]], dtype=torch.float64)
    equal(both(program, torch.ones(2, 3, dtype=torch.float64), Instance(b=b), iterations=500, tolerance=1e-8))
    solution = InTorch(program, iterations=500, tolerance=1e-8).solve(torch.ones(2, 3), Instance(b=b))
    assert solution.status.tolist() == [Status.OPTIMAL, Status.INFEASIBLE]


def test_sides_batches_and_errors() -> None:
    example = PROGRAMS["free_variables"]()
    assert example.instance is not None
    found = []
    for kind in (DavisYin, InTorch):
        sides = {name: value.clone().requires_grad_() for name, value in example.instance.present().items()}
        layer = kind(example.program, 0.7, iterations=800, gradient="implicit")
        decision = layer.solve(example.y, Instance(**sides)).decision
        weight = torch.randn(decision.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        found.append(torch.autograd.grad(decision, list(sides.values()), weight))
    for own, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-8, atol=1e-9)
    layer = InTorch(example.program)
    assert layer(example.y[:0]).shape == (0, example.program.n)
    torch.testing.assert_close(layer(example.y.reshape(2, 2, -1)), layer(example.y).reshape(2, 2, -1))
    with pytest.raises(OptionError, match="converge for steps"):
        InTorch(example.program, 1.0, step=1.5).solve(example.y, Instance(q=torch.ones(4, example.program.n).double()))
