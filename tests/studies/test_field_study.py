"""The field study's statistics against tables and formulas of others, and the whole of it on a small part."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import field as study
from field_statistics import ranking


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(methods: int, quantile: float) -> None:
    """Demšar (2006), table 5(a)."""
    table = np.random.default_rng(0).normal(size=(6, methods))
    found = ranking([str(i) for i in range(methods)], table)
    assert found.distance == pytest.approx(quantile * math.sqrt(methods * (methods + 1) / 36), rel=1e-3)


def test_ranks_by_hand() -> None:
    found = ranking(["a", "b", "c"], np.array([[1.0, 2.0, 3.0], [2.0, 2.0, math.nan], [0.5, 0.1, 0.2]]))
    assert found.ranks.tolist() == [[1, 2, 3], [1.5, 1.5, 3], [3, 1, 2]]
    assert found.mean == {"b": 1.5, "a": pytest.approx(5.5 / 3), "c": pytest.approx(8 / 3)}


def test_a_small_part_runs_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:  # fmt: skip
    small = study.Task("SP-3", train=24, validation=10, test=25, epochs=2)
    monkeypatch.setattr(study, "TASKS", (small,))
    arguments = [
        "field.py",
        "--out",
        str(tmp_path),
        "--methods",
        "MSE",
        "SPO+",
        "--seeds",
        "1",
        "2",
        "--problems",
        "SP-3",
    ]
    monkeypatch.setattr("sys.argv", arguments)
    study.main()
    records = study.read(tmp_path / study.RECORDS)
    assert len(records) == 2 * (5 + 2)
    chosen = study.best_trial(records, "SP-3", "SPO+")
    tried = [one for one in records if one["method"] == "SPO+" and one["seed"] == 0]
    assert chosen == min(tried, key=lambda one: one["validation"])["trial"]
    tested = [one for one in records if one["seed"] > 0]
    assert {one["trial"] for one in tested if one["method"] == "SPO+"} == {chosen}
    for one in tested:
        assert one["regret"] == pytest.approx(np.mean(one["regrets"]), rel=1e-2)
        assert len(one["path"]) <= study.CHECKS
        assert one["validation"] == pytest.approx(min(regret for _, regret in one["path"]), rel=1e-3)
    assert "mean rank" in capsys.readouterr().out
    monkeypatch.setattr(study, "run", None)  # nothing is run twice
    study.main()
    assert study.read(tmp_path / study.RECORDS) == records
