"""A smoothed LP by an interior-point method on the augmented system: the slow and sure way, one instance at a time.

    min cᵀw + ½ Σ_j q_j w_j²   s.t.   M w + s = r  (s ≥ 0 on inequality rows, s = 0 on equality rows),   lower ≤ w ≤ upper

The kernels eliminate w and factor M Θ⁻¹ Mᵀ; where Θ is tiny (variables without bounds, small μ) that loses what a solution needs.
Here the matrix

    [ Θ = Q + Z_l/G_l + Z_u/G_u      Mᵀ    ]
    [ M                           −(S/Y)   ]

is factored as it is, with a regularization that refinement undoes: Mehrotra's predictor and corrector, from a point that need not
be within its bounds (gaps are variables). Then the face that it ends on is solved for exactly, and corrected a few times.
`balanced` brings rows, columns and costs to a common size first, w = σ D v, so that the q_j = μ σ² D_j² differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

STEPS = 100
NOTHING = 1e-25  # complementarity that needs no smaller one
CLOSE = 1e-7  # residuals, in units of the balanced program, from which on a point may be the answer
# Of balanced matrices. Where rows nearly depend on each other, more of it slows refinement down and less of it is singular.
# And how much larger than `usual_size` decisions are taken to be: costs may pull them far beyond right-hand sides.
ATTEMPTS = ((1e-9, 1.0), (1e-12, 1.0), (1e-9, 2.0**14))
SYMMETRIC = {"SymmetricMode": True}
REFINEMENTS = 10
TOWARDS_BOUNDARY = 0.995
BALANCING = 10  # rounds


class Quadratic(NamedTuple):
    """c, q, lower, upper `(n,)`, lower < upper; matrix and right `(rows,)`, equalities first."""

    c: np.ndarray
    q: np.ndarray
    matrix: sp.csr_array
    right: np.ndarray
    equalities: int
    lower: np.ndarray
    upper: np.ndarray

    @property
    def inequality(self) -> np.ndarray:
        return np.arange(len(self.right)) >= self.equalities


class Units(NamedTuple):
    """w = columns · v, prices = rows · those of the balanced program; `(n,)` and `(rows,)`, powers of two."""

    columns: np.ndarray
    rows: np.ndarray


class Point(NamedTuple):
    """w; gaps to its bounds and their prices; slacks and prices of rows. Where there is no bound: gap 1, price 0."""

    w: np.ndarray
    gl: np.ndarray
    zl: np.ndarray
    gu: np.ndarray
    zu: np.ndarray
    s: np.ndarray
    y: np.ndarray


def balanced(program: Quadratic, wider: float) -> tuple[Quadratic, Units]:
    """The same program with the entries of [Q Mᵀ; M 0] about one in each row and column (Ruiz), and costs about one."""
    c, q, M, r, equalities, lower, upper = program
    size = wider * usual_size(program)
    rows, columns, gamma = np.ones(len(r)), np.full(len(c), size), 1.0
    sizes = abs(M)
    for _ in range(BALANCING):
        now = sp.csr_array(sp.diags_array(rows) @ sizes @ sp.diags_array(columns / size))
        most = now.max(axis=0).toarray().ravel() if now.nnz else np.zeros(len(c))
        each = now.max(axis=1).toarray().ravel() if now.nnz else np.zeros(len(r))
        most = np.maximum(most, gamma * q * columns**2)
        rows /= np.sqrt(np.where(each > 0, each, 1.0))
        columns /= np.sqrt(np.where(most > 0, most, 1.0))
        gamma *= 1 / max((gamma * q * columns**2).mean(), np.abs(gamma * c * columns).max())
    columns, rows = (np.exp2(np.round(np.log2(part))) for part in (columns, rows))
    gamma = float(np.exp2(np.round(np.log2(gamma))))
    matrix = sp.csr_array(sp.diags_array(rows) @ M @ sp.diags_array(columns / size))
    sides = (rows * r / size, equalities, lower / columns, upper / columns)
    return Quadratic(gamma * c * columns, gamma * q * columns**2, matrix, *sides), Units(columns, rows / (gamma * size))


def usual_size(program: Quadratic) -> float:
    """A power of two: the size of decisions that right-hand sides speak of, or else bounds, or else costs."""
    lengths = np.sqrt(np.asarray(program.matrix.multiply(program.matrix).sum(axis=1)).reshape(-1))
    ends = np.abs(np.concatenate([program.lower, program.upper]))
    for sizes in (np.abs(program.right) / np.where(lengths > 0, lengths, 1.0), ends, np.abs(program.c) / program.q):
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if len(sizes):
            return float(np.exp2(np.round(np.median(np.log2(sizes)))))
    return 1.0


class System:
    """Θ x + Mᵀy = first,  M x − ratio · y = second."""

    def __init__(self, matrix: sp.csr_array, regularization: float) -> None:
        self.rows, self.n = matrix.shape
        self.extra = regularization
        self.matrix, self.transposed = matrix, sp.csr_array(matrix.T)
        total = self.n + self.rows
        corners = sp.csr_array((self.n, self.n)), sp.csr_array((self.rows, self.rows))
        around = sp.block_array([[corners[0], self.transposed], [self.matrix, corners[1]]])
        self.held = sp.csc_array(around + sp.eye_array(total))
        self.held.sort_indices()
        self.diagonal = np.flatnonzero(self.held.indices == np.repeat(np.arange(total), np.diff(self.held.indptr)))

    def factorize(self, theta: np.ndarray, ratio: np.ndarray) -> None:
        self.theta, self.ratio = theta, ratio
        for extra in (self.extra, 1e2 * self.extra, 1e4 * self.extra, 1e6 * self.extra):
            self.held.data[self.diagonal] = np.concatenate([theta + extra, -ratio - extra])
            try:
                self.factor = splu(self.held, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=SYMMETRIC)
                return
            except RuntimeError:  # singular, as far as numbers tell
                continue
        raise FloatingPointError("the augmented system is singular")

    def solve(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x and y, refined while that halves the error."""
        x, y = np.zeros(self.n), np.zeros(self.rows)
        error, least, best = np.concatenate([first, second]), np.inf, (x, y)
        for _ in range(REFINEMENTS):
            step = self.factor.solve(error)
            x, y = x + step[: self.n], y + step[self.n :]
            left = first - self.theta * x - self.transposed @ y, second - self.matrix @ x + self.ratio * y
            error = np.concatenate(left)
            size = np.abs(error).max(initial=0.0)
            if size < least:
                best = x, y
            if not size < 0.5 * least:
                break
            least = size
        return best


class InteriorPoint:
    """Of a balanced program: `run` gives the last point."""

    def __init__(self, program: Quadratic, regularization: float) -> None:
        self.program, self.slack = program, program.inequality
        self.below, self.above = np.isfinite(program.lower), np.isfinite(program.upper)
        self.low, self.high = np.where(self.below, program.lower, 0.0), np.where(self.above, program.upper, 0.0)
        self.count = max(int(self.below.sum() + self.above.sum() + self.slack.sum()), 1)
        self.system = System(program.matrix, regularization)

    def start(self) -> Point:
        """Clarabel's: the solution with a price of one on every gap and slack, moved to where all of them are positive."""
        below, above, slack = self.below, self.above, self.slack
        self.system.factorize(self.program.q + below + above, slack.astype(float))
        w, y = self.system.solve(-self.program.c + self.low + self.high, self.program.right)
        gl, gu, s = np.ones_like(w), np.ones_like(w), np.zeros_like(y)
        zl, zu = np.zeros_like(w), np.zeros_like(w)
        gl[below], gu[above], s[slack] = (
            _positive((w - self.low)[below]),
            _positive((self.high - w)[above]),
            _positive(-y[slack]),
        )
        zl[below], zu[above], y[slack] = (
            _positive((self.low - w)[below]),
            _positive((w - self.high)[above]),
            _positive(y[slack]),
        )
        return Point(w, gl, zl, gu, zu, s, y)

    def run(self, ends: float) -> Iterator[Point]:
        """Point after point, until there is nothing more to gain, or `time.monotonic` is at `ends`."""
        program, below, above, slack = self.program, self.below, self.above, self.slack
        point = self.start()
        for _ in range(STEPS):
            w, gl, zl, gu, zu, s, y = point
            rd = program.q * w + program.c + self.system.transposed @ y - zl + zu
            rp = program.right - program.matrix @ w - s
            rl, ru = np.where(below, self.low - w + gl, 0.0), np.where(above, self.high - w - gu, 0.0)
            tau = self.complementarity(point)
            primal = max(np.abs(part).max(initial=0.0) for part in (rp, rl, ru)) / (1 + np.abs(w).max(initial=0.0))
            dual = np.abs(rd).max(initial=0.0) / (1 + np.abs(y).max(initial=0.0))
            if max(primal, dual, tau) <= CLOSE:
                yield point
            if tau <= NOTHING or time.monotonic() > ends:
                break
            price = np.where(slack, y, 1.0)
            self.system.factorize(program.q + zl / gl + zu / gu, np.where(slack, s / price, 0.0))

            def direction(tl: np.ndarray, tu: np.ndarray, ts: np.ndarray) -> Point:
                first = -rd + (tl + zl * rl) / gl - (tu - zu * ru) / gu  # noqa: B023
                dw, dy = self.system.solve(first, rp - np.where(slack, ts / price, 0.0))  # noqa: B023
                dgl, dgu = np.where(below, dw - rl, 0.0), np.where(above, ru - dw, 0.0)  # noqa: B023
                dzl, dzu = (tl - zl * dgl) / gl, (tu - zu * dgu) / gu  # noqa: B023
                return Point(dw, dgl, dzl, dgu, dzu, np.where(slack, (ts - s * dy) / price, 0.0), dy)  # noqa: B023

            guess = direction(-gl * zl, -gu * zu, -s * np.where(slack, y, 0.0))
            after = self.complementarity(moved(point, guess, self.length(point, guess)))
            target = tau * min(max(after, 0.0) / tau, 1.0) ** 3 if tau > 0 else 0.0
            step = direction(
                np.where(below, target - gl * zl - guess.gl * guess.zl, 0.0),
                np.where(above, target - gu * zu - guess.gu * guess.zu, 0.0),
                np.where(slack, target - s * y - guess.s * guess.y, 0.0),
            )
            if not all(np.isfinite(part).all() for part in step):
                break
            point = moved(point, step, TOWARDS_BOUNDARY * self.length(point, step))

    def complementarity(self, point: Point) -> float:
        total = point.gl @ point.zl + point.gu @ point.zu + point.s @ np.where(self.slack, point.y, 0.0)
        return float(total) / self.count

    def length(self, point: Point, step: Point) -> float:
        """How far all gaps, slacks and prices stay positive, at most 1 / TOWARDS_BOUNDARY."""
        least = 1 / TOWARDS_BOUNDARY
        for where, names in ((self.below, ("gl", "zl")), (self.above, ("gu", "zu")), (self.slack, ("s", "y"))):
            for name in names:
                value, move = getattr(point, name)[where], getattr(step, name)[where]
                least = min(least, float((-value[move < 0] / move[move < 0]).min(initial=np.inf)))
        return least


def moved(point: Point, step: Point, far: float) -> Point:
    return Point(*(value + far * move for value, move in zip(point, step, strict=True)))


def _positive(gap: np.ndarray) -> np.ndarray:
    least = float(gap.min(initial=np.inf))
    return gap if least > 1e-3 else gap + (1.0 - least)


class Face(NamedTuple):
    """at: −1 or 1 where a variable is at its lower or upper bound, else 0, `(n,)`; binding: rows in force, `(rows,)`."""

    at: np.ndarray
    binding: np.ndarray

    @classmethod
    def of(cls, program: Quadratic, point: Point) -> Face:
        lower = np.isfinite(program.lower) & (point.gl < point.zl)
        upper = np.isfinite(program.upper) & (point.gu < point.zu) & ~lower
        return cls(upper.astype(int) - lower, ~program.inequality | (point.y > point.s))

    def snapped(self, program: Quadratic, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """w and y of a point, with what is on the face exactly there."""
        w = np.where(self.at < 0, program.lower, np.where(self.at > 0, program.upper, point.w))
        return w, np.where(self.binding, point.y, 0.0)

    def corrected(
        self, program: Quadratic, w: np.ndarray, y: np.ndarray, regularization: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """w and y moved to where rows in force hold and costs of variables inside vanish, by as little as that takes."""
        inside, rows = np.flatnonzero(self.at == 0), np.flatnonzero(self.binding)
        system = System(sp.csr_array(program.matrix[rows][:, inside]), regularization)
        system.factorize(program.q[inside], np.zeros(len(rows)))
        slope = program.c + program.q * w + program.matrix.T @ y
        dw, dy = system.solve(-slope[inside], (program.right - program.matrix @ w)[rows])
        w, y = w.copy(), y.copy()
        w[inside] += dw
        y[rows] += dy
        return w, y
