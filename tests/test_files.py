"""Files appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from dflearn.data.labels import label
from dflearn.errors import DataError, StorageError
from dflearn.files import replacing, write_whole
from dflearn.studies.store import Store
from dflearn.tables import DecisionFocusedRegressor
from dflearn.tables.tables import write_table
from support.full_disk import disk_of
from support.small_problem import PROGRAM, knapsack_data
from support.study_records import made_up, tiny

DATA = knapsack_data(300, 1)


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path  # a rename stays on one file system
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_all_is_as_before(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "new" / "notes.txt", b"old")  # the folder is made
    with pytest.raises(LookupError), replacing(path) as temporary:
        temporary.write_text("ha", encoding="none that is known")  # the file is open by then
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


# -- full disks -------------------------------------------------------------------------------------------------------

NUMBERS = {"numbers": np.random.RandomState(0).rand(3000)}


@cache
def fitted() -> DecisionFocusedRegressor:
    return DecisionFocusedRegressor(PROGRAM, epochs=1).fit(DATA.features.numpy(), DATA.costs.numpy())


WRITERS: dict[str, Callable[[Path], object]] = {
    "text.txt": lambda path: write_whole(path, bytes(9000)),
    "data.npz": DATA.save,
    "table.csv": lambda path: write_table(path, NUMBERS),
    "table.parquet": lambda path: write_table(path, NUMBERS),
    "model.dfl": lambda path: fitted().save(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_on_a_full_disk_the_old_file_stays(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("old")
    fitted()
    message = rf"{name} could not be written: .*free some space"
    with disk_of(1000), pytest.raises(StorageError, match=message) as caught:
        WRITERS[name](path)
    assert isinstance(caught.value, OSError)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_on_a_full_disk_a_label_cache_keeps_what_it_holds(tmp_path: Path) -> None:
    first, rest = DATA.subset(slice(0, 40)), DATA.subset(slice(0, None))
    label(first, PROGRAM, cache=tmp_path)
    (path,) = (tmp_path / "solutions").iterdir()
    size = path.stat().st_size
    with disk_of(size), pytest.raises(StorageError, match=rf"{path.name} could not be written"):
        label(rest, PROGRAM, cache=tmp_path)
    assert torch.equal(label(rest, PROGRAM, cache=tmp_path).decisions, label(rest, PROGRAM).decisions)


def test_on_a_full_disk_a_study_keeps_what_it_holds(tmp_path: Path) -> None:
    path, many = tmp_path / "study.sqlite", tmp_path / "many.jsonl"
    with Store(tmp_path / "other.sqlite") as store:
        for seed in range(2, 60):
            store.put(made_up(tiny(seed=seed)))
        store.export(many)
    with Store(path) as store:
        store.put(made_up(tiny()))
        full = rf"{path.name} could not be written"
        with disk_of(path.stat().st_size), pytest.raises(StorageError, match=full):
            store.import_lines(many)
    with Store(path) as store:
        assert tiny() in [record.config for record in store.records()]
        store.put(made_up(tiny(seed=1000)))
        assert store.has(tiny(seed=1000))


# -- what is no file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_a_device_or_a_folder_is_not_replaced(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataError, match=rf"{name} is a device, a pipe or a socket, .*: name a file"):
        WRITERS[name](path)
    assert path.is_fifo()
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=rf"{name} is a folder, .*: name a file"):
        WRITERS[name](path)
    assert path.is_dir()
