"""Clarabel, an interior-point solver, for one linear or convex quadratic program; its answers are finished on the face.

    min cᵀw + ½ wᵀQ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,    Q = RᵀR + diag(δ)

`candidates` yields decisions w with prices y in the user's units, and `best` has the rule of `certify` judge them. Clarabel is
asked in units of about one, without rows and bounds that cannot be active, as its tolerances grow with the largest number that
it is given. Where R has few rows, it is given t = R w as variables, and Q is never formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL, SURE, Certifier, Verdict
from dflearn.engine.hard.face import kkt_solver
from dflearn.engine.hard.scaling import blocks, equilibrated, largest, power_of_two, scaled, sizes
from dflearn.engine.implied import LARGEST, LOOSE, Propagation
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides

# Clarabel's tolerance and regularization; and those with which it goes as far as it can, where its answer is not good enough.
USUAL, FARTHEST = (1e-10, 1e-8), (1e-15, 1e-10)
STEPS = 200  # of Clarabel
ENOUGH = 1e-13  # an error at which no better answer is looked for
AGAIN = 2  # further solves around the best answer, where that is not good
FAR = 1e5  # a bound or side that is so many times the size of decisions is left out at first
FACES = 6  # corrections of a face
# A bound or row is active if its multiplier is so many times its gap. Where that is not clear for all of them, the face of those for
# which it is comes next, then the face of all that may be.
MARGINS = (1.0, 1e4, 1e-4)
NOTHING, LEAST = 1e-9, 1e-15  # a gap to a bound or to zero, or a price, that may be rounding, and one that surely is
BROKEN = 1e-6  # a row in force that is off by more of its terms cannot be met with what is held
Pair = tuple[np.ndarray, np.ndarray]


class Quality(NamedTuple):
    """Decision w and prices y (≤ 0 on inequalities) in the user's units, and the verdict on them.

    primal, dual, gap: relative errors of the worst row, of the worst reduced cost, and of the objective; error: the worst of them;
    bound: on the optimum.
    """

    w: np.ndarray
    y: np.ndarray
    primal: float
    dual: float
    gap: float
    error: float
    bound: float

    @classmethod
    def of(cls, w: np.ndarray, y: np.ndarray, verdict: Verdict) -> Quality:
        return cls(w, y, *(float(part[0]) for part in verdict))


class BestAnswers:
    """Finds answers to instances of one program; integrality is dropped.

    Args:
        time_limit: seconds of each call of Clarabel.

    Attributes:
        claim: "", "infeasible" or "unbounded": what Clarabel said last. It is a hint and proves nothing.
    """

    def __init__(self, program: Program, time_limit: float = np.inf) -> None:
        self.program, self.n, self.time_limit, self.claim = program, program.n, time_limit, ""
        self.certifier = Certifier(program)
        matrix, equalities = self.certifier.matrix, program.A.shape[0]
        Q = Quadratic(diagonal=np.zeros(self.n)) if program.Q is None else program.Q
        self.Q, R, k = Q, Q.factor, Q.factor.shape[0]
        full = min(float((np.diff(R.indptr).astype(float) ** 2).sum()), self.n**2 / 2)
        self.factors = k if R.nnz + 2 * k < full / 2 else 0
        if self.factors:  # the variables are (w, t), and R w − t = 0 comes after the equalities
            top, link, bottom = (matrix[:equalities], sp.hstack([R, -sp.eye_array(k)]), matrix[equalities:])
            zero = [sp.csr_array((part.shape[0], k)) for part in (top, bottom)]
            matrix = sp.vstack([sp.hstack([top, zero[0]]), link, sp.hstack([bottom, zero[1]])], format="csr")
            H = sp.diags_array(np.concatenate([Q.diagonal, np.ones(k)]), format="csc")
        else:
            H = sp.csc_array(Q.matrix)
        self.equalities = equalities + self.factors
        self.own = np.concatenate([np.arange(equalities), np.arange(self.equalities, matrix.shape[0])])  # not R w = t
        self.columns, self.rows = equilibrated(H, matrix)
        self.matrix, self.propagation = matrix, Propagation(matrix, self.equalities)
        self.M = scaled(matrix, self.rows, self.columns)
        self.H = scaled(H, self.columns, self.columns)
        curves = np.zeros(matrix.shape[1])
        curves[: self.n] = Q.diagonal + np.asarray((R**2).sum(axis=0)).ravel()
        self.curves = curves * self.columns**2
        self.blocks = blocks(self.M, self.H)

    def candidates(
        self,
        c: np.ndarray,
        sides: Sides,
        around: np.ndarray | None = None,
        guess: Pair | None = None,
        accuracy: tuple[float, float] = USUAL,
    ) -> Iterator[Pair]:
        """Answers (w, y) to one instance, `(n,)` and `(rows,)`; y ≤ 0 on inequalities, and c + Q w − Mᵀy are reduced costs.

        around: a decision that is nearly right. The step from it is solved for, in units of its own: where some variables are
        1e9 and others 1, a first answer is right about the large ones only.
        guess: an answer of another solver, whose face is finished in place of Clarabel's; then Clarabel is not asked.
        accuracy: of Clarabel, `USUAL` or `FARTHEST`.
        """
        self.claim, k = "", self.factors
        shift = np.zeros(self.n) if around is None else around
        right, own = np.zeros(len(self.rows)), self.matrix[self.own][:, : self.n]
        right[self.own] = np.concatenate([sides.b, sides.h]) - own @ shift
        lower, upper = (
            np.append(bound - shift, np.full(k, inf)) for bound, inf in ((sides.lower, -np.inf), (sides.upper, np.inf))
        )
        if not (lower <= upper).all():
            self.claim = "infeasible"
            return
        c = np.append(c + self.Q.times(shift), np.zeros(k))
        right, lower, upper, reach = self.relevant(right, lower, upper)
        # Where what is far away counts, variables may be as large as that.
        for far, near in ((FAR, None), (np.inf, reach)):
            attempt = Attempt(self, c, right, lower, upper, far, near)
            for x, y in attempt.points(self, guess, accuracy):
                yield shift + x[: self.n], y[self.own]
            if attempt.complete or guess is not None:
                return

    def relevant(self, right: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[Any, ...]:
        """As of `Propagation`, where sizes differ so much that it may matter."""
        with np.errstate(over="ignore"):
            found = np.abs(np.concatenate([right * self.rows, lower / self.columns, upper / self.columns]))
        found = found[np.isfinite(found) & (found > 0)]
        if not len(found) or (found.max() <= LOOSE * found.min() and found.max() < LARGEST):
            return right, lower, upper, None
        return self.propagation.without_loose(right, lower, upper)

    def best(self, c: np.ndarray, sides: Sides, guess: tuple[np.ndarray, np.ndarray] | None = None) -> Quality | None:
        """The best answer that is found; it may be none at all.

        guess: another solver's w and y, whose face is tried first.
        """
        best: Quality | None = None
        judged_already = set[tuple[bytes, bytes]]()
        centre: Quality | None = None  # nearest in value: errors of small variables may be large in it
        asks = [(guess, USUAL, False)] * (guess is not None)
        asks += [(None, accuracy, again > 0) for accuracy in (USUAL, FARTHEST) for again in range(AGAIN + 1)]
        for first, accuracy, near in asks:
            if accuracy is FARTHEST and best is not None and best.error <= OPTIMAL:
                break
            centre = centre if near else None
            around = None if centre is None else centre.w
            for w, y in self.candidates(c, sides, around, first, accuracy):
                key = w.tobytes(), y.tobytes()
                if key in judged_already:
                    continue
                judged_already.add(key)
                w, y, verdict = self.certifier.tidy(c, np.clip(w, sides.lower, sides.upper) + 0.0, y, sides)
                if verdict.error[0] > OPTIMAL:
                    verdict = self.certifier.allow(c, w, y, sides)
                    verdict = verdict._replace(error=np.maximum(verdict.error, SURE))  # without an allowance is better
                judged = Quality.of(w, y, verdict)
                if best is None or judged.error < best.error:
                    best = judged
                if first is None and (
                    centre is None or max(judged.primal, judged.gap) < max(centre.primal, centre.gap)
                ):
                    centre = judged
                if best.error <= ENOUGH:
                    return best
            if (best is None and first is None) or (best is not None and best.error <= SURE):
                break
        return best


class Attempt:
    """One instance in units of about one: w = scale · x. Fixed variables and rows without a side are taken out.

    Independent blocks of variables have their own units of decisions and of costs.
    """

    def __init__(
        self,
        solver: BestAnswers,
        c: np.ndarray,
        right: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        far: float,
        near: np.ndarray | None,
    ) -> None:
        M, H, columns, rows, curves = solver.M, solver.H, solver.columns, solver.rows, solver.curves
        if near is not None:
            factor = np.abs(near) / columns
            factor = (
                power_of_two(np.maximum(factor, 1e-8 * factor.max(initial=0.0))) if factor.any() else np.ones(len(c))
            )
            heights = largest(scaled(abs(M), np.ones(len(rows)), factor), 1)
            height = 1 / power_of_two(np.where(heights > 0, heights, 1.0))
            M, H = scaled(M, height, factor), scaled(H, factor, factor)
            columns, rows, curves = columns * factor, rows * height, curves * factor**2
        there = np.isfinite(right)
        block = solver.blocks if there.all() else blocks(M[there], H, np.flatnonzero(there), len(right))
        equality = np.arange(len(right)) < solver.equalities
        size = sizes(right * rows, lower / columns, upper / columns, c * columns, curves, equality, *block, far)
        if near is not None:
            size = np.ones_like(size)
        wide, tall = size[block[0]], size[block[1]]
        right, lower, upper, c = right * rows / tall, lower / columns / wide, upper / columns / wide, c * columns
        # What is far away is left out; `points` looks whether the answer keeps to it.
        self.beyond = right, lower, upper
        idle, low = (right > far) & ~equality & there, (lower < -far) & (lower > -np.inf)
        high = (upper > far) & (upper < np.inf)
        self.complete = not (idle.any() or low.any() or high.any())
        lower, upper, there = np.where(low, -np.inf, lower), np.where(high, np.inf, upper), there & ~idle
        unit = np.zeros(len(size))
        np.maximum.at(unit, block[0], np.maximum(np.abs(c), curves * wide))
        unit = power_of_two(np.where(unit > 0, unit, 1.0)) * size  # of the objective
        self.scale, self.price = columns * wide, rows * unit[block[1]] / tall
        self.whole, self.n = M, len(c)
        self.free, self.base = np.flatnonzero(lower < upper), np.where(lower < upper, 0.0, lower)
        gain = wide / np.sqrt(unit[block[0]])
        H, c = scaled(H, gain, gain), c * wide / unit[block[0]]
        if len(self.free) < self.n:
            right, c = right - M @ self.base, (c + H @ self.base)[self.free]
            M, H = M[:, self.free], sp.csc_array(H[self.free][:, self.free])
            lower, upper = lower[self.free], upper[self.free]
        # The certificate looks at rows of fixed variables alone.
        there &= np.bincount(M.indices, minlength=len(there)) > 0
        self.kept = np.flatnonzero(there)
        self.M, self.right = (M, right) if there.all() else (sp.csc_array(M[self.kept]), right[self.kept])
        self.H, self.c, self.lower, self.upper, self.inequality = H, c, lower, upper, ~equality[self.kept]
        self.rows = sp.csr_array(self.M)

    def outwards(self, x: np.ndarray, y: np.ndarray) -> Pair:
        """In the user's units, with what was taken out."""
        whole, prices = self.base.copy(), np.zeros(len(self.price))
        whole[self.free], prices[self.kept] = x, y
        return whole * self.scale, -prices * self.price

    def inwards(self, solver: BestAnswers, guess: Pair) -> tuple[np.ndarray, ...]:
        """Another solver's answer in the form of `by_clarabel`."""
        w, y = guess
        R = solver.Q.factor
        x = (np.append(w, R @ w if solver.factors else np.zeros(0)) / self.scale)[self.free]
        prices = np.zeros(len(self.price))
        prices[solver.own] = -y
        if solver.factors:  # of R w − t = 0: the slope of ½ t², which is t
            prices[np.setdiff1d(np.arange(len(prices)), solver.own)] = R @ w
        prices = (prices / self.price)[self.kept]
        slope = self.c + self.H @ x + self.M.T @ prices
        slack = np.where(self.inequality, np.maximum(self.right - self.M @ x, 0.0), 0.0)
        return x, prices, slack, np.maximum(slope, 0.0), np.maximum(-slope, 0.0)

    def points(
        self, solver: BestAnswers, guess: Pair | None = None, accuracy: tuple[float, float] = USUAL
    ) -> Iterator[Pair]:
        """Decisions with prices, in the user's units: what the faces give, then Clarabel's own."""
        if not len(self.free):
            yield self.outwards(np.zeros(0), np.zeros(len(self.kept)))
            return
        with np.errstate(all="ignore"):
            found = self.by_clarabel(solver, accuracy) if guess is None else self.inwards(solver, guess)
            if found is None:
                return
            first, prices, slack, below, above = found
            x = first
            for margin in MARGINS:
                x, y = np.clip(first, self.lower, self.upper), prices
                low, high = below > margin * (first - self.lower), above > margin * (self.upper - first)
                low, high = low & ~(high & (above > below)), high & ~(low & (below >= above))
                force = ~self.inequality | (y > margin * slack)
                for _ in range(FACES):
                    face = self.on_face(x, y, low, high, force)
                    if face is None:
                        break
                    same = all((old == new).all() for old, new in zip((low, high, force), face[2:], strict=True))
                    x, y, low, high, force = face
                    yield self.outwards(x, y)
                    clean = self.rounded(x, y, LEAST)
                    if (clean[0] != x).any() or (clean[1] != y).any():
                        yield self.outwards(*clean)
                    if same:
                        break
                yield self.outwards(*self.rounded(x, y))
            yield self.outwards(first, prices)
            yield self.outwards(*self.rounded(first, prices))
            if not self.complete:
                self.complete = self.keeps(first)

    def keeps(self, x: np.ndarray) -> bool:
        """Whether Clarabel's answer keeps to what was left out."""
        right, lower, upper = self.beyond
        whole = self.base.copy()
        whole[self.free] = x
        out = np.isfinite(right)
        out[self.kept] = False
        over: np.ndarray = (self.whole @ whole - right)[out]
        return bool((over <= 0).all() and (whole >= lower - 1e-6).all() and (whole <= upper + 1e-6).all())

    def rounded(self, x: np.ndarray, y: np.ndarray, nothing: float = NOTHING) -> Pair:
        """What is next to nothing set to nothing: where all terms of a row or of a reduced cost are zero, they cannot be met
        but to the last digit."""
        for value in (self.lower, self.upper, np.zeros(len(x))):
            x = np.where(np.abs(x - value) <= nothing, value, x)
        most = max(np.abs(self.c).max(initial=0.0), np.abs(y).max(initial=0.0))
        return x, np.where(np.abs(y) <= nothing * most, 0.0, y)

    def by_clarabel(self, solver: BestAnswers, accuracy: tuple[float, float]) -> tuple[np.ndarray, ...] | None:
        """x, prices (≥ 0 on inequalities), slacks, multipliers of lower and of upper bounds; `None` where there is no point."""
        import clarabel

        n, m = len(self.c), len(self.right)
        low, high = np.flatnonzero(self.lower > -np.inf), np.flatnonzero(self.upper < np.inf)
        at = np.concatenate([low, high])
        sign = np.concatenate([-np.ones(len(low)), np.ones(len(high))])
        bounds = sp.csr_array((sign, at, np.arange(len(at) + 1)), shape=(len(at), n))
        rows = sp.csc_matrix(sp.vstack([self.rows, bounds], format="csc"))
        right = np.concatenate([self.right, -self.lower[low], self.upper[high]])
        equalities = m - int(self.inequality.sum())
        cones = [clarabel.ZeroConeT(equalities), clarabel.NonnegativeConeT(len(right) - equalities)]
        settings = clarabel.DefaultSettings()
        settings.verbose, settings.max_iter = False, STEPS
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy[0]
        settings.static_regularization_constant = accuracy[1]
        if np.isfinite(solver.time_limit):
            settings.time_limit = solver.time_limit
        H = sp.csc_matrix(sp.triu(self.H, format="csc"))
        found = clarabel.DefaultSolver(H, self.c, rows, right, cones, settings).solve()
        status, x, z = str(found.status), np.array(found.x), np.array(found.z)
        solver.claim = "infeasible" if "PrimalInf" in status else "unbounded" if "DualInf" in status else ""
        if solver.claim or not (np.isfinite(x).all() and np.isfinite(z).all()):
            return None
        below, above = np.zeros(n), np.zeros(n)
        below[low], above[high] = z[m : m + len(low)], z[m + len(low) :]
        return x, z[:m], np.array(found.s)[:m], below, above

    # -- the face ---------------------------------------------------------------------------------------------------

    def on_face(
        self, x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray, force: np.ndarray
    ) -> tuple[np.ndarray, ...] | None:
        """The optimum with what is active as equations, the nearest where there are many, and what is active there."""
        held = low | high
        inside = np.flatnonzero(~held)
        new, prices = np.where(low, self.lower, np.where(high, self.upper, x)), np.where(force, y, 0.0)
        # A row without a variable inside says nothing about its price here: that stays what it was.
        filled = np.zeros(len(self.right), bool)
        filled[self.M[:, inside].indices] = True
        solved = np.flatnonzero(force & filled)
        slope = self.c + self.H @ new + self.M.T @ prices
        missing = (self.right - self.M @ new)[solved]
        try:
            H, M = self.H[:, inside][inside], sp.csr_array(self.rows[solved][:, inside])
            found = kkt_solver(H, M)(np.concatenate([-slope[inside], missing]))
        except (RuntimeError, ValueError, np.linalg.LinAlgError):
            return None
        if not np.isfinite(found).all():
            return None
        new[inside] += found[: len(inside)]
        prices[solved] += found[len(inside) :]
        slope = self.c + self.H @ new + self.M.T @ prices
        # What leaves its bounds is held there, what its slope or price pulls off comes free, what breaks comes into force.
        broken = ~force & (self.right - self.M @ new < 0)
        idle = force & self.inequality & (prices < 0)
        released = self.released(new, slope, low, high, force)
        low = (low & ~(slope < 0) & ~released) | (~held & (new < self.lower))
        high = (high & ~(slope > 0) & ~released) | (~held & (new > self.upper))
        prices = np.where(self.inequality, np.maximum(prices, 0.0), prices)
        return np.clip(new, self.lower, self.upper), prices, low, high, (force & ~idle) | broken

    def released(
        self, x: np.ndarray, slope: np.ndarray, low: np.ndarray, high: np.ndarray, force: np.ndarray
    ) -> np.ndarray:
        """Of what is held, what must come free for rows in force that are broken: in each of them one variable that would mend it,
        the one whose slope vanishes first as the row's price grows (the ratio test of the dual simplex method)."""
        rows, out = self.rows, np.zeros(len(x), bool)
        off, terms = self.right - rows @ x, np.abs(self.right) + abs(rows) @ np.abs(x)
        for i in np.flatnonzero(force & (np.abs(off) > BROKEN * terms)):
            part = slice(rows.indptr[i], rows.indptr[i + 1])
            column, entry = rows.indices[part], np.sign(off[i]) * rows.data[part]
            mends = (low[column] & (entry > 0)) | (high[column] & (entry < 0))
            if mends.any():
                column, entry = column[mends], entry[mends]
                out[column[np.argmin(np.abs(slope[column] / entry))]] = True
        return out
