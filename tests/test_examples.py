"""The programs, solvers and formulations inside examples/ against independent references; what their scripts print and keep.

That every script runs is tested with the documents.
"""

from __future__ import annotations

import itertools
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import dijkstra

import dflearn as dfl
from dflearn.studies import executors
from dflearn.studies.config import read_study
from dflearn.studies.driver import complete
from dflearn.studies.store import write_records

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delenv("DFLEARN_ENERGY", raising=False)


def load(name: str) -> ModuleType:
    return __import__(name)


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


# -- delivery -------------------------------------------------------------------------------------------------------


def test_delivery_finds_the_shortest_paths_of_a_graph_with_cycles() -> None:
    roads = load("delivery").Roads.random(25, seed=2)
    assert {*zip(roads.tails, roads.heads, strict=True)} == {*zip(roads.heads, roads.tails, strict=True)}
    data, mean = roads.days(6, seed=3)
    solution = dfl.HiGHS(roads.program()).solve(data.costs.double(), data.instance)
    assert bool(torch.isclose(solution.decision, solution.decision.round(), atol=1e-9).all())
    for i in range(6):
        times = np.zeros((25, 25))
        times[roads.tails, roads.heads] = data.costs[i]
        customer = int(data.instance.b[i].argmin())
        assert float(solution.objective[i]) == pytest.approx(dijkstra(times, indices=0)[customer])
    assert mean.shape == data.costs.shape
    many, expected = roads.days(4000, seed=4)
    torch.testing.assert_close((many.costs / expected).mean(0), torch.ones(expected.shape[1]), atol=0.01, rtol=0)


# -- inventory ------------------------------------------------------------------------------------------------------


def test_inventory_is_the_cheapest_of_all_order_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the order days fixed, buying is a linear program: try all sets of days of a short horizon."""
    from scipy.optimize import linprog

    inventory = load("inventory")
    monkeypatch.setattr(inventory, "DAYS", 4)
    program = inventory.inventory_program()
    data, _ = inventory.fortnights(3, seed=1)
    found = dfl.HiGHS(program).solve(data.costs.double(), data.instance).objective
    for i, (price, demand) in enumerate(zip(data.costs.numpy(), data.instance.b.numpy(), strict=True)):
        best = np.inf
        for days in itertools.product([0.0, 1.0], repeat=4):
            cost = np.concatenate([price, np.full(4, inventory.HOLDING)])
            balance = np.hstack([np.eye(4), np.eye(4, k=-1) - np.eye(4)])
            bounds = [(0, day) for day in days] + [(0, inventory.ROOM)] * 4
            answer = linprog(cost, A_eq=balance, b_eq=demand, bounds=bounds)
            if answer.success:
                best = min(best, answer.fun + inventory.FEE * sum(days))
        assert float(found[i]) == pytest.approx(best, rel=1e-6)


# -- a solver of one's own ------------------------------------------------------------------------------------------


def test_crossing_is_the_best_of_all_ways_whatever_the_sign_of_costs() -> None:
    own = load("own_solver")
    costs = np.random.RandomState(0).normal(size=(5, 4, 6))
    ways = []
    for first in range(4):
        for steps in itertools.product([-1, 0, 1], repeat=5):
            rows = np.cumsum([first, *steps])
            if 0 <= rows.min() <= rows.max() < 4:
                way = np.zeros((4, 6))
                way[rows, np.arange(6)] = 1
                ways.append(way)
    best = np.einsum("crk,wrk->cw", costs, np.array(ways)).min(1)
    found = own.cheapest_crossing(costs)
    np.testing.assert_allclose((found * costs).sum((1, 2)), best)
    assert any((way == found[0]).all() for way in ways)


# -- the travelling salesman ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def six_cities():  # type: ignore[no-untyped-def]
    sys.path.insert(0, str(EXAMPLES))
    tours = load("tours")
    sys.path.remove(str(EXAMPLES))
    problem = tours.Tours(6, seed=1)
    return problem, problem.generate(8).costs.double()


def test_there_are_as_many_tours_as_there_should_be(six_cities) -> None:  # type: ignore[no-untyped-def]
    tours, _ = six_cities
    assert len(tours.all) == 60  # 5!/2
    assert len(np.unique(tours.used, axis=0)) == 60
    assert (tours.used.sum(1) == 6).all()
    assert float(tours.program.violation(torch.as_tensor(tours.used)).max()) == 0


@pytest.mark.parametrize("rescaled", [False, True])
@pytest.mark.parametrize("name", ["MTZ", "MTZ, lifted", "DFJ"])
def test_every_formulation_has_the_tours_as_its_integer_points(six_cities, name: str, rescaled: bool) -> None:  # type: ignore[no-untyped-def]
    tours, costs = six_cities
    program = tours.formulation(name, rescaled)
    labels = tours.directed(torch.as_tensor(tours.used), program, rescaled)
    assert float(program.violation(labels).max()) < 1e-12
    exact = tours.solver().solve(costs)
    torch.testing.assert_close(dfl.HiGHS(program).solve(costs).objective, exact.objective)
    torch.testing.assert_close(
        program.objective(costs[:1].expand(60, -1), labels), (costs[0] * torch.as_tensor(tours.used)).sum(1)
    )


def test_relaxations_grow_tighter_and_rescaling_changes_none(six_cities) -> None:  # type: ignore[no-untyped-def]
    tours, costs = six_cities
    bounds = [dfl.HiGHS(tours.formulation(name).relax()).solve(costs).objective for name in load("tours").FORMULATIONS]
    for weak, tight in itertools.pairwise([*bounds, tours.solver().solve(costs).objective]):
        assert bool((weak <= tight + 1e-7).all())
        assert float(tight.sum()) >= float(weak.sum())
    for name, bound in zip(("MTZ", "MTZ, lifted"), bounds[1:3], strict=True):
        torch.testing.assert_close(dfl.HiGHS(tours.formulation(name, True).relax()).solve(costs).objective, bound)
    torch.testing.assert_close(dfl.HiGHS(tours.program).solve(costs).objective, tours.solver().solve(costs).objective)


# -- scripts --------------------------------------------------------------------------------------------------------


def test_the_study_of_tours_runs(six_cities: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every method of the study, on six cities and few days; what was lost is run again, with the same results."""
    study = read_study(EXAMPLES / "travelling_salesman.toml")
    settings = replace(study.settings, points=50, test=20, validation=10, epochs=2)
    study = replace(study, problems=("TSP-6",), seeds=(1,), settings=settings)
    path = tmp_path / "runs.jsonl.xz"
    records = complete(study, path)
    assert {record.config.method for record in records} == {*study.methods}
    assert all(0 <= record.metric("ratio_of_sums") < 1 for record in records)
    write_records(path, records[:-2], instances=True)
    began: list[str] = []
    carry_out = executors.carry_out
    monkeypatch.setattr(
        executors, "carry_out", lambda config, *given: began.append(config.key) or carry_out(config, *given)
    )
    again = complete(study, path)
    assert sorted(began) == sorted(record.config.key for record in records[-2:])
    assert {r.config.key: r.metrics for r in again} == {r.config.key: r.metrics for r in records}


def test_tables_of_the_examples_are_those_of_their_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES.parent / "results" / "energy", tmp_path / "energy")
    before = (tmp_path / "energy" / "table.md").read_text()
    run("energy_table", monkeypatch, "--no-run")
    assert (tmp_path / "energy" / "table.md").read_text() == before


def test_examples_do_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run("own_solver", monkeypatch, "--quick")
    assert "no plot" in capsys.readouterr().out


def test_a_day_that_two_seeds_test_counts_once() -> None:
    """The same days tested twice tell no more than once: the interval does not shrink."""
    table, rng = load("energy_table"), np.random.default_rng(0)
    days = [int(day) for day in rng.permutation(100)[:30]]
    optimum, base, own = rng.uniform(5, 9, 30), rng.uniform(1, 2, 30), rng.uniform(0, 1, 30)
    found = {}
    for seed, order in ((1, np.arange(30)), (2, rng.permutation(30))):
        for method, regret in (("two-stage", base), ("SCE", own)):
            arrays = {"ids": np.array(days)[order], "regrets": regret[order], "optima": optimum[order]}
            found["p", seed, method] = SimpleNamespace(**arrays)
    once, twice = (table.difference(found, "p", seeds, "SCE") for seeds in ([1], [1, 2]))
    assert once.value == pytest.approx((base - own).sum() / optimum.sum())
    np.testing.assert_allclose(once, twice)


def test_energy_examples_say_that_their_days_are_synthetic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("energy_knapsack", monkeypatch, "--quick", "--predict", "value")
    out = capsys.readouterr().out
    assert "SYNTHETIC" in out
    assert all(method in out for method in ("two-stage", "SPO+", "SCE"))
    assert (tmp_path / "energy_knapsack.png").exists()


# -- risk, demand and load: quadratic objectives, predicted right-hand sides, recourse --------------------------------


def paid(program: dfl.Program, y: torch.Tensor, decision: torch.Tensor) -> np.ndarray:
    """What decisions cost once y is known."""
    from dflearn.solvers.recourse import recourse_of

    settle = recourse_of(program)
    assert settle is not None
    return settle.settle(y, decision).cost.numpy()


def test_portfolio_against_cvxpy() -> None:
    import cvxpy

    portfolio = load("portfolio")
    program, (train, test) = portfolio.portfolio_program(), portfolio.draw(0)
    assert not set(train.ids.tolist()) & {*test.ids.tolist(), *portfolio.draw(1)[0].ids.tolist()}
    found = dfl.HiGHS(program).solve(train.costs[:3])
    covariance = portfolio.LOADINGS.T @ portfolio.LOADINGS + np.diag(portfolio.OWN**2)
    for i in range(3):
        w = cvxpy.Variable(portfolio.ASSETS)
        risk = cvxpy.quad_form(w, portfolio.AVERSION / 2 * covariance)
        gain = cvxpy.Maximize(train.costs[i].numpy() @ w - risk)
        best = cvxpy.Problem(gain, [cvxpy.sum(w) == 1, w >= 0, w <= 0.2]).solve(solver="CLARABEL")
        assert -float(found.objective[i]) == pytest.approx(best, rel=1e-6)


def test_newsvendors_pay_what_the_formula_says() -> None:
    newsvendor = load("newsvendor")
    program = newsvendor.newsvendor_program(50.0)
    train, _ = newsvendor.draw(0)
    y, orders = train.costs[:6], train.costs[6:12]
    decision = torch.cat([orders * 50 / orders.sum(-1, keepdim=True), torch.zeros(6, 2 * newsvendor.GOODS)], -1)
    w = decision[:, : newsvendor.GOODS].numpy()
    error = w - y.numpy()
    wanted = (
        newsvendor.COST * w + newsvendor.LEFT * np.maximum(error, 0) + newsvendor.MISSED * np.maximum(-error, 0)
    ).sum(1)
    np.testing.assert_allclose(paid(program, y, decision), wanted)
    # Without the room, the best order for a distribution is its quantile.
    drawn = np.random.default_rng(0).gumbel(10, 2, (20_001, 1))
    for k, share in enumerate(newsvendor.SHARE):

        def cost(x: float, missed: float = newsvendor.MISSED[k]) -> float:
            return float((x + newsvendor.LEFT * np.maximum(x - drawn, 0) + missed * np.maximum(drawn - x, 0)).mean())

        best = np.quantile(drawn, share)
        assert cost(best) <= min(cost(best - 0.05), cost(best + 0.05))


@pytest.mark.parametrize("name", ["generators", "transport"])
def test_plans_against_cvxpy(name: str) -> None:
    """The program with slack is the piecewise linear one that the example states."""
    import cvxpy

    example = load(name)
    program = {"generators": "generator_program", "transport": "transport_program"}[name]
    train, _ = example.draw(0)
    y = train.costs[:3]
    found = dfl.HiGHS(getattr(example, program)()).solve(y)
    for i in range(3):
        load_ = y[i].numpy()
        if name == "generators":
            w = cvxpy.Variable(example.HOURS)
            made, rows = w, [cvxpy.abs(cvxpy.diff(w)) <= example.RAMP, w >= 0]
            cost = example.FUEL * cvxpy.sum(w) + example.CURVE / 2 * cvxpy.sum_squares(w)
            dear, cheap = example.DEAR, example.CHEAP
        else:
            w = cvxpy.Variable((example.DEPOTS, example.TOWNS), nonneg=True)
            made, rows = cvxpy.sum(w, axis=0), [cvxpy.sum(w, axis=1) <= example.SUPPLY]
            cost, dear, cheap = cvxpy.sum(cvxpy.multiply(example.COSTS, w)), example.EXPRESS, example.BACK
        cost = cost + dear * cvxpy.sum(cvxpy.pos(load_ - made)) + cheap * cvxpy.sum(cvxpy.pos(made - load_))
        best = cvxpy.Problem(cvxpy.Minimize(cost), rows).solve(solver="CLARABEL")
        assert float(found.objective[i]) == pytest.approx(best, rel=1e-6)


def test_commitment_is_the_cheapest_of_all_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hours: with the running units fixed, output is filled up by fuel costs above what they must give."""
    commitment = load("commitment")
    monkeypatch.setattr(commitment, "HOURS", 2)
    program = commitment.commitment_program()
    loads = torch.tensor([[2.0, 5.0], [7.5, 12.0], [14.0, 0.4], [9.0, 9.0]], dtype=torch.float64)
    found = dfl.HiGHS(program).solve(loads).objective
    units = range(commitment.UNITS)
    for i, load_ in enumerate(loads.numpy()):
        best = np.inf
        for on in itertools.product([0, 1], repeat=2 * commitment.UNITS):
            run = np.array(on).reshape(commitment.UNITS, 2)
            starts = np.maximum(np.diff(run, axis=1, prepend=0), 0)
            cost = (commitment.FIXED @ run + commitment.BEGIN @ starts).sum()
            for t in range(2):
                must = float(commitment.LEAST @ run[:, t])
                cost, left = cost + float((commitment.FUEL * commitment.LEAST) @ run[:, t]), load_[t] - must
                if left < 0:
                    cost, left = cost - commitment.SOLD * left, 0.0
                for unit in sorted(units, key=lambda u: commitment.FUEL[u]):
                    more = min(left, run[unit, t] * (commitment.MOST - commitment.LEAST)[unit])
                    cost, left = cost + commitment.FUEL[unit] * more, left - more
                cost += commitment.BOUGHT * left
            best = min(best, cost)
        assert float(found[i]) == pytest.approx(best, rel=1e-6)
