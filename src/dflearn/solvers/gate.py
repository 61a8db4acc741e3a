"""The gate of our own exact solvers: the one rule certifies their answers (`dflearn.certify`), and HiGHS solves the others."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from dflearn.certify import SURE, Certifier
from dflearn.program import Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solver, Status
from dflearn.solvers.highs import HiGHS


class Certified(Solver):
    """An exact solver with a method of its own. HiGHS solves each instance that the method does not solve with a certificate.

    So it does where constraints of an instance are not of the kind that the method is made for.

    A method never claims INFEASIBLE or UNBOUNDED: these are HiGHS's claims. `Solution.fallback` marks the instances of HiGHS.

    Subclasses end `_solve` with `certified` or, if they check their answers in another way, with `handed_over`.

    Attributes:
        general: solves what is not certified.
        certifier: checks answers to the relaxation of the program.
    """

    parallel = "threads"
    program: Program

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.program!r})"

    @property
    def identity(self) -> str:
        return f"{type(self).__name__} on {self.general.identity}"

    @cached_property
    def general(self) -> HiGHS:
        return HiGHS(self.program)

    @cached_property
    def certifier(self) -> Certifier:
        return Certifier(self.program)

    def bent(self, q: np.ndarray) -> Solver:
        return self.general.bent(q)

    def certified(self, c: np.ndarray, sides: Sides, out: Raw, prices: np.ndarray) -> Raw:
        """`out` with objectives and bounds, after the check.

        Args:
            c: costs `(count, n)`.
            sides: as of `Program.sides`.
            out: decisions `(count, n)` within their bounds, of a linear program, where the status is OPTIMAL.
            prices: of the rows `(count, rows)`; the signs are those of `certify`.
        """
        w, _, verdict = self.certifier.judge(c, out.decision, prices, sides)
        sure = (out.status == int(Status.OPTIMAL)) & (verdict.error <= SURE)
        out.decision[:], out.bound[:] = w, verdict.bound
        out.objective[:] = np.einsum("ij,ij->i", c, out.decision)
        np.fmin(out.bound, out.objective, out=out.bound)
        return self.handed_over(c, sides, out, sure)

    def handed_over(self, c: np.ndarray, sides: Sides, out: Raw, sure: np.ndarray | None = None) -> Raw:
        """`out` with the answers of HiGHS where `sure`, bool `(count,)`, is false; everywhere, if it is `None`."""
        sure = np.zeros(len(c), bool) if sure is None else sure
        if not sure.all():
            left = np.flatnonzero(~sure)
            blank = None if out.start is None else np.full_like(out.start[left], self.start_blank)
            rest = self.general._solve(c[left], sides.rows(left), blank)
            out.decision[left], out.status[left] = rest.decision, rest.status
            out.objective[left], out.bound[left] = rest.objective, rest.bound
            if out.start is not None:
                out.start[left] = rest.start
            if out.reason is not None and rest.reason is not None:
                out.reason[left] = rest.reason
            out = replace(out, fallback=~sure)
        return out
