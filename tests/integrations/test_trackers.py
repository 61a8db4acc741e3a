"""The trackers: what `fit` did, read back from MLflow's folder, from TensorBoard's files, and from a stand-in of W&B."""

from __future__ import annotations

import json
import os
import re
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dflearn.errors import DivergenceError, MissingExtraError
from dflearn.integrations.trackers import MLflowCallback, TensorBoardCallback, Tracker, WandbCallback
from dflearn.losses import MSE
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import Callback, History, Run, fit
from dflearn.training.checkpoint import fingerprint
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import Scripted

TRAIN, VALIDATION = knapsack_data(30, 1), knapsack_data(10, 2)
Curve = list[tuple[int, float]]


class Log(ABC):
    """What a tracker wrote about its latest run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def callback(self) -> Tracker: ...

    @abstractmethod
    def curve(self, name: str) -> Curve: ...

    @abstractmethod
    def parameters(self) -> dict[str, str]: ...

    @abstractmethod
    def status(self) -> str:
        """FINISHED, FAILED or KILLED."""

    def final(self, name: str) -> float:
        """A metric of the weights that are kept."""
        return self.curve(f"final_{name}")[-1][1]


class MLflow(Log):
    def callback(self) -> MLflowCallback:
        self.made = MLflowCallback(self.folder)
        return self.made

    def runs(self) -> list[Any]:
        place = self.made.client.get_experiment_by_name("dflearn").experiment_id
        return self.made.client.search_runs([place])  # the latest first

    def curve(self, name: str) -> Curve:
        history = self.made.client.get_metric_history(self.runs()[0].info.run_id, name)
        return [(metric.step, metric.value) for metric in history]

    def parameters(self) -> dict[str, str]:
        return self.runs()[0].data.params

    def status(self) -> str:
        return self.runs()[0].info.status


class TensorBoard(Log):
    def callback(self) -> TensorBoardCallback:
        return TensorBoardCallback(self.folder)

    def curve(self, name: str) -> Curve:
        return [(event.step, event.value) for event in self._read().Scalars(name)]

    def parameters(self) -> dict[str, str]:
        return dict(re.findall(r"^\| (\w+) \| (.*) \|$", self._text("parameters"), re.MULTILINE))

    def status(self) -> str:
        text = self._text("outcome")
        return "FINISHED" if text == "stopped: epochs" else text.upper()

    def _read(self) -> EventAccumulator:
        return EventAccumulator(str(self.folder)).Reload()

    def _text(self, name: str) -> str:
        return self._read().Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0].decode()


class FakeRun:
    """What `wandb.init` gives: a step that does not rise is dropped, as by W&B, and nothing is logged after the end."""

    def __init__(self, id: str, options: dict[str, Any]) -> None:
        self.id, self.options = id, options
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.summary: dict[str, Any] = {}
        self.exit_code: int | None = None

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.exit_code is None
        if not self.rows or step > self.rows[-1][0]:
            self.rows.append((step, values))

    def finish(self, exit_code: int) -> None:
        assert self.exit_code is None
        self.exit_code = exit_code


class Wandb(Log):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.held: dict[str, FakeRun] = {}

    def init(self, **options: Any) -> FakeRun:
        known = self.held.get(options.get("id", ""))
        if known is None:
            run = FakeRun(f"run{len(self.held)}", options)
            return self.held.setdefault(run.id, run)
        assert options["resume"] == "allow"
        known.exit_code = None
        return known

    def callback(self) -> WandbCallback:
        return WandbCallback("paths", mode="offline")

    def curve(self, name: str) -> Curve:
        return [(step, values[name]) for step, values in self._last().rows]

    def final(self, name: str) -> float:
        return self._last().summary[f"final_{name}"]

    def parameters(self) -> dict[str, str]:
        assert {**self._last().options, "project": "paths", "mode": "offline"} == self._last().options
        return {name: str(value) for name, value in self._last().options["config"].items()}

    def status(self) -> str:
        return {0: "FINISHED", 1: "FAILED", 255: "KILLED"}[self._last().exit_code or 0]

    def _last(self) -> FakeRun:
        return list(self.held.values())[-1]


@pytest.fixture(params=[MLflow, TensorBoard, Wandb])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    made: Log = request.param(tmp_path / "runs")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    if isinstance(made, Wandb):
        monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=made.init))  # type: ignore[arg-type]
    return made


def train(*callbacks: Callback, loss: Any = None, **options: Any) -> History:
    return fit(Linear(FEATURES, ITEMS), loss or MSE(), TRAIN, callbacks=callbacks, progress=False, **options)


def check_curve(log: Log, history: History, name: str = "loss") -> None:
    """Each epoch once; TensorBoard keeps single precision."""
    steps, values = zip(*log.curve(name), strict=True)
    assert list(steps) == list(range(1, len(history.rows) + 1))
    assert list(values) == pytest.approx(history.column(name), rel=1e-6)


def test_a_run_is_logged_whole(log: Log) -> None:
    """Parameters, curves, and the metrics of the weights that are kept."""
    before = dict(os.environ)
    callback = log.callback()
    assert dict(os.environ) == before
    history = train(callback, loss=Scripted(9, 5, 3, 4), validation=VALIDATION, epochs=3, keep="best", lr=0.02)
    for name in set(history.rows[0]) - {"epoch"}:
        check_curve(log, history, name)
    wanted = {"loss": "Scripted", "model": "Linear", "optimizer": "Adam", "lr": "0.02", "train": fingerprint(TRAIN)}
    assert wanted.items() <= log.parameters().items()
    assert (log.final("epoch"), log.final("validation_loss")) == (2, 3)
    assert log.status() == "FINISHED"


def test_a_run_that_goes_on_from_a_checkpoint_has_each_epoch_once(log: Log, tmp_path: Path) -> None:
    """Its log begins after the first epoch, and the run is lost after the log and before the checkpoint of another."""

    class Interrupts(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
            if row["epoch"] == 4:
                raise KeyboardInterrupt

    checkpoint = tmp_path / "checkpoint.pt"
    train(epochs=1, checkpoint=checkpoint)
    train(log.callback(), epochs=2, checkpoint=checkpoint)
    with pytest.raises(KeyboardInterrupt):
        train(log.callback(), Interrupts(), epochs=5, checkpoint=checkpoint)
    assert log.status() == "KILLED"
    history = train(log.callback(), epochs=5, checkpoint=checkpoint)
    for _ in range(2):  # once more, with nothing left to do
        check_curve(log, history)
        assert (log.status(), log.final("epoch")) == ("FINISHED", 5)
        train(log.callback(), epochs=5, checkpoint=checkpoint)


def test_a_new_run_is_no_part_of_the_one_before(log: Log) -> None:
    """MLflow and W&B keep both; in TensorBoard's folder it takes the other's place."""
    train(log.callback(), epochs=3)
    history = train(log.callback(), epochs=2, seed=1)
    check_curve(log, history)
    assert log.parameters()["seed"] == "1"


def test_a_run_that_fails_is_marked(log: Log) -> None:
    with pytest.raises(DivergenceError):
        train(log.callback(), optimizer="sgd", lr=1e35, epochs=2)
    assert log.status() == "FAILED"


def test_what_mlflow_holds_besides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, notes, and the configuration as a file."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    callback = MLflowCallback(tmp_path, experiment="knapsack", name="first")
    relaxed = knapsack_data(10, 2, HiGHS(RELAXED))
    with pytest.warns(RuntimeWarning, match="not feasible"):
        train(callback, validation=relaxed, problem=HiGHS(PROGRAM), epochs=1)
    (run,) = callback.client.search_runs([callback.client.get_experiment_by_name("knapsack").experiment_id])
    assert run.info.run_name == "first"
    assert "relaxation" in run.data.tags["notes"]
    config = json.loads((tmp_path / run.info.experiment_id / run.info.run_id / "artifacts" / "config.json").read_text())
    assert config["train"] == fingerprint(TRAIN)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="pip install wandb"):
        WandbCallback()
    with pytest.raises(MissingExtraError, match=r"pip install 'dflearn\[mlflow\]'"):
        MLflowCallback()
    with pytest.raises(MissingExtraError, match=r"pip install 'dflearn\[tensorboard\]'"):
        TensorBoardCallback("runs")
