"""`Smoothed` and `DavisYin` in any units: the same answers, optimal row by row, whatever decisions, costs and rows are measured in."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
import torch

from dflearn.layers import DavisYin, Smoothed
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from dflearn.testing import check_optimal
from support.reference import COUNT, RandomCase, Regularizer, clarabel_smoothed, random_case

FACTORS = (1e-8, 1e-5, 1e-4, 1e8)


def in_units(case: RandomCase, decision: float, cost: float, rows: np.ndarray, regularizer: Regularizer) -> RandomCase:
    """The same program with w, c and each row measured in other units."""
    program, equalities = case.program, case.program.A.shape[0]
    factor = {"b": decision * rows[:equalities], "h": decision * rows[equalities:], "d": cost}
    factor |= {"lower": decision, "upper": decision}

    def scaled(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(values) * factor[name]

    A, G = (
        sp.diags_array(part) @ matrix
        for part, matrix in ((rows[:equalities], program.A), (rows[equalities:], program.G))
    )
    sides = {name: scaled(name, getattr(program, name)) for name in ("b", "h", "lower", "upper")}
    d = None if program.d is None else cost * program.d
    other = Program(A=A, G=G, S=program.S, d=d, n=program.n, **sides)
    instance = case.instance
    if instance is not None:
        instance = Instance(**{k: torch.tensor(scaled(k, v.numpy())) for k, v in instance.present().items()})
    mu = case.mu * cost / (decision if regularizer == "squared" else 1.0)
    return replace(case, program=other, y=cost * case.y, instance=instance, mu=mu)


@lru_cache
def reference(seed: int, i: int, regularizer: Regularizer) -> tuple[str, np.ndarray]:
    case = random_case(seed)
    c, sides = case.rows()[i]
    return clarabel_smoothed(case.program, c, case.mu, sides, regularizer)


@pytest.mark.parametrize("regularizer", ["squared", "norm"])
@pytest.mark.parametrize("unit", ["decisions", "costs", "rows"])
@pytest.mark.parametrize("factor", FACTORS)
def test_answers_do_not_depend_on_units(unit: str, factor: float, regularizer: Regularizer) -> None:
    compared = 0
    for seed in range(8000, 8012):
        case, rng = random_case(seed), np.random.RandomState(seed)
        rows = np.ones(case.program.A.shape[0] + case.program.G.shape[0])
        if unit == "rows":
            rows[rng.rand(len(rows)) < 0.5] = factor
        decision, cost = (factor if unit == "decisions" else 1.0), (factor if unit == "costs" else 1.0)
        other = in_units(case, decision, cost, rows, regularizer)
        solution = Smoothed(other.program, other.mu, regularizer=regularizer).solve(other.y, other.instance)
        for i in range(COUNT):
            found, w = reference(seed, i, regularizer)
            if found not in ("Solved", "AlmostSolved") or np.linalg.norm(w) > 1e4:
                continue
            assert solution.status[i] == Status.OPTIMAL, f"seed {seed}, instance {i}"
            mine = solution.decision[i].numpy() / decision
            np.testing.assert_allclose(mine, w, rtol=0, atol=1e-5 * (1 + np.abs(w).max()), err_msg=f"seed {seed}")
            compared += 1
        ordinary = Smoothed(case.program, case.mu, regularizer=regularizer).solve(case.y, case.instance)
        assert torch.equal(solution.status, ordinary.status), f"seed {seed}"
        for i in np.flatnonzero(ordinary.status == Status.OPTIMAL):
            mine, same = solution.decision[i].numpy() / decision, ordinary.decision[i].numpy()
            if np.abs(same).max() <= 1e4:
                np.testing.assert_allclose(mine, same, rtol=0, atol=1e-6 * np.abs(same).max(), err_msg=f"seed {seed}")
    assert compared >= COUNT * 6


@pytest.mark.parametrize("size", [1.0, 1e9, 1e10, 1e-9])
def test_warm_equals_cold_with_large_right_hand_sides(size: float) -> None:
    """Σw ≤ R with μ = 1/R: in units of R, the projection of −c onto {v ≥ 0, Σv ≤ 1}."""
    layer = Smoothed(Program(G=[[1.0, 1.0]], h=[size]), 1 / size)
    y = torch.tensor(np.random.RandomState(0).normal(size=(50, 2)))
    start = layer.solve(y, None, layer.no_start(50)).start
    moved = y + 0.3
    wanted = torch.stack([on_simplex(row) for row in -moved])
    for given in (None, start):
        solution = layer.solve(moved, None, given)
        assert (solution.status == Status.OPTIMAL).all()
        torch.testing.assert_close(solution.decision / size, wanted, rtol=1e-9, atol=1e-9)


def on_simplex(v: torch.Tensor) -> torch.Tensor:
    """The projection onto {v ≥ 0, Σv ≤ 1}."""
    if float(v.clamp(min=0).sum()) <= 1:
        return v.clamp(min=0)
    shift = scipy.optimize.brentq(lambda t: float((v - t).clamp(min=0).sum()) - 1, -10.0, float(v.max()), xtol=1e-15)
    return (v - shift).clamp(min=0)


def test_norm_on_boxes() -> None:
    """Costs negative, μ about ‖c‖: κ‖w‖ is constant where no bound is met. By root finding on w = clip(−c/κ)."""
    for seed in range(60):
        rng = np.random.RandomState(seed)
        n = rng.randint(1, 8)
        lower = rng.uniform(-1, 1, n) * 10.0 ** rng.randint(-6, 1)
        c = -rng.uniform(0.1, 1, n)
        mu = float(rng.choice([0.5, 0.99, 1.0001, 1.05, 3.0]) * np.linalg.norm(c))
        layer = Smoothed(Program(lower=lower, upper=10, n=n), mu, regularizer="norm")
        wanted = np.zeros(n)
        if not (lower <= 0).all() or np.linalg.norm(c) > mu:
            gap = lambda t: np.exp(t) * np.linalg.norm(np.clip(-c / np.exp(t), lower, 10)) - mu  # noqa: B023, E731
            wanted = np.clip(-c / np.exp(scipy.optimize.brentq(gap, -40, 60, xtol=1e-14)), lower, 10)
        y = torch.tensor(c)[None]
        cold = layer.solve(y, None, layer.no_start(1))
        noise = torch.tensor(rng.normal(size=(2, layer.start_width)))
        for solution in (cold, layer.solve(y, None, cold.start * noise[:1].exp() + noise[1:])):
            assert solution.status[0] == Status.OPTIMAL, f"seed {seed}"
            error = np.abs(solution.decision[0].numpy() - wanted).max()
            assert error <= 1e-6 * np.abs(wanted).max(), f"seed {seed}"


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("upper", [1.0, np.inf])
def test_no_feasible_point_is_proven(size: float, upper: float) -> None:
    """300 variables: G w ≤ h and a combination of its rows that must be larger; nothing is left to HiGHS."""
    rng = np.random.RandomState(1)
    G = rng.uniform(-0.3, 1, (60, 300)) * (rng.rand(60, 300) < 0.1)
    h = G @ rng.uniform(0, 1, 300) * size
    program = Program(G=np.vstack([G, -G[:5].sum(0)]), h=np.append(h, -h[:5].sum() - 0.1 * size), upper=upper * size)
    solution = Smoothed(program, 0.01 / size).solve(torch.tensor(rng.normal(size=(9, 300))))
    assert (solution.status == Status.INFEASIBLE).all()
    assert solution.fallback is not None
    assert not solution.fallback.any()
    assert solution.decision.isnan().all()


def test_far_decisions_are_not_called_impossible() -> None:
    """Feasible only with w_2 about 10¹⁰ times the size that the right-hand sides suggest."""
    program = Program(G=[[-1.0, -1e-10]], h=[-1.0], upper=[0.5, np.inf])
    solution = Smoothed(program, 1.0).solve(torch.zeros(1, 2, dtype=torch.float64))
    assert solution.status[0] != Status.INFEASIBLE
    if solution.status[0] == Status.OPTIMAL:
        torch.testing.assert_close(solution.decision[0, 1].item(), 5e9, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("regularizer", ["squared", "norm"])
def test_large_prices_hide_no_slack(regularizer: Regularizer) -> None:
    """Prices of 1e9 on rows that cancel, beside which that of row 0 looks like nothing: its slack costs 6e-6 of 5."""
    program = Program(
        A=[[0.125, 0.125, -2, 0]], b=[-1.875], G=[[0, -1.375, -1.5, 0], [-2, -2, -1, -1]], h=[-2.53125, -3],
        upper=[1, 1, 1, np.inf],
    )  # fmt: skip
    y = torch.tensor([[-2.875, 2.25, -4, 1e9], [-3, 2.625, -1.625, 1e9]], dtype=torch.float64)
    layer = Smoothed(program, 0.25, regularizer=regularizer)
    wanted = torch.tensor([0.25, 0.75, 1.0, 0.0], dtype=torch.float64)
    cost = (y * wanted).sum(1) + (0.25 * wanted.norm() if regularizer == "norm" else 0.125 * wanted.square().sum())
    solution = layer.solve(y, None, layer.no_start(2))
    for answer in (solution, layer.solve(y, None, solution.start)):
        for i in np.flatnonzero(answer.status == Status.OPTIMAL):
            assert float(answer.bound[i]) <= float(cost[i]) + 1e-6 * 4.5
            assert float(answer.objective[i]) <= float(cost[i]) + 1e-6 * 4.5


def test_a_price_without_bound_hides_no_cost() -> None:
    """w_0 = 0 by a row and by its bound: the row's price may be anything, and was 1e16; w_1 = 1.375 was missed by 1 %."""
    program = Program(
        A=[[-2, 0, 0]], b=[0], G=[[-3, 1, 0], [1, 4, 0], [0, -2, 0], [-2, -3, -1]], h=[2.5, 5.5, -2, -2],
        lower=[-1, 0, 0], upper=[0, 4, np.inf],
    )  # fmt: skip
    y = torch.tensor([[-4, -2, 1e10], [0, 0, 1e10]], dtype=torch.float64)
    layer = Smoothed(program, 0.5)
    first = layer.solve(y, None, layer.no_start(2))
    far = torch.tensor([[1.1e16, 0, 0, 0, 0], [-1.7e16, 0, 0, 0, 0]], dtype=torch.float64)
    for start in (None, first.start, far):
        solution = layer.solve(y, None, start).check((Status.OPTIMAL,))
        wanted = torch.tensor([[0, 1.375, 0], [0, 1, 0]], dtype=torch.float64)
        torch.testing.assert_close(solution.decision, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("penalty", [1e3, 1e6, 1e7, 1e9])
def test_a_price_that_a_penalty_explains_hides_no_cost(penalty: float) -> None:
    """At [−2, −1, 0, 0] all variables are at bounds and rows: prices of 1e7 hid a cost of 3 there from its own terms."""
    program = Program(
        A=[[4, -1, -2, 0]], b=[-7], G=[[4, -2, 0, 0], [-2, -1, 1, 0], [1, 0, 0, 0]], h=[-5, 5, 6],
        lower=[-2, -2, 0, 0], upper=[-1, -1, 3, np.inf],
    )  # fmt: skip
    costs = torch.tensor([[0, 0, -3, penalty]], dtype=torch.float64)
    solution = Smoothed(program, 1.0, regularizer="norm").solve(costs).check((Status.OPTIMAL,))
    torch.testing.assert_close(
        solution.decision, torch.tensor([[-1.75, -1, 0.5, 0]], dtype=torch.float64), rtol=1e-7, atol=1e-7
    )


def test_only_what_goes_downhill_beyond_mu_has_no_end() -> None:
    """w₀ may grow for ever at no cost, and w = 0 is optimal; a projection of 1e-6 beside a cost of 5e5 was longer than μ."""
    S = [[3.814697265625e-06, 0], [0, 524288]]
    program = Program(G=[[-6.103515625e-06, 157286.4]], h=[0], upper=[np.inf, 0], S=S)
    start = torch.tensor([[60818.040531904044, 52428.8]], dtype=torch.float64)
    layer, costs = Smoothed(program, 0.0625, regularizer="norm"), torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    for given in (None, start):
        assert "UNBOUNDED" not in layer.solve(costs, None, given).counts()
    downhill = torch.tensor([[-20000.0, 1.0]], dtype=torch.float64)  # −0.076 a step, beyond μ
    assert layer.solve(downhill).counts() == {"UNBOUNDED": 1}


def test_a_row_of_small_terms_beside_large_decisions() -> None:
    """Columns from 1e-5 to 1e6 in one row: its violation is small beside the largest decision, not beside its own terms."""
    from fuzz.families import make
    from fuzz.references import truth_of

    case = make("integer_units", 30558)
    solution = Smoothed(case.program, case.user_mu()).solve(case.costs, case.instance)
    for i in np.flatnonzero(solution.status == Status.OPTIMAL):
        w, b = solution.decision[i].numpy() / case.column, case.line("b", int(i))
        assert (np.abs(case.A @ w - b) <= 1e-6 * (np.abs(case.A) @ np.abs(w) + np.abs(b))).all()
        truth = truth_of(case, "squared", int(i))
        assert truth.w is not None
        np.testing.assert_allclose(w, truth.w, rtol=0, atol=1e-6)


# -- DavisYin -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("mu", [1e-2, 1.0])
def test_davis_yin_calls_optimal_what_is(penalty: float, mu: float) -> None:
    """A soft row with a penalty that dwarfs all other costs; the decision may be missing, it may not be wrong."""
    program = Program(G=[[-1, -1, -1]], h=[-1], upper=[1, 1, np.inf], d=[0, 0, penalty], S=np.eye(3)[:, :2])
    y = torch.tensor([[3, 2.9], [0.5, -2.0], [-1.0, 4.0]], dtype=torch.float64)
    solution = DavisYin(program, mu, iterations=3000, tolerance=1e-9).solve(y)
    assert not (solution.status == Status.INFEASIBLE).any()
    check_optimal(solution, y, program, mu=mu)


def test_davis_yin_in_a_row_of_large_numbers() -> None:
    """It was called infeasible."""
    solution = DavisYin(Program(G=[[8388608.0]], h=[8388608.0], upper=0.0, n=1), iterations=3000, tolerance=1e-9).solve(
        torch.zeros(1, 1, dtype=torch.float64)
    )
    assert solution.status[0] != Status.INFEASIBLE
    if solution.status[0] == Status.OPTIMAL:
        assert solution.decision[0] == 0


def test_davis_yin_in_float32_does_not_hide_the_gap() -> None:
    """Every row is met to 1e-5 of its terms, and the objective was off by 2e-4 of its own."""
    from fuzz.families import make
    from fuzz.references import truth_of

    case = make("dtypes", 6110)
    layer = DavisYin(case.program, case.user_mu(), iterations=3000, tolerance=1e-9)
    solution = layer.solve(case.costs, case.instance)
    for i in np.flatnonzero(solution.status == Status.OPTIMAL):
        truth = truth_of(case, "squared", int(i))
        assert float(solution.objective[i]) <= truth.objective + 1e-4 * truth.scale


def test_rows_are_in_force_beside_a_penalty_that_dwarfs_their_prices() -> None:
    """At a vertex the Jacobian is zero, whatever some other variable costs."""
    program = Program(
        A=[[0.0, 0.75, 4, -2.875, 0, 0]], b=[-7.0625], G=[[-2.0, -3, -2, -2, -1, -1], [1, -1e5, 0, 0, 0, 0]], h=[0.25, 2.5e4],
        lower=[0, -1, -2, 0, 0, 0], upper=[3, 2.75, 0, 3, 2, np.inf],
    )  # fmt: skip
    c = torch.tensor(
        [[2.793835, 2.523181, 1.944315, -0.9730593, -3.731749, 1e10]], dtype=torch.float64
    ).requires_grad_()
    w = Smoothed(program, 0.0625)(c)
    rows = np.vstack([program.A.toarray(), program.G.toarray()])  # all three bind three variables
    np.testing.assert_allclose(rows @ w[0].detach().numpy(), [-7.0625, 0.25, 2.5e4], rtol=1e-6)
    jacobian = torch.stack([torch.autograd.grad(w[0, j], c, retain_graph=True)[0][0] for j in range(6)])
    np.testing.assert_allclose(jacobian, 0, atol=1e-12)
