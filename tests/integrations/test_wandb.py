"""`WandbCallback` against a stand-in of the package, which is not needed to test what it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dflearn.errors import DivergenceError, MissingExtraError
from dflearn.integrations.trackers import WandbCallback
from dflearn.losses import MSE
from dflearn.models import Linear
from dflearn.training import Callback, History, Run, fit
from support.small_problem import FEATURES, ITEMS, knapsack_data
from support.training_helpers import Scripted

TRAIN, VALIDATION = knapsack_data(30, 1), knapsack_data(10, 2)


class FakeRun:
    """What `wandb.init` gives: steps must rise, as W&B demands, and nothing is logged once it is finished."""

    def __init__(self, id: str, options: dict[str, Any]) -> None:
        self.id, self.options = id, options
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.summary: dict[str, Any] = {}
        self.exit_code: int | None = None

    def log(self, values: dict[str, float], step: int) -> None:
        assert self.exit_code is None
        assert not self.rows or step > self.rows[-1][0]
        self.rows.append((step, values))

    def finish(self, exit_code: int) -> None:
        assert self.exit_code is None
        self.exit_code = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeRun]:
    """The runs by their ids; `wandb` is a module that keeps them."""
    held: dict[str, FakeRun] = {}

    def init(**options: Any) -> FakeRun:
        known = held.get(options.get("id", ""))
        if known is not None:
            assert options["resume"] == "allow"
            known.exit_code = None
            return known
        run = FakeRun(f"run{len(held)}", options)
        return held.setdefault(run.id, run)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))  # type: ignore[arg-type]
    return held


def train(*callbacks: Callback, loss: Any = None, **options: Any) -> History:
    return fit(Linear(FEATURES, ITEMS), loss or MSE(), TRAIN, callbacks=callbacks, progress=False, **options)


def test_a_run_is_logged_whole(runs: dict[str, FakeRun]) -> None:
    callback = WandbCallback("paths", name="first", mode="offline")
    history = train(callback, loss=Scripted(5, 3, 4), validation=VALIDATION, epochs=3, keep="best", lr=0.02)
    (run,) = runs.values()
    assert {name: run.options[name] for name in ("project", "name", "mode")} == {"project": "paths", "name": "first", "mode": "offline"}  # fmt: skip
    assert (run.options["config"]["loss"], run.options["config"]["lr"]) == ("Scripted", 0.02)
    assert [step for step, _ in run.rows] == [1, 2, 3]
    for name in history.rows[0]:
        if name != "epoch":
            assert [values[name] for _, values in run.rows] == history.column(name)
    assert (run.summary["final_epoch"], run.summary["final_validation_loss"]) == (2, 3)
    assert (run.summary["stopped"], run.exit_code) == ("epochs", 0)


def test_a_run_that_goes_on_from_a_checkpoint_is_resumed(runs: dict[str, FakeRun], tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    train(WandbCallback(), epochs=2, checkpoint=checkpoint)
    history = train(WandbCallback(), epochs=4, checkpoint=checkpoint)
    (run,) = runs.values()
    assert [(step, values["loss"]) for step, values in run.rows] == list(enumerate(history.column("loss"), 1))
    train(WandbCallback(), epochs=1)
    assert len(runs) == 2  # a new run is a new run


def test_how_a_run_ended(runs: dict[str, FakeRun]) -> None:
    class Interrupts(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    with pytest.raises(DivergenceError):
        train(WandbCallback(), optimizer="sgd", lr=1e35, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(WandbCallback(), Interrupts(), epochs=2)
    assert [run.exit_code for run in runs.values()] == [1, 255]


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match="pip install wandb"):
        WandbCallback()
