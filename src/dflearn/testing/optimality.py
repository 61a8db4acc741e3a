"""Is this answer optimal? An independent check, written without the kernels and without any solver's own tolerances.

The answer w is meant to solve, for one instance,

    min over w of cᵀw + ½ wᵀQ w + Ω(w)    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,

with Ω = 0, (μ/2)‖w‖² or μ‖w‖₂. With M = [A; G] and a price y_i for each row (y_i ≤ 0 for an inequality), the reduced
costs are r = c + Q w + ∇Ω(w) − Mᵀy (below, ∇Ω stands for both). Each residual is relative to the terms of its own row or variable, never to those of
others, so that the units of costs, rows and decisions do not matter:

    row i:        violation_i / (|b_i| + Σ_j |a_ij w_j|)
    variable j:   |r_j| / (|c_j| + |∇Ω_j| + Σ_i |a_ij y_i|), or how near w_j is to the bound that r_j points to, if less
    inequality i: how large its price is in the sums above, or slack_i / (|b_i| + Σ_j |a_ij w_j|), if less

w_j is near a bound if the distance is small beside |w_j| + |bound|, or if moving w_j onto the bound would change no row,
nor the objective, by much of its own terms. A row or a bound whose terms are all rounding noise of the decision's size
counts as satisfied, and as binding; that size is max |w|, and at least the smallest length that bounds and right-hand sides name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.optimize import lsq_linear

from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Solution, Status

ROUNDING = 64 * float(np.finfo(np.float64).eps)
ACTIVE = 1e-6  # how near a row or bound must be to bind, for the search for prices
ROUNDS = 4  # of least squares: the weights depend on the prices that they give

Regularizer = Literal["squared", "norm"]


class Residuals(NamedTuple):
    """Relative residuals of one answer, and the prices that they were measured with.

    Attributes:
        rows: violation of each row, equations first, `(rows,)`.
        bounds: violation of each variable's bounds, `(n,)`.
        stationarity: of each variable, complementarity with its bounds included, `(n,)`.
        complementarity: of each row, zero for equations, `(rows,)`.
        multipliers: the prices y, `(rows,)`.
    """

    rows: np.ndarray
    bounds: np.ndarray
    stationarity: np.ndarray
    complementarity: np.ndarray
    multipliers: np.ndarray

    @property
    def worst(self) -> float:
        return max(float(part.max(initial=0.0)) for part in self[:4])


def kkt_residuals(
    w: np.ndarray,
    c: np.ndarray,
    program: Program,
    sides: Sides | None = None,
    *,
    mu: float = 0.0,
    regularizer: Regularizer = "squared",
    multipliers: np.ndarray | None = None,
    rounding: float = ROUNDING,
    size: float | None = None,
) -> Residuals:
    """The residuals of w `(n,)` as an answer to costs c `(n,)`.

    Args:
        sides: right-hand sides and bounds of this instance, each `(k,)`; by default the program's.
        mu, regularizer: Ω; none for μ = 0.
        multipliers: the prices y `(rows,)`; by default the best ones, by bounded least squares on what binds at w.
        rounding: errors of w beside its size that count as none; larger for an answer that was stored in float32.
        size: how large decisions are, if they are larger than w; by default the smallest length in bounds and sides.

    Examples:
        >>> costs, decision = data.costs[0].numpy(), data.decisions[0].numpy()
        >>> dfl.testing.kkt_residuals(decision, costs, program).worst < 1e-6
        True
    """
    w, c = np.asarray(w, np.float64), np.asarray(c, np.float64)
    check = _Check(w, c, program, program.own_sides if sides is None else sides, rounding, size)
    if not np.isfinite(w).all():
        rows, variables = (np.full(len(part), np.inf) for part in (check.right, w))
        return Residuals(rows, variables, variables, rows, np.zeros(len(rows)))
    length = float(np.linalg.norm(w))
    if mu and regularizer == "norm" and not length:
        return check.at_the_kink(mu, multipliers)
    slope = np.zeros_like(w) if not mu else mu * w if regularizer == "squared" else mu * w / length
    if program.Q is not None:
        slope = slope + program.Q.matrix @ w
    y = check.prices(slope) if multipliers is None else check.signed(np.asarray(multipliers, np.float64))
    return check.residuals(slope, y)


def check_optimal(
    solution: Solution,
    y: torch.Tensor,
    program: Program,
    instance: Instance | None = None,
    *,
    mu: float = 0.0,
    regularizer: Regularizer = "squared",
    tolerance: float = 1e-6,
) -> None:
    """Raise an `AssertionError` for the first instance that is called OPTIMAL and is not: y `(*batch, p)`, continuous w.

    With `mu`, of the program with (μ/2)‖w‖² or, by `regularizer`, μ‖w‖ added. No error may be above `tolerance`.

    Examples:
        >>> solution = dfl.HiGHS(program).solve(data.costs)
        >>> dfl.testing.check_optimal(solution, data.costs, program)
    """
    c = program.objective.vector(y.detach().double(), instance).reshape(-1, program.n).cpu().numpy()
    w = solution.decision.detach().double().reshape(-1, program.n).cpu().numpy()
    sides, status = program.sides(program.realize(y.detach(), instance), len(c)), solution.status.reshape(-1).tolist()
    rounding = 8 * float(torch.finfo(solution.decision.dtype).eps)
    for i in np.flatnonzero(np.equal(status, int(Status.OPTIMAL))):
        found = kkt_residuals(w[i], c[i], program, sides.row(i), mu=mu, regularizer=regularizer, rounding=rounding)
        for what, part in zip(Residuals._fields[:4], found, strict=False):
            assert part.max(initial=0.0) <= tolerance, (
                f"instance {i} is called OPTIMAL, but its residual in {what} is {part.max():.2g} at {part.argmax()}"
            )


class _Check:
    """One instance and an answer to it. Rows are equations, then inequalities."""

    def __init__(
        self, w: np.ndarray, c: np.ndarray, program: Program, sides: Sides, rounding: float, size: float | None
    ) -> None:
        self.w, self.c, self.lower, self.upper = w, c, sides.lower, sides.upper
        self.matrix = np.concatenate([program.A.toarray(), program.G.toarray()])
        self.sizes = abs(self.matrix)
        self.entry = self.sizes.max(axis=1, initial=0.0)  # the largest of each row
        self.right = np.concatenate([sides.b, sides.h])
        self.free = np.arange(len(self.right)) < program.A.shape[0]  # equations: prices of either sign
        with np.errstate(invalid="ignore", over="ignore"):
            self.slack = self.right - self.matrix @ w
            self.terms = np.abs(self.right) + self.sizes @ np.abs(w)
            self.size = max(float(np.abs(w).max(initial=0.0)), self._smallest_length() if size is None else size)
            self.noise = rounding * self.size
            self.value = float(np.abs(c) @ np.abs(w))
            self.silent = self.terms <= self.noise * self.sizes.sum(axis=1)  # rows that are 0 = 0, up to rounding
        self.rounding = rounding

    def _smallest_length(self) -> float:
        """The smallest length that bounds and right-hand sides name: the size of a decision that is zero itself."""
        lengths = np.abs(np.concatenate([self.lower, self.upper, self.right / self.entry]))
        lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
        return float(lengths.min(initial=np.inf)) if lengths.size else 0.0

    def signed(self, y: np.ndarray) -> np.ndarray:
        return np.where(self.free, y, np.minimum(y, 0.0))

    def near(self, bound: np.ndarray, r: np.ndarray) -> np.ndarray:
        """How near w is to a bound, for each variable with reduced cost r; inf where the bound is."""
        distance = np.abs(np.where(np.isfinite(bound), self.w - bound, np.inf))
        own = np.abs(self.w) + np.abs(np.where(np.isfinite(bound), bound, 0.0))
        with np.errstate(invalid="ignore"):
            alone = np.where(own <= self.noise, 0.0, _ratio(distance, own))
            alone[np.isinf(distance)] = np.inf
            effect = _ratio(np.abs(r) * distance, np.full_like(distance, self.value))
            moves = np.isfinite(distance) & (distance > 0)
            effect[moves] = np.maximum(effect, self.moved * distance)[moves]
        return np.minimum(alone, np.where(np.isinf(distance), np.inf, effect))

    @cached_property
    def moved(self) -> np.ndarray:
        """By how much of its own terms a move of w_j by one changes the row that it changes most, `(n,)`."""
        shares = _ratio(np.ones(len(self.terms)), self.terms)[:, None]
        with np.errstate(invalid="ignore"):
            return np.where(self.sizes > 0, self.sizes * shares, 0.0).max(axis=0, initial=0.0)

    def violations(self) -> tuple[np.ndarray, np.ndarray]:
        """Of rows and of bounds, relative."""
        broken = np.where(self.free, np.abs(self.slack), np.maximum(-self.slack, 0.0))
        rows = np.where(self.silent, 0.0, _ratio(broken, self.terms))
        bounds = np.zeros_like(self.w)
        for bound, outside in ((self.lower, self.w < self.lower), (self.upper, self.w > self.upper)):
            if outside.any():
                bounds[outside] = self.near(bound, self.c)[outside]
        return rows, bounds

    def prices(self, slope: np.ndarray, fixed: np.ndarray | None = None) -> np.ndarray:
        """y and z of least ‖(g − Mᵀy − z)/scale‖, where z_j ≥ 0 at a lower bound, ≤ 0 at an upper one, else 0.

        The scale is that of each variable's terms, unless it is given as `fixed`.
        """
        g, rows = self.c + slope, len(self.right)
        binds = self.free | self.silent | (self.slack <= ACTIVE * self.terms)
        low, high = (self.near(bound, g) <= ACTIVE for bound in (self.lower, self.upper))
        held = np.flatnonzero(low | high)
        columns = np.hstack([self.matrix[binds].T, np.eye(len(g))[:, held]])
        y = np.zeros(rows)
        if not columns.shape[1]:
            return y
        at_least = np.concatenate([np.full(int(binds.sum()), -np.inf), np.where(high, -np.inf, 0.0)[held]])
        at_most = np.concatenate([np.where(self.free, np.inf, 0.0)[binds], np.where(low, np.inf, 0.0)[held]])
        scale = self._first_scale(slope) if fixed is None else fixed
        best, least = y, np.inf
        for _ in range(ROUNDS):
            weighted = columns / scale[:, None]
            unit = np.linalg.norm(weighted, axis=0)
            unit[unit == 0] = 1.0
            steps = 10 * columns.shape[1] + 100
            found = lsq_linear(weighted / unit, g / scale, (at_least, at_most), "bvls", 1e-15, max_iter=steps)
            y = np.zeros(rows)
            y[binds] = (found.x / unit)[: int(binds.sum())]
            y = self.signed(y)
            if fixed is not None:
                return y
            worst = self.residuals(slope, y).worst
            if worst < least:
                best, least = y, worst
            scale = np.maximum(np.abs(self.c) + np.abs(slope) + self.sizes.T @ np.abs(y), 1e-12 * scale)
        return best

    def _first_scale(self, slope: np.ndarray) -> np.ndarray:
        """|c_j| + |∇Ω_j|; where that is nothing, what the typical price would make of the column."""
        own = np.abs(self.c) + np.abs(slope)
        own[own <= self.rounding * own.max(initial=0.0)] = 0.0
        length = np.sqrt((self.matrix * self.matrix).sum(axis=0))
        known = (own > 0) & (length > 0)
        price = float(np.median(own[known] / length[known])) if known.any() else 1.0
        typical = float(np.median(own[own > 0])) if (own > 0).any() else 1.0
        return np.where(own > 0, own, np.where(length > 0, price * length, typical))

    def residuals(self, slope: np.ndarray, y: np.ndarray) -> Residuals:
        # A price, or a reduced cost, whose worth in units of the objective is rounding noise is none.
        worth = np.abs(y) * np.maximum(self.terms, self.size * self.entry)
        noise = self.rounding * (self.value + float(np.abs(slope) @ np.abs(self.w)) + float(worth.sum()))
        y = np.where((worth > 0) & (worth <= noise), 0.0, y)
        r = self.c + slope - self.matrix.T @ y
        scale = np.abs(self.c) + np.abs(slope) + self.sizes.T @ np.abs(y)
        stationarity = np.where(np.abs(r) * self.size <= noise, 0.0, _ratio(np.abs(r), scale))
        for bound, points in ((self.lower, r > 0), (self.upper, r < 0)):
            stationarity[points] = np.minimum(stationarity, self.near(bound, r))[points]
        share = np.where(scale > 0, _ratio(np.ones_like(scale), scale), 0.0)
        largest = (self.sizes * np.abs(y)[:, None] * share).max(axis=1, initial=0.0)
        loose = np.where(self.free | self.silent, 0.0, _ratio(np.maximum(self.slack, 0.0), self.terms))
        rows, bounds = self.violations()
        return Residuals(rows, bounds, stationarity, np.minimum(largest, loose), y)

    def at_the_kink(self, mu: float, multipliers: np.ndarray | None) -> Residuals:
        """w = 0 under μ‖w‖₂ is stationary where some v with ‖v‖ ≤ 1 makes c + μ v − Mᵀy − z vanish."""
        zero = np.zeros_like(self.w)
        self.value = mu
        y = self.prices(zero, np.full_like(zero, mu)) if multipliers is None else self.signed(multipliers)
        found = self.residuals(zero, y)
        r = self.c - self.matrix.T @ y
        left = np.where(((r > 0) & (self.lower == 0)) | ((r < 0) & (self.upper == 0)), 0.0, r)
        excess = max(0.0, float(np.linalg.norm(left)) - mu) / (mu + float(np.linalg.norm(left)))
        return found._replace(stationarity=np.full_like(self.w, excess))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, zero where the part is, infinite where only the whole is."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(part == 0, 0.0, part / whole)
