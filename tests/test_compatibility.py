"""Files that commit 3ecb6c8 wrote still load, and mean the same: models, checkpoints, label caches, studies and their keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dflearn as dfl
from dflearn.data.labels import label
from dflearn.losses import SCE
from dflearn.models import Linear
from dflearn.problems import problem_named
from dflearn.solvers.base import Raw
from dflearn.solvers.highs import HiGHS
from dflearn.studies.config import Settings, resolve
from dflearn.studies.store import Store, read_records

FILES = Path(__file__).parent / "files" / "3ecb6c8"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())


@pytest.mark.parametrize(("name", "wanted"), [("model.dfl", "predictions"), ("named.dfl", "named")])
def test_models(name: str, wanted: str) -> None:
    X = dfl.DecisionDataset.load(FILES / "data.npz").features[:3].double().numpy()
    np.testing.assert_array_equal(dfl.DecisionFocusedRegressor.load(FILES / name).predict(X), EXPECTED[wanted])


def test_checkpoints(tmp_path: Path) -> None:
    """A run that stopped there goes on here, bit for bit."""
    path = tmp_path / "run.pt"
    shutil.copy(FILES / "run.pt", path)
    problem, data = problem_named("SP-3", seed=1), dfl.DecisionDataset.load(FILES / "data.npz")
    model = Linear(data.features.shape[1], problem.program.p, seed=0)
    history = dfl.fit(
        model, SCE(dfl.Smoothed(problem.program, 1.0)), data.subset(slice(0, 60)), validation=data.subset(slice(60, 80)),
        problem=problem, epochs=4, checkpoint=path, seed=0, progress=False,
    )  # fmt: skip
    assert len(history.rows) == 4
    torch.testing.assert_close(model.weight.detach().double(), torch.tensor(EXPECTED["resumed"], dtype=torch.float64))


class Forgetful(HiGHS):
    """Remembers nothing and solves nothing."""

    def _solve(self, c: np.ndarray, sides: Any, start: np.ndarray | None) -> Raw:
        raise AssertionError("what is in the cache is solved again")

    @property
    def identity(self) -> str:
        return "HiGHS 1.15.1 " + super().identity.split(" ", 2)[2]  # the version that wrote the cache


def test_label_caches(tmp_path: Path) -> None:
    shutil.copytree(FILES / "cache", tmp_path / "cache")
    problem = problem_named("KP-8", seed=1)
    solver = Forgetful(problem.program)
    labelled = label(problem.generate(20), solver, cache=tmp_path / "cache", progress=False)
    assert labelled.decisions is not None
    assert problem.program.is_feasible(labelled.decisions).all()


def test_studies_and_their_keys(tmp_path: Path) -> None:
    shutil.copy(FILES / "study.sqlite", tmp_path / "study.sqlite")
    methods = ("MSE", "SPO+^relax", "SCE^smoothed")
    configs = [resolve("SP-3", method, 1, Settings(points=60, test=20, epochs=2)) for method in methods]
    assert [config.key for config in configs] == EXPECTED["keys"]
    with Store(tmp_path / "study.sqlite") as store:
        assert all(store.has(config) for config in configs)
    assert {record.config.key for record in read_records(FILES / "study.jsonl")} == set(EXPECTED["keys"])


@pytest.mark.parametrize("name", EXPECTED["paper_keys"])
def test_keys_of_the_paper(name: str) -> None:
    problem, _, method = name.partition(" ")
    assert resolve(problem, method, 1).key == EXPECTED["paper_keys"][name]
