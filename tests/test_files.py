"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflearn.files import replacing, write_whole


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path  # a rename stays on one file system
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("ha")
        raise InterruptedError


def test_after_an_error_all_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with pytest.raises(InterruptedError):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_made(tmp_path: Path) -> None:
    assert write_whole(tmp_path / "new" / "notes.txt", b"text").read_bytes() == b"text"
