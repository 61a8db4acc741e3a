"""What a decision costs once the truth is known: variables marked as recourse are decided again, the others stay.

    cost(w, y) = min over v of obj(y, v)   s.t.   v feasible for y,   v_j = w_j where j is no recourse variable

It is infinite where no recourse helps. Without recourse variables it is obj(y, w) where w is feasible for y.

The prices of the second stage come from, with r the recourse variables, f the others, w their decision,

    min over v of  (c_r + (Q w)_r)ᵀv + ½ vᵀQ_rr v    s.t.   A_r v = b − A_f w,   G_r v ≤ h − G_f w,   lower_r ≤ v ≤ upper_r

Rows without recourse variables must hold as they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.pickling import WithoutCaches
from dflearn.program import Instance, Program, Quadratic
from dflearn.program.sides import ROUNDING, Sides
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.task import best_solver

FEASIBLE = 1e-6  # what a row, and a price, may lack relative to its terms: smoothed decisions are that exact


class Settled(NamedTuple):
    """The decision that is left to take `(*batch, n)`, NaN where there is none, and its cost `(*batch,)`, both float64."""

    decision: Tensor
    cost: Tensor


class Filled(NamedTuple):
    """Decisions with their slack `(count, n)`, prices of the rows `(count, rows)`, and whether all rows hold `(count,)`."""

    decision: np.ndarray
    prices: np.ndarray
    feasible: np.ndarray


class PricedSlack:
    """Settles decisions of one program whose recourse variables, `mask` `(n,)`, are priced slack ("simple recourse"), in closed form.

    Each stands in one row, from zero upwards, at a price, as those of `Program.elastic`. What a row lacks, g = r − M w, is filled by slack
    of the cheapest column that moves it the right way, whose price is the row's.
    """

    def __init__(self, program: Program, mask: np.ndarray) -> None:
        self.columns, self.equalities = np.flatnonzero(mask), program.A.shape[0]
        whole = sp.csc_array(sp.vstack([program.A, program.G]))
        slack = whole[:, self.columns]
        self.row, self.entry = slack.indices, slack.data
        self.rows = sp.csr_array(whole @ sp.diags_array((~mask).astype(float)))
        self.sizes = abs(self.rows)
        self.largest = self.sizes.max(axis=1).toarray().ravel() if self.sizes.nnz else np.zeros(whole.shape[0])
        self.lower, self.upper = program.lower, program.upper

    @classmethod
    def of(cls, program: Program, mask: np.ndarray) -> PricedSlack | None:
        """`None` where recourse is more than slack with prices of its own."""
        Q = Quadratic(diagonal=np.zeros(program.n)) if program.Q is None else program.Q
        counts = np.bincount(np.concatenate([program.A.indices, program.G.indices]), minlength=program.n)[mask]
        predicted = program.S is None or bool(program.S[np.flatnonzero(mask)].nnz)
        curved = bool(Q.factor[:, np.flatnonzero(mask)].nnz) or bool(Q.diagonal[mask].any())
        bounded = (program.lower[mask] != 0).any() or np.isfinite(program.upper[mask]).any()
        if not mask.any() or (counts != 1).any() or predicted or curved or bounded or program.integer[mask].any():
            return None
        return cls(program, mask)

    def fill(self, c: np.ndarray, w: np.ndarray, right: np.ndarray, moved: np.ndarray) -> Filled | None:
        """Costs c and decisions w `(count, n)`, whose slack does not matter; right-hand sides `(count or 1, rows)`. moved: by how much
        decisions were rounded, `(count, n)`, which rows may be broken by. `None` where some price is negative."""
        prices = c[:, self.columns] / np.abs(self.entry)  # of a unit of the row
        if (prices < 0).any():
            return None
        count, rows = len(w), len(self.rows.indptr) - 1
        lacking = right - (self.rows @ w.T).T
        terms = np.abs(right) + (self.sizes @ np.abs(w).T).T
        decision = w.copy()
        decision[:, self.columns] = 0.0
        open_ = np.where(np.arange(rows) < self.equalities, np.abs(lacking), -lacking) > 0
        fits = open_[:, self.row] & (self.entry * lacking[:, self.row] > 0)
        cheapest = np.full((count, rows), np.inf)
        np.minimum.at(cheapest.T, self.row, np.where(fits, prices, np.inf).T)
        row_prices = np.copysign(np.where(np.isfinite(cheapest), cheapest, 0.0), lacking)
        for k, at in enumerate(self.row):
            used = open_[:, at] & fits[:, k] & (prices[:, k] == cheapest[:, at])
            decision[:, self.columns[k]] = np.where(used, lacking[:, at] / self.entry[k], 0.0)
            open_[:, at] &= ~used  # of two at one price, the first
        rounding = ROUNDING * self.largest * np.abs(w).max(1, initial=0.0)[:, None] + 2 * (self.sizes @ moved.T).T
        broken = open_ & (np.abs(lacking) > FEASIBLE * terms + rounding)
        return Filled(decision, row_prices, ~broken.any(1))


class Recourse:
    """Settles decisions of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.mask = np.zeros(program.n, bool) if program.recourse is None else program.recourse
        self.slack = PricedSlack.of(program, self.mask)
        later = replace(program, integer=program.integer & self.mask)
        self.solver: Solver | None = best_solver(later) if self.mask.any() else None

    def held(self, y: Tensor, w: Tensor, instance: Instance | None) -> Instance:
        """The instance in which all variables but those of recourse have the values that they have in w `(*batch, n)`."""
        sides = self.program.sides(instance, w.shape[:-1].numel())
        flat, point = self._clipped(w, sides)
        lower, upper = (
            torch.tensor(np.where(self.mask | np.isnan(flat), side, point)).reshape(w.shape) for side in sides.bounds()
        )
        given = {} if instance is None else instance.present()
        return Instance(**{**given, "lower": lower, "upper": upper})

    def _clipped(self, w: Tensor, sides: Sides) -> tuple[np.ndarray, np.ndarray]:
        """Decisions `(count, n)`, and the same within their bounds, with integers rounded."""
        flat = w.detach().cpu().double().reshape(-1, self.program.n).numpy()
        whole = np.where(self.program.integer, np.rint(flat), flat)
        return flat, np.clip(whole, sides.lower, sides.upper)

    def filled(self, y: Tensor, w: Tensor, instance: Instance | None) -> Filled | None:
        """The same in closed form, if recourse is priced slack; y `(*batch, p)` and w `(*batch, n)` on the CPU in float64."""
        given = {} if instance is None else instance.present()
        if self.slack is None or {"lower", "upper", "q"} & set(given):
            return None
        flat, point = self._clipped(w, self.program.own_sides)
        c = self.program.objective.vector(y, instance).reshape(flat.shape).numpy()
        right = self.program.sides(self.program.realize(y, instance), len(flat)).right_hand_sides()
        return self.slack.fill(c, point, right, np.abs(point - flat))

    def settle(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Settled:
        """y `(*batch, p)`, w `(*batch, n)`: decided for something else, the prediction, say. NaN where w is."""
        y, w = y.detach().cpu().double(), w.detach().cpu().double()
        if self.solver is None:
            feasible = self.program.is_feasible(w, self.program.realize(y, instance))
            cost = torch.where(feasible, self.program.objective(y, w, instance), torch.inf)
            return Settled(torch.where(feasible[..., None], w, torch.nan), cost)
        if (filled := self.filled(y, w, instance)) is not None:
            decision = torch.tensor(filled.decision).reshape(w.shape)
            feasible = torch.tensor(filled.feasible).reshape(w.shape[:-1])
            none = w[..., ~torch.tensor(self.mask)].isnan().any(-1)
            cost = torch.where(feasible, self.program.objective(y, decision, instance), torch.inf)
            decision = torch.where((feasible & ~none)[..., None], decision, torch.nan)
            return Settled(decision, torch.where(none, torch.nan, cost))
        solution = self.solver.solve(y, self.held(y, w, instance))
        solution.check((Status.OPTIMAL, Status.INFEASIBLE), what="recourse")
        lost, none = solution.status == int(Status.INFEASIBLE), w.isnan().any(-1)
        cost = torch.where(lost, torch.inf, solution.objective)
        return Settled(torch.where(none[..., None], torch.nan, solution.decision), torch.where(none, torch.nan, cost))


@lru_cache(maxsize=8)
def recourse_of(program: Program) -> Recourse | None:
    """What settles the program's decisions; `None` where the truth changes nothing about them."""
    return Recourse(program) if program.predicts_rows or program.recourse is not None else None


# -- prices -------------------------------------------------------------------------------------------------------------


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
        self.Q, whole = program.Q, sp.csr_array(sp.vstack([program.A, program.G]))
        self.equal = np.arange(whole.shape[0]) < program.A.shape[0]
        self.helped = np.diff(whole[:, self.later].indptr) > 0  # rows that hold recourse variables
        self.matrix, self.alone = whole[self.helped][:, self.first], whole[~self.helped][:, self.first]
        self.own: Program | None = None
        if len(self.later):
            A, G = (whole[self.helped & kind][:, self.later] for kind in (self.equal, ~self.equal))
            Q = None if self.Q is None else Quadratic(self.Q.factor[:, self.later], self.Q.diagonal[self.later])
            ends = program.lower[self.later], program.upper[self.later]
            self.own = Program(A=A, b=0.0, G=G, h=0.0, lower=ends[0], upper=ends[1], Q=Q, n=len(self.later))

    @cached_property
    def _solver(self) -> HiGHS:
        assert self.own is not None
        return HiGHS(self.own)

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
        first, right, equal = held[:, self.first], sides.right_hand_sides()[:, ~self.helped], self.equal[~self.helped]
        gap = (self.alone @ first.T).T - right
        terms = (abs(self.alone) @ np.abs(first).T).T + np.abs(right)
        broken = np.where(equal, np.abs(gap), gap) > FEASIBLE * terms
        return np.asarray(broken.any(1))

    def _sides(self, held: np.ndarray, sides: Sides) -> Sides:
        """What is left of right-hand sides, `(count, …)`, and the bounds of recourse variables."""
        right = sides.right_hand_sides()[:, self.helped] - (self.matrix @ held[:, self.first].T).T
        b, h = np.split(right, [int((self.helped & self.equal).sum())], axis=1)
        lower, upper = (np.broadcast_to(side, held.shape)[:, self.later].copy() for side in sides.bounds())
        return Sides(b, h, lower, upper)

    def _second(self, c: np.ndarray, sides: Sides, q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v `(count, r)`, prices `(count, rows)` and statuses of the second stage."""
        assert self.own is not None
        count = len(c)
        v, prices = np.zeros_like(c), np.zeros((count, self.matrix.shape[0]))
        status = np.full(count, int(Status.FAILED), np.int8)
        curved = self.own.Q is not None or (q is not None and bool(q[:, self.later].any()))
        if not curved:
            raw, found = self._solver.priced(c, sides)
            v, prices, status = raw.decision, found, raw.status
        priced = (status == int(Status.OPTIMAL)) & np.isfinite(prices).all(1)
        for i in np.flatnonzero(~priced & (status != int(Status.INFEASIBLE))):
            own = None if q is None or not curved else q[i, self.later]
            v[i], prices[i], status[i] = self._alone(c[i], sides.row(i), own)
        lost = status != int(Status.OPTIMAL)
        v[lost], prices[lost] = np.nan, np.nan
        return v, prices, status

    def _alone(self, c: np.ndarray, sides: Sides, q: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, int]:
        solver = self._solver if q is None else self._solver.with_diagonal(q)
        found = solver.convex.best(c, sides)
        nothing = np.full(len(c), np.nan), np.full(self.matrix.shape[0], np.nan)
        if found is None or not found.primal <= FEASIBLE:
            infeasible = bool(self._solver.proven_infeasible(sides, 1)[0])
            return *nothing, int(Status.INFEASIBLE if infeasible else Status.FAILED)
        if not found.dual <= FEASIBLE:
            return *nothing, int(Status.FAILED)
        return found.w, found.y, int(Status.OPTIMAL)
