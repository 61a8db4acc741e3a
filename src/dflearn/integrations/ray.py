"""Ray: the runs of a study, and exact solves of labels and evaluation, on many machines.

Every node needs the same dflearn. Only the driver writes the store of a study and the cache of solves.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dflearn._version import __version__
from dflearn.data.labels import CHUNK
from dflearn.errors import DataError, MissingExtraError, SolverError
from dflearn.program import Instance
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solution, Solver
from dflearn.solvers.wrappers import Wrapper
from dflearn.studies.config import RESULTS_VERSION, RunConfig
from dflearn.studies.executors import ONE_THREAD, Executor, Outcome, available_cores, carry_out
from dflearn.studies.modules import install, sources

try:
    import ray
    from ray.exceptions import RayError
except ImportError as error:
    raise MissingExtraError("a Ray cluster needs the package ray: pip install 'dflearn[ray]'") from error

GIGABYTE = 2**30
RETRIES = 2  # how often solves are repeated if their worker or node was lost
LOOPBACK = "127.0.0.1"
PATIENCE = 10.0  # seconds until a cluster must answer


def connect(address: str | None = None) -> bool:
    """Connect this process to the cluster at `address`, unless it is connected to one; `True` for a new connection.

    Args:
        address: `host:port`, `ray://host:port`, or `auto` for the cluster of `ray start` on this machine. Default: a cluster of
            this machine alone, which starts here and ends with this process.
    """
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # the user has not agreed to send any
        ray.init("local", num_cpus=available_cores(), include_dashboard=False, _node_ip_address=LOOPBACK, **quiet)
        return True
    try:
        if place := re.fullmatch(r"(?:ray://)?(.+):(\d+)", address):  # Ray itself would wait for minutes
            socket.create_connection((place[1], int(place[2])), timeout=PATIENCE).close()
        ray.init(address, **quiet)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"no Ray cluster answers at {address} ({reason}): start one with `ray start --head`, or leave the address "
            "out for one on this machine"
        ) from error
    return True


def _cores() -> int:
    """The present number of cores of the cluster: nodes come and go."""
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


# -- runs of a study ------------------------------------------------------------------------------------------------


class RayExecutor(Executor):
    """Runs as tasks of a Ray cluster, one core and one thread each.

    If a worker or node is lost, the driver tries its run again. Modules from the study's folder are sent with the runs; those of
    packages must be installed on every node.

    Args:
        address: as of `connect`.
        cache: a folder on each node for its exact solves, not shared over a network, since SQLite cannot lock such a folder.
        memory: bytes that a run needs; Ray starts only as many runs on a node as fit.
    """

    def __init__(self, address: str | None = None, cache: str | Path | None = None, memory: float = 2 * GIGABYTE):
        self._ours = connect(address)
        self.cache, self.slots = cache, _cores()
        self._task = ray.remote(num_cpus=1, memory=int(memory), max_retries=0)(_carry_out)
        self._running: dict[ray.ObjectRef, RunConfig] = {}
        self._texts: dict[tuple[str, ...], ray.ObjectRef] = {}

    def submit(self, config: RunConfig) -> None:
        if config.imports not in self._texts:
            self._texts[config.imports] = ray.put(sources(config.imports))
        task = self._task.remote(config, self.cache, (__version__, RESULTS_VERSION), self._texts[config.imports])
        self._running[task] = config

    def next(self, timeout: float | None = None) -> Outcome | None:
        self.slots = _cores()
        ready, _ = ray.wait(list(self._running), timeout=timeout)
        if not ready:
            return None
        config = self._running.pop(ready[0])
        try:
            return ray.get(ready[0])
        except RayError as error:
            return Outcome(config, error=_in_words(error), lost=True)

    def close(self) -> None:
        for reference in self._running:
            ray.cancel(reference, force=True)
        self._running.clear()
        if self._ours:
            ray.shutdown()


def _carry_out(
    config: RunConfig, cache: str | Path | None, versions: tuple[str, int], texts: Mapping[str, str]
) -> Outcome:
    """One run, on a worker. texts: of the user's modules, which the node may not have."""
    os.environ.update(ONE_THREAD)  # before numba is imported
    node = f"{platform.node()} {ray.get_runtime_context().get_node_id()[:8]}"
    if versions != (__version__, RESULTS_VERSION):
        ours, theirs = f"{__version__} (results version {RESULTS_VERSION})", "{} (results version {})".format(*versions)
        error = f"node {node} has dflearn {ours}, the driver {theirs}: install one version on all nodes"
        return Outcome(config, error=error)
    install(texts)
    record = (outcome := carry_out(config, cache)).record
    return outcome if record is None else Outcome(config, replace(record, machine={**record.machine, "node": node}))


def _in_words(error: RayError) -> str:
    """The kind and first line of Ray's message about a lost task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"lost on the cluster ({type(error).__name__}): {lines[0] if lines else 'no reason was given'}"


# -- exact solves ---------------------------------------------------------------------------------------------------


class OnRay(Wrapper):
    """The answers of `solver`, computed by the workers of a Ray cluster: for `label`, `evaluate` and large batches.

    The cluster has at most twice as many batches as cores at a time. If a worker or node is lost, its batch is solved again, at
    most twice.

    Args:
        solver: an exact solver that can be pickled; each worker keeps a copy.
        address: as of `connect`.
        memory: bytes that a worker needs.
    """

    def __init__(self, solver: Solver, address: str | None = None, memory: float = GIGABYTE) -> None:
        super().__init__(solver)
        connect(address)
        self._task = ray.remote(num_cpus=1, memory=int(memory), max_retries=RETRIES)(_solve_there)
        self._solver = ray.put(solver)

    def __repr__(self) -> str:
        return f"OnRay({self.solver!r})"

    @property
    def identity(self) -> str:
        return self.solver.identity

    def get_state(self) -> dict[str, Any]:
        return self.solver.get_state()

    def solve_each(self, batches: Iterable[tuple[Tensor, Instance | None]]) -> Iterator[tuple[int, Solution]]:
        yield from self._spread("solve", batches)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        if not len(c):
            return self.solver._solve(c, sides, start)
        rows = [slice(first, first + CHUNK) for first in range(0, len(c), CHUNK)]
        answers = dict(self._spread("_solve", (self._part(part, c, sides, start) for part in rows)))
        return Raw.join([answers[place] for place in range(len(rows))])

    def _spread(self, method: str, arguments: Iterable[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """The number of a call and its answer, as they come."""
        waiting, running = enumerate(arguments), dict[ray.ObjectRef, int]()
        key = self._solver.hex()
        try:
            while True:
                while len(running) < 2 * _cores() and (call := next(waiting, None)) is not None:
                    running[self._task.remote(key, [self._solver], method, call[1])] = call[0]
                if not running:
                    return
                (ready,), _ = ray.wait(list(running))
                place = running.pop(ready)
                yield place, _answer(ready, place)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


_kept: tuple[str, Solver] | None = None  # in a worker: its last solver, with the prepared data


def _solve_there(key: str, holder: list[ray.ObjectRef], method: str, arguments: tuple[Any, ...]) -> Any:
    global _kept
    os.environ.update(ONE_THREAD)
    if _kept is None or _kept[0] != key:
        _kept = key, ray.get(holder[0])
    return getattr(_kept[1], method)(*arguments)


def _answer(reference: ray.ObjectRef, place: int) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # what the solver raised
    except RayError as error:
        raise SolverError(f"batch {place} was tried {RETRIES + 1} times and {_in_words(error)}") from error
