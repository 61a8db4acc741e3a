"""`DecisionModule`: the run of `fit`, under Lightning; in two processes, that of `fit` with batches twice as large."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping

from dflearn.data import DecisionDataset
from dflearn.errors import DivergenceError
from dflearn.integrations.lightning import DecisionModule
from dflearn.layers.base import Exact
from dflearn.layers.perturbed import Perturbed
from dflearn.layers.smoothed import Smoothed
from dflearn.losses import MSE, SCE, FenchelYoung, Loss, SPOPlus
from dflearn.models import Linear
from dflearn.solvers.highs import HiGHS
from dflearn.training import fit
from support.small_problem import FEATURES, ITEMS, PROGRAM, RELAXED, knapsack_data
from support.training_helpers import Scripted, weighted, weights

TRAIN, VALIDATION = knapsack_data(50, 1), knapsack_data(20, 2)
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
JUDGED: dict[str, Any] = {"validation": VALIDATION, "problem": HiGHS(PROGRAM)}


def spo_plus() -> SPOPlus:
    return SPOPlus(Exact(HiGHS(RELAXED)))


def trained(module: DecisionModule, epochs: int, checkpoint: Path | None = None, **options: Any) -> DecisionModule:
    options = {"enable_checkpointing": False, **QUIET, **options}
    Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **options).fit(module, ckpt_path=checkpoint)
    return module


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


# -- one process ----------------------------------------------------------------------------------------------------


def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)


@pytest.mark.parametrize(
    ("make_loss", "options"),
    [
        (MSE, {}),
        (spo_plus, JUDGED),
        (spo_plus, {"warm_start": False, "optimizer": "sgd", "scheduler": halving}),
        (lambda: SCE(Smoothed(RELAXED, 0.5)), {"validation": VALIDATION}),
        (lambda: FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5, 2)), {"validation": VALIDATION}),
        (spo_plus, {**JUDGED, "train": weighted(TRAIN), "validation": weighted(VALIDATION)}),
    ],
    ids=["MSE", "SPO+", "SPO+ by SGD", "SCE", "Fenchel-Young", "SPO+ with weights"],
)
def test_one_process_is_fit(make_loss: type[Loss], options: dict[str, Any]) -> None:
    options = {"train": TRAIN, "batch_size": 16, "lr": 0.02, "seed": 7, **options}
    model, same = Linear(FEATURES, ITEMS), Linear(FEATURES, ITEMS)
    history = fit(model, make_loss(), epochs=3, **options)
    module = trained(DecisionModule(same, make_loss(), **options), 3)
    if options["train"].weights is None:
        assert torch.equal(weights(model), weights(same))
        assert without_times(module.history.rows) == without_times(history.rows)
    else:  # Σ weight · loss / Σ weight is added up in another order
        torch.testing.assert_close(weights(model), weights(same), rtol=1e-5, atol=1e-6)
        for row, other in zip(without_times(module.history.rows), without_times(history.rows), strict=True):
            assert row == pytest.approx(other, rel=1e-5)
    assert module.history.monitored == history.monitored
    assert module.history.best == (module.history.rows[history.best["epoch"] - 1] if history.best else None)


def test_a_scheduler_that_watches_the_validation_metric() -> None:
    plateau = lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)  # noqa: E731
    module = DecisionModule(Linear(FEATURES, ITEMS), Scripted(1, 2, 2), TRAIN, validation=VALIDATION, scheduler=plateau)
    trained(module, 3, num_sanity_val_steps=0)
    assert module.history.column("lr") == pytest.approx([0.005, 0.005, 0.0005])


def test_lightning_sees_the_metrics() -> None:
    """Its early stopping goes by them, `validate` gives them, and an epoch may go without."""
    stopping = EarlyStopping("validation_loss", patience=1)
    module = DecisionModule(Linear(FEATURES, ITEMS), Scripted(5, 4, 4.5, 1), TRAIN, validation=VALIDATION)
    trained(module, 10, callbacks=[stopping], num_sanity_val_steps=0)
    assert module.history.column("validation_loss") == [5, 4, 4.5]

    module = trained(DecisionModule(Linear(FEATURES, ITEMS), spo_plus(), TRAIN, **JUDGED), 2, check_val_every_n_epoch=2)
    first, second = module.history.column("validation_absolute_regret")
    assert math.isnan(first)
    assert module.history.best is module.history.rows[1]
    (found,) = Trainer(accelerator="cpu", devices=1, **QUIET).validate(module, verbose=False)
    assert found["validation_absolute_regret"] == pytest.approx(second)
    assert module(VALIDATION.features).shape == VALIDATION.costs.shape


def test_a_checkpoint_holds_all_that_is_needed_to_go_on(tmp_path: Path) -> None:
    """Weights, optimizer, history, the noise of the layer, the starts, and the order of the epochs to come."""
    make_loss = lambda: FenchelYoung(Perturbed(HiGHS(RELAXED), 0.5, 2))  # noqa: E731
    whole = trained(DecisionModule(Linear(FEATURES, ITEMS), make_loss(), TRAIN, **JUDGED), 4)
    half = trained(DecisionModule(Linear(FEATURES, ITEMS), make_loss(), TRAIN, **JUDGED), 2)
    half.trainer.save_checkpoint(tmp_path / "half.ckpt")
    rest = DecisionModule(Linear(FEATURES, ITEMS), make_loss(), TRAIN, **JUDGED)
    trained(rest, 4, checkpoint=tmp_path / "half.ckpt")
    assert torch.equal(weights(rest), weights(whole))
    assert without_times(rest.history.rows) == without_times(whole.history.rows)
    assert rest.starts is not None
    assert whole.starts is not None
    assert torch.equal(rest.starts.rows, whole.starts.rows)
    parts: dict[str, Any] = {"model": Linear(FEATURES, ITEMS), "loss": make_loss(), "train": TRAIN}
    read = DecisionModule.load_from_checkpoint(tmp_path / "half.ckpt", **parts)
    assert torch.equal(weights(read), weights(half))


# -- two processes --------------------------------------------------------------------------------------------------


def visited(count: int, process: int) -> set[int]:
    """The instances that a process meets: its half of each batch of 16, the first of the two the larger one."""
    generator = torch.Generator().manual_seed(7)
    met: set[int] = set()
    for _ in range(2):
        for batch in torch.randperm(count, generator=generator).split(16):
            half = (len(batch) + 1) // 2
            met.update((batch[half:] if process else batch[:half]).tolist())
    return met


def test_two_processes_are_fit_with_batches_twice_as_large(tmp_path: Path) -> None:
    """Losses, gradients, regret and weights, with last batches of 1 and of 5; a bad loss in one process stops both."""
    tests = Path(__file__).parents[1]
    script = tests / "support" / "two_processes.py"
    of_others = ("MASTER_PORT", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    inherited = {name: value for name, value in os.environ.items() if name not in of_others}
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    environment = inherited | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"process_{process}.json").read_text()) for process in (0, 1))
    options = {"validation": knapsack_data(21, 2), "problem": HiGHS(PROGRAM), "lr": 0.05, "seed": 7}
    for count, warm_start in ((49, True), (53, False)):
        model, data = Linear(FEATURES, ITEMS), knapsack_data(count, 1)
        data = data if warm_start else weighted(data)
        expected = without_times(fit(model, spo_plus(), data, epochs=2, batch_size=16, **options).rows)
        runs = [found[f"{count} {warm_start}"] for found in (first, second)]
        assert runs[0]["weights"] == runs[1]["weights"]
        torch.testing.assert_close(torch.tensor(runs[0]["weights"]), weights(model), rtol=1e-5, atol=1e-5)
        for process, run in enumerate(runs):
            for row, other in zip(without_times(run["rows"]), expected, strict=True):
                assert row == pytest.approx(other, rel=1e-5)
            assert run["warm"] == (sorted(visited(count, process)) if warm_start else None)
    errors = [error for error, note in (first["error"], second["error"])]
    assert sum("Instances: 3." in error for error in errors) == 1
    assert all("epoch 1, step 1" in error for error in errors)


# -- what goes wrong ------------------------------------------------------------------------------------------------


def test_divergence_is_diagnosed_and_the_last_finite_weights_stay() -> None:
    model, data = Linear(FEATURES, ITEMS), DecisionDataset(100 * TRAIN.features, TRAIN.costs, TRAIN.decisions)
    with pytest.raises(DivergenceError, match=r"epoch 1, step 2: the weights are no longer finite.*lower lr"):
        trained(DecisionModule(model, spo_plus(), data, optimizer="sgd", lr=3e38), 1)
    assert torch.equal(weights(model), weights(Linear(FEATURES, ITEMS)))


def test_what_the_user_should_know_is_noted() -> None:
    with pytest.warns(RuntimeWarning, match="warm_start_bytes"):
        module = DecisionModule(Linear(FEATURES, ITEMS), spo_plus(), TRAIN, warm_start_bytes=100)
    assert module.starts is None
    assert "warm starts are off" in module.history.notes[0]
