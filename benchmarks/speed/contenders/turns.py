"""How a contender waits for its turn and says what the turn cost. Needs numpy only: every environment has that.

A contender is a process. It sets itself up and says "ready"; then for each line that it reads it does its work once: the line names a file
for what it found, and the answer, one line of JSON, has the seconds and the memory. `contest.py` is the other side.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


class Turns:
    """Begin and end turns; the time between two of them does not count."""

    def __init__(self) -> None:
        # What libraries print must not mix with the answers, whatever language they are written in.
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.imports = peak_megabytes()
        self.ready = False

    def begin(self) -> None:
        """Wait for the next turn; the process ends when there is none."""
        if not self.ready:
            self.ready = True
            print("ready", file=self.answers, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            raise SystemExit
        self.file = line
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def end(self, calls: int = 1, **found: np.ndarray) -> None:
        """Answer with seconds per call, and leave what was found in the file that the turn named."""
        cpu, wall = time.process_time() - self.cpu, time.perf_counter() - self.wall
        np.savez(self.file, **found)
        answer = {"cpu": cpu / calls, "wall": wall / calls, "calls": calls}
        answer |= {"peak": peak_megabytes(), "imports": self.imports}
        print(json.dumps(answer), file=self.answers, flush=True)

    def serve(self, call: Callable[[], dict[str, np.ndarray]], seconds: float = 0.2) -> None:
        """One turn after the other: so many calls that a turn lasts about `seconds`, one at least."""
        calls = 1
        while True:
            self.begin()
            for _ in range(calls):
                found = call()
            spent = (time.process_time() - self.cpu) / calls
            self.end(calls, **found)
            calls = max(1, min(1000, round(seconds / max(spent, 1e-6))))


def run(subjects: dict[str, Callable[..., None]]) -> None:
    """A script's one task: SUBJECT DATA ARGUMENTS…, of its command line."""
    subject, path, *arguments = sys.argv[1:]
    with np.load(path) as file:
        data = dict(file)
    subjects[subject](data, Turns(), *arguments)


def threads() -> int:
    """How many threads everyone may use: one number for torch, BLAS, numba and solvers."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def peak_megabytes() -> float:
    """The process's largest resident memory so far, in MiB. Not `getrusage`: on Linux a child begins with the size of the process
    that started it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        import resource

        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def reset_peak() -> None:
    """Forget the peak so far, where the system can: `peak_megabytes` then starts from what is held now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
