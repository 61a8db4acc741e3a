"""Answers do not depend on the units of costs, rows and decisions, from 10⁻⁸ to 10⁸: layers, exact solvers and oracles.

Against the answer in ordinary units, relative to the largest decision. Powers of ten, so that the numbers themselves are rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.layers import Smoothed
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers import FewRowLP, Gurobi, HiGHS
from dflearn.solvers.base import Solution, Status
from dflearn.solvers.oracles import DagShortestPath

COUNT = 4
FACTORS = (1e-8, 1e8)
Answer = Callable[[Program, torch.Tensor, float, float], Solution]

WAYS: dict[str, Answer] = {
    "Smoothed": lambda program, y, cost, decision: Smoothed(program, 0.5 * cost / decision).solve(y),
    "Smoothed, norm": lambda program, y, cost, decision: Smoothed(program, 0.5 * cost, regularizer="norm").solve(y),
    "HiGHS": lambda program, y, cost, decision: HiGHS(program).solve(y),
    "few rows": lambda program, y, cost, decision: FewRowLP(program).solve(y),
    "Gurobi": lambda program, y, cost, decision: Gurobi(program).solve(y),
}


def with_units(program: Program, cost: float, rows: np.ndarray, decision: float) -> Program:
    """The same program: w in units of 1/decision, c in units of 1/cost, each row times a factor."""
    left, right = np.split(rows, [program.A.shape[0]])
    return Program(
        A=sp.diags_array(left) @ program.A,
        b=decision * left * program.b,
        G=sp.diags_array(right) @ program.G,
        h=decision * right * program.h,
        lower=decision * program.lower,
        upper=decision * program.upper,
        S=program.S,
        d=None if program.d is None else cost * program.d,
        n=program.n,
    )


def worst(name: str, way: Answer, factor: float) -> dict[str, float]:
    """Unit → the largest difference."""
    problem = problem_named(name, seed=1)
    program, y = problem.program.relax(), problem.generate(COUNT, dtype=torch.float64).batch().require("costs")
    usual = way(program, y, 1.0, 1.0).check((Status.OPTIMAL,)).decision
    count = program.A.shape[0] + program.G.shape[0]
    mixed = np.where(np.arange(count) % 2, factor, 1.0)
    units = {"costs": (factor, np.ones(count), 1.0), "decisions": (1.0, np.ones(count), factor)}
    units |= {"rows": (1.0, mixed, 1.0), "all": (factor, mixed, 1 / factor)}
    found = {}
    for unit, (cost, rows, decision) in units.items():
        answer = way(with_units(program, cost, rows, decision), cost * y, cost, decision).check((Status.OPTIMAL,))
        found[unit] = float((answer.decision / decision - usual).abs().max() / usual.abs().max())
    return found


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in ("SP-5", "KP-20", "CFL-50") for way in WAYS if way != "few rows" or name == "KP-20"],
)
def test_units(name: str, way: str, factor: float) -> None:
    differences = worst(name, WAYS[way], factor)
    assert max(differences.values()) <= 1e-9, differences


@pytest.mark.parametrize("factor", FACTORS)
def test_units_of_costs_of_paths(factor: float) -> None:
    problem = problem_named("SP-5", seed=1)
    solver, y = problem.relaxed_solver(), problem.generate(COUNT, dtype=torch.float64).batch().require("costs")
    assert isinstance(solver, DagShortestPath)
    assert torch.equal(solver.solve(factor * y).decision, solver.solve(y).decision)
