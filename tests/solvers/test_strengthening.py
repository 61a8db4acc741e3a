"""What is proven of a program whatever the costs: no decision is lost, and no bound is above the optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.base import Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.strengthening import Relaxation, Strength, find_links
from support import programs

PROGRAMS = {
    "facilities": programs.facility_location(6, 4),
    "knapsack": programs.knapsack(8),
    "general integers": Program(
        A=[[1, 2, 1, 0]], b=[5], G=[[3, -2, 0, 1], [-1, -1, -1, 0]], h=[4, -1.5], lower=-1, upper=[3, 4, 5, 2],
        integer=[0, 1, 3],
    ),
    "free below": Program(G=[[-1, -2], [1, -3]], h=[-2.5, 1], lower=[-np.inf, -5], upper=np.inf, integer=[1]),
}  # fmt: skip


def test_published_facilities_must_all_open() -> None:
    """Capacities are scaled to the demand and rounded up, so that none can be spared."""
    for name in ("CFL-50", "CFL-100"):
        problem = problem_named(name, seed=2)
        capacities, demand = problem.structure["capacities"], problem.structure["demands"].sum()
        assert (capacities.sum() - capacities < demand).all()
        strength = Strength.of(problem.program)
        assert strength.fixes_all(problem.program)
        assert (strength.lower[problem.program.integer] == 1).all()
        assert not len(strength.links.size), "nothing is left to switch"


def test_a_facility_that_may_stay_closed_is_not_fixed() -> None:
    program = programs.facility_location()
    strength = Strength.of(program)
    assert not strength.fixes_all(program)
    assert (strength.lower == program.lower).all()
    assert (strength.upper == program.upper).all()
    assert strength.fewest == 2, "one facility serves 0.7 of the demand"


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_optimal_decision_is_lost(name: str) -> None:
    program = PROGRAMS[name]
    strength = Strength.of(program)
    y = torch.rand(30, program.p, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    if name == "free below":
        y = y.abs()
        y[:, 1] += 2 * y[:, 0]
    w = HiGHS(program).solve(y).check((Status.OPTIMAL,)).decision.numpy()
    assert (w >= strength.lower - 1e-9).all()
    assert (w <= strength.upper + 1e-9).all()
    total = w[:, program.integer].sum(1)
    assert (total >= strength.fewest - 1e-9).all()
    assert (total <= strength.most + 1e-9).all()
    links = strength.links
    assert (w[:, links.variable] <= links.size * w[:, links.switch] + 1e-9).all()


def test_links_are_what_a_row_implies_and_does_not_state() -> None:
    G = [[2, 3, 0, -5, 0], [1, -1, 0, 0, -4], [0, 0, 4, 0, -4], [0, 0, 2, 0, -4]]
    program = Program(G=G, h=0, upper=[1, 2, 1.5, 1, 1], integer=[3, 4])
    links = find_links(program)
    # 3 · 2 and 2 · 1.5 against 5 and 4: the first row implies w_0 ≤ w_3, the last w_2 ≤ 1.5 w_4.
    found = sorted(zip(links.variable.tolist(), links.switch.tolist(), links.size.tolist(), strict=True))
    assert found == [(0, 3, 1.0), (2, 4, 1.5)]
    assert not len(find_links(replace(program, h=np.ones(4))).size), "only where a closed switch leaves nothing"
    assert not len(find_links(replace(program, lower=-1)).size)
    assert not len(find_links(program.relax()).size)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_any_prices_prove_a_bound(name: str, unit: float) -> None:
    """Weak duality, for prices of any sign, with the sum and the links as rows."""
    program, rng = PROGRAMS[name], np.random.RandomState(0)
    program = replace(program, A=unit * program.A, b=unit * program.b, G=unit * program.G, h=unit * program.h)
    strength = Strength.of(program)
    relaxation = Relaxation(program, strength)
    c = rng.uniform(0.5, 2, program.n)
    c[-1] += 5
    best = (
        HiGHS(replace(program, S=None, d=None, sense="minimize"))
        .solve(torch.tensor(c))
        .check((Status.OPTIMAL,))
        .objective.item()
    )
    relaxation.begin(c * relaxation.scales.columns, relaxation.sides)
    status, bound = relaxation.run()
    assert status is Status.OPTIMAL
    assert bound <= best + 1e-9 * abs(best)
    while relaxation.add_links(1e-6):
        status, stronger = relaxation.run()
        assert status is Status.OPTIMAL
        assert bound - 1e-9 <= stronger <= best + 1e-9 * abs(best)
    rows = relaxation.rows + relaxation.counted + len(relaxation.cuts)
    for _ in range(50):
        assert relaxation.bound(relaxation.c, rng.normal(size=rows))[0] <= best + 1e-9 * abs(best)


def test_infeasibility_is_proven() -> None:
    program = Program(A=[[1, 1.0]], b=[3], upper=1, integer=True)
    relaxation = Relaxation(program, Strength.none(program))
    relaxation.begin(np.ones(2), relaxation.sides)
    assert relaxation.run() == (Status.INFEASIBLE, np.inf)


def test_many_integers_are_left_alone() -> None:
    program = Program(G=np.ones((1, 80)), h=[3.5], upper=1, integer=True)
    strength = Strength.of(program)
    assert (strength.fewest, strength.most) == (-np.inf, np.inf)
    few = Program(G=np.ones((1, 8)), h=[3.5], upper=1, integer=True)
    assert Strength.of(few).most == 3
