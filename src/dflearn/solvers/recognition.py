"""Which exact solver suits a program: an oracle where its structure is known, HiGHS otherwise."""

from __future__ import annotations

from dflearn.errors import ProgramError
from dflearn.program import Program
from dflearn.solvers.base import Solver


def best_solver(program: Program) -> Solver:
    """The fastest exact solver that we have for this program.

    In this order: a shortest path in an acyclic graph, the k best items, few rows (a linear program with finite bounds, or
    yes-or-no decisions under inequalities), anything else.
    """
    from dflearn.solvers.few_rows import FewRowBinary, FewRowLP
    from dflearn.solvers.highs import HiGHS
    from dflearn.solvers.oracles import DagShortestPath, TopK

    for recognize in (DagShortestPath.of, TopK.of, FewRowLP, FewRowBinary):
        try:
            return recognize(program)
        except ProgramError:
            continue
    return HiGHS(program)
