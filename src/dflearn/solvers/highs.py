"""HiGHS, the default exact solver of LPs and MILPs: the model is passed once, costs change per instance."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.solvers.base import Raw, Solver, Status

NO_START = -1  # marks, in a start, an instance that has none
AT_LOWER, BASIC, AT_UPPER, AT_ZERO = 0, 1, 2, 3  # HiGHS's own codes
FEASIBLE_POINT = 2  # HiGHS's code for a primal feasible point


class HiGHS(Solver):
    """Exact LP and MILP solver on HiGHS.

    Every instance is solved on its own: from a cold state, or from the basis given as its `start` (LPs only), never
    from what the previous instance left behind. Answers therefore do not depend on the order of the batch.

    Args:
        program: what to solve.
        time_limit: seconds per instance.
        gap: relative MIP gap at which a decision counts as optimal.
        threads: HiGHS's own threads inside one MILP solve. To solve instances side by side use `Parallel`.
    """

    parallel = "threads"
    start_dtype = torch.int8
    start_blank = NO_START

    def __init__(self, program: Program, *, time_limit: float = np.inf, gap: float = 0.0, threads: int = 1) -> None:
        if not time_limit > 0 or gap < 0 or threads < 1:
            raise ProgramError(f"need time_limit > 0, gap >= 0, threads >= 1; got {time_limit}, {gap}, {threads}")
        self.program = program
        self.objective = program.objective
        self.time_limit, self.gap, self.threads = float(time_limit), float(gap), int(threads)
        self.start_width = 0 if program.is_integer else program.n + program.A.shape[0] + program.G.shape[0]
        self._models = threading.local()

    def __repr__(self) -> str:
        return f"HiGHS({self.program!r}, time_limit={self.time_limit}, gap={self.gap}, threads={self.threads})"

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_models"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._models = threading.local()

    @property
    def identity(self) -> str:
        import highspy

        return f"HiGHS {highspy.Highs().version()} time_limit={self.time_limit} gap={self.gap}"

    def _model(self) -> _Model:
        """This thread's HiGHS object."""
        if not hasattr(self._models, "model"):
            self._models.model = _Model(self)
        return self._models.model

    def _solve(self, c: np.ndarray, sides: Mapping[str, np.ndarray] | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        model, count = self._model(), c.shape[0]
        out = Raw.empty(count, self.objective.n)
        if start is not None:
            out = replace(out, start=np.full((count, self.start_width), NO_START, np.int8))
        for i in range(count):
            model.set_sides({name: part if part.ndim == 1 else part[i] for name, part in sides.items()})
            model.run(c[i], None if start is None or start[i, 0] == NO_START else start[i])
            model.read(out, i)
        return out


class _Model:
    """One HiGHS object that holds a program, and the conversions to and from it."""

    def __init__(self, solver: HiGHS) -> None:
        import highspy

        self.highspy = highspy
        program = solver.program
        assert program is not None
        self.n, self.equalities, self.inequalities = program.n, program.A.shape[0], program.G.shape[0]
        self.rows = self.equalities + self.inequalities
        self.columns = np.arange(self.n, dtype=np.int32)
        self.row_numbers = np.arange(self.rows, dtype=np.int32)
        self.integer = program.is_integer
        self.held_rows = (program.b, program.h)
        self.held_bounds = (program.lower, program.upper)
        self.highs: Any = highspy.Highs()  # its type stubs lack methods that it has
        highs = self.highs
        # HiGHS has one scheduler per process: every object must ask it for the same number of threads.
        for option, value in (
            ("output_flag", False),
            ("threads", solver.threads),
            ("time_limit", solver.time_limit),
            ("mip_rel_gap", solver.gap),
            ("mip_abs_gap", 1e-9),
            ("random_seed", 0),
        ):
            if highs.setOptionValue(option, value) != highspy.HighsStatus.kOk:
                raise ProgramError(f"HiGHS refused the option {option}={value}")
        matrix = sp.vstack([program.A, program.G], format="csr")
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.n, self.rows
        lp.col_cost_ = np.zeros(self.n)
        lp.col_lower_, lp.col_upper_ = program.lower, program.upper
        lp.row_lower_ = np.concatenate([program.b, np.full(self.inequalities, -np.inf)])
        lp.row_upper_ = np.concatenate([program.b, program.h])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        if self.integer:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(flag)] for flag in program.integer]
        if highs.passModel(lp) == highspy.HighsStatus.kError:
            raise ProgramError(f"HiGHS refused {program!r}")
        self.basis_statuses = np.array([highspy.HighsBasisStatus(code) for code in range(5)], dtype=object)
        model_status = highspy.HighsModelStatus
        self.statuses = {
            model_status.kOptimal: Status.OPTIMAL,
            model_status.kInfeasible: Status.INFEASIBLE,
            model_status.kUnbounded: Status.UNBOUNDED,
        }
        self.limits = {model_status.kTimeLimit, model_status.kIterationLimit, model_status.kSolutionLimit}
        self.undecided = model_status.kUnboundedOrInfeasible

    def set_sides(self, sides: Mapping[str, np.ndarray]) -> None:
        """Right-hand sides and bounds of the next solve; nothing is passed on that HiGHS has already."""
        rows, bounds = (sides["b"], sides["h"]), (sides["lower"], sides["upper"])
        if self.rows and not _same(rows, self.held_rows):
            lower = np.concatenate([rows[0], np.full(self.inequalities, -np.inf)])
            self.highs.changeRowsBounds(self.rows, self.row_numbers, lower, np.concatenate(rows))
            self.held_rows = rows
        if not _same(bounds, self.held_bounds):
            self.highs.changeColsBounds(self.n, self.columns, *map(np.ascontiguousarray, bounds))
            self.held_bounds = bounds

    def run(self, c: np.ndarray, basis: np.ndarray | None) -> None:
        self.highs.clearSolver()
        self.highs.changeColsCost(self.n, self.columns, c)
        if basis is not None:
            start = self.highspy.HighsBasis()
            start.col_status = self.basis_statuses[basis[: self.n]].tolist()
            start.row_status = self.basis_statuses[basis[self.n :]].tolist()
            start.valid = True
            self.highs.setBasis(start)
        self.highs.run()

    def read(self, out: Raw, i: int) -> None:
        status = self.highs.getModelStatus()
        if status == self.undecided:  # presolve cannot tell infeasible from unbounded; the simplex method can
            self.highs.setOptionValue("presolve", "off")
            self.highs.clearSolver()
            self.highs.run()
            self.highs.setOptionValue("presolve", "choose")
            status = self.highs.getModelStatus()
        info = self.highs.getInfo()
        if status in self.statuses:
            code = self.statuses[status]
        elif status in self.limits:
            code = Status.FEASIBLE if info.primal_solution_status == FEASIBLE_POINT else Status.NOT_FOUND
        else:
            code = Status.FAILED
        out.status[i] = int(code)
        if not code.has_decision:
            return
        out.decision[i] = self.highs.getSolution().col_value
        out.objective[i] = info.objective_function_value
        if self.integer:
            out.bound[i] = info.mip_dual_bound
        elif code is Status.OPTIMAL:
            out.bound[i] = info.objective_function_value
            if out.start is not None:
                self.read_basis(out.decision[i], out.start[i])

    def read_basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        """The optimal basis as codes: asking HiGHS for the basic variables is far cheaper than for all statuses."""
        status, basic = self.highs.getBasicVariables()
        if status != self.highspy.HighsStatus.kOk:
            return
        lower, upper = self.held_bounds
        codes[: self.n] = np.where(np.abs(w - lower) <= np.abs(upper - w), AT_LOWER, AT_UPPER)
        codes[: self.n][np.isinf(lower) & np.isinf(upper)] = AT_ZERO
        codes[self.n : self.n + self.equalities] = AT_LOWER
        codes[self.n + self.equalities :] = AT_UPPER
        codes[np.where(basic >= 0, basic, self.n - 1 - basic)] = BASIC


def _same(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return all(a is b or np.array_equal(a, b) for a, b in zip(one, other, strict=True))
