"""One-file models: the same answers after loading, the same bytes twice, and nothing read that was not written here."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch

from dflearn.errors import DataError
from dflearn.layers import Smoothed
from dflearn.losses import SCE
from dflearn.problems import problem_named
from dflearn.program import Program
from dflearn.solvers.highs import HiGHS
from dflearn.tables import DecisionFocusedRegressor, saving
from support.small_problem import ITEMS, PROGRAM, knapsack_data

DATA = knapsack_data(40, seed=1)
X, Y, W = (part.double().numpy() for part in (DATA.features, DATA.costs, DATA.decisions))


def refused(message: str) -> Any:
    return pytest.raises(DataError, match=message)


def fitted(problem: Any = PROGRAM, **options: Any) -> DecisionFocusedRegressor:
    return DecisionFocusedRegressor(problem, **({"loss": "mse", "epochs": 2} | options)).fit(X, Y)


@pytest.fixture(scope="module")
def regressor() -> DecisionFocusedRegressor:
    return fitted()


@pytest.fixture
def file(regressor: DecisionFocusedRegressor, tmp_path: Path) -> Path:
    regressor.save(tmp_path / "model.dfl")
    return tmp_path / "model.dfl"


def rewritten(file: Path, **changes: Any) -> Path:
    """The file with entries replaced (a value), dropped (None) or metadata updated (a dict)."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, change in changes.items():
        name = next(full for full in parts if full.startswith(name))
        if change is None:
            del parts[name]
        elif isinstance(change, dict):
            parts[name] = json.dumps({**json.loads(parts[name]), **change}).encode()
        else:
            parts[name] = change
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return file


# -- what is written comes back -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "mlp", "hidden": (5, 4)},
        {"loss": "sce", "mu": 0.5},
        {"positive": True},
        {"positive": True, "model": "mlp", "hidden": (4,)},
        {"random_state": None, "cache": Path("somewhere"), "lr": np.float64(0.01), "loss": "mse"},
        {"problem": problem_named("TopK-6x2", seed=5, noise=0.25)},
        {"problem": Program(n=ITEMS, upper=[1.0] * 5 + [np.inf], G=np.eye(ITEMS), h=np.ones(ITEMS), S=-np.eye(ITEMS))},
    ],
)  # fmt: skip
def test_a_loaded_estimator_answers_alike(options: dict[str, Any], tmp_path: Path) -> None:
    problem = options.pop("problem", PROGRAM)
    regressor = fitted(problem, **options)
    regressor.save(tmp_path / "model.dfl")
    loaded = DecisionFocusedRegressor.load(tmp_path / "model.dfl")
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
    np.testing.assert_array_equal(loaded.decide(X), regressor.decide(X))
    plain = {name: value for name, value in regressor.get_params().items() if name not in ("problem", "cache")}
    assert {name: loaded.get_params()[name] for name in plain} == plain
    assert loaded.history_ == regressor.history_
    assert repr(loaded.loss_) == repr(regressor.loss_)
    assert loaded.fit(X, Y).predict(X).shape == Y.shape  # and can be trained again


def test_the_solver_that_decides_comes_back(tmp_path: Path) -> None:
    """HiGHS where it was asked for."""
    path = tmp_path / "model.dfl"
    for regressor, wanted in ((fitted(), "FewRowBinary"), (fitted(HiGHS(PROGRAM)), "HiGHS")):
        assert regressor.solver_.identity.startswith(wanted)
        regressor.save(path)
        loaded = DecisionFocusedRegressor.load(path)
        assert loaded.solver_.identity == regressor.solver_.identity
        assert isinstance(loaded.problem, Program)
        loaded.save(path)  # and once more
    fitted().save(path)
    rewritten(path, metadata={"solver": "unknown"})
    with refused("its solver 'unknown'"):
        DecisionFocusedRegressor.load(path)


def test_what_is_kept_with_a_model_comes_back(regressor: DecisionFocusedRegressor, tmp_path: Path) -> None:
    for record in ({"columns": ["rain", "wind"], "regret": 0.25, "note": "μ"}, {}):
        regressor.save(tmp_path / "model.dfl", record or None)
        assert DecisionFocusedRegressor.load(tmp_path / "model.dfl").record_ == record


def test_shapes_and_names_come_back(tmp_path: Path) -> None:
    each = np.random.RandomState(0).normal(size=(30, ITEMS, 2))
    per_cost = DecisionFocusedRegressor(PROGRAM, loss="mse", epochs=1).fit(each, each[..., 0])
    flat = DecisionFocusedRegressor(Program(n=1, upper=1), loss="mse", epochs=1).fit(X, Y[:, 0])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = DecisionFocusedRegressor(PROGRAM, loss="mse", epochs=1).fit(frame, Y)
    for regressor, features in ((per_cost, each), (flat, X), (named, frame)):
        regressor.save(tmp_path / "model.dfl")
        loaded = DecisionFocusedRegressor.load(tmp_path / "model.dfl")
        np.testing.assert_array_equal(loaded.predict(features), regressor.predict(features))
        assert loaded.n_features_in_ == regressor.n_features_in_
    assert list(loaded.feature_names_in_) == ["a", "b", "c"]


def test_the_same_model_gives_the_same_bytes(regressor: DecisionFocusedRegressor, file: Path, tmp_path: Path) -> None:
    regressor.save(tmp_path / "again.dfl")
    assert (tmp_path / "again.dfl").read_bytes() == file.read_bytes()


def test_the_file_is_plain(file: Path) -> None:
    """Anyone can read it with a zip tool, JSON, safetensors and numpy; nothing in it is pickled."""
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["metadata.json", "weights.safetensors", "program.npz"]
        metadata = json.loads(archive.read("metadata.json"))
        with np.load(io.BytesIO(archive.read("program.npz")), allow_pickle=False) as arrays:
            np.testing.assert_array_equal(arrays["A.shape"], [0, ITEMS])
            np.testing.assert_array_equal(arrays["h"], [9])
    assert metadata["format"] == "dflearn model"
    assert metadata["class"] == "DecisionFocusedRegressor"
    assert metadata["parameters"]["loss"] == "mse"
    assert set(metadata["packages"]) >= {"dflearn", "torch"}


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_short_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for length in [0, 1, 30, *range(100, len(content), 97), len(content) - 1]:
        file.write_bytes(content[:length])
        with refused("is not a model that can be read here"):
            DecisionFocusedRegressor.load(file)


def test_a_damaged_file_is_refused(regressor: DecisionFocusedRegressor, file: Path) -> None:
    """A flipped bit is found, unless it lies where nothing is read from (a date in the zip's directory, say)."""
    content = file.read_bytes()
    expected, refused = regressor.predict(X), 0
    places = range(0, len(content), 13)
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        file.write_bytes(damaged)
        try:
            loaded = DecisionFocusedRegressor.load(file)
        except DataError:
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.predict(X), expected)
    assert refused > 0.8 * len(places)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"version": 2}}, "its version is 2, newer than 1: update dflearn"),
        ({"metadata": {"version": "one"}}, "cannot|not supported|not a model"),
        ({"metadata": {"format": "other"}}, "marker 'dflearn model' is missing"),
        ({"metadata": b"[1]"}, "marker 'dflearn model' is missing"),
        ({"metadata": b"{"}, "not a model that can be read"),
        ({"metadata": {"class": "Other"}}, "it holds a Other"),
        ({"metadata": {"parameters": {"nonsense": 1}}}, "nonsense"),
        ({"metadata": {"features": [4]}}, "its model has 100 weights, and the file 84"),
        ({"metadata": {"features": [2]}}, "size mismatch"),
        ({"metadata": {"program": "0" * 64}}, "its program is not the one"),
        ({"weights": None}, "it lacks weights.safetensors"),
        ({"weights": b"x" * 40}, "not a model that can be read"),
        ({"program": b"x" * 40}, "not a model that can be read"),
    ],
)
def test_a_foreign_file_is_refused(file: Path, changes: dict[str, Any], message: str) -> None:
    with refused(message):
        DecisionFocusedRegressor.load(rewritten(file, **changes))


def test_nothing_is_unpickled(file: Path) -> None:
    """An object array in program.npz would need pickle; numpy is told never to use it."""

    @dataclass
    class Trap:
        def __reduce__(self) -> Any:
            return os.abort, ()

    buffer = io.BytesIO()
    np.savez(buffer, A=np.array([Trap()], dtype=object))
    with refused("not a model that can be read"):
        DecisionFocusedRegressor.load(rewritten(file, program=buffer.getvalue()))


def test_a_large_program_that_compresses_well_is_not_taken_for_one(tmp_path: Path) -> None:
    program = Program(upper=1.0, n=2**20, name="box")
    weights = {"weight": torch.zeros(2)}
    saving.write(tmp_path / "model.dfl", {"class": "none"}, weights, program)
    assert saving.read(tmp_path / "model.dfl").program.fingerprint == program.fingerprint


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(
    regressor: DecisionFocusedRegressor, file: Path, number: float, tmp_path: Path
) -> None:
    saved = saving.read(file)
    name = next(name for name in saved.weights if name.endswith("weight"))
    weights = {**saved.weights, name: saved.weights[name].clone()}
    weights[name].view(-1)[1] = number
    with refused(r"the model is not saved: 1 of the .* are NaN or infinite.*smaller lr"):
        saving.write(tmp_path / "bad.dfl", saved.metadata, weights, saved.program)
    assert not (tmp_path / "bad.dfl").exists()
    with refused(f"1 of the .* in its weights '{name}' are NaN or infinite.*train the model again"):
        DecisionFocusedRegressor.load(rewritten(file, weights=safetensors.torch.save(weights)))


def test_other_files(tmp_path: Path) -> None:
    DATA.save(tmp_path / "data.npz")
    (tmp_path / "text.dfl").write_text("no model at all")
    for name, reason in (("data.npz", "it lacks metadata.json"), ("text.dfl", "it is no zip file")):
        with refused(reason):
            DecisionFocusedRegressor.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        DecisionFocusedRegressor.load(tmp_path / "missing.dfl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": torch.nn.Linear(3, ITEMS)}, "model is a Linear.*use model='linear'.*build the module anew"),
        ({"loss": SCE(Smoothed(PROGRAM, 1.0))}, r"loss is a SCE.*set_params\(loss=…\)"),
        ({"loss": "sce", "layer": Smoothed(PROGRAM, 1.0)}, r"layer is a Smoothed.*set_params\(layer=…\)"),
        ({"random_state": np.random.RandomState(0)}, "random_state is a RandomState"),
        ({"problem": HiGHS(PROGRAM, time_limit=1.0)}, "fit with a Problem or a Program"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with refused(message):
        fitted(**options).save(tmp_path / "model.dfl")
    assert list(tmp_path.iterdir()) == []


def test_programs_come_back_whole() -> None:
    """Every part of a program, the empty and the infinite ones included."""
    for program in (
        PROGRAM,
        Program(n=2, name="nothing but bounds"),
        problem_named("CFL-6x2").program,
        Program(A=[[1, 2.5, 0]], b=[3], S=np.ones((3, 2)), d=[1, 2, 3], lower=[-np.inf, 0, 1], integer=[1]),
        Program(n=2, variable_names=["here", "there"], cost_names=["near", "far"]),
    ):
        again = saving._unpack(saving._pack(program))
        assert again.fingerprint == program.fingerprint
        assert (again.name, again.sense, again.n, again.p) == (program.name, program.sense, program.n, program.p)
        assert (again.variable_names, again.cost_names) == (program.variable_names, program.cost_names)
