"""The store: what is put in comes out, whatever was there before, and as a table."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import numpy as np
import pandas
import pytest

from dflearn.errors import DataError, OptionError
from dflearn.studies import store as module
from dflearn.studies.store import Store, read_records
from support.study_records import made_up, tiny


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.sqlite"


def test_a_record_comes_back_whole(path: Path) -> None:
    record = made_up(tiny(method="PFY"))
    with Store(path) as store:
        store.put(record)
    with Store(path) as store:
        (found,) = store.records()
        assert store.get(record.config) is not None
        assert store.get(tiny(method="PFY", seed=2)) is None
    assert found.as_dict() == record.as_dict()
    np.testing.assert_array_equal(found.regrets, record.regrets)
    np.testing.assert_array_equal(found.optima, record.optima)


def test_another_exact_solver_answers_the_same_question(path: Path) -> None:
    by_gurobi, by_highs = tiny("KP-10", solver="gurobi"), tiny("KP-10")
    with Store(path) as store:
        for config in (by_gurobi, by_highs):
            store.put(made_up(config))
            found = store.get(by_highs)
            assert found is not None
            assert found.config == config


def test_a_failure_is_kept_until_the_run_succeeds(path: Path) -> None:
    config = tiny()
    with Store(path) as store:
        store.put_wanted([config])
        store.put_failure(config, "DataError: no")
        assert [(failure.config, failure.error) for failure in store.progress().failed] == [(config, "DataError: no")]
        store.put(made_up(config))
        assert not store.progress().failed
        assert store.progress().done == [config]


def test_progress_tells_running_from_what_a_killed_driver_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [tiny(seed=seed) for seed in (1, 2, 3)]
    with Store(path) as store:
        store.put_wanted(configs)
        store.put(made_up(configs[0]))
        store.put_running(configs[1])
        progress = store.progress()
        assert (progress.done, list(progress.running), progress.missing) == ([configs[0]], [configs[1]], [configs[2]])
        monkeypatch.setattr(module, "_alive", lambda process: False)
        assert store.progress().missing == configs[1:]
        store.clear_running()
        monkeypatch.undo()
        assert not store.progress().running


def test_results_of_another_version_do_not_count(path: Path) -> None:
    config = tiny()
    with Store(path) as store:
        store.put(made_up(config))
        store.connection.execute("UPDATE runs SET results_version = results_version - 1")
        assert not store.has(config)
        assert store.get(config) is None
        assert store.records() == []


def test_exports(path: Path, tmp_path: Path) -> None:
    records = [made_up(tiny(method="MSE")), made_up(tiny(method="SCE^DYS")), made_up(tiny(method="SCE^smoothed"))]
    with Store(path) as store:
        for record in records:
            store.put(record)
        for name in ("runs.csv", "runs.parquet", "runs.jsonl"):
            assert store.export(tmp_path / name) == 3
        with pytest.raises(OptionError, match=r"ends in \.csv, \.parquet or \.jsonl .*, got 'runs\.xls'"):
            store.export(tmp_path / "runs.xls")
        with pytest.raises(DataError, match="does not exist"):
            store.export(tmp_path / "nowhere" / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["MSE", "SCE^DYS", "SCE^smoothed"]
    assert [row["parameter_alpha"] for row in rows] == ["", "0.01", ""]
    assert [float(row["published_style"]) for row in rows] == [0.3] * 3
    table = pandas.read_parquet(tmp_path / "runs.parquet")
    assert table["setting_epochs"].tolist() == [2, 2, 2]
    assert table["parameter_mu"].tolist()[-1] == "auto"
    again = read_records(tmp_path / "runs.jsonl")
    assert [record.as_dict() for record in again] == [record.as_dict() for record in read_records(path)]
    assert again[0].regrets is None
    with Store(tmp_path / "other.sqlite") as other:
        assert other.import_lines(tmp_path / "runs.jsonl") == 3
        assert other.import_lines(tmp_path / "runs.jsonl") == 0
        assert [record.as_dict() for record in other.records()] == [record.as_dict() for record in again]


def test_lines_that_are_no_runs(tmp_path: Path) -> None:
    lines = tmp_path / "runs.jsonl"
    content = made_up(tiny()).as_dict()
    lines.write_text(json.dumps({**content, "results_version": 0}) + "\n")
    assert read_records(lines) == []
    lines.write_text(json.dumps(content) + '\n{"config": 1}\n')
    with pytest.raises(DataError, match=r"line 2 of .*runs\.jsonl is not an exported run"):
        read_records(lines)


def test_files_that_are_no_stores(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be taken for one by its size alone" * 20)
    with pytest.raises(DataError, match="cannot be used as a study"):
        Store(text)
    with pytest.raises(DataError, match="there is no study at"):
        Store(tmp_path / "none.sqlite", must_exist=True)
    with pytest.raises(DataError, match="does not exist"):
        Store(tmp_path / "nowhere" / "study.sqlite")
    newer = tmp_path / "newer.sqlite"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DataError, match=r"of another dflearn .*update"):
        Store(newer)
