"""A model object of a back end (HiGHS, Gurobi), one for each thread, and the rules for exact answers.

The model is built once; per instance only costs, right-hand sides and bounds change. Each instance is solved from a cold state or from
its own `start`, never from what the previous instance left behind: answers do not depend on the order of the batch.

Back ends have absolute tolerances. They are asked in units that suit them (`scaling`), and what they answer is checked in
the user's units by the one rule of `dflearn.engine.certify`. What does not pass is solved again, strictly, then by Clarabel; what
still does not pass is not called optimal, and `Solution.reason` says why. That there is no decision must be proven, or said by both.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.engine.certify import OPTIMAL, SURE, Certifier, Examination
from dflearn.engine.hard.scaling import Scales, power_of_two, span, spans, units
from dflearn.engine.implied import LARGEST, without_big_m
from dflearn.errors import OptionError, ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Basis, Raw, Solver, Status, check_basis
from dflearn.solvers.convex import ConvexQP

LOOSE = 1e8  # sides and bounds that span more are looked through for such as can never be active
SMALLEST = 1e-12  # back ends drop entries of a matrix that are no larger
MOVES = 100  # of single variables
WIDE = 1e6  # costs of an integer program that span more are solved for twice, in two units


class Answer(NamedTuple):
    """What one solve of one instance found, in the user's units: w `(n,)` and, of an LP, prices y `(rows,)`.

    fallback: whether another solver found it. reason: why it is not optimal. doubted: whether the back end called it so.
    """

    status: Status
    w: np.ndarray
    y: np.ndarray
    bound: float = -np.inf
    fallback: bool = False
    reason: str = ""
    doubted: bool = False


class Model(ABC):
    """One model object of a back end that holds a program. The back end writes the short methods; the rest are the rules.

    Args:
        program: in the user's units. The back end holds `scaled`, the same in units of its own.
        make: a model of another program, with the same limits.
        time_limit: seconds per solve.
    """

    def __init__(self, program: Program, make: Callable[[Program], Any], time_limit: float = np.inf) -> None:
        self.program, self.integer, self.make, self.time_limit = program, program.is_integer, make, time_limit
        self.n, self.equalities, self.inequalities = program.n, program.A.shape[0], program.G.shape[0]
        self.rows = self.equalities + self.inequalities
        self.scales = Scales.of(program)
        self.scaled = self.scales.program(program)
        entries = np.concatenate([self.scaled.A.data, self.scaled.G.data])
        if entries.size and np.abs(entries[entries != 0]).min(initial=1.0) <= SMALLEST:
            raise ProgramError(
                f"{program!r}: the entries of a row span more than {1 / SMALLEST:.0e}, which no solver can hold"
            )
        self.held = self.scaled.own_sides

    @abstractmethod
    def change_rows(self, b: np.ndarray, h: np.ndarray) -> None: ...

    @abstractmethod
    def change_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None: ...

    @abstractmethod
    def run(self, c: np.ndarray, basis: np.ndarray | None) -> Status | None:
        """Solve with costs c, from `basis` or from cold; `None` for "infeasible or unbounded, it is not known which"."""

    @abstractmethod
    def decision(self) -> np.ndarray:
        """w of the last run, `(n,)`."""

    @abstractmethod
    def decision_and_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """w and y of the last run, an LP, `(n,)` and `(rows,)`: y ≤ 0 on inequalities, and c − Mᵀy are the reduced costs.

        y counts where w is optimal only.
        """

    @abstractmethod
    def bound(self) -> float:
        """The lower bound that the last run proved, for MILPs."""

    @abstractmethod
    def basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        """Write the basis of the last run, an LP solved to optimality at w, into `codes` `(n + rows,)`."""

    @abstractmethod
    def be_strict(self, strict: bool) -> None:
        """Whether the next runs have the smallest tolerances there are and no presolve, or are as usual."""

    @cached_property
    def own_size(self) -> np.ndarray:
        return self.scales.decision_sizes(self.own_relevant)

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    # -- linear programs --------------------------------------------------------------------------------------------

    def solve_linear(
        self, c: np.ndarray, sides: Sides, start: np.ndarray | None, out: Raw, prices: np.ndarray | None = None
    ) -> None:
        """Solve every instance of an LP, certify, and mend; write decisions, statuses, bounds and starts into `out`, and what
        prices there are before mending into `prices` `(count, rows)`.

        A row of `out` begins as `FAILED`, without a bound, and stays so where nothing can be said.
        """
        count = len(c)
        gamma = 1.0 / units(c if self.scales.plain else c * self.scales.columns)
        own = sides is self.program.own_sides
        seen = self.own_relevant if own else self.relevant(sides)
        sigma = self.own_size if own else self.scales.decision_sizes(seen)  # one for each instance, or one for all
        y = np.full((count, self.rows), np.nan) if prices is None else prices
        shared, refused = own or sides.is_shared, self.refuses(c, sides, out)
        for i in range(count):
            if refused[i]:
                continue
            warm = None if start is None or start[i].min() == Basis.NONE else start[i]
            codes = None if out.start is None else out.start[i]
            mine = seen if shared else seen.row(i)
            found = self.attempt(c[i], mine, gamma[i], sigma[min(i, len(sigma) - 1)], warm, codes)
            out.status[i], out.decision[i], y[i] = int(found.status), found.w, found.y
        np.maximum(out.decision, sides.lower, out=out.decision)
        np.minimum(out.decision, sides.upper, out=out.decision)
        self.certify(c, sides, seen, y, out, refused)

    def refuses(self, c: np.ndarray, sides: Sides, out: Raw) -> np.ndarray:
        """Which instances have numbers that back ends would take for infinite; `out` says so.  `(count,)`"""
        refused: np.ndarray = np.abs(c).max(1) >= LARGEST
        if sides.b.size:
            refused = refused | (np.abs(sides.lines("b")).max(1) >= LARGEST)
        if out.reason is not None:
            out.reason[refused] = f"a cost or an equality's side is {LARGEST:g} or more; give it in a larger unit"
        return refused

    def relevant(self, sides: Sides) -> Sides:
        """The sides without what can never be active, where they span so much that it may matter."""
        right, lower, upper = sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper")
        counts = [len(part) for part in (right, lower, upper)]
        count = max(counts) if min(counts) else 0
        parts = [np.broadcast_to(part, (count, part.shape[1])) for part in (right, lower, upper)]
        together = np.hstack(parts)
        wide = spans(np.where(np.isfinite(together), together, 0.0)) > LOOSE
        if not wide.any():
            return sides
        parts = [part.copy() for part in parts]
        for i in np.flatnonzero(wide):
            tighter = self.certifier.propagation.without_loose(*(part[i] for part in parts))
            for part, line in zip(parts, tighter[:3], strict=True):
                part[i] = line
        if sides.is_shared:
            parts = [part[0] for part in parts]
        return Sides(*np.split(parts[0], [self.equalities], axis=-1), *parts[1:])

    def attempt(
        self, c: np.ndarray, sides: Sides, gamma: float, sigma: float,
        start: np.ndarray | None = None, codes: np.ndarray | None = None,
    ) -> Answer:  # fmt: skip
        """One solve in units γ of costs and σ of decisions; the basis is written into `codes`. w may miss bounds a little."""
        self.set_sides(self.scales.sides(sides, sigma))
        costs = c if gamma == 1.0 and self.scales.plain else c * (gamma * self.scales.columns)
        status = self.run(costs, start)
        if start is not None and status is not Status.OPTIMAL:
            status = self.run(costs, None)  # a start may save time, never change what is found out
        if status is None:
            status = self.tell_unbounded()
        if not status.has_decision:
            return self.nothing(status)
        w, y = self.decision_and_prices()
        if codes is not None and status is Status.OPTIMAL:
            self.basis(w, codes)
        if not self.scales.plain or gamma != 1.0 or sigma != 1.0:
            w, y = w * (self.scales.columns * sigma), y * (self.scales.rows / gamma)
        return Answer(status, w, y)

    def nothing(self, status: Status, reason: str = "") -> Answer:
        return Answer(status, np.full(self.n, np.nan), np.full(self.rows, np.nan), reason=reason)

    def certify(self, c: np.ndarray, sides: Sides, seen: Sides, y: np.ndarray, out: Raw, refused: np.ndarray) -> None:
        """Check every answer of a batch. What is in doubt is mended, and is optimal only if the check then says so."""
        out.decision[:], y[:], verdict = self.certifier.judge(c, out.decision, y, sides)
        sure = (out.status == int(Status.OPTIMAL)) & (verdict.error <= SURE)
        out.bound[sure] = verdict.bound[sure]
        for i in () if sure.all() else np.flatnonzero(~sure & ~refused & (out.status != int(Status.NOT_FOUND))):
            first = Answer(Status(int(out.status[i])), out.decision[i], y[i])
            last = self.mend(c[i], sides.row(i), seen.row(i), first)
            out.status[i], out.decision[i], out.bound[i] = last.status, last.w, last.bound
            if out.fallback is not None and out.reason is not None:
                out.fallback[i], out.reason[i] = last.fallback, last.reason

    @cached_property
    def own_relevant(self) -> Sides:
        return self.relevant(self.program.own_sides)

    @cached_property
    def clarabel(self) -> ConvexQP:
        """The next solver."""
        return ConvexQP(self.program.relax(), self.time_limit)

    def proves_infeasible(self, sides: Sides, seen: Sides) -> bool:
        """Whether the back end's proof that an instance has no decision holds in the user's units."""
        self.attempt(np.zeros(self.n), seen, 1.0, float(self.scales.decision_sizes(seen)[0]))
        ray = self.ray()
        return ray is not None and self.certifier.proves_infeasible(ray * self.scales.rows, sides)

    def ray(self) -> np.ndarray | None:
        """y `(rows,)` of the last run that proves an LP infeasible, signs as of prices, where the back end has one."""
        return None

    def mend(self, c: np.ndarray, sides: Sides, seen: Sides, first: Answer) -> Answer:
        """The answer to one instance whose first answer did not pass: that one tidied, then a strict one, then Clarabel's.

        seen: the sides as the back end sees them.
        """
        best, claim, allowed = first, first.status, None
        if first.status.has_decision:
            w, y, verdict = self.certifier.tidy(c, first.w, first.y, sides)
            if verdict.error[0] > SURE and first.status is Status.OPTIMAL:
                second = self.strictly(c, seen, self.certifier.examine(c, w, y, sides))
                again = self.certifier.tidy(c, np.clip(second.w, sides.lower, sides.upper), second.y, sides)
                if again[2].error[0] < verdict.error[0]:
                    w, y, verdict = again
            allowed = verdict if verdict.error[0] <= SURE else self.certifier.allow(c, w, y, sides)
            best = Answer(first.status, w, y, float(allowed.bound[0]))
            if allowed.error[0] <= OPTIMAL:
                return best._replace(status=Status.OPTIMAL)
            if first.status is Status.FEASIBLE:  # a limit was reached
                kept = allowed.primal[0] <= OPTIMAL
                return best._replace(bound=-np.inf) if kept else self.nothing(Status.NOT_FOUND)
        broken = allowed is not None and allowed.primal[0] > OPTIMAL
        if claim is Status.INFEASIBLE and self.proves_infeasible(sides, seen):
            return self.nothing(claim)
        if broken and self.certifier.bounds_cross(sides):
            return self.nothing(Status.INFEASIBLE)
        if claim in (
            Status.FAILED,
            Status.INFEASIBLE,
        ):  # in units of the largest side: its rounding may have hidden what is small
            second = self.attempt(c, seen, 1.0 / units((c * self.scales.columns)[None])[0], self.largest_size(seen))
            if second.status is Status.OPTIMAL:
                w = np.clip(second.w, sides.lower, sides.upper)
                return self.mend(c, sides, seen, second._replace(w=w))
            claim = Status.UNBOUNDED if second.status is Status.UNBOUNDED else claim
        other = self.clarabel.best(c, sides, None if allowed is None else (best.w, best.y))
        if other is not None and other.error <= OPTIMAL:
            return Answer(Status.OPTIMAL, other.w, other.y, other.bound, fallback=True)
        if claim in (Status.INFEASIBLE, Status.UNBOUNDED) and self.clarabel.agrees(claim, c, sides):
            return self.nothing(claim)
        if other is not None and other.primal <= OPTIMAL:
            why = self.certifier.examine(c, other.w, other.y, sides).reason()
            return Answer(Status.FEASIBLE, other.w, other.y, other.bound, fallback=True, reason=why)
        if allowed is not None:
            status = Status.FEASIBLE if allowed.primal[0] <= OPTIMAL else Status.FAILED
            why = self.certifier.examine(c, best.w, best.y, sides).reason()
            return best._replace(status=status, reason=why) if status.has_decision else self.nothing(status, why)
        why = f"the first solver says {claim.name}, Clarabel does not agree and has no answer that passes"
        return self.nothing(Status.FAILED, why)

    def largest_size(self, sides: Sides) -> float:
        """The size of decisions that the largest finite side of an instance speaks of."""
        parts = sides.right_hand_sides()[0] * self.scales.rows, *(side / self.scales.columns for side in sides.bounds())
        named = np.abs(np.concatenate([np.ravel(part) for part in parts]))
        return float(power_of_two(named[np.isfinite(named)].max(initial=1e-300)))

    def strictly(self, c: np.ndarray, seen: Sides, first: Examination) -> Answer:
        """One more solve, with the smallest tolerances there are, in units in which the errors of the first answer are about one."""
        rows, variables, *_ = first.errors()
        gamma, sigma = 1.0 / units((c * self.scales.columns)[None])[0], self.scales.decision_sizes(seen)[0]
        if variables.max(initial=0.0) > SURE:
            gamma = 1.0 / power_of_two(np.abs(first.reduced * self.scales.columns)[variables > SURE].max())
        if rows.max(initial=0.0) > SURE:
            sigma = power_of_two(np.abs(first.excess * self.scales.rows)[rows > SURE].max())
        self.be_strict(True)
        try:
            return self.attempt(c, seen, gamma, sigma)
        finally:
            self.be_strict(False)

    # -- integer programs ---------------------------------------------------------------------------------------

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
            if found.status is Status.FAILED or (found.status is Status.OPTIMAL and wide) or found.doubted:
                found = self.settle(c[i], whole, gamma, gap, found, wide)
            if found.status is Status.FAILED:
                found = self.with_small_m(c[i], whole, gap) or found
            out.status[i], out.decision[i], out.bound[i] = found.status, found.w, found.bound
            if out.reason is not None:
                out.reason[i] = found.reason

    def attempt_integers(self, c: np.ndarray, sides: Sides, gamma: float, gap: float) -> Answer:
        """One solve in cost unit γ."""
        self.set_sides(self.scales.sides(sides, 1.0))
        status = self.run(c * (gamma * self.scales.columns), None)
        if status is None or status is Status.UNBOUNDED:
            status = self.tell_unbounded()
        if not status.has_decision:
            return self.nothing(status)
        bound, w = self.bound() / gamma, self.decision() * self.scales.columns
        w, sure = self.with_exact_integers(c, np.clip(w, sides.lower, sides.upper), sides)
        if not self.certifier.violation(w[None], sides)[0] <= OPTIMAL:
            why = self.certifier.examine(c, w, np.zeros(self.rows), sides).reason()
            return self.nothing(Status.FAILED, f"with integers rounded, {why}")
        w = self.improved(c, w, sides)
        value = float(c @ w)
        allowed = OPTIMAL * float(np.abs(c * w).sum())
        if bound > value + allowed:  # it bounds nothing
            bound = -np.inf
        allowed += gap * abs(value)
        claimed = status is Status.OPTIMAL
        if claimed and self.has_no_end(c, sides):
            return self.nothing(Status.UNBOUNDED)
        doubted = claimed and not (sure and value - bound <= allowed)
        return Answer(Status.FEASIBLE if doubted else status, w, np.empty(0), bound, doubted=doubted)

    def with_small_m(self, c: np.ndarray, sides: Sides, gap: float) -> Answer | None:
        """The answer where no big M is larger than it must be: tolerances let a back end count as integral what such an M makes feasible.

        `None` where no M shrinks, or the answer still breaks a row of the program.
        """
        low, high = self.certifier.implied(sides)
        binary = self.program.integer & (sides.upper - sides.lower == 1)
        low, high = np.where(binary, sides.lower, low), np.where(binary, sides.upper, high)
        smaller = without_big_m(sp.csr_array(self.program.G), np.ravel(sides.h), low, high, binary)
        if smaller is None:
            return None
        rows, h = smaller
        raw = Raw.empty(1, self.n)
        self.make(replace(self.program, G=rows)).solve_integers(c[None], replace(sides, h=h), gap, raw)
        status, w = Status(int(raw.status[0])), raw.decision[0]
        if not status.has_decision or not self.certifier.violation(w[None], sides)[0] <= OPTIMAL:
            return None
        return Answer(status, w, np.empty(0), float(raw.bound[0]))

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

        Of all answers that break no row by more than `SURE`, if there are any, the best. It is optimal where two solves in different
        units say so, or one where costs span little.
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
                clean = [a for a in answers if self.certifier.violation(a.w[None], sides)[0] <= SURE] or answers
                best = min(clean, key=lambda answer: float(c @ answer.w) if answer.status.has_decision else np.inf)
                if not best.status.has_decision:
                    return answers[-1] if answers[-1].status is first.status else first._replace(status=Status.FAILED)
                allowed = gap * abs(float(c @ best.w)) + OPTIMAL * float(np.abs(c * best.w).sum())
                votes = [a for a in clean if a.status is Status.OPTIMAL and c @ a.w - c @ best.w <= allowed]
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

    # -- the model object -------------------------------------------------------------------------------------------

    def set_sides(self, sides: Sides) -> None:
        """Right-hand sides and bounds of the next run; nothing is passed on that the model has already."""
        if self.rows and not (_same(sides.b, self.held.b) and _same(sides.h, self.held.h)):
            self.change_rows(sides.b, sides.h)
        if not (_same(sides.lower, self.held.lower) and _same(sides.upper, self.held.upper)):
            self.change_bounds(sides.lower, sides.upper)
        self.held = sides

    def tell_unbounded(self) -> Status:
        """Infeasible or unbounded: where any decision exists at all, which zero costs find out, it is unbounded."""
        status = self.run(np.zeros(self.n), None)
        if status is None:
            return Status.FAILED
        return Status.UNBOUNDED if status.has_decision else status


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or np.array_equal(one, other)


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
            out.put(failed, replace(rest, fallback=np.ones(len(failed), bool)))

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
        return ConvexQP(self.program, self.time_limit)

    def _solve_quadratic(self, c: np.ndarray, sides: Sides) -> Raw:
        return self.convex.solve(c, sides)
