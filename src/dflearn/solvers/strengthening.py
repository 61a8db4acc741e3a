"""Linear relaxations in HiGHS whose answers come with a proof, and what makes them stronger, once for a program.

A dual vector proves a bound whatever solver it comes from. With the rows M = (A, G) and the cuts, right-hand sides q, prices y
(≤ 0 on inequalities) and r = c − Mᵀy, every decision of the relaxation has cᵀw ≥ qᵀy + Σ_j min(r_j lower_j, r_j upper_j).
With c = 0, a bound above 0 proves that there is no decision.

The feasible set is the same for all costs. So are, and are found once:

- the least and the most that each integer variable can be, and their sum, rounded inwards. Where the capacities of all
  facilities barely meet the demand, all must open, and the integer program is a linear one;
- links: in a row Σ_j a_j w_j ≤ s z with a, w ≥ 0 and binary z, w_j ≤ upper_j z for each j. There are many, few matter for one
  cost vector, and these are added as they are violated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.certify import SURE, ZERO
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Status
from dflearn.solvers.highs import DROPPED, DUAL, HighsHandle
from dflearn.solvers.scaling import Scales

MOST_INTEGERS = 64  # up to so many integer variables, two linear programs for each are worth their time
MARGIN = 1e-6  # a bound must miss an integer by more, relative to its terms, to be rounded


class Links(NamedTuple):
    """w[variable] ≤ size · w[switch], one entry each."""

    variable: np.ndarray
    switch: np.ndarray
    size: np.ndarray


class Strength(NamedTuple):
    """What is known of a program whatever the costs: bounds `(n,)`, the sum of the integer variables, and links."""

    lower: np.ndarray
    upper: np.ndarray
    fewest: float
    most: float
    links: Links

    @classmethod
    def none(cls, program: Program) -> Strength:
        """Nothing but the bounds, those of integer variables rounded inwards."""
        lower, upper = integer_bounds(program.lower, program.upper, program.integer)
        nothing = np.zeros(0, np.int32)
        return cls(lower, upper, -np.inf, np.inf, Links(nothing, nothing, np.zeros(0)))

    @classmethod
    def of(cls, program: Program) -> Strength:
        """All that the relaxation of the program proves. Bounds of continuous variables stay as they are."""
        plain = cls.none(program)
        where = np.flatnonzero(program.integer)
        if len(where) > MOST_INTEGERS or (plain.lower > plain.upper).any() or not Relaxation.holds(program):
            return plain
        relaxation = Relaxation(program, plain)
        lower, upper = plain.lower.copy(), plain.upper.copy()
        for j in where:
            lower[j] = max(lower[j], _round_up(relaxation.least(np.array([j]), 1.0)))
            upper[j] = min(upper[j], -_round_up(relaxation.least(np.array([j]), -1.0)))
        if (lower > upper).any():
            return plain  # no integers are left: let the exact solver say so
        least, most = relaxation.least(where, 1.0), -relaxation.least(where, -1.0)
        fewest, largest = _round_up(least), -_round_up(-most)
        if fewest <= least + MARGIN and largest >= most - MARGIN:
            fewest, largest = -np.inf, np.inf  # the relaxation knows already
        links = find_links(program)
        open_still = np.flatnonzero(lower[links.switch] < upper[links.switch])
        return cls(lower, upper, fewest, largest, Links(*(part[open_still] for part in links)))

    def fixes_all(self, program: Program) -> bool:
        """Whether each integer variable has one value left, so that the program is a linear one."""
        return bool((self.lower == self.upper)[program.integer].all())


def _round_up(bound: float) -> float:
    return float(np.ceil(bound - MARGIN * max(1.0, abs(bound)))) + 0.0


def find_links(program: Program) -> Links:
    """The links that rows Σ_j a_j w_j ≤ s z imply and do not state: those with upper_j < s / a_j."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    G, lower, upper = program.G, program.lower, program.upper
    binary = program.integer & (lower == 0) & (upper == 1)
    row_of = np.repeat(np.arange(G.shape[0]), np.diff(G.indptr))
    negatives = np.bincount(row_of[G.data < 0], minlength=G.shape[0])
    for i in np.flatnonzero((program.h == 0) & (negatives == 1)):
        row = slice(G.indptr[i], G.indptr[i + 1])
        columns, entries = G.indices[row], G.data[row]
        switch, size = columns[entries < 0][0], -entries[entries < 0][0]
        others, parts = columns[entries > 0], entries[entries > 0]
        if not binary[switch] or (lower[others] < 0).any():
            continue
        others = others[upper[others] * parts < size]
        found.append((others, np.full(len(others), switch), upper[others]))
    if not found:
        return Links(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
    variable, switch, sizes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Links(variable.astype(np.int32), switch.astype(np.int32), sizes)


class Relaxation:
    """The linear relaxation of a program in HiGHS, in the units of `scaling`, with the cuts of one cost vector.

    `begin` forgets all that an earlier cost vector left: what follows depends on its arguments alone.
    """

    def __init__(self, program: Program, strength: Strength) -> None:
        self.scales = Scales.of(program)
        scaled = self.scales.program(program).relax()
        self.n, self.rows, self.equalities = program.n, scaled.A.shape[0] + scaled.G.shape[0], scaled.A.shape[0]
        self.columns = np.arange(self.n, dtype=np.int32)
        self.integers = np.flatnonzero(program.integer).astype(np.int32)
        self.transposed = sp.vstack([scaled.A, scaled.G], format="csr").T.tocsr()
        self.fewest, self.most = strength.fewest, strength.most
        own = Sides(program.b, program.h, strength.lower, strength.upper)
        self.sides = self.scales.sides(own, 1.0)
        self.lower, self.upper = self.sides.lower.copy(), self.sides.upper.copy()
        self.links = strength.links._replace(size=strength.links.size / self.scales.columns[strength.links.variable])
        self.handle = HighsHandle(scaled, self.sides, presolve="off", simplex_strategy=DUAL)
        self.highs, self.status = self.handle.highs, self.handle.highspy.HighsModelStatus
        self.counted = bool(np.isfinite(self.fewest) or np.isfinite(self.most))
        if self.counted:
            count = len(self.integers)
            self.highs.addRow(self.fewest, self.most, count, self.integers, np.ones(count))
        self.reduced = np.zeros(len(self.integers))
        self.cuts = np.zeros(0, np.intp)  # the links that are rows now
        self.cut = np.zeros(len(self.links.size), bool)
        self.handle.run()  # HiGHS keeps the scaling of its first solve, costs included: let no instance's costs decide on it

    @staticmethod
    def holds(program: Program) -> bool:
        """Whether HiGHS would take the matrix as it is."""
        scaled = Scales.of(program).program(program)
        entries = np.abs(np.concatenate([scaled.A.data, scaled.G.data]))
        return not entries.size or entries.min() > DROPPED

    def begin(self, c: np.ndarray, sides: Sides) -> None:
        """From cold: costs and sides in the units of HiGHS, no cuts."""
        if len(self.cuts):
            first = self.rows + self.counted
            self.highs.deleteRows(len(self.cuts), np.arange(first, first + len(self.cuts), dtype=np.int32))
            self.cuts = self.cuts[:0]
            self.cut[:] = False
        self.highs.clearSolver()
        self.c = c
        self.highs.changeColsCost(self.n, self.columns, c)
        if sides is not self.sides:
            right = np.concatenate([sides.b, sides.h])
            left = np.where(np.arange(self.rows) < self.equalities, right, -np.inf)
            self.highs.changeRowsBounds(self.rows, np.arange(self.rows, dtype=np.int32), left, right)
            self.highs.changeColsBounds(self.n, self.columns, sides.lower, sides.upper)
            self.sides, self.lower, self.upper = sides, sides.lower.copy(), sides.upper.copy()
        self.restrict(sides.lower[self.integers], sides.upper[self.integers])

    def restrict(self, lower: np.ndarray, upper: np.ndarray) -> None:
        """Other bounds of the integer variables, `(integers,)`; the basis stays, and is dual feasible still."""
        self.highs.changeColsBounds(len(self.integers), self.integers, lower, upper)
        self.lower[self.integers], self.upper[self.integers] = lower, upper

    def run(self) -> tuple[Status, float]:
        """Solve on from the last basis: how it ended, and the proven bound. What is not proven is `FAILED`."""
        found = self.handle.run()
        if found == self.status.kOptimal:
            return Status.OPTIMAL, self.bound(self.c, np.fromiter(self.highs.getSolution().row_dual, np.float64))[0]
        if found == self.status.kInfeasible:
            _, exists, ray = self.highs.getDualRay()
            for prices in (ray, -ray) if exists else ():
                bound, terms = self.bound(np.zeros(self.n), prices)
                if bound > SURE * terms:
                    return Status.INFEASIBLE, np.inf
        return Status.FAILED, -np.inf

    def decision(self) -> np.ndarray:
        return np.fromiter(self.highs.getSolution().col_value, np.float64, self.n)

    def bound(self, c: np.ndarray, prices: np.ndarray) -> tuple[float, float]:
        """The bound that prices `(rows,)` prove for costs c, cuts included, and the sum of the sizes of its terms.

        The reduced costs of the integer variables are kept in `reduced`.
        """
        y = prices[: self.rows].copy()
        np.minimum(y[self.equalities :], 0.0, out=y[self.equalities :])
        r = c - self.transposed @ y
        sizes = np.abs(y)
        value = np.concatenate((self.sides.b * y[: self.equalities], self.sides.h * y[self.equalities :]))
        total, terms = float(value.sum()), float(np.abs(value).sum())
        price = float(prices[self.rows]) if self.counted else 0.0
        if price:
            side = self.fewest if price > 0 else self.most
            if np.isinf(side):
                price = 0.0
            else:
                total, terms = total + price * side, terms + abs(price * side)
                r[self.integers] -= price
        links = np.minimum(prices[self.rows + self.counted :], 0.0)
        if links.any():
            np.subtract.at(r, self.links.variable[self.cuts], links)
            np.add.at(r, self.links.switch[self.cuts], links * self.links.size[self.cuts])
        bound = np.where(r > 0, self.lower, self.upper)
        if np.isinf(bound).any():
            size = np.abs(c) + abs(self.transposed) @ sizes + abs(price)
            nothing = np.isinf(bound) & (np.abs(r) <= ZERO * size)
            r, bound = np.where(nothing, 0.0, r), np.where(nothing, 0.0, bound)
        self.reduced = r[self.integers]
        parts = r * bound
        return total + float(parts.sum()), terms + float(np.abs(parts).sum())

    def add_links(self, violated: float) -> bool:
        """Make rows of the links that the decision breaks by more than `violated` of their size; whether there are any."""
        variable, switch, size = self.links
        if not len(size):
            return False
        w = self.decision()
        new = np.flatnonzero(~self.cut & (w[variable] > size * (w[switch] + violated)))
        if not len(new):
            return False
        count = len(new)
        index = np.stack([variable[new], switch[new]], 1).ravel()
        entries = np.stack([np.ones(count), -size[new]], 1).ravel()
        starts = np.arange(0, 2 * count, 2, dtype=np.int32)
        self.highs.addRows(count, np.full(count, -np.inf), np.zeros(count), 2 * count, starts, index, entries)
        self.cuts = np.concatenate([self.cuts, new])
        self.cut[new] = True
        return True

    def least(self, where: np.ndarray, sign: float) -> float:
        """The proven least of sign · Σ w over some integer variables; −∞ where there is none."""
        c = np.zeros(self.n)
        c[where] = sign
        self.begin(c, self.sides)
        status, bound = self.run()
        return bound if status is Status.OPTIMAL else -np.inf
