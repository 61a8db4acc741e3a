"""The two methods behind `Smoothed`, each alone, against Clarabel."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.certify import Certifier
from dflearn.kernels.smoothed import NEWTON, SmoothedAnswer
from dflearn.layers.quadratic import Hard
from dflearn.layers.smoothed import Smoothed
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.base import Status


def by_clarabel(program: Program, c: np.ndarray, mu: float) -> np.ndarray:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    rows = sp.csc_matrix(sp.vstack([program.A, program.G, sp.eye_array(program.n), -sp.eye_array(program.n)]))
    sides = np.concatenate([program.b, program.h, program.upper, -program.lower])
    cones = [clarabel.ZeroConeT(program.A.shape[0]), clarabel.NonnegativeConeT(program.G.shape[0] + 2 * program.n)]
    quadratic = sp.csc_matrix(mu * sp.eye_array(program.n))
    return np.array(clarabel.DefaultSolver(quadratic, c, rows, sides, cones, settings).solve().x)


CASES = [(name, mu) for name in ("SP-6", "KP-40", "CFL-12x4") for mu in (0.01, 1.0, 20.0)]


@pytest.mark.parametrize(("name", "mu"), CASES)
def test_every_way_leads_to_clarabels_answer(name: str, mu: float) -> None:
    """Cold interior points, cold and warm Newton steps, and Clarabel finished on its face, on the same costs."""
    problem = problem_named(name, seed=2)
    program = problem.relaxation
    costs = problem.generate(11, dtype=torch.float64).costs
    c = program.objective.vector(costs).numpy()
    expected = np.array([by_clarabel(program, row, mu) for row in c])
    layer = Smoothed(program, mu)
    cold = layer.solve(costs, None, layer.no_start(11))
    np.testing.assert_allclose(cold.decision, expected, atol=2e-5)
    assert float(cold.residual.max()) < 1e-9
    near = layer.solve(costs * 1.01, None, cold.start)
    np.testing.assert_allclose(near.decision, layer.solve(costs * 1.01).decision, atol=1e-6)
    slow = Hard(Certifier(program)).solve(c[0], mu, program.own_sides)
    np.testing.assert_allclose(slow.w, expected[0], atol=2e-5)
    np.testing.assert_array_equal(slow.inside == 1, (expected[0] > 1e-5) & (expected[0] < 1 - 1e-5))


def test_newton_alone_from_zero() -> None:
    """From y = 0 the dual Newton method gets there too where μ is large; it only takes more steps."""
    problem = problem_named("SP-6", seed=2)
    layer = Smoothed(problem.program, 20.0)
    c = problem.generate(8, dtype=torch.float64).costs.numpy()
    rows = layer.rows
    answer = SmoothedAnswer.empty(8, layer.program.n, rows.factor.rows)
    answer.y[:] = 0.0
    data = rows.data(c, np.full(8, 20.0), layer.program.sides(None, 8))
    rows.run(data, None, NEWTON, 1e-10, answer, newton_steps=100)
    assert (answer.newton_steps > 0).all()
    np.testing.assert_allclose(answer.w, layer.solve(torch.as_tensor(c)).decision, atol=1e-7)


def test_lanes_do_not_touch_each_other() -> None:
    """A batch of 19 (two tiles and a rest) equals 19 batches of one, whatever stands in the other lanes."""
    problem = problem_named("CFL-8x3", seed=1)
    layer = Smoothed(problem.program, 1.0)
    costs = problem.generate(19, dtype=torch.float64).costs
    costs[3] *= 1e3
    together = layer(costs)
    alone = torch.cat([layer(costs[i : i + 1]) for i in range(19)])
    torch.testing.assert_close(together, alone, atol=1e-8, rtol=0)


def test_interior_points_do_not_go_round_in_circles() -> None:
    """Knapsacks whose gap no longer fell, with second-order terms in every step: eighty steps were not enough."""
    problem = problem_named("KP-100", seed=1)
    known = problem.generate(64, dtype=torch.float64).batch().require("costs")
    noise = torch.randn((4096, known.shape[1]), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    y = known.repeat(64, 1) * (1 + 0.1 * noise)
    layer = Smoothed(problem.program, 0.05)
    data = layer.rows.data(layer.objective.vector(y).numpy(), np.array([0.05]), layer.program.own_sides)
    steps = layer.rows.solve(data, None, 1e-10).interior_steps
    assert steps.min() > 0
    assert steps.max() < 30


def test_lanes_that_are_done_stay_as_they_are_while_another_goes_on() -> None:
    """Many variables lie at a bound with multiplier zero, which Newton's method counts as fixed; one lane needs more than it."""
    way = problem_named("SP-4", seed=0).program
    A, b = sp.hstack([way.A, -way.A]), np.zeros(16)
    b[0], b[12] = way.b[0], -way.b[0]
    program = Program(A=A, b=b, G=sp.eye_array(48), h=np.ones(48))
    rows, mu = Smoothed(program, 3e-4).rows, np.array([3e-4])
    c = np.random.RandomState(86).randint(0, 2, (8, 48)).astype(float)
    answer = rows.solve(rows.data(c, mu, program.own_sides), None, 1e-10)
    done = answer.newton_steps >= 0
    assert done.sum() >= 7
    assert Smoothed(program, 3e-4).finish(c, mu, program.own_sides, answer).status.tolist() == 8 * [Status.OPTIMAL]
    assert answer.residual.max() <= 1e-9
    assert np.where(answer.inside[done] == 1, answer.w[done], 1.0).min() > 1e-12
