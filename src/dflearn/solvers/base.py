"""The contract of every solver: costs in, `Solution` out, with a status for each instance.

A solver is a pure function of (y, instance, start). It minimizes obj(y, w) = (S y + d)ᵀ w + ½ wᵀQ w over its own feasible set.
The public `solve` checks shapes and values; the private hook `_solve` computes.
"""

from __future__ import annotations

import enum
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.engine.status import Status as Status
from dflearn.errors import OptionError, ProgramError, ShapeError, SolverError
from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Objective, Program
from dflearn.program.arrays import alike
from dflearn.program.sides import Sides
from dflearn.solvers.construction import FROM_PROGRAMS, Constructed, Conversion

NAMED = 8  # instances that an error names for each status


@dataclass(frozen=True)
class Solution:
    """The answer of a solver or a layer.

    Attributes:
        decision: w, `(*batch, n)`, in the dtype and on the device of the costs; NaN where there is none.
        status: one `Status` code per instance, int8 `(*batch,)`.
        objective, bound: what was minimized, at `decision`, and a proven lower bound on the optimum (−inf where nothing is proven).
        start: what a later solve of the same instances may start from, `(*batch, width)`, or `None`.
        residual: relative optimality residual of an iterative layer, float64 `(*batch,)`, or `None`.
        fallback: which instances a slower method had to finish, bool `(*batch,)`, or `None`.
        reason: why an instance is not OPTIMAL, one text each, "" where there is nothing to say, flat `(count,)`, or `None`.
        slope: the gradient of `objective` in y, `(*batch, p)`, where it is not Sᵀ `decision`; otherwise `None`.
        seconds: wall time of the call that gave this answer; on a GPU, until its work was handed over.
        deferred: whether statuses are looked at later, so that nothing waits for the GPU now (docs/how-to/gpu.md).

    Examples:
        >>> solution = dfl.HiGHS(program).solve(data.costs[:2])
        >>> solution.decision.shape, solution.status
        (torch.Size([2, 12]), tensor([0, 0], dtype=torch.int8))
    """

    decision: Tensor
    status: Tensor
    objective: Tensor
    bound: Tensor
    start: Tensor | None = None
    residual: Tensor | None = None
    fallback: Tensor | None = None
    reason: np.ndarray | None = None
    slope: Tensor | None = None
    seconds: float = 0.0
    deferred: bool = False

    def check(
        self,
        accept: Sequence[Status] = (Status.OPTIMAL, Status.FEASIBLE),
        *,
        name: Callable[[int], str] = lambda i: f"instance {i}",
        what: str = "decision",
    ) -> Solution:
        """Itself, when every status is among `accept`; otherwise an error that names the first other instances.

        A `deferred` answer is not looked at here.

        Args:
            name: the caller's name for instance i: a row of a table, an id of a data set.
            what: what those instances lack.
        """
        if self.deferred:
            return self
        status = self.status.cpu().numpy().ravel()
        if set(status.tolist()).issubset(accept):
            return self
        bad = np.flatnonzero(~np.isin(status, accept))
        lines = []
        for code in np.unique(status[bad]).tolist():
            first, *others = map(int, np.flatnonzero(status == code))
            shown = ", ".join(map(name, others[:NAMED])) + (", …" if len(others) > NAMED else "")
            more = f" (and {len(others)} more: {shown})" if others else ""
            why = "" if self.reason is None or not self.reason[first] else f" ({self.reason[first]})"
            lines.append(f"{name(first)} is {Status(code).name}{more}: {Status(code).message}{why}")
        if Status.FEASIBLE in status[bad]:
            lines.append("To use feasible decisions as they are, pass accept=(Status.OPTIMAL, Status.FEASIBLE)")
        error = SolverError(f"{bad.size} of {status.size} instances have no acceptable {what}. " + ". ".join(lines))
        error.status = status.tolist()
        raise error

    def with_decision(self, decision: Tensor) -> Solution:
        """Itself, just made, with that decision."""
        object.__setattr__(self, "decision", decision)
        return self

    def timed(self, seconds: float) -> Solution:
        """Itself, just made, with the time it took."""
        object.__setattr__(self, "seconds", seconds)
        return self

    def counts(self) -> dict[str, int]:
        """How many instances ended in each status, by name."""
        codes, numbers = torch.unique(self.status, return_counts=True)
        return {Status(int(code)).name: int(number) for code, number in zip(codes, numbers, strict=True)}


@dataclass(frozen=True)
class Raw:
    """The numpy side of a `Solution`, one row per instance: the private hook `_solve` returns it. Fields: as of `Solution`.

    Examples:
        >>> from dflearn.solvers import Raw
        >>> none = np.zeros(1)
        >>> Raw(decision=np.zeros((1, 3)), status=np.zeros(1, np.int8), objective=none, bound=none).start is None
        True
    """

    decision: np.ndarray
    status: np.ndarray
    objective: np.ndarray
    bound: np.ndarray
    start: np.ndarray | None = None
    fallback: np.ndarray | None = None
    reason: np.ndarray | None = None

    @classmethod
    def join(cls, parts: Sequence[Raw]) -> Raw:
        """The answers to the instances of all parts, in their order."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(None if any(part is None for part in column) else np.concatenate(column) for column in columns))  # type: ignore[arg-type]

    @classmethod
    def empty(cls, count: int, n: int) -> Raw:
        """Nothing solved yet: NaN decisions, every status `FAILED`, no bound."""
        return cls(
            decision=np.full((count, n), np.nan),
            status=np.full(count, int(Status.FAILED), np.int8),
            objective=np.full(count, np.nan),
            bound=np.full(count, -np.inf),
            fallback=np.zeros(count, bool),
            reason=np.full(count, "", object),
        )

    def put(self, rows: Any, part: Raw) -> None:
        """Write the answers of `part` into these rows."""
        for field in fields(self):
            mine, new = getattr(self, field.name), getattr(part, field.name)
            if mine is not None and new is not None:
                mine[rows] = new


class Answer(NamedTuple):
    """The answer to one instance, in the user's units: w `(n,)` and, of an LP, prices y `(rows,)`.

    fallback: whether another solver found it. reason: why it is not optimal. doubted:
    whether the back end called it so.
    """

    status: Status
    w: np.ndarray
    y: np.ndarray = np.empty(0)
    bound: float = -np.inf
    fallback: bool = False
    reason: str = ""
    doubted: bool = False

    def put(self, out: Raw, i: int) -> None:
        """Write the answer into row i of `out`."""
        out.status[i], out.decision[i], out.bound[i] = self.status, self.w, self.bound
        if out.fallback is not None and out.reason is not None:
            out.fallback[i], out.reason[i] = self.fallback, self.reason


class Basis(enum.IntEnum):
    """One code per variable, then per row, of a simplex basis: the `start` that all LP solvers share. The codes are HiGHS's own;
    `NONE` fills the row of an instance that was never solved."""

    NONE = -1
    AT_LOWER = 0
    BASIC = 1
    AT_UPPER = 2
    AT_ZERO = 3


class TakesStart:
    """Warm starts of solvers and layers: one row of fixed width per instance, so that a store is a tensor.

    Attributes:
        start_width: width of a row; 0 where no start is taken.
        start_dtype, start_blank: dtype of a row, and the value that fills the row of an instance never solved.
    """

    start_width: int = 0
    start_dtype: torch.dtype = torch.float64
    start_blank: float = float("nan")

    def no_start(self, *batch: int) -> Tensor | None:
        """The start of instances that were never solved, `(*batch, start_width)`; `None` where none is taken."""
        if not self.start_width:
            return None
        return torch.full((*batch, self.start_width), self.start_blank, dtype=self.start_dtype)


class Solver(TakesStart, WithoutCaches, metaclass=Constructed):
    """Costs y → optimal decision w. Abstract or final; subclasses write `_solve` and declare what they can do.

    Class attributes:
        parallel: how `Parallel` may run it: "threads" (releases the GIL), "processes", or "none".
        program: the program it solves, or `None` for a solver that knows no program (`from_callable`).
        quadratic: whether it solves quadratic objectives; others refuse them.
        remembered: whether `identity` tells its answers from those of any other solver, so that a cache may keep them.
        on_devices: whether it solves costs where they are, on a GPU say; others bring them to the CPU.

    Examples:
        >>> solver = dfl.HiGHS(program)
        >>> isinstance(solver, dfl.Solver), solver.solve(data.costs[:2]).decision.shape
        (True, torch.Size([2, 12]))
    """

    conversions: ClassVar[Mapping[str, Conversion]] = FROM_PROGRAMS
    on_devices: bool = False
    quadratic: bool = False
    remembered: bool = True

    parallel: Literal["threads", "processes", "none"] = "none"
    program: Program | None = None
    objective: Objective

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        """Solve every instance.  y `(*batch, p)`; instance fields `(*batch, k)`; start `(*batch, start_width)`.

        The answer carries a new start if and only if one was passed; `no_start` gives the empty one to begin with.
        """
        begun = perf_counter()
        if self.objective.Q is not None and not self.quadratic:
            raise ProgramError(
                f"{type(self).__name__} solves linear objectives, and {self.program!r} has a quadratic one: use HiGHS, or Gurobi "
                "for integers; a solver of your own that knows Q says so by the class attribute quadratic = True"
            )
        batch = check_costs(y, self.objective)
        check_instance(instance, batch)
        instance = None if instance is None else instance.map(Tensor.detach)
        q, count = None if instance is None else instance.q, batch.numel()
        if self.program is None:
            if q is not None:
                self.with_diagonal(np.zeros(self.objective.n))  # says why not
            if instance is not None and set(instance.present()) - {"d"}:
                raise ShapeError(f"{type(self).__name__} knows no constraints, so an instance may only override d")
        else:
            instance = self.program.realize(y.detach(), instance)
        sides = None if self.program is None else self.program.sides(instance, count)
        c = self.objective.vector(y.detach().double(), instance).reshape(count, self.objective.n).cpu().numpy()
        c, begin = np.ascontiguousarray(c), check_start(start, batch, self.start_width)
        raw = self._solve(c, sides, begin) if q is None else self._solve_with_diagonals(c, sides, begin, q)
        if self.objective.value is not None:
            solved = np.isfinite(raw.decision).all(1)
            flat = torch.as_tensor(raw.decision)[solved]
            truth = self.objective.true_cost(y.detach().cpu().reshape(count, self.objective.p)[solved], flat, instance)
            raw.objective[solved] = raw.bound[solved] = truth.numpy()
        return Solution(
            decision=torch.as_tensor(raw.decision).to(y).reshape(*batch, self.objective.n),
            status=torch.as_tensor(raw.status, dtype=torch.int8).reshape(batch),
            objective=torch.as_tensor(raw.objective, dtype=torch.float64).reshape(batch),
            bound=torch.as_tensor(raw.bound, dtype=torch.float64).reshape(batch),
            start=None if raw.start is None else torch.as_tensor(raw.start).reshape(*batch, self.start_width),
            fallback=None if raw.fallback is None else torch.as_tensor(raw.fallback).reshape(batch),
            reason=raw.reason,
            seconds=perf_counter() - begun,
        )

    def _solve_with_diagonals(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None, q: Tensor) -> Raw:
        """`_solve` for instances with a q `(*batch, n)`, which `with_diagonal` solves, those with the same q together; the start stays."""
        out = replace(Raw.empty(*c.shape), start=start)
        for own, index in alike(q.cpu().double().reshape(c.shape).numpy()):
            solver = self.with_diagonal(own) if own.any() else self
            out.put(index, replace(solver._solve(c[index], sides and sides.rows(index), None), start=None))
        return out

    def with_diagonal(self, q: np.ndarray) -> Solver:
        """What solves the program with q `(n,)` added to the diagonal of its Q; an error where nothing does."""
        raise ProgramError(
            f"{type(self).__name__} takes no q of an instance, which makes its objective quadratic: use HiGHS, or put it into "
            "Program(Q=…)"
        )

    def solve_each(self, batches: Iterable[tuple[Tensor, Instance | None]]) -> Iterator[tuple[int, Solution]]:
        """Solve many batches, cold: the number of a batch and its answer, in the order in which answers come."""
        for number, (y, instance) in enumerate(batches):
            yield number, self.solve(y, instance)

    @abstractmethod
    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        """c `(count, n)` float64; sides as of `Program.sides`; start `(count, start_width)` or `None`."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Name, version, tolerances and limits: all that may change an answer, for caches and records."""

    def get_state(self) -> dict[str, Any]:
        """A copy of what later answers depend on besides the arguments (a pool, a generator), for checkpoints."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go back to what `get_state` gave."""


def check_costs(y: Tensor, objective: Objective, *, values: bool = True) -> torch.Size:
    """The batch shape of costs `(*batch, p)`; an error on a wrong shape, a wrong dtype, or, with `values`, NaN or infinity."""
    if not isinstance(y, Tensor) or not y.is_floating_point():
        what = f"{y.dtype} tensor" if isinstance(y, Tensor) else type(y).__name__
        raise ShapeError(f"costs must be a floating-point torch tensor of shape (*batch, {objective.p}); got a {what}")
    if y.shape[-1:] != (objective.p,):
        raise ShapeError(f"costs must have shape (*batch, {objective.p}); got {tuple(y.shape)}")
    # A finite sum of squares has finite terms, and is cheaper to look at; a sum that overflowed proves nothing.
    if values and not math.isfinite(_squares(y.detach())) and not bool(torch.isfinite(y).all()):
        bad = (~torch.isfinite(y.reshape(-1, objective.p)).all(-1)).nonzero()
        raise ShapeError(
            f"instance {int(bad[0])}: costs hold a NaN or an infinity ({bad.numel()} such instances); "
            "the predictor diverged, or the data have missing values"
        )
    return y.shape[:-1]


def numbers_of(x: Tensor) -> np.ndarray:
    """The numbers of a tensor as an array, on the same memory where that holds them; an error where there are none to be read."""
    try:
        return x.detach().numpy(force=True)  # of negated views and zeros without memory too
    except RuntimeError as error:
        raise OptionError(
            "a solver needs numbers, and this tensor holds none: torch.func (vmap, grad, jacrev, jvp) and vectorize=True hand over "
            "tensors without. Pass a batch of costs in place of vmap, and use backward(), torch.autograd.grad or "
            "torch.autograd.functional.jacobian for derivatives"
        ) from error


def _squares(y: Tensor) -> float:
    """The sum of all squares; numpy is the quicker one to ask."""
    if y.is_cpu and y.dtype in (torch.float32, torch.float64):
        numbers = numbers_of(y)
        return float(np.vdot(numbers, numbers))
    return float(y.square().sum())


def check_instance(instance: Instance | None, batch: torch.Size) -> None:
    """Every field that an instance sets has the batch shape of the costs."""
    shape = None if instance is None else instance.batch_shape()
    if shape is not None and shape != batch:
        raise ShapeError(f"costs have batch shape {tuple(batch)}, the instance's fields have {tuple(shape)}")


def check_basis(start: np.ndarray) -> None:
    """A start of an LP solver holds codes of `Basis`."""
    if start.size and not Basis.NONE <= start.min() <= start.max() <= Basis.AT_ZERO:
        raise ShapeError(f"a start holds codes of a simplex basis, from {Basis.NONE:d} to {Basis.AT_ZERO:d}")


def check_start_shape(start: Tensor | None, batch: torch.Size, width: int) -> None:
    """An error where a start has a wrong shape, or none is taken."""
    if start is None:
        return
    if not width:
        raise ShapeError("this solver takes no start: pass start=None")
    if start.shape != (*batch, width):
        raise ShapeError(f"start must have shape {(*batch, width)}; got {tuple(start.shape)}")


def check_start(start: Tensor | None, batch: torch.Size, width: int) -> np.ndarray | None:
    """The start as numpy `(count, width)`; an error on a wrong shape or where none is taken."""
    check_start_shape(start, batch, width)
    if start is None:
        return None
    rows = start.detach().cpu()
    return (rows if rows.ndim == 2 else rows.reshape(-1, width)).numpy()
