"""Any function as a solver: for problems that no program describes, or that someone's own code solves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dflearn.errors import OptionError, ShapeError, SolverError
from dflearn.program import Objective, Sense
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status


def from_callable(
    f: Callable[[np.ndarray], Any],
    n: int,
    p: int | None = None,
    *,
    S: Any = None,
    d: Any = None,
    sense: Sense = "minimize",
    batched: bool = False,
    name: str | None = None,
    value: Callable[[np.ndarray, np.ndarray], Any] | None = None,
) -> CallableSolver:
    """The solver w*(y) = f(S y + d), where f finds a decision w of least cᵀw; or of least `value`, where that is more.

    Args:
        f: c → w, numpy float64 `(n,)` → anything like an array `(n,)`; with `batched`, `(count, n)` → `(count, n)`.
            What it answers is taken as optimal; a NaN means that it found nothing.
        n: the number of variables.
        p: the number of predicted costs: n without S, the columns of S with it.
        S, d: the known part of the objective, as of `Program`; left out, f gets the costs y themselves.
        name: what messages, caches and records call it; by default the name of f. Caches keep answers only where it is given: change it
            when f changes.
        value: (y, w) → what decision w truly costs under the costs y (less is better, whatever the sense), numpy float64
            `(p,)`, `(n,)` → a number; with `batched`, `(count, p)`, `(count, n)` → `(count,)`. Regret, `evaluate` and validation
            judge by it: a quadratic term, a fee, a penalty that f knows of. Left out, a decision costs cᵀw, and one that beats a label
            by more than rounding is an error; for a heuristic, whose labels may be beaten, pass the linear value itself. Losses stay
            linear: SPO+ and its kin leave out what `value` adds to cᵀw; their gradients are right where that depends on w alone.

    Examples:
        >>> cheapest = dfl.from_callable(lambda c: np.eye(3)[c.argmin()], n=3)
        >>> cheapest.solve(torch.tensor([3.0, 1.0, 2.0])).decision
        tensor([0., 1., 0.])
    """
    if not callable(f):
        raise OptionError(f"from_callable needs a function c → w; got a {type(f).__name__}")
    if value is not None and not callable(value):
        raise OptionError(f"value is a function (y, w) → what w costs; got a {type(value).__name__}")
    judge = value if batched or value is None else partial(_row_by_row, value)
    objective = Objective(n, S, d, sense, judge)
    if p is not None and p != objective.p:
        what = "n, without S," if S is None else "S"
        raise OptionError(f"p is {p}, but {what} says {objective.p} predicted costs")
    return CallableSolver(f, objective, batched, name)


def _row_by_row(value: Callable[[np.ndarray, np.ndarray], Any], y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.array([float(value(*pair)) for pair in zip(y, w, strict=True)])


class CallableSolver(Solver):
    """A function as a solver. It knows no constraints, so an instance may override d only.

    `Parallel` runs it in processes, for which f must be picklable: a function of a module, not a lambda.
    """

    parallel = "processes"

    def __init__(self, f: Callable[[np.ndarray], Any], objective: Objective, batched: bool, name: str | None) -> None:
        self.function, self.objective, self.batched = f, objective, batched
        self.name = name or getattr(f, "__qualname__", type(f).__name__)
        self.remembered = name is not None

    def __repr__(self) -> str:
        return f"from_callable({self.name}, n={self.objective.n}, p={self.objective.p})"

    @property
    def identity(self) -> str:
        return f"from_callable {self.name}"

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        out = Raw.empty(*c.shape)
        if self.batched:
            out.decision[:] = self._call(c, c.shape, "the batch")
        else:
            for i, row in enumerate(c):
                out.decision[i] = self._call(row, row.shape, f"instance {i}")
        solved = np.isfinite(out.decision).all(1)
        out.decision[~solved] = np.nan
        out.status[solved] = Status.OPTIMAL
        out.objective[:] = (c * out.decision).sum(1)
        out.bound[solved] = out.objective[solved]
        return out

    def _call(self, c: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
        """f(c), on a copy that it may change; an error says where it failed."""
        try:
            answer = self.function(c.copy())
        except Exception as error:
            raise SolverError(f"{what}: {self.name} raised {type(error).__name__}: {error}") from error
        try:
            w = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"{what}: {self.name} must return numbers of shape {shape}: {error}") from error
        if w.shape != shape:
            raise ShapeError(f"{what}: {self.name} must return shape {shape}; it returned {w.shape}")
        return w
