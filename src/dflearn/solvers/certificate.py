"""Is a linear program's answer optimal? Judged by its decision and its prices alone, in the user's units.

With the rows M = (A, G), right-hand sides q = (b, h), prices y (≤ 0 on inequalities) and reduced costs r = c − Mᵀy, every
decision w of the program has

    cᵀw  ≥  qᵀy + Σ_j min(r_j lower_j, r_j upper_j),

the true bound. What a row or a variable may be off by is relative to its own terms: |q_i| + Σ_j |M_ij w_j| for a row,
|c_j| + Σ_i |M_ij y_i| for a reduced cost, Σ_j |c_j w_j| for the objective. No number is absolute.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.program import Program
from dflearn.program.sides import Sides

OPTIMAL = 1e-6  # largest relative error of an answer that is called optimal
SURE = 1e-8  # errors above this are mended where they can be
ACTIVE = 1e-9  # a row or a bound that a decision misses by less, relative to its terms, is active
ZERO = 1e-10  # a reduced cost that is smaller, relative to its terms, is zero
NOISE = 16 * float(np.finfo(float).eps)  # rounding, in units of the largest decision or price: it has no sign


class Verdict(NamedTuple):
    """Relative errors `(count,)`: of the worst row, of the worst reduced cost, of the objective, the worst of these; and the
    true bound."""

    primal: np.ndarray
    dual: np.ndarray
    gap: np.ndarray
    error: np.ndarray
    bound: np.ndarray

    def rows(self, index: np.ndarray) -> Verdict:
        """The verdicts on the answers at `index`."""
        return Verdict(*(part[index] for part in self))


class Certifier:
    """Checks answers to one program. The matrices are prepared once."""

    def __init__(self, program: Program) -> None:
        self.program, self.equalities = program, program.A.shape[0]
        self.matrix = sp.vstack([program.A, program.G], format="csr")
        self.stored = self.matrix.indptr, self.matrix.indices, self.matrix.data
        self.sizes = abs(self.matrix)
        self.transposed, self.transposed_sizes = self.matrix.T.tocsr(), self.sizes.T.tocsr()
        filled = self.matrix.nnz > 0
        self.row_largest = self.sizes.max(axis=1).toarray().ravel() if filled else np.zeros(self.matrix.shape[0])
        self.column_largest = self.sizes.max(axis=0).toarray().ravel() if filled else np.zeros(program.n)

    def rows(self, w: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """M w − q, how far it breaks each row relative to the row's terms, and the terms.  `(count, n)` → `(count, rows)`."""
        excess = (self.matrix @ w.T).T - right
        terms = (self.sizes @ np.abs(w).T).T + np.abs(right)
        noise = NOISE * self.row_largest * np.abs(w).max(1, initial=0.0)[:, None]
        excess[np.abs(excess) <= noise] = 0.0
        broken = np.where(np.arange(excess.shape[1]) < self.equalities, np.abs(excess), excess)
        return excess, _share(broken, terms), terms

    def violation(self, w: np.ndarray, sides: Sides) -> np.ndarray:
        """The worst relative violation of a row at w.  `(count, n)` → `(count,)`."""
        worst: np.ndarray = self.rows(w, sides.right_hand_sides())[1].max(1, initial=0.0)
        return worst

    def check(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides) -> Verdict:
        """c and w `(count, n)`, w within its bounds; prices y `(count, rows)`; sides as of `Program.sides`."""
        from dflearn.kernels.certificate import check_answers

        lines, out = self.own_lines if sides is self.program.own_sides else _lines(sides), np.empty((5, len(c)))
        start, index, entry = self.stored
        check_answers(start, index, entry, self.equalities, ACTIVE, ZERO, NOISE, c, w, y, *lines, out)
        return Verdict(*out)

    @cached_property
    def own_lines(self) -> tuple[np.ndarray, ...]:
        return _lines(self.program.own_sides)

    def columns(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides) -> tuple[np.ndarray, ...]:
        """Reduced costs, how wrong each is relative to its terms, and what the objective loses by it.  `(count, n)` each.

        A reduced cost is wrong where the variable is not at the bound that it asks for.
        """
        r = c - (self.transposed @ y.T).T
        size = np.abs(c) + (self.transposed_sizes @ np.abs(y).T).T
        noise = NOISE * self.column_largest * np.abs(y).max(1, initial=0.0)[:, None]
        bound = np.where(r > 0, sides.lines("lower"), sides.lines("upper"))
        off = np.abs(w - bound)
        off[off <= NOISE * np.abs(w).max(1, initial=0.0)[:, None]] = 0.0
        free = off > ACTIVE * np.where(np.isinf(bound), 0.0, np.maximum(np.abs(w), np.abs(bound)))
        share = np.where(free, _share(np.abs(r) - noise, size), 0.0)
        off[free & (share <= ZERO)] = 0.0
        return r, share, np.abs(r) * off

    def errors(
        self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """Of one answer to a program of equations: q − M w, reduced costs, how wrong each is, and the worst of all."""
        excess, broken, _ = (part[0] for part in self.rows(w[None], sides.right_hand_sides()))
        r, wrong, _ = (part[0] for part in self.columns(c[None], w[None], y[None], sides))
        return -excess, r, broken, wrong, float(max(broken.max(initial=0.0), wrong.max(initial=0.0)))


def _lines(sides: Sides) -> tuple[np.ndarray, ...]:
    """Right-hand sides and bounds as the kernel reads them."""
    parts = (sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper"))
    return tuple(np.ascontiguousarray(part) for part in parts)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, where part is above zero; else 0."""
    out = np.zeros(part.shape)
    with np.errstate(divide="ignore", over="ignore"):
        np.divide(part, whole, out=out, where=part > 0)
    return out
