"""`from_pyepo` against PyEPO's own solves, and PyEPO's losses and metrics on `to_pyepo` against ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import highspy  # noqa: F401  (before PyEPO)
import numpy as np
import pyepo
import pyomo.environ  # noqa: F401  (before PyEPO)
import pytest
import torch
from pyepo.dsl import Maximize, Minimize, Parameter, Problem, Variable
from pyepo.model import grb, omo

import dflearn as dfl
from support.random_models import random_model, solve

RNG = np.random.default_rng(0)
WEIGHTS = RNG.uniform(1, 5, (2, 8))


def partial(backend: str, sense: Any) -> Any:
    """In PyEPO's modelling language: the prediction is one part of the objective, the rest is known."""
    x, y, c = Variable(4, ub=1), Variable(3, ub=2, vtype=pyepo.INTEGER), Parameter(4)
    known = np.array([0.5, -1.0, 2.0])
    rows = [x.sum() + y.sum() <= 5, x.sum() >= 1, y.sum() >= 2]
    options = {"solver": "appsi_highs"} if backend == "pyomo" else {}
    return Problem(sense(c @ x + known @ y), rows).compile(backend=backend, **options)


MODELS: dict[str, Callable[[], Any]] = {
    "shortest path": lambda: grb.shortestPathModel((4, 4)),
    "knapsack": lambda: grb.knapsackModel(WEIGHTS, WEIGHTS.sum(1) / 2),
    "relaxed knapsack": lambda: grb.knapsackModel(WEIGHTS, WEIGHTS.sum(1) / 2).relax(),
    "tour, two arcs per edge": lambda: grb.tspMTZModel(5),
    "shortest path, Pyomo": lambda: omo.shortestPathModel((3, 4), solver="appsi_highs"),
    "knapsack, Pyomo": lambda: omo.knapsackModel(WEIGHTS, WEIGHTS.sum(1) / 2, solver="appsi_highs"),
    "partly predicted": lambda: partial("gurobi", Minimize),
    "partly predicted, Pyomo": lambda: partial("pyomo", Maximize),
}


@pytest.mark.parametrize("name", MODELS)
def test_from_pyepo(name: str) -> None:
    check(MODELS[name](), seed=1)


def check(model: Any, seed: int, count: int = 3) -> None:
    """PyEPO's optimum on random costs."""
    program = dfl.from_pyepo(model)
    assert program.p == model.num_cost
    for costs in np.random.default_rng(seed).uniform(-1, 5, (count, model.num_cost)):
        model.setObj(torch.as_tensor(costs))
        _, best = model.solve()
        assert solve(program, costs)[0] == pytest.approx(best, rel=1e-6, abs=1e-9)


class Own(pyepo.model.opt.optModel):
    """A model without a modelling tool behind it."""

    def _getModel(self) -> tuple[None, list[int]]:
        return None, [0, 1]

    def setObj(self, c: Any) -> None:
        self.c = np.asarray(c)

    def solve(self) -> tuple[np.ndarray, float]:
        return np.eye(2)[self.c.argmin()], float(self.c.min())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grb.portfolioModel(3, np.eye(3)), "quadratic constraints"),
        (lambda: grb.tspDFJModel(4), "lazy constraints"),
        (Own, "from_callable"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises((dfl.errors.OptionError, dfl.errors.ProgramError), match=message):
        dfl.from_pyepo(make())


def facilities() -> dfl.Program:
    """S and d: open one of two places at known costs, serve two customers; a cost may enter two variables."""
    return dfl.Program(
        A=[[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]], b=[1, 1],
        G=[[1, 0, 1, 0, -2, 0], [0, 1, 0, 1, 0, -2]], h=[0, 0],
        upper=1, integer=[4, 5], S=[[2, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0, 1], [0, 0, 0], [0, 0, 0]],
        d=[0, 0.1, 0, 0, 1.0, 1.3],
    )  # fmt: skip


PROGRAMS: dict[str, Callable[[], dfl.Program]] = {
    "shortest path": lambda: dfl.problems.ShortestPath(4, 4).program,
    "knapsack, values": lambda: dfl.problems.Knapsack(8, capacity_share=2.0).program,
    "S and d": facilities,
    **{f"random {seed}": lambda seed=seed: program_of(seed) for seed in (0, 2, 3, 9)},
}


def program_of(seed: int) -> dfl.Program:
    """A random model, maximizing where the seed is a multiple of three, in which half of the objective is predicted."""
    model = random_model(seed)
    rows, bounds = (model.M, model.row_lower, model.row_upper), (model.lower, model.upper)
    kinds, half = model.integer.astype(int), range(0, model.n, 2)
    program = dfl.from_milp(model.c, integrality=kinds, bounds=bounds, constraints=rows, costs=half)
    sign, sense = (-1, "maximize") if model.maximize else (1, "minimize")
    return replace(program, S=sign * program.S, d=sign * program.d, sense=sense)


def batch_of(program: dfl.Program, count: int = 12) -> tuple[dfl.DecisionDataset, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    costs, predicted = torch.randn(2, count, program.p, generator=generator, dtype=torch.float64)
    return dfl.label(dfl.DecisionDataset(torch.zeros(count, 1), costs), dfl.HiGHS(program)), predicted


def labels(data: dfl.DecisionDataset, program: dfl.Program) -> tuple[torch.Tensor, ...]:
    """Costs, decisions and optima as PyEPO's losses take them; its optima are in the model's own sense."""
    batch = data.batch()
    costs, decisions = batch.require("costs"), batch.require("decisions")
    sign = -1 if program.sense == "maximize" else 1
    return costs, decisions, sign * program.objective(costs, decisions)[:, None]


@pytest.mark.parametrize("name", PROGRAMS)
def test_regret_is_ours(name: str) -> None:
    program = PROGRAMS[name]()
    data, predicted = batch_of(program)
    model = dfl.to_pyepo(dfl.HiGHS(program))
    dataset = pyepo.data.dataset.optDataset(model, predicted.numpy(), labels(data, program)[0].numpy())
    loader = torch.utils.data.DataLoader(dataset, batch_size=5)
    found = pyepo.metric.regret(torch.nn.Identity(), model, loader)
    assert found == pytest.approx(dfl.evaluate(predicted, program, data).ratio_of_sums, abs=1e-5)


def test_a_model_of_pyepo_there_and_back() -> None:
    """PyEPO → program → PyEPO gives PyEPO's own decisions and optima."""
    theirs = grb.knapsackModel(WEIGHTS, WEIGHTS.sum(1) / 2)
    ours = dfl.to_pyepo(dfl.from_pyepo(theirs))
    assert ours.modelSense == theirs.modelSense == pyepo.EPO.MAXIMIZE
    for costs in np.random.default_rng(3).uniform(1, 5, (10, 8)):
        answers = []
        for model in (theirs, ours, ours.copy(), ours.rebuild()):
            model.setObj(torch.as_tensor(costs))
            answers.append(model.solve())
        for decision, value in answers[1:]:
            np.testing.assert_allclose(decision, answers[0][0], atol=1e-6)
            assert value == pytest.approx(answers[0][1])
    relaxed = ours.relax()
    relaxed.setObj(np.arange(8.0))
    ours.setObj(np.arange(8.0))
    assert relaxed.solve()[1] > ours.solve()[1]


def test_to_pyepo_of_any_solver() -> None:
    solver = dfl.from_callable(lambda c: np.eye(3)[c.argmin()], n=3)
    model = dfl.to_pyepo(solver)
    model.setObj([3.0, 1.0, 2.0])
    decision, value = model.solve()
    assert decision.tolist() == [0, 1, 0]
    assert value == 1
    with pytest.raises(dfl.errors.ProgramError, match="no program"):
        model.relax()
    with pytest.raises(dfl.errors.ShapeError, match=r"\(\*batch, 3\)"):
        model.setObj([1.0])
