"""Which exact solver suits a program: an oracle where its structure is known, `SmallLP` or HiGHS otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from torch import Tensor

from dflearn.errors import MissingExtraError, ProgramError
from dflearn.program import Instance, Program
from dflearn.program.sides import Sides
from dflearn.solvers.base import Raw, Solution, Solver
from dflearn.solvers.wrappers import Wrapper


def best_solver(program: Program) -> Solver:
    """The fastest exact solver that we have for this program.

    In this order: a shortest path in an acyclic graph, the k best items, few rows (a linear program with finite bounds, or
    yes-or-no decisions under inequalities), any small linear program, facilities to open (rows whose capacity a switch turns on),
    anything else.
    Integer programs with a quadratic objective are Gurobi's or SCIP's.
    """
    from dflearn.solvers.few_rows import FewRowBinary, FewRowLP
    from dflearn.solvers.highs import HiGHS
    from dflearn.solvers.oracles import DagShortestPath, TopK
    from dflearn.solvers.relaxation_first import RelaxationFirst
    from dflearn.solvers.small_lp import SmallLP

    if program.Q is not None and program.is_integer:
        return _integer_quadratic(program)
    oracles: tuple[Callable[[Program], Solver], ...] = (DagShortestPath.of, TopK.of, FewRowLP, FewRowBinary)
    for oracle in oracles:
        try:
            return Recognized(oracle(program))
        except ProgramError:
            continue
    for general in (SmallLP, RelaxationFirst):
        if general.suits(program):
            return general(program)
    return HiGHS(program)


def _integer_quadratic(program: Program) -> Solver:
    """Gurobi or SCIP, whichever is installed; an error that names both where neither is."""
    from dflearn.solvers.gurobi import Gurobi
    from dflearn.solvers.scip import SCIP

    for solver in (Gurobi, SCIP):
        try:
            return solver(program)
        except MissingExtraError:
            continue
    raise MissingExtraError(
        f"{program!r} has a quadratic objective and integer variables, which HiGHS does not solve: install Gurobi, "
        "pip install dflearn[gurobi], or SCIP, pip install dflearn[scip]; or decide on program.relax()"
    )


class Recognized(Wrapper):
    """An oracle for the program's structure. Batches whose instances change that structure go to HiGHS.

    Attributes:
        solver: the oracle.
    """

    def __init__(self, solver: Solver) -> None:
        super().__init__(solver)
        self.parallel = solver.parallel

    def __repr__(self) -> str:
        return repr(self.solver)

    @property
    def identity(self) -> str:
        return self.solver.identity

    @cached_property
    def _general(self) -> Solver:
        from dflearn.solvers.highs import HiGHS

        assert self.program is not None
        return HiGHS(self.program)

    def solve(self, y: Tensor, instance: Instance | None = None, start: Tensor | None = None) -> Solution:
        try:
            return self.solver.solve(y, instance, start)
        except ProgramError:  # constraints of its own, or bounds that the oracle does not take
            if instance is None:
                raise
            return self._general.solve(y, instance, start)

    def _solve(self, c: np.ndarray, sides: Sides | None, start: np.ndarray | None) -> Raw:
        try:
            return self.solver._solve(c, sides, start)
        except ProgramError:
            if sides is None or sides.is_shared:
                raise
            return self._general._solve(c, sides, start)
