"""`MLflowCallback`: what `fit` did, read back from MLflow's own folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflearn.errors import DivergenceError
from dflearn.integrations.trackers import MLflowCallback
from dflearn.layers.base import Exact
from dflearn.losses import MSE, SPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import Callback, History, Run, fit
from dflearn.training.checkpoint import fingerprint
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import Scripted

TRAIN, VALIDATION = knapsack_data(30, 1), knapsack_data(10, 2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return tmp_path / "runs"


def train(*callbacks: Callback, **options: Any) -> History:
    loss = options.pop("loss", None) or SPOPlus(Exact(HiGHS(RELAXED)))
    return fit(Linear(FEATURES, ITEMS), loss, TRAIN, callbacks=callbacks, **options)


def runs(callback: MLflowCallback, experiment: str = "dflearn") -> list[Any]:
    """The runs of the experiment, oldest first."""
    place = callback.client.get_experiment_by_name(experiment).experiment_id
    return callback.client.search_runs([place], order_by=["attributes.start_time ASC"])


def curve(callback: MLflowCallback, run: Any, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in callback.client.get_metric_history(run.info.run_id, name)]


def test_a_run_is_logged_whole(folder: Path) -> None:
    before = dict(os.environ)
    callback = MLflowCallback(folder, experiment="knapsack", name="first")
    assert dict(os.environ) == before
    history = train(callback, validation=VALIDATION, problem=HiGHS(PROGRAM), epochs=3, batch_size=8, lr=0.02, seed=4)
    (run,) = runs(callback, "knapsack")
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "first"
    for name in history.rows[0]:
        if name != "epoch":
            assert curve(callback, run, name) == list(zip([1, 2, 3], history.column(name), strict=True))
    wanted = {"loss": "SPOPlus", "layer": "Exact", "model": "Linear", "optimizer": "Adam", "lr": "0.02", "seed": "4"}
    wanted |= {"batch_size": "8", "instances": "30", "train": fingerprint(TRAIN), "validation": fingerprint(VALIDATION)}
    assert wanted.items() <= run.data.params.items()
    assert run.data.metrics["final_epoch"] == 3
    assert run.data.metrics["final_validation_absolute_regret"] == history.rows[-1]["validation_absolute_regret"]
    assert run.data.tags["stopped"] == "epochs"
    config = json.loads((folder / run.info.experiment_id / run.info.run_id / "artifacts" / "config.json").read_text())
    assert config["train"] == fingerprint(TRAIN)


def test_the_final_metrics_are_those_of_the_weights_that_are_kept(folder: Path) -> None:
    callback, relaxed = MLflowCallback(folder), knapsack_data(10, 2, HiGHS(RELAXED))
    with pytest.warns(RuntimeWarning, match="not feasible"):
        train(callback, validation=relaxed, problem=HiGHS(PROGRAM), epochs=1)
    train(callback, loss=Scripted(5, 3, 4), validation=VALIDATION, epochs=3, keep="best")
    first, second = runs(callback)
    assert "relaxation" in first.data.tags["notes"]
    assert second.data.metrics["final_epoch"] == 2
    assert second.data.metrics["final_validation_loss"] == 3


def test_a_run_that_goes_on_from_a_checkpoint_is_one_run(folder: Path, tmp_path: Path) -> None:
    """Whether it ended well before, or was lost after the log and before the checkpoint of an epoch."""

    class Interrupts(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
            if row["epoch"] == 4:
                raise KeyboardInterrupt

    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint.pt", "loss": MSE()}
    train(MLflowCallback(folder), epochs=2, **options)
    callback = MLflowCallback(folder)
    with pytest.raises(KeyboardInterrupt):
        train(callback, Interrupts(), epochs=5, **options)
    (run,) = runs(callback)
    assert run.info.status == "KILLED"
    history = train(callback, epochs=5, **options)
    for _ in range(2):  # once more, with nothing left to do
        (run,) = runs(callback)
        assert run.info.status == "FINISHED"
        assert curve(callback, run, "loss") == list(enumerate(history.column("loss"), 1))
        assert curve(callback, run, "final_epoch") == [(2, 2), (5, 5)]
        train(callback, epochs=5, **options)


def test_a_log_that_begins_in_the_middle_is_complete(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint.pt", "loss": MSE()}
    train(epochs=2, **options)
    callback = MLflowCallback(folder)
    history = train(callback, epochs=3, **options)
    (run,) = runs(callback)
    assert curve(callback, run, "loss") == list(enumerate(history.column("loss"), 1))


def test_the_same_run_from_the_beginning_is_another_run(folder: Path) -> None:
    callback = MLflowCallback(folder)
    for _ in range(2):
        train(callback, loss=MSE(), epochs=1)
    assert len(runs(callback)) == 2


def test_a_run_that_fails_is_marked(folder: Path) -> None:
    callback = MLflowCallback(folder)
    with pytest.raises(DivergenceError):
        train(callback, loss=MSE(), optimizer="sgd", lr=1e35, epochs=2)
    (run,) = runs(callback)
    assert run.info.status == "FAILED"


def test_missing_packages_are_named() -> None:
    code = """
import sys
sys.modules |= dict.fromkeys(("mlflow", "tensorboard", "lightning"))
from dflearn.errors import MissingExtraError
from dflearn.integrations.trackers import MLflowCallback
from dflearn.integrations.trackers import TensorBoardCallback
def module():
    import dflearn.integrations.lightning
for call in (MLflowCallback, lambda: TensorBoardCallback("runs"), module):
    try:
        call()
    except MissingExtraError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "MLflowCallback needs the package mlflow: pip install 'dflearn[mlflow]'",
        "TensorBoardCallback needs the package tensorboard: pip install 'dflearn[tensorboard]'",
        "DecisionModule needs the package lightning: pip install 'dflearn[lightning]'",
    ], done.stderr
