"""Linear and convex quadratic programs, one instance at a time: Clarabel, finished on the face, certified.

    min cᵀw + ½ wᵀQ w    s.t.   A w = b,   G w ≤ h,   lower ≤ w ≤ upper,    Q = RᵀR + diag(δ)

`clarabel` finds candidates, which the rule of `dflearn.engine.certify` judges in the user's units.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL, SURE, Certifier, Verdict
from dflearn.engine.hard.clarabel import FARTHEST, USUAL, Clarabel
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides

ENOUGH = 1e-13  # an error at which no better answer is looked for
AGAIN = 2  # further solves around the best answer, where that is not good


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
    """Finds answers to instances of one program with Q; integrality is dropped."""

    def __init__(self, program: Program, time_limit: float = np.inf) -> None:
        self.program, self.time_limit = program, time_limit
        self.Q = Quadratic(diagonal=np.zeros(program.n)) if program.Q is None else program.Q
        self.n, self.equalities = program.n, program.A.shape[0]
        self.matrix = sp.vstack([program.A, program.G], format="csr")
        self.certifier = Certifier(program)
        self.clarabel = Clarabel(self.matrix, self.equalities, self.Q, time_limit)

    def times(self, factor: float) -> BestAnswers:
        """The same with `factor` Q, where Q is diagonal."""
        out = copy(self)
        out.Q, out.certifier, out.clarabel = (
            Quadratic(diagonal=factor * self.Q.diagonal),
            self.certifier.times(factor),
            self.clarabel.times(factor),
        )
        return out

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
            for w, y in self.clarabel.candidates(c, sides, around, first, accuracy):
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
