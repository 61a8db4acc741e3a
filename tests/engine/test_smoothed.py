"""The two methods behind `Smoothed`, each alone, against Clarabel."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from dflearn.engine.certify import Certifier
from dflearn.engine.hard.smoothed import Hard
from dflearn.engine.smoothed.cpu import finish
from dflearn.layers.smoothed import Smoothed
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.base import Status
from support.reference import clarabel_smoothed

CASES = [(name, mu) for name in ("SP-6", "KP-40", "CFL-12x4") for mu in (0.01, 1.0, 20.0)]


@pytest.mark.parametrize(("name", "mu"), CASES)
def test_every_way_leads_to_clarabels_answer(name: str, mu: float) -> None:
    """Cold interior points, cold and warm Newton steps, and Clarabel finished on its face, on the same costs."""
    problem = problem_named(name, seed=2)
    program = problem.relaxation
    costs = problem.generate(11, dtype=torch.float64).costs
    c = program.objective.vector(costs).numpy()
    expected = np.array([clarabel_smoothed(program, row, mu, program.own_sides, "squared")[1] for row in c])
    layer = Smoothed(program, mu)
    cold = layer.solve(costs, None, layer.no_start(11))
    np.testing.assert_allclose(cold.decision, expected, atol=2e-5)
    assert float(cold.residual.max()) < 1e-9
    near = layer.solve(costs * 1.01, None, cold.start)
    np.testing.assert_allclose(near.decision, layer.solve(costs * 1.01).decision, atol=1e-6)
    slow = Hard(Certifier(program)).solve(c[0], mu, program.own_sides)
    np.testing.assert_allclose(slow.w, expected[0], atol=2e-5)
    np.testing.assert_array_equal(slow.inside == 1, (expected[0] > 1e-5) & (expected[0] < 1 - 1e-5))


def test_lanes_do_not_touch_each_other() -> None:
    """A batch of 19 (two tiles and a rest) equals 19 batches of one, whatever stands in the other lanes."""
    problem = problem_named("CFL-8x3", seed=1)
    layer = Smoothed(problem.program, 1.0)
    costs = problem.generate(19, dtype=torch.float64).costs
    costs[3] *= 1e3
    together = layer(costs)
    alone = torch.cat([layer(costs[i : i + 1]) for i in range(19)])
    torch.testing.assert_close(together, alone, atol=1e-8, rtol=0)


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
    assert finish(rows, c, mu, program.own_sides, answer, 1e-10).status.tolist() == 8 * [Status.OPTIMAL]
    assert answer.residual.max() <= 1e-9
    assert np.where(answer.inside[done] == 1, answer.w[done], 1.0).min() > 1e-12
