"""Recourse by priced slack alone, in closed form: what `Program.elastic` adds, and "simple recourse" of the literature.

Each recourse variable stands in one row, from zero upwards, at a price. So rows are settled one by one: with g = r − M w what
a row lacks, slack of the cheapest column that moves it the right way fills g, and the price of the row is that column's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.program import Program, Quadratic
from dflearn.program.sides import ROUNDING

FEASIBLE = 1e-6  # what a row may lack relative to its terms


class Filled(NamedTuple):
    """Decisions with their slack `(count, n)`, prices of the rows `(count, rows)`, and whether no row is left broken `(count,)`."""

    decision: np.ndarray
    prices: np.ndarray
    feasible: np.ndarray


class PricedSlack:
    """Settles decisions of one program whose recourse variables are slack, `mask` `(n,)`."""

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
