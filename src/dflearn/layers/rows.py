"""A program's rows as the kernels want them: one system for `Smoothed`, `DavisYin` and `NormalCone`.

This module imports numba. The layers import it when they solve for the first time.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import numpy as np

from dflearn.kernels.cholesky import SparseFactor
from dflearn.kernels.lanes import Tile, all_tiles, tiles
from dflearn.kernels.smoothed import (
    Limits,
    SmoothedAnswer,
    SmoothedData,
    Workspace,
    cone_tile,
    project_tile,
    solve_tile,
)
from dflearn.kernels.smoothed_lp import SmoothedSystem
from dflearn.kernels.threads import run_tiles
from dflearn.program import Program
from dflearn.program.sides import Sides

WARM_STEPS = 10  # Newton steps from a start, before the interior-point method takes over
POLISH_STEPS = 50
INTERIOR_STEPS = 80
ATTEMPTS, ALL_ATTEMPTS = (
    2,
    4,
)  # of the interior-point method after the first: from its last point, then from other starts
INTERIOR_TOLERANCE = 1e-8
CONE_TOLERANCE = 1e-12
CONE_ACCEPTED = 1e-9
HEAVY = 1e9  # multiplications of a factorization, for each of the lanes, from which on an instance alone is faster
ONE = np.ones(1)


class RowSystem:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order.

    With slacks M (w, s) = r; without them M w = r on equality rows and M w ≤ r on inequality rows.

    Attributes:
        factor: M, the order and scale of its rows, and the symbolic factor of M Θ Mᵀ.
    """

    def __init__(self, program: Program, *, slacks: bool) -> None:
        self.program, self.form = program, program.equality_form()
        self.factor = SparseFactor.of(self.form.matrix if slacks else self.form.rows_without_slacks())

    def right_hand_side(self, sides: Sides) -> np.ndarray:
        """r `(count, m)`, or `(1, m)` where all instances share it."""
        return np.ascontiguousarray(self.ordered(self.form.right_hand_side(sides)) * self.factor.scale)

    def ordered(self, rows: np.ndarray) -> np.ndarray:
        """Something about each row of the program, `(…, m)`, in elimination order."""
        return np.ascontiguousarray(rows[..., self.factor.order])

    def inwards(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the program's rows `(count, m)` → of the scaled rows in elimination order."""
        scaled: np.ndarray = self.ordered(y) / self.factor.scale
        return scaled

    def outwards(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the scaled rows in elimination order `(count, m)` → of the program's rows."""
        out = np.empty_like(y)
        out[:, self.factor.order] = y * self.factor.scale
        return out


class SmoothedRows(RowSystem):
    """The rows without slacks: the smoothed LP over them, and projections onto the faces of the feasible set."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, slacks=False)
        self.system = SmoothedSystem.of(self.factor, self.ordered(self.form.is_inequality))
        self._own_sides = self._sides(program.own_sides)
        self._scratch = threading.local()

    def _sides(self, sides: Sides) -> tuple[np.ndarray, ...]:
        """r, lower and upper of the kernels."""
        bounds = (np.ascontiguousarray(sides.lines(name)) for name in ("lower", "upper"))
        return self.right_hand_side(sides), *bounds

    def _lines(self, sides: Sides) -> tuple[np.ndarray, ...]:
        return self._own_sides if sides is self.program.own_sides else self._sides(sides)

    def data(self, c: np.ndarray, mu: np.ndarray, sides: Sides) -> SmoothedData:
        """A batch of smoothed LPs: c `(count, n)`, mu `(count or 1,)`."""
        return SmoothedData(c, np.ascontiguousarray(mu), *self._lines(sides))

    def workspace(self) -> Workspace:
        """This thread's scratch."""
        if not hasattr(self._scratch, "space"):
            self._scratch.space = Workspace.of(self.factor)
        space: Workspace = self._scratch.space
        return space

    def solve(self, data: SmoothedData, start: np.ndarray | None, tolerance: float) -> SmoothedAnswer:
        """Instances with a start by Newton's method; the others, and those it does not finish, from scratch."""
        count = len(data.c)
        answer = self.empty_answer(count, data.c.dtype)
        if self.heavy:
            answer.y[:] = np.nan
            return answer
        if start is None:
            self.run(data, all_tiles(count), False, POLISH_STEPS, tolerance, answer)
            return answer
        known = np.isfinite(start).all(1)
        answer.y[:] = self.inwards(start)  # the rows of unknown ones are not read
        warm = all_tiles(count) if known.all() else tiles(np.flatnonzero(known))
        self.run(data, warm, True, WARM_STEPS, tolerance, answer)
        pending = (answer.newton_steps < 0) | (answer.residual > 10 * tolerance)  # not finished, or not begun
        if pending.any():
            self.run(data, tiles(np.flatnonzero(pending)), False, POLISH_STEPS, tolerance, answer)
        return answer._replace(y=self.outwards(answer.y))

    def solve_again(self, data: SmoothedData, rows: np.ndarray, tolerance: float, answer: SmoothedAnswer) -> None:
        """Write the answers to the instances at `rows`, from scratch, with every start that is known."""
        if self.heavy:
            return
        again = self.empty_answer(len(answer.residual), data.c.dtype)
        self.run(data, tiles(rows), False, POLISH_STEPS, tolerance, again, thorough=True)
        for whole, own in zip(answer, again._replace(y=self.outwards(again.y)), strict=True):
            whole[rows] = own[rows]

    @cached_property
    def heavy(self) -> bool:
        """Whether rows outnumber what binds them so much that M Θ⁻¹ Mᵀ fills up: nothing is solved here then."""
        filled = np.diff(self.system.pattern.column_start).astype(float)
        return float(filled @ filled) > HEAVY

    def empty_answer(self, count: int, dtype: Any = np.float64) -> SmoothedAnswer:
        """Places for the answers to so many instances."""
        return SmoothedAnswer.empty(count, self.program.n, self.factor.rows, dtype)

    def run(
        self,
        data: SmoothedData,
        parts: list[Tile],
        warm: bool,
        newton_steps: int,
        tolerance: float,
        answer: SmoothedAnswer,
        thorough: bool = False,
    ) -> None:
        """Write the answer to some of the instances; warm: from the multipliers in `answer.y`; thorough: whatever it takes."""
        limits = Limits(
            newton_steps,
            INTERIOR_STEPS,
            tolerance,
            INTERIOR_TOLERANCE,
            ALL_ATTEMPTS if thorough else ATTEMPTS,
            not thorough,
        )

        def solve(tile: Tile) -> None:
            solve_tile(self.system, data, *tile, warm, limits, self.workspace(), answer)

        run_tiles(solve, parts)

    def project(self, inside: np.ndarray, in_force: np.ndarray, v: np.ndarray, factor: np.ndarray = ONE) -> np.ndarray:
        """factor · P v, P the projection onto {x : x_j = 0 off the inside, (M x)_i = 0 on the rows in force}.

        inside, v `(count, n)`; in_force `(count, m)`, in elimination order; factor `(count or 1,)`.
        """
        out = np.empty_like(v)

        def project(tile: Tile) -> None:
            project_tile(self.system, inside, in_force, v, factor, *tile, self.workspace(), out)

        run_tiles(project, all_tiles(len(v)))
        return out

    # -- what the norm as regularizer asks ------------------------------------------------------------------------

    def decision_sizes(self, sides: Sides, count: int) -> np.ndarray:
        """How large decisions are by the right-hand sides, or else by the bounds, `(count,)`."""
        r, lower, upper = self._lines(sides)
        forced = np.abs(r).max(1, initial=0.0)
        ends = [np.where(np.isfinite(part), np.abs(part), 0.0).max(1, initial=0.0) for part in (lower, upper)]
        sizes = np.where(forced > 0, forced, np.maximum(*ends))
        return np.broadcast_to(np.where(sizes > 0, sizes, 1.0), (count,))

    def origin_is_feasible(self, sides: Sides, count: int) -> np.ndarray:
        """Whether w = 0 satisfies all rows and bounds, `(count,)`."""
        r, lower, upper = self._lines(sides)
        rows = np.where(self.system.inequality, r >= 0, r == 0).all(1)
        return np.broadcast_to(rows & (lower <= 0).all(1) & (upper >= 0).all(1), (count,)).copy()

    def may_be_endless(self, sides: Sides, count: int) -> np.ndarray:
        """Whether some bound is missing, `(count,)`."""
        _, lower, upper = self._lines(sides)
        return np.broadcast_to((np.isinf(lower) | np.isinf(upper)).any(1), (count,)).copy()

    def pull_from_origin(self, c: np.ndarray, sides: Sides) -> np.ndarray:
        """The length of the projection of −c onto the directions in which one may leave w = 0, `(count,)`."""
        r, lower, upper = self._lines(sides)
        ends = np.where(lower < 0, -np.inf, 0.0), np.where(upper > 0, np.inf, 0.0)
        return self._pull(c, np.where(r > 0, 2.0, 0.0), *ends)[0]  # no row of length one gets to 2

    def pull_without_end(self, c: np.ndarray, sides: Sides) -> np.ndarray:
        """The length of the projection of −c onto the directions in which one may go on for ever, `(count,)`."""
        r, lower, upper = self._lines(sides)
        ends = np.where(np.isinf(lower), -np.inf, 0.0), np.where(np.isinf(upper), np.inf, 0.0)
        pull, way = self._pull(c, np.zeros_like(r), *ends)
        # Where rounding leaves something of no projection at all, costs do not fall along it.
        with np.errstate(invalid="ignore", divide="ignore"):
            known: np.ndarray = np.minimum(pull, -(c * way).sum(1) / np.linalg.norm(way, axis=1))
        return known  # not a number where nothing is

    def _pull(
        self, c: np.ndarray, r: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The length of the projection of −c onto a cone, `(count,)`, and its direction, `(count, n)`."""
        length = np.linalg.norm(c, axis=1)
        length[length == 0] = 1.0
        sides = (np.ascontiguousarray(part) for part in (r, lower, upper))
        answer = self.solve(SmoothedData(c, length, *sides), None, CONE_TOLERANCE)
        # With μ = ‖c‖ the projection is of length one at most; where the kernels failed, nothing is claimed.
        pull = np.where(answer.residual <= CONE_ACCEPTED, length * np.linalg.norm(answer.w, axis=1), np.nan)
        return pull, answer.w

    def cone_points(self, data: SmoothedData, steps: int) -> np.ndarray:
        """Mᵀy − z_l + z_u after so many interior-point steps, for costs of size about one; `(count, n)`."""
        out = np.empty_like(data.c)

        def run(tile: Tile) -> None:
            cone_tile(self.system, data, *tile, steps, self.workspace(), out)

        run_tiles(run, all_tiles(len(data.c)))
        return out
