"""A model object of a back end (HiGHS, Gurobi), and the rules for exact answers to linear programs.

Back ends have absolute tolerances. They are asked in units that suit them (`scaling`), and what they answer is checked in
the user's units by the one rule of `dflearn.certify`. What does not pass is mended by refinement, then solved by Clarabel; what
still does not pass is not called optimal, and `Solution.reason` says why. That there is no decision must be proven, or said by both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dflearn.certify import OPTIMAL, SURE, Certifier
from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.implied import LARGEST, without_loose
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw, Status
from dflearn.solvers.scaling import Scales, power_of_two, spans, units

if TYPE_CHECKING:
    from dflearn.solvers.convex import ConvexQP

LOOSE = 1e8  # sides and bounds that span more are looked through for such as can never be active
ROUNDS = 8  # of refinement
ACTIVE = 1e-9  # a row that a decision misses by less, relative to its terms, is active
STEEP = 1e12  # enlarged reduced costs beyond this are cut: nobody wants those variables to move
SMALLEST = 1e-12  # back ends drop entries of a matrix that are no larger


class Answer(NamedTuple):
    """What one solve of one instance found, in the user's units: w `(n,)` and, of an LP, prices y `(rows,)`.

    fallback: whether another solver found it. reason: why it is not optimal.
    """

    status: Status
    w: np.ndarray
    y: np.ndarray
    bound: float = -np.inf
    fallback: bool = False
    reason: str = ""


class LinearModel(ABC):
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
            tighter = without_loose(self.certifier.matrix, self.equalities, *(part[i] for part in parts))
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
    def refiner(self) -> Refiner:
        return Refiner(self)

    @cached_property
    def clarabel(self) -> ConvexQP:
        """The next solver."""
        from dflearn.solvers.convex import ConvexQP

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
        """The answer to one instance whose first answer did not pass: that one tidied, then refined, then Clarabel's.

        seen: the sides as the back end sees them.
        """
        best, claim = first, first.status
        error, allowed = np.inf, None
        if first.status.has_decision:
            w, y, verdict = self.certifier.tidy(c, first.w, first.y, sides)
            if verdict.error[0] > SURE and first.status is Status.OPTIMAL:
                claim, *refined = self.refiner.refine(c, seen, w, y)
                again = self.certifier.tidy(c, np.clip(refined[0], sides.lower, sides.upper), refined[1], sides)
                if again[2].error[0] < verdict.error[0]:
                    w, y, verdict = again
            allowed = verdict if verdict.error[0] <= SURE else self.certifier.allow(c, w, y, sides)
            best, error = Answer(first.status, w, y, float(allowed.bound[0])), float(allowed.error[0])
            if error <= OPTIMAL:
                return best._replace(status=Status.OPTIMAL)
            if first.status is Status.FEASIBLE:  # a limit was reached
                kept = allowed.primal[0] <= OPTIMAL
                return best._replace(bound=-np.inf) if kept else self.nothing(Status.NOT_FOUND)
        if claim is Status.INFEASIBLE and self.proves_infeasible(sides, seen):
            return self.nothing(claim)
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


class Refiner:
    """Refines answers to the program of a model, on a second model with slacks, which `model.make` builds.

    What is wrong with an answer is a linear program again: at a decision x with prices y, the errors q − M x of the rows and the reduced
    costs c − Mᵀy are the data of a program whose solution corrects both (Gleixner, Steffy, Wolter: Iterative refinement for linear
    programming, 2016). Enlarged until its worst errors are about one, a back end with absolute tolerances solves it as well as any
    other. Each round wins what one solve wins, some seven digits. Inequalities have slacks here, so that a correction of prices
    holds on both sides of a row.
    """

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


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or np.array_equal(one, other)
