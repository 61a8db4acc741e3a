"""Exact solvers for programs with few rows and bounds on every variable, such as knapsacks in a few dimensions."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw, Solver, Status, check_basis
from dflearn.solvers.oracles import refusal, refuse_quadratic
from dflearn.solvers.scaling import Scales, spans

MOST_ROWS = 16  # above, the dense inverse of `FewRowLP` is no longer small
MOST_BINARY_ROWS = 4  # above, `FewRowBinary` enumerates more than branch and bound
WIDEST = 1e8  # costs that span more leave rounding errors of the largest in the sum of the others
STEPS = 10_000_000  # of `FewRowBinary` on one instance, a few tenths of a second; HiGHS solves what needs more


class _Lines(NamedTuple):
    """Right-hand sides, equations first, and bounds: one line per instance, or one for all."""

    right: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class _FewRows(Solver):
    """Rows as one dense matrix, equations first."""

    parallel = "threads"
    program: Program

    def __init__(self, program: Program) -> None:
        refuse_quadratic(self.identity, program)
        self.program, self.objective = program, program.objective

    def __repr__(self) -> str:
        return f"{self.identity}({self.program!r})"

    @property
    def identity(self) -> str:
        return type(self).__name__

    def _lines(self, sides: Sides | None) -> _Lines:
        """What the kernels read, in one layout: they are compiled once."""
        assert sides is not None
        return self._own_lines if sides is self.program.own_sides else self._copied(sides)

    @cached_property
    def _own_lines(self) -> _Lines:
        return self._copied(self.program.own_sides)

    def _copied(self, sides: Sides) -> _Lines:
        parts = (sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper"))
        if self._scales.plain:
            return _Lines(*(np.array(part, order="C") for part in parts))
        scales = (self._scales.rows, 1 / self._scales.columns, 1 / self._scales.columns)
        return _Lines(*(np.ascontiguousarray(part * scale) for part, scale in zip(parts, scales, strict=True)))

    def _take_rows(self, most: int) -> None:
        rows = sp.vstack([self.program.A, self.program.G])
        if rows.shape[0] > most:  # dense, they might not fit into memory
            raise refusal(self.identity, self.program, f"it has {rows.shape[0]} rows, more than {most}")
        self._scales = Scales.of(self.program)
        scaled = self._scales.program(self.program)
        self._rows = np.ascontiguousarray(sp.vstack([scaled.A, scaled.G]).toarray())


class FewRowLP(_FewRows):
    """Exact LPs with few rows and finite bounds, such as the relaxed multi-dimensional knapsack: a simplex method of its own.

    Right-hand sides and bounds may differ from instance to instance. A `start` is a basis, as that of HiGHS.
    """

    start_dtype = torch.int8
    start_blank = Basis.NONE

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if program.is_integer:
            raise refusal("FewRowLP", program, "it has integer variables; did you mean program.relax()?")
        self._take_rows(MOST_ROWS)
        _require_finite(program.lower, program.upper)
        self.start_width = program.n + len(self._rows)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_lp import solve_batch

        lines = self._lines(sides)
        _require_finite(lines.lower, lines.upper)
        if start is not None:
            check_basis(start)
        # The caller's start stays as it is.
        codes = np.empty((0, self.start_width), np.int8) if start is None else np.array(start, order="C")
        out = Raw.empty(*c.shape)
        costs = c if self._scales.plain else c * self._scales.columns
        solve_batch(self._rows, self.program.A.shape[0], costs, *lines, codes, out.decision, out.status)
        if not self._scales.plain:
            out.decision[:] *= self._scales.columns
        value, bound = _values(c, out)
        return Raw(out.decision, out.status, value, bound, None if start is None else codes)


class FewRowBinary(_FewRows):
    """Exact yes-or-no decisions under few inequalities, such as the multi-dimensional knapsack: branch and bound by loss.

    Right-hand sides and bounds may differ from instance to instance. An instance that needs more than `STEPS` steps is
    solved by HiGHS, and so is one whose costs span more than `WIDEST`.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        if not program.integer.all():
            raise refusal("FewRowBinary", program, "it has variables that are not integer; did you mean FewRowLP?")
        if program.A.shape[0]:
            raise refusal("FewRowBinary", program, "it has equations")
        self._take_rows(MOST_BINARY_ROWS)
        _require_binary(program.lower, program.upper)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_binary import solve_batch

        lines = self._lines(sides)
        _require_binary(lines.lower, lines.upper)
        out = Raw.empty(*c.shape)
        solve_batch(self._rows, c, *lines, STEPS, out.decision, out.status)
        out.objective[:], out.bound[:] = _values(c, out)
        hard = np.flatnonzero((out.status == Status.FAILED) | (spans(c) > WIDEST))
        if hard.size:
            from dflearn.solvers.highs import HiGHS

            assert sides is not None
            rest = HiGHS(self.program)._solve(c[hard], sides.rows(hard), None)
            out.decision[hard], out.status[hard] = rest.decision, rest.status
            out.objective[hard], out.bound[hard] = rest.objective, rest.bound
        return out


def _values(c: np.ndarray, out: Raw) -> tuple[np.ndarray, np.ndarray]:
    """The objective of every decision, and the bound that proves it."""
    value = np.einsum("ij,ij->i", c, out.decision)
    return value, np.where(out.status == Status.OPTIMAL, value, -np.inf)


def _require_finite(lower: np.ndarray, upper: np.ndarray) -> None:
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ProgramError("FewRowLP needs finite bounds on every variable: add them, or use HiGHS")


def _require_binary(lower: np.ndarray, upper: np.ndarray) -> None:
    width = upper - lower
    whole = np.isfinite(lower).all() and (lower == np.round(lower)).all()
    if not whole or not ((width == 0) | (width == 1)).all():
        raise ProgramError(
            "FewRowBinary needs variables with two values, or one: bounds such as 0 and 1. Otherwise use HiGHS"
        )
