"""Files that others wrote: unpacked within a limit, and every array checked in full before it is used.

Compressed content (gzip, xz, zlib, zip) may unpack to ten times its size, and to 128 MB in any case; more is refused before it
is in memory. No file can make numpy, scipy or torch read outside an array: shape, dtype, lengths and indices are checked first.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp

from dflearn.errors import DataError

LEAST, TIMES = 2**27, 10  # what may be unpacked: so many bytes, or so many times the packed size
MEMBERS = 10_000  # parts of a zip file
COLUMNS = 2**20  # a matrix may have so many columns, however small the file

# What reading raises where the bytes are not as they were written: RuntimeError is zipfile's, and what deep nesting ends in.
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, EOFError, OSError, RuntimeError,
    MemoryError, SyntaxError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


def limit(packed: int) -> int:
    """To how many bytes so many packed ones may unpack."""
    return max(LEAST, TIMES * packed)


def unpack(packed: bytes, how: Literal["gzip", "xz", "zlib"], most: int | None = None) -> bytes:
    """The content of compressed bytes; an error where it is cut short, or longer than `most`, by default `limit`."""
    most = limit(len(packed)) if most is None else most
    if how == "gzip":
        content = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(most + 1)
    else:
        one = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LEAST) if how == "xz" else zlib.decompressobj()
        content = one.decompress(packed, most + 1)
        if len(content) <= most and not one.eof:
            raise EOFError("it is cut short")
        if one.unused_data:
            raise DataError("it goes on after its end")
    if len(content) > most:
        raise _too_long(len(packed), most)
    return content


def _too_long(packed: int, most: int) -> DataError:
    return DataError(
        f"its {packed} bytes would unpack to more than {most}, the most that is taken (ten times its size, or {LEAST >> 20} MB): if "
        "you trust it, unpack it with another tool, and name the file that comes out"
    )


# -- zip files ------------------------------------------------------------------------------------------------------


def check_zip(archive: zipfile.ZipFile, size: int) -> None:
    """An error where a zip file of that many bytes has a part twice, or would unpack to more than `limit`."""
    parts = archive.infolist()
    if len(parts) > MEMBERS:
        raise DataError(f"it has {len(parts)} parts, more than {MEMBERS}")
    if len({part.filename for part in parts}) < len(parts):
        raise DataError("it holds two parts of one name")
    if any(part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for part in parts):
        raise DataError("its parts are compressed otherwise than by deflate: save it anew")
    if sum(part.file_size for part in parts) > limit(size):
        raise _too_long(size, limit(size))


def read_npz(file: str | os.PathLike[str] | IO[bytes]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name: booleans, whole numbers, floats and text, never objects.

    Sizes and headers are compared before an array is read, so that a small file that means harm costs no memory.
    """
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as handle:
            return read_npz(handle)
    size = file.seek(0, os.SEEK_END)
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(file) as archive:
        check_zip(archive, size)
        longest = max([COLUMNS, *(part.file_size for part in archive.infolist())])
        for part in archive.infolist():
            name = part.filename.removesuffix(".npy")
            with archive.open(part) as content:
                _check_header(name, content, part.file_size, longest)
            with archive.open(part) as content:
                array = np.lib.format.read_array(content, allow_pickle=False)
                if content.read(1):
                    raise DataError(f"its array {name} goes on after its end")
            found[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return found


def _check_header(name: str, content: IO[bytes], size: int, longest: int) -> None:
    """Compare what an .npy header says with the bytes that follow."""
    version = np.lib.format.read_magic(content)
    if version not in ((1, 0), (2, 0)):
        raise DataError(f"its array {name} has the version {version}, which is not read here")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(content)
    if dtype.kind not in "biufU":
        raise DataError(f"its array {name} holds {dtype}: numbers, booleans and text only")
    if any(not 0 <= length <= longest for length in shape):
        raise DataError(f"its array {name} has the shape {shape}, which does not fit the file")
    if int(np.prod(shape, dtype=object)) * dtype.itemsize != size - content.tell():
        raise DataError(f"its array {name} of shape {shape} has not the bytes that follow")


# -- arrays ---------------------------------------------------------------------------------------------------------

KINDS = {"numbers": "f", "whole numbers": "iu", "numbers of any kind": "iuf", "booleans": "b", "text": "U"}


def check_dense(
    arrays: Mapping[str, Any], name: str, kind: str, shape: tuple[int | None, ...], *, finite: bool = True
) -> np.ndarray:
    """The array of that name: of one of `KINDS`, of that shape (`None`: any length), without NaN and, if `finite`, without ∞."""
    if name not in arrays:
        raise DataError(f"its array {name} is missing")
    array = np.asarray(arrays[name])
    if array.dtype.kind not in KINDS[kind]:
        raise DataError(f"its array {name} should hold {kind}, and holds {array.dtype}")
    if array.ndim != len(shape) or any(
        wanted not in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    ):
        shown = ", ".join("any" if length is None else str(length) for length in shape)
        raise DataError(f"its array {name} has the shape {array.shape}, and ({shown}) is wanted")
    if array.dtype.kind == "f" and not (np.isfinite(array).all() if finite else not np.isnan(array).any()):
        raise DataError(f"its array {name} holds a NaN{' or an infinity' if finite else ''}")
    return array


def check_sparse(
    arrays: Mapping[str, Any], name: str, shape: tuple[int, int] | None = None, *, columns: int = COLUMNS
) -> sp.csr_array:
    """The matrix in compressed rows `name.data`, `.indices`, `.indptr` and, unless it is given, `.shape`; checked in full.

    indptr rises from 0 to the number of entries, in a step for each row; every index is below the number of columns, of which
    there are at most `columns`; entries are finite.
    """
    if shape is None:
        rows, width = (int(length) for length in check_dense(arrays, f"{name}.shape", "whole numbers", (2,)))
    else:
        rows, width = shape
    data = check_dense(arrays, f"{name}.data", "numbers", (None,))
    indices = check_dense(arrays, f"{name}.indices", "whole numbers", data.shape)
    if rows < 0 or not 0 <= width <= columns:
        raise DataError(f"its matrix {name} has the shape ({rows}, {width}), which does not fit the file")
    indptr = check_dense(arrays, f"{name}.indptr", "whole numbers", (rows + 1,))
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise DataError(f"its matrix {name} has row pointers that do not rise from 0 to its {len(data)} entries")
    if len(indices) and (indices.min() < 0 or indices.max() >= width):
        raise DataError(f"its matrix {name} has entries outside of its {width} columns")
    return sp.csr_array((data, indices, indptr), shape=(rows, width))
