"""The contract of problems over all four kinds, their data against PyEPO's, and E[y | x] against quadrature."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import highspy  # noqa: F401  (before PyEPO: two libraries of HiGHS in one process get in each other's way)
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import dijkstra

from dflearn.errors import OptionError
from dflearn.problems import (
    PROBLEMS,
    FacilityLocation,
    Knapsack,
    Matching,
    Portfolio,
    Problem,
    Selection,
    ShortestPath,
    Terrain,
    problem_forms,
    problem_named,
    problem_of_origin,
)
from dflearn.problems.base import integral_of_ceiling
from dflearn.problems.paths import CheapestWay
from dflearn.problems.registry import ProblemForm
from dflearn.studies.models import make_model
from dflearn.testing.problems import check_problem

SMALL = [
    ShortestPath(3, 4),
    ShortestPath(1, 4, seed=3),
    ShortestPath(4, 4, degree=3, noise=0.0, seed=1),
    Knapsack(12, capacity_share=1.5),
    Knapsack(10, 3, capacity_share=2, degree=5, features=4, seed=2),
    Knapsack(8, 1, noise=0.0, capacity_share=2, degree=2),
    Knapsack(9, 17, capacity_share=2),  # more dimensions than the solver for few rows takes
    FacilityLocation(6, 3),
    FacilityLocation(5, 4, degree=5, noise=1.0, seed=4),
    Selection(8, 3),
    Selection(5, 5, degree=1, seed=5),
    Matching(3),
    Matching(1, degree=2, seed=1),
    Portfolio(5),
    Portfolio(2, noise=3.0, degree=1, seed=2),
    Terrain(3),
]


@pytest.mark.parametrize("problem", SMALL, ids=repr)
def test_contract(problem: Problem) -> None:
    check_problem(problem)


@dataclass(frozen=True)
class WrongMean(Selection):
    def _expected_costs(self, features: np.ndarray) -> np.ndarray:
        return 1.1 * super()._expected_costs(features)


@dataclass(frozen=True)
class Unrepeatable(Selection):
    def _draw_features(self, rng: np.random.RandomState, count: int) -> np.ndarray:
        return np.random.RandomState().normal(size=(count, self.features))


@dataclass(frozen=True)
class Misnamed(Selection):
    def _build_program(self, structure):  # type: ignore[no-untyped-def]
        return Knapsack(self.items).program


@dataclass(frozen=True)
class WrongSolver(Selection):
    def solver(self):  # type: ignore[no-untyped-def]
        return Selection(self.items, self.k + 1).solver()


@pytest.mark.parametrize(
    ("problem", "complaint"),
    [
        (WrongMean(8, 3), "standard errors"),
        (Unrepeatable(8, 3), "same arguments differ"),
        (Misnamed(8, 3), "is named"),
        (WrongSolver(8, 3), "infeasible decisions"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_contract_check_finds_what_is_wrong(problem: Problem, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_problem(problem)


@pytest.mark.parametrize(
    ("problem", "solver", "relaxed_solver"),
    [
        (ShortestPath(3, 4), "DagShortestPath", "DagShortestPath"),
        (Knapsack(12), "FewRowBinary", "FewRowLP"),
        (Knapsack(9, 5), "HiGHS", "FewRowLP"),
        (Knapsack(9, 17), "HiGHS", "SmallLP"),
        (FacilityLocation(6, 3), "RelaxationFirst", "HiGHS"),
        (Selection(8, 3), "TopK", "TopK"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_each_problem_knows_its_best_solvers(problem: Problem, solver: str, relaxed_solver: str) -> None:
    assert type(problem.solver()).__name__ == solver
    assert type(problem.relaxed_solver()).__name__ == relaxed_solver


@pytest.fixture(scope="module")
def pyepo_data():  # type: ignore[no-untyped-def]
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyomo.environ  # noqa: F401  (before PyEPO, which otherwise warns that it is missing)
        from pyepo.data import knapsack, shortestpath
    return shortestpath, knapsack


@pytest.mark.parametrize(("grid", "degree", "seed"), [((5, 5), 6, 1), ((4, 6), 3, 5), ((25, 25), 1, 1)])
def test_shortest_path_data_are_pyepos(pyepo_data, grid, degree, seed) -> None:  # type: ignore[no-untyped-def]
    features, costs = pyepo_data[0].genData(400, 10, grid, degree, 0.5, seed)
    data = ShortestPath(*grid, degree=degree, seed=seed).generate(400)
    assert np.array_equal(data.features.numpy(), features.astype(np.float32))
    assert np.array_equal(data.costs.numpy(), costs)


@pytest.mark.parametrize(("items", "dimensions", "degree", "seed"), [(100, 2, 6, 1), (40, 3, 1, 5), (40, 3, 3, 1)])
def test_knapsack_data_are_pyepos(pyepo_data, items, dimensions, degree, seed) -> None:  # type: ignore[no-untyped-def]
    weights, features, costs = pyepo_data[1].genData(400, 10, items, dimensions, degree, 0.5, seed)
    problem = Knapsack(items, dimensions, degree=degree, seed=seed)
    data = problem.generate(400)
    assert np.array_equal(problem.program.G.toarray(), weights)
    assert np.array_equal(data.features.numpy(), features.astype(np.float32))
    assert np.array_equal(data.costs.numpy(), costs)


def test_facility_location_data_follow_the_order_of_draws() -> None:
    """The stream taken by hand, one instance at a time."""
    customers, facilities, count = 20, 4, 30
    problem = FacilityLocation(customers, facilities, seed=3)
    rng = np.random.RandomState(3)
    demands = [round(min(max(rng.normal(2.5, 1.25), 1), 6), 2) for _ in range(customers)]
    capacities = np.array([rng.uniform(5, 15) for _ in range(facilities)])
    assert capacities.sum() < sum(demands)
    capacities = np.ceil(capacities * sum(demands) / capacities.sum())
    opening = np.ceil([rng.uniform(5, 25) for _ in range(facilities)])
    flags = rng.binomial(1, 0.25, (customers * facilities, 10))
    B = flags * rng.uniform(-2, 2, flags.shape)
    x = rng.normal(size=(count, 10))
    costs = []
    for row in x:
        noise = rng.uniform(0.5, 1.5, customers * facilities)
        costs.append(np.round(np.clip((B @ row / np.sqrt(10) + 3) ** 6 / 3**5 * noise, 0.01, 100), 2))
    program, data = problem.program, problem.generate(count, dtype=torch.float64)
    np.testing.assert_allclose(-np.diag(program.G.toarray()[:, -facilities:]), capacities)
    np.testing.assert_allclose(program.d[-facilities:], opening)
    np.testing.assert_allclose(program.S.toarray()[:-facilities].sum(1), np.repeat(demands, facilities))
    np.testing.assert_allclose(data.features, x, rtol=1e-14)
    np.testing.assert_allclose(data.costs, np.array(costs), rtol=1e-12)


def test_knapsack_and_top_k_are_the_best_of_all_subsets() -> None:
    subsets = torch.tensor(list(itertools.product([0.0, 1.0], repeat=9)), dtype=torch.float64)
    knapsack, top_k = Knapsack(9, capacity_share=1.7, seed=2), Selection(9, 4, seed=2)
    for problem, weights, limit in (
        (knapsack, torch.tensor(knapsack.structure["weights"]), 15.0),
        (top_k, torch.ones(1, 9, dtype=torch.float64), 4.0),
    ):
        costs = problem.generate(5, dtype=torch.float64).costs
        allowed = (subsets @ weights.T <= limit).all(1)
        best = (costs @ subsets[allowed].T).max(1).values
        torch.testing.assert_close(-problem.solver().solve(costs).objective, best)


@pytest.mark.parametrize(("share", "items", "capacity"), [(0.3, 100, 30), (0.3, 15, 4), (0.29, 100, 29), (1.1, 10, 11)])
def test_capacity_is_the_floor_of_the_share(share: float, items: int, capacity: int) -> None:
    assert Knapsack(items, capacity_share=share).program.h.tolist() == [capacity, capacity]


@pytest.mark.parametrize(("noise", "degree"), [(0.0, 2), (0.3, 1), (0.5, 6), (1.2, 5)])
@pytest.mark.parametrize("kind", ["SP-3", "KP-20", "CFL-4x3", "TopK-6x2"])
def test_expected_costs_are_the_integral_over_the_noise(kind: str, noise: float, degree: int) -> None:
    """The midpoint rule on a fine grid of noise: exact without rounding, and with it wrong by less than the total rise
    of the rounded cost times the width of a cell."""
    problem = problem_named(kind, noise=noise, degree=degree, seed=1)
    features = 4 * problem.generate(20, dtype=torch.float64).features  # far out, where odd powers turn negative
    cells = 5001
    grid = 1 - noise + 2 * noise * (np.arange(cells) + 0.5) / cells
    level = problem._level(problem._mixed(features.numpy()))
    assert degree % 2 == 0 or level.min() < 0
    mean = problem._round(level[..., None] * grid).mean(-1)
    rise = 0 if kind in ("SP-3", "TopK-6x2") else 2 * noise * np.abs(level) + 1
    error = np.abs(problem.expected_costs(features).numpy() - mean)
    assert (error <= rise / cells + 1e-12 * np.abs(level)).all()


def test_integral_of_ceiling() -> None:
    low = np.array([0.2, -2.5, 1.0, 3.0, -0.5, 0.0, 7.25])
    high = np.array([0.7, 1.5, 2.0, 3.0, 0.5, 3.0, 7.250001])
    by_hand = [0.5, -2 * 0.5 - 1 + 0 + 1 + 2 * 0.5, 2.0, 0.0, 0.5, 6.0, 8 * (high[-1] - low[-1])]
    np.testing.assert_allclose(integral_of_ceiling(low, high), by_hand, rtol=1e-12)
    far = 1e9 + 0.5
    assert integral_of_ceiling(np.array(far), np.array(far + 1)) == 0.5 * (1e9 + 1) + 0.5 * (1e9 + 2)


@pytest.mark.parametrize("name", [*PROBLEMS, "SP-4x6", "KP-50x3", "CFL-20x4", "TopK-20x3"])
def test_names_make_the_round_trip(name: str) -> None:
    problem = problem_named(name, seed=3, degree=4, noise=0.25, features=7)
    assert (problem.name, problem.seed, problem.degree, problem.noise, problem.features) == (name, 3, 4, 0.25, 7)
    assert problem_named(problem.name, seed=3, degree=4, noise=0.25, features=7) == problem
    assert problem_named(name, seed=4) != problem_named(name, seed=3)


@pytest.mark.parametrize("name", ["SP", "XY-5", "CFL-30", "TopK-20", "SP-5x", "sp-5", "KP-ten", ""])
def test_an_unknown_name_lists_the_valid_ones(name: str) -> None:
    with pytest.raises(OptionError, match=r"SP-\{side\}, .*KP-\{items\}x\{dimensions\}.*energy-\{capacity\}"):
        problem_named(name)


@pytest.mark.parametrize("form", problem_forms(), ids=lambda form: form.form)
def test_every_form_has_an_example(form: ProblemForm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DFLEARN_ENERGY", raising=False)
    problem = problem_named(form.example, seed=2)
    assert problem.name == form.example
    assert problem.seed == 2
    assert form.about
    if "{tasks}" not in form.form:  # a schedule is its tasks, and its seed only draws them
        assert problem_of_origin(problem.origin) == problem


def test_an_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(OptionError, match="no option degrees; its options are seed, features, degree, noise"):
        problem_named("SP-5", degrees=3)
    assert problem_named("KP-100", capacity_share=0.5).program.h.tolist() == [50, 50]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ShortestPath(1, 1),
        lambda: ShortestPath(3, 2.5),  # type: ignore[arg-type]
        lambda: Knapsack(5, capacity_share=0),
        lambda: FacilityLocation(3, 0),
        lambda: Selection(3, 4),
        lambda: Selection(3, 1, seed=-1),
    ],
)
def test_impossible_configurations_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError):
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


def test_the_model_of_tiles() -> None:
    problem = Terrain(3, pixels=4)
    x = problem.generate(6).features
    model, other = (make_model("tiles", tuple(x.shape[1:]), 9, seed=seed) for seed in (1, 2))
    y = model(x)
    assert y.shape == (6, 9)
    assert bool((y > 0).all())
    assert torch.allclose(model(x.reshape(2, 3, *x.shape[1:])).reshape(6, 9), y, atol=1e-6)
    assert not torch.equal(other(x), y)
    changed = x.clone()
    changed[:, :, :4, :4] = 1 - changed[:, :, :4, :4]  # the first tile: only it and its neighbours see that
    different = (model(changed) - y).abs().amax(0).reshape(3, 3) > 1e-6
    assert bool(different[0, 0])
    assert not bool(different[2, :].any() or different[:, 2].any())
    with pytest.raises(OptionError, match="takes square images"):
        make_model("tiles", (10,), 9, seed=1)
