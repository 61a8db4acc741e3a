"""The table of methods says what is: each line of code is the loss of that name, and its claims hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import dflearn
from dflearn import layers, losses
from dflearn.cli import main
from dflearn.data import DecisionDataset
from dflearn.data.labels import label
from dflearn.data.scale import Scale
from dflearn.errors import OptionError
from dflearn.losses import Loss
from dflearn.program import Program
from dflearn.solvers.callable import from_callable
from dflearn.solvers.task import DecisionTask
from dflearn.studies.methods import method_names
from dflearn.tables.methods import METHODS, MethodEntry, make_loss
from dflearn.testing import check_loss

PROGRAM = Program(G=np.array([[2.0, 3, 1, 4], [1, 1, 2, 1]]), h=[5, 2.5], upper=1, S=-np.eye(4), sense="maximize")
TASK = DecisionTask.of(PROGRAM)
NAMES = [entry.name for entry in METHODS]
ENTRIES = dict(zip(NAMES, METHODS, strict=True))
SOLVES = {"0": (0, 0), "1": (1, 0), "2": (2, 0), "samples": (0, 1), "2 samples": (0, 2)}  # and by each sample
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "methods.md"


def numbers(seed: int, count: int = 16) -> Tensor:
    return 0.5 + torch.rand(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DATA = label(DecisionDataset(numbers(1), numbers(1)), TASK.relaxed)
SCALE = Scale.of(PROGRAM.objective, DATA)


def loss_named(name: str) -> Loss:
    return make_loss(name, "auto", TASK, SCALE, data=DATA)


def evaluated(entry: MethodEntry) -> Loss:
    """The line of code of the table."""
    names = {name: getattr(module, name) for module in (layers, losses) for name in module.__all__}
    yours = {"solver": TASK.relaxed, "program": PROGRAM, "data": DATA, "mu": 1.0, "sigma": 1.0}
    return eval(entry.code, {**names, "Pooled": dflearn.Pooled, **yours})


def shape(module: nn.Module | None) -> Any:
    """What a loss is made of: the classes, and options that choose a formula."""
    if module is None:
        return None
    names = ("variant", "kind", "reduction", "multiplicative", "projection", "difference")
    options, layer = [getattr(module, name, None) for name in names], getattr(module, "layer", None)
    return type(module), options, shape(layer), type(getattr(module, "solver", None)).__name__


@pytest.mark.parametrize("name", NAMES)
def test_the_line_of_code_is_the_loss_of_that_name(name: str) -> None:
    assert shape(evaluated(ENTRIES[name])) == shape(loss_named(name))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_table_says_it_needs(name: str) -> None:
    entry, loss = ENTRIES[name], loss_named(name)
    assert set(loss.needs) == set(entry.needs) - {"program", "pool"}
    function = DecisionTask.of(from_callable(lambda c: np.eye(4)[c.argmin()], n=4))
    if "program" in entry.needs:
        with pytest.raises(OptionError, match="knows none"):
            make_loss(name, "auto", function, SCALE)
    else:
        make_loss(name, "auto", function, SCALE)


@pytest.mark.parametrize("name", [entry.name for entry in METHODS if entry.solves in SOLVES])
def test_solves_per_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = DecisionTask.of(dflearn.HiGHS(PROGRAM))
    loss = make_loss(name, "auto", task, SCALE, data=DATA)
    solve = Mock(wraps=task.relaxed._solve)
    monkeypatch.setattr(task.relaxed, "_solve", solve)
    leaf = numbers(2).requires_grad_()
    torch.autograd.grad(loss(leaf, DATA.batch()).sum(), leaf)
    samples = getattr(loss.layer, "samples", getattr(loss, "samples", 1))
    each, by_sample = SOLVES[ENTRIES[name].solves]
    assert sum(len(call.args[0]) for call in solve.call_args_list) == (each + by_sample * samples) * len(DATA)


@pytest.mark.parametrize("name", NAMES)
def test_every_named_loss_keeps_the_contract(name: str) -> None:
    random = "samples" in ENTRIES[name].tune or "pool" in ENTRIES[name].needs
    slope = False if name in ("dbb", "nid", "cave") else None  # of its own
    check_loss(loss_named(name), numbers(2), DATA.batch(), random=random, differentiable=slope)


@pytest.mark.parametrize("name", [name for name in NAMES if ENTRIES[name].convex])
def test_convex_losses_are_convex(name: str) -> None:
    """With the same noise and pool at all three points."""
    loss, batch = loss_named(name), DATA.batch()
    state = loss.state_dict()

    def value(y: Tensor) -> Tensor:
        loss.load_state_dict(state)
        return loss(y, batch)

    for seed in range(5):
        one, other = numbers(10 + seed), 2 * numbers(20 + seed) - 1
        if "multiplicative" in name:
            other = numbers(20 + seed)
        share = torch.rand(16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        middle = value(share[:, None] * one + (1 - share)[:, None] * other)
        assert bool((middle <= share * value(one) + (1 - share) * value(other) + 1e-9).all())


def test_studies_know_the_methods_by_the_names_that_the_table_tells() -> None:
    told = {entry.study for entry in METHODS if entry.study}
    assert told <= set(method_names())


def test_the_document_shows_every_row() -> None:
    text = DOCUMENT.read_text()
    for entry in METHODS:
        row = next((line for line in text.splitlines() if line.startswith(f"| `{entry.name}` |")), "")
        for part in (entry.title, entry.paper, ", ".join(entry.needs), entry.solves, entry.tune, f"`{entry.code}`"):
            assert part in row, f"docs/reference/methods.md has no row of {entry.name!r} with {part!r}"
        assert ("| yes |" in row) == entry.convex
        assert entry.pyepo in row


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES)
    assert main(["methods", "blackboxOpt", "PG^relax"]) == 0
    shown = capsys.readouterr().out
    assert "Regret(BlackBox(solver, step=10))" in shown
    assert "Huang and Gupta (2024)" in shown
    assert main(["methods", "nothing"]) == 1
    assert "dfl methods lists the names" in capsys.readouterr().err


def test_a_composition_says_that_it_brings_its_layer() -> None:
    with pytest.raises(OptionError, match="brings its own layer"):
        make_loss("dbb", "smoothed", TASK, SCALE)
    assert make_loss("dbb", "exact", TASK, SCALE, step=3.0).layer.step == 3.0


def test_a_learned_loss_by_name_learns_from_the_rows_it_trains_on_and_a_saved_model_loads_without(
    tmp_path: Path,
) -> None:
    X, y = numbers(3).numpy(), numbers(1).numpy()
    regressor = dflearn.DecisionFocusedRegressor(PROGRAM, loss="lodl", epochs=1).fit(X, y)
    assert regressor.loss_.weights.shape == y.shape
    learned = losses.LODL.learn(DATA, TASK.relaxed, 0.5 * SCALE.sigma)
    taught = make_loss("lodl", "auto", TASK, SCALE, data=DATA)
    assert torch.equal(taught.weights, learned.weights)
    regressor.save(tmp_path / "model.dfl")
    loaded = dflearn.DecisionFocusedRegressor.load(tmp_path / "model.dfl")
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
    assert len(loaded.loss_.ids) == 0
