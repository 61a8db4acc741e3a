"""dfl train, decide and evaluate where right-hand sides are predicted: from a file to decisions that are judged after recourse."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import dflearn as dfl
from dflearn.cli import main

SHOPS = """minimize
 cost: 1 x1 + 1 x2 + 0.5 over1 + 4 under1 + 0.5 over2 + 4 under2
subject to
 demand1: x1 - over1 + under1 = 5
 demand2: x2 - over2 + under2 = 5
bounds
 x1 <= 100
 x2 <= 100
end
"""
STRICT = """minimize
 cost: 1 x1 + 2 x2
subject to
 demand1: x1 >= 5
 demand2: x1 + x2 >= 5
bounds
 x1 <= 100
 x2 <= 100
end
"""
TABLES = ["--features", "x.csv", "--costs", "y.csv"]
RECOURSE = ["--recourse", "over*", "under*"]


def write(path: Path, names: list[str], rows: np.ndarray) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows.round(6).tolist()])


def read(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(name).read_text().splitlines()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("shops"), np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = np.exp(1 + x @ [[0.4, 0.1], [0.2, -0.3]] + 0.3 * rng.normal(size=(60, 2)))
    write(folder / "x.csv", ["a", "b"], x)
    write(folder / "y.csv", ["demand1", "demand2"], y)
    (folder / "shops.lp").write_text(SHOPS)
    (folder / "strict.lp").write_text(STRICT)
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        options = ["--out", "model.dfl", "--epochs", "1", "--no-page", "--json"]
        assert main(["train", "--program", "shops.lp", *TABLES, *RECOURSE, *options]) == 0
    return folder / "model.dfl"


def test_from_a_file_to_decisions(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file keeps the program whole; the regret of each row is that of the newsvendor's formula."""
    monkeypatch.chdir(trained.parent)
    model = dfl.DecisionFocusedRegressor.load(trained)
    program = model.solver_.program
    assert program is not None
    assert program.predicts_rows
    assert program.recourse is not None
    assert program.recourse.tolist() == [False, False, True, True, True, True]
    assert {"task", "quantile", "blend"} <= set(model.record_["test"])
    assert main(["decide", "--model", "model.dfl", *TABLES, "--out", "decided.csv"]) == 0
    rows = read("decided.csv")
    y = np.array([[float(row[name]) for name in ("demand1", "demand2")] for row in read("y.csv")])
    ordered = np.array([[float(row["x1"]), float(row["x2"])] for row in rows])
    true = (ordered + 0.5 * np.maximum(ordered - y, 0) + 4 * np.maximum(y - ordered, 0)).sum(1)
    np.testing.assert_allclose([float(row["true_objective"]) for row in rows], true, rtol=1e-6)
    np.testing.assert_allclose([float(row["regret"]) for row in rows], true - y.sum(1), rtol=1e-5, atol=1e-6)


def test_evaluate(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    y = np.array([[float(cell) for cell in row.values()] for row in read("y.csv")])
    write(folder / "more.csv", ["demand1", "demand2"], y + 1)
    command = ["evaluate", "--predictions", "more.csv", "--costs", "y.csv", "--json"]
    assert main([*command, "--program", "shops.lp", *RECOURSE]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]["more.csv"]["metrics"]
    assert found["absolute_regret"]["value"] == pytest.approx(3.0, rel=1e-4)
    assert main([*command, "--program", "strict.lp", "--elastic", "demand1=5", "demand2=5"]) == 0
    found = json.loads(capsys.readouterr().out)["predictions"]["more.csv"]["metrics"]
    assert found["infeasible_share"]["value"] == 0


def test_other_losses(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    train = ["train", "--program", "strict.lp", *TABLES, "--out", "other.dfl", "--no-page", "--epochs", "1"]
    assert main([*train, "--elastic", "4", "--loss", "score-function", "--json"]) == 0
    assert "score-function" in json.loads(capsys.readouterr().out)["test"]
    for loss in ("sce", "spo+", "pfy", "cave"):
        assert main([*train, "--elastic", "4", "--loss", loss]) == 1
        said = capsys.readouterr().err
        assert f"loss '{loss}' is not defined where right-hand sides are predicted" in said
        assert "'task', 'score-function', 'quantile'" in said
    assert main([*train, "--elastic", "four"]) == 1
    assert "--elastic is PRICE" in capsys.readouterr().err
    assert main(["train", "--program", "shops.lp", *TABLES, "--out", "other.dfl", "--recourse", "ovr1"]) == 1
    assert "no variable 'ovr1'" in capsys.readouterr().err


@pytest.mark.filterwarnings("always:.*predicted right-hand sides:RuntimeWarning")
def test_without_recourse(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A truth that no recourse serves is said to cost infinitely much, and what to add."""
    monkeypatch.chdir(folder)
    train = ["train", "--program", "strict.lp", *TABLES, "--out", "none.dfl", "--no-page", "--epochs", "1"]
    assert main(train) == 1
    said = capsys.readouterr().err
    assert "regret inf on the validation rows" in said
    assert "RuntimeWarning" not in said
    assert len([line for line in said.splitlines() if line.startswith("note: 2 predicted right-hand sides")]) == 1
    assert "--elastic PRICE adds priced slack" in said
    assert "add priced slack, --elastic PRICE" in said
