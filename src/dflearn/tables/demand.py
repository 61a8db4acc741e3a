"""Forecasts of what stands on the right of a constraint: too little and too much of it cost differently, so a mean is wrong.

Quantiles, and decisions for several errors of a forecast at once:

    w* = argmin over w of  1/K Σ_k [ obj(ŷ + e_k, (w, v_k)) ],   (w, v_k) feasible for ŷ + e_k

e_1 … e_K are errors of the forecast on rows left out; v_k is the recourse in scenario k (`Program.scenarios`).
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.wrappers import Wrapper
from dflearn.tables.linear import LinearFit, each_cost

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of quantiles, tried where no critical ratio is known
COUNT, LEAST, SIZE = 20, 5, 4000  # scenarios at most and at least; variables of all scenarios together
INTEGER_SIZE = 400  # the same where some are integer


def quantile_fit(x: Tensor, y: Tensor, level: np.ndarray | float, weights: Tensor | None = None) -> LinearFit:
    """Linear quantile regression of each column of y `(count, p)` at its level, a number or `(p,)`: one linear program each."""
    from sklearn.linear_model import QuantileRegressor

    levels = np.broadcast_to(level, y.shape[1:])
    makes = [QuantileRegressor(quantile=float(one), alpha=0.0, solver="highs") for one in levels]
    return each_cost(x, y, weights, makes)


def critical_ratios(program: Program) -> np.ndarray | None:
    """The quantile of each predicted number to plan for `(p,)`; `None` where the program does not tell it.

    A predicted row with supply u at a unit cost λ, a price a for what exceeds t and b for what it lacks costs

        λ u + a (u − t)⁺ + b (t − u)⁺,      least in expectation where  P(t ≤ u) = (b − λ)/(a + b),

    the critical ratio of the newsvendor (Arrow, Harris and Marschak, 1951). The program tells it
    where each predicted number is the right-hand side of one row, in which one variable, that no other row holds,
    brings supply at a known cost, and recourse variables of that row alone what is lacking or in excess.
    """
    if program.recourse is None or not program.predicts_rows or program.Q is not None or program.is_integer:
        return None
    if program.S is None or program.S.nnz:  # costs are predicted too
        return None
    p, sides = program.p, ((program.b, program.B), (program.h, program.H))
    moves = sp.vstack([sp.csr_array((len(side), p)) if by is None else by for side, by in sides]).tocoo()
    if sorted(moves.col) != list(range(p)) or len(set(moves.row)) < p:
        return None
    order = np.argsort(moves.col)
    row, factor = moves.row[order], moves.data[order]  # of each predicted number
    equality = row < len(program.b)
    whole = sp.vstack([program.A, program.G]).tocsr()
    entries = whole[row].tocoo()
    j, k, value = entries.row, entries.col, entries.data
    later, price = program.recourse[k], program.d[k] / np.abs(value)
    slack = (program.lower[k] == 0) & np.isinf(program.upper[k]) & (price > 0)
    alone = np.bincount(whole.indices, minlength=program.n)[k] == 1
    if not alone.all() or not slack[later].all() or (np.bincount(j[~later], minlength=p) != 1).any():
        return None
    excess, lack = np.full((2, p), np.inf)
    for least, some in ((excess, later & (value < 0)), (lack, later & (value > 0))):
        np.minimum.at(least, j[some], price[some])
    if np.isinf(excess).any() or (np.isfinite(lack) != equality).any():
        return None
    lack[~equality] = 0.0
    supply = np.empty(p)
    supply[j[~later]] = (program.d[k] / value)[~later]
    ratios = (lack - supply) / (excess + lack)
    return np.where(factor > 0, ratios, 1 - ratios) if ((ratios > 0) & (ratios < 1)).all() else None


def scenario_count(program: Program) -> int:
    """How many scenarios a program may have; 0 where it has no recourse, or is too large."""
    if program.recourse is None or not program.recourse.any() or program.Q is not None:
        return 0
    count = min(COUNT, (INTEGER_SIZE if program.is_integer else SIZE) // (program.n + len(program.b) + len(program.h)))
    try:
        return count if count >= LEAST and program.scenarios(2) else 0
    except ProgramError:  # a row that no recourse helps
        return 0


def typical(errors: Tensor, count: int) -> Tensor:
    """So many of the errors `(rows, p)`: those at equal steps when sorted by their sum, costs in units of their spread."""
    spread = errors.std(0, correction=0)
    order = (errors / spread.where(spread > 0, 1.0)).sum(1).argsort(stable=True)
    return errors[order[((np.arange(count) + 0.5) * len(errors) / count).astype(int)]]


class Scenarios(Wrapper):
    """Decides for ŷ + e_k, k = 1 … K, at once; the recourse that it answers with is the one for ŷ itself.

    Args:
        solver: an exact solver of the program.
        errors: e `(K, p)`.
    """

    def __init__(self, solver: Solver, errors: Tensor) -> None:
        super().__init__(solver)
        program, e, count = self.program, errors.detach().double().numpy(), len(errors)
        if program is None or program.recourse is None:
            raise ProgramError(f"scenarios need a program with recourse, and {solver!r} has none")
        wide = program.scenarios(count)
        numbered = replace(program, b=np.arange(len(program.b)), h=np.arange(len(program.h))).scenarios(count)
        later = np.flatnonzero(program.recourse)
        self.errors, self.first = e, ~program.recourse
        self.rows = numbered.b.astype(int), numbered.h.astype(int)
        self.columns = np.concatenate([np.arange(program.n), np.tile(later, count - 1)])
        self.share = np.where(program.recourse, 1 / count, 1.0)[self.columns]
        sides = ((wide.b, wide.B), (wide.h, wide.H))
        self.moves = [np.zeros(len(side)) if by is None else by @ e.ravel() for side, by in sides]
        self.costs = np.zeros(wide.n) if wide.S is None else wide.S @ e.ravel()
        self.inside = HiGHS(wide)

    @property
    def identity(self) -> str:
        digest = blake2b(self.errors.tobytes(), digest_size=8).hexdigest()
        return f"{len(self.errors)} scenarios {digest}, {self.solver.identity}"

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        b, h = sides.b[..., self.rows[0]] + self.moves[0], sides.h[..., self.rows[1]] + self.moves[1]
        wide = Sides(b, h, sides.lower[..., self.columns], sides.upper[..., self.columns])
        found = self.inside._solve(np.ascontiguousarray(c[:, self.columns] * self.share + self.costs), wide, None)
        decided = np.isfinite(found.decision).all(1)
        w = np.where(decided[:, None], found.decision[:, : c.shape[1]], 0.0)
        low, high = sides.bounds()
        w = np.where(self.first, np.clip(w, low, high), w)
        lower, upper = (np.where(self.first & decided[:, None], w, side) for side in (low, high))
        answer = self.solver._solve(c, Sides(sides.b, sides.h, lower, upper), None)
        answer.status[~decided] = found.status[~decided]
        answer.decision[~decided] = np.nan
        optimal = found.status == int(Status.OPTIMAL)
        answer.status[(answer.status == int(Status.OPTIMAL)) & ~optimal] = int(Status.FEASIBLE)
        return answer
