"""Evaluation: every metric against hand computation, a literal reimplementation, enumeration or scipy."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.errors import DataError, OptionError, ShapeError, SolverError
from dflearn.evaluation import Evaluation, compare, estimates, evaluate
from dflearn.evaluation.estimates import FEW
from dflearn.problems import ShortestPath, problem_named
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS


def choose_one(n: int, **options: object) -> Program:
    """Choose one of n: the decision is the unit vector of the least cost."""
    return Program(A=np.ones((1, n)), b=[1], upper=1, name="choice", **options)


def dataset(costs: object, **options: object) -> DecisionDataset:
    y = torch.tensor(costs, dtype=torch.float64)
    return DecisionDataset(torch.zeros(len(y), 1, dtype=torch.float64), y, **options)


COSTS = [[1.0, 2.0], [4.0, 2.0], [3.0, 6.0]]
PREDICTED = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # right, wrong, wrong


def test_every_metric_by_hand() -> None:
    found = evaluate(PREDICTED, choose_one(2), dataset(COSTS))
    assert found.regrets.tolist() == [0, 2, 3]
    assert found.optima.tolist() == [1, 2, 3]
    assert found.regrets.dtype == found.optima.dtype == np.float64
    assert found.mean_of_ratios == pytest.approx(2 / 3)
    assert found.ratio_of_sums == pytest.approx(5 / 6)
    assert found.published_style == pytest.approx(5 / 3 * (1 + 1 / 2 + 1 / 3) / 3)
    assert found.absolute_regret == pytest.approx(5 / 3)
    assert found.mse == pytest.approx((1 + 8.5 + 20) / 3)
    assert found.exact_share == pytest.approx(1 / 3)
    assert found.decisions is not None
    assert found.decisions.tolist() == [[1, 0], [1, 0], [0, 1]]
    assert found.predictions is not None
    assert found.predictions.tolist() == PREDICTED.tolist()
    with pytest.raises(DataError, match="pessimistic=True"):
        _ = found.pessimistic_regret
    assert "floor_absolute_regret" not in found.metrics


def test_maximization_has_positive_optima_and_regrets() -> None:
    found = evaluate(-PREDICTED, choose_one(2, S=-np.eye(2), sense="maximize"), dataset(COSTS))
    assert found.optima.tolist() == [2, 4, 6]
    assert found.regrets.tolist() == [1, 0, 0]
    assert found.mean_of_ratios == pytest.approx(1 / 6)
    assert found.published_style == pytest.approx(1 / 3 * (1 / 2 + 1 / 4 + 1 / 6) / 3)


def example(count: int, seed: int = 0, **changes: object) -> Evaluation:
    rng = np.random.RandomState(seed)
    optima = rng.lognormal(size=count)
    held = {"regrets": np.maximum(rng.normal(0.2, 0.3, count), 0) * optima, "optima": optima}
    return Evaluation("example", "none", np.arange(count), **{**held, "squared_errors": rng.rand(count), **changes})


@pytest.mark.parametrize("count", [1, 31, 32, 33, 1000])
def test_published_style_is_the_literal_broadcast(count: int) -> None:
    found = example(count)
    total = 0.0
    for first in range(0, count, 32):
        regret, optimum = found.regrets[first : first + 32], found.optima[first : first + 32, None]
        matrix = regret / optimum  # (B,) against (B, 1)
        assert matrix.shape == (len(regret), len(regret))
        total += matrix.mean() * len(regret)  # a test loop averages its batches by their number of rows
    assert found.published_style == pytest.approx(total / count, rel=1e-12)


def test_zero_optima_are_left_out_of_ratios_and_said() -> None:
    found = evaluate(PREDICTED, choose_one(2), dataset([[0.0, 2.0], [4.0, 2.0], [3.0, 6.0]]))
    assert found.zero_optima.tolist() == [True, False, False]
    assert found.mean_of_ratios == pytest.approx(1)
    assert found.ratio_of_sums == pytest.approx(1)
    assert found.published_style == pytest.approx(5 / 2 * (1 / 2 + 1 / 3) / 2)
    assert found.absolute_regret == pytest.approx(5 / 3)
    assert found.exact_share == pytest.approx(1 / 3)
    assert "1 of 3 instances have a zero optimum" in found.summary()
    nothing = evaluate(PREDICTED, choose_one(2), dataset([[0.0, 2.0]] * 3))
    assert np.isnan([nothing.mean_of_ratios, nothing.ratio_of_sums, nothing.published_style]).all()
    assert nothing.as_dict()["metrics"]["mean_of_ratios"] == {"value": None, "low": None, "high": None}


def test_negative_regrets_are_counted_never_clipped() -> None:
    poor = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # the first label is not optimal
    found = evaluate(PREDICTED, choose_one(2), dataset(COSTS, decisions=poor))
    assert found.regrets.tolist() == [-1, 2, 3]
    assert found.absolute_regret == pytest.approx(4 / 3)
    assert found.negative_regrets.tolist() == [True, False, False]
    assert found.as_dict()["most_negative_regret"] == -1
    assert "1 of 3 regrets are negative, the most by -1: the decisions of the data are not optimal" in found.summary()


def test_intervals_are_no_narrower_than_students_and_follow_the_skewness() -> None:
    found = example(400)
    ratios = found.regrets / found.optima
    for name, values in (("absolute_regret", found.regrets), ("mean_of_ratios", ratios), ("mse", found.squared_errors)):
        low, high = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        assert low - 0.1 * (high - low) < found.metrics[name].low <= low * (1 + 1e-12)
        assert high * (1 - 1e-12) <= found.metrics[name].high < high + 0.3 * (high - low)
    value, low, high = found.metrics["absolute_regret"]  # regrets are skewed, the squared errors here are uniform
    assert high - value > 1.1 * (value - low)
    value, low, high = found.metrics["mse"]
    assert high - value == pytest.approx(value - low, rel=0.1)
    exact = int((found.regrets == 0).sum())
    wilson = scipy.stats.binomtest(exact, 400).proportion_ci(0.95, method="wilson")
    assert found.metrics["exact_share"] == pytest.approx((exact / 400, *wilson))


def test_intervals_of_what_is_never_negative_end_at_zero() -> None:
    skewed = np.r_[np.zeros(39), 1000.0]
    found = example(40, squared_errors=skewed, regrets=skewed)
    assert estimates.mean(skewed, 0.95).low < 0
    assert found.metrics["mse"].low == found.metrics["absolute_regret"].low == found.metrics["ratio_of_sums"].low == 0
    assert found.metrics["mse"].high == estimates.mean(skewed, 0.95).high
    inexact = example(40, squared_errors=skewed, regrets=skewed - 1e-3)  # by a solver with a gap
    assert inexact.metrics["mse"].low == 0 > inexact.metrics["absolute_regret"].low


def test_ratio_interval_against_the_jackknife() -> None:
    found = example(400)
    r, o = found.regrets, found.optima
    left_out = (r.sum() - r) / (o.sum() - o)
    error = np.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    student = scipy.stats.t.ppf(0.975, 399)
    value, low, high = found.metrics["ratio_of_sums"]
    assert 0.99 * student < (value - low) / error < 1.1 * student
    assert 0.99 * student < (high - value) / error < 1.4 * student
    few = example(FEW - 1)  # Student's interval alone
    r, o = few.regrets, few.optima
    value, low, high = few.metrics["ratio_of_sums"]
    z = (r - value * o) / o.mean()
    error = z.std(ddof=1) / np.sqrt(FEW - 1)
    assert (low + high) / 2 == pytest.approx(value)
    assert (high - low) / 2 == pytest.approx(error * scipy.stats.t.ppf(0.975, FEW - 2))


def test_published_interval_against_a_plain_bootstrap() -> None:
    found = example(200)
    rng, drawn = np.random.RandomState(7), []
    for _ in range(2000):
        rows = rng.choice(200, 200)
        batches = [(found.regrets[rows[i : i + 32]], found.optima[rows[i : i + 32]]) for i in range(0, 200, 32)]
        drawn.append(sum((r[None] / o[:, None]).mean() * len(r) for r, o in batches) / 200)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.metrics["published_style"][1:] == pytest.approx((low, high), rel=0.15)
    assert example(200).metrics["published_style"] == found.metrics["published_style"]  # the same seed each time


def test_intervals_of_few_or_no_instances() -> None:
    none = example(0)
    assert np.isnan([value for estimate in none.metrics.values() for value in estimate]).all()
    assert np.isnan(example(1).metrics["absolute_regret"][1:]).all()
    assert estimates.mean(np.array([1.0, np.inf]), 0.95).value == np.inf
    wide, narrow = example(50, confidence=0.99), example(50, confidence=0.5)
    for name in narrow.metrics:
        assert wide.metrics[name].low < narrow.metrics[name].low < narrow.metrics[name].high < wide.metrics[name].high


def test_pessimistic_breaks_ties_against_the_prediction() -> None:
    data = dataset([[2.0, 7.0, 1.0], [2.0, 7.0, 1.0], [2.0, 7.0, 1.0]])
    predicted = torch.tensor([[1.0, 1.0, 5.0], [0.0, 0.0, 0.0], [3.0, 2.0, 1.0]])  # tie of two, of all, of none
    found = evaluate(predicted, choose_one(3), data, pessimistic=True)
    assert found.pessimistic_regrets == pytest.approx(np.array([6.0, 6.0, 0.0]), abs=1e-5)
    assert found.pessimistic_regret == pytest.approx(4.0)
    assert (found.regrets <= found.pessimistic_regrets + 1e-6).all()


@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1e-3, 1.0, 1e6])
def test_pessimistic_in_any_unit_of_decisions_at_zero(unit: float) -> None:
    """Nothing is taken by the prediction, and any of it would cost: no tie."""
    program = Program(G=[[1.0, 1.0]], h=[1.5 * unit], upper=unit)
    found = evaluate(torch.tensor([[1.0, 1.0]]), program, dataset([[-1.0, 2.0]]), pessimistic=True, progress=False)
    assert found.regrets / unit == pytest.approx(np.ones(1))
    assert found.pessimistic_regrets is not None
    assert found.pessimistic_regrets / unit == pytest.approx(np.ones(1), abs=1e-5)


def _paths(program: Program) -> np.ndarray:
    """All paths of a small grid, `(count, n)`, by walking its arcs from the source (b = 1) to the sink (b = −1)."""
    A = program.A.toarray()
    tails, heads = (A == 1).argmax(0), (A == -1).argmax(0)
    sink, found = int(np.argmin(program.b)), []
    stack: list[tuple[int, list[int]]] = [(int(np.argmax(program.b)), [])]
    while stack:
        node, used = stack.pop()
        if node == sink:
            found.append(np.isin(np.arange(program.n), used).astype(float))
        stack += [(int(heads[j]), [*used, int(j)]) for j in np.flatnonzero(tails == node)]
    return np.array(found)


@pytest.mark.parametrize(("rounded", "unit"), [(False, 1.0), (False, 1e-4), (True, 1.0), (True, 1e3)])
def test_pessimistic_on_paths_against_all_paths(rounded: bool, unit: float) -> None:
    """Rounded predictions have many ties."""
    problem = ShortestPath(5, 5, seed=1)
    data = problem.generate(100 if rounded else 300)
    predicted = data.features @ torch.randn(data.features.shape[1], 40, generator=torch.Generator().manual_seed(0))
    predicted = unit * (predicted.round() if rounded else predicted)
    found = evaluate(predicted, problem, data, pessimistic=True, progress=False)
    paths = _paths(problem.program)
    guess, true = predicted.double().numpy() @ paths.T, data.costs.double().numpy() @ paths.T  # type: ignore[union-attr]
    above = guess - guess.min(1, keepdims=True)
    clear = ~((above > 1e-9 * unit) & (above < 1e-4 * unit)).any(1)
    assert clear.sum() > 0.9 * len(clear)
    worst = np.where(above <= 1e-9 * unit, true, -np.inf).max(1) - true.min(1)
    assert found.pessimistic_regrets is not None
    assert found.pessimistic_regrets[clear] == pytest.approx(worst[clear], rel=1e-6, abs=1e-5)


def test_pessimistic_is_infinite_where_ties_are_unbounded() -> None:
    program = Program(G=[[-1.0, 0.0]], h=[-1.0])  # w₀ ≥ 1, w₁ ≥ 0
    found = evaluate(torch.tensor([[1.0, 0.0]]), program, dataset([[1.0, 1.0]]), pessimistic=True)
    assert found.regrets.tolist() == [0.0]
    assert found.pessimistic_regret == np.inf


@pytest.mark.parametrize("seed", range(4))
def test_pessimistic_against_enumeration(seed: int) -> None:
    """Small knapsacks with capacities and a known cost d per instance; integer predictions make many ties."""
    rng, n, count = np.random.RandomState(seed), 7, 12
    program = Program(G=rng.randint(1, 6, (2, n)), h=[9, 9], upper=1, S=-np.eye(n), integer=True, sense="maximize")
    h, d = rng.randint(6, 14, (count, 2)).astype(float), rng.randint(0, 2, (count, n)).astype(float)
    instance = Instance(h=torch.tensor(h), d=torch.tensor(d))
    y, guess = rng.uniform(1, 5, (count, n)), rng.randint(0, 3, (count, n)).astype(float)
    found = evaluate(torch.tensor(guess), program, dataset(y, instance=instance), pessimistic=True)
    everything = np.array(list(itertools.product([0, 1], repeat=n)))
    for i in range(count):
        feasible = everything[(everything @ program.G.toarray().T <= h[i]).all(1)]
        believed, true = feasible @ (d[i] - guess[i]), feasible @ (d[i] - y[i])
        tied = np.isclose(believed, believed.min())
        assert -found.optima[i] == pytest.approx(true.min())
        assert found.pessimistic_regrets[i] == pytest.approx(true[tied].max() - true.min(), abs=1e-4)
    assert tied.sum() >= 1


class Noisy(nn.Module):
    """A linear map in float32 with dropout, to see the mode and the dtype it is called in."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dropout = nn.Linear(10, 40), nn.Dropout(0.9)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x))


def test_module_callable_and_tensor_agree() -> None:
    problem = problem_named("SP-5", seed=1)
    data = problem.generate(30, seed=2)
    torch.manual_seed(0)
    module = Noisy().train()
    found = evaluate(module, problem, data.to(torch.float64))
    assert module.training
    again = evaluate(lambda x: module.linear(x), problem.program, data)
    direct = evaluate(module.linear(data.features), problem.program, data)
    numpy = evaluate(module.linear(data.features).detach().numpy(), problem.program, data)
    for other in (again, direct, numpy):
        np.testing.assert_allclose(found.regrets, other.regrets, atol=1e-6)
    assert found.problem == "SP-5"


def test_an_estimator_is_judged_by_what_it_predicts() -> None:
    problem = problem_named("SP-3x3")
    data = problem.generate(40, dtype=torch.float64)
    assert data.costs is not None
    estimator = LinearRegression().fit(data.features.numpy(), data.costs.numpy())
    found = evaluate(estimator, problem, data, progress=False)
    wanted = evaluate(estimator.predict(data.features.numpy()), problem, data, progress=False)
    np.testing.assert_array_equal(found.regrets, wanted.regrets)
    with pytest.raises(OptionError, match="or a fitted estimator in scikit-learn's conventions; got a str"):
        evaluate("model.dfl", problem, data, progress=False)


def test_floor_is_the_regret_of_deciding_with_the_mean() -> None:
    problem = problem_named("SP-5", seed=1)
    data = label(problem.generate(200, seed=3), problem.solver())
    found = evaluate(data.costs, problem, data)
    assert found.absolute_regret == 0  # the true costs as prediction
    assert found.exact_share == 1
    solver = HiGHS(problem.program)
    w = solver.solve(problem.expected_costs(data.features)).decision
    wanted = problem.program.objective(data.costs, w) - problem.program.objective(data.costs, data.decisions)
    np.testing.assert_allclose(found.floor_regrets, wanted.numpy(), atol=1e-5)
    assert found.metrics["floor_absolute_regret"].value == pytest.approx(float(wanted.mean()), rel=1e-4)
    size = float(problem.program.objective(data.costs, data.decisions).sum())
    assert found.metrics["floor_ratio_of_sums"].value == pytest.approx(float(wanted.sum()) / size, rel=1e-4)
    mean = evaluate(problem.expected_costs, problem, data)
    np.testing.assert_allclose(mean.regrets, found.floor_regrets, atol=1e-6)
    assert mean.absolute_regret > 0
    assert evaluate(data.costs, problem, data, floor=False).floor_regrets is None


def test_what_cannot_be_judged_is_refused() -> None:
    problem = problem_named("KP-10", seed=1)
    program, data = problem.program, problem.generate(12, seed=2)
    predicted = data.costs
    assert predicted is not None
    with pytest.raises(DataError, match="relaxation"):
        evaluate(predicted, problem, label(data, problem.relaxed_solver()))
    with pytest.raises(DataError, match="training only"):
        evaluate(predicted, problem, data, HiGHS(program.relax()))
    with pytest.raises(ShapeError, match=r"\(12, 10\)"):
        evaluate(predicted[:5], problem, data)
    with pytest.raises(ShapeError, match="NaN"):
        evaluate(predicted * torch.nan, problem, data)
    with pytest.raises(DataError, match="hold none"):
        evaluate(predicted, problem, DecisionDataset(data.features))
    with pytest.raises(ShapeError, match="10 costs"):
        evaluate(predicted, problem, DecisionDataset(data.features, predicted[:, :3]))
    with pytest.raises(ShapeError, match="10 variables"):
        evaluate(predicted, problem, DecisionDataset(data.features, predicted, predicted[:, :3]))
    with pytest.raises(OptionError, match="confidence"):
        evaluate(predicted, problem, data, confidence=95)
    infeasible = Program(A=np.ones((1, 2)), b=[3], upper=1)
    with pytest.raises(SolverError, match=r"id 0 is INFEASIBLE \(and \d+ more: id 1, id 2"):
        evaluate(PREDICTED, infeasible, dataset(COSTS))


def test_compare_by_hand_and_against_scipy() -> None:
    data = dataset(COSTS)
    one = evaluate(PREDICTED, choose_one(2), data)  # regrets 0, 2, 3
    other = evaluate(-PREDICTED, choose_one(2), data)  # regrets 1, 0, 0
    found = compare(one, other)
    assert (found.wins, found.ties, found.losses) == (1, 0, 2)
    assert found.absolute_regret.value == pytest.approx(4 / 3)
    assert found.mean_of_ratios.value == pytest.approx((-1 + 1 + 1) / 3)
    assert found.ratio_of_sums.value == pytest.approx(4 / 6)
    wanted = scipy.stats.ttest_rel(one.regrets, other.regrets).confidence_interval(0.95)
    assert found.absolute_regret[1:] == pytest.approx(tuple(wanted))
    same = compare(one, one)
    assert (same.wins, same.ties, same.losses) == (0, 3, 0)
    assert same.absolute_regret == (0, 0, 0)
    assert "1 wins, 0 ties, 2 losses" in str(found)
    assert json.loads(json.dumps(found.as_dict()))["ties"] == 0


def test_compare_refuses_other_instances() -> None:
    one = evaluate(PREDICTED, choose_one(2), dataset(COSTS))
    with pytest.raises(DataError, match="same instances"):
        compare(one, evaluate(PREDICTED, choose_one(2), dataset(COSTS, ids=torch.tensor([3, 4, 5]))))
    with pytest.raises(DataError, match="different optima"):
        compare(one, evaluate(PREDICTED, choose_one(2), dataset((2 * np.array(COSTS)).tolist())))
