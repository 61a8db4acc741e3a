"""Quadratic programs against Clarabel, against enumeration, and in units from 1e-6 to 1e6."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from dflearn.errors import MissingExtraError, ProgramError
from dflearn.program import Instance, Program, Quadratic
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.scip import SCIP
from dflearn.solvers.task import DecisionTask, best_solver
from dflearn.testing.optimality import check_optimal
from support import programs
from support.reference import clarabel_smoothed


class Random(NamedTuple):
    """A random program, costs, and the units that its decisions and its costs are in."""

    program: Program
    c: np.ndarray
    decision_unit: float
    cost_unit: float


def random_program(seed: int) -> Random:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    A, G = (rng.normal(size=(int(rng.integers(0, n)), n)) * (rng.random((1, n)) < 0.6) for _ in range(2))
    A, G = (part[: len(part) // (3 if part is A else 1)] for part in (A, G))
    A, G = (part[(part != 0).any(1)] for part in (A, G))
    inside = rng.uniform(0, 1, n)
    loose = rng.uniform(0, 1, len(G)) * (rng.random(len(G)) < 0.7)  # some rows bind at a point that others hold at, too
    R, delta = rng.normal(size=(int(rng.integers(0, n + 1)), n)), rng.uniform(0, 1, n) * (rng.random(n) < 0.3)
    upper = np.where(rng.random(n) < 0.5, 1.0, np.inf)
    upper[0] = 1.0
    lower = np.full(n, -1.0 if seed % 5 == 0 else 0.0)
    unit, price = (10.0 ** rng.integers(-6, 7) for _ in range(2)) if seed % 2 else (1.0, 1.0)
    program = Program(
        A=A,
        b=unit * (A @ inside),
        G=G,
        h=unit * (G @ inside + loose),
        lower=unit * lower,
        upper=unit * upper,
        Q=Quadratic(R * np.sqrt(price / unit), delta * price / unit),
        n=n,
    )
    return Random(program, rng.normal(size=n), unit, price)


def by_clarabel(case: Random) -> tuple[str, float]:
    """Status and optimum in plain units, by another solver."""
    program, unit = case.program, case.decision_unit
    Q = np.zeros((program.n,) * 2) if program.Q is None else program.Q.matrix.toarray() * (unit / case.cost_unit)
    plain = replace(program, Q=Q)
    sides = Sides(*(getattr(program, name) / unit for name in ("b", "h", "lower", "upper")))
    status, w = clarabel_smoothed(plain, case.c, 0.0, sides, "squared")
    return status, float(case.c @ w + 0.5 * w @ Q @ w)


@pytest.mark.parametrize("seed", range(26))
def test_against_clarabel(seed: int) -> None:
    case = random_program(seed)
    y = torch.tensor(case.c * case.cost_unit)
    found = HiGHS(case.program).solve(y)
    status, optimum = by_clarabel(case)
    if status == "DualInfeasible":
        assert found.status == int(Status.UNBOUNDED)
        return
    assert status in ("Solved", "AlmostSolved")
    assert found.status == int(Status.OPTIMAL)
    value = case.decision_unit * case.cost_unit
    assert float(found.objective) / value == pytest.approx(optimum, rel=1e-7, abs=1e-7)
    assert float(found.bound) <= float(found.objective)
    assert float(found.bound) / value == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    check_optimal(found, y, case.program)


@pytest.mark.parametrize("room", [0.2, 0.25, 1.0])
def test_corners(room: float) -> None:
    """Where all variables are at bounds, the face says nothing about the price of the row that they add up in."""
    rng = np.random.default_rng(0)
    Q = Quadratic(0.2 * rng.normal(size=(3, 20)), rng.uniform(0.01, 0.1, 20))
    program = Program(A=np.ones((1, 20)), b=[1.0], upper=room, Q=Q)
    y = torch.tensor(rng.normal(size=(20, 20)))
    found = HiGHS(program).solve(y).check()
    at_bounds = (found.decision == 0) | (found.decision == room)
    assert int(at_bounds.all(-1).sum()) >= 5
    check_optimal(found, y, program)


def test_a_row_that_hardly_binds() -> None:
    """Output follows a load within ramps; one of them has a price of 1e-6 of the others', and the interior point cannot tell."""
    # fmt: off
    load = [
        8.406000822553, 8.004221186486, 7.697224153637, 7.625377129363, 7.764016862387, 8.052106906552,
        8.529804021353, 9.239181883567, 10.026173357550, 10.958936077606, 12.119707149034, 13.366481405315,
        14.670435711855, 15.799433078826, 16.464913493255, 16.848088039445, 16.619669752718, 15.640763347414,
        14.486417698551, 13.619674599722, 12.216641579561, 11.118470054885, 10.218695470907, 9.415468767669,
    ]
    # fmt: on
    steps = np.eye(24)[1:] - np.eye(24)[:-1]
    program = Program(
        A=np.eye(24), b=load, G=np.vstack([steps, -steps]), h=1.0, d=np.ones(24), S=np.zeros((24, 1)), Q=0.05 * np.eye(24)
    ).elastic([("b", t) for t in range(24)], (0.5, 8.0))  # fmt: skip
    y = torch.zeros(1, dtype=torch.float64)
    found = HiGHS(program).solve(y).check()
    check_optimal(found, y, program)


def test_fixed_variables_and_instances() -> None:
    program = programs.portfolio()
    y = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = HiGHS(program).solve(y).check((Status.OPTIMAL,))
    held = first.decision.clone()
    half = torch.arange(8) < 4
    lower, upper = (torch.where(half, held, torch.tensor(side)) for side in (program.lower, program.upper))
    again = HiGHS(program).solve(y, Instance(lower=lower, upper=upper)).check((Status.OPTIMAL,))
    torch.testing.assert_close(again.decision, first.decision, rtol=1e-7, atol=1e-9)
    point = HiGHS(program).solve(y, Instance(lower=held, upper=held))
    torch.testing.assert_close(point.objective, first.objective)
    nothing = HiGHS(program).solve(y, Instance(b=torch.full((3, 1), -1.0)))
    assert nothing.status.tolist() == [int(Status.INFEASIBLE)] * 3


def test_large_and_sparse() -> None:
    """More unknowns than are solved dense, a factor model among them."""
    rng = np.random.default_rng(0)
    n = 300
    loadings = rng.normal(size=(5, n))
    program = Program(A=np.ones((1, n)), b=[1], Q=Quadratic(loadings, rng.uniform(0.1, 1, n)))
    y = torch.tensor(rng.normal(size=(2, n)))
    found = HiGHS(program).solve(y).check((Status.OPTIMAL,))
    case = Random(program, y[0].numpy(), 1.0, 1.0)
    assert float(found.objective[0]) == pytest.approx(by_clarabel(case)[1], rel=1e-8)
    check_optimal(found, y, program)


# -- integers -----------------------------------------------------------------------------------------------------


def by_enumeration(program: Program, c: np.ndarray) -> float:
    """The optimum over all integer points, the continuous variables of each by `HiGHS`."""
    best = np.inf
    integers = np.flatnonzero(program.integer)
    solver = HiGHS(program.relax())
    for point in itertools.product(*(range(int(program.lower[j]), int(program.upper[j]) + 1) for j in integers)):
        lower, upper = program.lower.copy(), program.upper.copy()
        lower[integers] = upper[integers] = point
        fixed = Instance(lower=torch.tensor(lower), upper=torch.tensor(upper))
        found = solver.solve(torch.tensor(c), fixed)
        if found.status == int(Status.OPTIMAL):
            best = min(best, float(found.objective))
    return best


@pytest.mark.parametrize("make", [Gurobi, SCIP])
def test_integers_against_enumeration(make: type[Gurobi] | type[SCIP]) -> None:
    program = replace(programs.lots(), upper=np.array([2.0, 2, 1, 4, 4]))
    y = torch.rand(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = [by_enumeration(program, row.numpy()) for row in y]
    for unit in (1e-6, 1.0, 1e6):
        assert program.Q is not None
        scaled = replace(program, Q=Quadratic(program.Q.factor * np.sqrt(unit), program.Q.diagonal * unit))
        found = make(scaled).solve(y * unit).check((Status.OPTIMAL,))
        assert (found.objective / unit).tolist() == pytest.approx(wanted, rel=1e-6)


def test_who_solves_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    program = programs.lots()
    assert isinstance(best_solver(program), Gurobi)
    assert isinstance(DecisionTask.of(program).relaxed, HiGHS)
    with pytest.raises(ProgramError, match=r"use Gurobi\(program\) or SCIP"):
        HiGHS(program)

    def missing(self: Solver, program: Program) -> None:
        raise MissingExtraError("not here")

    monkeypatch.setattr(Gurobi, "__init__", missing)
    assert isinstance(best_solver(program), SCIP)
    monkeypatch.setattr(SCIP, "__init__", missing)
    with pytest.raises(MissingExtraError, match="install Gurobi"):
        best_solver(program)


def test_a_face_without_unknowns_asks_lapack_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Both variables at their bounds and no row: the system on that face is empty, which LAPACK would complain of."""
    program = Program(upper=1.0, n=2, Q=np.eye(2))
    answer = HiGHS(program).solve(torch.tensor([[5.0, -5.0]], dtype=torch.float64))
    torch.testing.assert_close(answer.decision, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    assert "DGETRF" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("program", "y", "wanted"),
    [
        (  # what R w is summed from cancels: rounding is all that is left of a gradient
            Program(
                A=[[0, 1, 1, 0, 0, 4]], b=[6], G=[[0, -3, -1, 0, -4, 4]], h=[-4], lower=[-2, 0, 0, -2, 0, 0], upper=[1, 2, 1, -1, 4, 4],
                Q=[[12, 1, -6, -4, 3, 3], [1, 7.25, 3, -2.5, 4, -4.5], [-6, 3, 5, 1, 1, -3.5], [-4, -2.5, 1, 2, -2, 0.5],
                   [3, 4, 1, -2, 4.25, -1], [3, -4.5, -3.5, 0.5, -1, 4.25]],
            ),
            [0, 3, 1, -2, 1, -4],
            [-4 / 3, 0, 0, -1, 2.5, 1.5],
        ),
        (  # the one feasible point is zero, and all sides that hold it there are zero
            Program(
                A=[[0.625, 0, 0], [-3.375, 1.875, 1]], b=[0, 0], lower=[-1, -1, 0], upper=[3, 3, 2], Q=np.diag([2.25, 9, 0]),
                G=[[-3.625, -3, 1.875], [-3.375, -3.25, 2.875], [3.5, -2.375, 0.875]], h=[1, 0, 1],
            ),
            [2.375, -1.625, -2.375],
            [0, 0, 0],
        ),
        (  # a variable without costs, in a row whose price is zero
            Program(A=[[19, -22, 0, 14, 12, -31]], b=[42], lower=[0, 0, 0, 0, 0, -2], upper=[3, 3.5, 3, 1, 3, -1],
                    Q=np.diag([6.57, 4.16, 4.13, 1.54, 0, 7.75])),
            [-1, 1.875, 3.375, 0.5, 0, 3.125],
            [1 / 6.57, 0, 0, 0, (42 - 31 - 19 / 6.57) / 12, -1],
        ),
    ],
)  # fmt: skip
def test_answers_of_which_only_rounding_is_left(program: Program, y: list[float], wanted: list[float]) -> None:
    """Right to the last digit, and called optimal: relative to terms that are zero, any rounding is an error of size one."""
    found = HiGHS(program).solve(torch.tensor(y, dtype=torch.float64)).check((Status.OPTIMAL,))
    np.testing.assert_allclose(found.decision, wanted, atol=1e-8)


def test_scip_proves_small_optima() -> None:
    """The tolerance of the curved part is absolute: 5e-4 and 8e-2 beside a curvature of 2 and 72. Both by hand."""
    switch = Program(G=[[0, 3]], h=[-3], lower=[0, -1], upper=[2, 0], integer=True, Q=np.diag([2.0625, 2.0**-10]))
    bent = np.array([35.0, 34, 66, 72.3125, 40.75, 29])
    mixed = Program(
        G=[[3, -3, 2, 4, -3, 0]], h=[2.75], lower=[0, 0, 0, 0, -1, 0], upper=[1, 2, 1, 1, np.inf, np.inf],
        integer=[0, 2], Q=np.diag(bent),
    )  # fmt: skip
    for program, costs, wanted in (
        (switch, [-1.0, 0], [0, -1]),
        (mixed, [3.0, 0, 0, -2, -2, 4], [0, 0, 0, 2 / 72.3125, 2 / 40.75, 0]),
    ):
        found = SCIP(program).solve(torch.tensor(costs, dtype=torch.float64)).check((Status.OPTIMAL,))
        np.testing.assert_allclose(found.decision, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("make", [Gurobi, SCIP])
def test_independent_parts_are_solved_apart_where_the_whole_is_not_proven(make: type[Gurobi] | type[SCIP]) -> None:
    """Costs of 1e8 beside 1e-8: no tolerance of a back end sees both."""
    small = np.array([[2.9, 0.5, 1.9], [0.5, 2.5, 0.5], [1.9, 0.5, 1.8]]) * 1e-8
    Q = np.zeros((4, 4))
    Q[:3, :3], Q[3, 3] = small, 1e9
    c = torch.tensor([[-3e-8, 3e-8, 1.5e-8, 3e8], [3e-8, -9e-8, 1.5e-8, -3e8]], dtype=torch.float64)
    upper = [2, 2, 2, 1]
    program = Program(G=[[-4, -1, 4, 0], [4, -3, 1, 0], [0, 0, 0, 1]], h=[-4, 2, 1.5], upper=upper, integer=True, Q=Q)
    found = make(program).solve(c).check((Status.OPTIMAL,))
    points = np.array(list(itertools.product(*(range(most + 1) for most in upper))), float)
    points = points[(program.h[:, None] >= program.G @ points.T).all(0)]
    for costs, w in zip(c.numpy(), found.decision.numpy(), strict=True):
        values = [points[:, part] @ costs[part] + 0.5 * np.einsum("ij,jk,ik->i", points[:, part], Q[part][:, part], points[:, part])
                  for part in (slice(0, 3), slice(3, 4))]  # fmt: skip
        best = points[values[0].argmin(), :3], points[values[1].argmin(), 3:]
        np.testing.assert_array_equal(w, np.concatenate(best))
