"""Exact solvers for programs with few rows and bounds on every variable, such as knapsacks in a few dimensions."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.certify import OPTIMAL
from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw, Status, check_basis
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
    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        """Whether the bounds are of the kind that the solver takes."""

    def _lines(self, sides: Sides) -> _Lines | None:
        """What the kernels read, in one layout: they are compiled once. `None` where the bounds are of another kind."""
        return self._own_lines if sides is self.program.own_sides else self._copied(sides)

    @cached_property
    def _own_lines(self) -> _Lines | None:
        return self._copied(self.program.own_sides)

    def _copied(self, sides: Sides) -> _Lines | None:
        parts = (sides.right_hand_sides(), sides.lines("lower"), sides.lines("upper"))
        if not self._scales.plain:
            scales = (self._scales.rows, 1 / self._scales.columns, 1 / self._scales.columns)
            parts = tuple(part * scale for part, scale in zip(parts, scales, strict=True))
        if not self._takes(*parts[1:]):
            return None
        right, lower, upper = (np.array(part, order="C") for part in parts)
        most = upper @ np.maximum(self._rows, 0.0).T + lower @ np.minimum(self._rows, 0.0).T
        loose = right > most
        loose[:, : self.program.A.shape[0]] = False
        return _Lines(np.where(loose, most, right), lower, upper, loose)

    def _take_rows(self, most: int, bounds: str) -> None:
        rows = sp.vstack([self.program.A, self.program.G])
        if rows.shape[0] > most:  # dense, they might not fit into memory
            raise refusal(type(self).__name__, self.program, f"it has {rows.shape[0]} rows, more than {most}")
        self._scales = Scales.of(self.program)
        scaled = self._scales.program(self.program)
        self._rows = np.ascontiguousarray(sp.vstack([scaled.A, scaled.G]).toarray())
        if not self._takes(self.program.lower, self.program.upper):
            raise ProgramError(f"{type(self).__name__} needs {bounds}, or use HiGHS")


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
        self._take_rows(MOST_ROWS, "finite bounds on every variable: add them")
        self.start_width = program.n + len(self._rows)

    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        return bool(np.isfinite(lower).all() and np.isfinite(upper).all())

    def _stays_on(self, device: torch.device) -> bool:
        """Whether costs from there are solved there, in torch."""
        return device.type == "cuda"

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        return self._solve_from(torch.device("cpu"), c, sides, start)

    def _solve_from(self, device: torch.device, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_lp import solve_batch

        assert sides is not None
        # The caller's start stays as it is.
        codes = np.empty((0, self.start_width), np.int8) if start is None else np.array(start, order="C")
        check_basis(codes)
        lines, out = self._lines(sides), replace(Raw.empty(*c.shape), start=None if start is None else codes)
        if lines is None:
            return self.handed_over(c, sides, out)
        prices = np.zeros((len(c), len(self._rows)))
        costs = c if self._scales.plain else c * self._scales.columns
        found = (out.decision, prices, out.status)
        if len(self._rows) and self._stays_on(device):
            from dflearn.solvers.few_rows_in_torch import few_row_lp

            few_row_lp(device, self._rows, self.program.A.shape[0], costs, *lines[:3], codes, *found)
        else:
            solve_batch(self._rows, self.program.A.shape[0], costs, *lines[:3], codes, *found)
        if not self._scales.plain:
            out.decision[:] *= self._scales.columns
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
        self._take_rows(MOST_BINARY_ROWS, "variables with two values, or one: bounds such as 0 and 1")

    def _takes(self, lower: np.ndarray, upper: np.ndarray) -> bool:
        width = upper - lower
        whole = np.isfinite(lower).all() and (lower == np.round(lower)).all()
        return bool(whole and ((width == 0) | (width == 1)).all())

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        from dflearn.kernels.few_row_binary import solve_batch

        assert sides is not None
        lines, out = self._lines(sides), Raw.empty(*c.shape)
        if lines is None:
            return self.handed_over(c, sides, out)
        solve_batch(self._rows, c, *lines[:3], STEPS, out.decision, out.status)
        out.objective[:] = out.bound[:] = np.einsum("ij,ij->i", c, out.decision)
        nothing = np.zeros((len(c), len(self._rows)))  # the rows are checked, not the relaxation
        holds = self.certifier.check(c, out.decision, nothing, sides).primal <= OPTIMAL
        return self.handed_over(c, sides, out, (out.status == int(Status.OPTIMAL)) & holds)
