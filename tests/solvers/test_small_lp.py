"""Small linear programs: the simplex method against HiGHS, in any units, and what is left to HiGHS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dflearn.program import Instance, Program
from dflearn.solvers import HiGHS, SmallLP
from dflearn.solvers.base import Status
from support import programs


def draw(rng: np.random.Generator, rows: int, equations: int, n: int, *, whole: bool = False) -> Program:
    """A feasible program with bounds of every kind, sparse rows, and, of whole numbers, many ties."""
    M = rng.integers(-2, 3, (rows + equations, n)).astype(float) if whole else rng.normal(size=(rows + equations, n))
    M *= rng.random(M.shape) < 0.5
    M[~M.any(1), 0] = 1.0
    inside = rng.integers(0, 3, n).astype(float) if whole else rng.uniform(0, 2, n)
    lower = np.where(rng.random(n) < 0.2, -np.inf, np.where(rng.random(n) < 0.15, inside, 0.0))
    upper = np.where(rng.random(n) < 0.6, np.maximum(inside, 2.0), np.where(rng.random(n) < 0.15, inside, np.inf))
    room = rng.integers(0, 2, rows) if whole else rng.random(rows)
    A, G = M[:equations], M[equations:]
    return Program(A=A, b=A @ inside, G=G, h=G @ inside + room, lower=lower, upper=upper, n=n)


def transport(sources: int, sinks: int, rng: np.random.Generator) -> Program:
    demand = rng.integers(1, 9, sinks).astype(float)
    return Program(
        A=np.kron(np.ones((1, sources)), np.eye(sinks)),
        b=demand,
        G=np.kron(np.eye(sources), np.ones((1, sinks))),
        h=np.full(sources, np.ceil(demand.sum() / sources)),
    )


def assignment(size: int) -> Program:
    rows = np.vstack([np.kron(np.eye(size), np.ones((1, size))), np.kron(np.ones((1, size)), np.eye(size))])
    return Program(A=rows, b=np.ones(2 * size), name="assignment")


def agrees(program: Program, y: torch.Tensor, instance: Instance | None = None) -> dict[str, int]:
    """The same statuses and optima as those of HiGHS, at feasible decisions; how many of each status."""
    found, best = SmallLP(program).solve(y, instance), HiGHS(program).solve(y, instance)
    assert found.status.tolist() == best.status.tolist()
    terms = (program.objective.vector(y.double(), instance) * best.decision).abs().sum(-1)
    off = (found.objective - best.objective).abs()
    solved = best.status == Status.OPTIMAL
    assert (off[solved] <= 1e-9 * terms[solved].clamp(min=1e-300)).all()
    assert torch.equal(found.decision.isnan().any(-1), ~solved)
    sides = program.sides(program.realize(y, instance), len(y))
    errors = SmallLP(program).certifier.violation(
        found.decision[solved].numpy(), sides.rows(solved.numpy().nonzero()[0])
    )
    assert errors.max(initial=0.0) <= 1e-8
    assert (found.bound <= found.objective)[solved].all()
    return found.counts()


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 8),
    st.integers(0, 4),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from([1e-6, 1e-3, 1.0, 1e3, 1e6]),
)
def test_any_program_has_the_optimum_and_the_status_of_highs(
    seed: int, rows: int, equations: int, n: int, whole: bool, unit: float
) -> None:
    rng = np.random.default_rng(seed)
    program = draw(rng, rows, equations, n, whole=whole)
    y = rng.integers(-2, 3, (6, n)).astype(float) if whole else rng.normal(size=(6, n))
    agrees(program, torch.tensor(y * unit))


@pytest.mark.parametrize(
    "program",
    [
        programs.shortest_path(5),
        assignment(5),
        transport(4, 6, np.random.default_rng(0)),
        Program(A=[[1, 1, 1], [2, 2, 2], [1, 0, 0]], b=[2, 4, 1], upper=3),  # a row twice
        Program(n=3, lower=[-1, 0, 2], upper=[1, 0, 2]),  # no rows, fixed variables
        Program(A=[[1.0]], b=[2.0]),  # one decision
        Program(A=np.eye(3), b=[1, 2, 3], lower=-np.inf),  # nothing outside the basis
    ],
)
def test_degenerate_programs_and_ties(program: Program, asked: list[int]) -> None:
    rng = np.random.default_rng(1)
    y = np.vstack([rng.integers(0, 3, (15, program.n)), rng.random((15, program.n)), np.zeros((1, program.n))])
    assert agrees(program, torch.tensor(y)) == {"OPTIMAL": len(y)}
    solver = SmallLP(program)
    solver.solve(torch.tensor(y))
    asked.clear()
    solver.solve(torch.tensor(y))
    assert asked == [], "HiGHS has nothing to do"


def test_every_vertex_of_a_program_with_free_variables() -> None:
    """|x − p| + |y − q| and its like, with free x and y."""
    eye = np.eye(2)
    program = Program(
        G=np.vstack([np.hstack([eye, -eye]), np.hstack([-eye, -eye])]),
        h=[1, 2, -1, -2],
        lower=[-np.inf, -np.inf, 0, 0],
    )
    y = torch.tensor([[*pull, 1.0, 1.0] for pull in itertools.product([-2, -0.5, 0, 0.5, 1], repeat=2)])
    counts = agrees(program, y.double())
    assert counts["UNBOUNDED"] == 9
    assert counts["OPTIMAL"] == 16


def lots(products: int, periods: int, rng: np.random.Generator) -> Program:
    """What to produce when: set-ups, stock, one machine, overtime; the set-ups relaxed."""
    count, eye = products * periods, np.eye(products * periods)
    demand = np.where(rng.random(count) < 0.15, 0, rng.integers(20, 120, count))
    capacity, most = 1.3 * demand.mean() * products, 1.3 * demand.reshape(products, -1).sum(1).repeat(periods)
    before, shared = np.kron(np.eye(products), np.eye(periods, k=-1)), np.kron(np.ones(products), np.eye(periods))
    zero, over = 0 * eye, np.zeros((count, periods))
    stock, setup = rng.uniform(0.3, 2, products).repeat(periods), rng.integers(200, 2000, products).repeat(periods)
    upper = np.full(3 * count + periods, np.inf)
    upper[2 * count : 3 * count] = 1
    return Program(
        A=np.hstack([eye, before - eye, zero, over]),
        b=demand,
        G=np.block(
            [[eye, zero, -np.diag(most), over], [shared, 0 * shared, 0.05 * capacity * shared, -np.eye(periods)]]
        ),
        h=np.append(np.zeros(count), np.full(periods, capacity)),
        upper=upper,
        S=np.eye(3 * count + periods, count),
        d=np.concatenate([np.zeros(count), stock, setup, np.full(periods, 60)]),
    )


@pytest.mark.parametrize("seed", [11, 17])
def test_rounding_of_terms_that_cancel_breaks_no_bound(seed: int) -> None:
    """Stocks of −1e-33 sent lots to HiGHS."""
    rng = np.random.default_rng(seed)
    program = lots(2, 6, rng)
    y = torch.tensor(rng.uniform(8, 30, 2).repeat(6) * rng.normal(1, 0.1, (40, 12)))
    found = SmallLP(program).solve(y).check((Status.OPTIMAL,))
    assert found.fallback is not None
    assert not found.fallback.any()
    torch.testing.assert_close(found.objective, HiGHS(program).solve(y).objective)


def test_own_sides_are_those_of_highs() -> None:
    rng = np.random.default_rng(6)
    program = transport(4, 6, rng)
    demand = torch.tensor(rng.permuted(np.tile(program.b, (30, 1)), axis=1))
    assert agrees(program, torch.tensor(rng.random((30, 24))), Instance(b=demand)) == {"OPTIMAL": 30}


def test_a_program_without_decisions_may_have_instances_with_some() -> None:
    program = Program(A=[[1, 1, 1]], b=[9], G=[[1, -1, 0]], h=[0.5], upper=1)
    y = torch.rand(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert agrees(program, y) == {"INFEASIBLE": 4}
    assert agrees(program, y, Instance(b=torch.tensor([[1.0], [2.0], [3.0], [4.0]]).double())) == {
        "OPTIMAL": 3,
        "INFEASIBLE": 1,
    }


def test_a_basis_that_is_singular_but_for_rounding_is_left_to_highs() -> None:
    tiny = 2.0**-30
    program = Program(
        A=[[1, -2, -1], [-1, -2, -1], [tiny, -4, -2]], b=[-0.5, 1.5, 1],
        G=[[-4, 0, -3], [0, -4 * (1 + tiny / 4), tiny]], h=[6, 0], lower=[-1, 0, -1], upper=[0, 1, 1e12],
    )  # fmt: skip
    assert agrees(program, torch.zeros(1, 3, dtype=torch.float64))
