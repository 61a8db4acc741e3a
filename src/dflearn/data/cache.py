"""The cache of exact solves: one SQLite file per program and solver, each answer kept as soon as it is known."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import time
import warnings
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import platformdirs
import torch
from torch import Tensor

from dflearn.engine.certify import OPTIMAL, Certifier
from dflearn.files import transaction
from dflearn.program import Instance
from dflearn.reading import UNREADABLE, unpack
from dflearn.solvers.base import Solution, Solver, Status

KEPT = (Status.OPTIMAL, Status.FEASIBLE)  # a decision can be checked later; that there is none cannot
BOUND = 1e-9  # by how much a decision may miss a bound of zero
LONGEST = 2**27  # bytes of an entry that SQLite hands out


def default_cache() -> Path:
    """Where solves are remembered by default: the folder in the environment variable DFLEARN_CACHE, or the user's own."""
    named = os.environ.get("DFLEARN_CACHE")
    return Path(named) if named else platformdirs.user_cache_path("dflearn", appauthor=False)


TABLE = "CREATE TABLE solutions (key BLOB PRIMARY KEY, packed BLOB NOT NULL)"
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
            content = unpack(packed, "zlib", _HEADER.size + 8 * n)
        except UNREADABLE:
            content = b""
        if len(content) != _HEADER.size + 8 * n:
            return None
        status, objective, bound = _HEADER.unpack_from(content)
        return cls(status, objective, bound, np.frombuffer(content, np.float64, n, _HEADER.size))


def solves_of(solution: Solution) -> list[CachedSolve]:
    columns = (
        solution.status.tolist(),
        solution.objective.tolist(),
        solution.bound.tolist(),
        solution.decision.numpy(),
    )
    return [CachedSolve(*row) for row in zip(*columns, strict=True)]


def believable(solver: Solver, y: Tensor, instance: Instance | None, solves: Sequence[CachedSolve]) -> np.ndarray:
    """Which answers to these instances may be kept, and believed when they are read again: bool `(count,)`.

    Checked: bounds, rows (by the rule of `dflearn.engine.certify`), integrality, the objective, and its distance to the bound where it
    is OPTIMAL. The bound itself is not: its proof needs prices. Without a program only the objective is checked.
    """
    status, objective, bound, w = (np.stack(column) for column in zip(*solves, strict=True))
    good = np.isfinite(w).all(1) & np.isfinite(objective) & ~np.isnan(bound) & np.isin(status, KEPT)
    w = np.where(good[:, None], w, 0.0)
    program = solver.program
    instance = instance if program is None else program.realize(y, instance)
    decided = torch.as_tensor(w)
    with np.errstate(over="ignore", invalid="ignore"):
        true = solver.objective.true_cost(y, decided, instance).numpy()
        linear = (solver.objective.vector(y, instance) * decided).numpy()
        terms = OPTIMAL * (np.abs(linear).sum(1) + np.abs(true - linear.sum(1)) + np.abs(true))
        good &= np.abs(objective - true) <= terms
        if program is None:
            return good
        gap = getattr(getattr(solver, "solver", solver), "gap", 0.0) * np.abs(objective)
        good &= (objective - bound >= -terms) & ((objective - bound <= terms + gap) | (status != Status.OPTIMAL))
        sides = program.sides(instance, len(w))
        for side, sign in ((sides.lower, 1.0), (sides.upper, -1.0)):
            size = np.where(np.isfinite(side), np.abs(side), 0.0)
            good &= (sign * (side - w) <= OPTIMAL * size + BOUND).all(1)
        good &= (np.abs(w - np.round(w))[:, program.integer] <= OPTIMAL).all(1)
        good &= Certifier(program).violation(w, sides) <= OPTIMAL
    return good


def _solver_key(solver: Solver) -> bytes:
    """A hash of what is solved and by what: everything but the instance that may change an answer."""
    program = "no program" if solver.program is None else solver.program.fingerprint
    return hashlib.sha256(f"solutions-1 {program} {solver.identity} {solver.objective.n}".encode()).digest()


def keys_of(solver: Solver, costs: Tensor, instance: Instance | None, chunk: int) -> Iterator[bytes]:
    """One hash per instance of c = S y + d, right-hand sides and bounds."""
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
                self._warn(
                    f"{self} is damaged ({damage}): it was moved to {aside.name}, and what it held is solved again"
                )
                self.connection = self._open()
        except (OSError, sqlite3.OperationalError) as error:
            self._go_without(error)
            self.connection = self._open(":memory:")
        return self

    def _go_without(self, error: Exception) -> None:
        self.kept = False
        remedy = "Name another folder, by cache= or by the environment variable DFLEARN_CACHE, or None for no cache"
        self._warn(f"{self} cannot be used ({error}): answers are not kept. {remedy}")

    def _warn(self, what: str) -> None:
        warnings.warn(what, RuntimeWarning, stacklevel=5)

    def __str__(self) -> str:
        return f"the cache file {self.path}"

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def _open(self, place: str | Path | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path if place is None else place, timeout=60)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            with connection:
                connection.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            schema = connection.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            if schema != [("table", TABLE)]:  # a view, say, that never ends
                raise _DamagedError("it holds other tables than those of a cache")
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
        try:
            row = self.connection.execute("SELECT packed FROM solutions WHERE key = ?", (key,)).fetchone()
        except sqlite3.DataError:  # longer than is handed out
            row = (b"",)
        if row is None:
            return None
        record = CachedSolve.unpack(row[0], self.n)
        if record is None:
            self._warn(f"an entry of {self} is damaged: it is solved again")
        return record

    def disbelieve(self, count: int) -> None:
        why = "are no answers to their instances (infeasible, or with another objective): they are solved again"
        self._warn(f"{count} entries of {self} {why}")

    def put(self, records: Iterable[tuple[Hashable, CachedSolve]]) -> None:
        if not self.kept:
            return
        try:
            with transaction(self.connection, self.path):
                rows = ((key, record.pack()) for key, record in records)
                self.connection.executemany("INSERT OR REPLACE INTO solutions VALUES (?, ?)", rows)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_READONLY"):
                raise
            self._go_without(error)
