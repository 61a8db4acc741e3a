"""Layers against what is known otherwise: Clarabel and CVXPY on random programs, dense Jacobians, cvxpylayers, closed forms."""

from __future__ import annotations

import multiprocessing
import resource
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.engine.certify import Certifier
from dflearn.engine.hard.smoothed import Hard
from dflearn.engine.smoothed.cpu import SmoothedRows
from dflearn.engine.smoothed.norm import CONE_TOLERANCE
from dflearn.engine.smoothed.tiles import SmoothedAnswer, SmoothedData
from dflearn.layers import CvxpySmoothed, DavisYin, Layer, Smoothed
from dflearn.losses import SCE
from dflearn.program import Instance, Program
from dflearn.solvers.base import Status
from support.closed_form_layers import SmoothedTopOne, top_one
from support.programs import shortest_path
from support.reference import COUNT, Regularizer, clarabel_smoothed, jacobian, random_case, smoothed_objective

BLOCK = 30
REGULARIZERS: tuple[Regularizer, ...] = ("squared", "norm")
BLOCKS = [("squared", first) for first in range(0, 150, BLOCK)] + [("norm", first) for first in range(0, 60, BLOCK)]
FAR = 1e4  # where costs and norm balance exactly along a ray, the optimum runs off to infinity


def gradient(decision: Tensor, y: Tensor, weight: np.ndarray) -> np.ndarray:
    (slope,) = torch.autograd.grad(decision, y, torch.tensor(weight), retain_graph=True)
    return slope.numpy()


@pytest.mark.parametrize(("regularizer", "first"), BLOCKS, ids=lambda value: str(value))
def test_smoothed_agrees_with_clarabel(regularizer: Regularizer, first: int) -> None:
    """Decisions to 1e-5, gradients to 1e-6 where they exist, statuses always."""
    compared = differentiated = 0
    for seed in range(first, first + BLOCK):
        case = random_case(seed)
        y = case.y.clone().requires_grad_()
        solution = Smoothed(case.program, case.mu, regularizer=regularizer).solve(y, case.instance)
        weight = np.random.RandomState(seed).normal(size=solution.decision.shape)
        slope = gradient(solution.decision, y, weight)
        for i, (c, sides) in enumerate(case.rows()):
            where = f"seed {seed}, instance {i}"
            found, w = clarabel_smoothed(case.program, c, case.mu, sides, regularizer)
            if found == "DualInfeasible":
                assert solution.status[i] == Status.UNBOUNDED, where
                continue
            if np.linalg.norm(w) > FAR:
                continue
            assert found in ("Solved", "AlmostSolved"), where
            assert solution.status[i] == Status.OPTIMAL, where
            mine = solution.decision[i].detach().numpy()
            np.testing.assert_allclose(mine, w, rtol=0, atol=1e-5 * (1 + np.abs(w).max()), err_msg=where)
            value, reference = (smoothed_objective(c, x, case.mu, regularizer) for x in (mine, w))
            assert float(solution.objective[i]) == pytest.approx(value, rel=1e-9, abs=1e-9), where
            assert value <= reference + 1e-8 * (1 + abs(reference)), where
            compared += 1
            derivative = jacobian(case.program, c, mine, case.mu, sides, regularizer)
            if derivative is not None:
                wanted = derivative.T @ weight[i]
                wanted = wanted if case.program.S is None else case.program.S.T @ wanted
                np.testing.assert_allclose(
                    slope[i], wanted, rtol=0, atol=1e-6 * (1 + np.abs(wanted).max()), err_msg=where
                )
                differentiated += 1
    # The comparison must not have become empty.
    assert compared >= (1 if regularizer == "squared" else 0.6) * BLOCK * COUNT
    assert differentiated >= 0.8 * compared


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_infeasible_programs_are_told_from_unbounded_ones(regularizer: Regularizer) -> None:
    """Right-hand sides drawn too small for about half of the instances. DavisYin proves most of that, and nothing false."""
    statuses = {
        "Solved": Status.OPTIMAL,
        "AlmostSolved": Status.OPTIMAL,
        "PrimalInfeasible": Status.INFEASIBLE,
        "DualInfeasible": Status.UNBOUNDED,
    }
    seen, proven = [], 0
    for seed in range(7000, 7036):
        case, rng = random_case(seed), np.random.RandomState(seed)
        if not case.program.G.shape[0]:
            continue
        h = np.broadcast_to(case.program.sides(case.instance, COUNT).h, (COUNT, case.program.G.shape[0]))
        fields = {} if case.instance is None else case.instance.present()
        instance = Instance(**{**fields, "h": torch.tensor(h - rng.exponential(size=h.shape))})
        case = replace(case, instance=instance)
        solution = Smoothed(case.program, case.mu, regularizer=regularizer).solve(case.y, instance)
        iterated = DavisYin(case.program, case.mu, iterations=2000, tolerance=1e-7).solve(case.y, instance)
        for i, (c, sides) in enumerate(case.rows()):
            found, _ = clarabel_smoothed(case.program, c, case.mu, sides, regularizer)
            if found == "DualInfeasible":  # where there is no feasible point either, that is what counts
                feasible, _ = clarabel_smoothed(case.program, c, case.mu, sides, "squared")
                found = "PrimalInfeasible" if feasible == "PrimalInfeasible" else found
            if found not in statuses:
                continue
            assert solution.status[i] == statuses[found], f"seed {seed}, instance {i}"
            seen.append(statuses[found])
            if iterated.status[i] == Status.INFEASIBLE:
                assert statuses[found] is Status.INFEASIBLE, f"seed {seed}, instance {i}: DavisYin"
                proven += 1
    for status in set(statuses.values()) if regularizer == "norm" else (Status.OPTIMAL, Status.INFEASIBLE):
        assert seen.count(status) >= 6
    assert proven >= 0.5 * seen.count(Status.INFEASIBLE)


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_what_the_kernels_do_not_finish_is_finished(regularizer: Regularizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the kernels' answers made worthless, all instances go the slow way: same decisions and gradients, and it is said."""
    run, differentiated, slowly = SmoothedRows.run, 0, 0

    def run_badly(
        rows: SmoothedRows,
        data: SmoothedData,
        index: np.ndarray | None,
        way: int,
        tolerance: float,
        answer: SmoothedAnswer,
        thorough: bool = False,
    ) -> None:
        run(rows, data, index, way, tolerance, answer, thorough=thorough)
        if tolerance > CONE_TOLERANCE:  # that of the cones that the norm asks about
            answer.w[:], answer.residual[:] = 7.0, 1.0

    for seed in range(3000, 3010):
        case = random_case(seed)
        slopes, solutions = [], []
        for way in (run, run_badly):
            with monkeypatch.context() as patch:
                patch.setattr(SmoothedRows, "run", way)
                layer = Smoothed(case.program, case.mu, regularizer=regularizer)
                y = case.y.clone().requires_grad_()
                solutions.append(layer.solve(y, case.instance))
                weight = np.random.RandomState(seed).normal(size=solutions[-1].decision.shape)
                slopes.append(gradient(solutions[-1].decision, y, weight))
        quick, slow = solutions
        slowly += int(slow.fallback.sum())
        assert torch.equal(quick.status, slow.status), f"seed {seed}"
        for i, (c, sides) in enumerate(case.rows()):
            if quick.status[i] != Status.OPTIMAL:
                continue
            w, other = (solution.decision[i].detach().numpy() for solution in solutions)
            np.testing.assert_allclose(other, w, rtol=0, atol=1e-5 * (1 + np.abs(w).max()), err_msg=f"seed {seed}")
            if jacobian(case.program, c, w, case.mu, sides, regularizer) is not None:
                np.testing.assert_allclose(slopes[1][i], slopes[0][i], rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")
                differentiated += 1
    assert differentiated >= 10
    assert slowly >= 20


def test_a_start_from_where_the_norm_had_won() -> None:
    """With small costs w = 0 is optimal, and the start says so; larger costs must not be misled by it, nor the reverse."""
    layer = Smoothed(top_one(3), 2.0, regularizer="norm")
    small, large = (torch.tensor([y], dtype=torch.float64) for y in ([0.3, 0.2, 0.1], [1.9, 1.9, 1.9]))
    start = layer.no_start(1)
    for y in (small, large, small, 100 * large, large):
        solution = layer.solve(y, start=start)
        torch.testing.assert_close(solution.decision, layer(y), rtol=0, atol=1e-9)
        start = solution.start


@pytest.mark.parametrize(
    ("parts", "mu", "costs"),
    [
        ({"G": [[-1, 1]], "h": [0], "upper": 1}, 1.0, [0.0, 0.0]),
        ({"G": [[-0.4, -19660.8]], "h": [0], "upper": [np.inf, 0], "S": [[1, 0], [0, 65536]]}, 256.0, [0.0, 0.0]),
        ({"A": [[1, -1, 0]], "b": [0], "G": [[0, 1, 1], [1, 0, -1]], "h": [0, 0]}, 2.0, [-3.0, 1.0, 1.0]),
    ],
)
def test_the_norm_wins_at_a_corner_of_many_rows(parts: dict[str, Any], mu: float, costs: list[float]) -> None:
    """w = 0 is optimal where no direction from it falls faster than μ, also where the cone of directions is degenerate."""
    answer = Smoothed(Program(**parts), mu, regularizer="norm").solve(torch.tensor(costs, dtype=torch.float64)).check()
    assert answer.status == int(Status.OPTIMAL)
    assert not answer.decision.any()


def test_the_slow_way_with_little_smoothing() -> None:
    """μ a millionth of the costs: HiGHS's own regularization and its cycling must not show."""
    for seed in range(5000, 5012):
        case = random_case(seed)
        for c, sides in case.rows():
            mu = 1e-6 * max(1.0, np.abs(c).max())
            _, reference = clarabel_smoothed(case.program, c, mu, sides, "squared")
            result = Hard(Certifier(case.program)).solve(c, mu, sides)
            assert result.status is Status.OPTIMAL, f"seed {seed}"
            assert result.residual <= 1e-6, f"seed {seed}"
            value, wanted = (smoothed_objective(c, w, mu, "squared") for w in (result.w, reference))
            assert value <= wanted + 1e-6 * (1 + abs(wanted)), f"seed {seed}"


# -- closed forms ---------------------------------------------------------------------------------------------------

LAYERS: dict[str, Callable[..., Layer]] = {
    "Smoothed": Smoothed,
    "CvxpySmoothed": CvxpySmoothed,
    "DavisYin": lambda program, mu: DavisYin(program, mu, iterations=20_000, tolerance=1e-11, gradient="implicit"),
}
ACCURACY = {"Smoothed": 1e-9, "CvxpySmoothed": 1e-5, "DavisYin": 1e-8}


@pytest.mark.parametrize("name", LAYERS)
def test_one_dimension(name: str) -> None:
    """0 ≤ w ≤ 1 with μ = 6: w = clip(−ŷ/6), and SCE = (ŷ − y)(w* − w), which is not convex and may be negative."""
    layer = LAYERS[name](Program(upper=1, n=1), 6.0)
    predicted = torch.tensor([[-8.0], [-6.5], [-4.0], [-3.0], [0.5], [4.0]], dtype=torch.float64, requires_grad=True)
    w = layer(predicted)
    torch.testing.assert_close(w, (-predicted / 6).clamp(0, 1), rtol=0, atol=ACCURACY[name])
    (slope,) = torch.autograd.grad(w.sum(), predicted)
    inside = torch.tensor([[0.0], [0], [1], [1], [0], [0]], dtype=torch.float64)
    torch.testing.assert_close(slope, -inside / 6, rtol=0, atol=10 * ACCURACY[name])

    def sce(predicted: float, true: float, label: float) -> float:
        y, c, w = (torch.tensor([[value]], dtype=torch.float64) for value in (predicted, true, label))
        return float(SCE(layer)(y, Batch(y, c, w)))

    values = [sce(-8, 4, 0), sce(-6, 4, 0), sce(-4, 4, 0), sce(-5, -4, 1)]
    np.testing.assert_allclose(values, [12, 10, 16 / 3, -1 / 6], rtol=0, atol=20 * ACCURACY[name])


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("mu", [0.3, 2.0, 50.0])
def test_top_one_is_a_projection_onto_the_capped_simplex(name: str, mu: float) -> None:
    """With μ = 50 the row Σw ≤ 1 is not in force."""
    y = torch.tensor(np.random.RandomState(3).normal(size=(20, 8)), requires_grad=True)
    weight = torch.tensor(np.random.RandomState(4).normal(size=(20, 8)))
    w, wanted = LAYERS[name](top_one(8), mu)(y), SmoothedTopOne(8, mu)(y)
    torch.testing.assert_close(w, wanted, rtol=0, atol=ACCURACY[name])
    slope, expected = (torch.autograd.grad(decision, y, weight)[0] for decision in (w, wanted))
    torch.testing.assert_close(slope, expected, rtol=0, atol=100 * ACCURACY[name] / mu)


@pytest.mark.parametrize("name", ["Smoothed", "CvxpySmoothed"])
def test_top_one_with_the_norm(name: str) -> None:
    """w is the squared solution with κ in place of μ, where κ ‖w‖ = μ; here by root finding on the closed form."""
    y = torch.tensor(np.random.RandomState(5).normal(size=(6, 8)) + 1)
    w = LAYERS[name](top_one(8), 0.8, regularizer="norm")(y)
    for i in range(len(y)):
        gap = lambda kappa, i=i: kappa * float(SmoothedTopOne(8, kappa)(y[i]).norm()) - 0.8  # noqa: E731
        kappa = scipy.optimize.brentq(gap, 1e-3, 1e3, xtol=1e-14)
        torch.testing.assert_close(w[i], SmoothedTopOne(8, kappa)(y[i]), rtol=0, atol=ACCURACY[name])


# Smoothing μ, then the distance Σ|w_μ − w*| with (μ/2)‖w‖² and, as the paper prints it, with μ‖w‖₂; the same for all M.
MANHATTAN = [
    (0.1, 0.0, 0.0),
    (0.99, 0.0, 0.0),
    (1.05, 0.048, 0.089),
    (1.5, 0.333, 0.465),
    (2.0, 0.5, 0.622),
    (5.0, 0.933, 1.165),
]


@pytest.mark.parametrize(("mu", "squared", "norm"), MANHATTAN)
def test_manhattan_distances_of_the_paper(mu: float, squared: float, norm: float) -> None:
    """Top-1 of M items whose values are a permutation of 1, …, M."""
    rng = np.random.RandomState(0)
    for items in (5, 10, 20, 100):
        program = top_one(items)
        values = torch.tensor(np.array([rng.permutation(items) + 1.0 for _ in range(4)]))
        best = torch.nn.functional.one_hot(values.argmax(-1), items)
        for regularizer, published in (("squared", squared), ("norm", norm)):
            w = Smoothed(program, mu, regularizer=regularizer)(values)
            distance = (w - best).abs().sum(-1)
            np.testing.assert_allclose(distance.numpy(), published, rtol=0, atol=5.1e-4)
    w = CvxpySmoothed(top_one(5), mu, regularizer="norm")(torch.tensor([[3.0, 5.0, 1.0, 4.0, 2.0]]))
    assert float((w - torch.tensor([0.0, 1, 0, 0, 0])).abs().sum()) == pytest.approx(norm, abs=6e-4)


# -- processes and memory -------------------------------------------------------------------------------------------


def answer(layer: Layer, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    costs = y.clone().requires_grad_()
    decision = layer(costs)
    (slope,) = torch.autograd.grad(decision.square().sum(), costs)
    return decision.detach().numpy(), slope.numpy()


def child(layer: Layer, y: Tensor, pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(answer(layer, y))
    pipe.close()


@pytest.mark.parametrize("name", LAYERS)
def test_after_a_fork(name: str) -> None:
    """A child of a process that has used the layer gets the same answers from it."""
    layer = LAYERS[name](top_one(6), 0.5)
    y = torch.tensor(np.random.RandomState(6).normal(size=(40, 6)))
    wanted = answer(layer, y)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks while threads run
        process = context.Process(target=child, args=(layer, y, there))
        process.start()
    assert here.poll(120), "the child does not answer"
    decision, slope = here.recv()
    process.join(60)
    assert process.exitcode == 0
    np.testing.assert_array_equal(decision, wanted[0])
    np.testing.assert_array_equal(slope, wanted[1])


@pytest.mark.parametrize(
    "layer", [Smoothed(top_one(3), 0.5), DavisYin(top_one(3), 0.5, iterations=5)], ids=["Smoothed", "DavisYin"]
)
def test_ten_thousand_calls_leave_nothing_behind(layer: Layer) -> None:
    y = torch.tensor([[0.3, 0.2, 0.1]], dtype=torch.float64)
    start = layer.no_start(1)

    def calls(count: int) -> int:
        for number in range(count):
            costs = y.clone().requires_grad_(number % 10 == 0)
            decision = layer.solve(costs, None, start).decision
            if costs.requires_grad:
                decision.sum().backward()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = calls(1000)
    assert calls(10_000) - before < 5_000, "peak memory (kilobytes) grows with the number of calls"


@pytest.mark.parametrize("noise", [0.2, 0.02, 1e-3, 1e-5])
def test_a_start_on_many_rows_leads_where_none_does(noise: float) -> None:
    """Where Newton's method gives up at once, and where it does not."""
    program, made = shortest_path(20), torch.Generator().manual_seed(5)
    costs = 1 + torch.rand(10, program.n, generator=made, dtype=torch.float64)
    near = costs * (1 + noise * torch.randn(costs.shape, generator=made, dtype=torch.float64))
    for mu in (1.0, 0.05):
        layer = Smoothed(program, mu)
        start = layer.solve(costs, None, layer.no_start(10)).check().start
        warm, cold = layer.solve(near, None, start), layer.solve(near)
        assert not warm.status.any()
        assert warm.residual is not None
        assert (
            warm.residual.max() <= 1e-8
        )  # the equality that depends on all others included, which the kernels do not see
        torch.testing.assert_close(warm.decision, cold.decision, rtol=0, atol=1e-8)


@pytest.mark.parametrize("far", [1e20, 1e25, 1e29])
def test_the_norm_beside_sides_that_mean_no_limit(far: float) -> None:
    """The shortest w with w₀ + 4 w₁ = 1 and w₂ = 0: (1, 4)/17, by hand."""
    program = Program(A=[[1, 4, 1]], b=[1], G=[[0, 0, 1], [0, 0, 1]], h=[far, 0], upper=[np.inf, far, far])
    layer = Smoothed(program, 1.0, regularizer="norm")
    found = layer.solve(torch.tensor([0, 0, -2.0], dtype=torch.float64)).check((Status.OPTIMAL,))
    np.testing.assert_allclose(found.decision, [1 / 17, 4 / 17, 0], rtol=1e-6, atol=1e-11)
