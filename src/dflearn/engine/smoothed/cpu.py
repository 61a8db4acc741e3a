"""The smoothed solver on the CPU: a program is prepared, batches of costs are answered, gradients are projected onto faces.

`SmoothedRows(program)` prepares, `SmoothedRows.answer` solves, `Face.project` leads gradients back. Every answer is judged by the
rule of `dflearn.engine.certify`; what does not pass is solved again. This module imports numba. The layers import it when they
solve for the first time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL, Certifier
from dflearn.engine.linear_algebra.cholesky import SparseFactor
from dflearn.engine.linear_algebra.lanes import LANES
from dflearn.engine.linear_algebra.threads import run_tiles, threads
from dflearn.engine.smoothed.system import workspace
from dflearn.engine.smoothed.tiles import (
    COLD,
    CONE,
    FINISHED,
    NEWTON,
    RESTART,
    Limits,
    SmoothedAnswer,
    SmoothedData,
    project_tiles,
    solve_tiles,
)
from dflearn.engine.status import Status
from dflearn.program import Program
from dflearn.program.sides import Sides

if TYPE_CHECKING:
    from dflearn.engine.hard.smoothed import Hard, Result

# At which interior points end and the face is looked for. With many rows, and MANY more so, steps more save corrections of the face.
INTERIOR_TOLERANCE, CLOSE_TOLERANCE, CLOSEST_TOLERANCE = 1e-8, 1e-9, 1e-10
MANY = 5000
ATTEMPTS, ALL_ATTEMPTS = 2, 4  # of interior points after the first: from the last point, then from other starts
# From multipliers Newton's method has few steps, each of which must bring it closer; interior points then go on from there.
# Neither is to be long: from far away, interior points from nothing are faster.
NEWTON_STEPS, RESTART_STEPS, POLISH_STEPS, ALL_STEPS, INTERIOR_STEPS = 20, 25, 20, 50, 80
# Newton's method settles few rows in fewer steps than interior points take, and many rows in more: so many steps may pass without
# progress, and with a start as many as there are rows to this number.
PATIENCE, PATIENT_ROWS = 6, 600
HEAVY = 1e9  # multiplications of a factorization, for each of the lanes, from which on an instance alone is faster
DENSE = 20_000  # entries of rows that are multiplied as dense ones
TINY = 1e-300
ONE = np.ones(1)


class SmoothedRows:
    """The kept equalities and the inequalities of a program, scaled to length one and in elimination order: the smoothed LP over
    them, and projections onto the faces of the feasible set.

    M w = r on equality rows and M w ≤ r on inequality rows.

    Args:
        infeasible: of a program, a function that says which of so many instances with these sides are proven to have no feasible
            point, bool `(count,)`.

    Attributes:
        factor: M, the order and scale of its rows, and the symbolic factor of M Θ Mᵀ.
    """

    def __init__(
        self, program: Program, infeasible: Callable[[Program], Callable[[Sides, int], np.ndarray]] | None = None
    ) -> None:
        self.program, self.form = program, program.equality_form()
        self.factor = SparseFactor.of(self.form.rows_without_slacks())
        self.infeasible = (lambda sides, count: np.zeros(count, bool)) if infeasible is None else infeasible(program)
        self.is_inequality = self.ordered(self.form.is_inequality)
        self.plan = self.factor.plan_of(self.is_inequality)
        self._plan = self.plan.ctypes.data
        self._own_sides = self._sides(program.own_sides)
        self._scratch = threading.local()

    def right_hand_side(self, sides: Sides) -> np.ndarray:
        """r `(count, m)`, or `(1, m)` where all instances share it."""
        return np.ascontiguousarray(self.ordered(self.form.right_hand_side(sides)) * self.factor.scale)

    def ordered(self, rows: np.ndarray) -> np.ndarray:
        """Something about each row of the program, `(…, m)`, in elimination order."""
        return np.take(rows, self.factor.order, axis=-1)

    def inwards(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the program's rows `(count, m)` → of the scaled rows in elimination order."""
        scaled = self.ordered(y)
        scaled /= self.factor.scale
        return scaled

    def outwards(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the scaled rows in elimination order `(count, m)` → of the program's rows."""
        return np.take(y * self.factor.scale, self.places, axis=1)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each of the program's rows is in elimination order."""
        return np.argsort(self.factor.order)

    def _sides(self, sides: Sides) -> tuple[np.ndarray, ...]:
        return self.right_hand_side(sides), fixed(sides.lines("lower")), fixed(sides.lines("upper"))

    def lines(self, sides: Sides) -> tuple[np.ndarray, ...]:
        """r, lower and upper of the kernels; those of the program are made once."""
        return self._own_sides if sides is self.program.own_sides else self._sides(sides)

    def answer(self, c: np.ndarray, mu: float, sides: Sides, start: np.ndarray | None, tolerance: float) -> Answer:
        """min cᵀw + (μ/2)‖w‖² for c `(count, n)`; start: that of an earlier answer, NaN where none."""
        weight = np.array([mu])  # one for all instances
        answer = self.solve(self.data(c, weight, sides), start, tolerance)
        end = finish(self, c, weight, sides, answer, tolerance)
        return Answer.of(answer, answer.y, Face(self, answer.inside, answer.in_force, weight), end)

    def face(self, inside: np.ndarray, in_force: np.ndarray, mu: np.ndarray) -> Face:
        """The face of `Face.arrays`."""
        return Face(self, inside, in_force, mu)

    def face_of(self, inside: np.ndarray, inequalities: np.ndarray, mu: float, q: np.ndarray | None = None) -> Face:
        """The face on which these variables lie inside their bounds `(count, n)` and these rows of G are in force `(count, rows)`."""
        assert q is None, "instances with a q have `QuadraticRows`"
        rows = np.hstack([np.ones((len(inside), len(self.form.kept)), np.uint8), inequalities])
        return Face(self, inside, np.ascontiguousarray(self.ordered(rows)), np.array([mu]))

    def data(self, c: np.ndarray, mu: np.ndarray, sides: Sides) -> SmoothedData:
        """A batch of smoothed LPs: c `(count, n)` in float64, the one dtype that kernels are compiled for; mu `(count or 1,)`."""
        return SmoothedData(c, np.ascontiguousarray(mu), *self.lines(sides))

    def _space(self) -> int:
        """Where this thread's scratch is."""
        own = self._scratch.__dict__
        if "space" not in own:
            own["space"] = workspace(self.factor)
            own["address"] = own["space"].ctypes.data
        address: int = own["address"]
        return address

    def run_kernel(self, kernel: Callable[..., None], count: int, index: np.ndarray | None, *arguments: Any) -> None:
        """The kernel on the instances at `index` of a batch, or on all of them."""
        index = all_instances(count) if index is None else index
        if not len(index):
            return
        if len(index) <= LANES or threads() == 1:
            kernel(self._plan, self._space(), index, *arguments)
            return
        parts = np.split(index, range(LANES, len(index), LANES))
        run_tiles(lambda part: kernel(self._plan, self._space(), part, *arguments), parts)

    def solve(self, data: SmoothedData, start: np.ndarray | None, tolerance: float) -> SmoothedAnswer:
        """Instances with a start from there; the others, and those that do not get far, from scratch."""
        count = len(data.c)
        answer = self.empty_answer(count)
        if self.heavy:
            answer.y[:] = np.nan
            return answer
        if start is None:
            self.run(data, None, COLD, tolerance, answer)
            return answer._replace(y=self.outwards(answer.y))
        answer = answer._replace(y=self.inwards(start))  # residuals are infinite as long as nothing ran
        known, finished = finite_rows(start), np.zeros(count, bool)
        for way in (NEWTON, RESTART):
            self.run(data, None if known.all() else np.flatnonzero(known), way, tolerance, answer)
            finished = answer.residual <= FINISHED * tolerance
            if way == NEWTON:
                finished &= answer.newton_steps >= 0
            if finished.all():
                break
            known = known & ~finished & finite_rows(answer.y)
        self.run(data, np.flatnonzero(~finished), COLD, tolerance, answer)
        return answer._replace(y=self.outwards(answer.y))

    def solve_again(self, data: SmoothedData, rows: np.ndarray, tolerance: float, answer: SmoothedAnswer) -> None:
        """Write the answers to the instances at `rows`, from scratch, with every start that is known."""
        if self.heavy or not len(rows):
            return
        again = self.empty_answer(len(answer.residual))
        self.run(data, rows, COLD, tolerance, again, thorough=True)
        for whole, own in zip(answer, again._replace(y=self.outwards(again.y)), strict=True):
            whole[rows] = own[rows]

    def look_at_dropped(self, answer: SmoothedAnswer, sides: Sides) -> None:
        """Raise residuals where an equality that depends on others, which the kernels do not see, is broken by more."""
        dropped = self.form.dropped
        if not len(dropped):
            return
        (rows, sizes), b = self._dropped, sides.b[..., dropped]
        with np.errstate(all="ignore"):  # where w is no number, the residual is infinite
            errors = np.abs(answer.w @ rows - b) / (np.abs(answer.w) @ sizes + np.abs(b) + TINY)
        np.fmax(answer.residual, errors.max(1), out=answer.residual)

    @cached_property
    def _dropped(self) -> tuple[Any, Any]:
        """Those rows as columns, and their sizes; dense where they are few, which is faster."""
        rows = sp.csc_array(self.program.A[self.form.dropped].T)
        return (rows.toarray(), abs(rows).toarray()) if rows.shape[0] * rows.shape[1] <= DENSE else (rows, abs(rows))

    @cached_property
    def hard(self) -> Hard:
        """What judges doubtful answers, and solves the instances that the kernels leave."""
        from dflearn.engine.hard.smoothed import Hard

        return Hard(Certifier(self.program))

    @cached_property
    def used(self) -> np.ndarray:
        """The rows of (A, G) that are rows here too, in the program's order."""
        return np.concatenate([self.form.kept, np.arange(self.program.A.shape[0], self._all)])

    @property
    def _all(self) -> int:
        return int(self.program.A.shape[0] + self.program.G.shape[0])

    def prices_of_all(self, y: np.ndarray) -> np.ndarray:
        """Multipliers of the program's rows `(m,)`, ≥ 0 on inequalities → prices of all rows of (A, G) as of `dflearn.engine.certify`."""
        prices = np.zeros(self._all)
        prices[self.used] = -y
        return prices

    @cached_property
    def heavy(self) -> bool:
        """Whether rows outnumber what binds them so much that M Θ⁻¹ Mᵀ fills up: nothing is solved here then."""
        filled = np.diff(self.factor.pattern.column_start).astype(float)
        return float(filled @ filled) > HEAVY

    @cached_property
    def _patience(self) -> int:
        """That of Newton's method with a start."""
        return min(PATIENCE, max(1, PATIENT_ROWS // max(1, self.factor.rows)))

    def empty_answer(self, count: int) -> SmoothedAnswer:
        """Places for the answers to so many instances."""
        return SmoothedAnswer.empty(count, self.program.n, self.factor.rows)

    def run(
        self,
        data: SmoothedData,
        index: np.ndarray | None,
        way: int,
        tolerance: float,
        answer: SmoothedAnswer,
        *,
        thorough: bool = False,
        newton_steps: int | None = None,
    ) -> None:
        """Write the answer to the instances at `index`, or to all; unless COLD from the multipliers in `answer.y`.

        thorough: whatever it takes.
        """
        patience, near = self._patience if way == NEWTON else PATIENCE, INTERIOR_TOLERANCE
        if self._patience == 1 and (way == RESTART or self.factor.rows > MANY):
            near = CLOSEST_TOLERANCE if self.factor.rows > MANY else CLOSE_TOLERANCE
        limits = limits_of(way, tolerance, near, thorough, newton_steps, patience)
        self.run_kernel(solve_tiles, len(data.c), index, way, *limits, *data, *answer)

    def cone_points(self, data: SmoothedData, steps: int) -> np.ndarray:
        """Mᵀy − z_l + z_u after so many interior-point steps, for costs of size about one; `(count, n)`."""
        answer = self.empty_answer(len(data.c))
        limits = limits_of(CONE, 0.0, 0.0, False, None, PATIENCE)._replace(interior_steps=steps)
        self.run_kernel(solve_tiles, len(data.c), None, CONE, *limits, *data, *answer)
        return answer.w


class Face(NamedTuple):
    """The faces that the solutions of a batch lie on."""

    rows: SmoothedRows
    inside: np.ndarray
    in_force: np.ndarray
    mu: np.ndarray

    def project(self, v: np.ndarray) -> np.ndarray:
        """(dw/dc)ᵀ v as stated in `Smoothed`, `(count, n)` → `(count, n)`."""
        return self.on(v, -1.0 / self.mu)[0]

    def along(self, v: np.ndarray) -> np.ndarray:
        """P v, P the projection onto the faces: onto {x : x_j = 0 off the inside, (M x)_i = 0 on the rows in force}."""
        return self.on(v)[0]

    def prices(self, v: np.ndarray) -> np.ndarray:
        """(dw/dr)ᵀ v `(count, rows)`, how right-hand sides of the program's rows move vᵀw."""
        return self.rows.outwards(self.on(v)[1])

    def on(self, v: np.ndarray, factor: np.ndarray = ONE) -> tuple[np.ndarray, np.ndarray]:
        """factor · P v, factor `(count or 1,)`, and the prices z of the scaled rows: by the kernel, and where its answer is off the
        face, by `engine.hard.face`."""
        rows, out, z, off = self.rows, np.empty(v.shape), np.empty(self.in_force.shape), np.empty(len(v))
        rows.run_kernel(project_tiles, len(v), None, self.inside, self.in_force, v, factor, out, z, off)
        if 1.0 in off.tolist():  # for a few, quicker than in numpy
            from dflearn.engine.hard.face import projected

            for i in np.flatnonzero(off):
                free, force = np.flatnonzero(self.inside[i]), np.flatnonzero(self.in_force[i])
                x, prices = projected(rows.factor.matrix[force][:, free].toarray(), v[i, free])
                out[i], z[i] = 0.0, 0.0
                out[i, free], z[i, force] = factor[i % len(factor)] * x, prices
        return out, z

    def side_gradients(self, sides: Sides, w: np.ndarray, v: np.ndarray) -> dict[str, np.ndarray]:
        """By name, (dw/d side)ᵀ v for each instance: v and w `(count, n)` → `(count, k)` each.

        With M the rows in force, D the variables inside their bounds, the prices z = (M D Mᵀ)⁺ M D v are the gradient in the
        right-hand sides, and v − Mᵀz that in the bounds of variables that lie at them. Others get zero.
        """
        z, form = self.prices(v), self.rows.form
        b = np.zeros((len(v), self.rows.program.A.shape[0]))
        b[:, form.kept] = z[:, : len(form.kept)]
        pressed = np.where(self.inside, 0.0, v - (form.rows_without_slacks().T @ z.T).T)
        with np.errstate(invalid="ignore"):
            low, high = np.abs(w - sides.lower), np.abs(w - sides.upper)
        share = np.where(low < high, 1.0, np.where(low > high, 0.0, 0.5))  # a fixed variable is at both: half to each
        return {"b": b, "h": z[:, len(form.kept) :], "lower": share * pressed, "upper": (1 - share) * pressed}

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `SmoothedRows.face` makes it of."""
        return self.inside, self.in_force, self.mu


class Answer(NamedTuple):
    """One row per instance: the decision, what a later solve may start from, its face; the objective, a bound on it, the error by
    the rule, the status, whether Clarabel was asked, and why it is not OPTIMAL (`None`: all are)."""

    w: np.ndarray
    start: np.ndarray
    face: Any
    objective: np.ndarray
    bound: np.ndarray
    residual: np.ndarray
    status: np.ndarray
    fallback: np.ndarray
    reason: np.ndarray | None

    @classmethod
    def of(cls, answer: SmoothedAnswer, start: np.ndarray, face: Any, end: Finished) -> Answer:
        bound = answer.objective
        if any(end.status.tolist()):  # OPTIMAL is 0
            bound = np.where(end.status, -np.inf, bound)
        return cls(answer.w, start, face, answer.objective, bound, answer.residual, *end)


class Finished(NamedTuple):
    """Status, whether Clarabel was asked, and why it is not OPTIMAL (`None`: all are), of each instance `(count,)`."""

    status: np.ndarray
    slow: np.ndarray
    reason: np.ndarray | None


def finish(
    rows: SmoothedRows, c: np.ndarray, mu: np.ndarray, sides: Sides, answer: SmoothedAnswer, tolerance: float
) -> Finished:
    """What the rule lets pass, with its allowance for rounding, is OPTIMAL. For the others: is there a feasible point at all?
    Then the kernels try from other starts, and what still does not pass goes to Clarabel. Changed answers are written."""
    count = len(c)
    status, slow = np.zeros(count, np.int8), np.zeros(count, bool)  # OPTIMAL is 0
    rows.look_at_dropped(answer, sides)
    if max(answer.residual.tolist(), default=0.0) <= OPTIMAL:  # for a few, quicker than in numpy
        return Finished(status, slow, None)
    reason, hard = np.full(count, "", object), rows.hard

    def write(i: int, result: Result) -> None:
        status[i], reason[i], own, value = int(result.status), result.reason, c[i], float(mu[i % len(mu)])
        answer.w[i], answer.residual[i], answer.y[i] = result.w, result.residual, -result.y[rows.used]
        answer.objective[i] = own @ result.w + 0.5 * value * (result.w @ result.w)
        answer.inside[i], answer.in_force[i] = result.inside, rows.ordered(result.in_force[rows.used])

    def clear(index: np.ndarray) -> np.ndarray:
        """Those of the instances that do not pass."""
        left = []
        for i in index[(~(answer.residual <= OPTIMAL) & (answer.infeasible == 0))[index]]:
            prices, passed = rows.prices_of_all(answer.y[i]), None
            if answer.residual[i] < np.inf:
                passed = hard.cleared(c[i], answer.w[i], prices, float(mu[i % len(mu)]), sides.row(i))
            if passed is None:
                left.append(i)
            else:
                write(i, passed)
        return np.array(left, int)

    open_ = clear(np.arange(count))
    if len(open_):
        answer.infeasible[open_] = rows.infeasible(sides.rows(open_), len(open_))
        open_ = open_[answer.infeasible[open_] == 0]
        rows.solve_again(rows.data(c, mu, sides), open_, tolerance, answer)
        rows.look_at_dropped(answer, sides)
        open_ = clear(open_)
    for i in open_:
        guess = np.clip(answer.w[i], sides.row(i).lower, sides.row(i).upper), rows.prices_of_all(answer.y[i])
        write(i, hard.solve(c[i], float(mu[i % len(mu)]), sides.row(i), guess))
    slow[open_] = True
    none = answer.infeasible == 1
    answer.w[none], answer.residual[none], status[none] = np.nan, np.inf, int(Status.INFEASIBLE)
    return Finished(status, slow, reason)


@lru_cache(maxsize=64)
def limits_of(
    way: int, tolerance: float, near: float, thorough: bool, newton_steps: int | None, patience: int
) -> Limits:
    """The limits of `SmoothedRows.run`."""
    steps = NEWTON_STEPS if way == NEWTON else POLISH_STEPS
    usual = (ALL_STEPS, ALL_STEPS) if thorough else (steps, patience)
    return Limits(
        *(usual if newton_steps is None else (newton_steps, newton_steps)),
        RESTART_STEPS if way == RESTART else INTERIOR_STEPS,
        tolerance,
        near,
        ALL_ATTEMPTS if thorough else ATTEMPTS,
        not thorough,
    )


def fixed(array: np.ndarray) -> np.ndarray:
    """The array, contiguous and not to be written to, whether it was so or not: kernels are compiled for one kind only."""
    same: np.ndarray = np.ascontiguousarray(array).view()
    same.flags.writeable = False
    return same


def finite_rows(array: np.ndarray) -> np.ndarray:
    """Which rows of `(count, k)` hold finite numbers alone. A finite sum of squares has finite terms, and is quicker to look at."""
    return np.ones(len(array), bool) if math.isfinite(np.vdot(array, array)) else np.isfinite(array).all(1)


@lru_cache(maxsize=64)
def all_instances(count: int) -> np.ndarray:
    """The numbers of a whole batch."""
    return np.arange(count)
