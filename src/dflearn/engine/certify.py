"""What OPTIMAL means: the one rule that every answer passes before a solver or a layer calls it optimal.

An answer is a decision w within its bounds and a price y_i for each row (y_i ≤ 0 for an inequality). It is meant to solve

    min over w of  cᵀw + ½ wᵀQ w   s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper.

With M = (A, G), r = (b, h) and the reduced costs ρ = c + Q w − Mᵀy, its errors are

    row i:         violation_i / t_i,                               t_i = |r_i| + Σ_j |M_ij w_j|
    variable j:    |ρ_j| / s_j, or off_j / max(|w_j|, |bound_j|),   s_j = |c_j| + Σ_k |Q_jk w_k| + Σ_i |M_ij y_i|
    inequality i:  slack_i / t_i, or max_j |M_ij y_i| / s_j         whichever is less, as for variables
    objective:     gap / Σ_j (|c_j| + ½ Σ_k |Q_jk w_k|) |w_j|,      gap = Σ_i |y_i (M w − r)_i| + Σ_j |ρ_j| off_j

where bound_j is the bound that ρ_j presses w_j to, and off_j = |w_j − bound_j|. Prices far beyond all costs cancel, and hide a wrong
reduced cost: where ε Σ_j s_j |w_j| is more than 1e-7 of what all costs amount to, it counts as a gap. Each error is relative to the terms of its own
row or variable: units do not matter. The answer is optimal if all errors are at most `OPTIMAL`.

Rounding is allowed for, and nothing else. Residues of zeros have a relative error of one: they are set to zero first, and the check
decides (`judge`, `tidy`). What is left are sides that were summed from terms of one (h = G w is −9e-16 where 0 is meant). So row i may
also be off by 64 ε Σ_j |M_ij| size_j. The size of variable j is the least of its finite bounds, of the bounds that rows imply, and of the
largest term in the rows in force that it is tied to, in its own units. Without finite bounds it is zero.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.implied import Propagation
from dflearn.engine.limits import DOUBT, NOTHING
from dflearn.program import Program
from dflearn.program.sides import Sides

OPTIMAL = 1e-6  # the largest error of an answer that is called optimal
SURE = 1e-8  # solvers try to mend larger errors
ZERO = 1e-10  # a smaller reduced cost, relative to its terms, does not pull further than |w_j|
ROUNDING = 64 * float(np.finfo(float).eps)
FARTHER = 0.25  # of that, for terms that a variable is tied to by variables at their bounds
RESIDUE = 1e-11  # beside its size, what may be a residue of zero: it is set to zero, if the rule then holds


class Verdict(NamedTuple):
    """Errors `(count,)`: of the worst row, of the worst variable or price, of the objective, and the worst of these; and a lower
    bound on the optimum."""

    primal: np.ndarray
    dual: np.ndarray
    gap: np.ndarray
    error: np.ndarray
    bound: np.ndarray


class Certifier:
    """Checks answers to the relaxation of one program. The matrices are prepared once.

    mu: (μ/2)‖w‖² is added to the objective; one number, or one for each instance.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.equalities = program, program.A.shape[0]
        self.matrix = sp.csr_array(sp.vstack([program.A, program.G], format="csr"))
        self.stored = self.matrix.indptr, self.matrix.indices, self.matrix.data
        self.sizes = abs(self.matrix)
        self.row_of = np.repeat(np.arange(self.matrix.shape[0]), np.diff(self.matrix.indptr))
        diagonal = np.zeros(program.n) if program.Q is None else program.Q.diagonal
        self.diagonal = np.ascontiguousarray(diagonal[None])
        self.has_factor = program.Q is not None and program.Q.factor.nnz > 0

    def check(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float | np.ndarray = 0.0) -> Verdict:
        """The errors of answers without the allowance for rounding.  c, w `(count, n)`, w within its bounds; y `(count, rows)`;
        sides as of `Program.sides`."""
        from dflearn.engine.certify_kernel import check_answers

        right, lower, upper = self._own_lines if sides is self.program.own_sides else _lines(sides)
        out = np.empty((5, len(c)))
        factor = self.factor_terms(w)
        check_answers(
            *self.stored, self.equalities, ZERO, c, factor, self.curve(mu), w, y, right, lower, upper, out
        )  # fmt: skip
        return Verdict(*out)

    def judge(
        self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, Verdict]:
        """`check`, and where an error is above `SURE`, the same without residues of zeros: w, y, and the better verdicts.

        Here all that is small beside the largest term counts as a residue. That may be wrong, and then the check says so.
        """
        verdict = self.check(c, w, y, sides, mu)
        doubtful = np.flatnonzero((verdict.error > SURE) & np.isfinite(w).all(1) & np.isfinite(y).all(1))
        if not doubtful.size:
            return w, y, verdict
        rows, columns = self.scales
        mine, some, prices = sides.rows(doubtful), w[doubtful], y[doubtful]
        largest = ((self.sizes @ np.abs(some).T).T * rows).max(1, initial=0.0)
        dearest = ((np.abs(c[doubtful]) + (self.sizes.T @ np.abs(prices).T).T) * columns).max(1, initial=0.0)
        some, prices = _without_residues(some, prices, mine, np.outer(largest, columns), np.outer(dearest, rows))
        again = self.check(np.ascontiguousarray(c[doubtful]), some, prices, mine, mu)
        better = again.error < verdict.error[doubtful]
        index = doubtful[better]
        w, y = w.copy(), y.copy()
        w[index], y[index] = some[better], prices[better]
        for part, new in zip(verdict, again, strict=True):
            part[index] = new[better]
        return w, y, verdict

    def curve(self, mu: float | np.ndarray) -> np.ndarray:
        """The diagonal part of Q and μ, `(1, n)` or `(count, n)`."""
        if isinstance(mu, float) and mu == 0.0:
            return self.diagonal
        return np.ascontiguousarray(self.diagonal + np.reshape(mu, (-1, 1)))

    def factor_terms(self, w: np.ndarray) -> np.ndarray:
        """RᵀR w and the size of its terms, `(2, count, n)`; of no instances where Q has a diagonal alone."""
        if not self.has_factor:
            return np.empty((2, 0, 0))
        assert self.program.Q is not None
        R = self.program.Q.factor
        return np.stack([(R.T @ (R @ w.T)).T, (abs(R).T @ (abs(R) @ np.abs(w).T)).T])

    @cached_property
    def _own_lines(self) -> tuple[np.ndarray, ...]:
        return _lines(self.program.own_sides)

    @cached_property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Of rows and columns, R and D with R_i |M_ij| D_j near one: sizes in one unit (Curtis and Reid, 1972)."""
        matrix = sp.coo_array(self.sizes)
        kept = matrix.data > 0
        row, column, logs = matrix.coords[0][kept], matrix.coords[1][kept], np.log2(matrix.data[kept])
        count_rows, count_columns = (
            np.maximum(np.bincount(part, minlength=size), 1)
            for part, size in zip((row, column), matrix.shape, strict=True)
        )
        high, low = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[1])
        for _ in range(20):
            high = -np.bincount(row, logs + low[column], len(high)) / count_rows
            low = -np.bincount(column, logs + high[row], len(low)) / count_columns
        return np.exp2(high), np.exp2(low)

    @cached_property
    def propagation(self) -> Propagation:
        return Propagation(self.matrix, self.equalities)

    def implied(self, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
        """The bounds that the rows of one instance imply, `(n,)` each."""
        return self.propagation.bounds(sides.right_hand_sides()[0], sides.lower, sides.upper)

    def examine(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float = 0.0) -> Examination:
        """One answer, c and w `(n,)`, y `(rows,)`, sides of its instance, looked at closely."""
        return Examination(self, c, w, y, sides, mu)

    def tidy(
        self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, Verdict]:
        """One answer, as of `examine`, without residues of zeros where that makes it better: w, y, and the verdict.

        Unlike in `judge`, each variable and price is compared with the terms that it is tied to.
        """
        some, prices, verdict = self.judge(c[None], w[None], y[None], sides, mu)
        w, y = some[0], prices[0]
        if verdict.error[0] > SURE and np.isfinite(w).all() and np.isfinite(y).all():
            tidied = self.examine(c, w, y, sides, mu).tidied()
            again = self.check(c[None], tidied[0][None], tidied[1][None], sides, mu)
            if again.error[0] < verdict.error[0]:
                return *tidied, again
        return w, y, verdict

    def allow(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float = 0.0) -> Verdict:
        """The verdict on one answer, as of `examine`, with the allowance for rounding."""
        return self.examine(c, w, y, sides, mu).verdict(rounding=ROUNDING)

    def bounds_cross(self, sides: Sides) -> bool:
        """Whether bounds that the rows imply cross, by more than rounding: then no decision meets the rows of one instance."""
        low, high = self.implied(sides)
        named = np.abs(np.stack([sides.lower, sides.upper]))
        rounding = ROUNDING * np.where(np.isfinite(named), named, 0.0).max(0)
        return bool((low - high > np.maximum(SURE * np.maximum(np.abs(low), np.abs(high)), rounding)).any())

    def proves_infeasible(self, y: np.ndarray, sides: Sides) -> bool:
        """Whether y `(rows,)`, ≤ 0 on inequalities, proves that no decision meets the rows of one instance (Farkas):
        yᵀM w < yᵀr for all w within their bounds, those implied by rows included."""
        right = sides.right_hand_sides()[0]
        y = np.where(np.arange(len(y)) < self.equalities, y, np.minimum(y, 0.0))
        if not np.isfinite(y).all() or not y.any():
            return False
        slope, terms = self.matrix.T @ y, self.sizes.T @ np.abs(y)
        bounds = self.implied(sides)
        bound = np.where(slope > 0, bounds[1], bounds[0])
        bound[np.abs(slope) <= NOTHING * terms] = 0.0
        if np.isinf(bound).any():
            return False
        side = y[y != 0] * right[y != 0]
        whole = np.abs(side).sum() + np.abs(slope * bound).sum()
        return bool(side.sum() - slope @ bound > SURE * whole)

    def violation(self, w: np.ndarray, sides: Sides) -> np.ndarray:
        """The worst error of a row at w.  `(count, n)` → `(count,)`."""
        right = sides.right_hand_sides()
        excess = (self.matrix @ w.T).T - right
        terms = (self.sizes @ np.abs(w).T).T + np.abs(right)
        broken = np.where(np.arange(excess.shape[1]) < self.equalities, np.abs(excess), excess)
        worst: np.ndarray = np.nan_to_num(_share(broken, terms), nan=np.inf).max(1, initial=0.0)
        for i in np.flatnonzero((worst > OPTIMAL) & np.isfinite(w).all(1)):
            look = self.examine(np.zeros(w.shape[1]), w[i], np.zeros(len(self.matrix.indptr) - 1), sides.row(i))
            worst[i] = look.verdict(rounding=ROUNDING).primal[0]
        return worst


class Examination:
    """One answer with all of its terms: its errors, and what to do about rounding."""

    def __init__(
        self, certifier: Certifier, c: np.ndarray, w: np.ndarray, y: np.ndarray, sides: Sides, mu: float
    ) -> None:
        self.finite = bool(np.isfinite(w).all() and np.isfinite(y).all())
        w, y = (w, y) if self.finite else (np.zeros_like(w), np.zeros_like(y))
        self.certifier, self.c, self.w, self.sides, self.mu = certifier, c, w, sides, mu
        self.inequality = np.arange(len(y)) >= certifier.equalities
        self.y = np.where(self.inequality, np.minimum(y, 0.0), y)
        self.right = sides.right_hand_sides()[0]
        matrix, sizes = certifier.matrix, certifier.sizes
        curve, factor = certifier.curve(mu)[0], certifier.factor_terms(w[None])
        pull, weight = curve * w, curve * np.abs(w)
        if factor.shape[1]:
            pull, weight = pull + factor[0, 0], weight + factor[1, 0]
        self.curve = curve
        self.excess, self.terms = matrix @ w - self.right, sizes @ np.abs(w) + np.abs(self.right)
        self.reduced = c + pull - matrix.T @ self.y
        self.weights = np.abs(c) + weight + sizes.T @ np.abs(self.y)
        self.value, self.dearest = float((np.abs(c) + 0.5 * weight) @ np.abs(w)), (np.abs(c) + weight).max(initial=0.0)
        self.objective = float((c + 0.5 * pull) @ w)

    def errors(self, rounding: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Errors of rows, of variables and of prices, and the gap; `rounding` units of rounding count as none."""
        excess, reduced, off = self.excess, self.reduced, self.off()
        if rounding:
            excess = np.where(np.abs(excess) <= rounding * self.floors, 0.0, excess)
        violated = np.where(self.inequality, np.maximum(excess, 0.0), np.abs(excess))
        rows = _share(violated, self.terms)
        bound = np.where(self.reduced > 0, self.sides.lower, self.sides.upper)
        near = np.where(np.isinf(bound), np.inf, _share(off, np.maximum(np.abs(self.w), np.abs(bound))))
        share = _share(np.abs(reduced), self.weights)
        variables = np.minimum(share, near)
        felt = np.zeros(len(excess))
        priced = np.flatnonzero(self.inequality & (self.y < 0) & (excess < 0))
        if priced.size:
            part = sp.csr_array(self.certifier.sizes[priced])
            part.data = _share(part.data, self.weights[part.indices])
            felt[priced] = -self.y[priced] * part.max(axis=1).toarray().ravel()
        prices = np.minimum(felt, _share(-excess, self.terms))
        reach = np.where(self.curve > 0, np.minimum(off, _share(np.abs(reduced), self.curve)), off)
        reach = np.where(share > ZERO, reach, np.minimum(reach, np.abs(self.w)))
        priced = self.y != 0
        counts = (share > NOTHING) & (off > 0)
        gap = np.abs(self.y[priced] * excess[priced]).sum() + (np.abs(reduced[counts]) * reach[counts]).sum()
        return rows, variables, prices, float(gap)

    def lost(self, gap: float) -> float:
        """The error of the objective: the gap, unless it is rounding, or what the rounding of reduced costs may hide."""
        doubt = float(np.finfo(float).eps * (self.weights @ np.abs(self.w)))
        costs = max(self.value, self.dearest * float(np.abs(self.w).sum()))
        part = 0.0 if gap <= 64 * doubt else gap / self.value if self.value > 0 else np.inf
        return max(part, doubt / costs) if 0.0 < DOUBT * costs < doubt else part

    def off(self) -> np.ndarray:
        bound = np.where(self.reduced > 0, self.sides.lower, self.sides.upper)
        return np.abs(self.w - bound)

    def verdict(self, rounding: float = 0.0) -> Verdict:
        """Of this one answer: arrays `(1,)`."""
        if not self.finite:
            worst = np.full(1, np.inf)
            return Verdict(worst, worst, worst, worst, -worst)
        rows, variables, prices, gap = self.errors(rounding)
        primal, dual = rows.max(initial=0.0), max(variables.max(initial=0.0), prices.max(initial=0.0))
        part = self.lost(gap)
        parts = (primal, dual, part, max(primal, dual, part), self.objective - gap)
        return Verdict(*(np.array([part]) for part in parts))

    @cached_property
    def in_force(self) -> np.ndarray:
        """Rows that hold with equality, or are broken, `(rows,)`."""
        return ~self.inequality | (self.excess >= -OPTIMAL * self.terms)

    @cached_property
    def moving(self) -> np.ndarray:
        """Variables that are not at a bound, `(n,)`."""
        return (self.w != self.sides.lower) & (self.w != self.sides.upper)

    @cached_property
    def magnitudes(self) -> tuple[np.ndarray, np.ndarray]:
        """How large a variable `(n,)` and a price `(rows,)` may be, for its rounding: see the rule."""
        rows, columns = self.certifier.scales
        kept = self.in_force[self.certifier.row_of]
        row, column, m, n = self.certifier.row_of[kept], self.certifier.stored[1][kept], len(self.excess), len(self.w)
        force = np.flatnonzero(self.in_force)
        there = self.certifier.sizes.data[kept] > 0

        def largest(joined: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Groups of rows and variables that entries tie together, and the largest term of each, in one unit."""
            group = tied_together(row[joined], m + column[joined], m + n)
            out = np.zeros(m + n)
            np.maximum.at(out, group[force], (rows * self.terms)[force])
            return group, out

        tied, nearby = largest(self.moving[column] & there)
        everyone, anywhere = largest(there)
        size = columns * np.maximum(np.where(self.moving, nearby[tied[m:]], 0.0), FARTHER * anywhere[everyone[m:]])
        dearest = np.zeros(m + n)
        np.maximum.at(dearest, tied[m:][self.moving], (columns * self.weights)[self.moving])
        allowed = np.maximum(*map(np.abs, self.implied))
        return np.minimum(size, allowed), np.where(self.in_force, rows * dearest[tied[:m]], 0.0)

    @cached_property
    def implied(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds that rows imply, `(n,)` each."""
        low, high = self.certifier.implied(self.sides)
        if (low > high).any():  # no decision meets the rows to the last digit: what they imply is rounding, too
            return self.sides.lower, self.sides.upper
        return low, high

    @cached_property
    def floors(self) -> np.ndarray:
        """By how much one unit of rounding may put off each row, `(rows,)`: see the rule."""
        named = np.maximum(np.abs(self.sides.lower), np.abs(self.sides.upper))
        size, _ = self.magnitudes
        floor: np.ndarray = self.certifier.sizes @ np.where(np.isfinite(named), np.minimum(named, size), 0.0)
        return floor

    def tidied(self) -> tuple[np.ndarray, np.ndarray]:
        """w and y without residues of zeros and of bounds."""
        return _without_residues(np.clip(self.w, *self.implied), self.y, self.sides, *self.magnitudes)

    def reason(self) -> str:
        """Which row, variable or sum is worst, with its terms and its error: for messages."""
        rows, variables, prices, gap = self.errors(ROUNDING)
        program, worst = self.certifier.program, max(variables.max(initial=0.0), prices.max(initial=0.0))
        if rows.max(initial=0.0) > OPTIMAL or (prices.max(initial=0.0) == worst > OPTIMAL):
            errors = rows if rows.max(initial=0.0) > OPTIMAL else prices
            i = int(errors.argmax())
            kind, place = ("h", i - self.certifier.equalities) if self.inequality[i] else ("b", i)
            what = "is off by" if errors is rows else f"has the price {self.y[i]:.3g} and is loose by"
            return f"row {kind}[{place}] {what} {abs(self.excess[i]):.3g}, {errors[i]:.1e} of its terms {self.terms[i]:.3g}"
        if worst > OPTIMAL:
            j = int(variables.argmax())
            name = f"variable {j}" if program.variable_names is None else f"variable {program.variable_names[j]!r}"
            return (
                f"the reduced cost of {name} is {self.reduced[j]:.3g}, {variables[j]:.1e} of its terms {self.weights[j]:.3g}, "
                f"at the value {self.w[j]:.6g}"
            )
        return f"the objective may be off by {gap:.3g}, {self.lost(gap):.1e} of its terms {self.value:.3g}"


def tied_together(one: np.ndarray, other: np.ndarray, count: int) -> np.ndarray:
    """The number of the group that each of `count` nodes belongs to, `(count,)`: that of its first node. Edges join `one` and `other`."""
    group = np.arange(count)
    while True:
        lower, higher = np.minimum(group[one], group[other]), np.maximum(group[one], group[other])
        if (lower == higher).all():
            return group
        np.minimum.at(group, higher, lower)
        while (group[group] != group).any():
            group = group[group]


def _without_residues(
    w: np.ndarray, y: np.ndarray, sides: Sides, size: np.ndarray, price: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """w and y with what is next to zero set to zero, and what is next to a bound to the bound; arrays `(…, n)`, `(…, rows)`."""
    for bound in (np.zeros_like(w), sides.lower, sides.upper):
        with np.errstate(invalid="ignore"):
            near = np.abs(w - bound) <= RESIDUE * np.maximum(size, np.where(np.isfinite(bound), np.abs(bound), 0.0))
        w = np.where(near & (bound >= sides.lower) & (bound <= sides.upper), bound, w)
    return w, np.where(np.abs(y) <= RESIDUE * price, 0.0, y)


def _lines(sides: Sides) -> tuple[np.ndarray, ...]:
    """Right-hand sides and bounds as the kernel reads them."""
    parts = (sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper"))
    return tuple(np.ascontiguousarray(part) for part in parts)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, where part is above zero; else 0."""
    out = np.zeros(np.broadcast_shapes(part.shape, whole.shape))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        np.divide(part, whole, out=out, where=part > 0)
    return out
