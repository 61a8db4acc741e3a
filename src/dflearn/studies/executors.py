"""Executors carry out runs: in this process, or in local processes. Only the driver writes the store.

An executor takes a resolved config and gives back a record or an error. `dflearn.integrations.ray.RayExecutor` uses a cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tqdm import tqdm

from dflearn.errors import DflearnError, OptionError
from dflearn.studies.config import RunConfig
from dflearn.studies.record import Record

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
PATIENCE = 5.0  # seconds until a worker that should end is killed


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with a `record` or an `error`. lost: its process or machine failed, so another try may succeed."""

    config: RunConfig
    record: Record | None = None
    error: str | None = None
    lost: bool = False

    @property
    def reason(self) -> str:
        """The last line of the error, which says what happened."""
        return "" if self.error is None else self.error.splitlines()[-1]


class Executor(AbstractContextManager["Executor"], ABC):
    """Carries out runs. `with` closes it, and closing ends the runs in progress."""

    slots: int  # how many runs may be in progress at once; may change from call to call

    @abstractmethod
    def submit(self, config: RunConfig) -> None:
        """Start a run."""

    @abstractmethod
    def next(self, timeout: float | None = None) -> Outcome | None:
        """Wait until a submitted run ends; `None` after `timeout` seconds without one."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""

    def __exit__(self, *exception: object) -> None:
        self.close()


class InProcess(Executor):
    """Runs here, one after the other: for tests, debuggers and small studies."""

    slots = 1

    def __init__(self, cache: str | Path | None = None, raw: str | Path | None = None) -> None:
        self.cache, self.raw = cache, raw
        self._waiting: list[RunConfig] = []

    def submit(self, config: RunConfig) -> None:
        self._waiting.append(config)

    def next(self, timeout: float | None = None) -> Outcome | None:
        return carry_out(self._waiting.pop(0), self.cache, self.raw)

    def close(self) -> None:
        self._waiting.clear()


class LocalProcesses(Executor):
    """Runs in processes of this machine, one thread each, so that a timed run has a core to itself.

    A process serves many runs, since importing torch takes seconds. If a process dies (out of memory, for example), its run
    fails and a new process takes its place. All processes end with the driver, even if that is killed.
    """

    def __init__(self, slots: int, cache: str | Path | None = None, raw: str | Path | None = None) -> None:
        cores = available_cores()
        if not 1 <= slots <= cores:
            raise OptionError(f"each job needs a core, and there are {cores} cores: ask for 1 to {cores} jobs")
        self.slots, self.cache, self.raw = slots, cache, raw
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []

    def submit(self, config: RunConfig) -> None:
        worker = self._idle.pop() if self._idle else _Worker(self.cache, self.raw)
        worker.config = config
        worker.connection.send(config)
        self._busy.append(worker)

    def next(self, timeout: float | None = None) -> Outcome | None:
        ready = wait([worker.connection for worker in self._busy], timeout)
        if not ready:
            return None
        worker = next(worker for worker in self._busy if worker.connection in ready)
        self._busy.remove(worker)
        outcome = worker.outcome()
        if not outcome.lost:
            self._idle.append(worker)
        return outcome

    def close(self) -> None:
        for worker in self._busy:
            worker.process.terminate()
        for worker in self._idle + self._busy:
            worker.end()
        self._idle, self._busy = [], []


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def carry_out(config: RunConfig, cache: str | Path | None, raw: str | Path | None = None) -> Outcome:
    """One run. An error becomes text: one line for the errors of dflearn, a traceback for others."""
    from dflearn.studies.run import run

    try:
        return Outcome(config, run(config, cache, raw))
    except DflearnError as error:
        return Outcome(config, error=f"{type(error).__name__}: {error}")
    except Exception as error:
        return Outcome(config, error="".join(traceback.format_exception(error)).strip())


class _Worker:
    """The driver's end of one process, and the run that it has."""

    config: RunConfig

    def __init__(self, cache: str | Path | None, raw: str | Path | None) -> None:
        # Not a fork: it would copy the locks of torch's and numba's threads.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, cache, raw), daemon=True)
        before = dict(os.environ)
        os.environ.update(ONE_THREAD)
        try:
            self.process.start()
        finally:
            for name in ONE_THREAD:
                os.environ.pop(name)
            os.environ.update(before)
        theirs.close()

    def outcome(self) -> Outcome:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.end()
            code = self.process.exitcode or 0
            how = f"by signal {-code}" if code < 0 else f"with exit status {code}"
            error = f"the process of this run ended {how}; out of memory is the usual reason"
            return Outcome(self.config, error=error, lost=True)

    def end(self) -> None:
        self.connection.close()  # an idle worker then returns
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, cache: str | Path | None, raw: str | Path | None) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which then ends the workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # the default lock is a semaphore, which a terminated worker would leave behind
    with suppress(EOFError, OSError):
        while True:
            connection.send(carry_out(connection.recv(), cache, raw))


def _end_with_parent() -> None:
    """A killed driver cannot end its workers, so each worker waits for the driver's end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
