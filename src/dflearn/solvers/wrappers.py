"""Solvers around a solver: `Parallel` solves instances side by side, `Pooled` remembers decisions and reuses them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import weakref
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from dflearn.errors import DflearnError, OptionError, ProgramError, ShapeError
from dflearn.program.sides import Sides
from dflearn.randomness import Randomness, generator_of
from dflearn.solvers.base import Raw, Solver, Status

DIGITS = 2.0**24  # of numbers that tell two decisions of a pool apart
NOISE = 1e-12  # beside the largest number of a decision


class Wrapper(Solver):
    """A solver around another that answers for the same program and takes the same starts."""

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.program, self.objective, self.remembered = solver.program, solver.objective, solver.remembered
        self.quadratic = solver.quadratic
        self.start_width, self.start_dtype = solver.start_width, solver.start_dtype
        self.start_blank = solver.start_blank

    def with_diagonal(self, q: np.ndarray) -> Solver:
        return self.solver.with_diagonal(q)

    def _part(
        self, rows: Any, c: np.ndarray, sides: Sides | None, start: np.ndarray | None
    ) -> tuple[np.ndarray, Sides | None, np.ndarray | None]:
        """The arguments of `_solve` for some of the instances."""
        own = None if sides is None else sides.rows(rows)
        return np.ascontiguousarray(c[rows]), own, None if start is None else start[rows]


class Parallel(Wrapper):
    """The same answers as `solver`'s, from several workers at once.

    Workers are threads where the solver releases Python's lock (HiGHS, Gurobi, the oracles), processes otherwise: then the solver must
    be picklable and, in a script, stand under the main guard of `multiprocessing`. Close with `close` or `with`.

    Args:
        workers: how many; by default one for each core this process may use.

    Examples:
        >>> with dfl.Parallel(dfl.HiGHS(program), workers=2) as solver:
        ...     decisions = solver.solve(data.costs).decision
        >>> decisions.shape
        torch.Size([40, 12])
    """

    made_anew: ClassVar = {"_pool": lambda: None, "_process": int}

    def __init__(self, solver: Solver, workers: int | None = None) -> None:
        super().__init__(solver)
        if solver.parallel == "none":
            raise ProgramError(
                f"{solver!r} declares that it must not run in parallel; wrap the solver inside it instead"
            )
        self.workers = _cores() if workers is None else int(workers)
        if self.workers < 1:
            raise OptionError(f"workers must be at least 1; got {workers}")
        self._pool: Executor | None = None
        self._process = 0

    def __repr__(self) -> str:
        return f"Parallel({self.solver!r}, workers={self.workers})"

    def __enter__(self) -> Parallel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers; the next batch would start new ones."""
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown()
        self._pool = None

    @property
    def identity(self) -> str:
        return self.solver.identity

    def _workers(self) -> Executor:
        """The pool of this process; one inherited through a fork has no workers behind it."""
        if self._pool is None or self._process != os.getpid():
            if self.solver.parallel == "threads":
                self._pool = ThreadPoolExecutor(self.workers)
            else:
                try:
                    pickled = pickle.dumps(self.solver)
                except Exception as error:
                    raise ProgramError(
                        f"{self.solver!r} cannot be sent to other processes ({error}): define its function in a module"
                    ) from error
                context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
                self._pool = ProcessPoolExecutor(self.workers, context, _keep, (pickled,))
            self._process = os.getpid()
            weakref.finalize(self, _shutdown, self._pool, self._process)
        return self._pool

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        count = len(c)
        if self.workers == 1 or count < 2:
            return self.solver._solve(c, sides, start)
        pool, parts, answers = self._workers(), _parts(count, self.workers), []
        solve = self.solver._solve if self.solver.parallel == "threads" else _solve_kept
        futures = [pool.submit(solve, *self._part(part, c, sides, start)) for part in parts]
        for part, future in zip(parts, futures, strict=True):
            try:
                answers.append(future.result())
            except DflearnError as error:
                for other in futures:
                    other.cancel()
                raise type(error)(f"counting from instance {part.start}, {error}") from error
        return Raw.join(answers)


def _parts(count: int, workers: int) -> list[slice]:
    """The instances cut up so that each part is half a worker's share of those left: large parts first, single ones last."""
    ends = [0]
    while ends[-1] < count:
        ends.append(ends[-1] - -(count - ends[-1]) // (2 * workers))
    return list(map(slice, ends, ends[1:]))


_kept: Solver  # in a worker process: the solver it was started with


def _keep(pickled: bytes) -> None:
    global _kept
    _kept = pickle.loads(pickled)


def _solve_kept(c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
    return _kept._solve(c, sides, start)


def _shutdown(pool: Executor, process: int) -> None:
    if process == os.getpid():
        pool.shutdown(wait=False)


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pooled(Wrapper):
    """With probability `ratio` an instance is solved, and its decision joins the pool; else the answer is the pool's member of least
    objective, whose status is `FEASIBLE`, its bound −∞.

    Args:
        ratio: probability of a solve.
        per: whether a coin is tossed for each "instance" or once for the whole "batch".
        initial: decisions to begin with, `(count, n)`. While the pool is empty, every instance is solved.
        generator: where coins come from, on the CPU, or a seed for one; part of `get_state`.

    Examples:
        >>> solver = dfl.Pooled(problem.solver(), ratio=0.1, generator=0)
        >>> solver.solve(data.costs).decision.shape
        torch.Size([40, 12])
    """

    def __init__(
        self,
        solver: Solver,
        ratio: float,
        *,
        per: Literal["instance", "batch"] = "instance",
        initial: Tensor | None = None,
        generator: Randomness = 0,
    ) -> None:
        super().__init__(solver)
        if not 0 <= ratio <= 1 or per not in ("instance", "batch"):
            raise OptionError(f"need 0 <= ratio <= 1, per 'instance' or 'batch'; got {ratio}, {per!r}")
        if self.program is not None and self.program.predicts_rows:
            raise ProgramError(
                f"a pool holds decisions that are feasible whatever is predicted, and {self.program!r} has predicted right-hand "
                "sides: solve every instance instead"
            )
        if self.objective.value is not None:
            raise OptionError(f"a pool answers with its member of least cᵀw, and {solver!r} has a `value` that is more")
        self.ratio, self.per = float(ratio), per
        self.generator = generator_of(generator)
        self._clear()
        if initial is not None:
            self._check(initial)
            self._add(initial.detach().cpu().double().numpy())

    def __repr__(self) -> str:
        return f"Pooled({self.solver!r}, ratio={self.ratio}, per={self.per!r}, {len(self._keys)} decisions)"

    @property
    def identity(self) -> str:
        return f"Pooled ratio={self.ratio} per={self.per} of {self.solver.identity}"

    @property
    def decisions(self) -> Tensor:
        """The pool, oldest first, float64 `(size, n)`."""
        return torch.tensor(self._rows[: len(self._keys)])

    def get_state(self) -> dict[str, Any]:
        return {"decisions": self.decisions, "generator": self.generator.get_state(), "solver": self.solver.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._clear()
        self._add(state["decisions"].numpy())
        self.generator.set_state(state["generator"])
        self.solver.set_state(state["solver"])

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        if sides is not None and not sides.is_shared:
            raise ProgramError(
                f"a pool needs all instances to share their constraints, but these have their own {', '.join(sides.differing)}: what is "
                "feasible for one need not be for another; solve every instance instead"
            )
        count = len(c)
        tosses = torch.rand(count if self.per == "instance" else 1, generator=self.generator, dtype=torch.float64)
        solve = np.broadcast_to((tosses < self.ratio).numpy() | (not self._keys), count)
        out = replace(Raw.empty(*c.shape), start=None if start is None else start.copy())
        if (rows := np.flatnonzero(solve)).size:
            try:
                fresh = self.solver._solve(*self._part(rows, c, sides, start))
            except DflearnError as error:
                shown = ", ".join(map(str, rows[:8])) + (", …" if len(rows) > 8 else "")
                raise type(error)(f"among the instances {shown} that were solved, {error}") from error
            out.put(rows, fresh)
            self._add(fresh.decision[fresh.status <= Status.FEASIBLE])
        if (rows := np.flatnonzero(~solve)).size:
            members = self._rows[: len(self._keys)]
            values = c[rows] @ members.T + (0.0 if self.objective.Q is None else self.objective.Q.value(members))
            best = np.argmin(values, axis=1)
            out.decision[rows], out.status[rows] = members[best], Status.FEASIBLE
            out.objective[rows] = values[np.arange(len(rows)), best]
        return out

    def _clear(self) -> None:
        self._keys: dict[bytes, None] = {}  # in the order of the rows
        self._rows = np.empty((16, self.objective.n))  # the pool, with room to grow

    def _add(self, decisions: np.ndarray) -> None:
        """Put decisions into the pool that differ from all in it by more than rounding."""
        for w in decisions:
            key = _digits(w).tobytes()
            if key in self._keys:
                continue
            if len(self._keys) == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._rows[len(self._keys)] = w
            self._keys[key] = None

    def _check(self, initial: Tensor) -> None:
        if initial.ndim != 2 or initial.shape[1] != self.objective.n:
            raise ShapeError(
                f"initial decisions must have shape (count, {self.objective.n}); got {tuple(initial.shape)}"
            )
        if not bool(torch.isfinite(initial).all()):
            raise ShapeError("initial decisions hold a NaN or an infinity")
        if self.program is not None:
            bad = (~self.program.is_feasible(initial)).nonzero()
            if bad.numel():
                raise ProgramError(
                    f"initial decision {int(bad[0])} breaks the constraints of {self.program!r} ({bad.numel()} such decisions): "
                    "infeasible members would win on cost"
                )


def _digits(w: np.ndarray) -> np.ndarray:
    """A decision up to rounding, whatever its units: seven digits of each number; noise beside the largest is zero."""
    mantissa, exponent = np.frexp(np.where(np.abs(w) > NOISE * np.abs(w).max(initial=0.0), w, 0.0))
    return np.ldexp(np.round(mantissa * DIGITS) / DIGITS, exponent) + 0.0  # makes −0 the same as 0
