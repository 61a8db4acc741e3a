"""The common part of solvers on a model object (HiGHS, Gurobi): one model per thread, and the rules for integer programs.

The model is built once; per instance only costs, right-hand sides and bounds change. Each instance is solved from a cold
state or from its own `start`, never from what the previous instance left behind: answers do not depend on the order of
the batch.

The rules for linear programs are in `linear`.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from dflearn.certify import OPTIMAL, SURE
from dflearn.errors import OptionError
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Basis, Raw, Solver, Status, check_basis
from dflearn.solvers.linear import Answer, LinearModel
from dflearn.solvers.scaling import power_of_two, span, units

if TYPE_CHECKING:
    from dflearn.solvers.convex import ConvexQP

MOVES = 100  # of single variables
WIDE = 1e6  # costs of an integer program that span more are solved for twice, in two units


class ModelSolver(Solver):
    """Exact LPs and MILPs on a back end's model object. Subclasses write `_build` and `identity`.

    Args:
        program: what to solve.
        time_limit: seconds per instance.
        gap: relative MIP gap at which a decision counts as optimal.
        threads: the back end's own threads inside one solve. To solve instances side by side use `Parallel`.
    """

    parallel = "threads"
    quadratic = True
    program: Program
    start_dtype = torch.int8
    start_blank = Basis.NONE
    made_anew: ClassVar = {"_models": threading.local}

    def __init__(self, program: Program, *, time_limit: float = np.inf, gap: float = 0.0, threads: int = 1) -> None:
        if not time_limit > 0 or not gap >= 0 or threads < 1:
            raise OptionError(f"need time_limit > 0, gap >= 0, threads >= 1; got {time_limit}, {gap}, {threads}")
        self.program = program
        self.objective = program.objective
        self.time_limit, self.gap, self.threads = float(time_limit), float(gap), int(threads)
        linear = program.Q is None and not program.is_integer
        self.start_width = program.n + program.A.shape[0] + program.G.shape[0] if linear else 0
        self._models = threading.local()

    def __repr__(self) -> str:
        limits = f"time_limit={self.time_limit}, gap={self.gap}, threads={self.threads}"
        return f"{type(self).__name__}({self.program!r}, {limits})"

    @abstractmethod
    def _build(self, program: Program) -> Model:
        """A model of a program, this solver's or one derived from it, with this solver's limits."""

    def _model(self) -> Model:
        """This thread's model; a forked process builds its own."""
        if getattr(self._models, "process", None) != os.getpid():
            self._models.model, self._models.process = self._build(self.program), os.getpid()
        model: Model = self._models.model
        return model

    def proven_infeasible(self, sides: Sides, count: int) -> np.ndarray:
        """Which of so many instances are proven to have no feasible point.  sides as of `Program.sides`; bool `(count,)`."""
        if self.program.Q is not None:
            return self.convex.linear.proven_infeasible(sides, count)
        status = self._solve(np.zeros((count, self.objective.n)), sides, None).status
        return np.asarray(status == int(Status.INFEASIBLE))

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        if self.program.Q is not None:
            return self._solve_quadratic(c, sides)
        model, count = self._model(), c.shape[0]
        out = Raw.empty(count, self.objective.n)
        if start is not None:
            check_basis(start)
            out = replace(out, start=np.full((count, self.start_width), Basis.NONE, np.int8))
        if self.program.is_integer:
            model.solve_integers(c, sides, self.gap, out)
            self._hand_on(c, sides, out)
        else:
            model.solve_linear(c, sides, start, out)
        np.add(out.decision, 0.0, out=out.decision)  # turns −0 into 0
        out.objective[:] = np.einsum("ij,ij->i", c, out.decision)
        np.fmin(out.bound, out.objective, out=out.bound)  # where there is no objective, there is no bound either
        return out

    @property
    def next_solver(self) -> ModelSolver | None:
        """What solves integer programs whose answers do not pass, if there is another back end."""
        return None

    def _hand_on(self, c: np.ndarray, sides: Sides, out: Raw) -> None:
        # Without a time limit, what is feasible and no more was not proven optimal.
        doubtful = (Status.FAILED, Status.FEASIBLE) if np.isinf(self.time_limit) else (Status.FAILED,)
        failed = np.flatnonzero(np.isin(out.status, doubtful))
        if failed.size and (other := self.next_solver) is not None:
            rest = other._solve(c[failed], sides.rows(failed), None)
            for name in ("decision", "status", "bound", "reason"):
                getattr(out, name)[failed] = getattr(rest, name)
            assert out.fallback is not None
            out.fallback[failed] = True

    def priced(self, c: np.ndarray, sides: Sides) -> tuple[Raw, np.ndarray]:
        """The answers to an LP, as of `_solve`, and the prices y `(count, rows)` that prove them, as of `Model`; NaN where an
        answer was found in another way."""
        model, count = self._model(), len(c)
        out, y = Raw.empty(count, self.objective.n), np.full((count, model.rows), np.nan)
        model.solve_linear(c, sides, None, out, y)
        found = np.flatnonzero(out.status == int(Status.OPTIMAL))
        verdict = model.certifier.check(c[found], out.decision[found], y[found], sides.rows(found))
        y[found[~(verdict.error <= OPTIMAL)]] = np.nan
        return out, y

    @cached_property
    def convex(self) -> ConvexQP:
        """What solves the program where its objective is quadratic, integrality apart."""
        from dflearn.solvers.convex import ConvexQP

        return ConvexQP(self.program, self.time_limit)

    def _solve_quadratic(self, c: np.ndarray, sides: Sides) -> Raw:
        return self.convex.solve(c, sides)


class Model(LinearModel):
    """A model object that solves integer programs, too."""

    def solve_integers(self, c: np.ndarray, sides: Sides, gap: float, out: Raw) -> None:
        """Solve every instance of a MILP; write decisions, statuses and bounds into `out`.

        Called optimal where the rows hold, the continuous variables are optimal for the integers, and the bound proves it.
        Where costs span more than `WIDE`, a second solve in another unit, with smaller tolerances, must agree.
        """
        gammas, refused = 1.0 / units(c * self.scales.columns), self.refuses(c, sides, out)
        for i, gamma in enumerate(gammas):
            mine = sides.row(i)
            lower, upper = integer_bounds(mine.lower, mine.upper, self.program.integer)
            if refused[i]:
                continue
            if (lower > upper).any():
                out.status[i] = Status.INFEASIBLE
                continue
            whole = Sides(mine.b, mine.h, lower, upper)
            found = self.attempt_integers(c[i], whole, gamma, gap)
            wide = span(c[i]) > WIDE
            if found.status is Status.FAILED or (found.status is Status.OPTIMAL and wide) or self.doubts(found):
                found = self.settle(c[i], whole, gamma, gap, found, wide)
            out.status[i], out.decision[i], out.bound[i] = found.status, found.w, found.bound
            if out.reason is not None:
                out.reason[i] = found.reason

    def doubts(self, found: Answer) -> bool:
        """Whether the back end called optimal what the check did not."""
        return found.status is Status.FEASIBLE and bool(found.y[0])

    def attempt_integers(self, c: np.ndarray, sides: Sides, gamma: float, gap: float) -> Answer:
        """One solve in cost unit γ. Its y is one number: whether an optimal answer failed the check."""
        self.set_sides(self.scales.sides(sides, 1.0))
        status = self.run(c * (gamma * self.scales.columns), None)
        if status is None or status is Status.UNBOUNDED:
            status = self.tell_unbounded()
        if not status.has_decision:
            return Answer(status, np.full(self.n, np.nan), np.zeros(1))
        bound, w = self.bound() / gamma, self.decision() * self.scales.columns
        w, sure = self.with_exact_integers(c, np.clip(w, sides.lower, sides.upper), sides)
        if not self.certifier.violation(w[None], sides)[0] <= OPTIMAL:
            why = self.certifier.examine(c, w, np.zeros(self.rows), sides).reason()
            return Answer(Status.FAILED, np.full(self.n, np.nan), np.zeros(1), reason=f"with integers rounded, {why}")
        w = self.improved(c, w, sides)
        value = float(c @ w)
        allowed = OPTIMAL * float(np.abs(c * w).sum())
        if bound > value + allowed:  # it bounds nothing
            bound = -np.inf
        allowed += gap * abs(value)
        claimed = status is Status.OPTIMAL
        if claimed and self.has_no_end(c, sides):
            return Answer(Status.UNBOUNDED, np.full(self.n, np.nan), np.zeros(1))
        if claimed and not (sure and value - bound <= allowed):
            status = Status.FEASIBLE
        return Answer(status, w, np.full(1, claimed and status is not Status.OPTIMAL), bound)

    def improved(self, c: np.ndarray, w: np.ndarray, sides: Sides) -> np.ndarray:
        """w, or what is found from it by moving single integer variables by one to better decisions, where costs span much.

        Back ends lose costs of 1e-9 beside others of 1e15, and then prove bounds that do not hold.
        """
        for _ in range(MOVES if span(c) > WIDE else 0):
            step = np.where(self.program.integer, -np.sign(c), 0.0)
            index = np.flatnonzero((step != 0) & (w + step >= sides.lower) & (w + step <= sides.upper))
            moved = np.tile(w, (len(index), 1))
            moved[np.arange(len(index)), index] += step[index]
            feasible = index[self.certifier.violation(moved, sides) <= 0.0] if index.size else index
            if not feasible.size:
                break
            best = feasible[np.abs(c[feasible]).argmax()]
            w = np.where(np.arange(self.n) == best, w + step, w)
        return w

    def has_no_end(self, c: np.ndarray, sides: Sides) -> bool:
        """Whether a MILP that has a feasible point is unbounded, since its relaxation is (its numbers are rational).

        Back ends may call the best of the points that they have seen optimal. Where no cost pulls towards a bound that is
        missing, bounds alone are enough.
        """
        if not (((c < 0) & np.isinf(sides.upper)) | ((c > 0) & np.isinf(sides.lower))).any():
            return False
        relaxed = Raw.empty(1, self.n)
        self.relaxation.solve_linear(c[None], sides, None, relaxed)
        return bool(relaxed.status[0] == Status.UNBOUNDED)

    def settle(self, c: np.ndarray, sides: Sides, gamma: float, gap: float, first: Answer, wide: bool) -> Answer:
        """Solve again strictly, in another unit where costs span much; where two answers differ, a third time.

        Of all answers the best. It is optimal where two solves in different units say so, or one where costs span little.
        """
        size = np.abs(c * self.scales.columns)
        other = float(1.0 / power_of_two(np.sqrt(size[size > 0].min() * size.max()))) if wide else gamma
        if wide and other == gamma:
            other = float(1.0 / power_of_two(size[size > 0].min()))
        answers = [first]
        self.be_strict(True)
        try:
            for unit in (other, gamma):
                answers.append(self.attempt_integers(c, sides, unit, gap))
                best = min(answers, key=lambda answer: float(c @ answer.w) if answer.status.has_decision else np.inf)
                if not best.status.has_decision:
                    return answers[-1] if answers[-1].status is first.status else first._replace(status=Status.FAILED)
                allowed = gap * abs(float(c @ best.w)) + OPTIMAL * float(np.abs(c * best.w).sum())
                votes = [a for a in answers if a.status is Status.OPTIMAL and c @ a.w - c @ best.w <= allowed]
                if len(votes) >= (2 if wide else 1):
                    return votes[-1]._replace(w=best.w, bound=min(answer.bound for answer in votes))
        finally:
            self.be_strict(False)
        bound = min(answer.bound for answer in answers if answer.status.has_decision)
        return best._replace(status=Status.FEASIBLE, bound=bound)

    @cached_property
    def relaxation(self) -> Model:
        relaxed: Model = self.make(self.program.relax())
        return relaxed

    def with_exact_integers(self, c: np.ndarray, w: np.ndarray, sides: Sides) -> tuple[np.ndarray, bool]:
        """w with integers rounded, and whether the others are optimal for them; where they are not, or a row breaks, they are
        solved for again."""
        integer = self.program.integer
        rounded = np.where(integer, np.rint(w), w)
        if integer.all():
            return rounded, True
        fixed = Sides(sides.b, sides.h, *(np.where(integer, rounded, side) for side in (sides.lower, sides.upper)))
        best = Raw.empty(1, self.n)
        self.relaxation.solve_linear(c[None], fixed, None, best)
        if best.status[0] not in (Status.OPTIMAL, Status.FEASIBLE):
            return rounded, False
        value, broken = float(c @ rounded), self.certifier.violation(rounded[None], sides)[0]
        if broken > SURE or value - float(c @ best.decision[0]) > SURE * float(np.abs(c * rounded).sum()):
            rounded = np.where(integer, rounded, best.decision[0])
        return rounded, bool(best.status[0] == Status.OPTIMAL)
