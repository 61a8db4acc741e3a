"""HiGHS and Gurobi against SCIP, which shares no code with either: statuses and objectives agree on random programs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyscipopt
import pytest
import torch

from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.model import ModelSolver

STATUSES = {"optimal": Status.OPTIMAL, "infeasible": Status.INFEASIBLE, "unbounded": Status.UNBOUNDED}


def scip(program: Program, c: np.ndarray, b: np.ndarray, h: np.ndarray, upper: np.ndarray) -> tuple[Status, float]:
    """How SCIP ends, and the optimum."""
    model = pyscipopt.Model()
    model.hideOutput()
    model.setParam("numerics/feastol", 1e-9)  # its default lets objectives differ in the sixth digit
    finite = lambda value: float(value) if np.isfinite(value) else None  # noqa: E731
    w = [
        model.addVar(lb=finite(low), ub=finite(high), vtype="I" if integer else "C", obj=float(cost))
        for low, high, integer, cost in zip(program.lower, upper, program.integer, c, strict=True)
    ]
    for row, side in zip(program.A.toarray(), b, strict=True):
        model.addCons(pyscipopt.quicksum(a * v for a, v in zip(row, w, strict=True)) == float(side))
    for row, side in zip(program.G.toarray(), h, strict=True):
        model.addCons(pyscipopt.quicksum(a * v for a, v in zip(row, w, strict=True)) <= float(side))
    model.optimize()
    found = model.getStatus()
    if found == "inforunbd":  # unbounded where any decision exists
        status, _ = scip(program, np.zeros_like(c), b, h, upper)
        return (Status.UNBOUNDED if status is Status.OPTIMAL else status), np.nan
    status = STATUSES[found]
    return status, model.getObjVal() if status is Status.OPTIMAL else np.nan


def random_program(rng: np.random.RandomState) -> Program:
    """Some equations, some inequalities, bounds of every kind, small integers or normal numbers as coefficients."""
    n, equalities, inequalities = rng.randint(2, 9), rng.randint(0, 3), rng.randint(0, 5)
    integer = rng.rand(n) < rng.choice([0.0, 0.5, 1.0], p=[0.5, 0.25, 0.25])
    # Integer data make degenerate vertices and tied optima. An equation in integers with other coefficients has no
    # answer but one that depends on tolerances.
    whole = rng.rand() < 0.5 or integer.any()

    def numbers(*shape: int) -> np.ndarray:
        return rng.randint(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)

    A, G = numbers(equalities, n), numbers(inequalities, n)
    A, G = A[np.abs(A).any(1)], G[np.abs(G).any(1)]
    # Integers are bounded: branching on unbounded ones need not end.
    lower = np.where((rng.rand(n) < 0.15) & ~integer, -np.inf, -rng.randint(0, 3, n))
    upper = np.where((rng.rand(n) < 0.25) & ~integer, np.inf, rng.randint(1, 4, n))
    inside = rng.randint(-1, 3, n).clip(lower, upper)
    b, h = A @ inside, G @ inside + rng.randint(0, 2, len(G))
    if rng.rand() < 0.3:
        b, h = b + numbers(len(A)), h - rng.randint(0, 6, len(G))  # perhaps infeasible
    return Program(A=A, b=b, G=G, h=h, lower=lower, upper=upper, d=numbers(n), integer=integer)


class Case(NamedTuple):
    """A program, two instances with costs and sides of their own, and what SCIP says about each."""

    program: Program
    y: torch.Tensor
    instance: Instance
    known: list[tuple[Status, float]]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    rng = np.random.RandomState(0)
    drawn = []
    for _ in range(120):
        program = random_program(rng)
        y = rng.normal(size=(2, program.p))
        h, upper = program.h + rng.randint(0, 2, (2, len(program.h))), program.upper + rng.randint(0, 2, (2, 1))
        known = [scip(program, y[i] + program.d, program.b, h[i], upper[i]) for i in range(2)]
        drawn.append(Case(program, torch.tensor(y), Instance(h=torch.tensor(h), upper=torch.tensor(upper)), known))
    return drawn


def test_the_sample_holds_every_kind(cases: list[Case]) -> None:
    seen = Counter(status for case in cases for status, _ in case.known)
    assert min(seen[status] for status in STATUSES.values()) >= 10, f"the sample is too one-sided to prove much: {seen}"
    assert sum(case.program.is_integer for case in cases) >= 25
    assert sum(case.program.A.shape[0] > 0 for case in cases) >= 25
    assert sum(bool(np.isinf(case.program.lower).any()) for case in cases) >= 25


@pytest.mark.parametrize("make", [HiGHS, Gurobi])
def test_random_programs(make: type[ModelSolver], cases: list[Case]) -> None:
    for number, (program, y, instance, known) in enumerate(cases):
        answer = make(program).solve(y, instance)
        for i, (status, optimum) in enumerate(known):
            assert Status(int(answer.status[i])) is status, (number, i, program)
            if status is Status.OPTIMAL:
                assert float(answer.objective[i]) == pytest.approx(optimum, rel=1e-6, abs=1e-6), (number, i, program)
        optimal = answer.status == Status.OPTIMAL
        assert (program.violation(answer.decision, instance)[optimal] <= 1e-6).all(), (number, program)
