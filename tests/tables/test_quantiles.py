"""Two-stage with quantiles: critical ratios of programs, linear quantile regression, and both by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.data import Batch
from dflearn.errors import OptionError
from dflearn.losses import Quantile, TaskLoss
from dflearn.program import Program
from dflearn.tables.demand import LEVELS, critical_ratios, quantile_fit

RNG = np.random.default_rng(0)


def newsvendor(unit: float = 1.0, cost: float = 1.0, prices: tuple[float, float] = (0.5, 4.0)) -> Program:
    one = Program(A=[[unit]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)), d=[cost * unit], upper=100 / unit)
    return one.elastic("predicted", prices)


@pytest.mark.parametrize("unit", [1e-6, 1.0, -1.0, 1e6])
def test_the_critical_ratio(unit: float) -> None:
    """(shortage − cost)/(shortage + surplus), whatever the units; and the sample quantile there costs least."""
    program = newsvendor(abs(unit))
    if unit < 0:  # the same row, the other way round: −x + … = −y
        program = Program(A=[[-1.0]], b=[0.0], B=[[-1.0]], S=np.zeros((1, 1)), d=[1.0], upper=100)
        program = program.elastic("predicted", (4.0, 0.5))
    ratios = critical_ratios(program)
    assert ratios is not None
    assert ratios.tolist() == pytest.approx([3 / 4.5])
    demand = RNG.gamma(2.0, 2.0, 101)
    orders = np.quantile(demand, [0.3, 0.5, 3 / 4.5, 0.8, 0.95])
    costs = [np.mean(x + 0.5 * np.maximum(x - demand, 0) + 4 * np.maximum(demand - x, 0)) for x in orders]
    assert int(np.argmin(costs)) == 2


def test_inequalities() -> None:
    """x + emergency ≥ y with y predicted: (price − cost)/price. And a predicted capacity: margin/price."""
    demand = Program(G=[[-1.0, -1.0]], h=[0.0], H=[[-1.0]], S=np.zeros((2, 1)), d=[1.0, 5.0], recourse=[1])
    assert critical_ratios(demand) == pytest.approx([0.8])
    capacity = Program(G=[[1.0, -1.0]], h=[0.0], H=[[1.0]], S=np.zeros((2, 1)), d=[-1.0, 4.0], recourse=[1])
    assert critical_ratios(capacity) == pytest.approx([0.25])


def test_where_the_program_does_not_tell_it() -> None:
    shared = Program(A=[[1.0, 0], [1.0, 1.0]], b=[0.0, 0], B=np.eye(2), S=np.zeros((2, 2)), d=[1.0, 1.0])
    assert critical_ratios(shared.elastic("predicted", 4.0)) is None
    assert critical_ratios(newsvendor(cost=5.0)) is None  # nothing is worth ordering
    assert critical_ratios(Program(n=2)) is None
    assert critical_ratios(Program(A=[[1.0]], b=[0.0], B=[[1.0]], S=np.zeros((1, 1)))) is None


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_linear_quantile_regression(unit: float) -> None:
    """The share of rows below the fit is the level, and no nearby line has less pinball loss."""
    x = torch.tensor(RNG.normal(size=(200, 2)))
    y = unit * torch.tensor(np.stack([RNG.gamma(2, 1, 200), RNG.normal(size=200) * 3 + x[:, 0].numpy()], 1))
    levels = np.array([0.8, 0.25])
    fit = quantile_fit(x, y, levels)
    below = (y < fit(x) + 1e-9 * unit).double().mean(0).numpy()
    np.testing.assert_allclose(below, levels, atol=0.02)
    loss = Quantile(levels)
    best = float(loss(fit(x), Batch(x, y)).sum())
    for _ in range(20):
        moved = fit._replace(weight=fit.weight + 0.05 * unit * torch.tensor(RNG.normal(size=(2, 2))))
        assert float(loss(moved(x), Batch(x, y)).sum()) >= best - 1e-9 * unit


def test_by_name() -> None:
    """Where the ratio is known it is taken; elsewhere the level of least regret on the rows held out."""
    x = RNG.normal(size=(400, 1))
    y = np.exp(1 + 0.3 * x + 0.4 * RNG.normal(size=(400, 1)))
    options = {"start": "ridge", "epochs": 4, "lr": 0.03, "early_stopping": None}
    known = dfl.DecisionFocusedRegressor(newsvendor(), loss="quantile", **options).fit(x, y)
    assert known.loss_.level.tolist() == pytest.approx([3 / 4.5])
    plain = dfl.DecisionFocusedRegressor(newsvendor(), loss="mse", **options).fit(x, y)
    assert known.predict(x).mean() > plain.predict(x).mean()
    shared = Program(A=[[1.0, 1.0]], b=[0.0], B=[[1.0]], S=np.zeros((2, 1)), d=[1.0, 1.0], upper=50).elastic(
        "predicted", (0.5, 9.0)
    )
    chosen = dfl.DecisionFocusedRegressor(shared, loss="quantile", **options).fit(x, y)
    assert float(chosen.loss_.level) in LEVELS
    assert float(chosen.loss_.level) > 0.5
    default = dfl.DecisionFocusedRegressor(newsvendor(), **{**options, "epochs": 1}).fit(x, y)
    assert isinstance(default.loss_, TaskLoss)
    with pytest.raises(OptionError, match="'task', 'score-function', 'quantile'"):
        dfl.DecisionFocusedRegressor(newsvendor(), loss="sce").fit(x, y)
