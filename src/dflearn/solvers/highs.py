"""`ModelSolver`, which HiGHS, Gurobi and SCIP share; and HiGHS, the default exact solver of LPs and MILPs, and of QPs with Clarabel."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch

from dflearn.engine.certify import OPTIMAL
from dflearn.errors import OptionError, ProgramError
from dflearn.program import Program, Quadratic
from dflearn.program.sides import Sides
from dflearn.solvers.base import Basis, Raw, Solver, Status, check_basis
from dflearn.solvers.convex import ConvexQP, Part, parts_of
from dflearn.solvers.model import SMALLEST, Model

DROPPED = 1e-9  # entries of a matrix that are no larger are taken for zero, unless HiGHS is told otherwise
DUAL, PRIMAL = 1, 4  # HiGHS's codes of its simplex methods
FEASIBLE_POINT = 2  # HiGHS's code for a primal feasible point
# The presolve rule that in HiGHS 1.15 may undo and redo the same step for ever, whatever the time limit.
SPARSIFY = 1 << 14
PRESOLVE_FROM = 20_000  # rows and variables from which an LP is presolved; below it costs more than it saves


class ModelSolver(Solver):
    """Exact LPs and MILPs on a back end's model object. Subclasses write `_build` and `identity`.

    Arguments: as of `HiGHS`.
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
        return np.asarray(self._solve(np.zeros((count, self.objective.n)), sides, None).status == Status.INFEASIBLE)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        assert sides is not None
        if self.program.Q is not None:
            out = self._solve_quadratic(c, sides)
            self._by_parts(c, sides, out)
            return out
        model, count = self._model(), c.shape[0]
        out = Raw.empty(count, self.objective.n)
        if start is not None:
            check_basis(start)
            out = replace(out, start=np.full((count, self.start_width), Basis.NONE, np.int8))
        if self.program.is_integer:
            model.solve_integers(c, sides, self.gap, out)
            failed = self._failed(out)
            if failed.size and (other := self.next_solver) is not None:
                rest = other._solve(c[failed], sides.rows(failed), None)
                out.put(failed, replace(rest, fallback=np.ones(len(failed), bool)))
        else:
            model.solve_linear(c, sides, start, out)
        np.add(out.decision, 0.0, out=out.decision)  # turns −0 into 0
        out.objective[:] = np.einsum("ij,ij->i", c, out.decision)
        np.fmin(out.bound, out.objective, out=out.bound)  # where there is no objective, there is no bound either
        return out

    @property
    def next_solver(self) -> ModelSolver | None:
        """Another back end, for integer programs whose answers do not pass."""
        return None

    def _failed(self, out: Raw) -> np.ndarray:
        """The instances that were not solved. Without a time limit, FEASIBLE means not proven optimal."""
        doubtful = (Status.FAILED, Status.FEASIBLE) if np.isinf(self.time_limit) else (Status.FAILED,)
        return np.flatnonzero(np.isin(out.status, doubtful))

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

    @cached_property
    def _parts(self) -> list[tuple[Part, ModelSolver]]:
        """The independent parts of a program with Q, each with a solver."""
        limits: dict[str, Any] = {"time_limit": self.time_limit, "gap": self.gap, "threads": self.threads}
        parts = parts_of(self.program)
        return [(part, (type(self) if part.program.is_integer else HiGHS)(part.program, **limits)) for part in parts]

    def _by_parts(self, c: np.ndarray, sides: Sides, out: Raw) -> None:
        """Solve independent parts one by one where the whole failed: their costs may lie 16 orders of magnitude apart."""
        failed = self._failed(out)
        if not failed.size or len(self._parts) < 2:
            return
        c, sides, new = c[failed], sides.rows(failed), Raw.empty(len(failed), c.shape[1])
        new.status[:], new.objective[:], new.bound[:] = int(Status.OPTIMAL), 0.0, 0.0
        for part, solver in self._parts:
            found = solver._solve(np.ascontiguousarray(c[:, part.variables]), part.sides(sides), None)
            new.decision[:, part.variables] = found.decision
            new.objective[:] += found.objective
            new.bound[:] += found.bound
            np.maximum(new.status, found.status, out=new.status)
        solved = new.status == int(Status.OPTIMAL)
        rows = failed[solved]
        out.decision[rows], out.status[rows] = new.decision[solved], int(Status.OPTIMAL)
        out.objective[rows], out.bound[rows] = new.objective[solved], new.bound[solved]
        if out.fallback is not None and out.reason is not None:
            out.fallback[rows], out.reason[rows] = True, ""


class HiGHS(ModelSolver):
    """Exact LP and MILP solver on HiGHS.

    Convex QPs are solved by Clarabel (`convex`): HiGHS's own quadratic solver adds 1e-7 to the Hessian, and may not come back. Integer
    QPs are refused.

    Args:
        program: what to solve.
        time_limit: seconds per instance.
        gap: relative MIP gap at which a decision counts as optimal.
        threads: of one solve. To solve instances side by side use `Parallel`.
        presolve: whether cold solves are presolved; by default MILPs and large LPs are.

    Examples:
        >>> dfl.HiGHS(program, time_limit=10.0).solve(data.costs[:1]).decision.sum()
        tensor(4.)
    """

    def __init__(
        self,
        program: Program,
        *,
        time_limit: float = np.inf,
        gap: float = 0.0,
        threads: int = 1,
        presolve: bool | None = None,
    ) -> None:
        super().__init__(program, time_limit=time_limit, gap=gap, threads=threads)
        if program.Q is not None and program.is_integer:
            raise ProgramError(
                f"HiGHS cannot solve {program!r}: it has a quadratic objective and integer variables; use Gurobi(program) or "
                "SCIP(program)"
            )
        self.presolve = presolved(program) if presolve is None else bool(presolve)

    @property
    def identity(self) -> str:
        import highspy

        limits = f"time_limit={self.time_limit} gap={self.gap} threads={self.threads} presolve={self.presolve}"
        how = "" if self.program.Q is None else f"convex-2 by Clarabel {version('clarabel')} on "
        return f"{how}HiGHS {highspy.Highs().version()} {limits}"

    def with_diagonal(self, q: np.ndarray) -> HiGHS:
        Q = Quadratic(diagonal=q) if self.program.Q is None else self.program.Q.plus(q)
        return HiGHS(replace(self.program, Q=Q), time_limit=self.time_limit, gap=self.gap, threads=self.threads)

    def _build(self, program: Program) -> Model:
        return _HighsModel(self, program)


def presolved(program: Program) -> bool:
    """Whether presolve is worth its time."""
    return program.is_integer or program.n + program.A.shape[0] + program.G.shape[0] >= PRESOLVE_FROM


class _HighsModel(Model):
    """One `highspy.Highs` object that holds the program, without costs."""

    def __init__(self, solver: HiGHS, program: Program) -> None:
        import highspy

        super().__init__(program, solver._build, solver.time_limit)
        program, sides = self.scaled, self.scaled.own_sides
        self.highspy = highspy
        self.highs: Any = highspy.Highs()  # its type stubs lack methods that it has
        self._options: dict[str, Any] = {}
        options: dict[str, Any] = {
            "output_flag": False, "threads": solver.threads, "random_seed": 0, "presolve_rule_off": SPARSIFY,
            "mip_rel_gap": solver.gap, "mip_abs_gap": 1e-9,
        }  # fmt: skip
        matrix = sp.vstack([program.A, program.G], format="csr")
        if matrix.nnz and np.abs(matrix.data).min() <= DROPPED:
            options["small_matrix_value"] = SMALLEST
        for option, value in options.items():
            self.set_option(option, value)
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.col_cost_ = np.zeros(program.n)
        lp.col_lower_, lp.col_upper_ = sides.lower, sides.upper
        lp.row_lower_ = np.concatenate([sides.b, np.full(len(sides.h), -np.inf)])
        lp.row_upper_ = np.concatenate([sides.b, sides.h])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
        if program.is_integer:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(flag)] for flag in program.integer]
        if self.highs.passModel(lp) == highspy.HighsStatus.kError:
            raise ProgramError(f"HiGHS refused {program!r}: matrix entries must be below 1e15, equalities below 1e20")
        self.presolve = solver.presolve if self.program is solver.program else presolved(program)
        self.unpresolved = False
        self.columns = np.arange(self.n, dtype=np.int32)
        self.row_numbers = np.arange(self.rows, dtype=np.int32)
        self.basis_statuses = np.array([highspy.HighsBasisStatus(code) for code in range(4)], dtype=object)
        status = highspy.HighsModelStatus
        self.statuses = {
            status.kOptimal: Status.OPTIMAL,
            status.kInfeasible: Status.INFEASIBLE,
            status.kUnbounded: Status.UNBOUNDED,
            status.kUnboundedOrInfeasible: None,
        }
        self.limits = {status.kTimeLimit, status.kIterationLimit, status.kSolutionLimit, status.kMemoryLimit}
        if not self.integer:
            # HiGHS keeps the scaling of its first solve, costs included: let no instance's costs decide on it.
            self.run(np.zeros(self.n), None)

    def set_option(self, option: str, value: Any) -> None:
        if self._options.get(option) == value:
            return
        if self.highs.setOptionValue(option, value) != self.highspy.HighsStatus.kOk:
            raise OptionError(f"HiGHS refused the option {option}={value}")
        self._options[option] = value

    def change_rows(self, b: np.ndarray, h: np.ndarray) -> None:
        lower = np.concatenate([b, np.full(self.inequalities, -np.inf)])
        self.highs.changeRowsBounds(self.rows, self.row_numbers, lower, np.concatenate([b, h]))

    def change_bounds(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self.highs.changeColsBounds(self.n, self.columns, np.ascontiguousarray(lower), np.ascontiguousarray(upper))

    def run(self, c: np.ndarray, basis: np.ndarray | None) -> Status | None:
        self.highs.changeColsCost(self.n, self.columns, c)
        # Of the same instance with other costs, the last basis is primal feasible still: the primal method goes on from it.
        self.set_option("simplex_strategy", DUAL if basis is None else PRIMAL)
        presolve = self.presolve and not self.unpresolved
        status = self.run_once(basis, presolve)
        if status is Status.FAILED and not presolve:
            status = self.run_once(None, True)
        elif presolve and (status is None or status is Status.INFEASIBLE):
            status = self.run_once(None, False)  # presolve may call a program infeasible that has no end
        return status

    def run_once(self, basis: np.ndarray | None, presolve: bool) -> Status | None:
        self.highs.clearSolver()
        self.set_option("presolve", "on" if presolve else "off")
        if basis is not None:
            start = self.highspy.HighsBasis()
            start.col_status = self.basis_statuses[basis[: self.n]].tolist()
            start.row_status = self.basis_statuses[basis[self.n :]].tolist()
            start.valid = True
            self.highs.setBasis(start)
        self.set_option(
            "time_limit", self.highs.getRunTime() + self.time_limit
        )  # HiGHS's clock runs on from solve to solve
        if self.highs.run() == self.highspy.HighsStatus.kError:
            # HiGHS has one scheduler per thread, which may have been made for another number of threads.
            self.highspy.Highs.resetGlobalScheduler(True)
            self.highs.run()
        found = self.highs.getModelStatus()
        if found in self.limits:
            feasible = self.highs.getInfo().primal_solution_status == FEASIBLE_POINT
            return Status.FEASIBLE if feasible else Status.NOT_FOUND
        return self.statuses.get(found, Status.FAILED)

    def decision(self) -> np.ndarray:
        return np.fromiter(self.highs.getSolution().col_value, np.float64, self.n)

    def decision_and_prices(self) -> tuple[np.ndarray, np.ndarray]:
        found = self.highs.getSolution()
        y = np.fromiter(found.row_dual, np.float64, self.rows) if found.dual_valid else np.zeros(self.rows)
        return np.fromiter(found.col_value, np.float64, self.n), y

    def ray(self) -> np.ndarray | None:
        _, there, ray = self.highs.getDualRay()
        return np.asarray(ray) if there else None

    def be_strict(self, strict: bool, presolve: bool = False) -> None:
        self.unpresolved = strict and not presolve
        self.set_option("mip_feasibility_tolerance", 1e-9 if strict else 1e-6)
        for side in ("primal", "dual"):
            self.set_option(f"{side}_feasibility_tolerance", 1e-9 if strict else 1e-7)

    def bound(self) -> float:
        return float(self.highs.getInfo().mip_dual_bound)

    def basis(self, w: np.ndarray, codes: np.ndarray) -> None:
        """Asking HiGHS which variables are basic is far cheaper than asking for the statuses of all."""
        found, basic = self.highs.getBasicVariables()
        if found != self.highspy.HighsStatus.kOk:
            return
        lower, upper = self.held.lower, self.held.upper
        codes[: self.n] = np.where(np.abs(w - lower) <= np.abs(upper - w), Basis.AT_LOWER, Basis.AT_UPPER)
        codes[: self.n][np.isinf(lower) & np.isinf(upper)] = Basis.AT_ZERO
        codes[self.n : self.n + self.equalities] = Basis.AT_LOWER
        codes[self.n + self.equalities :] = Basis.AT_UPPER
        codes[np.where(basic >= 0, basic, self.n - 1 - basic)] = Basis.BASIC


def proven_infeasible(program: Program, time_limit: float = 20.0) -> Callable[[Sides, int], np.ndarray]:
    """Which of so many instances with these sides HiGHS proves to have no feasible point, as a function of both."""

    def proven(sides: Sides, count: int) -> np.ndarray:
        try:
            return HiGHS(program, time_limit=time_limit).proven_infeasible(sides, count)
        except ProgramError:  # its numbers span more than HiGHS can hold
            return np.zeros(count, bool)

    return proven
