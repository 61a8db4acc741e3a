"""The second stage alone: what recourse variables are worth once the others are decided, with the prices of their rows.

    min over v of  (c_r + (Q w)_r)ᵀv + ½ vᵀQ_rr v    s.t.   A_r v = b − A_f w,   G_r v ≤ h − G_f w,   lower_r ≤ v ≤ upper_r

r are the recourse variables, f the others, w their decision; rows without recourse variables must hold as they are. Mostly
it is a small linear program, of slack and of emergency measures, whose instances differ in their sides: HiGHS keeps it.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.pickling import WithoutCaches
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.convex import ConvexQP
from dflearn.solvers.highs import HiGHS

FEASIBLE = 1e-6  # relative errors of a settled decision and of its prices: smoothed decisions are that exact


class Priced(NamedTuple):
    """For each instance the whole decision `(count, n)`, the slope of its value in what is held `(count, n)`, zero on recourse
    variables, and a status: OPTIMAL, INFEASIBLE where no recourse helps, FAILED where no prices were found."""

    decision: np.ndarray
    slope: np.ndarray
    status: np.ndarray


class SecondStage(WithoutCaches):
    """The second stage of one program; integrality is dropped."""

    def __init__(self, program: Program) -> None:
        mask = np.zeros(program.n, bool) if program.recourse is None else program.recourse
        self.program, self.mask, self.later, self.first = program, mask, np.flatnonzero(mask), np.flatnonzero(~mask)
        self.Q = program.Q
        parts = [matrix[:, self.later] for matrix in (program.A, program.G)]
        self.helped = [np.diff(part.indptr) > 0 for part in parts]  # rows that hold recourse variables
        self.held = [matrix[:, self.first] for matrix in (program.A, program.G)]
        self.matrix = sp.vstack([held[rows] for held, rows in zip(self.held, self.helped, strict=True)], format="csr")
        self.own: Program | None = None
        if len(self.later):
            rows = [part[helped] for part, helped in zip(parts, self.helped, strict=True)]
            Q = None if self.Q is None else Quadratic(self.Q.factor[:, self.later], self.Q.diagonal[self.later])
            b, h = (np.zeros(part.shape[0]) for part in rows)
            ends = program.lower[self.later], program.upper[self.later]
            self.own = Program(A=rows[0], b=b, G=rows[1], h=h, lower=ends[0], upper=ends[1], Q=Q, n=len(self.later))

    @cached_property
    def _linear(self) -> HiGHS:
        assert self.own is not None
        return HiGHS(self.own)

    def _convex(self, q: np.ndarray | None) -> ConvexQP:
        assert self.own is not None
        if q is None:
            return self._plain
        Q = Quadratic(diagonal=q) if self.own.Q is None else self.own.Q.plus(q)
        return ConvexQP(Program(A=self.own.A, b=self.own.b, G=self.own.G, h=self.own.h, Q=Q, n=self.own.n))

    @cached_property
    def _plain(self) -> ConvexQP:
        assert self.own is not None
        return ConvexQP(self.own)

    def bend(self, w: np.ndarray, q: np.ndarray | None) -> np.ndarray:
        """(Q + diag(q)) w, `(count, n)`."""
        bent = np.zeros_like(w) if self.Q is None else self.Q.times(w)
        return bent if q is None else bent + q * w

    def solve(self, c: np.ndarray, w: np.ndarray, sides: Sides, q: np.ndarray | None = None) -> Priced:
        """c and w `(count, n)`; sides of the truth; q as of `Instance`. What w holds for recourse variables does not matter."""
        count = len(c)
        held = np.where(self.mask, 0.0, np.clip(w, sides.lower, sides.upper))
        status = np.where(self._broken(held, sides), int(Status.INFEASIBLE), int(Status.OPTIMAL)).astype(np.int8)
        prices = np.zeros((count, self.matrix.shape[0]))
        decision = held.copy()
        if self.own is not None and count:
            costs = (c + self.bend(held, q))[:, self.later]
            decision[:, self.later], prices, own = self._second(costs, self._sides(held, sides), q)
            status = np.maximum(status, own)
        slope = np.zeros_like(c)
        steep = c + self.bend(decision, q)
        slope[:, self.first] = steep[:, self.first] - (self.matrix.T @ prices.T).T
        return Priced(decision, slope, status)

    def _broken(self, held: np.ndarray, sides: Sides) -> np.ndarray:
        """Whether a row without recourse variables is broken, beside its own terms.  `(count,)`"""
        broken, first = np.zeros(len(held), bool), held[:, self.first]
        for rows, helped, right, equal in zip(self.held, self.helped, (sides.b, sides.h), (True, False), strict=True):
            if helped.all():
                continue
            own, side = rows[~helped], np.atleast_2d(right)[:, ~helped]
            gap = (own @ first.T).T - side
            terms = (abs(own) @ np.abs(first).T).T + np.abs(side)
            broken |= ((np.abs(gap) if equal else gap) > FEASIBLE * terms).any(1)
        return broken

    def _sides(self, held: np.ndarray, sides: Sides) -> Sides:
        """What is left of right-hand sides, `(count, …)`, and the bounds of recourse variables."""
        taken = [(rows[helped] @ held[:, self.first].T).T for rows, helped in zip(self.held, self.helped, strict=True)]
        b, h = (np.atleast_2d(side)[:, rows] for side, rows in zip((sides.b, sides.h), self.helped, strict=True))
        lower, upper = (np.broadcast_to(side, held.shape)[:, self.later].copy() for side in (sides.lower, sides.upper))
        return Sides(b - taken[0], h - taken[1], lower, upper)

    def _second(self, c: np.ndarray, sides: Sides, q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v `(count, r)`, prices `(count, rows)` and statuses of the second stage."""
        assert self.own is not None
        count = len(c)
        v, prices = np.zeros_like(c), np.zeros((count, self.matrix.shape[0]))
        status = np.full(count, int(Status.FAILED), np.int8)
        curved = self.own.Q is not None or (q is not None and bool(q[:, self.later].any()))
        if not curved:
            raw, found = self._linear.priced(c, sides)
            v, prices, status = raw.decision, found, raw.status
        for i in range(count):
            known = status[i] == int(Status.INFEASIBLE) or (
                status[i] == int(Status.OPTIMAL) and np.isfinite(prices[i]).all()
            )
            if not known:
                v[i], prices[i], status[i] = self._alone(
                    c[i], sides.row(i), q[i, self.later] if curved and q is not None else None
                )
        lost = status != int(Status.OPTIMAL)
        v[lost], prices[lost] = np.nan, np.nan
        return v, prices, status

    def _alone(self, c: np.ndarray, sides: Sides, q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int]:
        convex = self._convex(q)
        found = convex.best(c, sides)
        nothing = np.full(len(c), np.nan), np.full(self.matrix.shape[0], np.nan)
        if found is None or not found.primal <= FEASIBLE:
            infeasible = bool(self._plain.linear.proven_infeasible(sides, 1)[0])
            return *nothing, int(Status.INFEASIBLE if infeasible else Status.FAILED)
        if not found.dual <= FEASIBLE:
            return *nothing, int(Status.FAILED)
        return found.w, found.y, int(Status.OPTIMAL)
