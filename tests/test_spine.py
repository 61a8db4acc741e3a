"""The thin slice that proves the core: on each awkward kind of problem, plain gradient descent lowers regret.

Facility location (S and d), knapsack (maximization), right-hand sides per instance, features per cost coefficient
with a shared predictor, and data that hold decisions but no costs.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dflearn.data import Batch, DecisionDataset
from dflearn.layers.base import Exact, Layer
from dflearn.layers.perturbed import Perturbed
from dflearn.losses.base import Loss
from dflearn.losses.fenchel_young import FenchelYoung
from dflearn.losses.sce import SCE
from dflearn.losses.spo_plus import SPOPlus
from dflearn.models import Linear, SharedLinear
from dflearn.program import Instance, Program
from dflearn.solvers.highs import HiGHS

COUNT, FEATURES = 64, 4


def polynomial_costs(rng: np.random.RandomState, p: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(COUNT, FEATURES))
    return x, (x @ rng.binomial(1, 0.5, (FEATURES, p)) / 2 + 3) ** 4 / 81


def knapsack(rng: np.random.RandomState) -> tuple[Program, np.ndarray, np.ndarray, Instance | None]:
    n = 10
    x, y = polynomial_costs(rng, n)
    weights = rng.uniform(3, 8, (2, n))
    program = Program(G=weights, h=0.4 * weights.sum(1), upper=1, S=-np.eye(n), integer=True, sense="maximize")
    return program, x, y, None


def facility_location(rng: np.random.RandomState) -> tuple[Program, np.ndarray, np.ndarray, Instance | None]:
    customers, facilities = 5, 3
    x, y = polynomial_costs(rng, customers * facilities)
    demand, opening = rng.uniform(1, 4, customers), rng.uniform(1, 3, facilities)
    assign = customers * facilities
    n = assign + facilities
    A, G = np.zeros((customers, n)), np.zeros((facilities, n))
    for i in range(customers):
        A[i, i * facilities : (i + 1) * facilities] = 1
    for j in range(facilities):
        G[j, j:assign:facilities], G[j, assign + j] = demand, -0.7 * demand.sum()
    S = np.vstack([np.diag(np.repeat(demand, facilities)), np.zeros((facilities, assign))])
    integer = np.arange(assign, n)
    d = np.concatenate([np.zeros(assign), opening])
    return (
        Program(A=A, b=np.ones(customers), G=G, h=np.zeros(facilities), upper=1, S=S, d=d, integer=integer),
        x,
        y,
        None,
    )


def changing_demand(rng: np.random.RandomState) -> tuple[Program, np.ndarray, np.ndarray, Instance | None]:
    """Buy from eight suppliers to meet a demand that differs per instance, within capacities that differ too."""
    n = 8
    x, y = polynomial_costs(rng, n)
    demand = torch.as_tensor(rng.uniform(2, 5, (COUNT, 1)), dtype=torch.float32)
    upper = torch.as_tensor(rng.uniform(0.8, 1.5, (COUNT, n)), dtype=torch.float32)
    return Program(A=np.ones((1, n)), b=[3], upper=1), x, y, Instance(b=demand, upper=upper)


PROBLEMS = {f.__name__: f for f in (knapsack, facility_location, changing_demand)}


def regret(model: nn.Module, solver: HiGHS, data: Batch) -> float:
    with torch.no_grad():
        w = solver.solve(model(data.features), data.instance).check().decision
    objective = solver.objective
    return float(
        (objective(data.costs, w, data.instance) - objective(data.costs, data.decisions, data.instance)).mean()
    )


def train(model: nn.Module, loss: Loss, data: Batch, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(epochs):
        for rows in torch.arange(COUNT).split(16):
            batch = DecisionDataset(data.features, data.costs, data.decisions, data.instance).batch(rows)
            value = loss(model(batch.features), batch)
            assert value.shape == (len(rows),)
            optimizer.zero_grad()
            value.mean().backward()
            optimizer.step()


def labelled(program: Program, x: np.ndarray, y: np.ndarray, instance: Instance | None) -> Batch:
    features, costs = (torch.as_tensor(part, dtype=torch.float32) for part in (x, y))
    decisions = HiGHS(program).solve(costs, instance).check().decision
    return Batch(features, costs, decisions, instance)


def check_that_training_lowers_regret(
    program: Program,
    data: Batch,
    model: nn.Module,
    loss: Loss,
    share: float = 0.5,
    epochs: int = 15,
    seen: Batch | None = None,
) -> None:
    before = regret(model, HiGHS(program), data)
    train(model, loss, data if seen is None else seen, epochs)
    assert regret(model, HiGHS(program), data) < share * before


@pytest.mark.parametrize("loss", [SPOPlus, SCE])
@pytest.mark.parametrize("name", PROBLEMS)
def test_training_lowers_regret(name: str, loss: type[SPOPlus | SCE]) -> None:
    program, x, y, instance = PROBLEMS[name](np.random.RandomState(0))
    layer, model = Exact(HiGHS(program.relax())), Linear(FEATURES, program.p)
    check_that_training_lowers_regret(program, labelled(program, x, y, instance), model, loss(layer))


def test_features_per_coefficient_with_a_shared_predictor() -> None:
    rng = np.random.RandomState(1)
    program, _, _, _ = knapsack(rng)
    x = rng.normal(size=(COUNT, program.p, FEATURES))
    data = labelled(program, x, np.exp(x @ np.array([0.8, -0.5, 0.3, 0.0])), None)
    check_that_training_lowers_regret(
        program, data, SharedLinear(FEATURES, seed=1), SPOPlus(Exact(HiGHS(program))), share=0.3, epochs=5
    )


@pytest.mark.parametrize(
    "layer_of", [lambda solver: Perturbed(solver, sigma=0.5, samples=3), Exact], ids=["perturbed", "exact"]
)
def test_decisions_without_costs(layer_of: type[Layer]) -> None:
    program, x, y, instance = knapsack(np.random.RandomState(2))
    data = labelled(program, x, y, instance)
    loss = FenchelYoung(layer_of(HiGHS(program.relax())))
    seen = Batch(data.features, None, data.decisions)
    check_that_training_lowers_regret(program, data, Linear(FEATURES, program.p, seed=2), loss, seen=seen)
