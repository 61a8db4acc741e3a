"""Which exact solver suits a program: an oracle where its structure is known, HiGHS otherwise."""

from __future__ import annotations

from dflearn.errors import ProgramError
from dflearn.program import Instance, Program
from dflearn.solvers.base import Solver


def best_solver(program: Program, instance: Instance | None = None) -> Solver:
    """The fastest exact solver that we have for this program.

    In this order: a shortest path in an acyclic graph, the k best items, few rows (a linear program with finite bounds, or
    yes-or-no decisions under inequalities), anything else. Where instances have right-hand sides of their own, only the last
    two; where they have bounds of their own, only the last.
    """
    from dflearn.solvers.few_rows import FewRowBinary, FewRowLP
    from dflearn.solvers.highs import HiGHS
    from dflearn.solvers.oracles import DagShortestPath, TopK

    differing = set() if instance is None else set(instance.present())
    known = () if differing & {"lower", "upper"} else (FewRowLP, FewRowBinary)
    for recognize in (*(() if differing - {"d"} else (DagShortestPath.of, TopK.of)), *known):
        try:
            return recognize(program)
        except ProgramError:
            continue
    return HiGHS(program)
