"""dflearn: decision-focused learning for linear and mixed-integer programs."""

from typing import TYPE_CHECKING

from dflearn._lazy import lazy
from dflearn._version import __version__

if TYPE_CHECKING:
    from dflearn import (
        errors as errors,
        layers as layers,
        losses as losses,
        models as models,
        problems as problems,
        solvers as solvers,
    )
    from dflearn.data import Batch as Batch, DecisionDataset as DecisionDataset
    from dflearn.data.labels import label as label
    from dflearn.doctor import Diagnosis as Diagnosis, diagnose as diagnose
    from dflearn.estimator import (
        DecisionFocusedRegressor as DecisionFocusedRegressor,
        decide as decide,
        train as train,
    )
    from dflearn.evaluation import Evaluation as Evaluation, compare as compare, evaluate as evaluate
    from dflearn.frontends.cvxpy import CvxpyProgram as CvxpyProgram, from_cvxpy as from_cvxpy
    from dflearn.frontends.files import from_lp as from_lp, from_mps as from_mps
    from dflearn.frontends.gurobi import from_gurobi as from_gurobi
    from dflearn.frontends.instances import as_instances as as_instances
    from dflearn.frontends.pyepo import from_pyepo as from_pyepo, to_pyepo as to_pyepo
    from dflearn.frontends.pyomo import from_pyomo as from_pyomo
    from dflearn.frontends.scipy import from_linprog as from_linprog, from_milp as from_milp
    from dflearn.layers.base import Exact as Exact, Layer as Layer
    from dflearn.layers.cvxpy import CvxpySmoothed as CvxpySmoothed
    from dflearn.layers.davis_yin import DavisYin as DavisYin
    from dflearn.layers.perturbed import Perturbed as Perturbed
    from dflearn.layers.smoothed import Smoothed as Smoothed
    from dflearn.program import Instance as Instance, Objective as Objective, Program as Program
    from dflearn.solvers.base import Solution as Solution, Solver as Solver, Status as Status
    from dflearn.solvers.callable import from_callable as from_callable
    from dflearn.solvers.few_rows import FewRowBinary as FewRowBinary, FewRowLP as FewRowLP
    from dflearn.solvers.gurobi import Gurobi as Gurobi
    from dflearn.solvers.highs import HiGHS as HiGHS
    from dflearn.solvers.oracles import DagShortestPath as DagShortestPath
    from dflearn.solvers.wrappers import Parallel as Parallel, Pooled as Pooled
    from dflearn.training import Callback as Callback, History as History, fit as fit, tune as tune

_NAMES = {
    "dflearn": ("errors", "layers", "losses", "models", "problems", "solvers"),
    "dflearn.program": ("Instance", "Objective", "Program"),
    "dflearn.solvers.base": ("Solution", "Solver", "Status"),
    "dflearn.solvers.highs": ("HiGHS",),
    "dflearn.solvers.gurobi": ("Gurobi",),
    "dflearn.solvers.callable": ("from_callable",),
    "dflearn.solvers.few_rows": ("FewRowBinary", "FewRowLP"),
    "dflearn.solvers.oracles": ("DagShortestPath",),
    "dflearn.solvers.wrappers": ("Parallel", "Pooled"),
    "dflearn.frontends.files": ("from_lp", "from_mps"),
    "dflearn.frontends.scipy": ("from_linprog", "from_milp"),
    "dflearn.frontends.gurobi": ("from_gurobi",),
    "dflearn.frontends.pyomo": ("from_pyomo",),
    "dflearn.frontends.cvxpy": ("CvxpyProgram", "from_cvxpy"),
    "dflearn.frontends.pyepo": ("from_pyepo", "to_pyepo"),
    "dflearn.frontends.instances": ("as_instances",),
    "dflearn.layers.base": ("Exact", "Layer"),
    "dflearn.layers.perturbed": ("Perturbed",),
    "dflearn.layers.smoothed": ("Smoothed",),
    "dflearn.layers.davis_yin": ("DavisYin",),
    "dflearn.layers.cvxpy": ("CvxpySmoothed",),
    "dflearn.data": ("Batch", "DecisionDataset"),
    "dflearn.data.labels": ("label",),
    "dflearn.evaluation": ("compare", "evaluate", "Evaluation"),
    "dflearn.estimator": ("DecisionFocusedRegressor", "decide", "train"),
    "dflearn.doctor": ("diagnose", "Diagnosis"),
    "dflearn.training": ("Callback", "fit", "History", "tune"),
}

__all__ = ["__version__", *(name for names in _NAMES.values() for name in names)]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _NAMES)
