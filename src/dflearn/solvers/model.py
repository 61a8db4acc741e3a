"""A model object of a back end (HiGHS, Gurobi), one for each thread, and the rules for exact answers.

The model is built once; per instance only costs, right-hand sides and bounds change. Each instance is solved from cold or from its
own `start`, so that answers do not depend on the order of the batch.

Back ends have absolute tolerances. They are asked in units that suit them (`scaling`), and the rule of `dflearn.engine.certify` judges
their answers in the user's units. What does not pass is solved again, strictly, then by Clarabel; what still does not pass is not
called optimal, and `Solution.reason` says why. That there is no decision must be proven, or said by both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dflearn.engine.certify import OPTIMAL, SURE, Certifier, Examination
from dflearn.engine.hard.scaling import Scales, largest, power_of_two, span, spans, units
from dflearn.engine.implied import LARGEST, without_big_m
from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides, integer_bounds
from dflearn.solvers.base import Answer, Basis, Raw, Status
from dflearn.solvers.convex import ConvexQP

LOOSE = 1e8  # sides and bounds that span more are looked through for such as can never be active
SMALLEST = 1e-12  # back ends drop entries of a matrix that are no larger
MOVES = 100  # of single variables
WIDE = 1e6  # costs of an integer program that span more are solved for twice, in two units
BIG = 1e4  # entries of a row with integers that span more come near to what tolerances hide


class Model(ABC):
    """One model object of a back end that holds a program. The back end writes the short methods; the rest are the rules.

    It holds `scaled`, the program in units of its own. make: a model of another program, with the same limits.
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
        """w `(n,)` and, where w is optimal, y `(rows,)` of the last run, an LP: y ≤ 0 on inequalities, c − Mᵀy the reduced costs."""

    @abstractmethod
    def bound(self) -> float:
        """The lower bound that the last run proved, for MILPs."""

    @abstractmethod
    def basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        """Write the basis of the last run, an LP solved to optimality at w, into `codes` `(n + rows,)`."""

    @abstractmethod
    def be_strict(self, strict: bool, presolve: bool = False) -> None:
        """Whether the next runs have the smallest tolerances there are, with or without presolve, or are as usual."""

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    # -- linear programs --------------------------------------------------------------------------------------------

    def solve_linear(
        self, c: np.ndarray, sides: Sides, start: np.ndarray | None, out: Raw, prices: np.ndarray | None = None
    ) -> None:
        """Solve every instance of an LP, certify, and mend; write answers into `out`, whose rows begin as `FAILED`, and the prices of the
        first answers into `prices` `(count, rows)`."""
        gammas = 1.0 / units(c * self.scales.columns)
        own = sides is self.program.own_sides
        seen, sigma = self.own if own else self.relevant(sides)  # one size for each instance, or one for all
        y = np.full((len(c), self.rows), np.nan) if prices is None else prices
        shared, refused = own or sides.is_shared, self.refuses(c, sides, out)
        for i in np.flatnonzero(~refused).tolist():
            warm = None if start is None or start[i].min() == Basis.NONE else start[i]
            codes = None if out.start is None else out.start[i]
            mine = seen if shared else seen.row(i)
            found = self.attempt(c[i], mine, gammas[i], sigma[min(i, len(sigma) - 1)], warm, codes)
            out.status[i], out.decision[i], y[i] = int(found.status), found.w, found.y
        np.clip(out.decision, sides.lower, sides.upper, out=out.decision)
        out.decision[:], y[:], verdict = self.certifier.judge(c, out.decision, y, sides)
        sure = (out.status == int(Status.OPTIMAL)) & (verdict.error <= SURE)
        out.bound[sure] = verdict.bound[sure]
        doubtful = ~sure & ~refused & (out.status != int(Status.NOT_FOUND))
        for i in np.flatnonzero(doubtful).tolist():
            first = Answer(Status(int(out.status[i])), out.decision[i], y[i])
            self.mend(c[i], sides.row(i), seen.row(i), first).put(out, i)

    def refuses(self, c: np.ndarray, sides: Sides, out: Raw) -> np.ndarray:
        """Which instances have numbers that back ends would take for infinite; `out` says so.  `(count,)`"""
        refused: np.ndarray = np.abs(c).max(1) >= LARGEST
        refused |= np.abs(sides.lines("b")).max(1, initial=0.0) >= LARGEST
        if out.reason is not None:
            out.reason[refused] = f"a cost or an equality's side is {LARGEST:g} or more; give it in a larger unit"
        return refused

    @cached_property
    def own(self) -> tuple[Sides, np.ndarray]:
        """`relevant` for the program's own sides."""
        return self.relevant(self.program.own_sides)

    def relevant(self, sides: Sides) -> tuple[Sides, np.ndarray]:
        """The sides, if they span much without those that can never be active; and the size of decisions, `(count,)` or `(1,)`."""
        parts = sides.right_hand_sides(), *sides.bounds()
        counts = [len(part) for part in parts]
        count, ends = max(counts) if min(counts) else 0, np.cumsum([part.shape[1] for part in parts])[:-1]
        whole = np.hstack([np.broadcast_to(part, (count, part.shape[1])) for part in parts])
        wide = np.flatnonzero(spans(np.where(np.isfinite(whole), whole, 0.0)) > LOOSE)
        for i in wide:
            whole[i] = np.hstack(self.certifier.propagation.without_loose(*np.split(whole[i], ends))[:3])
        if wide.size:
            lines = whole[0] if sides.is_shared else whole
            sides = Sides(*np.split(lines, [self.equalities, *ends], axis=-1))
        return sides, self.scales.decision_sizes(sides)

    def status_of(
        self, c: np.ndarray, sides: Sides, gamma: float, sigma: float = 1.0, start: np.ndarray | None = None
    ) -> Status:
        """Solve one instance in units γ of costs and σ of decisions."""
        self.set_sides(self.scales.sides(sides, sigma))
        costs = c if gamma == 1.0 and self.scales.plain else c * (gamma * self.scales.columns)
        status = self.run(costs, start)
        if start is not None and status is not Status.OPTIMAL:
            status = self.run(costs, None)  # a start may save time, but must not change the status
        if status is None or (self.integer and status is Status.UNBOUNDED):  # with zero costs it is infeasible or not
            status = self.run(np.zeros(self.n), None)
            if status is not None and status.has_decision:
                return Status.UNBOUNDED
        return Status.FAILED if status is None else status

    def attempt(
        self, c: np.ndarray, sides: Sides, gamma: float, sigma: float,
        start: np.ndarray | None = None, codes: np.ndarray | None = None,
    ) -> Answer:  # fmt: skip
        """One solve of an LP; the basis is written into `codes`. w may miss bounds a little."""
        status = self.status_of(c, sides, gamma, sigma, start)
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
        """The answer to one instance whose first answer did not pass: tidied, solved again strictly, then by Clarabel.

        seen: the sides as the back end sees them.
        """
        best, claim, allowed = first, first.status, None
        if claim.has_decision:
            w, y, verdict = self.certifier.tidy(c, first.w, first.y, sides)
            if verdict.error[0] > SURE and claim is Status.OPTIMAL:
                second = self.strictly(c, seen, self.certifier.examine(c, w, y, sides))
                again = self.certifier.tidy(c, np.clip(second.w, sides.lower, sides.upper), second.y, sides)
                w, y, verdict = again if again[2].error[0] < verdict.error[0] else (w, y, verdict)
            allowed = verdict if verdict.error[0] <= SURE else self.certifier.allow(c, w, y, sides)
            best = Answer(claim, w, y, float(allowed.bound[0]))
            if allowed.error[0] <= OPTIMAL:
                return best._replace(status=Status.OPTIMAL)
            if claim is Status.FEASIBLE:  # a limit was reached
                kept = allowed.primal[0] <= OPTIMAL
                return best._replace(bound=-np.inf) if kept else self.nothing(Status.NOT_FOUND)
            if allowed.primal[0] > OPTIMAL and self.certifier.bounds_cross(sides):
                return self.nothing(Status.INFEASIBLE)
        if claim is Status.INFEASIBLE and self.proves_infeasible(sides, seen):
            return self.nothing(claim)
        if claim in (Status.FAILED, Status.INFEASIBLE):  # rounding may have hidden small sides: in units of the largest
            second = self.attempt(c, seen, self.cost_unit(c), self.largest_size(seen))
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
            best, feasible = Answer(claim, other.w, other.y, other.bound, fallback=True), True
        elif allowed is not None:
            feasible = bool(allowed.primal[0] <= OPTIMAL)
        else:
            why = f"the first solver says {claim.name}, Clarabel does not agree and has no answer that passes"
            return self.nothing(Status.FAILED, why)
        why = self.certifier.examine(c, best.w, best.y, sides).reason()
        return best._replace(status=Status.FEASIBLE, reason=why) if feasible else self.nothing(Status.FAILED, why)

    def cost_unit(self, c: np.ndarray) -> float:
        return float(1.0 / units((c * self.scales.columns)[None])[0])

    def largest_size(self, sides: Sides) -> float:
        """The size of decisions that the largest finite side of an instance speaks of."""
        parts = sides.right_hand_sides()[0] * self.scales.rows, *(side / self.scales.columns for side in sides.bounds())
        named = np.abs(np.concatenate([np.ravel(part) for part in parts]))
        return float(power_of_two(named[np.isfinite(named)].max(initial=1e-300)))

    def strictly(self, c: np.ndarray, seen: Sides, first: Examination) -> Answer:
        """One more solve, with the smallest tolerances there are, in units in which the errors of the first answer are about one."""
        rows, variables, *_ = first.errors()
        gamma, sigma = self.cost_unit(c), self.scales.decision_sizes(seen)[0]
        if variables.max(initial=0.0) > SURE:
            gamma = float(1.0 / power_of_two(np.abs(first.reduced * self.scales.columns)[variables > SURE].max()))
        if rows.max(initial=0.0) > SURE:
            sigma = float(power_of_two(np.abs(first.excess * self.scales.rows)[rows > SURE].max()))
        with self.strict_tolerances():
            return self.attempt(c, seen, gamma, sigma)

    @contextmanager
    def strict_tolerances(self, presolve: bool = False) -> Iterator[None]:
        self.be_strict(True, presolve)
        try:
            yield
        finally:
            self.be_strict(False)

    # -- integer programs ---------------------------------------------------------------------------------------

    def solve_integers(self, c: np.ndarray, sides: Sides, gap: float, out: Raw) -> None:
        """Solve every instance of a MILP; write answers into `out`.

        OPTIMAL if the rows hold, the continuous variables are optimal for the integers, and the bound proves it. If costs span more
        than `WIDE`, or a row has a big M that cannot be smaller, a second solve in another unit must agree.
        """
        gammas = 1.0 / units(c * self.scales.columns)
        for i in np.flatnonzero(~self.refuses(c, sides, out)).tolist():
            mine, wide = sides.row(i), span(c[i] * self.scales.columns) > WIDE
            whole = Sides(mine.b, mine.h, *integer_bounds(mine.lower, mine.upper, self.program.integer))
            if (whole.lower > whole.upper).any():
                out.status[i] = Status.INFEASIBLE
                continue
            found = self.with_small_m(c[i], whole, gap) if self.has_big_m else None
            if found is None:
                wide |= self.has_big_m
                found = self.attempt_integers(c[i], whole, gammas[i], gap)
                if found.status is Status.FAILED or (found.status is Status.OPTIMAL and wide) or found.doubted:
                    found = self.settle(c[i], whole, gammas[i], gap, found, wide)
                if found.status is Status.FAILED and not self.has_big_m:
                    found = self.with_small_m(c[i], whole, gap) or found
            found.put(out, i)

    def attempt_integers(self, c: np.ndarray, sides: Sides, gamma: float, gap: float) -> Answer:
        """One solve of a MILP in cost unit γ. Bounds that are never reached are left out: beside one of 1e9, HiGHS has cut decisions off."""
        status = self.status_of(c, self.relevant(sides)[0], gamma)
        if not status.has_decision:
            return self.nothing(status)
        bound, w = self.bound() / gamma, self.decision() * self.scales.columns
        w, sure = self.with_exact_integers(c, np.clip(w, sides.lower, sides.upper), sides)
        if not self.certifier.violation(w[None], sides)[0] <= OPTIMAL:
            why = self.certifier.examine(c, w, np.zeros(self.rows), sides).reason()
            return self.nothing(Status.FAILED, f"with integers rounded, {why}")
        w = self.improved(c, w, sides)
        value, allowed = float(c @ w), OPTIMAL * float(np.abs(c * w).sum())
        by_bounds = float(np.where(c > 0, sides.lower, sides.upper)[c != 0] @ c[c != 0])  # no decision costs less
        bound = max(bound if bound <= value + allowed else -np.inf, min(value, by_bounds))
        claimed = status is Status.OPTIMAL
        if claimed and self.has_no_end(c, sides):
            return self.nothing(Status.UNBOUNDED)
        doubted = claimed and not (sure and value - bound <= allowed + gap * abs(value))
        return Answer(Status.FEASIBLE if doubted else status, w, np.empty(0), bound, doubted=doubted)

    @cached_property
    def has_big_m(self) -> bool:
        """Whether the entries of a row with an integer variable span more than `BIG`: HiGHS has called a worse decision optimal then."""
        rows = abs(sp.vstack([self.scaled.A, self.scaled.G], format="csr"))
        rows.eliminate_zeros()
        spread = largest(rows, 1) * largest(rows.power(-1), 1)
        return bool((spread[rows @ self.program.integer > 0] > BIG).any())

    def with_small_m(self, c: np.ndarray, sides: Sides, gap: float) -> Answer | None:
        """The answer where no big M is larger than it must be: within tolerances, such an M makes feasible what is not. `None` where no M
        shrinks, or the answer still breaks a row of the program."""
        low, high = self.certifier.implied(sides)
        binary = self.program.integer & (sides.upper - sides.lower == 1)
        low, high = np.where(binary, sides.lower, low), np.where(binary, sides.upper, high)
        smaller = without_big_m(sp.csr_array(self.program.G), np.ravel(sides.h), low, high, binary)
        if smaller is None:
            return None
        rows, h = smaller
        out = Raw.empty(1, self.n)
        self.make(replace(self.program, G=rows)).solve_integers(c[None], replace(sides, h=h), gap, out)
        if not self.certifier.violation(out.decision, sides)[0] <= OPTIMAL:  # that of NaN is ∞
            return None
        return Answer(Status(int(out.status[0])), out.decision[0], np.empty(0), float(out.bound[0]))

    def improved(self, c: np.ndarray, w: np.ndarray, sides: Sides) -> np.ndarray:
        """w, or a better decision by moves of single integers by one, where costs span much: back ends lose costs of 1e-9 beside 1e15."""
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
        """Whether a MILP that has a feasible point is unbounded, since its relaxation is (its numbers are rational): back ends may call
        the best of the points that they have seen optimal. Not where a bound stops every cost."""
        if not (((c < 0) & np.isinf(sides.upper)) | ((c > 0) & np.isinf(sides.lower))).any():
            return False
        return self.relaxed(c, sides)[0] is Status.UNBOUNDED

    def settle(self, c: np.ndarray, sides: Sides, gamma: float, gap: float, first: Answer, wide: bool) -> Answer:
        """Solve again strictly, in another unit if costs span much; once or twice more if answers differ.

        The best of the answers that break no row by more than `SURE`, if there are any, else of all. It is optimal if two
        solves that differ in unit or tolerances say so, or one if costs span little, or the relaxation. Costs of 1e10 mislead presolve
        in any unit, and without it HiGHS has proven worse decisions optimal: neither decides alone.
        """
        size = np.abs(c * self.scales.columns)
        least = size[size > 0].min(initial=size.max())
        other = float(1.0 / power_of_two(np.sqrt(least * size.max()))) if wide and least else gamma
        if wide and least and other == gamma:
            other = float(1.0 / power_of_two(least))
        answers = [first]
        for unit, presolve in [(other, False)] * wide + [(gamma, True), (gamma, False)]:
            with self.strict_tolerances(presolve):
                answers.append(self.attempt_integers(c, sides, unit, gap))
            clean = [a for a in answers if self.certifier.violation(a.w[None], sides)[0] <= SURE] or answers
            best = min(clean, key=lambda answer: float(c @ answer.w) if answer.status.has_decision else np.inf)
            if not best.status.has_decision:
                return answers[-1] if answers[-1].status is first.status else first._replace(status=Status.FAILED)
            allowed = gap * abs(float(c @ best.w)) + OPTIMAL * float(np.abs(c * best.w).sum())
            votes = [a for a in clean if a.status is Status.OPTIMAL and c @ a.w - c @ best.w <= allowed]
            if len(votes) >= (2 if wide else 1):
                return votes[-1]._replace(w=best.w, bound=min(answer.bound for answer in votes))
        bound = min(answer.bound for answer in answers if answer.status.has_decision)
        status, relaxed = self.relaxed(c, sides)
        if status is Status.OPTIMAL and c @ best.w - c @ relaxed <= allowed:
            return best._replace(status=Status.OPTIMAL, bound=float(c @ relaxed))
        return best._replace(status=Status.FEASIBLE, bound=bound)

    def relaxed(self, c: np.ndarray, sides: Sides) -> tuple[Status, np.ndarray]:
        """Status and w of the LP relaxation of one instance."""
        out = Raw.empty(1, self.n)
        self.relaxation.solve_linear(c[None], sides, None, out)
        return Status(int(out.status[0])), out.decision[0]

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
        status, best = self.relaxed(c, fixed)
        if not status.has_decision:
            return rounded, False
        value, broken = float(c @ rounded), self.certifier.violation(rounded[None], sides)[0]
        if broken > SURE or value - float(c @ best) > SURE * float(np.abs(c * rounded).sum()):
            rounded = np.where(integer, rounded, best)
        return rounded, status is Status.OPTIMAL

    # -- the model object -------------------------------------------------------------------------------------------

    def set_sides(self, sides: Sides) -> None:
        """Right-hand sides and bounds of the next run; nothing is passed on that the model has already."""
        if self.rows and not (_same(sides.b, self.held.b) and _same(sides.h, self.held.h)):
            self.change_rows(sides.b, sides.h)
        if not (_same(sides.lower, self.held.lower) and _same(sides.upper, self.held.upper)):
            self.change_bounds(sides.lower, sides.upper)
        self.held = sides


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or np.array_equal(one, other)
