"""Hostile changes of files: of their structure, beside their bytes. Each takes a `random.Random`, so that a seed gives it again."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import zipfile
import zlib
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

BOMB = 320 * 2**20  # bytes that a bomb unpacks to
NUMBERS = (0, -1, 7, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 10**8, 10**12, 1e308, -1e-320, float("nan"), float("inf"))
VALUES = (
    *NUMBERS,
    None,
    True,
    "",
    "text",
    "a" * 10_000,
    "\ud800",
    [],
    {},
    [[[]]],
    [1, 2, 3],
    {"a": {"b": None}},
    10**400,
)
WORDS = (
    "nan",
    "1e999",
    "-1",
    "inf",
    "\0",
    "x" * 100_000,
    "99999999999999999999",
    "[" * 5000,
    '"',
    ",",
    "\ufeff",
    "-" * 3000,
    "1e-400",
)
FUNNY = ("<f8", ">f8", "<f4", "<i8", "<i4", "<u1", "|b1", "<c16", "<U3", "|O", "<M8[s]", "|V8", "<f2")


def any_bytes(content: bytes, rng: Random) -> bytes:
    """Cut, lengthened, with blocks repeated, swapped, emptied, or with a number in it made extreme."""
    size = len(content)
    a, b = sorted(rng.randrange(size + 1) for _ in range(2))
    how = rng.randrange(7)
    if how == 0:
        return content[:a]
    if how == 1:
        return content + rng.randbytes(rng.choice([1, 100, 5000]))
    if how == 2:
        return content[:b] + content[a:]
    if how == 3:
        return content[:a] + bytes(b - a) + content[b:]
    if how == 4:
        return content[b:] + content[a:b] + content[:a]
    if how == 5:
        return b"" if rng.random() < 0.2 else rng.randbytes(min(size, 4000))
    number = rng.choice([b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f", b"\x00\xe1\xf5\x05\x00\x00\x00\x00"])
    return content[:a] + number[: rng.choice([1, 2, 4, 8])] + content[a + 8 :]


def text(content: bytes, rng: Random) -> bytes:
    """Lines dropped, repeated or swapped; words replaced."""
    lines = content.decode().split("\n")
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        how = rng.randrange(5)
        if how == 0:
            del lines[i : i + rng.randint(1, 3)]
            lines = lines or [""]
        elif how == 1:
            lines.insert(j, lines[i])
        elif how == 2:
            lines[i], lines[j] = lines[j], lines[i]
        else:
            words = lines[i].split(" " if how == 3 else ",")
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            lines[i] = (" " if how == 3 else ",").join(words)
    return "\n".join(lines).encode(errors="replace")


def tree(value: Any, rng: Random, leaves: tuple[Any, ...] = VALUES) -> Any:
    """Plain values with one of them, somewhere inside, replaced, dropped or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: tree(value[key], rng, leaves)}
    if isinstance(value, (list, tuple)) and value and rng.random() < 0.8:
        i = rng.randrange(len(value))
        parts = [*value[:i], tree(value[i], rng, leaves), *value[i + 1 :]]
        return type(value)(parts * (50 if rng.random() < 0.1 else 1))
    return rng.choice(leaves)


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def json_bytes(content: bytes, rng: Random) -> bytes:
    if rng.random() < 0.1:
        return b"[" * 100_000
    return as_json(tree(json.loads(content), rng))


# -- archives -------------------------------------------------------------------------------------------------------


def npz(content: bytes, rng: Random) -> bytes:
    """An .npz file with one array that lies about itself, lacks, stands twice, is a bomb, or another archive."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(list(arrays))
    parts = [(f"{key}.npy", npy(array)) for key, array in arrays.items()]
    others = [part for part in parts if part[0] != f"{name}.npy"]
    how = rng.randrange(8)
    if how == 0:
        return zipped(others)
    if how == 1:
        return zipped([*parts, (f"{name}.npy", npy(hostile(arrays[name], rng)))])
    if how == 2:
        return zipped([*others, (f"{name}.npy", content)])
    if how == 3:
        zeros = npy(np.zeros(0, arrays[name].dtype if arrays[name].dtype.kind != "U" else "<f8"), (BOMB // 8,))
        return zipped([*others, (f"{name}.npy", zeros + bytes(BOMB))], zipfile.ZIP_DEFLATED)
    if how == 4:
        shape = rng.choice([(2**40,), (-1,), (2**62, 0), (0, 2**62), (), (2**31, 2**33), (1,) * 40, (-1, -8)])
        return zipped([*others, (f"{name}.npy", npy(arrays[name], shape))])
    if how == 5:
        return zipped([*others, (f"{name}.npy", npy(arrays[name], None, rng.choice(FUNNY)))])
    return zipped([*others, (f"{name}.npy", npy(hostile(arrays[name], rng)))])


def npy(array: np.ndarray, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> bytes:
    """The bytes of an .npy file, with a header that may say something else."""
    header = {
        "descr": dtype or array.dtype.str,
        "fortran_order": False,
        "shape": array.shape if shape is None else shape,
    }
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + array.tobytes()


def hostile(array: np.ndarray, rng: Random) -> np.ndarray:
    """The array, longer or shorter, of another dtype or shape, or with an extreme number in it."""
    how = rng.randrange(5)
    if how == 0:
        return array.reshape(-1)[: rng.randrange(array.size + 1)]
    if how == 1:
        return np.concatenate([array.reshape(-1)] * 3)
    if how == 2:
        return array.reshape(-1)[:, None] if array.ndim else np.array([array] * 2)
    if how == 3 and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(rng.choice(["<f8", "<i8", "<f4", "<u1", "|b1", ">i4"]))
    changed = array.copy().reshape(-1)
    if changed.size and changed.dtype.kind in "iuf":
        number = rng.choice([one for one in NUMBERS if isinstance(one, int) or changed.dtype.kind == "f"])
        with np.errstate(all="ignore"):
            changed[rng.randrange(changed.size)] = (
                np.array([number], object).astype(np.float64).astype(changed.dtype)[0]
            )
    return changed.reshape(array.shape)


def zipped(parts: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how, compresslevel=1) as archive:
        names: set[str] = set()
        for name, part in parts:
            info = zipfile.ZipInfo(name)
            info.compress_type = how
            archive.writestr(info, part) if name not in names else archive.writestr(_twice(info), part)
            names.add(name)
    return buffer.getvalue()


def _twice(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    import warnings

    warnings.filterwarnings("ignore", "Duplicate name")
    return info


@cache
def zlib_bomb() -> bytes:
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(2**24)) for _ in range(BOMB // 2**24)) + packer.flush()


def gzip_bomb(head: bytes = b"") -> bytes:
    """Members of a gzip file, one after another: the head, then spaces without end."""
    return gzip.compress(head, 1) + gzip.compress(b" " * 2**24, 1) * (BOMB // 2**24)


def sqlite(path: Path, table: str, rng: Random) -> None:
    """One cell of a table made hostile, the table made a view, or a column missing."""
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    column, how = rng.choice(columns), rng.randrange(8)
    with connection:
        (old,) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        if how == 0:
            connection.execute(f"DROP TABLE {table}")
            endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            cells = ", ".join(f"zeroblob(1000) AS {name}" for name in columns)
            connection.execute(f"CREATE VIEW {table} AS {endless} SELECT {cells} FROM n")
        elif how == 1 and column != "key":
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        else:
            new: Any = rng.choice(
                [zlib_bomb(), zlib.compress(rng.randbytes(50)), b"", "text", 7, 1e300, rng.randbytes(99)]
            )
            if isinstance(old, bytes) and how > 4:
                new = any_bytes(old, rng)
            if isinstance(old, str) and how > 2:
                new = json_bytes(old.encode(), rng).decode() if old[:1] == "{" else rng.choice(WORDS)
            connection.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (new,))
    connection.close()
