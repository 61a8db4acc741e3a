"""Which exact solver suits a program: an oracle where its structure is known, `SmallLP` or HiGHS otherwise."""

from __future__ import annotations

from collections.abc import Callable

from dflearn.errors import MissingExtraError, ProgramError
from dflearn.program import Program
from dflearn.solvers.base import Solver


def best_solver(program: Program) -> Solver:
    """The fastest exact solver that we have for this program.

    In this order: a shortest path in an acyclic graph, the k best items, few rows (a linear program with finite bounds, or
    yes-or-no decisions under inequalities), any small linear program, facilities that must all open (rows whose capacity a
    switch turns on), anything else.
    Integer programs with a quadratic objective are Gurobi's or SCIP's.
    """
    from dflearn.solvers.highs import HiGHS
    from dflearn.solvers.oracles import DagShortestPath, TopK
    from dflearn.solvers.structured import FewRowBinary, FewRowLP, RelaxationFirst, SmallLP

    if program.Q is not None and program.is_integer:
        return _integer_quadratic(program)
    oracles: tuple[Callable[[Program], Solver], ...] = (DagShortestPath.of, TopK.of, FewRowLP, FewRowBinary, SmallLP)
    for oracle in oracles:
        try:
            return oracle(program)
        except ProgramError:
            continue
    if RelaxationFirst.suits(program):
        first = RelaxationFirst(program)
        if first.linear is not None:
            return first
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
        "pip install 'dflearn[gurobi]', or SCIP, pip install 'dflearn[scip]'; or decide on program.relax()"
    )
