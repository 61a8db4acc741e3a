"""What a decision costs once the truth is known: variables marked as recourse are decided again, the others stay.

    cost(w, y) = min over v of obj(y, v)   s.t.   v feasible for y,   v_j = w_j where j is no recourse variable

It is infinite where no recourse helps. Without recourse variables it is obj(y, w) where w is feasible for y.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dflearn.program import Instance, Program
from dflearn.solvers.base import Solver, Status
from dflearn.solvers.recognition import best_solver
from dflearn.solvers.slack import Filled, PricedSlack


class Settled(NamedTuple):
    """The decision that is left to take `(*batch, n)`, NaN where there is none, and its cost `(*batch,)`, both float64."""

    decision: Tensor
    cost: Tensor


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
