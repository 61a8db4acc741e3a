"""Files that appear whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dflearn.errors import DataError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def check_target(path: str | os.PathLike[str]) -> None:
    """An error now, where a file could not be written later: what stands at `path` is no file, as a folder or a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "a device, a pipe or a socket"
        raise DataError(f"{path} is {what}, which a file would replace: name a file")


def no_room(path: str | os.PathLike[str], reason: object) -> StorageError:
    """The error to raise where the disk is full, or broken."""
    return StorageError(
        f"{path} could not be written: {reason}. What was there before is still there, whole: free some space, or name "
        "a file on another disk"
    )


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to. In the end what was written takes the place of `path`; after an error, nothing does.

    with replacing("model.dfl") as temporary:
        temporary.write_bytes(content)
    """
    path = Path(path)
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())  # else, after a power cut, the new name might stand for an empty file
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        cause = error if isinstance(error, OSError) else error.__context__  # torch.save hides the one behind the other
        if isinstance(cause, OSError) and cause.errno in FULL:
            raise no_room(path, cause.strerror) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> Path:
    """Write the file, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


@contextmanager
def transaction(connection: sqlite3.Connection, path: str | os.PathLike[str]) -> Iterator[None]:
    """All that is written to the database at `path` meanwhile, or nothing of it."""
    try:
        with connection:
            yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise no_room(path, error) from error
        raise
