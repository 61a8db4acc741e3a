"""Iterative refinement of linear programs: what is wrong with an answer is a linear program again, and is solved enlarged.

At a decision x with prices y, the errors q − M x of the rows and the reduced costs c − Mᵀy are the data of a program whose
solution corrects both (Gleixner, Steffy, Wolter: Iterative refinement for linear programming, 2016). Enlarged until its
worst errors are about one, a back end with absolute tolerances solves it as well as any other. Each round wins what one
solve wins, some seven digits. Inequalities have slacks here, so that a correction of prices holds on both sides of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dflearn.certify import SURE, Certifier
from dflearn.program import Program
from dflearn.program.implied import LARGEST
from dflearn.program.sides import Sides
from dflearn.solvers.base import Status
from dflearn.solvers.scaling import power_of_two, units

if TYPE_CHECKING:
    from dflearn.solvers.linear import LinearModel

ROUNDS = 8
ACTIVE = 1e-9  # a row that a decision misses by less, relative to its terms, is active
STEEP = 1e12  # enlarged reduced costs beyond this are cut: nobody wants those variables to move


class Refiner:
    """Refines answers to the program of a model, on a second model with slacks, which `model.make` builds."""

    def __init__(self, model: LinearModel) -> None:
        program = model.program
        inequalities = program.G.shape[0]
        # Slacks have the size of their rows' entries.
        slacks = sp.diags_array(power_of_two(abs(program.G).max(axis=1).toarray().ravel())) if inequalities else None
        self.n, self.equalities = program.n, program.A.shape[0]
        self.slack_sizes = np.ones(0) if slacks is None else slacks.diagonal()
        A = sp.csr_array(program.A)
        if slacks is not None:
            A = sp.csr_array(sp.block_array([[A, sp.csr_array((self.equalities, inequalities))], [program.G, slacks]]))
        self.program = Program(
            A=A,
            b=np.concatenate([program.b, np.where(program.h >= LARGEST, 0.0, program.h)]),
            lower=np.concatenate([program.lower, np.zeros(inequalities)]),
            upper=np.concatenate([program.upper, np.full(inequalities, np.inf)]),
        )
        self.model = model.make(self.program)
        self.certifier = Certifier(self.program)

    def refine(
        self, c: np.ndarray, sides: Sides, w: np.ndarray, y: np.ndarray
    ) -> tuple[Status, np.ndarray, np.ndarray]:
        """The best answer that a few rounds find: status, w and y. Without a decision, the status tells why."""
        more = len(self.slack_sizes)
        c = np.concatenate([c, np.zeros(more)])
        there = sides.h < LARGEST  # where there is no side, the slack is free
        lower = np.concatenate([sides.lower, np.where(there, 0.0, -np.inf)])
        upper = np.concatenate([sides.upper, np.full(more, np.inf)])
        right = np.concatenate([sides.b, np.where(there, sides.h, 0.0)])
        whole = Sides(right, np.zeros(0), lower, upper)
        scales = self.model.scales
        usual = (1.0 / units((c * scales.columns)[None])[0], scales.decision_sizes(whole)[0])
        y = np.where(np.arange(len(y)) < self.equalities, y, np.minimum(y, 0.0))
        x = self.with_slacks(w, right, there)
        best, least = (w, y), np.inf
        for _ in range(ROUNDS):
            found = self.certifier.examine(c, x, y, whole)
            missing, r, (broken, wrong, _, _) = -found.excess, found.reduced, found.errors()
            error = max(broken.max(initial=0.0), wrong.max(initial=0.0))
            if error < least:
                best, least = (x[: self.n], y), error
            if error <= SURE:
                break
            gamma, sigma = usual
            if wrong.max(initial=0.0) > SURE:
                gamma = 1.0 / power_of_two(np.abs(r * scales.columns)[wrong > SURE].max())
            if broken.max(initial=0.0) > SURE:
                sigma = power_of_two(np.abs(missing * scales.rows)[broken > SURE].max())
            steep = STEEP / (gamma * scales.columns)
            part = Sides(missing, np.zeros(0), np.minimum(lower - x, 0.0), np.maximum(upper - x, 0.0))
            step = self.model.attempt(np.clip(r, -steep, steep), part, gamma, sigma)
            if not step.status.has_decision:
                if step.status in (Status.INFEASIBLE, Status.UNBOUNDED) and least > SURE:
                    return step.status, *best
                break
            x = self.with_slacks(np.clip(x + step.w, lower, upper)[: self.n], right, there)
            y = y + step.y
        return Status.OPTIMAL, *best

    def with_slacks(self, w: np.ndarray, right: np.ndarray, there: np.ndarray) -> np.ndarray:
        """w and what it leaves of each inequality; what is rounding is nothing."""
        if not len(self.slack_sizes):
            return w
        rows, h = self.program.A[self.equalities :, : self.n], right[self.equalities :]
        left = h - rows @ w
        left[there & (left <= ACTIVE * (np.abs(h) + abs(rows) @ np.abs(w)))] = 0.0
        return np.concatenate([w, left / self.slack_sizes])
