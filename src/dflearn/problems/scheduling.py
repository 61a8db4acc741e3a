"""Energy-cost-aware scheduling (CSPLib problem 059): run every task when electricity is cheap.

One price enters the cost of every task that may run in its half-hour: the case that S in `Program` is for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dflearn.errors import DataError, OptionError, ProgramError
from dflearn.problems.energy import SLOTS, EnergyDays, EnergyProblem
from dflearn.program import Program
from dflearn.solvers.base import Solver
from dflearn.solvers.highs import HiGHS


@dataclass(frozen=True)
class Job:
    """Runs for `duration` slots within earliest … latest_end − 1. power: while it runs; use: of each resource."""

    duration: int
    earliest: int
    latest_end: int
    power: float
    use: tuple[float, ...]

    @property
    def starts(self) -> range:
        return range(self.earliest, self.latest_end - self.duration + 1)


@dataclass(frozen=True)
class Scheduling(EnergyProblem):
    """min over x of Σ_{f,m,t} x[f,m,t] · (hours · power_f · Σ_{s=t}^{t+duration_f−1} price_s)

        s.t.  Σ_{m,t} x[f,m,t] = 1                                          for each task f (t within its window)
              Σ_f use_{f,r} Σ_{t : f runs in s} x[f,m,t] ≤ capacity_{m,r}    for each machine m, resource r and slot s
              x ∈ {0, 1}

    x[f,m,t] = 1 where task f starts in slot t on machine m. The prices y `(slots,)` are what is predicted: row (f,m,t) of S
    holds hours · power_f in the slots in which f would run. Power that machines draw by themselves is left out.

    Args:
        tasks: what is to run.
        capacities: of each machine, one number per resource.
        slots: how many slots a day has.
        minutes: length of a slot.
        name: of this instance.
        seed, path, digest: as of `EnergyProblem`.

    Examples:
        >>> from dflearn.problems.scheduling import Job
        >>> job = Job(duration=2, earliest=0, latest_end=4, power=1.0, use=(1.0,))
        >>> schedule = dfl.problems.Scheduling(tasks=(job,), capacities=((1.0,),), slots=4, minutes=360)
        >>> schedule.solver().solve(torch.tensor([3.0, 1.0, 1.0, 2.0])).decision  # begins in slot 1
        tensor([0., 1., 0.])
    """

    tasks: tuple[Job, ...]
    capacities: tuple[tuple[float, ...], ...]
    slots: int = 48
    minutes: int = 30
    name: str = "scheduling"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tasks or not self.capacities or not self.capacities[0]:
            raise ProgramError("scheduling needs at least one task, one machine and one resource")
        resources = len(self.capacities[0])
        if any(len(held) != resources for held in (*self.capacities, *(task.use for task in self.tasks))):
            raise ProgramError(f"each task and each machine must name {resources} resources, as the first machine does")
        for number, task in enumerate(self.tasks):
            if task.duration < 1 or task.earliest < 0 or task.latest_end > self.slots or not task.starts:
                window = f"{task.duration} slots between {task.earliest} and {task.latest_end}"
                raise ProgramError(f"task {number} has no start: {window} of a day of {self.slots}")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Scheduling:
        """From the benchmark's text format.

        Minutes per slot; number of resources; number of machines, and for each: number, idle power, power-up and power-down
        cost, capacities; number of tasks, and for each: number, duration, earliest start, latest end, power, resource use.
        """
        words = iter(Path(path).read_text().split())
        try:
            minutes, resources = int(next(words)), int(next(words))
            # The power that a machine draws by itself is not used.
            capacities = tuple(_numbers(words, 4 + resources)[4:] for _ in range(int(next(words))))
            jobs = [_numbers(words, 5 + resources)[1:] for _ in range(int(next(words)))]
            tasks = tuple(
                Job(int(duration), int(first), int(end), power, tuple(use))
                for duration, first, end, power, *use in jobs
            )
        except (StopIteration, RuntimeError, ValueError) as error:
            raise DataError(f"{path} is no scheduling instance: it ends early or holds more than numbers") from error
        if next(words, None) is not None:
            raise DataError(f"{path} is not a scheduling instance: it goes on after the last task")
        return cls(tasks, capacities, 24 * 60 // minutes, minutes, Path(path).stem)

    @classmethod
    def synthetic(cls, tasks: int = 10, machines: int = 3, seed: int = 0) -> Scheduling:
        """An invented instance with one resource that has a schedule: each task is placed first, its window drawn around it."""
        rng = np.random.RandomState(seed)
        slots, capacity = 48, 100.0
        used = np.zeros((machines, slots))
        found: list[Job] = []
        while len(found) < tasks:
            duration, use = int(rng.randint(2, 24)), float(rng.randint(10, 60))
            start, machine = int(rng.randint(0, slots - duration + 1)), rng.randint(machines)
            run = slice(start, start + duration)
            if (used[machine, run] + use > capacity).any():
                continue
            used[machine, run] += use
            earliest, latest_end = max(0, start - rng.randint(20)), min(slots, start + duration + rng.randint(20))
            found.append(Job(duration, earliest, latest_end, float(rng.randint(50, 500)), (use,)))
        return cls(tuple(found), ((capacity,),) * machines, name=f"scheduling-{tasks}x{machines}", seed=seed)

    @cached_property
    def variables(self) -> np.ndarray:
        """Job, machine and start of every variable, int64 `(n, 3)`, in the order of the program."""
        machines = range(len(self.capacities))
        return np.array([(f, m, t) for f, task in enumerate(self.tasks) for m in machines for t in task.starts])

    def costs(self, days: EnergyDays) -> np.ndarray:
        if self.slots != SLOTS:
            raise OptionError(f"{self.name} has {self.slots} slots, and energy days have {SLOTS}: bring your own data")
        return days.prices

    def _build_program(self, structure: Mapping[str, np.ndarray]) -> Program:
        task, machine, start = self.variables.T
        n, resources = len(task), len(self.capacities[0])
        duration, power = (np.array([getattr(one, name) for one in self.tasks]) for name in ("duration", "power"))
        use, capacity = np.array([one.use for one in self.tasks]), np.array(self.capacities)
        # One entry per variable and slot in which its task would run.
        column = np.repeat(np.arange(n), duration[task])
        slot = np.concatenate([np.arange(t, t + d) for t, d in zip(start, duration[task], strict=True)])
        S = sp.csr_array((power[task[column]] * self.minutes / 60, (column, slot)), shape=(n, self.slots))
        rows = [
            sp.csr_array((use[task[column], r], (machine[column] * self.slots + slot, column)), shape=(len(capacity) * self.slots, n))
            for r in range(resources)
        ]  # fmt: skip
        G, h = sp.vstack(rows, format="csr"), np.repeat(capacity.T.reshape(-1), self.slots)
        G.eliminate_zeros()
        some, b = np.diff(G.indptr) > 0, np.ones(len(self.tasks))
        A = sp.csr_array((np.ones(n), (task, np.arange(n))), shape=(len(self.tasks), n))
        return Program(A=A, b=b, G=G[some], h=h[some], upper=1, S=S, integer=True, name=self.name)

    def solver(self, **options: float) -> Solver:
        """The exact MILP; `options` as of `HiGHS` (gap, time_limit)."""
        return HiGHS(self.program, **options)  # type: ignore[arg-type]

    def power(self, decisions: np.ndarray) -> np.ndarray:
        """The power drawn in each slot by decisions `(*batch, n)`, `(*batch, slots)`."""
        assert self.program.S is not None
        flat = decisions.reshape(-1, self.program.n)
        return np.asarray(flat @ self.program.S).reshape(*decisions.shape[:-1], self.slots) * 60 / self.minutes


def _numbers(words: Iterator[str], count: int) -> tuple[float, ...]:
    return tuple(float(next(words)) for _ in range(count))
