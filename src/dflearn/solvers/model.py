"""The common part of solvers on a model object (HiGHS, Gurobi): one model per thread, and the rules for exact answers.

The model is built once; per instance only costs, right-hand sides and bounds change. Each instance is solved from a cold
state or from its own `start`, never from what the previous instance left behind: answers do not depend on the order of
the batch.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dflearn.errors import OptionError, ShapeError
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Basis, Raw, Solver, Status

TOLERANCE = 1e-6  # largest relative violation of a row that the rounding of integer variables may cause
LARGEST = 1e20  # what back ends take for infinite: a cost or an equality beyond it would be solved as something else


class ModelSolver(Solver):
    """Exact LPs and MILPs on a back end's model object. Subclasses write `_build` and `identity`.

    Args:
        program: what to solve.
        time_limit: seconds per instance.
        gap: relative MIP gap at which a decision counts as optimal.
        threads: the back end's own threads inside one solve. To solve instances side by side use `Parallel`.
    """

    parallel = "threads"
    program: Program
    start_dtype = torch.int8
    start_blank = Basis.NONE

    def __init__(self, program: Program, *, time_limit: float = np.inf, gap: float = 0.0, threads: int = 1) -> None:
        if not time_limit > 0 or not gap >= 0 or threads < 1:
            raise OptionError(f"need time_limit > 0, gap >= 0, threads >= 1; got {time_limit}, {gap}, {threads}")
        self.program = program
        self.objective = program.objective
        self.time_limit, self.gap, self.threads = float(time_limit), float(gap), int(threads)
        self.start_width = 0 if program.is_integer else program.n + program.A.shape[0] + program.G.shape[0]
        self._models = threading.local()

    def __repr__(self) -> str:
        limits = f"time_limit={self.time_limit}, gap={self.gap}, threads={self.threads}"
        return f"{type(self).__name__}({self.program!r}, {limits})"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_models"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._models = threading.local()

    @abstractmethod
    def _build(self) -> Model: ...

    def _model(self) -> Model:
        """This thread's model; a forked process builds its own."""
        if getattr(self._models, "process", None) != os.getpid():
            self._models.model, self._models.process = self._build(), os.getpid()
        model: Model = self._models.model
        return model

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        model, count = self._model(), c.shape[0]
        out = Raw.empty(count, self.objective.n)
        if start is not None:
            if start.size and not Basis.NONE <= start.min() <= start.max() <= Basis.AT_ZERO:
                raise ShapeError(f"a start holds codes of a simplex basis, from {Basis.NONE:d} to {Basis.AT_ZERO:d}")
            out = replace(out, start=np.full((count, self.start_width), Basis.NONE, np.int8))
        units = cost_units(c)
        for i in range(count):
            if units[i]:
                warm = None if start is None or start[i].min() == Basis.NONE else start[i]
                model.solve(c[i], units[i], sides.row(i), warm, out, i)
        np.add(out.decision, 0.0, out=out.decision)  # turns −0 into 0
        out.objective[:] = np.einsum("ij,ij->i", c, out.decision)
        np.fmin(out.bound, out.objective, out=out.bound)  # where there is no objective, there is no bound either
        return out


class Model(ABC):
    """One model object of a back end that holds a program. The back end writes the short methods; `solve` has the rules."""

    def __init__(self, program: Program) -> None:
        self.program, self.integer = program, program.is_integer
        self.n, self.equalities, self.inequalities = program.n, program.A.shape[0], program.G.shape[0]
        self.rows = self.equalities + self.inequalities
        self.held_rows = (program.b, program.h)
        self.held_bounds = (program.lower, program.upper)

    @abstractmethod
    def change_rows(self, b: np.ndarray, h: np.ndarray) -> None: ...

    @abstractmethod
    def change_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None: ...

    @abstractmethod
    def run(self, c: np.ndarray, basis: np.ndarray | None) -> Status | None:
        """Solve with costs c, from `basis` or from cold; `None` for "infeasible or unbounded, it is not known which"."""

    @abstractmethod
    def decision(self) -> np.ndarray:
        """w of the last run, `(n,)`."""

    @abstractmethod
    def bound(self) -> float:
        """The lower bound that the last run proved, for MILPs."""

    @abstractmethod
    def basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        """Write the basis of the last run, an LP solved to optimality at w, into `codes` `(n + rows,)`."""

    def solve(self, c: np.ndarray, unit: float, sides: Sides, start: np.ndarray | None, out: Raw, i: int) -> None:
        """Solve one instance with costs c · unit; write decision, status, bound and start into row i of `out`.

        The row begins as `FAILED`, without a bound, and stays so where nothing can be said.
        """
        if self.equalities and np.abs(sides.b).max() >= LARGEST:
            return
        lower, upper = sides.lower, sides.upper
        if self.integer:
            lower, upper = integer_bounds(lower, upper, self.program.integer)
            if (lower > upper).any():
                out.status[i] = Status.INFEASIBLE
                return
        self.set_sides((sides.b, sides.h), (lower, upper))
        if unit != 1.0:
            c = c * unit
        status = self.run(c, start)
        if start is not None and status is not Status.OPTIMAL:
            status = self.run(c, None)  # a start may save time, never change what is found out
        if status is None or (status is Status.UNBOUNDED and self.integer):
            status = self.tell_unbounded()
        if not status.has_decision:
            out.status[i] = status
            return
        w = self.decision()
        if self.integer:
            bound = self.bound() / unit
            w = self.with_exact_integers(c, w)
            if self.violation(w) > TOLERANCE:
                return
        else:
            bound = np.inf if status is Status.OPTIMAL else -np.inf  # an optimum bounds itself
        out.status[i], out.decision[i], out.bound[i] = status, w, bound
        if out.start is not None and status is Status.OPTIMAL:
            self.basis(w, out.start[i])

    def set_sides(self, rows: tuple[np.ndarray, np.ndarray], bounds: tuple[np.ndarray, np.ndarray]) -> None:
        """Right-hand sides and bounds of the next run; nothing is passed on that the model has already."""
        if self.rows and not _same(rows, self.held_rows):
            self.change_rows(*rows)
            self.held_rows = rows
        if not _same(bounds, self.held_bounds):
            self.change_bounds(*bounds)
            self.held_bounds = bounds

    def tell_unbounded(self) -> Status:
        """Infeasible or unbounded: where any decision exists at all, which zero costs find out, it is unbounded."""
        status = self.run(np.zeros(self.n), None)
        if status is None:
            return Status.FAILED
        return Status.UNBOUNDED if status.has_decision else status

    def with_exact_integers(self, c: np.ndarray, w: np.ndarray) -> np.ndarray:
        """w with integer variables rounded; where that breaks a row, the others are solved for again."""
        rounded = np.where(self.program.integer, np.rint(w), w)
        if self.program.integer.all() or self.violation(rounded) <= TOLERANCE:
            return rounded
        rows, (lower, upper) = self.held_rows, self.held_bounds
        fixed = tuple(np.where(self.program.integer, rounded, side) for side in (lower, upper))
        self.set_sides(rows, (fixed[0], fixed[1]))
        status = self.run(c, None)
        if status is not None and status.has_decision:
            rounded = np.where(self.program.integer, rounded, self.decision())
        self.set_sides(rows, (lower, upper))
        return rounded

    def violation(self, w: np.ndarray) -> float:
        """The largest violation of a row at w, relative to 1 + |right-hand side|."""
        (b, h), worst = self.held_rows, 0.0
        if self.equalities:
            worst = float((np.abs(self.program.A @ w - b) / (1 + np.abs(b))).max())
        if self.inequalities:
            worst = max(worst, float(((self.program.G @ w - h) / (1 + np.abs(h))).max()))
        return worst


def cost_units(c: np.ndarray) -> np.ndarray:
    """The power of two that brings the costs of an instance, where they are of unusual size, to about one; else 1.

    Back ends have absolute tolerances: with costs of 1e-7 every decision would pass for optimal. Zero marks costs that
    back ends take for infinite.  `(count, n)` → `(count,)`.
    """
    largest = np.abs(c).max(1)
    units = np.ones(len(c))
    unusual = (largest > 0) & ((largest < 1e-2) | (largest > 1e6))
    units[unusual] = 2.0 ** -np.round(np.log2(largest[unusual]))
    units[largest >= LARGEST] = 0.0
    return units


def _same(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return all(a is b or np.array_equal(a, b) for a, b in zip(one, other, strict=True))
