"""Exact solvers for programs with few rows and bounds on every variable, such as knapsacks in a few dimensions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dflearn.certify import OPTIMAL, SURE
from dflearn.errors import ProgramError
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import (
    Basis,
    Raw,
    Solution,
    Status,
    check_basis,
    check_costs,
    check_instance,
    check_start_shape,
)
from dflearn.solvers.gate import Certified
from dflearn.solvers.oracles import refusal, refuse_quadratic
from dflearn.solvers.scaling import Scales

MOST_ROWS = 16  # above, the dense inverse of `FewRowLP` is no longer small
MOST_BINARY_ROWS = 4  # above, `FewRowBinary` enumerates more than branch and bound
STEPS = 10_000_000  # of `FewRowBinary` on one instance, a few tenths of a second; HiGHS solves what needs more


class _Lines(NamedTuple):
    """Right-hand sides, equations first, and bounds: one line per instance, or one for all.

    A right-hand side of an inequality is at most what the bounds allow its row to be: 1e15 for "no limit" would bring its
    rounding errors along. `loose` says where it was more.
    """

    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    loose: np.ndarray


class _FewRows(Certified):
    """Rows as one dense matrix, equations first."""

    def __init__(self, program: Program) -> None:
        refuse_quadratic(type(self).__name__, program)
        self.program, self.objective = program, program.objective

    @abstractmethod
    def _require_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None:
        """An error where the bounds are not of the kind that the solver takes."""

    def _lines(self, sides: Sides) -> _Lines:
        """What the kernels read, in one layout: they are compiled once."""
        return self._own_lines if sides is self.program.own_sides else self._copied(sides)

    @cached_property
    def _own_lines(self) -> _Lines:
        return self._copied(self.program.own_sides)

    def _copied(self, sides: Sides) -> _Lines:
        parts = (sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper"))
        if not self._scales.plain:
            scales = (self._scales.rows, 1 / self._scales.columns, 1 / self._scales.columns)
            parts = tuple(part * scale for part, scale in zip(parts, scales, strict=True))
        self._require_bounds(*parts[1:])
        right, lower, upper = (np.array(part, order="C") for part in parts)
        most = upper @ np.maximum(self._rows, 0.0).T + lower @ np.minimum(self._rows, 0.0).T
        loose = right > most
        loose[:, : self.program.A.shape[0]] = False
        return _Lines(np.where(loose, most, right), lower, upper, loose)

    def _take_rows(self, most: int) -> None:
        rows = sp.vstack([self.program.A, self.program.G])
        if rows.shape[0] > most:  # dense, they might not fit into memory
            raise refusal(type(self).__name__, self.program, f"it has {rows.shape[0]} rows, more than {most}")
        self._scales = Scales.of(self.program)
        scaled = self._scales.program(self.program)
        self._rows = np.ascontiguousarray(sp.vstack([scaled.A, scaled.G]).toarray())


class FewRowLP(_FewRows):
    """Exact LPs with few rows and finite bounds, such as the relaxed multi-dimensional knapsack: a simplex method of its own.

    Right-hand sides and bounds may differ from instance to instance. A `start` is a basis, as that of HiGHS. Costs on a GPU are
    solved there, in torch, and the answers are checked on the CPU. HiGHS solves what is not certified.
    """

    on_devices = True
    start_dtype = torch.int8
    start_blank = Basis.NONE

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if program.is_integer:
            raise refusal("FewRowLP", program, "it has integer variables; did you mean program.relax()?")
        self._take_rows(MOST_ROWS)
        self._require_bounds(program.lower, program.upper)
        self.start_width = program.n + len(self._rows)

    def _require_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None:
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise ProgramError("FewRowLP needs finite bounds on every variable: add them, or use HiGHS")

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        if not self._stays_on(y) or not len(self._rows) or (instance is not None and instance.q is not None):
            return super().solve(y, instance, start)
        begun = perf_counter()
        batch = check_costs(y, self.objective)
        check_instance(instance, batch)
        check_start_shape(start, batch, self.start_width)
        instance = self.program.realize(y.detach(), instance)
        c = self.objective.vector(y.detach().double(), instance).reshape(-1, self.objective.n)
        solution = self._solve_there(c, self.program.sides(instance, len(c)), start)
        status, objective, bound = (
            part.reshape(batch) for part in (solution.status, solution.objective, solution.bound)
        )
        return Solution(
            decision=solution.decision.to(y.dtype).reshape(*batch, self.objective.n),
            status=status,
            objective=objective,
            bound=bound,
            start=None if solution.start is None else solution.start.reshape(*batch, self.start_width),
            fallback=None if solution.fallback is None else solution.fallback.reshape(batch),
            reason=solution.reason,
            seconds=perf_counter() - begun,
        )

    def _stays_on(self, y: Tensor) -> bool:
        """Whether such costs are solved where they are, in torch."""
        return isinstance(y, Tensor) and y.is_cuda and self.objective.value is None

    def _solve_there(self, c: Tensor, sides: Sides, start: Tensor | None) -> Solution:
        """c `(count, n)`. The CPU checks all answers in one call, and solves what is not certified."""
        from dflearn.solvers.few_rows_in_torch import few_row_lp

        lines = self._lines(sides)
        there = (torch.tensor(part).to(c.device) for part in (self._rows, self._scales.columns, *lines[:3]))
        rows, columns, right, lower, upper = there
        given = None if start is None else start.reshape(len(c), self.start_width)
        if given is not None:
            check_basis(given.cpu().numpy())
        w, prices, codes, solved = few_row_lp(rows, self.program.A.shape[0], c * columns, right, lower, upper, given)
        w, status = w * columns, torch.zeros(len(c), dtype=torch.int8)
        costs = c.cpu().numpy()
        verdict = self.certifier.check(costs, w.cpu().numpy(), self._prices(prices.cpu().numpy(), lines), sides)
        objective = (c * w).sum(1).cpu()
        bound = torch.fmin(torch.from_numpy(verdict.bound), objective)
        fallback = ~(solved.cpu() & torch.from_numpy(verdict.error <= SURE))
        reason = None
        if bool(fallback.any()):
            left = fallback.nonzero().squeeze(1)
            part = None if given is None else given[left.to(given.device)].cpu().numpy()
            rest = self._solve(costs[left.numpy()], sides.rows(left.numpy()), part)
            for own, theirs in (
                (w, rest.decision), (codes, rest.start), (status, rest.status), (objective, rest.objective), (bound, rest.bound)
            ):  # fmt: skip
                if theirs is not None:
                    own[left.to(own.device)] = torch.from_numpy(theirs).to(own.device)
            if rest.reason is not None:
                reason = np.full(len(c), "", object)
                reason[left.numpy()] = rest.reason
        return Solution(w, status, objective, bound, None if start is None else codes, fallback=fallback, reason=reason)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_lp import solve_batch

        assert sides is not None
        lines = self._lines(sides)
        if start is not None:
            check_basis(start)
        # The caller's start stays as it is.
        codes = np.empty((0, self.start_width), np.int8) if start is None else np.array(start, order="C")
        out = Raw.empty(*c.shape)
        prices = np.zeros((len(c), len(self._rows)))
        costs = c if self._scales.plain else c * self._scales.columns
        solve_batch(self._rows, self.program.A.shape[0], costs, *lines[:3], codes, out.decision, prices, out.status)
        if not self._scales.plain:
            out.decision[:] *= self._scales.columns
        if start is not None:
            out = replace(out, start=codes)
        return self.certified(c, sides, out, self._prices(prices, lines))

    def _prices(self, found: np.ndarray, lines: _Lines) -> np.ndarray:
        """In the user's units. A row that cannot be broken has none."""
        prices = found if self._scales.plain else found * self._scales.rows
        prices[np.broadcast_to(lines.loose, prices.shape)] = 0.0
        return prices


class FewRowBinary(_FewRows):
    """Exact yes-or-no decisions under few inequalities, such as the multi-dimensional knapsack: branch and bound by loss.

    Right-hand sides and bounds may differ from instance to instance. The enumeration of all better decisions proves an answer; the
    rows are checked in the user's units. HiGHS solves an instance that needs more than `STEPS` steps, or whose costs span so much
    that rounding hides which decision is better.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if not program.integer.all():
            raise refusal("FewRowBinary", program, "it has variables that are not integer; did you mean FewRowLP?")
        if program.A.shape[0]:
            raise refusal("FewRowBinary", program, "it has equations")
        self._take_rows(MOST_BINARY_ROWS)
        self._require_bounds(program.lower, program.upper)

    def _require_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None:
        width = upper - lower
        whole = np.isfinite(lower).all() and (lower == np.round(lower)).all()
        if not whole or not ((width == 0) | (width == 1)).all():
            raise ProgramError(
                "FewRowBinary needs variables with two values, or one: bounds such as 0 and 1. Otherwise use HiGHS"
            )

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_binary import solve_batch

        assert sides is not None
        out = Raw.empty(*c.shape)
        solve_batch(self._rows, c, *self._lines(sides)[:3], STEPS, out.decision, out.status)
        out.objective[:] = out.bound[:] = np.einsum("ij,ij->i", c, out.decision)
        nothing = np.zeros((len(c), len(self._rows)))  # the rows are checked, not the relaxation
        holds = self.certifier.check(c, out.decision, nothing, sides).primal <= OPTIMAL
        return self.handed_over(c, sides, out, (out.status == int(Status.OPTIMAL)) & holds)
