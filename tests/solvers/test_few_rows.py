"""Programs with few rows: the simplex method and the enumeration against HiGHS, and against every decision there is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from dflearn.program import Instance, Program
from dflearn.solvers import structured
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.structured import FewRowBinary, FewRowLP
from support import programs


@pytest.mark.parametrize("kind", [FewRowLP, FewRowBinary])
@pytest.mark.parametrize("items", [5, 40, 150])
@pytest.mark.parametrize("dimensions", [1, 2, 4])
def test_knapsacks_against_highs(kind: type[FewRowLP] | type[FewRowBinary], items: int, dimensions: int) -> None:
    whole = kind is FewRowBinary
    program = programs.knapsack(items, dimensions) if whole else programs.knapsack(items, dimensions).relax()
    rng = np.random.RandomState(items)
    for values in (rng.uniform(-1, 5, (6, items)), np.ceil(rng.uniform(0, 5, (6, items)))):  # the second with many ties
        y = torch.tensor(values)
        answer = kind(program).solve(y).check((Status.OPTIMAL,))
        best = HiGHS(program).solve(y).check((Status.OPTIMAL,))
        accuracy = 1e-9 if whole else 1e-11
        torch.testing.assert_close(answer.objective, best.objective, rtol=accuracy, atol=accuracy)
        torch.testing.assert_close(answer.objective, answer.bound)
        assert program.violation(answer.decision).max() <= (1e-9 if whole else 1e-12)
        fractions = ((answer.decision > 0) & (answer.decision < 1)).sum(-1)
        assert fractions.max() <= (0 if whole else dimensions), "a vertex has at most one fraction for each row"


# -- linear programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"G": np.ones((3, 4)), "h": [2, 2, 2]},  # the same row three times
        {"A": np.ones((2, 4)), "b": [2, 2]},
        {"A": [[1, 1, 1, 1], [2, 2, 2, 2]], "b": [2, 4]},
        {"G": np.vstack([np.eye(4), np.ones((1, 4))]), "h": [1, 1, 1, 1, 2]},  # rows that are bounds
        {"G": [[1, 1, 1, 1]], "h": [0]},  # a single decision
        {"G": [[1e-6, 1e6, 1, 1]], "h": [1]},
        {"A": [[1, -1, 1, -1]], "b": [0], "lower": [0, 0, 1, 1]},  # fixed variables
    ],
)
def test_degenerate_rows(arguments: dict[str, Any]) -> None:
    program = Program(**arguments, upper=1)
    y = torch.tensor(list(itertools.product([-1.0, 0.0, 1.0], repeat=4)), dtype=torch.float64)  # ties everywhere
    solver = FewRowLP(program)
    answer, best = solver.solve(y).check((Status.OPTIMAL,)), HiGHS(program).solve(y).check((Status.OPTIMAL,))
    torch.testing.assert_close(answer.objective, best.objective, rtol=1e-7, atol=1e-7)
    assert program.violation(answer.decision).max() <= 1e-9


def test_highs_solves_instances_with_infinite_bounds() -> None:
    solver = FewRowLP(programs.knapsack(3).relax())
    own, y = Instance(upper=torch.full((1, 3), torch.inf)), torch.ones(1, 3)
    found, wanted = solver.solve(y, own), solver.general.solve(y, own)
    torch.testing.assert_close(found.objective, wanted.objective)


# -- yes or no ------------------------------------------------------------------------------------------------------


def best_of_all(program: Program, y: torch.Tensor, lower: np.ndarray, upper: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The least objective over every decision within the bounds; infinite where none is feasible."""
    every = np.array(list(itertools.product(*({low, high} for low, high in zip(lower, upper, strict=True)))))
    feasible = every[(every @ program.G.T <= h + 1e-9).all(1)]
    values = y.numpy() @ feasible.T
    return values.min(1) if len(feasible) else np.full(len(y), np.inf)


@pytest.mark.parametrize("seed", range(12))
def test_any_rows_against_every_decision(seed: int) -> None:
    """Rows, costs and sides of both signs, fixed variables, bounds other than 0 and 1, infeasible instances."""
    rng = np.random.RandomState(seed)
    n, m = rng.randint(1, 9), rng.randint(0, 4)
    rows = rng.choice([-2.0, -1, -0.5, 0, 0.5, 1, 3], (m, n)) if seed % 2 else rng.normal(size=(m, n))
    lower = rng.choice([-1.0, 0, 0, 2], n)
    upper = lower + rng.choice([0.0, 1, 1, 1], n)
    program = Program(n=n, G=rows, h=np.zeros(m), lower=lower, upper=upper, integer=True)
    y = torch.tensor(np.vstack([rng.normal(size=(20, n)), rng.randint(-2, 3, (20, n)), np.zeros((1, n))]))
    h = rng.normal(size=(len(y), m)) * 2
    answer = FewRowBinary(program).solve(y, Instance(h=torch.tensor(h)) if m else None)
    for i in range(len(y)):
        (wanted,) = best_of_all(program, y[i : i + 1], lower, upper, h[i])
        if np.isinf(wanted):
            assert answer.status[i] == Status.INFEASIBLE
        else:
            assert answer.status[i] == Status.OPTIMAL
            assert float(answer.objective[i]) == pytest.approx(wanted, abs=1e-9)
            assert (rows @ answer.decision[i].numpy() <= h[i] + 1e-8).all()


def test_what_takes_too_long_is_left_to_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.knapsack(30)
    y = torch.rand(6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    own = Instance(h=torch.tensor(program.h) * torch.linspace(0.2, 1, 6, dtype=torch.float64)[:, None])
    wanted = FewRowBinary(program).solve(y, own)
    for steps in (0, 20):
        monkeypatch.setattr(structured, "STEPS", steps)
        answer = FewRowBinary(program).solve(y, own).check((Status.OPTIMAL,))
        torch.testing.assert_close(answer.objective, wanted.objective, rtol=1e-6, atol=1e-6)
