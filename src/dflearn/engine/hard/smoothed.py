"""The instances of a smoothed LP that the kernels leave: by Clarabel, finished on the face, one at a time.

    min cᵀw + (μ/2)‖w‖²   s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper

What is OPTIMAL is decided by the rule of `dflearn.engine.certify`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL, ROUNDING, Certifier, Examination, tied_together
from dflearn.engine.hard.clarabel import BestAnswers
from dflearn.engine.status import Status
from dflearn.program import Quadratic
from dflearn.program.sides import Sides

NOTHING = 1e-11  # beside the largest of its block, what may be a residue of zero
DEAR = 1e-3  # beside the largest reduced cost
TIME_LIMIT = 20.0  # seconds of one call of Clarabel


class Result(NamedTuple):
    """Decision `(n,)`, NaN where there is none; prices of the program's rows, ≤ 0 on inequalities; the rule's error; the face:
    variables inside their bounds, rows in force; and why the instance is not OPTIMAL."""

    status: Status
    w: np.ndarray
    y: np.ndarray
    residual: float
    inside: np.ndarray
    in_force: np.ndarray
    reason: str = ""


class Hard:
    """Solves single instances of one program, with any μ."""

    def __init__(self, certifier: Certifier) -> None:
        self.program, self.certifier = certifier.program.relax(), certifier

    @np.errstate(all="ignore")
    def cleared(self, c: np.ndarray, w: np.ndarray, y: np.ndarray, mu: float, sides: Sides) -> Result | None:
        """An answer without residues of zeros, if the rule lets that pass with its allowance for rounding."""
        # A variable that neither costs nor prices pull is zero, or as near to it as its bounds let it.
        alone = np.abs(c) + self.certifier.sizes.T @ np.abs(y) == 0
        w = np.where(alone, np.clip(0.0, sides.lower, sides.upper), w)
        for point, prices in ((w, y), self.rounded(c, w, y, mu, sides)):
            tidied, cheap, verdict = self.certifier.tidy(c, point, prices, sides, mu)
            look = self.certifier.examine(c, tidied, cheap, sides, mu)
            if verdict.error[0] > OPTIMAL:
                verdict = look.verdict(ROUNDING)
            if verdict.error[0] <= OPTIMAL:
                return Result(Status.OPTIMAL, look.w, look.y, float(verdict.error[0]), *face(look))
        return None

    def rounded(
        self, c: np.ndarray, w: np.ndarray, y: np.ndarray, mu: float, sides: Sides
    ) -> tuple[np.ndarray, np.ndarray]:
        """w and y with what is next to nothing set to nothing: beside the largest of its block in common units; and for w beside
        the rounding of −(c + Mᵀy)/μ, which it is."""
        columns, rows = self.blocks
        high, low = self.certifier.scales
        most, dearest = np.zeros((2, len(w) + len(y)))
        np.maximum.at(most, columns, np.abs(w) / low)
        np.maximum.at(dearest, columns, low * np.maximum(np.abs(c), mu * np.abs(w)))
        noise = ROUNDING / mu * (np.abs(c) + self.certifier.sizes.T @ np.abs(y))
        noise = np.maximum(noise, NOTHING * low * most[columns])
        for bound in (np.zeros_like(w), sides.lower, sides.upper):
            near = (np.abs(w - bound) <= noise) & (bound >= sides.lower) & (bound <= sides.upper)
            w = np.where(near, bound, w)
        return w, np.where(np.abs(y) <= NOTHING * high * dearest[rows], 0.0, y)

    @cached_property
    def blocks(self) -> tuple[np.ndarray, np.ndarray]:
        """The independent block of each variable and of each row."""
        (m, n), column = self.certifier.matrix.shape, self.certifier.stored[1]
        label = tied_together(column, n + self.certifier.row_of, n + m)
        return label[:n], label[n:]

    @np.errstate(all="ignore")
    def solve(
        self, c: np.ndarray, mu: float, sides: Sides, guess: tuple[np.ndarray, np.ndarray] | None = None
    ) -> Result:
        """c `(n,)`, the sides of one instance; guess: w and y of the kernels, whose face is tried first if they are numbers."""
        rows = self.certifier.matrix.shape[0]
        w, y, inside = np.full(self.program.n, np.nan), np.full(rows, np.nan), np.zeros(self.program.n, np.uint8)
        nothing = Result(Status.FAILED, w, y, np.inf, inside, np.ones(rows, np.uint8))
        costs, ends, result = c, sides, nothing._replace(reason="Clarabel found no point")
        for again in (False, True):
            known = None
            if not again and guess is not None and all(np.isfinite(part).all() for part in guess):
                known = guess[0], guess[1] / mu
            best = self._unit.best(costs / mu, ends, known)
            if best is None:
                break
            best = best._replace(y=mu * best.y)
            passed = self.cleared(c, best.w, best.y, mu, sides)
            if passed is not None:
                return passed
            if not again:
                look = self.certifier.examine(c, best.w, best.y, sides, mu)
                result = nothing._replace(reason=look.reason())
                if best.primal <= OPTIMAL:
                    result = Result(Status.FEASIBLE, look.w, look.y, best.error, *face(look), result.reason)
                costs, ends = self.held(look)
        return result

    def held(self, look: Examination) -> tuple[np.ndarray, Sides]:
        """Costs and sides with variables fixed that rows and bounds leave one value, or that by far the largest costs press to their
        bounds: others then set the units."""
        pressed = np.where(look.moving, 0.0, np.abs(look.reduced) * self.certifier.scales[1])
        low, high = self.certifier.implied(look.sides)
        fixed = (pressed > DEAR * pressed.max(initial=0.0)) | (low == high)
        ends = (np.where(fixed, look.w, bound) for bound in (look.sides.lower, look.sides.upper))
        return np.where(fixed, 0.0, look.c), Sides(look.sides.b, look.sides.h, *ends)

    @cached_property
    def _unit(self) -> BestAnswers:
        """With μ = 1: the costs and prices of an instance are divided by its μ."""
        ones = Quadratic(diagonal=np.ones(self.program.n))
        return BestAnswers(replace(self.program, Q=ones), TIME_LIMIT)


def face(look: Examination) -> tuple[np.ndarray, np.ndarray]:
    """Variables inside their bounds `(n,)` and rows in force `(rows,)`, 1 or 0.

    Of the way to a bound and the reduced cost that presses there, and of a row's slack and its price, the one that is larger
    beside its terms is real, and the other is rounding.
    """
    with np.errstate(divide="ignore", over="ignore"):
        per = np.where(look.weights > 0, 1 / look.weights, 0.0)
    share = np.abs(look.reduced) * per
    bound, off = np.where(look.reduced > 0, look.sides.lower, look.sides.upper), look.off()
    size = np.maximum(np.abs(look.w), np.where(np.isfinite(bound), np.abs(bound), 0.0))
    inside = look.moving & (off > share * size)
    part = sp.diags_array(np.abs(look.y)) @ look.certifier.sizes @ sp.diags_array(per)
    felt = part.max(axis=1).toarray().ravel() if part.nnz else np.zeros(len(look.y))
    in_force = ~look.inequality | ((look.y < 0) & (felt * look.terms >= -look.excess))
    return inside.astype(np.uint8), in_force.astype(np.uint8)
