"""Labels: exact, cold solves of many instances, each kept on disk as soon as it is known, so that none is paid twice."""

from __future__ import annotations

import contextlib
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
import torch
from torch import Tensor

from dflearn.data import DecisionDataset
from dflearn.errors import DataError, SolverError
from dflearn.program import Instance
from dflearn.solvers.base import Solution, Solver, Status, check_costs, check_instance

CHUNK = 32  # solves between two writes: what an interruption can cost at most
PROGRESS_DELAY = 2.0  # seconds before a progress bar appears

# A proof or a decision is worth keeping; "nothing found in time" and a numerical failure say nothing about tomorrow.
KEPT = (Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE, Status.UNBOUNDED)


def label(
    dataset: DecisionDataset,
    solver: Solver,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
    workers: int = 1,
    accept: Sequence[Status] = (Status.OPTIMAL,),
) -> DecisionDataset:
    """The data set with decisions w*(y) of its costs, computed by `solver` (replacing any it had).

    Args:
        cache: a folder that remembers solves (see `default_cache`), or `None` to remember nothing.
        workers: how many instances are solved side by side.
        accept: the statuses that make a label; add `Status.FEASIBLE` to take decisions that hit a limit.
    """
    if dataset.costs is None:
        raise DataError("these data hold no costs, so there is nothing to compute decisions from")
    with contextlib.ExitStack() as stack:
        if workers > 1:
            from dflearn.solvers.wrappers import Parallel

            solver = stack.enter_context(Parallel(solver, workers))
        chunk = CHUNK * workers
        solution = solve_cached(solver, dataset.costs, dataset.instance, cache=cache, progress=progress, chunk=chunk)
    check_statuses(solution, dataset.ids, accept)
    return dataset.with_decisions(solution.decision)


def solve_cached(
    solver: Solver,
    y: Tensor,
    instance: Instance | None = None,
    *,
    cache: str | Path | None = None,
    progress: bool = True,
    chunk: int = CHUNK,
) -> Solution:
    """`solver.solve(y, instance)`, in chunks, where each instance that `cache` remembers is not solved again.

    Always cold. Equal instances are solved once. Every finished chunk is stored at once, so an interruption loses
    at most the chunks under way. y `(*batch, p)`; instance fields `(*batch, k)`.
    """
    begun = time.perf_counter()
    batch = check_costs(y, solver.objective)
    if solver.get_state():
        raise SolverError(f"the answers of {solver!r} depend on what it solved before; labels need an exact solver")
    check_instance(instance, batch)
    costs = y.detach().cpu().reshape(-1, solver.objective.p)
    if instance is not None:
        instance = instance.map(lambda value: value.detach().cpu().reshape(-1, value.shape[-1]))
    answers = _Answers(costs.shape[0], solver.objective.n, y.dtype)

    with contextlib.ExitStack() as stack:
        store = None if cache is None else stack.enter_context(_Store(Path(cache), solver))
        keys = range(len(costs)) if store is None else _keys(solver, costs, instance, chunk)
        rows: dict[Hashable, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        missing = []
        for key, places in rows.items():
            record = None if store is None else store.get(key)
            if record is None:
                missing.append(key)
            else:
                answers.put(places, record)
        bar = stack.enter_context(progress_bar(len(missing), "solving", progress))
        parts = [missing[first : first + chunk] for first in range(0, len(missing), chunk)]
        firsts = ([rows[key][0] for key in part] for part in parts)
        batches = ((costs[index].double(), None if instance is None else instance[index]) for index in firsts)
        for number, solution in solver.solve_each(batches):
            part = parts[number]
            answers.take([rows[key] for key in part], solution)
            if store is not None:
                records = zip(part, _records(solution), strict=True)
                store.put((key, record) for key, record in records if record.status in KEPT)
            bar.update(len(part))
    return answers.solution(y, batch, time.perf_counter() - begun)


def check_statuses(solution: Solution, ids: Tensor, accept: Sequence[Status] = (Status.OPTIMAL,)) -> None:
    """Nothing where every status is among `accept`; otherwise an error that names instances, statuses and remedies."""
    wanted = torch.tensor([int(status) for status in accept], dtype=solution.status.dtype)
    bad = ~torch.isin(solution.status, wanted)
    if not bool(bad.any()):
        return
    lines = [f"{int(bad.sum())} of {bad.numel()} instances have no acceptable decision."]
    for code in torch.unique(solution.status[bad]).tolist():
        status = Status(code)
        which = ids[solution.status == code].tolist()
        shown = ", ".join(map(str, which[:8])) + (", …" if len(which) > 8 else "")
        lines.append(f"{status.name}: ids {shown} ({len(which)}): {status.message}.")
        if status is Status.FEASIBLE:
            lines.append("To use these decisions as they are, pass accept=(Status.OPTIMAL, Status.FEASIBLE).")
    raise SolverError(" ".join(lines))


def default_cache() -> Path:
    """Where solves are remembered by default: the folder in the environment variable DFLEARN_CACHE, or ~/.cache/dflearn."""
    named = os.environ.get("DFLEARN_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "dflearn"


def progress_bar(total: int, what: str, show: bool = True):  # type: ignore[no-untyped-def]  # tqdm has no types
    """A bar on a terminal, once the work has taken `PROGRESS_DELAY` seconds; silent otherwise."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, delay=PROGRESS_DELAY, disable=None if show else True, leave=False)


# -- one answer, and all of them ------------------------------------------------------------------------------------


_HEADER = struct.Struct("<bdd")  # status, objective, bound; the decision follows as float64


class _Record(NamedTuple):
    """The answer to one instance; decision float64 `(n,)`."""

    status: int
    objective: float
    bound: float
    decision: np.ndarray

    def pack(self) -> bytes:
        """Compressed, because vertices are mostly zeros and ones; zlib's checksum tells damage later."""
        return zlib.compress(_HEADER.pack(self.status, self.objective, self.bound) + self.decision.tobytes(), 1)

    @classmethod
    def unpack(cls, packed: bytes, n: int) -> _Record | None:
        """The record, or `None` where the bytes are not what `pack` wrote."""
        try:
            content = zlib.decompress(packed)
        except zlib.error:
            return None
        if len(content) != _HEADER.size + 8 * n:
            return None
        status, objective, bound = _HEADER.unpack_from(content)
        return cls(status, objective, bound, np.frombuffer(content, np.float64, n, _HEADER.size))


def _records(solution: Solution) -> list[_Record]:
    columns = (solution.status.tolist(), solution.objective.tolist(), solution.bound.tolist())
    rows = zip(*columns, solution.decision.numpy(), strict=True)
    return [_Record(status, objective, bound, decision) for status, objective, bound, decision in rows]


class _Answers:
    """The answers to all instances, filled in as they come."""

    def __init__(self, count: int, n: int, dtype: torch.dtype) -> None:
        self.decision = torch.full((count, n), torch.nan, dtype=dtype)
        self.status = torch.full((count,), int(Status.FAILED), dtype=torch.int8)
        self.objective = torch.full((count,), torch.nan, dtype=torch.float64)
        self.bound = torch.full((count,), -torch.inf, dtype=torch.float64)

    def put(self, rows: list[int], record: _Record) -> None:
        self.status[rows], self.objective[rows], self.bound[rows] = record.status, record.objective, record.bound
        self.decision[rows] = torch.tensor(record.decision, dtype=self.decision.dtype)

    def take(self, places: list[list[int]], solution: Solution) -> None:
        """The answers of a solve, all at once: its instance i goes to the rows `places[i]`."""
        rows = torch.tensor([row for own in places for row in own])
        origin = torch.tensor([i for i, own in enumerate(places) for _ in own])
        for name in ("decision", "status", "objective", "bound"):
            held = getattr(self, name)
            held[rows] = getattr(solution, name)[origin].to(held.dtype)

    def solution(self, y: Tensor, batch: torch.Size, seconds: float) -> Solution:
        return Solution(
            decision=self.decision.to(y.device).reshape(*batch, self.decision.shape[-1]),
            status=self.status.reshape(batch),
            objective=self.objective.reshape(batch),
            bound=self.bound.reshape(batch),
            seconds=seconds,
        )


# -- the store ------------------------------------------------------------------------------------------------------


def _solver_key(solver: Solver) -> bytes:
    """A hash of what is solved and by what: everything but the instance that may change an answer."""
    program = "no program" if solver.program is None else solver.program.fingerprint
    return hashlib.sha256(f"solutions-1 {program} {solver.identity} {solver.objective.n}".encode()).digest()


def _keys(solver: Solver, costs: Tensor, instance: Instance | None, chunk: int) -> Iterator[bytes]:
    """One hash per instance of what the solver sees: the vector c = S y + d, right-hand sides and bounds."""
    prefix = _solver_key(solver)
    for rows in torch.arange(len(costs)).split(chunk):
        part = None if instance is None else instance[rows]
        c = solver.objective.vector(costs[rows].double(), part).numpy()
        sides = {} if part is None else {k: v.double().numpy() for k, v in part.present().items() if k != "d"}
        for i in range(len(rows)):
            digest = hashlib.sha256(prefix + c[i].tobytes())
            for name, side in sides.items():
                digest.update(name.encode() + side[i].tobytes())
            yield digest.digest()


class _DamagedError(Exception):
    """This file is no longer a database."""


class _Store:
    """One SQLite file per program and solver: instance key → packed record. Every `put` is one transaction."""

    def __init__(self, folder: Path, solver: Solver) -> None:
        self.path = folder / "solutions" / f"{_solver_key(solver).hex()[:24]}.sqlite"
        self.n = solver.objective.n

    def __enter__(self) -> _Store:
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
            raise DataError(
                f"the cache file {self.path} cannot be used: {error}; name another folder, or None for no cache"
            ) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=60)
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

    def get(self, key: Hashable) -> _Record | None:
        row = self.connection.execute("SELECT packed FROM solutions WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        record = _Record.unpack(row[0], self.n)
        if record is None:
            warnings.warn(
                f"an entry of the cache file {self.path} is damaged: it is solved again", RuntimeWarning, stacklevel=3
            )
        return record

    def put(self, records: Iterable[tuple[Hashable, _Record]]) -> None:
        with self.connection:
            self.connection.executemany(
                "INSERT OR REPLACE INTO solutions VALUES (?, ?)", ((key, record.pack()) for key, record in records)
            )
