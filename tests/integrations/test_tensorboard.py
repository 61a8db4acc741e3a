"""`TensorBoardCallback`: what `fit` did, read back as TensorBoard reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dflearn.errors import DivergenceError
from dflearn.integrations.trackers import TensorBoardCallback
from dflearn.losses import MSE, Loss
from dflearn.models import Linear
from dflearn.training import Callback, History, Run, fit
from dflearn.training.checkpoint import fingerprint
from support.small_problem import FEATURES, ITEMS, knapsack_data
from support.training_helpers import Scripted

TRAIN, VALIDATION = knapsack_data(30, 1), knapsack_data(10, 2)


def train(*callbacks: Callback, loss: Loss | None = None, **options: Any) -> History:
    return fit(Linear(FEATURES, ITEMS), loss or MSE(), TRAIN, callbacks=callbacks, **options)


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(folder).Scalars(name)]


def text(folder: Path, name: str) -> str:
    return read(folder).Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0].decode()


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def as_logged(values: list[float]) -> list[tuple[int, Any]]:
    """TensorBoard keeps single precision."""
    return [(epoch, pytest.approx(value, rel=1e-6)) for epoch, value in enumerate(values, 1)]


def test_a_run_is_logged_whole(tmp_path: Path) -> None:
    history = train(
        TensorBoardCallback(tmp_path / "run"),
        loss=Scripted(5, 3, 4),
        validation=VALIDATION,
        epochs=3,
        keep="best",
        lr=0.02,
    )
    for name in history.rows[0]:
        if name != "epoch":
            assert curve(tmp_path / "run", name) == as_logged(history.column(name))
    assert curve(tmp_path / "run", "final_epoch") == [(3, 2)]
    assert curve(tmp_path / "run", "final_validation_loss") == [(3, 3)]
    table = text(tmp_path / "run", "parameters")
    for row in ("| loss | Scripted |", "| lr | 0.02 |", "| optimizer | Adam |", f"| train | {fingerprint(TRAIN)} |"):
        assert row in table
    assert text(tmp_path / "run", "outcome") == "stopped: epochs"


def test_a_run_that_goes_on_from_a_checkpoint_has_each_epoch_once(tmp_path: Path) -> None:
    class Interrupts(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
            if row["epoch"] == 4:
                raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.pt"
    train(epochs=1, checkpoint=checkpoint)
    train(TensorBoardCallback(tmp_path / "run"), epochs=2, checkpoint=checkpoint)
    with pytest.raises(KeyboardInterrupt):
        train(TensorBoardCallback(tmp_path / "run"), Interrupts(), epochs=5, checkpoint=checkpoint)
    assert text(tmp_path / "run", "outcome") == "killed"
    history = train(TensorBoardCallback(tmp_path / "run"), epochs=5, checkpoint=checkpoint)
    for _ in range(2):  # once more, with nothing left to do
        assert curve(tmp_path / "run", "loss") == as_logged(history.column("loss"))
        assert curve(tmp_path / "run", "final_epoch") == [(2, 2), (5, 5)]
        train(TensorBoardCallback(tmp_path / "run"), epochs=5, checkpoint=checkpoint)


def test_a_new_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    train(TensorBoardCallback(tmp_path), epochs=3)
    history = train(TensorBoardCallback(tmp_path), epochs=2, seed=1)
    assert curve(tmp_path, "loss") == as_logged(history.column("loss"))
    assert "| seed | 1 |" in text(tmp_path, "parameters")


def test_a_run_that_fails_is_marked(tmp_path: Path) -> None:
    with pytest.raises(DivergenceError):
        train(TensorBoardCallback(tmp_path), optimizer="sgd", lr=1e35, epochs=2)
    assert text(tmp_path, "outcome") == "failed"
