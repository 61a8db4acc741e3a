"""The thin slice that proves the core: on each awkward kind of problem, training lowers regret.

Facility location (S and d), knapsack (maximization), right-hand sides per instance, features per cost coefficient
with a shared predictor, and data that hold decisions but no costs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import dflearn as dfl
from dflearn.layers import Exact, Perturbed
from dflearn.losses import SCE, FenchelYoung, Loss, SPOPlus
from dflearn.models import Linear, SharedLinear
from dflearn.program import Instance, Program
from support import programs

COUNT, FEATURES = 64, 4
RNG = np.random.RandomState(0)
DEMAND = Instance(b=torch.tensor(RNG.uniform(2, 5, (COUNT, 1))), upper=torch.tensor(RNG.uniform(0.8, 1.5, (COUNT, 8))))
PROGRAMS: dict[str, tuple[Program, Instance | None]] = {
    "knapsack": (programs.knapsack(10), None),
    "facility location": (programs.facility_location(5, 3), None),
    "changing demand": (Program(A=np.ones((1, 8)), b=[3], upper=1), DEMAND),  # within capacities that differ too
}


def data_of(program: Program, instance: Instance | None = None) -> dfl.DecisionDataset:
    x = RNG.normal(size=(COUNT, FEATURES))
    y = (x @ RNG.binomial(1, 0.5, (FEATURES, program.p)) / 2 + 3) ** 4 / 81
    return dfl.label(dfl.DecisionDataset(torch.tensor(x), torch.tensor(y), instance=instance), program, progress=False)


def check_that_training_lowers_regret(
    program: Program,
    data: dfl.DecisionDataset,
    model: nn.Module,
    loss: Loss,
    share: float = 0.5,
    seen: dfl.DecisionDataset | None = None,
) -> None:
    before = dfl.evaluate(model, program, data, progress=False).absolute_regret
    dfl.fit(model, loss, data if seen is None else seen, epochs=10, batch_size=16, lr=0.03, progress=False)
    assert dfl.evaluate(model, program, data, progress=False).absolute_regret < share * before


@pytest.mark.parametrize("loss", [SPOPlus, SCE])
@pytest.mark.parametrize("name", PROGRAMS)
def test_training_lowers_regret(name: str, loss: Callable[[Exact], Loss]) -> None:
    program, instance = PROGRAMS[name]
    model = Linear(FEATURES, program.p).double()
    check_that_training_lowers_regret(
        program, data_of(program, instance), model, loss(Exact(dfl.HiGHS(program.relax())))
    )


def test_features_per_coefficient_with_a_shared_predictor() -> None:
    program = programs.knapsack(10)
    x = torch.tensor(RNG.normal(size=(COUNT, program.p, FEATURES)))
    costs = torch.exp(x @ torch.tensor([0.8, -0.5, 0.3, 0.0], dtype=torch.float64))
    data = dfl.label(dfl.DecisionDataset(x, costs), program, progress=False)
    loss = SPOPlus(Exact(dfl.HiGHS(program.relax())))
    check_that_training_lowers_regret(program, data, SharedLinear(FEATURES, seed=1).double(), loss, share=0.3)


@pytest.mark.parametrize("layer_of", [lambda solver: Perturbed(solver, sigma=0.5, samples=3), Exact])
def test_decisions_without_costs(layer_of: Callable[[dfl.Solver], dfl.Layer]) -> None:
    program = programs.knapsack(10)
    data, loss = data_of(program), FenchelYoung(layer_of(dfl.HiGHS(program.relax())))
    seen = dfl.DecisionDataset(data.features, decisions=data.decisions)
    model = Linear(FEATURES, program.p, seed=2).double()
    check_that_training_lowers_regret(program, data, model, loss, seen=seen)
