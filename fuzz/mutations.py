"""Hostile changes of files: of their structure, beside their bytes. Each takes a `random.Random`, so that a seed gives it again."""

import gzip
import io
import json
import lzma
import sqlite3
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np

BOMB = 320 * 2**20  # bytes that a bomb unpacks to
NUMBERS = (0, -1, 7, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 10**8, 10**12, 1e308, -1e-320, float("nan"), float("inf"))
TEXTS = ("", "text", "a" * 10_000, "\ud800")
VALUES = (*NUMBERS, None, True, *TEXTS, [], {}, [[[]]], [1, 2, 3], {"a": {"b": None}}, 10**400)
WORDS = ("nan", "1e999", "-1", "inf", "\x00", "99999999999999999999", '"', ",", "\ufeff", "1e-400")
WORDS += ("x" * 100_000, "[" * 5000, "-" * 3000)
FUNNY = ("<f8", ">f8", "<f4", "<i8", "<i4", "<u1", "|b1", "<c16", "<U3", "|O", "<M8[s]", "|V8", "<f2")


SHAPES = ((2**40,), (-1,), (2**62, 0), (0, 2**62), (), (2**31, 2**33), (1,) * 40, (-1, -8))


def changed(content: bytes, rng: Random) -> bytes:
    """The content with one change of what it is made of: an archive in one of its parts, a table in a cell, and so on."""
    if rng.random() < 0.2:
        return any_bytes(content, rng)
    change = next((change for begin, change in FORMATS.items() if content.startswith(begin)), None)
    if change is None:
        change = tensors if content[8:9] == b"{" else any_bytes if b"\0" in content else text
    return change(content, rng)


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
    """Lines dropped, repeated or swapped; words replaced; or compressed, where nobody expects it."""
    if rng.random() < 0.1:
        return rng.choice([gzip_bomb, gzip.compress])(content)
    lines = content.decode(errors="surrogateescape").split("\n")
    for _ in range(rng.randint(1, 3)):
        i, j, how = rng.randrange(len(lines)), rng.randrange(len(lines)), rng.randrange(5)
        if how == 0:
            del lines[i : i + rng.randint(1, 3)]
            lines = lines or [""]
        elif how == 1:
            lines.insert(j, lines[i])
        elif how == 2:
            lines[i], lines[j] = lines[j], lines[i]
        else:
            words = lines[i].split(" ,"[how - 3])
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            lines[i] = " ,"[how - 3].join(words)
    return "\n".join(lines).encode(errors="surrogateescape")


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


def json_lines(content: bytes, rng: Random) -> bytes:
    """One of the lines, each a value in JSON, changed in its structure, or as text."""
    lines = content.splitlines()
    k = rng.randrange(len(lines))
    if rng.random() < 0.1:
        lines[k] = b"[" * 100_000
    elif rng.random() < 0.3:
        return text(content, rng)
    else:
        lines[k] = json.dumps(tree(json.loads(lines[k]), rng)).encode()
    return b"\n".join(lines)


def tensors(content: bytes, rng: Random) -> bytes:
    """A file of safetensors: the length of its head, or what the head says."""
    size = int.from_bytes(content[:8], "little")
    head = json_lines(content[8 : 8 + size], rng) if rng.random() < 0.7 else content[8 : 8 + size]
    return rng.choice([len(head), 2**62, 0, len(head) + 7]).to_bytes(8, "little") + head + content[8 + size :]


def array(content: bytes, rng: Random) -> bytes:
    """An .npy file whose header lies about shape or dtype, or whose array is hostile."""
    held, how = np.load(io.BytesIO(content), allow_pickle=False), rng.randrange(4)
    if how == 0:
        return npy(held, rng.choice(SHAPES))
    return npy(held, None, rng.choice(FUNNY)) if how == 1 else npy(hostile(held, rng))


def npy(array: np.ndarray, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> bytes:
    """The bytes of an .npy file, with a header that may say something else."""
    shape, buffer = array.shape if shape is None else shape, io.BytesIO()
    header = {"descr": dtype or array.dtype.str, "fortran_order": False, "shape": shape}
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
            extreme = np.array([number], object).astype(np.float64).astype(changed.dtype)[0]
            changed[rng.randrange(changed.size)] = extreme
    return changed.reshape(array.shape)


def archive(content: bytes, rng: Random) -> bytes:
    """One part of a zip file changed, missing, there twice, another archive, or a bomb."""
    parts = unzipped(content)
    name, how = rng.choice(list(parts)), rng.randrange(8)
    others = [(other, part) for other, part in parts.items() if other != name]
    if how == 0:
        return zipped(others)
    if how == 1:
        return zipped([*parts.items(), (name, changed(parts[name], rng))])
    if how == 2:
        return zipped([*others, (name, content)])
    if how == 3:
        head = npy(np.zeros(0), (BOMB // 8,)) if name.endswith(".npy") else parts[name]
        return zipped([*others, (name, head + bytes(BOMB))], zipfile.ZIP_DEFLATED)
    return zipped([*others, (name, changed(parts[name], rng))])


def unzipped(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as held:
        return {name: held.read(name) for name in held.namelist()}


def zipped(parts: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how, compresslevel=1) as held, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Duplicate name")
        for name, part in parts:
            held.writestr(zipfile.ZipInfo(name), part, how)
    return buffer.getvalue()


def packed(content: bytes, rng: Random) -> bytes:
    """A compressed file that holds something hostile, or itself, or no end of zeros."""
    module: ModuleType = gzip if content[:2] == GZIP else lzma
    inside = module.decompress(content)
    if rng.random() < 0.2:
        bomb = gzip_bomb(inside) if module is gzip else lzma.compress(bytes(BOMB), preset=0)
        return rng.choice([bomb, module.compress(content), inside])
    return module.compress(changed(inside, rng))


@cache
def zlib_bomb() -> bytes:
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(2**24)) for _ in range(BOMB // 2**24)) + packer.flush()


def gzip_bomb(head: bytes = b"") -> bytes:
    """Members of a gzip file, one after another: the head, then spaces without end."""
    return gzip.compress(head, 1) + gzip.compress(b" " * 2**24, 1) * (BOMB // 2**24)


def sqlite(content: bytes, rng: Random) -> bytes:
    """One cell of a table made hostile, the table made a view, or a column missing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.sqlite")
        path.write_bytes(content)
        connection = sqlite3.connect(path)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = rng.choice([name for name in tables if connection.execute(f"SELECT * FROM {name}").fetchone()])
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
                noise = zlib.compress(rng.randbytes(50))
                new: Any = rng.choice([zlib_bomb(), noise, b"", "text", 7, 1e300, rng.randbytes(99)])
                if isinstance(old, bytes) and how > 4:
                    new = any_bytes(old, rng)
                if isinstance(old, str) and how > 2:
                    new = json_lines(old.encode(), rng).decode() if old[:1] == "{" else rng.choice(WORDS)
                connection.execute(f"UPDATE OR REPLACE {table} SET {column} = ?", (new,))
        connection.close()
        return path.read_bytes()


GZIP = b"\x1f\x8b"
FORMATS: dict[bytes, Callable[[bytes, Random], bytes]] = {
    b"PK": archive, b"\x93NUMPY": array, b"{": json_lines, b"SQLite format 3": sqlite, GZIP: packed, b"\xfd7zXZ": packed,
}  # fmt: skip
