"""The rows of a program for Davis-Yin iterations: M (w, s) = r, one slack s per inequality, scaled and in elimination order."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dflearn.engine.certify import Certifier
from dflearn.engine.linear_algebra.cholesky import SparseFactor
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides


class SplittingRows:
    """The kept equalities and the inequalities of one program.

    Attributes:
        factor: M, the order and scale of its rows, and the symbolic factor of M Mᵀ.
        width: N, variables and slacks.
        backends: what iterates, by kind, dtype and device; made when first needed.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.form = program, program.equality_form()
        self.factor = SparseFactor.of(self.form.matrix)
        self.width = self.form.n + self.form.slacks
        self.backends: dict[Any, Any] = {}

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    @cached_property
    def places(self) -> np.ndarray:
        """Which row of the program each row of the iterations is."""
        equalities = self.program.A.shape[0]
        return self.ordered(np.concatenate([self.form.kept, equalities + np.arange(self.form.slacks)]))

    def ordered(self, rows: np.ndarray) -> np.ndarray:
        """Something about each kept row of the program, `(…, m)`, in elimination order."""
        return np.take(rows, self.factor.order, axis=-1)

    def quadratic(self, q: np.ndarray | None = None) -> Quadratic:
        """Q, zero where the objective is linear; q `(n,)` is added to its diagonal."""
        Q = Quadratic(diagonal=np.zeros(self.program.n)) if self.program.Q is None else self.program.Q
        return Q if q is None else Q.plus(q)

    def numbers(self, sides: Sides, dtype: Any) -> SideNumbers:
        """The sides in one dtype, one line for each instance, or one for all."""
        n = self.form.n
        right = self.ordered(self.form.right_hand_side(sides)) * self.factor.scale
        with np.errstate(over="ignore"):  # a bound too large for the dtype is none
            r, lower, upper = (np.atleast_2d(part).astype(dtype) for part in (right, *self.form.bounds(sides)))
        sizes = [np.abs(r), *(np.where(np.isfinite(side), np.abs(side), 0)[:, :n] for side in (lower, upper))]
        rows, *ends = (part.max(1, initial=0) for part in sizes)
        bounds = np.maximum(*ends)
        largest = np.where(rows > 0, rows, np.where(bounds > 0, bounds, 1))
        least = [np.where(part > 0, part, np.inf).min(1, initial=np.inf) for part in sizes]
        smallest = np.minimum(np.minimum(least[0], least[1]), least[2])
        width = upper[:, :n] - lower[:, :n]
        reach = np.where(np.isfinite(width), width, largest[:, None]).astype(dtype)
        (lines,) = np.broadcast_shapes((len(r),), (len(lower),), (len(upper),))
        lower, upper, largest, smallest = (
            np.array(np.broadcast_to(part, (count, *part.shape[1:])), order="C")
            for part, count in ((lower, len(width)), (upper, len(width)), (largest, lines), (smallest, lines))
        )
        return SideNumbers(np.ascontiguousarray(r), lower, upper, reach, largest, smallest)


class SideNumbers(NamedTuple):
    """Right-hand sides and bounds of a batch as the iterations read them, `(count or 1, …)`.

    right: r `(·, m)`. lower, upper: of variables and slacks, `(·, N)`. reach: upper − lower of the variables, or `largest` where
    that is infinite, `(·, n)`. largest: the largest distance of a row from the origin, or else the largest bound, or else one.
    smallest: the smallest length that right-hand sides and bounds name, infinite where there is none. Both `(·,)`.
    """

    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    reach: np.ndarray
    largest: np.ndarray
    smallest: np.ndarray
