"""`check_layer` on every layer over every kind of program, and proof that it notices broken layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from closed_form_layers import SmoothedBox, SmoothedTopOne, top_one
from dflearn.layers import CvxpySmoothed, Exact, Layer, Perturbed, Smoothed
from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solution
from dflearn.solvers.highs import HiGHS
from dflearn.testing.layers import check_layer

COUNT = 4


@dataclass(frozen=True)
class Example:
    program: Program
    y: Tensor
    instance: Instance | None = None


def costs(seed: int, p: int) -> Tensor:
    return torch.tensor(np.random.RandomState(seed).normal(size=(COUNT, p)))


def positive(seed: int, *shape: int) -> Tensor:
    return torch.tensor(np.random.RandomState(seed).uniform(0.5, 1.5, (COUNT, *shape)))


def box() -> Example:
    rng = np.random.RandomState(0)
    program = Program(lower=[-1, 0, 0, 2], upper=[1, 2, 0.5, 2], S=rng.normal(size=(4, 3)), d=rng.normal(size=4))
    return Example(program, costs(1, 3), Instance(upper=positive(2, 4) * 3, d=costs(3, 4)))


def simplex() -> Example:
    return Example(Program(A=np.ones((1, 6)), b=[1]), costs(4, 6), Instance(b=positive(5, 1)))


def knapsack() -> Example:
    weights = np.random.RandomState(6).uniform(3, 8, (2, 7))
    program = Program(G=weights, h=0.4 * weights.sum(1), upper=1, S=-np.eye(7), integer=True, sense="maximize")
    return Example(program, positive(7, 7) * 2, Instance(h=positive(8, 2) * 12, upper=positive(9, 7)))


def facility_location() -> Example:
    problem = problem_named("CFL-4x2")
    return Example(problem.program, problem.generate(COUNT, dtype=torch.float64).batch().require("costs"))


def shortest_path() -> Example:
    problem = problem_named("SP-3")
    return Example(problem.program, problem.generate(COUNT, dtype=torch.float64).batch().require("costs"))


def free_variables() -> Example:
    """Free, fixed and one-sided variables between rows that bound them, with one equality written three times."""
    rng = np.random.RandomState(10)
    A = np.array([[1.0, 1, 1, 0, 0], [2, 2, 2, 0, 0], [0, 0, 1, 1, 0], [1, 1, 2, 1, 0]])
    rows = np.vstack([np.eye(5), -np.eye(5), np.ones((2, 5))])
    program = Program(
        A=A,
        b=A @ np.full(5, 0.3),
        G=rows,
        h=np.concatenate([np.full(10, 2.0), [1.5, 1.5]]),
        lower=[-np.inf, 0, -np.inf, -1, 0.3],
        upper=[np.inf, np.inf, 2, np.inf, 0.3],
        S=rng.normal(size=(5, 4)),
    )
    level = positive(11, 1)
    b = level * torch.tensor(A @ np.full(5, 0.3))
    upper = torch.full((COUNT, 5), torch.inf).double()
    upper[:2, 2], upper[:, 4] = 2, 0.3
    return Example(program, costs(12, 4), Instance(b=b, upper=upper))


PROGRAMS = {f.__name__: f for f in (box, simplex, knapsack, facility_location, shortest_path, free_variables)}
LAYERS: dict[str, tuple[Callable[[Program], Layer], dict[str, Any]]] = {
    "Exact": (lambda program: Exact(HiGHS(program.relax())), {"exact_gradient": True}),
    "Exact, integer": (lambda program: Exact(HiGHS(program)), {}),
    "Perturbed": (lambda program: Perturbed(HiGHS(program.relax()), sigma=0.5, samples=3), {"random": True}),
    "Smoothed": (lambda program: Smoothed(program, 0.7), {"exact_gradient": True, "tolerance": 1e-8}),
    "Smoothed, norm": (
        lambda program: Smoothed(program, 0.7, regularizer="norm"),
        {"exact_gradient": True, "tolerance": 1e-8},
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


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_layers_keep_the_contract(layer: str, program: str) -> None:
    make, promises = LAYERS[layer]
    example = PROGRAMS[program]()
    check_layer(make(example.program), example.program, y=example.y, instance=example.instance, **promises)
    if example.instance is not None:
        check_layer(make(example.program), example.program, y=example.y, **promises)
