"""Exact solvers: costs in, one `Solution` out."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy

if TYPE_CHECKING:
    from dflearn.solvers.base import Raw as Raw, Solution as Solution, Solver as Solver, Status as Status
    from dflearn.solvers.callable import from_callable as from_callable
    from dflearn.solvers.few_rows import FewRowBinary as FewRowBinary, FewRowLP as FewRowLP
    from dflearn.solvers.graph import Graph as Graph
    from dflearn.solvers.gurobi import Gurobi as Gurobi
    from dflearn.solvers.highs import HiGHS as HiGHS
    from dflearn.solvers.oracles import DagShortestPath as DagShortestPath, TopK as TopK
    from dflearn.solvers.wrappers import Parallel as Parallel, Pooled as Pooled

_NAMES = {
    "dflearn.solvers.base": ("Raw", "Solution", "Solver", "Status"),
    "dflearn.solvers.highs": ("HiGHS",),
    "dflearn.solvers.gurobi": ("Gurobi",),
    "dflearn.solvers.callable": ("from_callable",),
    "dflearn.solvers.graph": ("Graph",),
    "dflearn.solvers.few_rows": ("FewRowBinary", "FewRowLP"),
    "dflearn.solvers.oracles": ("DagShortestPath", "TopK"),
    "dflearn.solvers.wrappers": ("Parallel", "Pooled"),
}

__all__ = [*(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
