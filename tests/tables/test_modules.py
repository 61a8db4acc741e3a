"""Modules of one's own in model files: kept by import path, run only on request, and told where versions differ."""

from __future__ import annotations

import json
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from dflearn import Program
from dflearn.errors import DataError, OptionError
from dflearn.tables import DecisionFocusedRegressor, Imported, saving
from support import own_nets

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 4))
PATH = "support.own_nets:PriceNet"


def fitted(model: nn.Module) -> DecisionFocusedRegressor:
    program = Program(n=4, lower=-1, upper=1)
    return DecisionFocusedRegressor(program, model=model, loss="spo+", epochs=2).fit(X, Y)


def test_a_module_of_ones_own_comes_back_and_runs_on_request_only(tmp_path: Path) -> None:
    path, model = tmp_path / "model.dfl", Imported(PATH, hidden=6)
    regressor = fitted(model)
    regressor.save(path)
    with zipfile.ZipFile(path) as archive:
        held = json.loads(archive.read("metadata.json"))["parameters"]["model"]
    assert held == {"import": PATH, "arguments": {"hidden": 6}}
    with pytest.raises(DataError, match=rf"{held['import']}: loading it runs that code.*trust=True"):
        DecisionFocusedRegressor.load(path)
    with pytest.warns(UserWarning, match="is imported and run"):
        loaded = DecisionFocusedRegressor.load(path, trust=True)
    assert type(loaded.model) is type(model)
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
    loaded.save(tmp_path / "again.dfl")  # as good as the first
    with pytest.warns(UserWarning, match="is imported and run"):
        again = DecisionFocusedRegressor.load(tmp_path / "again.dfl", trust=True)
    np.testing.assert_array_equal(again.predict(X), regressor.predict(X))


def test_without_trust_nothing_of_the_file_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harmful_net.py").write_text("raise RuntimeError('this ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    fitted(Imported("support.own_nets:Plain")).save(tmp_path / "model.dfl")
    changed = tmp_path / "changed.dfl"
    with zipfile.ZipFile(tmp_path / "model.dfl") as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"support.own_nets:Plain", b"harmful_net:Net"))
    with pytest.raises(DataError, match="harmful_net:Net: loading it runs that code"):
        DecisionFocusedRegressor.load(changed)
    with pytest.raises(DataError, match="this ran"), pytest.warns(UserWarning, match="harmful_net:Net"):
        DecisionFocusedRegressor.load(changed, trust=True)


def test_modules_without_an_import_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model is a Plain.*Imported\('package.module:Class'"):
        fitted(own_nets.Plain()).save(tmp_path / "model.dfl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("support.own_nets", {}, "imported by 'package.module:name'"),
        ("no_such_package:Net", {}, "cannot be imported here"),
        ("support.own_nets:Nothing", {}, "cannot be imported here"),
        ("support.own_nets:__name__", {}, "something to call is wanted"),
        ("support.own_nets:no_module", {"size": 3}, "gives a int, and a torch module is wanted"),
        (PATH, {"hidden": np.ones(3)}, "as JSON holds them"),
    ],
)
def test_what_cannot_be_imported_is_told(path: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Imported(path, **arguments)


@pytest.mark.parametrize(
    ("package", "then", "said"), [("torch", "1.9.1", 1), ("dflearn", "0.0.3", 1), ("numpy", "1.0", 0)]
)
def test_other_versions_are_told(package: str, then: str, said: int) -> None:
    metadata = {"packages": {name: version(name) for name in ("torch", "dflearn", "numpy")} | {package: then}}
    noted = saving.other_versions(metadata)
    assert [f"saved with {package} {then}" in one for one in noted] == [True] * said
