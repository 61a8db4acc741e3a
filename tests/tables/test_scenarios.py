"""Deciding in several scenarios at once: against the extensive program, instance by instance, and as a candidate of `train`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.errors import ProgramError
from dflearn.program import Instance, Program
from dflearn.solvers.recourse import recourse_of
from dflearn.tables.demand import Scenarios, scenario_count, typical

RNG, GOODS = np.random.default_rng(3), 3
OVEN = Program(
    A=np.eye(GOODS), b=np.zeros(GOODS), B=np.eye(GOODS), S=np.zeros((GOODS, GOODS)), d=[1.0, 1.0, 2.0],
    G=[[1.0, 1.0, 2.0]], h=[40.0], constraint_names={"oven": ("h", 0)},
).elastic("predicted", [(0.5, 4.0), (0.2, 3.0), (1.0, 9.0)])  # fmt: skip


def test_the_decision_is_that_of_the_extensive_program() -> None:
    """With an oven of its own for each instance; recourse is decided for the forecast itself."""
    errors, y = torch.tensor(RNG.normal(0, 3, (7, GOODS))), torch.tensor(RNG.uniform(8, 20, (6, GOODS)))
    oven = Instance(h=torch.tensor(RNG.uniform(20, 60, (6, 1))))
    found = Scenarios(dfl.HiGHS(OVEN), errors).solve(y, oven).check().decision
    wide = dfl.HiGHS(OVEN.scenarios(7)).solve((y[:, None] + errors).flatten(1), oven).check().decision
    torch.testing.assert_close(found[:, :GOODS], wide[:, :GOODS])
    settled = recourse_of(OVEN)
    assert settled is not None
    torch.testing.assert_close(found, settled.settle(y, wide[:, : OVEN.n], oven).decision)


def test_costs_beside_demand_and_an_instances_own_costs() -> None:
    """min over w of the mean over k of (y₀ + e_k0 + d) w + 9 (t + e_k1 − w)⁺: by hand on a grid."""
    program = Program(
        A=[[1.0]], b=[0.0], B=[[0.0, 1.0]], S=[[1.0, 0.0]], d=[1.0], upper=30.0, recourse=None
    ).elastic("predicted", (0.1, 9.0))  # fmt: skip
    errors, y = torch.tensor(RNG.normal(0, 2, (9, 2))), torch.tensor([[2.0, 12.0], [7.0, 12.0]])
    d = torch.tensor(np.array([[1.0, *program.d[1:]], [3.0, *program.d[1:]]]))
    found = Scenarios(dfl.HiGHS(program), errors).solve(y, Instance(d=d)).check().decision[:, 0]
    grid = np.linspace(0, 30, 30_001)[:, None]
    for row in range(2):
        price, demand = (y[row] + errors).numpy().T
        lost = 9 * np.maximum(demand - grid, 0) + 0.1 * np.maximum(grid - demand, 0)
        worth = ((price + d[row, 0].item()) * grid + lost).mean(1)
        assert float(found[row]) == pytest.approx(float(grid[worth.argmin(), 0]), abs=2e-3)


def test_what_has_no_recourse_or_is_too_large_has_no_scenarios() -> None:
    assert scenario_count(OVEN) == 20
    assert scenario_count(Program(n=2)) == 0
    assert scenario_count(Program(n=3000, recourse=[2])) == 0
    with pytest.raises(ProgramError, match="need a program with recourse"):
        Scenarios(dfl.HiGHS(Program(n=2, upper=1)), torch.zeros(3, 2))


def test_typical_errors_are_spread_evenly() -> None:
    errors = torch.tensor(RNG.permutation(100)[:, None] * [[1.0, 10.0]])
    assert typical(errors, 5)[:, 0].tolist() == [10, 30, 50, 70, 90]


def test_train_keeps_scenarios_where_an_oven_is_shared(tmp_path: Path) -> None:
    """Demand that is uncertain, and an oven too small for all of it: no level of each good by itself is right."""
    rows = 240
    x, oven = RNG.normal(size=(rows, 2)), np.where(RNG.uniform(size=rows) < 0.5, 25.0, 60.0)
    demand = 10 + x @ RNG.normal(size=(2, GOODS)) + RNG.gamma(1.0, 5.0, (rows, GOODS))
    result = dfl.train(OVEN, x, demand, {"oven": oven}, losses=["quantile"], forecasters=["ridge"], progress=False)
    assert "scenarios" in result.models
    regrets = {name: judged.absolute_regret for name, judged in result.tested.items()}
    assert regrets["scenarios"] < min(regrets["ridge"], regrets["ridge, shifted"])
    model = result.models["scenarios"]
    model.save(tmp_path / "m.dfl", model.record_)
    again = dfl.load(tmp_path / "m.dfl")
    decided = dfl.decide(again, x, demand, {"oven": oven})
    assert min(decided.columns["regret"]) >= 0  # against the best in hindsight, not against a hedge
    np.testing.assert_allclose(
        np.array(decided.columns["regret"])[result.parts.test], result.tested["scenarios"].regrets, atol=1e-6
    )
    instance = OVEN.instance({"oven": oven})
    assert again.score(x, demand, instance=instance) < 0
    np.testing.assert_allclose(again.decide(x, instance), decided.solution.decision.numpy(), atol=1e-6)
