"""`Program.scenarios`: one scenario is the program, the newsvendor orders a quantile of its samples, and predictors train through it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, OptionError, ProgramError, ShapeError
from dflearn.layers import Smoothed
from dflearn.losses import TaskLoss
from dflearn.program import Program, Quadratic
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.recourse import recourse_of
from dflearn.testing.layers import check_layer

RNG = np.random.default_rng(0)
NEWSVENDOR = Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)), d=[1.0], upper=100).elastic(
    "predicted", (0.5, 4.0)
)
# Two depots serve two towns at predicted prices; emergency deliveries come once demand is known.
TRANSPORT = Program(
    A=[[1.0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]],
    b=[6.0, 5.0],
    G=[[-1.0, 0, -1, 0, -1, 0], [0, -1, 0, -1, 0, -1], [1, 0, 1, 0, 0, 0]],
    h=[0.0, 0, 9],
    H=[[-1.0, 0, 0], [0, -1, 0], [0, 0, 0]],
    S=np.vstack([np.zeros((4, 3)), [[0, 0, 1], [0, 0, 1]]]),
    d=[1, 3, 3, 1, 2, 2],
    recourse=[4, 5],
    variable_names=["aa", "ab", "ba", "bb", "ea", "eb"],
    cost_names=["da", "db", "price"],
    constraint_names={"town a": ("h", 0, -1.0), "road": ("h", 2)},
)


def draws(count: int, scenarios: int) -> np.ndarray:
    return RNG.uniform(1, 9, (count, scenarios, 3))


def test_one_scenario_is_the_program() -> None:
    assert TRANSPORT.scenarios(1).fingerprint == TRANSPORT.fingerprint
    assert TRANSPORT.scenarios([7.0]) is TRANSPORT
    same = TRANSPORT.scenarios([0.3, 0.7])  # twice the same scenario
    y = torch.tensor(RNG.uniform(1, 9, (4, 3)))
    one, two = HiGHS(TRANSPORT).solve(y), HiGHS(same).solve(torch.cat([y, y], -1))
    torch.testing.assert_close(one.objective, two.objective)


@pytest.mark.parametrize("samples", [3, 10, 25])
def test_the_newsvendor_orders_a_quantile_of_its_samples(samples: int) -> None:
    demand = RNG.gamma(2.0, 3.0, samples)
    order = HiGHS(NEWSVENDOR.scenarios(samples)).solve(torch.tensor(demand)).check().decision[0]
    wanted = np.quantile(demand, 3 / 4.5, method="inverted_cdf")
    costs = [
        np.mean(x + 0.5 * np.maximum(x - demand, 0) + 4 * np.maximum(demand - x, 0)) for x in (float(order), wanted)
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)
    if (3 / 4.5 * samples) % 1 > 1e-9:
        assert float(order) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("curved", [False, True])
def test_the_value_is_the_mean_of_what_recourse_costs(curved: bool) -> None:
    """The objective of the extensive form against recourse for each scenario alone; no other first decision is better."""
    program = TRANSPORT
    if curved:
        program = replace(program, Q=Quadratic(RNG.normal(size=(2, 6)), RNG.uniform(0.1, 1, 6)))
    weights = np.array([0.2, 0.5, 0.3])
    extensive, settle = program.scenarios(4 * weights), recourse_of(program)
    assert settle is not None
    y = torch.tensor(draws(3, 3))
    found = HiGHS(extensive).solve(y.flatten(1)).check()
    w = found.decision[:, None, : program.n].expand(-1, 3, -1)
    settled = settle.settle(y, w).cost
    torch.testing.assert_close(found.objective, settled @ torch.tensor(weights), rtol=1e-6, atol=1e-6)
    for k in range(3):
        other = HiGHS(program).solve(y[:, k]).decision[:, None].expand(-1, 3, -1)
        assert bool((settle.settle(y, other).cost @ torch.tensor(weights) >= found.objective - 1e-6).all())


def test_names_and_places() -> None:
    extensive = TRANSPORT.scenarios(2)
    names = ("aa", "ab", "ba", "bb", "ea (scenario 1)", "eb (scenario 1)", "ea (scenario 2)", "eb (scenario 2)")
    assert extensive.variable_names == names
    assert extensive.cost_names == tuple(f"{name} (scenario {k})" for k in (1, 2) for name in ("da", "db", "price"))
    assert extensive.constraint_names is not None
    assert extensive.constraint_names["town a (scenario 2)"] == ("h", 3, -1.0)
    instance = extensive.instance({"road": np.array([8.0])})
    assert instance.h is not None
    assert instance.h.tolist() == [[0, 0, 8, 0, 0]]
    with pytest.raises(DataError, match=r"right-hand side of 'town a \(scenario 2\)' is predicted"):
        extensive.instance({"town a (scenario 2)": np.array([2.0])})
    assert extensive.A.shape == (2, 8)


def test_layers_and_training() -> None:
    """The layer's contract; and two scenarios that are learned cost less than one, as the median of many would."""
    extensive = TRANSPORT.scenarios(2)
    check_layer(Smoothed(extensive, 0.3), extensive, y=torch.tensor(draws(3, 2)).flatten(1), exact_gradient=True)
    demand = torch.tensor(RNG.gamma(2.0, 3.0, 60))[:, None]
    data = DecisionDataset(torch.ones(60, 1, dtype=torch.float64), demand)
    model = torch.nn.Linear(1, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    loss = TaskLoss(Smoothed(NEWSVENDOR.scenarios(3), 1e-3), program=NEWSVENDOR)
    before = float(loss(model(data.features), data.batch()).mean().detach())
    dfl.fit(model, loss, data, epochs=30, batch_size=30, lr=0.3)
    order = np.quantile(demand.numpy(), 3 / 4.5)
    best = np.mean((order + 0.5 * (order - demand).clamp_min(0) + 4 * (demand - order).clamp_min(0)).numpy())
    after = float(loss(model(data.features), data.batch()).mean().detach())
    assert after < before
    assert after == pytest.approx(best, rel=0.02)


def test_refusals() -> None:
    for weights in (0, [], [1.0, -1.0], [[1.0]], [np.inf]):
        with pytest.raises(OptionError, match="weights are positive"):
            TRANSPORT.scenarios(weights)  # type: ignore[arg-type]
    strict = Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)))
    with pytest.raises(ProgramError, match="no recourse variable"):
        strict.scenarios(2)
    loss = TaskLoss(Smoothed(NEWSVENDOR.scenarios(2), 0.1), program=NEWSVENDOR)
    with pytest.raises(ShapeError, match="differ in shape"):
        loss(torch.zeros(3, 2, dtype=torch.float64), Batch(torch.zeros(3, 1), torch.ones(3, 2, dtype=torch.float64)))
    with pytest.raises(OptionError, match="judges decisions"):
        TaskLoss(Smoothed(NEWSVENDOR, 0.1), program=TRANSPORT)
