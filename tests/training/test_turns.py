"""Losses in turn: which is trained with when, what is kept, and that an interrupted run goes on bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dflearn.data import Batch
from dflearn.errors import CheckpointError, OptionError
from dflearn.layers.base import Exact
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import MSE, SCE, LossOutput, SmoothedSPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import Anneal, Callback, History, Run, fit
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import weights

TRAIN, VALIDATION = knapsack_data(40, 1), knapsack_data(15, 2)


def pair() -> list[Any]:
    return [SmoothedSPOPlus(Smoothed(RELAXED, 0.1)), SCE(Smoothed(RELAXED, 0.3), label="smoothed")]


def trained(losses: Any, *, epochs: int = 6, **options: Any) -> tuple[Linear, History]:
    model = Linear(FEATURES, ITEMS)
    given = {"validation": VALIDATION, "problem": HiGHS(PROGRAM), "lr": 0.05, "batch_size": 16, **options}
    return model, fit(model, losses, TRAIN, epochs=epochs, **given)


def test_each_loss_has_an_equal_part_of_the_epochs() -> None:
    model, history = trained(pair())
    assert history.column("phase") == [1, 1, 1, 2, 2, 2]
    alone = Linear(FEATURES, ITEMS)
    first = fit(alone, pair()[0], TRAIN, epochs=3, lr=0.05, batch_size=16)
    assert first.column("loss") == history.column("loss")[:3]
    assert "phase" not in first.rows[0]
    _, odd = trained([*pair(), MSE()], epochs=7)
    assert odd.column("phase") == [1, 1, 1, 2, 2, 3, 3]
    assert trained(pair(), epochs=1)[1].column("phase") == [1]
    assert not torch.equal(weights(model), weights(alone))


class Constant(Callback):
    """Makes every epoch's regret the same, so that none is better than the start."""

    def on_start(self, run: Run) -> None:
        assert run.validation is not None
        run.validation.metrics = lambda totals: {"validation_absolute_regret": 1.0}  # type: ignore[method-assign]


def test_patience_ends_the_turn_of_a_loss_and_then_the_run() -> None:
    _, history = trained(pair(), epochs=40, early_stopping=2, callbacks=[Constant()])
    assert history.column("phase") == [1, 1, 1, 2, 2]  # the first epoch is the best, and two more wait
    assert history.stopped == "early stopping"


class Worse(MSE):
    """A loss that leads away from the truth."""

    def _output(self, predicted: Tensor, batch: Batch) -> LossOutput:
        return LossOutput(-super()._output(predicted, batch).value)


def test_the_best_of_all_losses_is_kept_and_the_start_is_a_candidate() -> None:
    good, _ = trained(MSE(), epochs=30, keep="best")
    start = weights(good)
    options: dict[str, Any] = {"validation": VALIDATION, "problem": HiGHS(PROGRAM), "keep": "best"}
    history = fit(good, [Worse(), Worse()], TRAIN, epochs=4, lr=0.5, **options)
    assert history.best is history.start is not None
    assert history.start["epoch"] == 0
    assert torch.equal(weights(good), start)
    _, history = trained([MSE(), Worse()], epochs=20, keep="best")
    assert history.best in history.rows[:10]


class Stops(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        if row["epoch"] == self.after + 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 3, 4])
def test_resume_is_bitwise(after: int, tmp_path: Path) -> None:
    def schedule() -> Anneal:
        return Anneal(mu=lambda epoch: 0.5 * 0.8**epoch)

    whole, history = trained(pair(), keep="best", callbacks=[schedule()])
    with pytest.raises(KeyboardInterrupt):
        trained(pair(), keep="best", callbacks=[schedule(), Stops(after)], checkpoint=tmp_path / "run.pt")
    resumed, continued = trained(pair(), keep="best", callbacks=[schedule()], checkpoint=tmp_path / "run.pt")
    assert torch.equal(weights(whole), weights(resumed))
    assert continued.column("loss") == history.column("loss")
    assert continued.column("phase") == history.column("phase")
    assert continued.start == history.start
    assert history.column("mu") == [0.5 * 0.8**epoch for epoch in range(6)]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="pass `problem`"):
        trained(pair(), problem=None)
    with pytest.raises(OptionError, match="loss"):
        trained([])
    trained(pair(), epochs=2, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="epochs: 2 there, 4 here"):  # the second loss would have begun later
        trained(pair(), epochs=4, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="another run"):
        trained([*pair()[:1], SCE(Exact(HiGHS(RELAXED)))], epochs=2, checkpoint=tmp_path / "run.pt")
