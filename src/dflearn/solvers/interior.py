"""An interior-point method for one convex quadratic program, in units of about one, and its last digits on the face.

Mehrotra's predictor and corrector on the sparse system in (w, prices, R w), with Q = RᵀR + diag(δ) never formed. `convex` judges
what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.linalg import splu

from dflearn.program.sides import Sides
from dflearn.solvers.scaling import power_of_two

if TYPE_CHECKING:
    from dflearn.solvers.convex import ConvexQP

STEPS = 100  # of the interior-point method
STALLED = 8  # steps without progress before it ends
PRECISE = 1e-12  # relative residual at which it ends
TOWARDS_BOUNDARY = 0.995
REGULARIZATION = 1e-11  # of the factored system, in units of about one; refinement takes it out again
REFINEMENTS = 3
FACES = 6  # corrections of a face
# A bound or row is in force if its multiplier is so many times its gap. Where that is not clear for all of them at the solution, the
# face of those for which it is comes next, then the face of all that may be.
MARGINS = (1.0, 1e4, 1e-4)
NOTHING = 1e-9  # a gap to a bound or to zero, or a price, that may be rounding
DENSE = 160  # unknowns up to which matrices are dense
ROUNDS = 8  # of scaling rows and columns
Solve = Callable[[np.ndarray], np.ndarray]


class Point(NamedTuple):
    """x, prices y, slacks s, multipliers zl and zu of the bounds, and the gaps to those; or a step of them, without gaps."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray
    zl: np.ndarray
    zu: np.ndarray
    gl: np.ndarray = np.zeros(0)
    gu: np.ndarray = np.zeros(0)

    def with_gaps(self, of: Attempt) -> Point:
        """A missing bound has gap 1 and multiplier 0 for good."""
        return self._replace(
            gl=np.where(of.has_lower, self.x - of.lower, 1.0), gu=np.where(of.has_upper, of.upper - self.x, 1.0)
        )

    def moved(self, step: Point, length: float, of: Attempt) -> Point:
        both = zip(self[:5], step[:5], strict=True)
        return Point(*(own + length * change for own, change in both)).with_gaps(of)

    def divisor(self, inequality: np.ndarray) -> np.ndarray:
        """The prices of inequalities, which are positive; 1 elsewhere."""
        return np.where(inequality, self.y, 1.0)

    def gap(self, of: Attempt) -> float:
        return float(self.gl @ self.zl + self.gu @ self.zu + self.s @ np.where(of.inequality, self.y, 0.0))

    def residual(self, of: Attempt) -> float:
        """The largest relative error of stationarity, rows and complementarity."""
        slope, missing = of.slope(self.x, self.y) - self.zl + self.zu, of.right - of.M @ self.x - self.s
        prices = max(np.abs(of.c).max(initial=0.0), np.abs(self.y).max(initial=0.0))
        value = float(of.c @ self.x + 0.5 * (self.x @ of.curve(self.x)))
        worst: float = max(
            float(np.abs(slope).max(initial=0.0)) / (1.0 + prices),
            float(np.abs(missing).max(initial=0.0)) / (1.0 + float(np.abs(self.x).max(initial=0.0))),
            self.gap(of) / of.count / (1.0 + abs(value)),
        )
        return worst


class Attempt:
    """One instance in units of about one: w = size · columns · x, prices likewise. Fixed variables are taken out."""

    def __init__(self, solver: ConvexQP, c: np.ndarray, sides: Sides) -> None:
        self.solver, self.sides = solver, sides
        columns, rows = solver.columns, solver.rows
        right = np.concatenate([sides.b, sides.h]) * rows
        lower, upper = sides.lower / columns, sides.upper / columns
        c = c * columns
        self.size = _size(right, lower, upper, c, solver)
        curved = max(float(solver.delta.max(initial=0.0)), float((solver.curves - solver.delta).max(initial=0.0)))
        most = max(float(np.abs(c).max(initial=0.0)), curved * self.size)
        self.unit = float(power_of_two(np.array(most))) * self.size if most > 0 else 1.0  # of the objective
        scale = self.size / self.unit
        free = np.flatnonzero(lower < upper)
        self.free, self.base = free, np.where(lower < upper, 0.0, lower) / self.size
        root = np.sqrt(scale * self.size)
        self.M, self.R = (
            (solver.M, solver.R * root) if solver.dense is None else (solver.dense[0], solver.dense[1] * root)
        )
        self.delta, self.c = solver.delta * scale * self.size, c * scale
        self.right, self.lower, self.upper = right / self.size, lower / self.size, upper / self.size
        held = self.base
        if len(free) < len(c):
            self.right = self.right - self.M @ held
            self.c = (self.c + self.R.T @ (self.R @ held) + self.delta * held)[free]
            self.M, self.R, self.delta = self.M[:, free], self.R[:, free], self.delta[free]
            self.lower, self.upper = self.lower[free], self.upper[free]
        self.inequality = np.arange(len(self.right)) >= solver.equalities
        self.kept = filled(self.M)
        if not self.kept.all():  # rows of fixed variables alone say nothing here; the certificate looks at them
            self.M, self.right, self.inequality = self.M[self.kept], self.right[self.kept], self.inequality[self.kept]
        self.n, self.m, self.k = len(free), len(self.right), self.R.shape[0]
        self.has_lower, self.has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        self.count = max(int(self.has_lower.sum() + self.has_upper.sum() + self.inequality.sum()), 1)

    # -- back to the user's units -----------------------------------------------------------------------------------

    def outwards(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        whole, prices = self.base.copy(), np.zeros(len(self.kept))
        whole[self.free], prices[self.kept] = x, y
        return whole * self.size * self.solver.columns, -prices * self.solver.rows * self.unit / self.size

    def points(self, time_limit: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Decisions with prices, in the user's units: the interior point, then what its faces give."""
        if not self.n:
            yield self.outwards(np.zeros(0), np.zeros(self.m))
            return
        with np.errstate(all="ignore"):
            point = self.interior_point(time_limit)
            if point is None:
                return
            yield self.outwards(point.x, point.y)
            for margin in MARGINS:
                x, y, low, high = point.x, point.y, point.zl > margin * point.gl, point.zu > margin * point.gu
                force = ~self.inequality | (point.y > margin * point.s)
                for _ in range(FACES):
                    found = self.on_face(x, y, low, high, force)
                    if found is None:
                        break
                    x, y, low, high, force = found
                    yield self.outwards(x, y)
                yield self.outwards(*self.rounded(x, y))
            yield self.outwards(*self.rounded(point.x, point.y))

    def rounded(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is next to nothing set to nothing: where all terms of a row or of a reduced cost are zero, they cannot be met
        but to the last digit."""
        for value in (self.lower, self.upper, np.zeros(self.n)):
            x = np.where(np.abs(x - value) <= NOTHING, value, x)
        most = max(np.abs(self.c).max(initial=0.0), np.abs(y).max(initial=0.0))
        return x, np.where(np.abs(y) <= NOTHING * most, 0.0, y)

    # -- linear algebra ---------------------------------------------------------------------------------------------

    def system(self, diagonal: np.ndarray, ratio: np.ndarray, M: Any, R: Any) -> Solve:
        """A solver of  [D Mᵀ Rᵀ; M −S 0; R 0 −I] (dx, dy, dt) = right-hand side, D and S diagonal; refined."""
        below = np.concatenate([-ratio, -np.ones(R.shape[0])])
        more = np.concatenate([np.full(len(diagonal), REGULARIZATION), np.full(len(below), -REGULARIZATION)])
        if not len(more):
            return np.copy  # nothing is left to solve for
        K: Any
        apply: Solve
        if isinstance(M, np.ndarray):
            n, whole = len(diagonal), np.concatenate([diagonal, below])
            K = np.diag(whole)
            K[n:, :n] = np.concatenate([M, R])
            K[:n, n:] = K[n:, :n].T
            factor, order, _ = dgetrf(K + np.diag(more))
            apply = lambda v: dgetrs(factor, order, v)[0]  # noqa: E731
        else:
            sides = [[sp.diags_array(diagonal), sp.hstack([M.T, R.T])], [sp.vstack([M, R]), sp.diags_array(below)]]
            K = sp.csc_array(sp.block_array(sides))
            options = {"SymmetricMode": True}
            lu = splu(sp.csc_array(K + sp.diags_array(more)), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
            apply = lu.solve

        def solve(v: np.ndarray) -> np.ndarray:
            z: np.ndarray = apply(v)
            for _ in range(REFINEMENTS):
                z = z + apply(v - K @ z)
            return z

        return solve

    # -- the interior-point method ----------------------------------------------------------------------------------

    def interior_point(self, time_limit: float) -> Point | None:
        """The best point that it comes to; prices y are ≥ 0 on inequalities."""
        begun, ineq = perf_counter(), self.inequality
        point = self.start()
        best: Point | None = None
        least, since = np.inf, 0
        for _ in range(STEPS):
            now = point.residual(self)
            if not np.isfinite(now):
                break
            if now < least:
                since = since if now > 0.5 * least else 0
                best, least = point, now
            since += 1
            if least <= PRECISE or since > STALLED or perf_counter() - begun > time_limit:
                break
            theta = self.delta + point.zl / point.gl + point.zu / point.gu
            try:
                solve = self.system(theta, np.where(ineq, point.s / point.divisor(ineq), 0.0), self.M, self.R)
            except (RuntimeError, ValueError):
                break
            # Predictor: straight to complementarity zero. Corrector: to a share of it that depends on how far that got.
            zero = np.zeros(self.n)
            ahead = self.step(point, solve, zero, zero, np.zeros(self.m))
            gap = point.gap(self)
            share = max(point.moved(ahead, self.length(point, ahead), self).gap(self) / gap, 0.0) if gap > 0 else 0.0
            aim = share**3 * gap / self.count
            move = self.step(
                point,
                solve,
                (aim - ahead.x * ahead.zl) * self.has_lower,
                (aim + ahead.x * ahead.zu) * self.has_upper,
                np.where(ineq, aim - ahead.s * ahead.y, 0.0),
            )
            point = point.moved(move, min(TOWARDS_BOUNDARY * self.length(point, move), 1.0), self)
        return best

    def start(self) -> Point:
        low, high = np.where(self.has_lower, self.lower, 0.0), np.where(self.has_upper, self.upper, 0.0)
        room = np.where(self.has_lower & self.has_upper, np.minimum(1.0, 0.5 * (high - low)), 1.0)
        x = np.where(self.has_lower, np.maximum(low + room, 0.0), 0.0)
        x = np.where(self.has_upper, np.minimum(high - room, x), x)
        s = np.where(self.inequality, np.maximum(self.right - self.M @ x, 1.0), 0.0)
        return Point(x, self.inequality * 1.0, s, self.has_lower * 1.0, self.has_upper * 1.0).with_gaps(self)

    def step(self, at: Point, solve: Solve, tl: np.ndarray, tu: np.ndarray, ts: np.ndarray) -> Point:
        """Newton's step towards gl zl = tl, gu zu = tu, s y = ts."""
        slope = self.slope(at.x, at.y) - at.zl + at.zu
        missing = self.right - self.M @ at.x - at.s
        pull_l, pull_u = tl / at.gl - at.zl, tu / at.gu - at.zu
        own, prices = (
            np.where(self.inequality, ts / at.divisor(self.inequality) - at.s, 0.0),
            at.divisor(self.inequality),
        )
        found = solve(np.concatenate([-slope + pull_l - pull_u, missing - own, np.zeros(self.k)]))
        dx, dy = found[: self.n], found[self.n : self.n + self.m]
        ds = np.where(self.inequality, own - at.s * dy / prices, 0.0)
        return Point(
            dx, dy, ds, pull_l - at.zl / at.gl * dx * self.has_lower, pull_u + at.zu / at.gu * dx * self.has_upper
        )

    def length(self, at: Point, move: Point) -> float:
        """The share of a step that leads to the boundary, at most 1."""
        worst = 1.0
        for value, change, there in (
            (at.gl, move.x, self.has_lower),
            (at.gu, -move.x, self.has_upper),
            (at.zl, move.zl, self.has_lower),
            (at.zu, move.zu, self.has_upper),
            (at.s, move.s, self.inequality),
            (at.y, move.y, self.inequality),
        ):
            falls = there & (change < 0)
            if falls.any():
                worst = max(worst, float((-change[falls] / value[falls]).max()))
        return 1.0 / worst

    def curve(self, x: np.ndarray) -> np.ndarray:
        """Q x."""
        product: np.ndarray = self.R.T @ (self.R @ x) + self.delta * x
        return product

    def slope(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """c + Q x + Mᵀy."""
        total: np.ndarray = self.c + self.curve(x) + self.M.T @ y
        return total

    # -- the face ---------------------------------------------------------------------------------------------------

    def on_face(
        self, x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray, force: np.ndarray
    ) -> tuple[np.ndarray, ...] | None:
        """The optimum with what is in force as equations, and what is in force there; `None` where that changes nothing."""
        inside = ~(low | high)
        at = np.where(low, self.lower, np.where(high, self.upper, 0.0))
        M, R = self.M[:, inside], self.R[:, inside]
        # A row without a variable inside says nothing about its price here: that stays what it was, as do those of rows
        # that depend on each other, as far as they may.
        solved = force & filled(M)
        held, prices = at * ~inside, np.where(force, y, 0.0)
        constant = self.c + self.curve(held) + self.M.T @ prices
        missing = self.right[solved] - self.M[solved] @ held
        try:
            solve = self.system(self.delta[inside], np.zeros(int(solved.sum())), M[solved], R)
            found = solve(np.concatenate([-constant[inside], missing, np.zeros(self.k)]))
        except (RuntimeError, ValueError):
            return None
        if not np.isfinite(found).all():
            return None
        inner, new = int(inside.sum()), at.copy()
        new[inside] = found[:inner]
        prices[solved] += found[inner : inner + int(solved.sum())]
        slope = self.slope(new, prices)
        # What leaves its bounds is held there, what its slope or price pulls off comes free, what breaks comes into force.
        below, above = inside & (new < self.lower), inside & (new > self.upper)
        left = self.right - self.M @ new
        broken, idle = ~force & (left < 0), force & self.inequality & (prices < 0)
        next_low = (low & ~(slope < 0)) | below
        next_high = (high & ~(slope > 0)) | above
        next_force = (force & ~idle) | broken
        prices = np.where(self.inequality, np.maximum(prices, 0.0), prices)
        return np.clip(new, self.lower, self.upper), prices, next_low, next_high, next_force


def filled(M: Any) -> np.ndarray:
    """Which rows of a dense or sparse matrix have entries."""
    if isinstance(M, np.ndarray):
        return np.asarray(M.any(axis=1))
    return np.bincount(sp.csc_array(M).indices, minlength=M.shape[0]) > 0


def equilibrated(R: sp.csr_array, delta: np.ndarray, M: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two for columns and rows that bring the entries of [Q Mᵀ; M 0] to about one (Ruiz)."""
    Q = abs(R).T @ abs(R) if R.shape[1] <= 2000 else sp.diags_array(np.asarray((R**2).sum(axis=0)).ravel())
    Q, sizes = sp.csr_array(Q + sp.diags_array(delta)), abs(M)
    own = Q.diagonal()
    Q = Q / np.median(own[own > 0]) if own.any() else Q  # the unit of costs is another matter
    columns, rows = np.ones(len(delta)), np.ones(M.shape[0])

    def largest(matrix: Any, axis: int) -> np.ndarray:
        if not matrix.nnz:
            return np.zeros(matrix.shape[1 - axis])
        return np.asarray(sp.csr_array(matrix).max(axis=axis).toarray()).ravel()

    for _ in range(ROUNDS):
        scaled_M = sp.diags_array(rows) @ sizes @ sp.diags_array(columns)
        scaled_Q = sp.diags_array(columns) @ Q @ sp.diags_array(columns)
        by_column = np.maximum(largest(scaled_M, 0), largest(scaled_Q, 0))
        by_row = largest(scaled_M, 1)
        columns = columns / np.sqrt(np.where(by_column > 0, by_column, 1.0))
        rows = rows / np.sqrt(np.where(by_row > 0, by_row, 1.0))
    return power_of_two(columns), power_of_two(rows)


def _size(right: np.ndarray, lower: np.ndarray, upper: np.ndarray, c: np.ndarray, solver: ConvexQP) -> float:
    """About how large decisions are: what sides force upon them, or name, or how far costs pull them."""
    inequality = np.arange(len(right)) >= solver.equalities
    forced = np.concatenate([np.where(inequality, -right, np.abs(right)), lower, -upper])
    named = np.abs(np.concatenate([right, lower, upper]))
    pulled = np.abs(c[solver.curves > 0]) / solver.curves[solver.curves > 0]
    for sizes in (forced, named[np.isfinite(named)], pulled):
        if (size := float(sizes.max(initial=0.0))) > 0:
            return float(power_of_two(np.array(size)))
    return 1.0
