"""What a decision costs once the truth is known: variables marked as recourse are decided again, the others stay.

    cost(w, y) = min over v of obj(y, v)   s.t.   v feasible for y,   v_j = w_j where j is no recourse variable

It is infinite where no recourse helps. Without recourse variables it is obj(y, w) where w is feasible for y.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.program import Instance, Program, Quadratic
from dflearn.program.sides import ROUNDING
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.recognition import best_solver

FEASIBLE = 1e-6  # what a row may lack relative to its terms


class Settled(NamedTuple):
    """The decision that is left to take `(*batch, n)`, NaN where there is none, and its cost `(*batch,)`, both float64."""

    decision: Tensor
    cost: Tensor


class Filled(NamedTuple):
    """Decisions with their slack `(count, n)`, prices of the rows `(count, rows)`, and whether no row is left broken `(count,)`."""

    decision: np.ndarray
    prices: np.ndarray
    feasible: np.ndarray


class PricedSlack:
    """Settles decisions of one program whose recourse variables, `mask` `(n,)`, are priced slack ("simple recourse"), in closed form.

    Each stands in one row, from zero upwards, at a price, as those of `Program.elastic`. So rows are settled one by one: with
    g = r − M w what a row lacks, slack of the cheapest column that moves it the right way fills g, and the price of the row is that
    column's.
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
        """Costs c and decisions w `(count, n)`, whose slack does not matter; right-hand sides `(count or 1, rows)`.

        moved: by how much decisions were rounded, `(count, n)`, which rows may be broken by. `None` where some price is negative: then slack is worth having without need.
        """
        prices = c[:, self.columns] / np.abs(self.entry)  # of a unit of the row
        if (prices < 0).any():
            return None
        count, rows = len(w), len(self.rows.indptr) - 1
        lacking = right - (self.rows @ w.T).T
        terms = np.abs(right) + (self.sizes @ np.abs(w).T).T
        decision, row_prices = w.copy(), np.zeros((count, rows))
        decision[:, self.columns] = 0.0
        open_ = np.where(np.arange(rows) < self.equalities, np.abs(lacking), -lacking) > 0
        for sign in (1.0, -1.0):
            cheapest = np.full((count, rows), np.inf)
            for k in np.flatnonzero(np.sign(self.entry) == sign):
                cheapest[:, self.row[k]] = np.minimum(cheapest[:, self.row[k]], prices[:, k])
            filled = open_ & (sign * lacking > 0) & np.isfinite(cheapest)
            row_prices = np.where(filled, sign * cheapest, row_prices)
            for k in np.flatnonzero(np.sign(self.entry) == sign):
                at = self.row[k]
                used = filled[:, at] & (prices[:, k] == cheapest[:, at])
                decision[:, self.columns[k]] = np.where(used, lacking[:, at] / self.entry[k], 0.0)
                filled[:, at] &= ~used  # of two at one price, the first
                open_[:, at] &= ~used
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
        count = w.shape[:-1].numel()
        sides = self.program.sides(instance, count)
        flat = w.detach().cpu().double().reshape(count, self.program.n).numpy()
        flat = np.where(self.program.integer, np.rint(flat), flat)
        point = np.clip(flat, sides.lower, sides.upper)
        bounds = (
            np.where(self.mask | np.isnan(flat), np.broadcast_to(side, flat.shape), point)
            for side in (sides.lower, sides.upper)
        )
        lower, upper = (torch.tensor(side).reshape(w.shape) for side in bounds)
        given = {} if instance is None else instance.present()
        return Instance(**{**given, "lower": lower, "upper": upper})

    def filled(self, y: Tensor, w: Tensor, instance: Instance | None) -> Filled | None:
        """The same in closed form, where recourse is priced slack; y `(*batch, p)` and w `(*batch, n)` on the CPU in float64."""
        given = {} if instance is None else instance.present()
        if self.slack is None or {"lower", "upper", "q"} & set(given):
            return None
        count = w.shape[:-1].numel()
        flat = w.detach().reshape(count, self.program.n).numpy()
        point = np.clip(np.where(self.program.integer, np.rint(flat), flat), self.program.lower, self.program.upper)
        c = self.program.objective.vector(y, instance).reshape(count, self.program.n).numpy()
        right = self.program.sides(self.program.realize(y, instance), count).right_hand_sides()
        return self.slack.fill(c, point, right, np.abs(point - flat))

    def settle(self, y: Tensor, w: Tensor, instance: Instance | None = None) -> Settled:
        """y `(*batch, p)`, w `(*batch, n)`: decided for something else, the prediction, say. NaN where w is."""
        y, w = y.detach().cpu().double(), w.detach().cpu().double()
        if self.solver is None:
            feasible = self.program.is_feasible(w, self.program.realize(y, instance))
            cost = torch.where(feasible, self.program.objective(y, w, instance), torch.inf)
            return Settled(torch.where(feasible[..., None], w, torch.nan), cost)
        if (filled := self.filled(y, w, instance)) is not None:
            decision, feasible = (
                torch.tensor(filled.decision).reshape(w.shape),
                torch.tensor(filled.feasible).reshape(w.shape[:-1]),
            )
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


def rows_without_recourse(program: Program) -> list[tuple[str, int]]:
    """The predicted rows ("b" or "h", position) in which no variable can be decided again."""
    mask = np.zeros(program.n, bool) if program.recourse is None else program.recourse
    found = []
    for side, moves, rows in (("b", program.B, program.A), ("h", program.H, program.G)):
        if moves is not None:
            helped = np.diff(rows[:, np.flatnonzero(mask)].indptr) > 0
            found += [(side, int(i)) for i in np.flatnonzero((np.diff(moves.indptr) > 0) & ~helped)]
    return found
