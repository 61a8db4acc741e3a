"""Files that appear whole or not at all, whatever happens while they are written; and a look at what others wrote."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dflearn.errors import DataError, StorageError

if TYPE_CHECKING:
    import numpy as np

SMALL, SWELLING = 2**26, 100  # what a zip may unpack to: so many bytes, or so many times its own size
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
        raise DataError(
            f"{path} cannot be written, {folder} takes no files ({error.strerror}): name another"
        ) from error
    if shutil.disk_usage(folder).free < LEAST_ROOM:
        raise no_room(path, "less than 16 MB are free there")


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


def check_npz(file: str | os.PathLike[str] | IO[bytes]) -> None:
    """An error where an .npz file would unpack to far more than its size, or its arrays to more than is there.

    Only sizes and headers are read, so that a small file that means harm costs no memory.
    """
    import numpy as np

    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        whole, packed = sum(member.file_size for member in members), sum(member.compress_size for member in members)
        if swells(whole, packed):
            raise DataError(
                f"it would unpack {packed} bytes to {whole}: if you trust it, save its arrays with np.savez"
            )
        for member in members:
            with archive.open(member) as content:
                shape, dtype = _npy_header(content)
                size = int(np.prod(shape, dtype=object)) * dtype.itemsize
                if size != member.file_size - content.tell() and not dtype.hasobject:  # np.load tells about objects
                    raise DataError(f"its array {member.filename} should have {size} bytes, and has others")


def swells(whole: int, packed: int) -> bool:
    """Whether this many bytes are too many to come out of so few."""
    return whole > max(SMALL, SWELLING * packed)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the array that follows in the file."""
    import numpy as np

    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
