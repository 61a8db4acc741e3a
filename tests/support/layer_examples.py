"""Small programs of every kind, with costs and instances, on which layers keep their contract."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dflearn.problems import problem_named
from dflearn.program import Instance, Program
from support import programs

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
    return Example(
        programs.knapsack(7, 2, seed=6), positive(7, 7) * 2, Instance(h=positive(8, 2) * 12, upper=positive(9, 7))
    )


def of_problem(name: str) -> Example:
    problem = problem_named(name)
    return Example(problem.program, problem.generate(COUNT, dtype=torch.float64).batch().require("costs"))


def facility_location() -> Example:
    return of_problem("CFL-4x2")


def shortest_path() -> Example:
    return of_problem("SP-3")


def free_variables() -> Example:
    """Free, fixed and one-sided variables between rows that bound them, with one equality written three times.

    Right-hand sides are sums of few powers of two, so that dependent rows agree in single precision too.
    """
    rng = np.random.RandomState(10)
    A = np.array([[1.0, 1, 1, 0, 0], [2, 2, 2, 0, 0], [0, 0, 1, 1, 0], [1, 1, 2, 1, 0]])
    rows = np.vstack([np.eye(5), -np.eye(5), np.ones((2, 5))])
    program = Program(
        A=A,
        b=A @ np.full(5, 0.25),
        G=rows,
        h=np.concatenate([np.full(10, 2.0), [1.5, 1.5]]),
        lower=[-np.inf, 0, -np.inf, -1, 0.3],
        upper=[np.inf, np.inf, 2, np.inf, 0.3],
        S=rng.normal(size=(5, 4)),
    )
    level = (16 * positive(11, 1)).round() / 16
    b = level * torch.tensor(A @ np.full(5, 0.25))
    upper = torch.full((COUNT, 5), torch.inf).double()
    upper[:2, 2], upper[:, 4] = 2, 0.3
    return Example(program, costs(12, 4), Instance(b=b, upper=upper))


PROGRAMS = {f.__name__: f for f in (box, simplex, knapsack, facility_location, shortest_path, free_variables)}
