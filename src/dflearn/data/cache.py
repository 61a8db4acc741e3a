"""The cache of exact solves: one SQLite file per program and solver, each answer kept as soon as it is known."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import time
import warnings
import zlib
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import platformdirs
import torch
from torch import Tensor

from dflearn.files import transaction
from dflearn.program import Instance
from dflearn.solvers.base import Solution, Solver, Status

# A proof or a decision is worth keeping; "nothing found in time" and a numerical failure say nothing about tomorrow.
KEPT = (Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.UNBOUNDED)


def default_cache() -> Path:
    """Where solves are remembered by default: the folder in the environment variable DFLEARN_CACHE, or the user's own."""
    named = os.environ.get("DFLEARN_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("dflearn", appauthor=False)


_HEADER = struct.Struct("<bdd")  # status, objective, bound; the decision follows as float64


class CachedSolve(NamedTuple):
    """The answer to one instance; decision float64 `(n,)`."""

    status: int
    objective: float
    bound: float
    decision: np.ndarray

    def pack(self) -> bytes:
        """Compressed, because vertices are mostly zeros and ones; zlib's checksum tells damage later."""
        return zlib.compress(_HEADER.pack(self.status, self.objective, self.bound) + self.decision.tobytes(), 1)

    @classmethod
    def unpack(cls, packed: bytes, n: int) -> CachedSolve | None:
        """The record, or `None` where the bytes are not what `pack` wrote."""
        try:
            content = zlib.decompress(packed)
        except zlib.error:
            return None
        if len(content) != _HEADER.size + 8 * n:
            return None
        status, objective, bound = _HEADER.unpack_from(content)
        return cls(status, objective, bound, np.frombuffer(content, np.float64, n, _HEADER.size))


def solves_of(solution: Solution) -> list[CachedSolve]:
    columns = (solution.status.tolist(), solution.objective.tolist(), solution.bound.tolist())
    rows = zip(*columns, solution.decision.numpy(), strict=True)
    return [CachedSolve(status, objective, bound, decision) for status, objective, bound, decision in rows]


def _solver_key(solver: Solver) -> bytes:
    """A hash of what is solved and by what: everything but the instance that may change an answer."""
    program = "no program" if solver.program is None else solver.program.fingerprint
    return hashlib.sha256(f"solutions-1 {program} {solver.identity} {solver.objective.n}".encode()).digest()


def keys_of(solver: Solver, costs: Tensor, instance: Instance | None, chunk: int) -> Iterator[bytes]:
    """One hash per instance of what the solver sees: the vector c = S y + d, right-hand sides and bounds."""
    prefix = _solver_key(solver)
    for rows in torch.arange(len(costs)).split(chunk):
        part = None if instance is None else instance[rows]
        if solver.program is not None:
            part = solver.program.realize(costs[rows], part)
        c = solver.objective.vector(costs[rows].double(), part).numpy()
        sides = {} if part is None else {k: v.double().numpy() for k, v in part.present().items() if k != "d"}
        for i in range(len(rows)):
            digest = hashlib.sha256(prefix + c[i].tobytes())
            for name, side in sides.items():
                digest.update(name.encode() + side[i].tobytes())
            yield digest.digest()


class _DamagedError(Exception):
    """This file is no longer a database."""


class Cache:
    """One SQLite file per program and solver: instance key → packed record. Every `put` is one transaction."""

    def __init__(self, folder: Path, solver: Solver) -> None:
        self.path = folder / "solutions" / f"{_solver_key(solver).hex()[:24]}.sqlite"
        self.n, self.kept = solver.objective.n, True

    def __enter__(self) -> Cache:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.connection = self._open()
            except _DamagedError as damage:
                aside = self.path.with_suffix(f".damaged-{time.time_ns()}")
                os.replace(self.path, aside)
                warnings.warn(
                    f"the cache file {self.path} is damaged ({damage}): it was moved to {aside.name}, and what it held "
                    "is solved again",
                    RuntimeWarning,
                    stacklevel=4,
                )
                self.connection = self._open()
        except (OSError, sqlite3.OperationalError) as error:
            self._go_without(error)
            self.connection = self._open(":memory:")
        return self

    def _go_without(self, error: Exception) -> None:
        """A cache that cannot be written saves no time, and costs no answer."""
        self.kept = False
        warnings.warn(
            f"the cache file {self.path} cannot be used ({error}): answers are not kept. Name another folder, by cache= or by the "
            "environment variable DFLEARN_CACHE, or None for no cache",
            RuntimeWarning,
            stacklevel=4,
        )

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def _open(self, place: str | Path | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path if place is None else place, timeout=60)
        try:
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS solutions (key BLOB PRIMARY KEY, packed BLOB NOT NULL)")
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _DamagedError(verdict.splitlines()[-1])
        except BaseException as error:
            connection.close()
            if getattr(error, "sqlite_errorname", None) in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                raise _DamagedError(error) from error
            raise
        return connection

    def get(self, key: Hashable) -> CachedSolve | None:
        row = self.connection.execute("SELECT packed FROM solutions WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        record = CachedSolve.unpack(row[0], self.n)
        if record is None:
            warnings.warn(
                f"an entry of the cache file {self.path} is damaged: it is solved again", RuntimeWarning, stacklevel=3
            )
        return record

    def put(self, records: Iterable[tuple[Hashable, CachedSolve]]) -> None:
        if not self.kept:
            return
        try:
            with transaction(self.connection, self.path):
                self.connection.executemany(
                    "INSERT OR REPLACE INTO solutions VALUES (?, ?)", ((key, record.pack()) for key, record in records)
                )
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_READONLY"):
                raise
            self._go_without(error)
