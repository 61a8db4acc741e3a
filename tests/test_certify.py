"""The rule of optimality: its formulas written out, its kernel beside its numpy form, and the size of a zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dflearn.engine.certify import OPTIMAL, Certifier
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides


def written_out(
    program: Program, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float
) -> tuple[float, float, float, float]:
    """The errors of rows, of variables and prices, and of the objective, and the bound: one loop per sum."""
    M, r = np.vstack([program.A.toarray(), program.G.toarray()]), np.concatenate([sides.b, sides.h])
    Q = mu * np.eye(program.n) + (0.0 if program.Q is None else program.Q.matrix.toarray())
    parts = mu * np.eye(program.n)
    if program.Q is not None:
        R = program.Q.factor.toarray()
        parts = parts + abs(R).T @ abs(R) + np.diag(program.Q.diagonal)
    rows, n = M.shape
    y = [min(y[i], 0.0) if i >= program.A.shape[0] else y[i] for i in range(rows)]
    s = [abs(c[j]) + sum(parts[j] * abs(w)) + sum(abs(M[i, j] * y[i]) for i in range(rows)) for j in range(n)]
    primal = dual = gap = value = objective = 0.0
    for i in range(rows):
        excess, t = M[i] @ w - r[i], abs(r[i]) + sum(abs(M[i] * w))
        violation = max(excess, 0.0) if i >= program.A.shape[0] else abs(excess)
        primal = max(primal, violation / t if violation else 0.0)
        gap += abs(y[i] * excess)
        if i >= program.A.shape[0] and excess < 0 and y[i] < 0:
            dual = max(dual, min(-excess / t, max(abs(M[i, j] * y[i]) / s[j] for j in range(n) if M[i, j])))
    for j in range(n):
        rho = c[j] + Q[j] @ w - sum(M[i, j] * y[i] for i in range(rows))
        bound = sides.lower[j] if rho > 0 else sides.upper[j]
        off = abs(w[j] - bound)
        if rho and off:
            near = np.inf if np.isinf(bound) else off / max(abs(w[j]), abs(bound))
            dual = max(dual, min(abs(rho) / s[j], near))
            curve = mu + (0.0 if program.Q is None else program.Q.diagonal[j])
            reach = min(off, abs(rho) / curve) if curve else off
            if abs(rho) / s[j] > 1e-13:
                gap += abs(rho) * (reach if abs(rho) / s[j] > 1e-10 else min(reach, abs(w[j])))
        value += (abs(c[j]) + 0.5 * sum(parts[j] * abs(w))) * abs(w[j])
        objective += (c[j] + 0.5 * Q[j] @ w) * w[j]
    return primal, dual, gap / value, objective - gap


@pytest.mark.parametrize("seed", range(15))
def test_the_rule_is_its_formula(seed: int) -> None:
    """Random decisions, prices and sides of three instances: by the kernel, in numpy, and written out."""
    rng, n, count = np.random.RandomState(seed), 5, 3
    A, G = rng.normal(size=(2, n)), rng.normal(size=(3, n)) * (rng.rand(3, n) < 0.8)
    G[:, 0] = 1.0
    lower, upper = np.full((count, n), -1.0), rng.uniform(0.5, 2, (count, n))
    upper[:, -1] = np.inf
    w = np.clip(rng.uniform(-1.5, 2.5, (count, n)), lower, upper)
    b, h = w @ A.T + rng.choice([0.0, 0.1], (count, 2)), w @ G.T + rng.choice([0.0, 0.7, -0.2], (count, 3))
    c, y = rng.normal(size=(count, n)), np.hstack([rng.normal(size=(count, 2)), rng.normal(size=(count, 3))])
    Q = None if seed % 3 == 0 else np.diag(rng.rand(n)) if seed % 3 == 1 else np.cov(rng.normal(size=(n, 9)))
    mu = 0.3 if seed % 2 else 0.0
    program = Program(A=A, b=b[0], G=G, h=h[0], lower=-1, upper=upper[0], Q=Q)
    instance = Instance(b=torch.tensor(b), h=torch.tensor(h), lower=torch.tensor(lower), upper=torch.tensor(upper))
    sides, certifier = program.sides(instance, count), Certifier(program)
    many = certifier.check(c, w, y, sides, mu)
    for i in range(count):
        one = certifier.examine(c[i], w[i], y[i], sides.row(i), mu).verdict()
        wanted = written_out(program, c[i], w[i], y[i], sides.row(i), mu)
        for found, k in ((one, 0), (many, i)):
            errors = [found.primal[k], found.dual[k], found.gap[k], found.bound[k]]
            np.testing.assert_allclose(errors, wanted, rtol=1e-9, atol=1e-14)
            assert found.error[k] == pytest.approx(max(wanted[:3]), rel=1e-9)


def test_the_bound_bounds() -> None:
    """min over w of the objective, by a grid, is never below the bound of any answer."""
    rng = np.random.RandomState(0)
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 2), -1).reshape(-1, 2)
    for _ in range(50):
        G, c, y = rng.choice([-2.0, -1, 1, 2], (2, 2)), rng.normal(size=(1, 2)), -rng.rand(1, 2)
        program = Program(G=G, h=G @ [0.5, 0.5], upper=1)
        feasible = grid[(grid @ G.T <= program.h + 1e-12).all(1)]
        bound = Certifier(program).check(c, rng.rand(1, 2), y, program.own_sides).bound[0]
        assert bound <= (feasible @ c[0]).min() + 1e-12


# -- the size of a zero ------------------------------------------------------------------------------------------------


def test_residues_of_a_balance_are_zeros() -> None:
    """stock₁ = stock₀ + bought − used, all of them 1e-13 where zero is meant, beside purchases of 500 tonnes in force."""
    A = [[1.0, -1, 1, 0], [0, 1, 0, 1]]  # the second row ties `bought` to a large delivery
    program = Program(A=A, b=[0.0, 500.0], upper=1000)
    w, c = np.array([1.1e-13, 2.3e-13, 0.4e-13, 500.0]), np.array([1.0, 300, 2, 1])
    y, sides = np.array([0.0, 1.0]), program.own_sides
    certifier = Certifier(program)
    assert certifier.check(c[None], w[None], y[None], sides).primal[0] > 0.1
    assert certifier.allow(c, w, y, sides).primal[0] == 0
    tidied, _, verdict = certifier.tidy(c, w, y, sides)
    assert tidied.tolist() == [0, 0, 0, 500]
    assert verdict.error[0] <= OPTIMAL
    assert certifier.allow(c, np.array([1e-6, 0, 0, 500.0]), y, sides).primal[0] == 1  # that is no rounding of 500


@pytest.mark.parametrize("small", [1e-4, 1e-8, 1e-12])
def test_a_small_block_is_no_rounding_of_a_large_one(small: float) -> None:
    """max w₁ / 1e7 + w₂ / small  s.t.  w₁ ≤ 1e7, w₂ ≤ small: to lose w₂ loses half of the objective."""
    program = Program(G=np.eye(2), h=[1e7, small])
    c, y, sides, certifier = (
        np.array([-1e-7, -1 / small]),
        np.array([-1e-7, -1 / small]),
        program.own_sides,
        Certifier(program),
    )
    assert certifier.allow(c, np.array([1e7, small]), y, sides).error[0] <= 1e-12
    for w, prices in (([1e7, 0.0], y), ([1e7, 0.0], y * [1, 0]), ([1e7, 2 * small], y)):
        assert certifier.allow(c, np.array(w), prices, sides).error[0] > 0.1
        tidied, _, verdict = certifier.tidy(c, np.array(w), prices, sides)
        assert verdict.error[0] > 0.1 or tidied == pytest.approx([1e7, small], rel=1e-14, abs=0)


@pytest.mark.parametrize("loose", [1e6, 1e9, 1e15])
def test_a_loose_bound_makes_no_row_loose(loose: float) -> None:
    """w₁ + w₂ ≥ 1e-8 with bounds that are far away: zero does not meet the row."""
    program = Program(G=[[-1.0, -1]], h=[-1e-8], upper=loose)
    certifier, sides, c, y = Certifier(program), program.own_sides, np.array([1.0, 2]), np.array([-1.0])
    assert certifier.allow(c, np.array([1e-8, 0]), y, sides).error[0] <= 1e-12
    assert certifier.allow(c, np.zeros(2), y, sides).primal[0] == 1


def test_a_side_that_was_summed_from_terms_of_one_may_be_off_by_their_rounding() -> None:
    """0 ≤ −9e-16 where h = G w was computed: the row is met. In an independent block of size 1e-15 it is not."""
    c, y = np.zeros(3), np.zeros(2)
    program = Program(A=[[1.0, 1, 0]], b=[1.0], G=[[4.5, 0, 0]], h=[-9e-16], upper=1)
    assert Certifier(program).allow(c, np.array([0.0, 1, 0]), y, program.own_sides).primal[0] == 0
    apart = Program(A=[[0, 1.0, 1]], b=[1.0], G=[[4.5, 0, 0]], h=[-9e-16], lower=-1e-15, upper=[1e-15, 1, 1])
    assert Certifier(apart).allow(c, np.array([0.0, 1, 0]), y, apart.own_sides).primal[0] == 1


def test_prices_that_cancel_hide_nothing() -> None:
    """w₁ + w₂ = 1 twice, as an equation and as an inequality: prices of ±1e12 cancel, and no decision is proven by them."""
    program = Program(A=[[1.0, 1]], b=[1.0], G=[[1.0, 1]], h=[1.0], upper=2)
    certifier, sides, c = Certifier(program), program.own_sides, np.array([1.0, 2.0])
    for large in (1e3, 1e12):
        wrong = certifier.check(c[None], np.array([[0.5, 0.5]]), np.array([[large + 1.0, -large]]), sides)
        assert wrong.error[0] > OPTIMAL
    assert certifier.check(c[None], np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), sides).error[0] == 0
    smoothed = certifier.check(c[None], np.array([[0.75005, 0.24995]]), np.array([[1e13 + 3.0, -1e13]]), sides, 2.0)
    assert smoothed.error[0] > OPTIMAL


def test_what_is_wrong_is_named() -> None:
    program = Program(A=[[1.0, 1]], b=[2.0], G=[[1.0, 0]], h=[1.0], upper=5, variable_names=["buy", "sell"])
    examine, sides = Certifier(program).examine, program.own_sides
    assert (
        "row b[0] is off by 0.5" in examine(np.ones(2), np.array([1.0, 0.5]), np.array([1.0, 0]), sides, 0.0).reason()
    )
    named = examine(np.array([1.0, -1e-3]), np.array([1.0, 1.0]), np.array([1.0, 0]), sides, 0.0).reason()
    assert "variable 'sell'" in named


def test_numbers_that_are_none_prove_nothing() -> None:
    program = Program(G=[[1.0, 1.0]], h=[1], upper=1)
    c, sides, certifier = np.array([[-1.0, 0.0]]), program.own_sides, Certifier(program)
    for w, y in (([1.0, 0.0], [np.nan]), ([np.nan, 0.0], [-1.0]), ([np.inf, 0.0], [-1.0])):
        assert certifier.check(c, np.array([w]), np.array([y]), sides).error[0] == np.inf
        assert certifier.allow(c[0], np.array(w), np.array(y), sides).error[0] == np.inf
