"""`DecisionTask`: one answer to "what is decided"; and `best_solver`: which exact solver suits a program."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from dflearn.errors import DataError, MissingExtraError, OptionError, ProgramError, ShapeError
from dflearn.program import Objective, Program
from dflearn.solvers.base import Solver
from dflearn.solvers.callable import from_callable
from dflearn.solvers.gurobi import Gurobi
from dflearn.solvers.highs import HiGHS
from dflearn.solvers.oracles import DagShortestPath, TopK
from dflearn.solvers.scip import SCIP
from dflearn.solvers.structured import FewRowBinary, FewRowLP, RelaxationFirst, SmallLP


def best_solver(program: Program) -> Solver:
    """The fastest exact solver that we have for this program.

    In this order: a shortest path in an acyclic graph, the k best items, few rows (a linear program with finite bounds, or
    yes-or-no decisions under inequalities), any small linear program, facilities that must all open (rows whose capacity a
    switch turns on), HiGHS. Integer programs with a quadratic objective are Gurobi's or SCIP's, whichever is installed.
    """
    if program.Q is not None and program.is_integer:
        for quadratic in (Gurobi, SCIP):
            with suppress(MissingExtraError):
                return quadratic(program)
        raise MissingExtraError(
            f"{program!r} has a quadratic objective and integer variables, which HiGHS does not solve: install Gurobi, "
            "pip install 'dflearn[gurobi]', or SCIP, pip install 'dflearn[scip]'; or decide on program.relax()"
        )
    oracles: tuple[Callable[[Program], Solver], ...] = (DagShortestPath, TopK, FewRowLP, FewRowBinary, SmallLP)
    for oracle in oracles:
        with suppress(ProgramError):
            return oracle(program)
    if RelaxationFirst.suits(program) and (first := RelaxationFirst(program)).linear is not None:
        return first
    return HiGHS(program)


@dataclass(frozen=True, eq=False)
class DecisionTask:
    """A decision problem: how it is judged and how it is solved.

    Attributes:
        objective: obj(y, w), by which decisions are judged.
        solver: solves the true program exactly: labels and judges.
        relaxed: a cheaper solver of the LP relaxation, to train with; the exact one where no program is known.
        program: the program, where one is known.
        expected_costs: features → E[y | x], where the problem knows it: the floor of every regret.
        name: what messages and reports call it.
    """

    objective: Objective
    solver: Solver
    relaxed: Solver
    program: Program | None = None
    expected_costs: Callable[[Tensor], Tensor] | None = None
    name: str = "decision"

    @classmethod
    def of(cls, what: Decided, costs: int | None = None) -> DecisionTask:
        """The task of a `Problem`, a `Program`, which the fastest exact solver solves (see `best_solver`), a `Solver`, or a function c → w
        that only decides.

        Args:
            costs: how many costs the data have. A function needs it; all others are checked.
        """
        task = cls._of(what, costs)
        if task.program is not None and task.program.predicts_rows:
            _warn_of_rows_without_recourse(task.program)
        if costs is not None and costs != task.objective.p:
            raise ShapeError(f"{task.name} has {task.objective.p} costs, and the data have {costs}")
        return task

    @classmethod
    def _of(cls, what: Decided, costs: int | None) -> DecisionTask:
        if isinstance(what, DecisionTask):
            return what
        if isinstance(what, Decides):
            return what.task()
        if isinstance(what, Program):
            return cls(what.objective, best_solver(what), best_solver(what.relax()), what, name=what.name)
        if isinstance(what, Solver):
            program = what.program
            integer = program is not None and program.is_integer
            relaxed = best_solver(program.relax()) if program is not None and integer else what
            return cls(what.objective, what, relaxed, program, name="decision" if program is None else program.name)
        if callable(what) and not isinstance(what, (type, nn.Module)):
            if costs is None:
                raise OptionError(
                    "a function decides for as many costs as the data have, and here no data tell how many: "
                    "wrap it with dflearn.from_callable(function, n)"
                )
            return cls._of(from_callable(what, costs), costs)
        example = f"dflearn.problems.problem_named({what if isinstance(what, str) else 'SP-5'!r})"
        raise OptionError(
            f"a Problem, a Program, a Solver or a function from costs to a decision says what is decided; got "
            f"{repr(what) if isinstance(what, str) else f'a {type(what).__name__}'}. For example: {example}"
        )


def check_solves(solver: Solver, program: Program | None) -> None:
    """An error where a solver is known to solve another program than the one on which decisions are judged."""
    if program is not None and solver.program is not None and solver.program.fingerprint != program.fingerprint:
        raise DataError(
            f"the solver solves {solver.program!r}, but decisions are judged on {program!r}, which is another program; "
            "smoothing and relaxation are for training only"
        )


def _warn_of_rows_without_recourse(program: Program) -> None:
    """Warn of predicted rows in which no variable can be decided again."""
    later = np.flatnonzero(np.zeros(program.n, bool) if program.recourse is None else program.recourse)
    found = []
    for side, moves, rows in (("b", program.B, program.A), ("h", program.H, program.G)):
        if moves is not None:
            helped = np.diff(rows[:, later].indptr) > 0
            found += [f"{side}[{i}]" for i in np.flatnonzero((np.diff(moves.indptr) > 0) & ~helped)]
    if found:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        warnings.warn(
            f"{len(found)} predicted right-hand sides of {program.name} ({shown}) stand in rows without a recourse variable: a "
            "decision made with a wrong prediction may break them, and its cost is then infinite; "
            "program.elastic(rows, price) adds priced slack",
            RuntimeWarning,
            stacklevel=4,
        )


class Decides(ABC):
    """Whatever knows its own task; `Problem` does."""

    @abstractmethod
    def task(self) -> DecisionTask: ...


Decided = DecisionTask | Decides | Program | Solver | Callable[[np.ndarray], Any]
