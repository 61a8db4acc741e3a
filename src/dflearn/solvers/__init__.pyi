"""The public names of dflearn.solvers, each imported when it is first used."""

from .base import Raw as Raw, Solution as Solution, Solver as Solver, Status as Status
from .callable import from_callable as from_callable
from .gurobi import Gurobi as Gurobi
from .highs import HiGHS as HiGHS
from .oracles import DagShortestPath as DagShortestPath, TopK as TopK
from .scip import SCIP as SCIP
from .structured import (
    FewRowBinary as FewRowBinary,
    FewRowLP as FewRowLP,
    RelaxationFirst as RelaxationFirst,
    SmallLP as SmallLP,
)
from .wrappers import Parallel as Parallel, Pooled as Pooled
