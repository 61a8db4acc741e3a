"""Files that appear whole or not at all, whatever happens while they are written. `reading` reads what others wrote."""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dflearn.errors import DataError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def check_target(path: str | os.PathLike[str]) -> None:
    """An error now, where a file could not be written later: what stands at `path` is no file, as a folder or a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "a device, a pipe or a socket"
        raise DataError(f"{path} is {what}, which a file would replace: name a file")


LEAST_ROOM = 2**24  # bytes: models, pages and tables of usual size


def check_writable(path: str | os.PathLike[str]) -> None:
    """An error before hours of work, where a file could not be written after them: its folder is none, is read-only or full."""
    check_target(path)
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise DataError(f"the folder of {path} does not exist")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if error.errno in FULL:
            raise no_room(path, error.strerror) from error
        remedy = "name another"
        raise DataError(f"{path} cannot be written, {folder} takes no files ({error.strerror}): {remedy}") from error
    if shutil.disk_usage(folder).free < LEAST_ROOM:
        raise no_room(path, "less than 16 MB are free there")


def no_room(path: str | os.PathLike[str], reason: object) -> StorageError:
    """The error to raise where the disk is full, or broken."""
    remedy = "free some space, or name a file on another disk"
    return StorageError(f"{path} could not be written: {reason}. What was there before is still there, whole: {remedy}")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside `path` to write to. In the end what was written takes the place of `path`; after an error, nothing does.

    with replacing("model.dfl") as temporary:
        temporary.write_bytes(content)

    The file keeps the permissions of the one before; a new one has those that the umask leaves.
    """
    path = Path(path)
    check_target(path)
    # As `tempfile.mkstemp`, whose files are readable by their owner alone: no link is followed.
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())  # else, after a power cut, the new name might stand for an empty file
        with suppress(OSError):  # there is no file before, or the disk knows no permissions
            os.chmod(temporary, os.stat(path).st_mode & 0o777)
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


def as_json(value: Any) -> Any:
    """The value as JSON holds it: `null` for a number that is not finite, text for a path."""
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str | Path):
        return str(value) if isinstance(value, Path) else value
    return as_json(value.tolist())  # a number or an array of numpy
