"""`tune`: one grid, one budget, the least validation regret."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import DivergenceError, OptionError
from dflearn.layers.perturbed import Perturbed
from dflearn.losses import MSE, FenchelYoung, LossOutput
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import fit, tune
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data

OPTIONS: dict[str, Any] = {
    "make_model": lambda seed: Linear(FEATURES, ITEMS, seed=seed),
    "train": knapsack_data(24, 1),
    "validation": knapsack_data(12, 2),
    "problem": HiGHS(PROGRAM),
    "epochs": 2,
    "lr": 0.05,
}


def perturbed(sigma: float) -> FenchelYoung:
    return FenchelYoung(Perturbed(HiGHS(RELAXED), sigma))


class Scaled(MSE):
    """`scale` = 0 learns nothing, NaN diverges."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(self.scale * super()._output(predicted, batch).value)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_table_is_what_separate_runs_give(keep: Any) -> None:
    grid, seeds = [0.1, 1.0, 10.0], [0, 1]
    found = tune(perturbed, grid, seeds=seeds, keep=keep, **OPTIONS)
    assert [(row["value"], row["seed"]) for row in found.rows] == [(v, s) for v in grid for s in seeds]
    means = []
    for value in grid:
        regrets = []
        for seed in seeds:
            rest = {name: option for name, option in OPTIONS.items() if name != "make_model"}
            history = fit(Linear(FEATURES, ITEMS, seed=seed), perturbed(value), seed=seed, keep=keep, **rest)
            row = history.best if keep == "best" else history.rows[-1]
            regrets.append(row["validation_absolute_regret"])
        means.append(sum(regrets) / len(regrets))
        assert [row["validation_absolute_regret"] for row in found.rows if row["value"] == value] == regrets
    assert found.best == grid[means.index(min(means))]
    assert found.at_edge == (found.best != 1.0)


def test_a_value_that_diverges_loses() -> None:
    found = tune(Scaled, [float("nan"), 0.0, 1.0], **{**OPTIONS, "epochs": 20})
    assert found.best == 1.0
    assert found.at_edge
    assert "not finite" in found.rows[0]["error"]
    assert found.rows[0]["validation_absolute_regret"] == float("inf")
    assert found.rows[2]["error"] == ""


def test_equals_go_to_the_first_and_no_winner_is_an_error() -> None:
    assert tune(lambda value: MSE(), ["a", "b"], **OPTIONS).best == "a"
    with pytest.raises(DivergenceError, match="every value"):
        tune(Scaled, [float("nan")], **OPTIONS)
    with pytest.raises(OptionError, match="at least one value"):
        tune(Scaled, [], **OPTIONS)


def test_every_run_starts_afresh() -> None:
    """The same value twice gives the same row twice, whatever was drawn in between."""
    torch.manual_seed(0)
    one, _, other = tune(perturbed, [1.0, 5.0, 1.0], **OPTIONS).rows
    assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}


def test_one_checkpoint_cannot_serve_many_runs() -> None:
    with pytest.raises(OptionError, match="a checkpoint belongs to one"):
        tune(perturbed, [0.1, 1.0], checkpoint="run.pt", **OPTIONS)
