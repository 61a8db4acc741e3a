"""Decisions that are settled once the truth is known: newsvendors by closed form, transport by enumeration of what is left."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.data import Batch, DecisionDataset
from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.evaluation import compare, evaluate
from dflearn.layers import (
    AdaptiveImplicitMLE,
    BlackBox,
    Exact,
    ImplicitMLE,
    NegativeIdentity,
    Perturbed,
    Smoothed,
)  # fmt: skip
from dflearn.losses import (
    LAVA,
    PEAR,
    SCE,
    CaVE,
    CostSensitive,
    FenchelYoung,
    PerturbationGradient,
    Regret,
    SmoothedSPOPlus,
    SPOPlus,
    TaskLoss,
)  # fmt: skip
from dflearn.program import Instance, Program
from dflearn.program.names import RightHandSide
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.recourse import Recourse, recourse_of
from dflearn.solvers.task import DecisionTask
from dflearn.solvers.wrappers import Pooled
from support import programs

COST, SURPLUS, SHORTAGE = 1.0, 0.5, 4.0


def strict_newsvendor(unit: float = 1.0) -> Program:
    """Order x ≥ 0 at a known cost, x = y, the demand, which is predicted."""
    return Program(A=[[1.0]], b=[0.0], B=[[unit]], S=np.zeros((1, 1)), d=[COST], upper=100 * unit, name="newsvendor")


def newsvendor(unit: float = 1.0) -> Program:
    return strict_newsvendor(unit).elastic("predicted", (SURPLUS, SHORTAGE))


def cost(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return COST * x + SURPLUS * np.maximum(x - y, 0) + SHORTAGE * np.maximum(y - x, 0)


def data(y: np.ndarray, **others: object) -> DecisionDataset:
    return DecisionDataset(torch.zeros(len(y), 1, dtype=torch.float64), torch.tensor(y)[:, None], **others)


Y = np.array([3.0, 5.0, 8.0, 2.0])
PREDICTED = np.array([4.0, 5.0, 1.0, 2.5])


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_newsvendor(unit: float) -> None:
    found = evaluate(PREDICTED[:, None], newsvendor(unit), data(Y))
    np.testing.assert_allclose(found.regrets / unit, cost(PREDICTED, Y) - cost(Y, Y), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.optima / unit, COST * Y)
    assert found.metrics["infeasible_share"].value == 0
    assert "infeasible_share" in str(found)
    assert not found.infeasible.any()


def test_labels_are_optimal_for_the_truth() -> None:
    labelled = dfl.label(data(Y), newsvendor())
    assert labelled.decisions is not None
    np.testing.assert_allclose(labelled.decisions, np.column_stack([Y, 0 * Y, 0 * Y]), atol=1e-9)
    again = evaluate(PREDICTED[:, None], newsvendor(), labelled)
    np.testing.assert_allclose(again.regrets, cost(PREDICTED, Y) - cost(Y, Y), atol=1e-9)


def test_what_nothing_helps_costs_infinitely_much() -> None:
    with pytest.warns(RuntimeWarning, match="rows without a recourse variable"):
        found = evaluate(
            PREDICTED[:, None], strict_newsvendor(), data(Y, weights=torch.tensor([1.0, 2, 1, 1]).double())
        )
    assert found.infeasible.tolist() == [True, False, True, True]
    assert found.absolute_regret == found.ratio_of_sums == found.mean_of_ratios == np.inf
    assert found.metrics["infeasible_share"].value == pytest.approx(3 / 5)
    assert found.metrics["feasible_absolute_regret"].value == pytest.approx(0, abs=1e-9)
    assert "3 of 4 decisions are infeasible" in str(found)
    assert found.as_dict()["infeasible"] == 3
    with pytest.raises(DataError, match="infeasible_share"):
        compare(found, found)
    with pytest.raises(OptionError, match="pessimistic"):
        evaluate(PREDICTED[:, None], newsvendor(), data(Y), pessimistic=True)


def transport() -> Program:
    """Two depots serve two towns: the plan is fixed before demand is known, emergency deliveries come after."""
    # x_00, x_01, x_10, x_11 (depot to town), then emergencies to each town
    return Program(
        G=[[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [-1, 0, -1, 0, -1, 0], [0, -1, 0, -1, 0, -1]],
        h=[10, 10, 0, 0],
        H=[[0, 0], [0, 0], [-1, 0], [0, -1]],
        S=np.zeros((6, 2)),
        d=[1, 3, 3, 1, 9, 9],
        upper=20,
        integer=[4, 5],
        recourse=[4, 5],
        name="transport",
    )


def test_integer_recourse() -> None:
    program = transport()
    y, predicted = torch.tensor([[6.3, 4.0], [3.0, 9.5]]).double(), torch.tensor([[5.0, 4.5], [3.0, 7.0]]).double()
    plan = HiGHS(program).solve(predicted).check().decision
    settled = Recourse(program).settle(y, plan)
    shipped = torch.stack([plan[:, 0] + plan[:, 2], plan[:, 1] + plan[:, 3]], -1)
    emergency = (y - shipped).clamp_min(0).sub(1e-9).ceil()
    wanted = (plan[:, :4] * torch.tensor([1.0, 3, 3, 1])).sum(-1) + 9 * emergency.sum(-1)
    torch.testing.assert_close(settled.cost, wanted)
    torch.testing.assert_close(settled.decision[:, :4], plan[:, :4])
    torch.testing.assert_close(settled.decision[:, 4:], emergency)
    instance = Instance(h=torch.tensor([[10.0, 10, 1, 0], [10, 10, 0, 0]]).double())  # one unit less to bring
    eased = Recourse(program).settle(y, plan, instance)
    assert float(eased.cost[0]) <= float(settled.cost[0]) - 9
    torch.testing.assert_close(eased.cost[1], settled.cost[1])


def test_quadratic_recourse() -> None:
    """Imbalance at a quadratic price: cost = x + ½ q (y − x)², settled exactly."""
    program = Program(
        A=[[1.0, 1.0]], b=[0.0], B=[[1.0]], S=np.zeros((2, 1)), d=[1.0, 0.0], Q=np.diag([0.0, 3.0]),
        lower=[0, -np.inf], recourse=[1],
    )  # fmt: skip
    w = torch.tensor([[4.0, 0.0], [7.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[5.0], [5.0]], dtype=torch.float64)
    torch.testing.assert_close(Recourse(program).settle(y, w).cost, w[:, 0] + 1.5 * (5 - w[:, 0]) ** 2)
    lost = torch.full((1, 2), torch.nan, dtype=torch.float64)
    assert bool(Recourse(program).settle(y[:1], lost).cost.isnan())


def test_without_recourse_nothing_changes() -> None:
    assert recourse_of(programs.portfolio()) is None
    assert recourse_of(programs.knapsack()) is None
    with pytest.warns(RuntimeWarning, match=r"2 predicted right-hand sides of .* \(b\[0\], h\[0\]\)"):
        DecisionTask.of(programs.predicted_demand())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DecisionTask.of(newsvendor())


REFUSED: list[tuple[Callable[[], object], str]] = [
    *((lambda kind=kind: kind(Exact(HiGHS(newsvendor()))), r"is not defined; train with TaskLoss")
      for kind in (Regret, SPOPlus, SmoothedSPOPlus, SCE, FenchelYoung)),
    *((lambda kind=kind: kind(newsvendor()), "is not defined") for kind in (CaVE, LAVA, CostSensitive)),
    *((lambda kind=kind: kind(HiGHS(newsvendor())), f"what is feasible, which {kind.__name__} does not know")
      for kind in (Perturbed, BlackBox, NegativeIdentity, ImplicitMLE, AdaptiveImplicitMLE)),
    (lambda: Pooled(HiGHS(newsvendor()), ratio=0.5), "a pool holds"),
    *((lambda kind=kind: kind(programs.portfolio()), "is defined for linear ones") for kind in (LAVA, CostSensitive)),
    *((lambda kind=kind: kind(Smoothed(programs.portfolio(), 1.0)), "is defined for linear ones")
      for kind in (PEAR, PerturbationGradient)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_not_defined_for_predicted_rows_or_quadratic_objectives(make: Any, message: str) -> None:
    with pytest.raises((OptionError, ProgramError), match=message):
        make()


def test_training_and_saving(tmp_path: object) -> None:
    """Two-stage training, validation by regret after recourse, and a model file that keeps B, Q and recourse."""
    from dflearn.tables.saving import _pack, _unpack

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    demand = 10 + x @ np.array([2.0, -1.0]) + rng.normal(size=60)
    whole = DecisionDataset(torch.tensor(x), torch.tensor(demand)[:, None])
    model = dfl.models.Linear(2, 1).double()
    history = dfl.fit(model, dfl.losses.MSE(), whole, epochs=2, validation=whole, problem=newsvendor())
    assert np.isfinite(history.rows[-1]["validation_absolute_regret"])
    for program in (
        newsvendor(),
        replace(newsvendor(), Q=np.eye(3)),
        replace(transport(), Q=dfl.Quadratic(np.ones((1, 6)))),
    ):
        assert _unpack(_pack(program)).fingerprint == program.fingerprint


def slack_case(seed: int) -> tuple[Program, torch.Tensor, torch.Tensor, Instance]:
    """Random rows with slack at random prices, one row without; a quadratic objective; costs d of each instance."""
    rng = np.random.default_rng(seed)
    program = Program(
        A=rng.normal(size=(2, 4)), b=rng.normal(size=2), B=rng.normal(size=(2, 3)), G=rng.normal(size=(3, 4)),
        h=np.array([0.5, 0.5, 9.0]), H=np.vstack([rng.normal(size=(2, 3)), np.zeros((1, 3))]), upper=2.0,
        S=rng.normal(size=(4, 3)), Q=np.diag(rng.uniform(0, 1, 4)), name="slack",
    ).elastic("predicted", [(1.0, 3.0), (2.0, 0.5), 4.0, (5.0, 5.0)])  # fmt: skip
    y, w = torch.tensor(rng.normal(size=(6, 3))), torch.tensor(rng.uniform(0, 2, (6, program.n)))
    return program, y, w, Instance(d=torch.tensor(rng.uniform(0.1, 1, (6, program.n))))


@pytest.mark.parametrize("seed", range(5))
def test_priced_slack_has_a_closed_form(seed: int) -> None:
    """Costs, decisions and gradients are those of the solver for recourse in general."""
    program, y, w, instance = slack_case(seed)
    quick, general = Recourse(program), Recourse(program)
    general.slack = None
    for given in (instance, None):
        found, wanted = (settler.settle(y, w, given) for settler in (quick, general))
        torch.testing.assert_close(found.cost, wanted.cost)
        torch.testing.assert_close(found.decision, wanted.decision, atol=1e-7, rtol=0)
    loss = TaskLoss(Smoothed(program, mu=0.1))
    batch, values = Batch(torch.zeros(6, 1).double(), y, instance=instance), []
    for settler in (quick, general):
        assert loss._recourse is not None
        loss._recourse.settle = settler
        values.append(loss._recourse(w, y, batch))
    for one, other in zip(*values, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_slack_that_is_more_than_slack_is_left_to_the_solver() -> None:
    program, y, w, _ = slack_case(0)
    assert Recourse(program).slack is not None
    for other in (
        replace(program, upper=2.0),
        replace(program, integer=[5]),
        replace(program, recourse=range(program.n)),
        replace(program, Q=np.eye(program.n)),
        replace(program, S=np.ones((program.n, 3))),
    ):
        assert Recourse(other).slack is None
    paid = Recourse(replace(program, d=np.where(np.arange(program.n) == 4, -0.5, program.d)))  # slack that brings money
    assert paid.filled(y, w, None) is None
    tight = replace(program, h=np.array([0.5, 0.5, -99.0]))  # a row without slack
    assert Recourse(tight).settle(y, w).cost.isinf().all()
    missing = w.clone()
    missing[1, 0] = torch.nan
    assert Recourse(program).settle(y, missing).cost.isnan().tolist() == [False, True, False, False, False, False]


def test_what_a_solver_rounds_breaks_no_row() -> None:
    """A unit that is on by 1e-7, and gives 6e-7, is off, and so is one that gives 1e-14; one that gives 1 more than it can is not."""
    program = Program(
        A=[[0, 1]], b=[0], B=[[1]], S=[[0], [0]], G=[[-6, 1]], h=[0], d=[4, 1], upper=[1, 6], integer=[0], name="unit"
    ).elastic("predicted", (0.5, 12.0))  # fmt: skip
    y = torch.full((2, 1), 2.0, dtype=torch.float64)
    w = torch.tensor([[1e-7, 6e-7, 0, 2], [0.0, 1.0, 0, 1]], dtype=torch.float64)
    assert Recourse(program).settle(y, w).cost.tolist() == pytest.approx([24.0, np.inf])
    two = Program(
        A=[[0, 1, 0, 1]], b=[0], B=[[1]], S=np.zeros((4, 1)), G=[[-6, 1, 0, 0], [0, 0, -6, 1]], h=[0, 0], d=[4, 1, 4, 1],
        upper=[1, 6, 1, 6], integer=[0, 2], name="units",
    ).elastic("predicted", (0.5, 12.0))  # fmt: skip
    w = torch.tensor([[0.0, 1e-14, 1, 2, 0, 0]], dtype=torch.float64)
    assert float(Recourse(two).settle(y[:1], w).cost) == pytest.approx(6.0)


def test_lacking_is_priced_as_lacking_whatever_the_row_is_held_as() -> None:
    """need ≥ 5 is held as −need ≤ −5: what it lacks is there what it exceeds."""
    sides = {
        "need": RightHandSide("h", 0, -1.0),
        "room": RightHandSide("h", 1, 1.0),
        "meet": RightHandSide("b", 0, -1.0),
    }
    program = Program(
        A=[[-1.0, 1]], b=[0], B=[[1.0]], G=[[-1.0, -1], [1, 1]], h=[-5, 9], H=[[1.0], [1]], S=np.zeros((2, 1)),
        variable_names=("x", "z"), constraint_names=sides,
    )  # fmt: skip
    elastic = program.elastic("predicted", (0.5, 4.0))
    assert elastic.variable_names is not None
    prices = dict(zip(elastic.variable_names, elastic.d, strict=True))
    assert {name: prices[name] for name in ("below need", "above room", "above meet", "below meet")} == {
        "below need": 4.0,
        "above room": 0.5,
        "above meet": 0.5,
        "below meet": 4.0,
    }
