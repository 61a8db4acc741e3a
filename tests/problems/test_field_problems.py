"""Matching, portfolios and maps: the contract, and their data and solvers against formulas and algorithms of others."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import dijkstra

from dflearn.errors import OptionError
from dflearn.problems import Matching, Portfolio, Problem, Terrain, problem_named
from dflearn.problems.terrain import COSTS, CheapestWay
from dflearn.studies.models import make_model
from dflearn.testing.problems import check_problem

SMALL = [
    Matching(3),
    Matching(1, degree=2, seed=1),
    Portfolio(5),
    Portfolio(2, noise=3.0, degree=1, seed=2),
    Terrain(3),
]


@pytest.mark.parametrize("problem", SMALL, ids=repr)
def test_contract(problem: Problem) -> None:
    check_problem(problem)


def test_their_names() -> None:
    assert problem_named("matching-4", seed=2) == Matching(4, seed=2)
    assert problem_named("portfolio-7", aversion=3.0) == Portfolio(7, aversion=3.0)
    assert problem_named("terrain-5", pixels=4) == Terrain(5, pixels=4)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Matching(0), "size must be"),
        (lambda: Portfolio(3, aversion=0.0), "aversion must be positive"),
        (lambda: Terrain(1), "side must be at least 2"),
        (lambda: Terrain(3, noise=1.0), "below 1"),
    ],
)
def test_what_cannot_be_is_refused(make, complaint) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError, match=complaint):
        make()


def test_the_risk_of_a_portfolio_is_that_of_its_returns() -> None:
    """γ Σ is the covariance of y given x, times γ."""
    problem = Portfolio(4, noise=2.0, aversion=10.0)
    x = torch.zeros(1, 10, dtype=torch.float64).expand(40_000, -1)
    drawn = problem.sample_costs(x, seed=1).numpy()
    assert problem.program.Q is not None
    wanted = problem.program.Q.matrix.toarray() / 10.0
    assert np.allclose(np.cov(drawn.T), wanted, atol=6 * wanted.max() * np.sqrt(2 / 40_000))


@pytest.mark.parametrize("side", [2, 5])
def test_ways_are_as_cheap_as_dijkstras(side: int) -> None:
    problem = Terrain(side)
    arcs = problem.arcs()
    apart = np.abs(np.stack([arcs[:, 0] // side - arcs[:, 1] // side, arcs[:, 0] % side - arcs[:, 1] % side]))
    assert (apart.max(0) == 1).all()
    assert len(np.unique(arcs, axis=0)) == len(arcs) == 4 * side * (side - 1) + 4 * (side - 1) ** 2
    c = np.random.RandomState(0).uniform(0.1, 2, (20, len(arcs)))
    w = CheapestWay(side)(c)
    for costs, way in zip(c, w, strict=True):
        graph = sp.csr_array((costs, (arcs[:, 0], arcs[:, 1])), shape=(side**2, side**2))
        assert costs @ way == pytest.approx(dijkstra(graph, indices=0)[-1])
        assert np.allclose(problem.program.A @ way, problem.program.b)


def test_negative_costs_count_as_zero_and_ways_stay_ways() -> None:
    problem = Terrain(4)
    c = np.random.RandomState(1).normal(size=(50, problem.program.n))
    w = CheapestWay(4)(c)
    assert np.allclose(w @ problem.program.A.T, problem.program.b)
    into = np.zeros((50, 16))
    for arc, (_, head) in enumerate(problem.arcs()):
        into[:, head] += w[:, arc]
    assert into.max() == 1  # no tile is entered twice
    assert np.array_equal(w, CheapestWay(4)(np.maximum(c, 0)))


def test_without_noise_the_colour_tells_the_cost() -> None:
    problem = Terrain(4, pixels=2, noise=0.0, grain=0.0)
    data = problem.generate(3, dtype=torch.float64)
    colours = data.features.reshape(3, 3, 4, 2, 4, 2)
    assert float((colours - colours[:, :, :, :1, :, :1]).abs().max()) == 0  # a tile has one colour
    seen = colours[:, :, :, 0, :, 0].reshape(3, 3, 16).permute(0, 2, 1).reshape(48, 3)
    costs = data.batch().require("costs").reshape(48)
    assert set(costs.tolist()) == set(COSTS.tolist())
    same = (seen[:, None] == seen[None]).all(-1)
    assert torch.equal(same, costs[:, None] == costs[None])


def test_the_model_of_tiles() -> None:
    problem = Terrain(3, pixels=4)
    x = problem.generate(6).features
    model = make_model("tiles", tuple(x.shape[1:]), 9, seed=1)
    y = model(x)
    assert y.shape == (6, 9)
    assert bool((y > 0).all())
    assert torch.allclose(model(x.reshape(2, 3, *x.shape[1:])).reshape(6, 9), y, atol=1e-6)
    assert torch.equal(make_model("tiles", tuple(x.shape[1:]), 9, seed=1)(x), y)
    assert not torch.equal(make_model("tiles", tuple(x.shape[1:]), 9, seed=2)(x), y)
    changed = x.clone()
    changed[:, :, :4, :4] = 1 - changed[:, :, :4, :4]  # the first tile: only it and its neighbours see that
    different = (model(changed) - y).abs().amax(0).reshape(3, 3) > 1e-6
    assert bool(different[0, 0])
    assert not bool(different[2, :].any() or different[:, 2].any())
    with pytest.raises(OptionError, match="takes square images"):
        make_model("tiles", (10,), 9, seed=1)
