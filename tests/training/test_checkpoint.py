"""Checkpoints: an interrupted run that goes on ends bit for bit where an uninterrupted one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dflearn as dfl
from dflearn.errors import CheckpointError, StorageError
from dflearn.layers import AdaptiveImplicitMLE
from dflearn.layers.base import Exact
from dflearn.layers.perturbed import Perturbed
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import LAVA, LODL, MSE, SCE, CostSensitive, FenchelYoung, Loss, Regret, SPOPlus
from dflearn.models import MLP, Linear
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Pooled
from dflearn.training import Callback, History, Run, checkpoint as files, fit
from dflearn.training.checkpoint import SEAL_SIZE
from dflearn.training.validation import prepare
from support.full_disk import disk_of
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import Scripted, weights

TRAIN, VALIDATION = knapsack_data(40, 1), knapsack_data(15, 2)


class Lazy(Solver):
    """Solves every other batch, and otherwise answers with the last decision: an answer depends on what came before."""

    identity = "lazy"

    def __init__(self, solver: HiGHS) -> None:
        self.solver, self.program, self.objective = solver, solver.program, solver.objective
        self.calls, self.last = 0, np.zeros(ITEMS)

    def __repr__(self) -> str:
        return "Lazy()"

    def get_state(self) -> dict[str, Any]:
        return {"calls": self.calls, "last": torch.tensor(self.last)}

    def set_state(self, state: dict[str, Any]) -> None:
        self.calls, self.last = state["calls"], state["last"].numpy()

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        self.calls += 1
        if self.calls % 2:
            raw = self.solver._solve(c, sides, None)
            self.last = raw.decision[-1].copy()
            return raw
        w = np.tile(self.last, (len(c), 1))
        value = (c * w).sum(1)
        return Raw(w, np.zeros(len(c), np.int8), value, value - np.inf)


LOSSES: dict[str, Callable[[], Loss]] = {
    "MSE": MSE,
    "HiGHS, warm starts": lambda: SPOPlus(Exact(HiGHS(RELAXED))),
    "Perturbed, warm starts": lambda: FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5, 2)),
    "Smoothed, warm starts": lambda: SCE(Smoothed(RELAXED, mu=1.0)),
    "a step that adapts": lambda: Regret(AdaptiveImplicitMLE(HiGHS(RELAXED), 1.0, 2)),
    "Pooled": lambda: SPOPlus(Exact(Pooled(HiGHS(PROGRAM), 0.3))),
    "Pooled, warm starts": lambda: SCE(Exact(Pooled(HiGHS(RELAXED), 0.3, per="batch"))),
    "a solver with a state": lambda: SPOPlus(Exact(Lazy(HiGHS(RELAXED)))),
}


def without_time(history: History) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in history.rows]


def run(
    loss: Loss, checkpoint: Path | None, epochs: int, model: nn.Module | None = None, **options: Any
) -> tuple[nn.Module, History]:
    model = Linear(FEATURES, ITEMS) if model is None else model
    options = {"validation": VALIDATION, "problem": HiGHS(PROGRAM), "lr": 0.05, "batch_size": 16, **options}
    return model, fit(model, loss, TRAIN, epochs=epochs, checkpoint=checkpoint, **options)


@pytest.mark.parametrize("name", LOSSES)
def test_resume_is_bitwise(name: str, tmp_path: Path) -> None:
    make = LOSSES[name]
    whole, history = run(make(), None, 5)
    run(make(), tmp_path / "run.pt", 2)
    resumed, continued = run(make(), tmp_path / "run.pt", 5, model=Linear(FEATURES, ITEMS, seed=9))
    assert torch.equal(weights(whole), weights(resumed))
    assert without_time(history) == without_time(continued)


def test_resume_with_everything_that_has_a_state(tmp_path: Path) -> None:
    """Dropout, momentum, a scheduler, best weights and early stopping."""

    def options() -> dict[str, Any]:
        return {
            "model": nn.Sequential(Linear(FEATURES, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), Linear(8, ITEMS)),
            "optimizer": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
            "scheduler": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6),
            "keep": "best",
            "early_stopping": 4,
            "lr": 0.01,
        }

    whole, history = run(MSE(), None, 6, **options())
    for epochs in (1, 3, 6):
        resumed, continued = run(MSE(), tmp_path / "run.pt", epochs, **options())
    assert without_time(history) == without_time(continued)
    assert history.stopped == continued.stopped
    for one, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_the_best_weights_survive(tmp_path: Path) -> None:
    """The best epoch came before the interruption."""
    options: dict[str, Any] = {"keep": "best", "problem": None}
    best, _ = run(Scripted(9, 1), None, 1, **options)
    run(Scripted(9, 1, 2), tmp_path / "run.pt", 2, **options)
    resumed, history = run(Scripted(3, 4), tmp_path / "run.pt", 4, **options)
    assert history.column("validation_loss") == [1, 2, 3, 4]
    assert torch.equal(weights(resumed), weights(best))


class Interrupt(Callback):
    """Ctrl-C in the middle of the third epoch's end, before its checkpoint is written."""

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        if run.epoch == 3:
            raise KeyboardInterrupt


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    class Stop(Callback):
        def on_epoch_end(self, run: Run, row: dict[str, Any]) -> bool:
            return run.epoch == 2

    first, history = run(MSE(), tmp_path / "run.pt", 5, callbacks=[Stop()])
    with pytest.warns(RuntimeWarning, match="a callback ended this run"):
        again, same = run(MSE(), tmp_path / "run.pt", 5)
    assert same.rows == history.rows
    assert same.stopped == "callback"
    assert torch.equal(weights(first), weights(again))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.01}, "lr: 0.05 there, 0.01 here"),
        ({"batch_size": 8}, "batch_size"),
        ({"loss": SPOPlus(Exact(HiGHS(PROGRAM)))}, "loss"),
        ({"model": MLP(FEATURES, ITEMS)}, "model"),
        ({"validation": VALIDATION.subset(slice(0, 5))}, "validation"),
        ({"problem": None}, "problem"),
        ({"problem": HiGHS(replace(PROGRAM, h=PROGRAM.h + 1))}, "programs:"),  # of the same repr
        ({"scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)}, "schedule"),
        ({"warm_start": False}, "warm_start"),
    ],
)
def test_another_run_is_refused_with_the_difference(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    run(MSE(), tmp_path / "run.pt", 1)
    with pytest.raises(CheckpointError, match=named):
        run(change.pop("loss", MSE()), tmp_path / "run.pt", 2, **change)


def test_a_checkpoint_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """Wherever the bit is: in weights, in numbers, in the zip's headers, in the checksum itself."""
    path = tmp_path / "run.pt"
    run(MSE(), path, 1, validation=None, problem=None)
    good = path.read_bytes()
    for place in [*range(0, len(good), 61), *range(len(good) - SEAL_SIZE - 4, len(good))]:
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        with pytest.raises(CheckpointError, match="delete it to start afresh"):
            files.load(path, {})
    for cut in (1, 10, SEAL_SIZE, SEAL_SIZE + 1, 1000):
        path.write_bytes(good[:-cut])
        with pytest.raises(CheckpointError, match="delete it to start afresh"):
            files.load(path, {})
    path.write_bytes(good)
    run(MSE(), path, 2, validation=None, problem=None)


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    run(MSE(), path, 1)
    good = path.read_bytes()
    with disk_of(len(good) // 2), pytest.raises(StorageError, match=r"run.pt could not be written: .*free some space"):
        run(MSE(), path, 2)
    assert path.read_bytes() == good
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]
    assert len(run(MSE(), path, 2)[1].rows) == 2


class Counts(Callback):
    """Remembers the losses it was told of, and how many times it was started."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.started = 0

    def on_start(self, run: Run) -> None:
        self.started += 1

    def on_epoch_end(self, run: Run, row: dict[str, Any]) -> None:
        self.losses.append(row["loss"])

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses), "started": torch.tensor(self.started)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses, self.started = list(state["losses"]), int(state["started"])


def test_the_state_of_a_callback_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    _, history = run(MSE(), None, 5)
    run(MSE(), path, 2, callbacks=[Interrupt(), Counts()])
    first, second = Counts(), Counts()
    run(MSE(), path, 5, callbacks=[first, second])  # the first has the place of another class, so it starts afresh
    assert second.losses == history.column("loss")
    assert first.losses == history.column("loss")[2:]
    assert (first.started, second.started) == (1, 2)


def test_what_is_compiled_before_the_first_epoch_leaves_no_trace() -> None:
    """The time is in no row, and the state of the loss is as it was: what is solved is not seen by training."""
    for make in LOSSES.values():
        loss, model = make(), Linear(FEATURES, ITEMS)
        before, model_before = loss.state_dict(), weights(model)
        assert prepare(model, loss, TRAIN.batch(slice(0, 2))) >= 0
        assert repr(loss.state_dict()) == repr(before)
        assert torch.equal(weights(model), model_before)
    _, history = run(LOSSES["Smoothed, warm starts"](), None, 1)
    assert history.seconds_compile > 0
    assert "seconds_compile" not in history.rows[0]


def test_another_program_inside_the_loss_is_another_run(tmp_path: Path) -> None:
    """Programs, learned weights and functions of a loss are not told by its repr."""
    one, other = (dfl.Program(G=[row], h=[3.0], upper=1) for row in ([1.0, 2, 3], [3.0, 1, 1]))
    data = dfl.label(dfl.DecisionDataset(torch.randn(8, 2), -1 - torch.rand(8, 3)), one, progress=False)
    cases: list[tuple[Any, Any]] = [
        (LAVA(one), LAVA(other)),
        (CostSensitive(one), CostSensitive(other)),
        (LODL(data.ids, torch.ones(8, 3)), LODL(data.ids, torch.full((8, 3), 2.0))),
        (lambda y, batch: y.sum(-1), lambda y, batch: -y.sum(-1)),
    ]
    for number, (first, second) in enumerate(cases):
        path = tmp_path / str(number)
        fit(nn.Linear(2, 3), first, data, epochs=1, checkpoint=path, progress=False)
        fit(nn.Linear(2, 3), first, data, epochs=2, checkpoint=path, progress=False)
        with pytest.raises(CheckpointError, match="is of another run; loss_parts"):
            fit(nn.Linear(2, 3), second, data, epochs=3, checkpoint=path, progress=False)
